"""How bad a line of a log is, by the usual words and by the level letters of native code. Pure.

A traceback belongs to its error: from its first line to the exception that ends it, also where every line of it begins
with the name of its rank. What an engine's own rules make of a line is not told here: this is for a reader who wants to
see less, not for a verdict.
"""

from __future__ import annotations

import re
from enum import IntEnum

LOOKED_AT_CHARS = 400
"""A line says at its beginning how bad it is."""
MAX_BLOCK_LINES = 300
"""A traceback is not longer than this; a recursion's are 1000 frames of the same."""
MAX_FOREIGN_LINES = 20
"""So many lines of others may stand between two of one traceback."""
MAX_BLOCKS = 16
"""Tracebacks of so many ranks are told apart at once."""


class Level(IntEnum):
    """How bad, and as a filter: at least so bad."""

    ALL = 0
    WARNING = 1
    ERROR = 2


TRACEBACK = "Traceback (most recent call last)"

# The first of these that a line has decides: "INFO … 0 errors" is no error. Words of plain English count only where
# they stand as a level does: in capitals, before a colon, in brackets, or after `level=`.
_WORD = re.compile(
    r"""
    (?<![\w.=/-])(?:
        (?P<calm>TRACE|DEBUG|VERBOSE|INFO|NOTICE)\b
      | (?P<warn>WARN(?:ING)?\b|(?i:warn(?:ing)?):(?!:))
      | (?P<bad>(?:ERROR|FATAL|CRITICAL|PANIC)\b|(?i:(?:fatal\ )?error|fatal|critical|panic):(?!:))
    )
    | \[(?:(?P<calm2>[IDV]|info|debug|trace)|(?P<warn2>W|warn(?:ing)?)|(?P<bad2>[EF]|error|fatal|critical))\]
    | level"?[=:]\s*"?(?i:(?P<calm3>info|debug|trace)|(?P<warn3>warn)|(?P<bad3>error|fatal|critical|panic))
    | (?:^|(?<=[\s\[]))(?:(?P<calm4>[IDV])|(?P<warn4>W)|(?P<bad4>[EF]))\d{3,4}\ \d\d:\d\d:\d\d  # E0712 10:00:00.123
    | ^[\d:.]+\ (?:(?P<calm5>[IDV])|(?P<warn5>W)|(?P<bad5>[EF]))\                              # 0.00.035.060 E srv …
    | \[(?:(?P<calm6>[IDV])|(?P<warn6>W)|(?P<bad6>[EF]))\ \w                                   # [W socket.cpp:558]
    """,
    re.VERBOSE,
)
# What is bad without any level: an exception's own line, and the last words of a process.
_BAD = re.compile(
    r"^(?:\S{1,40}\s+(?:\|\s+)?)?(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Failure)(?::|\s*$)"
    r"|Traceback \(most recent call last\)|During handling of the above exception|was the direct cause of the following"
    r"|Segmentation fault|core dumped|terminate called|Fatal Python error|panicked at|\bKilled\b|^Aborted\b|CUDA error"
    r"|: error (?!rate\b|count\b)|\bfailed to (?:load|allocate|create|initiali[sz]e|start|open|bind)\b"
    r"|(?:CUDA|HIP|failed:) out of memory|Assertion `|Exception raised from|[Rr]eceived sigquit from a child"
)
_MAYBE = (
    *("error", "warn", "fatal", "critical", "panic", "exception", "traceback", "interrupt", "failure", "fault"),
    *("core dumped", "terminate called", "killed", "aborted", "[e]", "[f]", "[w]", "direct cause", "failed to "),
    *("out of memory", "assertion `", "sigquit"),
)
# Patterns with a literal beginning, which `re` looks for at the speed of memory.
_LETTERS = tuple(re.compile(before + r"[WEF](?:\d{3,4} \d\d:| )") for before in (" ", "\n", r"\["))
_ENDS_TRACEBACK = re.compile(
    r"(?!(?:INFO|DEBUG|WARNING|WARN|ERROR|TRACE|CRITICAL):)(?:(?:\w+\.)*[A-Z]\w*\s*(?::|$)|(?:\w+\.)+\w+:)"
)


