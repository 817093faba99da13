"""Which rows of a log stand on the screen: place, following, filter, marks, wrap, panning, selection. Pure.

A place is a line of the file and how many of its rows are above the screen; so nothing ever needs to be counted or
measured but what is drawn, whatever the size of the log, and what comes at its end moves nothing that is being read.
The state of the pane stands here; the widgets draw it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct

from supervisor.core.line_set import LineSet
from supervisor.core.log_book import LogBook, Row
from supervisor.core.log_search import Matcher
from supervisor.core.log_shown import without_half_word
from supervisor.tui.log_text import cells, cut, fold, tame

NUMBERS_FROM_WIDTH = 100
"""Line numbers are worth their columns on a wide screen alone, or where lines are left out."""
KEPT_LINES = 1024
"""So many lines are kept as they are shown; a filter draws lines from all over the log."""
CONTEXT = 3
"""A line that is jumped to stands a third down the screen, as long as it is not in sight already."""


class MarkedLine(Protocol):
    """Where a phase began."""

    @property
    def line_no(self) -> int:
        """The line before which the mark is drawn."""

    @property
    def text(self) -> str:
        """What began."""


class Mark(NamedTuple):
    """A mark of one's own."""

    line_no: int
    text: str


class Place(NamedTuple):
    """What stands in the first row of the screen."""

    line_no: int
    skip: int = 0
    """Rows of that line that are above the screen."""


class ScreenRow(Struct, frozen=True):
    """One row of the screen: a part of a line, or the rule of a mark (`rule`)."""

    line_no: int
    text: str = ""
    start: int = 0
    end: int = 0
    lead: int = 0
    """Blank cells before it."""
    first: bool = True
    """The line's first row, which carries its number."""
    living: bool = False
    held: bool = True
    rule: str | None = None


class _Shown(Struct):
    """A line as it is shown, and how it folds at `width`."""

    text: str
    living: bool
    held: bool
    width: int = 0
    folds: list[tuple[int, int]] = []


