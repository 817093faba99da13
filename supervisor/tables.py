"""Reads TOML tables into Structs; every complaint names the file, the key path, the line and the nearest valid key.

It knows types, never meanings: whether a value makes sense is for the module that owns the Struct. A field whose
Python name is its key with `_s` behind it is a duration, so that units stand in names and people write "30m".
Of a wrong value only its type is shown, never the value: it can be a secret.
"""

from __future__ import annotations

import difflib
import json
import math
import re
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Struct

from supervisor.core import durations
from supervisor.errors import ProfileError

MAX_BYTES = 1 << 20
KeyPath = tuple[str, ...]
T = TypeVar("T", bound=Struct)

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_AT_LINE = re.compile(r" ?\(at line (\d+), column \d+\)| ?\(at end of document\)")
_KEY_PART = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*""")
_TRIPLE = re.compile(r'"""|' + "'''")


class Source(Struct, frozen=True):
    """Where a table came from: the file's name for messages and its text for line numbers ("" when there is none)."""

    file: str
    text: str = ""
    homes: Mapping[str, str] = {}
    """Key → the table that it belongs to, for a key that stands in the wrong place."""

    def error(self, path: KeyPath, problem: str, *, line: int | None = None) -> ProfileError:
        """The complaint about one key; the line is found in the text when it is not given."""
        return ProfileError(self.file, spelled(path), problem, line=line or self.line(path))

    def line(self, path: KeyPath) -> int | None:
        """The line of a key, else of the table that holds it, as far as reading the text line by line can tell."""
        best: tuple[int, int] = (0, 0)
        for number, found in _keys(self.text):
            common = min(len(found), len(path))
            # A table that has no header of its own stands where its first part does: [variants.x.launch].
            if found[:common] == path[:common] and common > best[0]:
                best = (common, number)
        return best[1] or None


def spelled(path: KeyPath) -> str:
    """A key path as TOML writes it."""
    return ".".join(key if _BARE_KEY.fullmatch(key) else json.dumps(key) for key in path)


def nearest(word: str, known: Collection[str]) -> str | None:
    """The known word that was probably meant."""
    lowered = {name.lower().replace("-", "_"): name for name in known}
    near = difflib.get_close_matches(word.lower().replace("-", "_"), list(lowered), n=1)
    return lowered[near[0]] if near else None


def load(path: Path) -> tuple[dict[str, Any], Source]:
    """The file as a TOML table. Raises `ProfileError`."""
    source = Source(str(path))
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except IsADirectoryError:
        raise source.error((), "is a folder; a profile is a file") from None
    except FileNotFoundError:
        near = nearest(path.name, [item.name for item in siblings(path.parent)])
        raise source.error((), "there is no such file" + (f"; did you mean {near}?" if near else "")) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise source.error((), f"cannot be read: {reason}") from error
    if len(data) > MAX_BYTES:
        raise source.error((), "is larger than 1 MiB: that is no profile")
    return parse(data, str(path))


def siblings(folder: Path) -> list[Path]:
    """The *.toml files of a folder, sorted; none where it cannot be read."""
    try:
        return sorted(item for item in folder.iterdir() if item.suffix == ".toml")
    except OSError:
        return []


