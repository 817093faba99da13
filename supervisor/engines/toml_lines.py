"""On which line of a TOML text a key stands, arrays of tables and long arrays included. Best effort, never raises.

`tomllib` tells lines of syntax errors alone; whoever wrote a file of rules wants to be led to the rule that is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Path = tuple[str | int, ...]

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"""\s*((?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+))*)\s*=""")
_PART = re.compile(r"\"[^\"]*\"|'[^']*'|[A-Za-z0-9_-]+")
_TRIPLE = re.compile(r'"""|' + "'''")


def line_of(text: str, document: Mapping[str, Any], path: Path) -> int:
    """The line (from 1) of what `path` leads to, else of the nearest that holds it."""
    places = _places(text)
    known = next((path[:end] for end in range(len(path), 0, -1) if path[:end] in places), None)
    if known is None:
        return 1
    line = places[known]
    if len(known) == len(path):
        return line
    # What is left lies within an array or an inline table: its words are looked for from here on.
    value: Any = document
    for step in path[: len(known) + 1]:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            break
    words = _words(value)
    lines = text.split("\n")
    for number in range(line, len(lines) + 1):
        if number > line and _HEADER.match(lines[number - 1]):
            break
        if words and words in lines[number - 1]:
            return number
    return line


def _words(value: Any) -> str:
    """A piece of a value that stands in the text as it is."""
    if isinstance(value, Mapping):
        return next((found for item in value.values() if (found := _words(item))), "")
    if not isinstance(value, str):
        return ""
    return max(re.split(r"[\\\"\n\t]", value), key=len)


def _places(text: str) -> dict[Path, int]:
    """Path → line of each header and each `key =`; text inside long strings is passed over."""
    out: dict[Path, int] = {}
    counts: dict[Path, int] = {}
    table: Path = ()
    closing = ""
    for number, line in enumerate(text.split("\n"), 1):
        if closing:
            closing = "" if closing in line else closing
            continue
        header, key = _HEADER.match(line), _KEY.match(line)
        if header:
            table = _entered(_parts(header[2]), header[1] == "[[", counts)
            for end in range(1, len(table) + 1):
                out.setdefault(table[:end], number)
        elif key:
            for end in range(1, len(parts := _parts(key[1])) + 1):
                out.setdefault((*table, *parts[:end]), number)
        opened = _TRIPLE.search(line)
        if opened and line.count(opened[0]) % 2:
            closing = opened[0]
    return out


def _parts(text: str) -> list[str]:
    return [part[1:-1] if part[:1] in "\"'" else part for part in _PART.findall(text)]


def _entered(parts: list[str], is_array: bool, counts: dict[Path, int]) -> Path:
    """The path of a table, with the index of each array of tables on the way that was begun before."""
    out: Path = ()
    for index, part in enumerate(parts):
        out = (*out, part)
        if is_array and index == len(parts) - 1:
            counts[out] = counts.get(out, -1) + 1
        if out in counts:
            out = (*out, counts[out])
    return out
