"""The profiles that a user has: of the folder that he stands in, and of the configuration folder. Found, never changed.

A file of the working folder that is somebody else's TOML (pyproject.toml) is none; one that means to be a profile and
is broken is told with its error, since it is missed otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path

from msgspec import Struct

from supervisor import profile, tables
from supervisor.core.lines import sanitise
from supervisor.errors import ProfileError
from supervisor.profile import Profile

MOST = 500
"""Files looked at: whoever stands in a folder of thousands must not wait for a list of them."""
_MEANS_A_PROFILE = re.compile(rb"^\s*\[\s*(?:node|launch)\s*[\].]", re.MULTILINE)


class Known(Struct, frozen=True, kw_only=True):
    """One file. Either `profile`, or why it cannot be used, in one line."""

    path: Path
    typed: str
    """What would be typed for it: a path of the working folder, else the name."""
    profile: Profile | None = None
    error: str = ""


def known(*, cwd: Path, config_dir: Path, engines: Collection[str]) -> tuple[Known, ...]:
    """Every profile of the two places, those of the working folder first."""
    out: list[Known] = []
    seen: set[Path] = set()
    names: set[str] = set()
    for path, ours in _files(cwd, config_dir):
        where = path.resolve()
        if where in seen or not (ours or _means_a_profile(path)):
            continue
        seen.add(where)
        # A name finds the working folder's file first: then the other is reached by its path alone.
        typed = str(path) if ours and path.stem in names else (path.stem if ours else f"./{path.name}")
        names.add(path.stem)
        out.append(_read(path, typed, engines))
    return tuple(out)


def _files(cwd: Path, config_dir: Path) -> Iterator[tuple[Path, bool]]:
    found = [(path, False) for path in tables.siblings(cwd)]
    found += [(path, True) for path in tables.siblings(config_dir / "profiles")]
    yield from found[:MOST]


def _means_a_profile(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return _MEANS_A_PROFILE.search(file.read(tables.MAX_BYTES)) is not None
    except (OSError, ValueError):
        return False


def _read(path: Path, typed: str, engines: Collection[str]) -> Known:
    try:
        return Known(path=path, typed=typed, profile=profile.load(path, engines=engines))
    except ProfileError as error:
        return Known(path=path, typed=typed, error=problem(error))


def problem(error: ProfileError) -> str:
    """What is wrong, without the file's name, on one line that is safe to show."""
    where = f"line {error.line}: " if error.line is not None else ""
    key = f"{error.key}: " if error.key else ""
    return sanitise(" ".join(f"{where}{key}{error.problem}".split()))
