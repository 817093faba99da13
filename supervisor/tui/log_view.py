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

from supervisor.core.log_book import LogBook
from supervisor.core.log_levels import Level
from supervisor.tui.log_rows import ShownLines
from supervisor.tui.log_text import cells, cut

NUMBERS_FROM_WIDTH = 100
"""Line numbers are worth their columns on a wide screen alone, or where lines are left out."""
AT_EDGE = 8
"""A match needs at least so many cells in sight."""
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
    level: Level = Level.ALL
    rule: str | None = None


class LogView:
    """The state of one pane on a book."""

    def __init__(self, mask: Callable[[str], str]) -> None:
        self.lines = ShownLines(mask)
        self.following = True
        self.wrap = False
        self.pan = 0
        self.current: int | None = None
        """The line that was clicked on, jumped to, or stands at the end of a selection."""
        self.width = 80
        self.height = 24
        self.marks: Sequence[MarkedLine] = ()
        self._place = Place(1)
        self._picked: set[int] = set()
        self._range_from: int | None = None
        self._seen_last = 0
        self._generation = 0

    def open(self, book: LogBook | None) -> None:
        """Show another log, from its end."""
        self.lines.open(book)
        self._generation = book.generation if book is not None else 0
        self.following = True
        self.unselect()

    def begins_anew(self) -> bool:
        """Whether the log has become another file; from now on that one is shown, from its end."""
        book = self.lines.book
        if book is None or book.generation == self._generation:
            return False
        self.open(book)
        return True

    def show_all(self) -> None:
        """No filter: the current line stays in sight, else the one at the top of the screen."""
        current = self.current if self.current is not None and self.sees(self.current) else None
        self.lines.show_all()
        if current is not None and not self.following:
            self.go_to(current)

    # ------------------------------------------------------------------------------- lines and their rows

    @property
    def gutter(self) -> int:
        """Cells of the line numbers."""
        if self.width < NUMBERS_FROM_WIDTH and not self.lines.filtered:
            return 0
        return max(7, len(str(self.lines.last))) + 2

    @property
    def text_width(self) -> int:
        """Cells of the text."""
        return max(2, self.width - self.gutter)

    def _rule(self, line_no: int) -> str | None:
        """What is written over the line: marks between the shown line before it and itself."""
        marks = self.marks
        end = bisect_left(marks, line_no + 1, key=_line_no)
        if not end:
            return None
        before = self.lines.before(line_no) if self.lines.filtered else line_no - 1
        start = bisect_left(marks, (before or 0) + 1, key=_line_no)
        return " · ".join(mark.text for mark in marks[start:end]) if start < end else None

    def _height(self, line_no: int) -> int:
        rows = len(self.lines.shown(line_no).folded(self.text_width)) if self.wrap else 1
        return rows + (self._rule(line_no) is not None)

    def _rows(self, line_no: int) -> list[ScreenRow]:
        shown = self.lines.shown(line_no)
        rule = self._rule(line_no)
        rows = [] if rule is None else [ScreenRow(line_no, self.lines.mask(rule), rule=self.lines.mask(rule))]
        if self.wrap:
            parts = [(start, end, 0) for start, end in shown.folded(self.text_width)]
        else:
            parts = [cut(shown.text, self.pan, self.text_width)]
        for number, (start, end, lead) in enumerate(parts):
            first = number == 0
            rows.append(ScreenRow(line_no, shown.text, start, end, lead, first, shown.living, shown.held, shown.level))
        return rows

    # ------------------------------------------------------------------------------- places

    @property
    def place(self) -> Place:
        """What stands in the first row: the end while it follows; never so far down that rows stay empty."""
        end = self._end_place()
        if self.following:
            return end
        line = self.lines.nearest(self._place.line_no)
        if line is None:
            return Place(self.lines.first)
        if line != self._place.line_no:
            return min(Place(line), end)
        place = Place(line, min(self._place.skip, self._height(line) - 1))
        if place > end:
            self._place = place = end  # for good: what comes at the end must not move it down again
        return place

    def _end_place(self) -> Place:
        line = self.lines.nearest(self.lines.last)
        if line is None:
            return Place(self.lines.first)
        if not self.lines.filtered:
            self.lines.fetch(self.lines.last - self.height + 1, self.height)
        return self._up(Place(line, self._height(line)), self.height)

    def _up(self, place: Place, rows: int) -> Place:
        line, skip = place
        while rows > skip:
            rows -= skip
            previous = self.lines.before(line)
            if previous is None:
                return Place(line, 0)
            line, skip = previous, self._height(previous)
        return Place(line, skip - rows)

    def _down(self, place: Place, rows: int) -> Place:
        line, skip = place
        while rows >= (left := self._height(line) - skip):
            after = self.lines.after(line)
            if after is None:
                break
            rows -= left
            line, skip = after, 0
        return Place(line, min(skip + rows, self._height(line) - 1))

    def scroll(self, rows: int) -> None:
        """Up (negative) pauses, as far as there is an up; down to the end follows again."""
        if not self.lines.count:
            return
        place = self.place
        place = self._up(place, -rows) if rows < 0 else self._down(place, rows)
        self._go(place)

    def to_start(self) -> None:
        """The first line."""
        self._go(Place(self.lines.number(0)) if self.lines.count else Place(self.lines.first))

    def to_index(self, index: int) -> None:
        """The line at `index` of those that are shown goes to the top: what a scrollbar asks for."""
        if self.lines.count:
            self._go(Place(self.lines.number(min(max(0, index), self.lines.count - 1))))

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
            self._seen_last = self.lines.last
            self.following = False

    @property
    def new_lines(self) -> int:
        """How many lines have come since it was paused."""
        return 0 if self.following else max(0, self.lines.last - self._seen_last)

    def go_to(self, line_no: int, at: int = 0) -> int | None:
        """Show this line, its character `at`, or the nearest that is shown, as the current one; which. Pauses."""
        line = self.lines.nearest(line_no)
        self._range_from = None
        self.current = line
        if line is None:
            return None
        self.pause()
        if not self.sees(line, at):
            self._place = self._up(Place(line, self._row_of(line, at)), self.height // CONTEXT)
        if not self.wrap:
            before = cells(self.lines.shown(line).text[:at])
            if not self.pan <= before < self.pan + self.text_width - AT_EDGE:
                self.pan = max(0, before - self.text_width // 2) if before >= self.text_width - AT_EDGE else 0
        return line

    def back_to(self, line_no: int, *, following: bool) -> None:
        """As it was before a search."""
        self.current = None
        if following:
            self.follow()
        else:
            self.to_index(self.lines.index(line_no))

    def here(self, *, down: bool) -> int:
        """Where "the next" and "the one before" begin: at the current line while it is in sight, else at the screen."""
        if self.current is not None and self.sees(self.current):
            return self.current
        if self.following:
            return self.lines.last + 1  # what is read is the end
        return self.place.line_no - 1 if down else self.place.line_no

    def looked_at(self) -> int:
        """The current line while it is in sight, else the last one while it follows, else the first on the screen."""
        if self.current is not None and self.sees(self.current):
            return self.current
        return self.lines.last if self.following else self.place.line_no

    def sees(self, line_no: int, at: int = 0) -> bool:
        """Whether the row with the line's character `at` stands on the screen."""
        place = self.place
        line: int | None = place.line_no
        rows = -place.skip
        while line is not None and line < line_no and rows < self.height:
            rows += self._height(line)
            line = self.lines.after(line)
        return line == line_no and 0 <= rows + self._row_of(line_no, at) < self.height

    def _row_of(self, line_no: int, at: int) -> int:
        """Which of the line's rows has its character `at`."""
        folds = self.lines.shown(line_no).folded(self.text_width) if self.wrap else [(0, 0)]
        return bisect_left(folds, at + 1, key=lambda fold: fold[0]) - 1 + (self._rule(line_no) is not None)

    def draw(self) -> list[ScreenRow]:
        """The rows of the screen, fewer where the log has no more."""
        if not self.lines.count:
            return []
        place = self.place
        if not self.lines.filtered:
            self.lines.fetch(place.line_no, self.height)
        line: int | None = place.line_no
        rows: list[ScreenRow] = []
        skip = place.skip
        while line is not None and len(rows) < self.height:
            rows += self._rows(line)[skip:]
            line, skip = self.lines.after(line), 0
        return rows[: self.height]

    def pan_by(self, steps: int) -> None:
        """Sideways by half a screen a step, as far as a line in sight goes."""
        half = max(1, self.text_width // 2)
        widest = max((cells(row.text) for row in self.draw() if row.rule is None), default=0)
        self.pan = max(0, min(self.pan + steps * half, -(-max(0, widest - self.text_width) // half) * half))

    # ------------------------------------------------------------------------------- marks and selection

    def next_mark(self, *, down: bool) -> MarkedLine | None:
        """The mark after (or before) the current line, or after the top of the screen; None where there is none."""
        known = [mark for mark in self.marks if mark.line_no <= self.lines.last]
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
        if (after := self.lines.after(line)) is not None:
            self._move_to(after)

    def extend(self, *, down: bool) -> None:
        """Select from the current line on, a line further."""
        line = self._cursor()
        if line is None:
            return
        self.pause()
        if self._range_from is None:
            self._range_from, self.current = line, line
        after = self.lines.after(line) if down else self.lines.before(line)
        if after is not None:
            self._move_to(after)

    def _cursor(self) -> int | None:
        """The current line, or the last one on the screen."""
        if self.current is not None and self.lines.nearest(self.current) == self.current and self.sees(self.current):
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
        lines = {line for line in self._picked if self.lines.nearest(line) == line}
        if not lines and self._range_from is None and self.current is not None:
            lines = {self.current}
        if self._range_from is not None and self.current is not None:
            line: int | None = min(self._range_from, self.current)
            while line is not None and line <= max(self._range_from, self.current):
                lines.add(line)
                line = self.lines.after(line)
        return sorted(lines)

    def unselect(self) -> bool:
        """Nothing is selected, no line is the current one; whether there was any."""
        some = self.current is not None or bool(self._picked)
        self._picked.clear()
        self._range_from = self.current = None
        return some


def _line_no(mark: MarkedLine) -> int:
    return mark.line_no