def level_of(text: str) -> Level:
    """How bad the line is by itself."""
    head = text[:LOOKED_AT_CHARS]
    if not _may_be_bad(head):
        return Level.ALL
    if TRACEBACK in head:
        return Level.ERROR
    found = _WORD.search(head)
    if found is not None:
        kind = (found.lastgroup or "").rstrip("23456")
        return {"bad": Level.ERROR, "warn": Level.WARNING}.get(kind, Level.ALL)
    return Level.ERROR if _BAD.search(head) else Level.ALL


def _may_be_bad(text: str) -> bool:
    lower = text.lower()
    return any(word in lower for word in _MAYBE) or any(letters.search("\n" + text) for letters in _LETTERS)


class _Block:
    """A traceback that has begun. `prefix`: what its lines begin with, None until its second line tells."""

    def __init__(self, head: str) -> None:
        self._head = head[: head.find(TRACEBACK)]
        self._prefix: str | None = None
        self._lines = 0
        self._foreign = 0
        self.over = False

    def takes(self, line: str) -> bool:
        """Whether the line is part of it; `over` once none can be any more."""
        self._lines += 1
        self.over = self._lines >= MAX_BLOCK_LINES
        if self._prefix is None and (not line or line[0] in " \t" or (self._head and line.startswith(self._head))):
            self._prefix = self._head if self._head and line.startswith(self._head) else ""
        if self._prefix is not None and line.startswith(self._prefix):
            rest = line[len(self._prefix) :]
            if not rest.strip() or rest[0] in " \t":
                self._foreign = 0
                return True
            if _ENDS_TRACEBACK.match(rest):
                self.over = True
                return True
        self._foreign += 1
        self.over = self.over or self._foreign >= MAX_FOREIGN_LINES
        return False


class LevelReader:
    """Finds lines that are at least so bad, in pieces of a log that follow each other."""

    def __init__(self, least: Level) -> None:
        self._least = least
        self._open: list[_Block] = []

    @property
    def inside(self) -> bool:
        """A traceback has begun and not ended: what comes next may belong to it."""
        return bool(self._open)

    def forget(self) -> None:
        """The next piece does not follow the last one."""
        self._open.clear()

    def hits(self, text: str) -> list[int]:
        """Which lines (from 0) of `text`, as it is shown, are at least so bad."""
        candidates = _candidates(text)
        if not candidates and not self._open:
            return []
        lines = text.split("\n")
        found: list[int] = []
        maybe = iter([*candidates, len(lines)])
        upcoming = next(maybe)
        at = 0
        while at < len(lines):
            if not self._open:
                at = upcoming
                if at >= len(lines):
                    break
            inside = self._in_block(lines[at])
            level = Level.ALL
            if at == upcoming:
                upcoming = next(maybe)
                level = level_of(lines[at])
                if TRACEBACK in lines[at][:LOOKED_AT_CHARS] and len(self._open) < MAX_BLOCKS:
                    self._open.append(_Block(lines[at]))
            if inside or level >= self._least:
                found.append(at)
            at += 1
        return found

    def _in_block(self, line: str) -> bool:
        if not self._open:
            return False
        # Each sees every line: how far one goes depends on itself alone, wherever reading began.
        inside = [block.takes(line) for block in self._open]
        self._open = [block for block in self._open if not block.over]
        return any(inside)


def _candidates(text: str) -> list[int]:
    """Lines that may be bad: a search for words over all of the text is many times faster than a look at each line."""
    lower = text.lower()
    if len(lower) != len(text):
        return list(range(text.count("\n") + 1))  # a character whose small form is longer: places would not fit
    starts = {lower.rfind("\n", 0, found.end() - 1) + 1 for letters in _LETTERS for found in letters.finditer(text)}
    if _LETTERS[1].match("\n" + text[:12]):
        starts.add(0)
    for word in _MAYBE:
        place = lower.find(word)
        while place != -1:
            starts.add(lower.rfind("\n", 0, place) + 1)
            end = lower.find("\n", place)
            place = lower.find(word, end) if end != -1 else -1
    out: list[int] = []
    line = last = 0
    for start in sorted(starts):
        line += text.count("\n", last, start)
        last = start
        out.append(line)
    return out