class LogView:
    """The state of one pane on a book."""

    def __init__(self, mask: Callable[[str], str]) -> None:
        self.mask = mask
        self.following = True
        self.wrap = False
        self.pan = 0
        self.current: int | None = None
        """The line that was clicked on, jumped to, or stands at the end of a selection."""
        self.width = 80
        self.height = 24
        self.marks: Sequence[MarkedLine] = ()
        self._book: LogBook | None = None
        self._place = Place(1)
        self._passing: LineSet | None = None
        self._matcher: Matcher | None = None
        self._picked: set[int] = set()
        self._range_from: int | None = None
        self._seen_last = 0
        self._kept: dict[int, _Shown] = {}
        self._fresh: dict[int, _Shown] = {}

    @property
    def book(self) -> LogBook | None:
        """The log."""
        return self._book

    def open(self, book: LogBook | None) -> None:
        """Show another log, from its end."""
        self._book = book
        self.following = True
        self.show_all()
        self.unselect()
        self._kept.clear()
        self.refresh()

    def refresh(self) -> None:
        """The book may have changed: look at what may be another now."""
        self._fresh.clear()
        if len(self._kept) > KEPT_LINES:
            self._kept.clear()

    # ------------------------------------------------------------------------------- which lines there are

    @property
    def first_line(self) -> int:
        """The first line of the log."""
        return self._book.first_line if self._book is not None else 1

    @property
    def last_line(self) -> int:
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
        """Show every line; the one at the top of the screen stays."""
        self._passing = self._matcher = None

    @property
    def count(self) -> int:
        """How many lines are shown in all."""
        if self._passing is None:
            return max(0, self.last_line - self.first_line + 1)
        return len(self._passing) + (self._living_passes() is not None)

    def _living_passes(self) -> int | None:
        last = self.last_line
        if self._book is None or self._matcher is None or last < self.first_line:
            return None
        shown = self._line(last)
        return last if shown.living and self._matcher.passes(shown.text) else None

    def number(self, index: int) -> int:
        """The line at `index` (from 0) of those that are shown."""
        if self._passing is None:
            return self.first_line + index
        return self._passing[index] if index < len(self._passing) else self.last_line

    def index(self, line_no: int) -> int:
        """How many of the shown lines come before this one."""
        if self._passing is None:
            return min(self.count, max(0, line_no - self.first_line))
        living = self._living_passes()
        return self._passing.rank(line_no) + (living is not None and living < line_no)

    def next_line(self, line_no: int) -> int | None:
        """The shown line after this one."""
        if self._passing is None:
            return line_no + 1 if line_no < self.last_line else None
        after = self._passing.after(line_no)
        if after is None and (living := self._living_passes()) is not None and living > line_no:
            return living
        return after

    def previous_line(self, line_no: int) -> int | None:
        """The shown line before this one."""
        if self._passing is None:
            return line_no - 1 if line_no > self.first_line else None
        living = self._living_passes()
        return living if living is not None and living < line_no else self._passing.before(line_no)

    def _nearest(self, line_no: int) -> int | None:
        """This line, or the nearest that is shown: below it first."""
        if self._passing is None:
            return min(max(line_no, self.first_line), self.last_line) if self.count else None
        after = self.next_line(line_no - 1)
        return after if after is not None else self.previous_line(line_no)

    # ------------------------------------------------------------------------------- lines and their rows

    @property
    def gutter(self) -> int:
        """Cells of the line numbers."""
        if self.width < NUMBERS_FROM_WIDTH and self._passing is None:
            return 0
        return max(7, len(str(self.last_line))) + 2

    @property
    def text_width(self) -> int:
        """Cells of the text."""
        return max(2, self.width - self.gutter)

    def text_of(self, line_no: int) -> str:
        """The line as it is shown, whole."""
        return self._line(line_no).text

    def _line(self, line_no: int) -> _Shown:
        shown = self._fresh.get(line_no) or self._kept.get(line_no)
        if shown is None:
            self._fetch(line_no, 1)
            shown = self._fresh.get(line_no) or self._kept.get(line_no) or _Shown("", living=False, held=False)
        return shown

    def _fetch(self, line_no: int, count: int) -> None:
        """Rows of lines that follow each other: one question for all of a screen."""
        first, until = max(line_no, self.first_line), min(line_no + count, self.last_line + 1)
        while first < until and (first in self._kept or first in self._fresh):
            first += 1
        while first < until and (until - 1 in self._kept or until - 1 in self._fresh):
            until -= 1
        if self._book is not None and first < until:
            for row in self._book.rows(first, until - first):
                self._keep(row)

    def _keep(self, row: Row) -> None:
        # Masked whole, cut afterwards: half a secret would pass the mask.
        shown = _Shown(tame(self.mask(without_half_word(row.text))), living=row.living, held=row.held)
        (self._kept if row.held and not row.living else self._fresh)[row.line_no] = shown

    def _folds(self, shown: _Shown) -> list[tuple[int, int]]:
        if shown.width != self.text_width:
            shown.width, shown.folds = self.text_width, fold(shown.text, self.text_width)
        return shown.folds

    def _rule(self, line_no: int) -> str | None:
        """What is written over the line: marks between the shown line before it and itself."""
        marks = self.marks
        end = bisect_left(marks, line_no + 1, key=_line_no)
        if not end:
            return None
        before = self.previous_line(line_no) if self.filtered else line_no - 1
        start = bisect_left(marks, (before or 0) + 1, key=_line_no)
        return " · ".join(mark.text for mark in marks[start:end]) if start < end else None

    def _height(self, line_no: int) -> int:
        rows = len(self._folds(self._line(line_no))) if self.wrap else 1
        return rows + (self._rule(line_no) is not None)

    def _rows(self, line_no: int) -> list[ScreenRow]:
        shown = self._line(line_no)
        rule = self._rule(line_no)
        rows = [] if rule is None else [ScreenRow(line_no, self.mask(rule), rule=self.mask(rule))]
        if self.wrap:
            parts = [(start, end, 0) for start, end in self._folds(shown)]
        else:
            parts = [cut(shown.text, self.pan, self.text_width)]
        for number, (start, end, lead) in enumerate(parts):
            rows.append(ScreenRow(line_no, shown.text, start, end, lead, number == 0, shown.living, shown.held))
        return rows

    # ------------------------------------------------------------------------------- places

    @property
    def place(self) -> Place:
        """What stands in the first row: the end while it follows; never so far down that rows stay empty."""
        end = self._end_place()
        if self.following:
            return end
        line = self._nearest(self._place.line_no)
        if line is None:
            return Place(self.first_line)
        place = self._place if line == self._place.line_no else Place(line)
        return min(Place(line, min(place.skip, self._height(line) - 1)), end)

    def _end_place(self) -> Place:
        line = self._nearest(self.last_line)
        if line is None:
            return Place(self.first_line)
        if not self.filtered:
            self._fetch(self.last_line - self.height + 1, self.height)
        return self._up(Place(line, self._height(line)), self.height)

    def _up(self, place: Place, rows: int) -> Place:
        line, skip = place
        while rows > skip:
            rows -= skip
            previous = self.previous_line(line)
            if previous is None:
                return Place(line, 0)
            line, skip = previous, self._height(previous)
        return Place(line, skip - rows)

    def _down(self, place: Place, rows: int) -> Place:
        line, skip = place
        while rows >= (left := self._height(line) - skip):
            after = self.next_line(line)
            if after is None:
                break
            rows -= left
            line, skip = after, 0
        return Place(line, min(skip + rows, self._height(line) - 1))

    def scroll(self, rows: int) -> None:
        """Up (negative) pauses, as far as there is an up; down to the end follows again."""
        if not self.count:
            return
        place = self.place
        place = self._up(place, -rows) if rows < 0 else self._down(place, rows)
        self._go(place)

    def to_start(self) -> None:
        """The first line."""
        self._go(Place(self.number(0)) if self.count else Place(self.first_line))

    def to_index(self, index: int) -> None:
        """The line at `index` of those that are shown goes to the top: what a scrollbar asks for."""
        if self.count:
            self._go(Place(self.number(min(max(0, index), self.count - 1))))

    def _go(self, place: Place) -> None:
        if place >= self._end_place():
            self.follow()
        else:
            self.pause()
            self._place = place

    def follow(self) -> None:
        """Keep the newest line in sight."""
        self.following = True

    def pause(self) -> None:
        """What is on the screen stays there."""
        if self.following:
            self._place = self._end_place()
            self._seen_last = self.last_line
            self.following = False

    @property
    def new_lines(self) -> int:
        """How many lines have come since it was paused."""
        return 0 if self.following else max(0, self.last_line - self._seen_last)

    def go_to(self, line_no: int) -> int | None:
        """Show this line, or the nearest that is shown, as the current one; returns which. Pauses."""
        line = self._nearest(line_no)
        self._range_from = None
        self.current = line
        if line is None:
            return None
        self.pause()
        if not self.sees(line):
            self._place = self._up(Place(line), self.height // CONTEXT)
        return line

    def back_to(self, line_no: int, *, following: bool) -> None:
        """As it was before a search."""
        self.current = None
        if following:
            self.follow()
        else:
            self.to_index(self.index(line_no))

    def here(self, *, down: bool) -> int:
        """Where "the next" and "the one before" begin: at the current line while it is in sight, else at the screen."""
        if self.current is not None and self.sees(self.current):
            return self.current
        if self.following:
            return self.last_line + 1  # what is read is the end
        return self.place.line_no - 1 if down else self.place.line_no

    def looked_at(self) -> int:
        """The current line while it is in sight, else the last one while it follows, else the first on the screen."""
        if self.current is not None and self.sees(self.current):
            return self.current
        return self.last_line if self.following else self.place.line_no

    def sees(self, line_no: int) -> bool:
        """Whether the line's first row of text stands on the screen."""
        place = self.place
        if line_no < place.line_no or (line_no == place.line_no and place.skip):
            return False
        line: int | None = place.line_no
        rows = -place.skip
        while line is not None and line < line_no and rows < self.height:
            rows += self._height(line)
            line = self.next_line(line)
        return line == line_no and rows + (self._rule(line_no) is not None) < self.height

    def draw(self) -> list[ScreenRow]:
        """The rows of the screen, fewer where the log has no more."""
        if not self.count:
            return []
        place = self.place
        if not self.filtered:
            self._fetch(place.line_no, self.height)
        line: int | None = place.line_no
        rows: list[ScreenRow] = []
        skip = place.skip
        while line is not None and len(rows) < self.height:
            rows += self._rows(line)[skip:]
            line, skip = self.next_line(line), 0
        return rows[: self.height]

    def pan_by(self, steps: int) -> None:
        """Sideways by half a screen a step, as far as a line in sight goes."""
        half = max(1, self.text_width // 2)
        widest = max((cells(row.text) for row in self.draw() if row.rule is None), default=0)
        self.pan = max(0, min(self.pan + steps * half, -(-max(0, widest - self.text_width) // half) * half))

    def around(self, line_no: int, count: int) -> list[tuple[int, str]]:
        """(number, text) of the held lines around this one, filtered or not, at most `count` on each side."""
        if self._book is None:
            return []
        rows = self._book.rows(line_no - count, 2 * count + 1)
        at = next((place for place, row in enumerate(rows) if row.line_no == line_no), len(rows) - 1)
        start = max((place + 1 for place in range(at) if not rows[place].held), default=0)
        end = next((place for place in range(at + 1, len(rows)) if not rows[place].held), len(rows))
        return [(row.line_no, self.mask(without_half_word(row.text))) for row in rows[start:end] if row.held]

    # ------------------------------------------------------------------------------- marks and selection

    def next_mark(self, *, down: bool) -> MarkedLine | None:
        """The mark after (or before) the current line, or after the top of the screen; None where there is none."""
        known = [mark for mark in self.marks if mark.line_no <= self.last_line]
        here = self.current if self.current is not None and self.sees(self.current) else self.place.line_no
        if down:
            return next((mark for mark in known if mark.line_no > here), None)
        return next((mark for mark in reversed(known) if mark.line_no < here), None)

    def pick(self) -> None:
        """Take the current line into the selection, or out of it, and go on to the next."""
        line = self._cursor()
        if line is None:
            return
        self.pause()
        self._picked ^= {line}
        self._range_from = None
        self.current = line
        if (after := self.next_line(line)) is not None:
            self._move_to(after)

    def extend(self, *, down: bool) -> None:
        """Select from the current line on, a line further."""
        line = self._cursor()
        if line is None:
            return
        self.pause()
        if self._range_from is None:
            self._range_from, self.current = line, line
        after = self.next_line(line) if down else self.previous_line(line)
        if after is not None:
            self._move_to(after)

    def _cursor(self) -> int | None:
        """The current line, or the last one on the screen."""
        if self.current is not None and self._nearest(self.current) == self.current and self.sees(self.current):
            return self.current
        rows = self.draw()
        return rows[-1].line_no if rows else None

    def _move_to(self, line_no: int) -> None:
        self.current = line_no
        if not self.sees(line_no):
            place = self.place
            self._place = Place(line_no) if line_no <= place.line_no else self._down(place, self._height(line_no))

    def selects(self, line_no: int) -> bool:
        """Whether the line is in the selection."""
        if line_no in self._picked:
            return True
        if self._range_from is None or self.current is None:
            return False
        return min(self._range_from, self.current) <= line_no <= max(self._range_from, self.current)

    def selected_lines(self) -> list[int]:
        """The selection, in the order of the file, only what is shown; without one the current line."""
        lines = {line for line in self._picked if self._nearest(line) == line}
        if not lines and self._range_from is None and self.current is not None:
            lines = {self.current}
        if self._range_from is not None and self.current is not None:
            line: int | None = min(self._range_from, self.current)
            while line is not None and line <= max(self._range_from, self.current):
                lines.add(line)
                line = self.next_line(line)
        return sorted(lines)

    def unselect(self) -> bool:
        """Nothing is selected, no line is the current one; whether there was any."""
        some = self.current is not None or bool(self._picked)
        self._picked.clear()
        self._range_from = self.current = None
        return some


def _line_no(mark: MarkedLine) -> int:
    return mark.line_no
