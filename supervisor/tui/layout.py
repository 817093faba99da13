"""Which layouts there are, which files make one, and which is taken by size. Reads layout files; draws nothing.

A layout is base.tcss, its own file, dialogs.tcss, and after them what the user's configuration folder has of the same
names. A name that only the user's folder has is a layout too: it begins as the console.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct
from textual.css.stylesheet import Stylesheet
from textual.css.tokenizer import TokenError

from supervisor import resources
from supervisor.errors import UsageError

OURS = ("console", "compact", "wall")
SHARED = ("base", "dialogs")
CONSOLE_WIDTH, CONSOLE_HEIGHT = 100, 30
"""From here on the console has room."""


class Files(Struct, frozen=True):
    """What makes a layout, in the order in which it is read; and a sentence for each file that could not be used."""

    paths: tuple[Path, ...]
    problems: tuple[str, ...] = ()


def automatic(width: int, height: int) -> str:
    """The layout that fits a screen, where nobody chose one."""
    return "console" if width >= CONSOLE_WIDTH and height >= CONSOLE_HEIGHT else "compact"


def names(folder: Path | None) -> tuple[str, ...]:
    """Every layout that can be chosen: ours, then the user's own."""
    return (*OURS, *sorted(path.stem for path in _users(folder) if path.stem not in (*OURS, *SHARED)))


def check_name(name: str, folder: Path | None) -> None:
    """Raises `UsageError` where there is no layout of this name."""
    if name not in (known := names(folder)):
        raise UsageError(f"--layout: there is no layout {name!r} (known: {', '.join(known)})")


def files(name: str, folder: Path | None, variables: Mapping[str, str]) -> Files:
    """The files of a layout. A file of the user's that cannot be used is told, and left out.

    Args:
        variables: the theme's, which the files use.
    """
    ours = name if name in OURS else "console"
    paths = [resources.layouts() / f"{part}.tcss" for part in ("base", ours, "dialogs")]
    problems: list[str] = []
    users = {path.stem: path for path in _users(folder)}
    for part in ("base", name, "dialogs"):
        if (path := users.get(part)) is None:
            continue
        if problem := check(path, variables):
            problems.append(problem)
        else:
            paths.append(path)
    return Files(tuple(paths), tuple(problems))


def _users(folder: Path | None) -> list[Path]:
    try:
        return sorted((folder / "layouts").glob("*.tcss")) if folder is not None else []
    except OSError:
        return []


def check(path: Path, variables: Mapping[str, str]) -> str:
    """What is wrong with a layout file, with its line; empty where nothing is."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return f"{path} cannot be read ({error}); the layout goes without it"
    sheet = Stylesheet(variables=dict(variables))
    sheet.add_source(text, read_from=(str(path), ""))
    return _wrong(sheet, path)


def _wrong(sheet: Stylesheet, path: Path) -> str:
    try:
        sheet.parse()
    except TokenError as error:
        return _sentence(path, error.start[0], str(error))
    except Exception as error:  # Textual raises what it finds, and a user's file must end nothing
        found = _first_error(error)
        return _sentence(path, *found) if found else f"{path}: {error}; the layout goes without it"
    return ""


def _first_error(error: Exception) -> tuple[int, str] | None:
    for rule in getattr(getattr(error, "errors", None), "rules", ()):
        for token, message in rule.errors:
            place = token.referenced_by.location if token.referenced_by else token.location
            return place[0] + 1, getattr(message, "summary", None) or str(message)
    return None


def _sentence(path: Path, line_no: int, why: str) -> str:
    first = " ".join(why.split("\n")[0].split())
    return f"{path}, line {line_no}: {first}; the layout goes without this file"
