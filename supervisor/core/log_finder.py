"""All lines of a growing book that match, found piece by piece: newest first, and new ones as they come. Pure.

Whoever reads a log reads its end, so that is where looking begins. Lines that are on the node alone are left out and
counted; the living line is not looked at until it is whole.
"""

from __future__ import annotations

from supervisor.core.line_set import LineSet
from supervisor.core.log_book import LogBook
from supervisor.core.log_levels import MAX_BLOCK_LINES, Level
from supervisor.core.log_search import Mask, Matcher, Scan


class Finder:
    """Looks through the book, one `step()` after the other."""

    def __init__(self, book: LogBook, matcher: Matcher, mask: Mask) -> None:
        self.book = book
        self.matcher = matcher
        self.mask = mask
        self.hits = LineSet()
        self._generation = book.generation
        self._until = (book.version, whole_until(book))
        self._low = self._high = self._until[1]  # looked at: low ≤ n < high
        self._older: Scan | None = None
        self._newer: Scan | None = None
        self._again: Scan | None = None
        self._gaps: list[tuple[int, int]] = []
        self._anew: list[tuple[int, int]] = []

    @property
    def until(self) -> int:
        """The line after the last whole one."""
        if self._until[0] != self.book.version:
            self._until = (self.book.version, whole_until(self.book))
        return self._until[1]

    @property
    def complete(self) -> bool:
        """All lines that were held have been looked at. A book that has become another file is none of its business."""
        if self.matcher.too_slow or self.book.generation != self._generation:
            return True
        done = self._low <= self.book.first_line and self._high >= self.until
        return done and self._again is None and not self._anew

    @property
    def fraction(self) -> float:
        """How much of the book has been looked at."""
        first, until = self.book.first_line, self.until
        return 1.0 if self.complete else (self._high - self._low) / max(1, until - first)

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """Lines that could not be looked at, as (first, until): their bytes are on the node."""
        return self._gaps + self._anew + (self._older.gaps if self._older is not None else [])

    @property
    def unseen_lines(self) -> int:
        """How many lines those are."""
        return sum(until - first for first, until in self.gaps)

    def look_again(self) -> None:
        """Some of what was not held may be held now: look there again."""
        self._anew, self._gaps = self._anew + self._gaps, []

    def covers(self, first: int, until: int) -> bool:
        """Whether all of these lines have been looked at."""
        return self._low <= first and until <= self._high

    def step(self) -> bool:
        """Look at one more piece, new lines before old ones; False when there is nothing to do."""
        if self.complete:
            return False
        until = self.until
        if self._newer is None and self._high < until:
            self._newer = Scan(self.book, self.matcher, self.mask, self._high, until)
        if self._newer is not None:
            more = self._step(self._newer)
            self._high = max(self._high, self._newer.reached[1])
            self._newer = self._newer if more else None
        elif self._again is not None or self._anew:
            if self._again is None:
                first, until = self._anew.pop()
                # A traceback that begins in there may end behind it.
                behind = until + MAX_BLOCK_LINES if self.matcher.query.level is not Level.ALL else until
                self._again = Scan(self.book, self.matcher, self.mask, first, min(behind, self._high))
            self._again = self._again if self._step(self._again) else None
        elif self._low > self.book.first_line:
            if self._older is None:
                self._older = Scan(self.book, self.matcher, self.mask, self.book.first_line, self._low, backwards=True)
            more = self._step(self._older)
            self._low = min(self._low, self._older.reached[0])
            self._older = self._older if more else None
        return True

    def _step(self, scan: Scan) -> bool:
        more = scan.step()
        self.hits.add(scan.taken())
        if not more:
            self._gaps += scan.gaps
        return more


class Seek:
    """The nearest match from a line on, in one direction, round the end if there is none. Resumable.

    Args:
        heads: of lines that match one after the other only the first counts: a traceback is one error.
    """

    def __init__(self, finder: Finder, line_no: int, *, down: bool, heads: bool = False) -> None:
        self.found: int | None = None
        self.wrapped = False
        self._finder = finder
        self._line_no = line_no
        self._down = down
        self._heads = heads
        self._scan: Scan | None = None
        self._hits = LineSet()
        self._over = False

    def step(self) -> bool:
        """Look at one more piece; False when `found` stands, or stays None."""
        if self._over:
            return False
        first, until = self._range()
        finder = self._finder
        if first >= until or finder.covers(first, until) or finder.matcher.too_slow:
            self._hits, reached, done = finder.hits, (first, until), True
        else:
            if self._scan is None:
                self._hits = LineSet()
                self._scan = Scan(finder.book, finder.matcher, finder.mask, first, until, backwards=not self._down)
            done = not self._scan.step()
            self._hits.add(self._scan.taken())
            reached = self._scan.reached
        self.found = self._nearest(first, until, reached)
        if self.found is not None:
            self._over = True
        elif done:
            self._over = self.wrapped
            self.wrapped, self._scan = True, None
        return not self._over

    def _range(self) -> tuple[int, int]:
        """Where to look now; the line itself too, which tells whether the one after it begins something."""
        first, until = self._finder.book.first_line, self._finder.until
        below = (max(first, self._line_no), until)
        above = (first, min(until, self._line_no + 1))
        return below if self._down is not self.wrapped else above

    def _nearest(self, first: int, until: int, reached: tuple[int, int]) -> int | None:
        hits = self._hits
        if self._down:
            # Not the line itself on the way down; on the way round it is the last one that is left.
            at = hits.after(self._line_no if not self.wrapped else first - 1)
            while at is not None and self._heads and at - 1 in hits and at > first:
                at = hits.after(at)
            return at if at is not None and at < until else None
        at = hits.before(self._line_no if not self.wrapped else until)
        while at is not None and self._heads and at - 1 in hits:
            at = hits.before(at)
        if at is None or at < first or (self._heads and at - MAX_BLOCK_LINES < reached[0] and reached[0] > first):
            return None  # nothing, or one that may be part of something that begins above
        return at


def whole_until(book: LogBook) -> int:
    """The line after the last whole one."""
    last = book.last_line
    if last < book.first_line:
        return book.first_line
    rows = book.rows(last, 1)
    return last if rows and rows[0].living else last + 1
