"""A clock that tests move by hand and a log in memory, shipped so that tests of plug-ins and scripts have them too.

Nothing in the product imports this. It never looks at the real time and never waits for it.
"""

from __future__ import annotations

import asyncio
import heapq
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import count

from supervisor.core.lines import LineSplitter
from supervisor.core.log_book import Chunk, Row

SETTLE_PASSES = 20
"""Turns of the event loop after each wake-up: enough for a woken task to run through its queues and sleep again."""


class ManualClock:
    """Implements `adapters.base.Clock`. `sleep` returns only when the test has advanced the clock that far.

    Args:
        start: the first time, in seconds since the epoch.
    """

    def __init__(self, start: float = 1_000_000_000.0) -> None:
        self._now = start
        self._order = count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def __repr__(self) -> str:
        return f"<ManualClock {self._now:.3f}, {self.sleepers} asleep>"

    def now(self) -> float:
        """Where the test has moved the clock."""
        return self._now

    @property
    def sleepers(self) -> int:
        """How many tasks are asleep."""
        return sum(not future.done() for _, _, future in self._sleepers)

    async def sleep(self, wait_s: float) -> None:
        """Sleep until the clock has been advanced by `wait_s` seconds; nothing or less only gives way once."""
        if wait_s <= 0:
            await asyncio.sleep(0)
            return
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + wait_s, next(self._order), future))
        await future

    async def advance(self, wait_s: float) -> None:
        """Move on by `wait_s` seconds, waking every sleeper at its own time and in its own order.

        Who sleeps again after being woken is woken again within the same call, so a loop with a pace runs as often
        as it would have. Raises `ValueError` for a step back.
        """
        if wait_s < 0:
            raise ValueError("a clock does not go back")
        until = self._now + wait_s
        await settle()
        while self._sleepers and self._sleepers[0][0] <= until:
            at, _, future = heapq.heappop(self._sleepers)
            self._now = max(self._now, at)
            if not future.done():  # a cancelled sleeper is nobody's time
                future.set_result(None)
                await settle()
        self._now = until


async def settle() -> None:
    """Let every task that can run, run, until they wait again."""
    for _ in range(SETTLE_PASSES):
        await asyncio.sleep(0)


class MemoryBook:
    """Implements `core.log_book.LogBook` in memory, for tests of what shows and searches a log.

    Args:
        data: the log's bytes, as far as they have come.
        first_line: the number of its first line.
        held_from: lines before this are not held: asking for them writes it into `asked`, `arrive()` brings them.
        chunk_bytes: how large the pieces of `chunks` are.
    """

    def __init__(
        self, data: bytes = b"", *, first_line: int = 1, held_from: int | None = None, chunk_bytes: int = 1 << 20
    ) -> None:
        self.version = 0
        self.generation = 0
        self.first_line = first_line
        self.lost_lines = 0
        self.asked: list[tuple[int, int]] = []
        self._data = bytearray()
        self._starts = array("Q", [0])  # of each line; the last one's is where the next byte goes
        self._held_from = held_from if held_from is not None else first_line
        self._chunk_bytes = chunk_bytes
        self.append(data)

    def __repr__(self) -> str:
        return f"<MemoryBook {self.first_line}–{self.last_line}, held from {self._held_from}>"

    def append(self, data: bytes) -> None:
        """More bytes of the log, cut anywhere."""
        base, start = len(self._data), 0
        while (end := data.find(b"\n", start)) != -1:
            start = end + 1
            self._starts.append(base + start)
        self._data += data
        self.version += 1

    def turn_into(self, data: bytes, *, first_line: int = 1) -> None:
        """Another file."""
        self.generation += 1
        self.first_line = self._held_from = first_line
        self._data.clear()
        self._starts = array("Q", [0])
        self.append(data)

    def arrive(self, held_from: int | None = None) -> None:
        """What was asked for has come."""
        self._held_from = self.first_line if held_from is None else held_from
        self.version += 1

    @property
    def last_line(self) -> int:
        """The newest line, one without its newline too."""
        living = self._starts[-1] < len(self._data)
        return self.first_line + len(self._starts) - 2 + living

    def rows(self, line_no: int, count: int) -> list[Row]:
        """Rows as `LineSplitter` makes them."""
        first, until = max(line_no, self.first_line), min(line_no + count, self.last_line + 1)
        missing = range(first, min(until, self._held_from))
        if missing:
            self.asked.append((missing.start, missing.stop))
        return [self._row(number) for number in range(first, until)]

    def _row(self, line_no: int) -> Row:
        if line_no < self._held_from:
            return Row(line_no, "… on the node, asked for", held=False)
        at = line_no - self.first_line
        splitter = LineSplitter(lines_before=line_no - 1)
        if at + 1 < len(self._starts):
            (line,) = splitter.feed(bytes(self._data[self._starts[at] : self._starts[at + 1]]))
            return Row(line_no, line.text)
        splitter.feed(bytes(self._data[self._starts[at] :]))
        return Row(line_no, splitter.end()[0].text, living=True)

    def chunks(self, line_no: int, until: int, *, backwards: bool = False) -> Iterator[Chunk]:
        """Whole held lines, in pieces of about `chunk_bytes`."""
        first = max(line_no, self._held_from, self.first_line) - self.first_line
        last = min(until - self.first_line, len(self._starts) - 1)
        while first < last:
            if backwards:
                low = bisect_right(self._starts, max(0, self._starts[last] - self._chunk_bytes), 0, last) - 1
                cut, end = (max(first, low), last)
                last = cut
            else:
                high = bisect_left(self._starts, self._starts[first] + self._chunk_bytes, first + 1, last + 1)
                cut, end = first, min(high, last)
                first = end
            data = bytes(self._data[self._starts[cut] : self._starts[end]])
            yield Chunk(line_no=self.first_line + cut, data=data, lines=end - cut)

    async def fetch_before(self, line_no: int, *, at_most_bytes: int = 64 << 20) -> bool:
        """The missing lines before `line_no`, as many as fit into `at_most_bytes`."""
        while self._held_from > self.first_line and at_most_bytes > 0:
            at = self._held_from - self.first_line
            at_most_bytes -= self._starts[at] - self._starts[at - 1]
            self._held_from -= 1
        self.version += 1
        return self._held_from == self.first_line
