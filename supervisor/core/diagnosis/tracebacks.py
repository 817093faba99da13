"""Follows Python tracebacks of several processes at once, line by line. Pure, bounded.

A traceback begins with its well-known words, goes on with frames and source lines, and ends with a line that names an
exception. Logs lose indentation, source lines and the end; whatever does not fit ends the traceback without one.
"""

from __future__ import annotations

import re
from enum import Enum

from msgspec import Struct

BEGIN = "Traceback (most recent call last)"
MOST_OPEN = 64
"""Speakers with a traceback open at once: ranks of one node, and some."""
MOST_LINES = 600
"""Of one traceback; a recursion prints a thousand frames, and its end is found by its form alone."""
KEPT_FRAMES = 12

_FRAME = re.compile(r"""\s*File "(?P<file>[^"]*)", line \d+(?:, in (?P<function>.*))?""")
_NAMED = re.compile(
    r"(?:[A-Za-z_]\w*\.)*(?P<name>[A-Za-z]\w*(?:Error|Exception|Exit|Interrupt|Timeout|Expired|Failure|Fault|Died|"
    r"OutOfResources|Unavailable|NotFound|Unsupported|Iteration|Empty|Warning)\d*)(?P<rest>: .*|:|\s*)$",
    re.DOTALL,
)
_ANY_CLASS = re.compile(
    r"(?:[A-Za-z_]\w*\.)*(?P<name>[A-Z][A-Za-z0-9]{3,})(?P<rest>: .+|)$|"
    r"(?:[A-Za-z_]\w*\.)+(?P<small>[a-z]\w{3,}): .+$",  # socket.gaierror, re.error
    re.DOTALL,
)


class Ending(Struct, frozen=True):
    """The line that ends a traceback, or looks as if it did.

    `frames`: innermost first, `file.py:function`; empty where no traceback was followed.
    """

    name: str
    frames: tuple[str, ...] = ()
    begun_at: int | None = None
    """The number of the line at which the traceback began."""


class Inside(Enum):
    """A line of a traceback before its end: where it begins, a frame or the source that it quotes."""

    HEAD = "head"
    FRAME = "frame"


class _Open(Struct):
    begun_at: int
    frames: list[str]
    lines: int = 0
    remote: bool = False


class Tracebacks:
    """Tell it every line of a log that may belong to a traceback."""

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}

    @property
    def following(self) -> bool:
        """Whether a traceback is open: then every line matters, whatever words it has."""
        return bool(self._open)

    def take(self, speaker: str, body: str, line_no: int) -> Ending | Inside | None:
        """The ending, where this line is one; whether it is one of the lines before it."""
        if BEGIN in body:
            if len(self._open) >= MOST_OPEN:
                self._open.pop(next(iter(self._open)))
            self._open[speaker] = _Open(line_no, [])
            return Inside.HEAD
        known = self._open.get(speaker)
        key = speaker
        if known is None and self._open and speaker == "":
            # The head came with a logger's prefix, and what follows without one.
            key, known = next(reversed(self._open.items()))
        if known is None:
            return self._alone(body)
        return self._follow(key, known, body)

    def _alone(self, body: str) -> Ending | None:
        match = _NAMED.match(body)
        return None if match is None else Ending(match["name"])

    def _follow(self, speaker: str, known: _Open, body: str) -> Ending | Inside | None:
        known.lines += 1
        if known.lines > MOST_LINES:
            del self._open[speaker]
            return self._alone(body)
        if frame := _FRAME.match(body):
            file = frame["file"].rsplit("/", 2)[-2:]
            known.frames.append("/".join(file) + ":" + (frame["function"] or "").strip())
            del known.frames[: -KEPT_FRAMES * 2]
            return Inside.FRAME
        if not body.strip() or body[0] in " \t^~|+\"'":
            return Inside.FRAME
        match = _NAMED.match(body) or (_ANY_CLASS.match(body) if known.frames else None)
        if match is None:
            return None  # a source line whose indentation was lost, or another speaker's line in between
        del self._open[speaker]
        name = match["name"] or match.groupdict().get("small") or ""
        return Ending(name, tuple(reversed(known.frames[-KEPT_FRAMES:])), known.begun_at)