def parse(data: bytes, file: str) -> tuple[dict[str, Any], Source]:
    """TOML text as a table. A UTF-8 byte order mark is skipped, as TOML asks. Raises `ProfileError`."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise ProfileError(file, "", "is UTF-16 text: save it as UTF-8", line=1)
    try:
        text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    except UnicodeDecodeError as error:
        broken_at = data.count(b"\n", 0, error.start) + 1
        raise ProfileError(file, "", "is no UTF-8 text", line=broken_at) from None
    try:
        return tomllib.loads(text), Source(file, text)
    except RecursionError:
        raise ProfileError(file, "", "is nested too deeply") from None
    except ValueError as error:  # TOMLDecodeError, and plain ones for numbers that are too long
        problem, line = _syntax(str(error), text)
        raise ProfileError(file, "", problem, line=line) from None


def read(kind: type[T], table: object, path: KeyPath, source: Source) -> T:
    """The table as a Struct. Raises `ProfileError` for the first thing that is wrong."""
    if not isinstance(table, dict):
        hint = f" (write [{spelled(path)}] once, not [[{spelled(path)}]])" if isinstance(table, list) else ""
        raise source.error(path, f"expected a table, found {_found(table)}{hint}")
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    for key in table:
        if key not in fields:
            raise source.error((*path, key), _unknown(key, fields, path, source))
    values: dict[str, Any] = {}
    for key, field in fields.items():
        if key in table:
            as_duration = field.name == f"{key}_s"
            value = table[key]
            values[field.name] = (
                _duration(value, (*path, key), source)
                if as_duration
                else _value(field.type, value, (*path, key), source)
            )
        elif field.required:
            what = "the table is missing" if _struct_of(field.type) else "is missing"
            raise source.error((*path, key), what)
    return kind(**values)


def _value(kind: Any, value: object, path: KeyPath, source: Source) -> Any:
    struct = _struct_of(kind)
    if struct is not None and not (isinstance(value, bool) and bool in _options(kind)):
        return read(struct, value, path, source)
    if get_origin(kind) is dict:
        return _mapping(get_args(kind)[1], value, path, source)
    try:
        return msgspec.convert(value, kind, strict=True)
    except (msgspec.ValidationError, ValueError, TypeError, OverflowError):
        expected = _expected(kind)
        hint = ": put it in quotes" if str in _options(kind) and isinstance(value, bool | int | float) else ""
        raise source.error(path, f"expected {expected}, found {_found(value)}{hint}") from None


def _mapping(kind: Any, value: object, path: KeyPath, source: Source) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise source.error(path, f"expected a table, found {_found(value)}")
    return {key: _value(kind, item, (*path, key), source) for key, item in value.items()}


def _duration(value: object, path: KeyPath, source: Source) -> float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise source.error(path, f'expected a duration (like "30m", "90s" or plain seconds), found {_found(value)}')
    try:
        if isinstance(value, str):
            return durations.parse(value)
        if not math.isfinite(value) or not 0 < value <= durations.MAX_S:
            raise ValueError(f"a duration is more than nothing and at most a year, not {value}")
        return float(value)
    except ValueError as error:
        raise source.error(path, str(error)) from None


def _options(kind: Any) -> tuple[Any, ...]:
    """The types that a union allows, without None."""
    union = get_origin(kind) in (UnionType, Union)
    return tuple(one for one in get_args(kind) if one is not type(None)) if union else (kind,)


def _struct_of(kind: Any) -> type[Struct] | None:
    """The Struct of a field that is a table (also where it may be left out, or be true or false instead)."""
    return next((one for one in _options(kind) if isinstance(one, type) and issubclass(one, Struct)), None)


def _expected(kind: Any) -> str:
    return " or ".join(dict.fromkeys(_expected_one(one) for one in _options(kind)))


def _expected_one(kind: Any) -> str:
    names = {str: "a text in quotes", bool: "true or false", int: "a whole number", float: "a number"}
    if kind in names:
        return names[kind]
    if get_origin(kind) is tuple:
        return "an array of texts"
    return " or ".join(f'"{choice}"' for choice in get_args(kind))  # a Literal


def _found(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        odd = next((i for i, item in enumerate(value) if not isinstance(item, str)), None)
        return "an array" if odd is None else f"an array whose item {odd + 1} is {_found(value[odd])}"
    names: Mapping[type, str] = {int: "a number", float: "a number", str: "a text", dict: "a table"}
    return names.get(type(value), "a date or time")


def _unknown(key: str, known: Collection[str], path: KeyPath, source: Source) -> str:
    here, home = spelled(path), source.homes.get(key)
    if home is not None and home != here:
        home = spelled((*path, home)) if home in known else home
        return f"there is no such key {_under(here)}; it belongs {_under(home)}"
    near = nearest(key, known)
    if near:
        return f"there is no such key; did you mean {near}?"
    return f"there is no such key {_under(here)} (known: {', '.join(known)})"


def _under(table: str) -> str:
    return f"under [{table}]" if table else "at the top of the file"


def _syntax(message: str, text: str) -> tuple[str, int | None]:
    """The parser's message without its place, and the line."""
    place = _AT_LINE.search(message)
    line: int | None = None
    if place:
        line = int(place.group(1)) if place.group(1) else len(text.splitlines())
    problem = _AT_LINE.sub("", message)
    if "Cannot overwrite" in problem or "Cannot declare" in problem or "twice" in problem.lower():
        problem = f"a key or table stands here for the second time ({problem})"
    return f"is no TOML: {problem}", line


def _keys(text: str) -> list[tuple[int, KeyPath]]:
    """(line, key path) of each header and each `key =`; text inside long strings is skipped."""
    out: list[tuple[int, KeyPath]] = []
    table: KeyPath = ()
    closing = ""
    for number, line in enumerate(text.split("\n"), 1):
        if closing:
            closing = "" if closing in line else closing
            continue
        header = line.strip().startswith("[") and _key_at(line.strip().lstrip("["), "]")
        key = _key_at(line, "=")
        if header:
            table = header
            out.append((number, table))
        elif key:
            out.append((number, (*table, *key)))
        opened = _TRIPLE.search(line)
        if opened and line.count(opened.group(0)) % 2:
            closing = opened.group(0)
    return out


def _key_at(text: str, end: str) -> KeyPath | None:
    """The dotted key that the text begins with, up to `end`."""
    parts: list[str] = []
    at = 0
    while match := _KEY_PART.match(text, at):
        parts.append(next(group for group in match.groups() if group is not None))
        at = match.end()
        if text[at : at + 1] == end:
            return tuple(parts)
        if text[at : at + 1] != ".":
            return None
        at += 1
    return None
