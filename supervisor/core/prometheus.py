r"""Reads the text format of Prometheus, and names in it as its users write them. Pure; never raises on any bytes.

    NAME                          every series of that name
    NAME{label="value"}           those that carry this label; an empty value also means "without the label"
    rate(NAME)                    a counter, of which the growth in a second is wanted

Only the series that are asked for are looked at, since an engine's histograms are a hundred times as long. What no
number can be read of (a broken line, NaN, an infinity) is left out, as if the engine had not told it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

MAX_BYTES = 1024 * 1024
"""More of one answer is not read: vLLM with eight engines and all its histograms tells about 300 KB."""
MAX_SERIES = 10_000
"""Of all names together; an answer with more of them is no engine's."""

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABELS = r'(?:[^"}\n]|"(?:[^"\\\n]|\\.)*+")*+'
"""What stands in the braces: a value in quotes may hold a brace. Possessive, so that no text costs more than its
length."""
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\\n]|\\.)*+)"', re.ASCII)
_EXPRESSION = re.compile(rf"\s*(rate\()?\s*({_NAME})\s*(?:\{{({_LABELS})\}})?\s*(\))?\s*", re.ASCII)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


class Series(Struct, frozen=True):
    """One value with its labels."""

    labels: Mapping[str, str]
    value: float


class Expression(Struct, frozen=True):
    """Which series are meant, and whether their growth is."""

    name: str
    labels: tuple[tuple[str, str], ...] = ()
    rate: bool = False

    def __str__(self) -> str:
        inner = ",".join(f'{name}="{value}"' for name, value in self.labels)
        text = f"{self.name}{{{inner}}}" if inner else self.name
        return f"rate({text})" if self.rate else text

    def of(self, series: Iterable[Series]) -> list[Series]:
        """Those of the series of this name that carry its labels."""
        return [one for one in series if all(one.labels.get(name, "") == value for name, value in self.labels)]


def expression(text: str) -> Expression:
    """The expression that a text means. Raises `ValueError`."""
    match = _EXPRESSION.fullmatch(text)
    if match is None or (match[1] is None) is not (match[4] is None):
        raise ValueError(f'{text!r} is none of NAME, NAME{{label="value"}} and rate(…)')
    labels = _labels(match[3] or "")
    if match[3] and not labels:
        raise ValueError(f'{text!r}: a label is written as label="value"')
    return Expression(match[2], tuple(labels.items()), match[1] is not None)


def parse(data: bytes, names: Iterable[str]) -> dict[str, list[Series]]:
    """The series of these names, in the order of the text. A name that does not stand there is no key."""
    wanted = sorted({name for name in names if re.fullmatch(_NAME, name, re.ASCII)}, key=len, reverse=True)
    out: dict[str, list[Series]] = {}
    if not wanted:
        return out
    text = data[:MAX_BYTES].decode("utf-8", "replace")
    if len(data) > MAX_BYTES:
        text = text[: text.rfind("\n") + 1]  # a number that was cut would be another number
    line = re.compile(rf"^({'|'.join(wanted)})(?:\{{({_LABELS})\}}[ \t]*|[ \t]+)(\S+)", re.ASCII | re.MULTILINE)
    for count, match in enumerate(line.finditer(text)):
        value = _number(match[3])
        if value is not None:
            out.setdefault(match[1], []).append(Series(_labels(match[2] or ""), value))
        if count >= MAX_SERIES:
            break
    return out


def _labels(text: str) -> dict[str, str]:
    """Label → value; what is no label is left out."""
    return {name: _ESCAPE.sub(_plain, value) for name, value in _LABEL.findall(text)}


def _plain(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]


def _number(text: str) -> float | None:
    if "_" in text:
        return None  # Python reads 1_000, and no exporter writes it
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
