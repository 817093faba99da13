"""Asks the node for what a book does not hold: one request at a time, in bounded pieces, nearest to what is wanted.

What comes is checked against what is held beside it, and against the line numbers that are known: a file that was
replaced or rewritten must never give wrong lines. What fails the check, or is empty, is given up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from supervisor.core.ranges import Ranges
from supervisor.errors import SupervisorError, UnreachableError

if TYPE_CHECKING:
    from supervisor.supervise.book import Book

Read = Callable[[int, int], Awaitable[bytes]]
Count = Callable[[int], Awaitable[int]]

FIRST_PIECE_BYTES = 128 << 10
LEAST_PIECE_BYTES = 32 << 10
MOST_PIECE_BYTES = 768 << 10
"""Below what the node gives in one answer."""
QUICK_S, SLOW_S = 0.1, 0.3
"""An answer quicker than that makes the next piece larger, a slower one smaller: other answers wait behind it."""
OVERLAP_BYTES = 256
FAR_BYTES = 8 << 20
"""Further than this from both ends of a hole, lines are counted on the node instead of read on the way."""
RETRY_S = 1.0

ASKED = "… this line is on the node: asked for"
LATER = "… this line is on the node, which cannot be asked now"
LOST = "… this line can be had no more"


class Gap(Struct, frozen=True):
    """Bytes that are not held, and the numbers of the lines that both ends belong to."""

    start: int
    end: int
    first_line: int
    last_line: int
    known: bool
    """They were held once, so there are marks within."""


class _Piece(Struct, frozen=True):
    """One request: the bytes that are wanted, and how many more on each side, to compare."""

    start: int
    end: int
    before: int = 0
    after: int = 0
    line_no: int | None = None
    """Of the first byte; None where that of the byte behind the last one is known instead."""
    end_line: int | None = None


class Asking:
    """What one book asks for. `read` and `count` as the book got them."""

    def __init__(
        self, book: Book, read: Read | None, count: Count | None, on_change: Callable[[], None] | None
    ) -> None:
        self._book = book
        self._read = read
        self._count = count
        self._on_change = on_change
        self._task: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._wanted: int | None = None
        self._given_up = Ranges()
        self._retry_at = 0.0
        self._piece_bytes = FIRST_PIECE_BYTES

    def begin_anew(self) -> None:
        """The log is another file."""
        self._given_up = Ranges()
        self._wanted = None
        self._retry_at = 0.0

    def close(self) -> None:
        """Ask for nothing more."""
        self._read = None
        if self._task is not None:
            self._task.cancel()

    # ------------------------------------------------------------------------------- what is missing

    def gaps(self) -> list[Gap]:
        """What is not held of the run's log up to its end, in order."""
        book = self._book
        if book.run is None:
            return []
        out = [Gap(h.start, h.end, h.first_line, h.last_line, False) for h in book.index.holes(*book.run)]
        for span in book.index.spans:
            for start, end in book.spool.gaps(max(span.start, book.run[0]), span.end):
                first, last = book.index.line_at(start), book.index.line_at(end)
                if first is None or last is None:
                    first, last = span.first_line, span.next_line
                out.append(Gap(start, end, first, last, True))
        return sorted(out, key=lambda gap: gap.start)

    def _may_ask(self, gap: Gap) -> bool:
        return self._read is not None and not self._given_up.holds(gap.start, gap.end)

    @property
    def may_ask_first(self) -> bool:
        """Whether what is before the first span is worth showing: it is seen, or may yet be had."""
        run, spans = self._book.run, self._book.index.spans
        if run is None or not spans or spans[0].start <= run[0]:
            return True
        return self._read is not None and not self._given_up.holds(run[0], spans[0].start)

    def lost_lines(self) -> int:
        """Lines of which nothing can be shown any more."""
        return sum(gap.last_line - gap.first_line for gap in self.gaps() if not self._may_ask(gap))

    def _gap_of(self, line_no: int) -> Gap | None:
        start = self._book.line_start(line_no)
        for gap in self.gaps():
            if gap.first_line <= line_no <= gap.last_line and (start is None or gap.end > start):
                return gap
        return None

    # ------------------------------------------------------------------------------- asking

    def want(self, line_no: int) -> tuple[bool, str, int]:
        """Somebody wants to see this line, of which something is missing.

        Whether that may come, what to say meanwhile, and up to which line all the same is to be said.
        """
        gap = self._gap_of(line_no)
        if gap is None:
            return False, LOST, line_no + 1
        if not self._may_ask(gap):
            return False, LOST, gap.last_line
        self._wanted = line_no
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return True, LATER, gap.last_line
        if loop.time() < self._retry_at:
            return True, LATER, gap.last_line
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._ask())
        return True, ASKED, gap.last_line

    async def _ask(self) -> None:
        while (wanted := self._wanted) is not None:
            self._wanted = None  # who still wants it after the answer says so again
            gap = self._gap_of(wanted)
            if gap is None or not self._may_ask(gap):
                continue
            try:
                async with self._lock:
                    generation = self._book.generation
                    piece = await self._plan(gap, wanted)
                    if self._book.generation == generation:
                        await self._fetch(gap, piece)
            except SupervisorError:
                self._retry_at = asyncio.get_running_loop().time() + RETRY_S
            if self._on_change is not None:
                self._on_change()

    async def fetch_before(self, line_no: int, at_most_bytes: int) -> bool:
        """See `Book.fetch_before`."""
        came_bytes = 0
        while True:
            gaps = [gap for gap in self.gaps() if gap.first_line < line_no and self._may_ask(gap)]
            if not gaps:
                return True
            if came_bytes >= at_most_bytes:
                return False
            try:
                async with self._lock:
                    came_bytes += await self._fetch(gaps[-1], self._at_end(gaps[-1]))
            except SupervisorError:
                return False

    # ------------------------------------------------------------------------------- one piece

    async def _plan(self, gap: Gap, line_no: int) -> _Piece:
        if gap.known:
            return self._known(gap, line_no)
        if gap.end - gap.start <= self._piece_bytes:
            return self._at_start(gap)
        share = (line_no - gap.first_line) / max(1, gap.last_line - gap.first_line)
        distance = min(share, 1 - share) * (gap.end - gap.start)
        if self._count is not None and distance > FAR_BYTES:
            start = gap.start + int(share * (gap.end - gap.start)) - self._piece_bytes // 2
            try:
                before = await self._count(start)
            except UnreachableError:
                raise
            except SupervisorError:
                self._count = None  # read from the ends then
            else:
                return _Piece(start, min(gap.end, start + self._piece_bytes), line_no=before + 1)
        return self._at_start(gap) if share < 0.5 else self._at_end(gap)

    def _at_start(self, gap: Gap) -> _Piece:
        before = min(OVERLAP_BYTES, gap.start - self._book.spool.run_start(gap.start))
        end = min(gap.end, gap.start + self._piece_bytes)
        return _Piece(gap.start, end, before=before, line_no=gap.first_line)

    def _at_end(self, gap: Gap) -> _Piece:
        if gap.known:
            return self._known(gap, gap.last_line)
        after = min(OVERLAP_BYTES, self._book.spool.run_end(gap.end) - gap.end)
        start = max(gap.start, gap.end - self._piece_bytes)
        return _Piece(start, gap.end, after=after, end_line=gap.last_line)

    def _known(self, gap: Gap, line_no: int) -> _Piece:
        """From mark to mark, so that the count of its lines can be compared; around the line that is wanted."""
        index = self._book.index
        place = index.place(line_no)
        middle = min(max(place.start if place is not None else gap.start, gap.start), gap.end - 1)
        mark = index.mark_before(max(gap.start, middle - self._piece_bytes // 2))
        assert mark is not None
        start, first = mark
        end = index.mark_after(start)
        while end < gap.end and (end <= middle or end - start < self._piece_bytes):
            end = index.mark_after(end)
        return _Piece(start, end, line_no=first, end_line=index.line_at(end))

    async def _fetch(self, gap: Gap, piece: _Piece) -> int:
        """Ask, check, keep. How many bytes came."""
        if self._read is None:
            raise UnreachableError("the book was closed")
        generation, clock = self._book.generation, asyncio.get_running_loop().time
        began_at = clock()
        start, length = piece.start - piece.before, piece.before + piece.end - piece.start + piece.after
        data = await self._read(start, length)
        took_s = clock() - began_at
        if took_s > SLOW_S:
            self._piece_bytes = max(LEAST_PIECE_BYTES, self._piece_bytes // 2)
        elif took_s < QUICK_S:
            self._piece_bytes = min(MOST_PIECE_BYTES, self._piece_bytes * 2)
        if self._book.generation != generation:
            return 0  # bytes of a file that the log is no more
        if not self._keep(gap, piece, data):
            self._given_up.add(gap.start, gap.end)
        self._book.forget_rows()
        return len(data)

    def _keep(self, gap: Gap, piece: _Piece, data: bytes) -> bool:
        """False where these cannot be the bytes that were written there."""
        book = self._book
        if len(data) < piece.before + piece.end - piece.start + piece.after:
            return False  # the file ends before where it was read already
        head, body = data[: piece.before], data[piece.before : len(data) - piece.after]
        tail = data[len(data) - piece.after :]
        if head != book.spool.read(piece.start - piece.before, piece.before):
            return False
        if tail != book.spool.read(piece.end, piece.after):
            return False
        lines = body.count(b"\n")
        line_no = piece.line_no if piece.line_no is not None else (piece.end_line or 0) - lines
        if gap.known:
            if line_no + lines != piece.end_line:
                return False
            book.spool.write(piece.start, body)
            return True
        if line_no < gap.first_line or line_no + lines > gap.last_line:
            return False
        if piece.start == gap.start and line_no != gap.first_line:
            return False
        if piece.end == gap.end and line_no + lines != gap.last_line:
            return False
        book.keep(piece.start, line_no, body)
        return True
