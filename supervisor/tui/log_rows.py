"""The lines of a log that are shown (all, or those that pass a filter), as texts that are ready to be drawn. Pure.

Only what is asked for is ever read, masked or folded.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from supervisor.core.line_set import LineSet
from supervisor.core.log_book import LogBook, Row
from supervisor.core.log_levels import Level, level_of
from supervisor.core.log_search import Matcher
from supervisor.core.log_shown import without_half_word
from supervisor.tui.log_text import fold, tame

KEPT_LINES = 1024
"""So many texts are kept ready; a filter draws lines from all over the log."""


class Shown(Struct):
    """A line as it is shown."""

    raw: str
    """What the book gave: the rest is made of it."""
    text: str
    living: bool
    held: bool
    level: Level
    width: int = 0
    folds: list[tuple[int, int]] = []

    def folded(self, width: int) -> list[tuple[int, int]]:
        """The rows that it takes at `width` cells, as (start, end)."""
        if self.width != width:
            self.width, self.folds = width, fold(self.text, width)
        return self.folds


_NOTHING = Shown("", "", living=False, held=False, level=Level.ALL)


class ShownLines:
    """Which lines there are, and what stands in them."""

    def __init__(self, mask: Callable[[str], str]) -> None:
        self.mask = mask
        self._book: LogBook | None = None
        self._passing: LineSet | None = None
        self._matcher: Matcher | None = None
        self._ready: dict[int, Shown] = {}  # what the book said at some time
        self._fresh: dict[int, Shown] = {}  # what it says now

    @property
    def book(self) -> LogBook | None:
        """The log."""
        return self._book

    def open(self, book: LogBook | None) -> None:
        """Another log."""
        self._book = book
        self._passing = self._matcher = None
        self._ready.clear()
        self._fresh.clear()

    def refresh(self) -> None:
        """The book may say something else now."""
        self._fresh.clear()
        if len(self._ready) > KEPT_LINES:
            self._ready.clear()

    # ------------------------------------------------------------------------------- which there are

    @property
    def first(self) -> int:
        """The first line of the log."""
        return self._book.first_line if self._book is not None else 1

    @property
    def last(self) -> int:
        """The newest line of the log."""
        return self._book.last_line if self._book is not None else 0

    @property
    def filtered(self) -> bool:
        """Not every line is shown."""
        return self._passing is not None

    def show_only(self, passing: LineSet, matcher: Matcher) -> None:
        """Show these lines alone, and the living one while it matches. `passing` may grow."""
        self._passing, self._matcher = passing, matcher

    def show_all(self) -> None:
        """Show every line."""
        self._passing = self._matcher = None

    @property
    def count(self) -> int:
        """How many lines are shown in all."""
        if self._passing is None:
            return max(0, self.last - self.first + 1)
        return len(self._passing) + (self._living() is not None)

    def _living(self) -> int | None:
        """The living line, where it passes the filter: finders look at whole lines alone."""
        last = self.last
        if self._matcher is None or last < self.first:
            return None
        shown = self.shown(last)
        return last if shown.living and self._matcher.passes(shown.text) else None

    def number(self, index: int) -> int:
        """The line at `index` (from 0) of those that are shown."""
        if self._passing is None:
            return self.first + index
        return self._passing[index] if index < len(self._passing) else self.last

    def index(self, line_no: int) -> int:
        """How many of the shown lines come before this one."""
        if self._passing is None:
            return min(self.count, max(0, line_no - self.first))
        living = self._living()
        return self._passing.rank(line_no) + (living is not None and living < line_no)

    def after(self, line_no: int) -> int | None:
        """The shown line after this one."""
        if self._passing is None:
            return line_no + 1 if line_no < self.last else None
        after = self._passing.after(line_no)
        if after is None and (living := self._living()) is not None and living > line_no:
            return living
        return after

    def before(self, line_no: int) -> int | None:
        """The shown line before this one."""
        if self._passing is None:
            return line_no - 1 if line_no > self.first else None
        living = self._living()
        return living if living is not None and living < line_no else self._passing.before(line_no)

    def nearest(self, line_no: int) -> int | None:
        """This line, or the nearest that is shown: below it first."""
        if self._passing is None:
            return min(max(line_no, self.first), self.last) if self.count else None
        after = self.after(line_no - 1)
        return after if after is not None else self.before(line_no)

    # ------------------------------------------------------------------------------- what stands in them

    def shown(self, line_no: int) -> Shown:
        """One line."""
        if line_no not in self._fresh:
            self.fetch(line_no, 1)
        return self._fresh.get(line_no, _NOTHING)

    def fetch(self, line_no: int, count: int) -> None:
        """Get lines that follow each other ready: one question to the book for all of a screen."""
        first, until = max(line_no, self.first), min(line_no + count, self.last + 1)
        while first < until and first in self._fresh:
            first += 1
        while first < until and until - 1 in self._fresh:
            until -= 1
        if self._book is not None and first < until:
            for row in self._book.rows(first, until - first):
                self._fresh[row.line_no] = self._made(row)

    def _made(self, row: Row) -> Shown:
        known = self._ready.get(row.line_no)
        if known is None or known.raw != row.text or known.living != row.living or known.held != row.held:
            # Masked whole, cut afterwards: half a secret would pass the mask.
            text = tame(self.mask(without_half_word(row.text)))
            level = level_of(text) if row.held else Level.ALL
            known = self._ready[row.line_no] = Shown(row.text, text, row.living, row.held, level)
        return known

    def around(self, line_no: int, count: int) -> list[tuple[int, str]]:
        """(number, text) of the held lines around this one, filtered or not, at most `count` on each side."""
        if self._book is None:
            return []
        rows = self._book.rows(line_no - count, 2 * count + 1)
        at = next((place for place, row in enumerate(rows) if row.line_no == line_no), len(rows) - 1)
        start = max((place + 1 for place in range(at) if not rows[place].held), default=0)
        end = next((place for place in range(at + 1, len(rows)) if not rows[place].held), len(rows))
        return [(row.line_no, self.mask(without_half_word(row.text))) for row in rows[start:end] if row.held]
