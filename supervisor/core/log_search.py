"""Search and filter over a book of any size, in pieces that take a few milliseconds each. Pure.

What is looked for is looked for in the text as it is shown: without escape sequences, bars collapsed, secrets masked.
A scan is resumable after every step, so whoever runs it decides how long the keys wait. It never runs by itself.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct

from supervisor.core.log_book import Chunk, LogBook
from supervisor.core.log_levels import MAX_BLOCK_LINES, Level, LevelReader, level_of
from supervisor.core.log_shown import shown_text

STEP_BYTES = 64 * 1024
"""One step looks at about this much: 1 to 2 ms."""
MAX_SPANS = 500
"""So many matches of one line are highlighted."""
MAX_SLOW_LINES = 20
"""After so many lines on which a pattern took too long it is given up."""

Mask = Callable[[str], str]
Guard = Callable[[Callable[[], object]], bool]
"""Runs something within a time limit; False where it took too long and was stopped."""

_SMALL_IN_ASCII = ("\u212a", "\u0130")
"""The only characters beyond ASCII whose small forms have ASCII in them: the Kelvin sign, and an I with a dot."""
_ESCAPED = re.compile(r"\\.", re.DOTALL)


class BadPatternError(ValueError):
    """No regular expression; the text says why."""


class Query(Struct, frozen=True):
    """What is looked for."""

    text: str = ""
    regex: bool = False
    level: Level = Level.ALL

    @property
    def empty(self) -> bool:
        """Nothing: all lines pass."""
        return not self.text and self.level is Level.ALL

    @property
    def any_case(self) -> bool:
        """Small letters alone look for capitals too."""
        plain = _ESCAPED.sub("", self.text) if self.regex else self.text
        return plain == plain.lower()


def unguarded(call: Callable[[], object]) -> bool:
    """A guard that guards nothing: for patterns of our own."""
    call()
    return True


class Matcher:
    """A query, ready to be used. Raises `BadPatternError`."""

    def __init__(self, query: Query, guard: Guard = unguarded) -> None:
        self.query = query
        self.slow_lines = 0
        self._guard = guard
        self._pattern = _compiled(query, guard) if query.text else None
        self._needle = ""  # a plain text that `str.find` can look for
        if query.text and not query.regex:
            if not query.any_case:
                self._needle = query.text
            elif query.text.isascii():
                self._needle = query.text.lower()

    @property
    def too_slow(self) -> bool:
        """The pattern was given up."""
        return self.slow_lines >= MAX_SLOW_LINES

    def passes(self, text: str) -> bool:
        """Whether one line does."""
        if self.query.level is not Level.ALL and level_of(text) < self.query.level:
            return False
        return self._pattern is None or self.holds(text)

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where the text stands in a line that is shown, for highlights."""
        found: list[tuple[int, int]] = []
        pattern = self._pattern
        if pattern is None or self.too_slow:
            return found

        def collect() -> None:
            for match in pattern.finditer(text):
                if match.end() > match.start():
                    found.append(match.span())
                if len(found) >= MAX_SPANS:
                    break

        if not self.query.regex:
            collect()
        elif not self._guard(collect):
            self.slow_lines += 1
        return found

    def text_hits(self, text: str) -> list[int]:
        """Which lines (from 0) of a piece hold the query's text. For a pattern of the user's: `some_hits`."""
        if self._pattern is None:
            return list(range(text.count("\n") + 1))
        if self._needle and not self.query.any_case:
            return _plain_hits(text, self._needle)
        if self._needle and not any(odd in text for odd in _SMALL_IN_ASCII):
            return _plain_hits(text.lower(), self._needle)
        return [at for at, line in enumerate(text.split("\n")) if self._pattern.search(line)]

    def some_hits(self, lines: Sequence[str], start: int) -> tuple[list[int], int]:
        """The same from line `start` on, as far as the time limit lets it come: (which lines, where to go on)."""
        pattern = self._pattern
        found: list[int] = []
        at = start

        def run(until: int) -> None:
            nonlocal at
            while at < until:
                if pattern is None or pattern.search(lines[at]):
                    found.append(at)
                at += 1

        if not self._guard(lambda: run(len(lines))) and not self._guard(lambda: run(at + 1)):
            self.slow_lines += 1
            at += 1  # one that takes too long by itself
        return found, at

    def holds(self, text: str) -> bool:
        """Whether one line holds the query's text."""
        return bool(self.some_hits([text], 0)[0]) if self.query.regex else bool(self.text_hits(text))


def _compiled(query: Query, guard: Guard) -> re.Pattern[str]:
    flags = re.IGNORECASE if query.any_case else 0
    if not query.regex:
        # Small ASCII letters look for ASCII alone: else an s would find the long s, which no `find` can.
        return re.compile(re.escape(query.text), flags | (re.ASCII if query.text.isascii() else 0))
    compiled: list[re.Pattern[str]] = []

    def build() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a warning about a user's pattern would be written across the screen
            compiled.append(re.compile(query.text, flags))

    try:
        if not guard(build):
            raise BadPatternError("the pattern is too large")
    except (re.error, OverflowError, RecursionError) as error:
        raise BadPatternError(str(error)) from error
    return compiled[0]


def _plain_hits(text: str, needle: str) -> list[int]:
    found: list[int] = []
    if "\n" in needle:
        return found  # a pasted text of several lines stands in none
    line = last = 0
    place = text.find(needle)
    while place != -1:
        line += text.count("\n", last, place)
        last = place
        found.append(line)
        end = text.find("\n", place)
        place = text.find(needle, end) if end != -1 else -1
    return found


