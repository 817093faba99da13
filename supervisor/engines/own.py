"""A user's own engine file: read, laid over what is built in, and checked, every complaint with its line.

A file of a new name is a new engine. One of a known name changes it: a table is changed key by key, the rules of a list
of tables (`[[roots]]`, `[[stages]]` …) come before the built-in ones and so win, every other value takes the place of
the old one; `replace = ["stages"]` takes the built-in ones of that list or table away first.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

import msgspec
from msgspec import Struct

from supervisor.core.engine import Common, Engine
from supervisor.core.lines import sanitise
from supervisor.engines import checks, toml_lines

MAX_BYTES = 4 << 20
REPLACE = "replace"
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,40}")
T = TypeVar("T", Engine, Common)

_AT_LINE = re.compile(r" ?\(at line (\d+), column \d+\)| ?\(at end of document\)")
_AT_PATH = re.compile(r" - at `\$([^`]*)`$")
_STEP = re.compile(r"\.([\w-]+)|\[(\d+)\]")
_UNKNOWN = re.compile(r"Object contains unknown field `([^`]*)`")
_MISSING = re.compile(r"Object missing required field `([^`]*)`")
_TYPE = re.compile(r"Expected `([^`]*)`, got `([^`]*)`")
_WORDS = {
    "str": "a text in quotes", "int": "a whole number", "float": "a number", "bool": "true or false",
    "array": "an array", "object": "a table", "null": "nothing",
}  # fmt: skip


class EngineFileError(ValueError):
    """A file of rules cannot be used. `str()` names the file, the line, the key and what to do."""

    def __init__(self, file: str, line: int | None, key: str, problem: str) -> None:
        where = f"{file}:{line}" if line is not None else file
        super().__init__(sanitise(f"{where}: {key}: {problem}" if key else f"{where}: {problem}"))
        self.file, self.line, self.key, self.problem = file, line, key, problem


def files(folder: Path) -> dict[str, Path]:
    """Name → file of a user's folder. Raises `EngineFileError` for a name that no engine can have."""
    try:
        found = sorted(path for path in folder.iterdir() if path.suffix == ".toml" and not path.name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise EngineFileError(str(folder), None, "", f"cannot be read: {error.strerror}") from error
    for path in found:
        if not NAME.fullmatch(path.stem):
            problem = "the file's name is the engine's: small letters, digits, - and _, as in my-engine.toml"
            raise EngineFileError(str(path), None, "", problem)
    return {path.stem: path for path in found}


def load(path: Path, base: Mapping[str, Any] | None, kind: type[T]) -> T:
    """The user's file over the built-in document of its name, if there is one. Raises `EngineFileError`."""
    text, own = _read(path)
    source = _Source(str(path), text, own)
    if kind is Engine:
        _named(source, path.stem)
        own = {"name": path.stem, **own}
        base = {"title": path.stem} if base is None else base
    merged = _merged(base or {}, own, source, kind)
    try:
        found = msgspec.convert(merged, kind)
    except msgspec.ValidationError as error:
        raise _typed(source, kind, str(error)) from None
    for problem in checks.problems(_only(found, own)):
        raise source.error(problem.path, problem.text)
    return found


class _Source(Struct, frozen=True):
    """The file, for complaints."""

    file: str
    text: str
    document: dict[str, Any]

    def error(self, path: toml_lines.Path, problem: str) -> EngineFileError:
        return EngineFileError(self.file, toml_lines.line_of(self.text, self.document, path), _spelled(path), problem)


def _spelled(path: toml_lines.Path) -> str:
    """`roots[2].pattern`: the third of the file, counted from 1 for people."""
    out = ""
    for step in path:
        out += f"[{step + 1}]" if isinstance(step, int) else (f".{step}" if out else step)
    return out


def _read(path: Path) -> tuple[str, dict[str, Any]]:
    file = str(path)
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise EngineFileError(file, None, "", f"cannot be read: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise EngineFileError(file, None, "", "is larger than 4 MiB: that is no file of rules")
    try:
        text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise EngineFileError(file, line, "", "is no UTF-8 text: save it as UTF-8") from None
    try:
        return text, tomllib.loads(text)
    except RecursionError:
        raise EngineFileError(file, None, "", "is nested too deeply") from None
    except ValueError as error:
        place = _AT_LINE.search(str(error))
        line = (int(place[1]) if place[1] else text.count("\n") + 1) if place else 1
        raise EngineFileError(file, line, "", f"is no TOML: {_AT_LINE.sub('', str(error))}") from None


def _named(source: _Source, stem: str) -> None:
    name = source.document.get("name", stem)
    if name != stem:
        raise source.error(("name",), f"the file is {stem}.toml, so the engine is called {stem!r}: leave `name` out")


# ------------------------------------------------------------------------------------------------ over the built-in one


def _merged(base: Mapping[str, Any], own: dict[str, Any], source: _Source, kind: type[Struct]) -> dict[str, Any]:
    gone = own.get(REPLACE, [])
    known = [field.name for field in msgspec.structs.fields(kind)]
    if not isinstance(gone, list) or not all(isinstance(name, str) for name in gone):
        raise source.error((REPLACE,), 'is an array of names, as in replace = ["stages"]')
    for index, name in enumerate(gone):
        if name not in known:
            raise source.error((REPLACE, index), _unknown(name, known))
    kept = {key: value for key, value in base.items() if key not in gone}
    return _over(kept, {key: value for key, value in own.items() if key != REPLACE})


def _over(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(base)
    for key, value in own.items():
        old = out.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            out[key] = _over(old, value)
        elif _is_rules(old) and _is_rules(value):
            out[key] = [*value, *(old or [])]
        else:
            out[key] = value
    return out


def _is_rules(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def _only(found: T, own: Mapping[str, Any]) -> T:
    """The rules of the user's own alone: those that are built in are tested with the program."""
    names = [
        field.name for field in msgspec.structs.fields(type(found)) if isinstance(getattr(found, field.name), tuple)
    ]
    return msgspec.structs.replace(
        found, **{name: getattr(found, name)[: len(own[name]) if name in own else 0] for name in names}
    )


# ------------------------------------------------------------------------------------------------ in plain words


def _typed(source: _Source, kind: type[Struct], message: str) -> EngineFileError:
    """msgspec's complaint with the line, and with what to write instead."""
    place = _AT_PATH.search(message)
    text = _AT_PATH.sub("", message)
    path: toml_lines.Path = tuple(
        int(number) if number else name for name, number in _STEP.findall(place[1] if place else "")
    )
    if unknown := _UNKNOWN.fullmatch(text):
        return source.error((*path, unknown[1]), _unknown(unknown[1], list(_keys_at(kind, path))))
    if missing := _MISSING.fullmatch(text):
        return source.error(path, f"the key `{missing[1]}` is missing here")
    if wrong := _TYPE.fullmatch(text):
        wanted = " or ".join(_WORDS.get(name.strip(), name.strip()) for name in wrong[1].split("|"))
        return source.error(path, f"expected {wanted}, found {_WORDS.get(wrong[2], wrong[2])}")
    return source.error(path, text)


def _unknown(key: str, known: list[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    return f"there is no key {key!r}" + (f"; did you mean {near[0]}?" if near else f" (known: {', '.join(known)})")


def _keys_at(kind: Any, path: toml_lines.Path) -> Iterator[str]:
    """The keys of the table that a path leads to."""
    for step in path:
        if isinstance(step, str):
            fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
            kind = next((one for one in _structs(fields.get(step))), None)
        if kind is None:
            return
    yield from (field.name for field in msgspec.structs.fields(kind))


def _structs(kind: Any) -> Iterator[type[Struct]]:
    if isinstance(kind, type) and issubclass(kind, Struct):
        yield kind
    for inner in get_args(kind):
        yield from _structs(inner)
