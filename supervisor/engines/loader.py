"""Loads `engines/*.toml` into `core.engine.Engine`s, and finds the one that a command launches.

Users add and change engines in the `engines` folder of their configuration (`own.py` says how). All of their files are
read when the first engine is asked for by name, so that a wrong one is told before anything is launched. What was read
once stays for the life of the program: a file that is edited meanwhile changes no run.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from supervisor.core.engine import Common, Engine, Line, Root, Stage

if TYPE_CHECKING:
    from supervisor.core.known import Known

GENERIC = "generic"
COMMON = "common"
"""A user's file of this name is no engine: its rules come before those that all engines have in common."""
_FOLDER = Path(__file__).parent
_PLAIN = Engine(name=GENERIC, title="any server")


def own_folder() -> Path:
    """Where users put engine files of their own."""
    from supervisor.places import config_dir

    return config_dir() / "engines"


def plain() -> Engine:
    """The rule for any endpoint, 200 is ready. A wait for a plain URL needs no more, and no file is read for it."""
    return _PLAIN


def names() -> tuple[str, ...]:
    """The names of the engines that are known, sorted; users' own among them."""
    return _names(own_folder())


def load(name: str) -> Engine:
    """One engine. Raises `KeyError` for a name that is not known, `ValueError` for a file that is wrong.

    A wrong file of a user's is an `own.EngineFileError`, whichever engine was asked for.
    """
    return _load(name, own_folder())


def common() -> Common:
    """What the logs of all engines have in common. Raises as `load`."""
    return _common(own_folder())


def known_holders() -> Known:
    """Who holds GPU memory, by name: the engines' titles, and `known/holders.toml`, which is no engine."""
    return _known_holders(own_folder())


def detect(argv: Sequence[str]) -> Engine | None:
    """The engine that this command launches, None where none or more than one fits. A user's own comes first."""
    from supervisor.core import command  # late: a wait for a plain URL has no command

    found = command.candidates(argv, {name: load(name).detect for name in names()})
    if len(found) > 1:
        found = tuple(name for name in found if name in _own(own_folder())) or found
    return load(found[0]) if len(found) == 1 else None


def check(engine: Engine) -> None:
    """What the types do not say and a reader of a flowing log relies on. Raises `ValueError`."""
    rules: tuple[Stage | Line | Root, ...] = (
        *engine.stages, *engine.ready_lines, *engine.headers, *engine.roots,
    )  # fmt: skip
    for rule in rules:
        if not rule.literals or not all(word and word.isascii() and word.isprintable() for word in rule.literals):
            raise ValueError(
                f"{engine.name}: the rule {rule.pattern!r} needs `literals`: printable ASCII words, "
                "of which every line that it fits has at least one"
            )


# ------------------------------------------------------------------------------------------------ by folder


@cache
def _names(folder: Path) -> tuple[str, ...]:
    built_in = {path.stem for path in _FOLDER.glob("*.toml")}
    return tuple(sorted((built_in | set(_own(folder))) - {GENERIC, COMMON}))


@cache
def _load(name: str, folder: Path) -> Engine:
    found = _own_engines(folder).get(name)
    if found is None:
        if name not in (GENERIC, *_names(folder)):  # "common" and "roots" are no engines
            raise KeyError(name)
        found = _built_in(name)
    check(found)
    return found


@cache
def _built_in(name: str) -> Engine:
    return msgspec.convert(_document(name), Engine)


def _document(name: str) -> dict[str, Any]:
    import tomllib  # late: a wait for a plain URL needs no file

    path = _FOLDER / "known" / f"{name}.toml" if name in (GENERIC, "roots") else _FOLDER / f"{name}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


@cache
def _own(folder: Path) -> dict[str, Path]:
    """Name → file of a user's. The folder is hardly ever there: then nothing more is loaded for it."""
    if not folder.is_dir():
        return {}
    from supervisor.engines import own

    return own.files(folder)


@cache
def _own_engines(folder: Path) -> dict[str, Engine]:
    files = _own(folder)
    if not files:
        return {}
    from supervisor.engines import own

    _common(folder)
    built_in = {path.stem for path in _FOLDER.glob("*.toml")} | {GENERIC}
    return {
        name: own.load(path, _document(name) if name in built_in else None, Engine)
        for name, path in files.items()
        if name != COMMON
    }


@cache
def _common(folder: Path) -> Common:
    document = _document("roots") if (_FOLDER / "known" / "roots.toml").is_file() else {}
    file = _own(folder).get(COMMON)
    if file is None:
        return msgspec.convert(document, Common)
    from supervisor.engines import own

    return own.load(file, document, Common)


@cache
def _known_holders(folder: Path) -> Known:
    import tomllib

    from supervisor.core.known import Known

    raw = tomllib.loads((_FOLDER / "known" / "holders.toml").read_text(encoding="utf-8"))
    titles: dict[str, tuple[str, ...]] = {}
    for engine in (_load(name, folder) for name in _names(folder)):
        titles[engine.title] = (*titles.get(engine.title, ()), *engine.titles)
    raw["engines"] = titles
    return msgspec.convert(raw, Known)