class _Begun(Struct):
    """A piece that a pattern is in the middle of."""

    piece: Chunk
    lines: list[str]
    at: int = 0
    found: list[int] = []


class Scan:
    """One way through the lines `first` ≤ n < `until` of a book."""

    def __init__(
        self, book: LogBook, matcher: Matcher, mask: Mask, first: int, until: int, *, backwards: bool = False
    ) -> None:
        self.gaps: list[tuple[int, int]] = []
        """Lines that were not held, among those that were passed: (first, until)."""
        self.done = False
        self._matcher = matcher
        self._mask = mask
        self._backwards = backwards
        self._first, self._until = first, until
        level = matcher.query.level
        self._levels = LevelReader(level) if level is not Level.ALL else None
        # A traceback that began before the first line may reach into it.
        before = MAX_BLOCK_LINES if self._levels is not None and not backwards else 0
        self._at = until if backwards else max(book.first_line, first - before)
        self._pieces = _pieces(book.chunks(min(first, self._at), until, backwards=backwards), backwards)
        self._newer: list[str] = []  # backwards: what follows the piece, for a traceback that goes on in it
        self._found: list[int] = []
        self._begun: _Begun | None = None

    @property
    def reached(self) -> tuple[int, int]:
        """The lines that were looked at: (first, until)."""
        return (self._at, self._until) if self._backwards else (self._first, max(self._first, self._at))

    def taken(self) -> list[int]:
        """The matching lines that the last step found, in rising order."""
        found, self._found = self._found, []
        return found

    def step(self) -> bool:
        """Look at one more piece, or go on with one; False when all was looked at."""
        if self.done:
            return False
        if self._begun is not None and not self._matcher.too_slow:
            self._go_on()
            return True
        piece = next(self._pieces, None)
        if piece is None or self._matcher.too_slow:
            edge = self._first if self._backwards else self._until
            if not self._matcher.too_slow:
                self._pass_gap(min(edge, self._at), max(edge, self._at))
                self._at = edge
            self.done = True
            return False
        end = piece.line_no + piece.lines
        gap = (end, self._at) if self._backwards else (self._at, piece.line_no)
        self._pass_gap(*gap)
        text = shown_text(piece.data, self._mask)
        if self._levels is not None:
            self._look_at_levels(piece, text, follows=gap[0] >= gap[1])
        elif self._matcher.query.regex:
            self._begun = _Begun(piece, text.split("\n"))
            self._go_on()
        else:
            self._end_piece(piece, self._matcher.text_hits(text))
        return True

    def _go_on(self) -> None:
        """A pattern may need more than one step for a piece."""
        begun = self._begun
        assert begun is not None
        found, begun.at = self._matcher.some_hits(begun.lines, begun.at)
        begun.found += found
        if begun.at >= len(begun.lines):
            self._begun = None
            self._end_piece(begun.piece, begun.found)

    def _end_piece(self, piece: Chunk, hits: Iterable[int]) -> None:
        self._found = [line_no for at in hits if (line_no := piece.line_no + at) >= self._first]
        self._at = piece.line_no if self._backwards else piece.line_no + piece.lines

    def _pass_gap(self, first: int, until: int) -> None:
        if (first := max(first, self._first)) < until:
            self.gaps.append((first, until))

    def _look_at_levels(self, piece: Chunk, text: str, *, follows: bool) -> None:
        assert self._levels is not None
        if not follows or self._backwards:
            self._levels.forget()
        if not follows:
            self._newer = []
        bad = self._levels.hits(text)
        behind: list[str] = []
        if self._backwards:
            if self._levels.inside and self._newer:
                behind = self._newer
                bad += [piece.lines + at for at in self._levels.hits("\n".join(behind))]
            head = text.split("\n", MAX_BLOCK_LINES)[:MAX_BLOCK_LINES]
            self._newer = [*head, *self._newer][:MAX_BLOCK_LINES]
        if bad and self._matcher.query.text:
            lines = [*text.split("\n"), *behind]
            bad = [at for at in bad if self._matcher.holds(lines[at])]
        self._end_piece(piece, bad)


def _pieces(chunks: Iterator[Chunk], backwards: bool) -> Iterator[Chunk]:
    """Chunks in pieces of about `STEP_BYTES`, whole lines each; a longer line is a piece of its own."""
    for chunk in chunks:
        if len(chunk.data) <= STEP_BYTES:
            yield chunk
        elif backwards:
            yield from _split_backwards(chunk)
        else:
            yield from _split(chunk)


def _split(chunk: Chunk) -> Iterator[Chunk]:
    start, line_no, last = 0, chunk.line_no, chunk.line_no + chunk.lines
    while start < len(chunk.data):
        end = chunk.data.find(b"\n", min(start + STEP_BYTES, len(chunk.data)))
        end = len(chunk.data) if end == -1 else end + 1
        data = chunk.data[start:end]
        lines = data.count(b"\n") if end < len(chunk.data) else last - line_no
        yield Chunk(line_no=line_no, data=data, lines=lines)
        start, line_no = end, line_no + lines


def _split_backwards(chunk: Chunk) -> Iterator[Chunk]:
    end, until = len(chunk.data), chunk.line_no + chunk.lines
    while end > 0:
        start = chunk.data.rfind(b"\n", 0, max(0, end - STEP_BYTES)) + 1
        data = chunk.data[start:end]
        lines = data.count(b"\n") + (not data.endswith(b"\n")) if start else until - chunk.line_no
        yield Chunk(line_no=until - lines, data=data, lines=lines)
        end, until = start, until - lines
