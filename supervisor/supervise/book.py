"""The log of one session as rows, however large it is: implements `core/log_book.py`.

First the simple way: all of it in memory.
"""

from __future__ import annotations

import bisect
from collections.abc import Awaitable, Callable, Iterator

from supervisor.core import events as ev
from supervisor.core.lines import LineSplitter
from supervisor.core.log_book import Chunk, Row

Read = Callable[[int, int], Awaitable[bytes]]
Count = Callable[[int], Awaitable[int]]
CHUNK_BYTES = 1 << 20


class Book:
    """A log that grows.

    Args:
        read: (offset, length) → bytes of the file on the node, at most that many; empty where they are not to be had;
            raises a `LinkError` where they may be had later. None: nobody can be asked.
        count: (offset) → how many lines of the file end before it.
        on_change: called when something came that was asked for.
    """

    def __init__(
        self, *, read: Read | None = None, count: Count | None = None, on_change: Callable[[], None] | None = None
    ) -> None:
        self.version = 0
        self._data = bytearray()
        self._starts: list[int] = []
        self._first = 1
        self.lost_lines = 0
        self.warning = ""

    @property
    def first_line(self) -> int:
        """The first line that exists in the log."""
        return self._first

    @property
    def last_line(self) -> int:
        """The newest line."""
        return self._first + len(self._starts) - 1

    def append(self, block: ev.LogBlock) -> None:
        """Take what came."""
        self.version += 1
        if block.fresh or not self._starts:
            self._data, self._starts, self._first = bytearray(), [], block.line_no
        base = len(self._data)
        self._data += block.data
        if block.data and (base == 0 or self._data[base - 1] == 10):
            self._starts.append(base)
        at = base
        while (at := self._data.find(b"\n", at) + 1) and at < len(self._data):
            self._starts.append(at)

    def append_line(self, log: ev.Log) -> None:
        """Take a line that comes without its bytes (a replay)."""
        data = log.text.encode() + (b"\r" if log.living else b"\n")
        self.append(ev.LogBlock(at=log.at, data=data, offset=len(self._data), line_no=self.last_line + 1, lines=0))

    def rows(self, line_no: int, count: int) -> list[Row]:
        """`count` rows from `line_no` on."""
        line_no = max(line_no, self._first)
        out = []
        for number in range(line_no, min(line_no + count, self.last_line + 1)):
            raw = bytes(self._data[slice(*self._span(number))])
            splitter = LineSplitter()
            (line,) = [*splitter.feed(raw), *splitter.end()][-1:]
            out.append(Row(line_no=number, text=line.text, living=not raw.endswith(b"\n")))
        return out

    def chunks(self, line_no: int, until: int, *, backwards: bool = False) -> Iterator[Chunk]:
        """The lines `line_no` ≤ n < `until`, in pieces of about 1 MiB."""
        first, end = max(line_no, self._first), min(until, self.last_line + 1)
        pieces = []
        while first < end:
            start = self._span(first)[0]
            stop = max(first + 1, bisect.bisect_right(self._starts, start + CHUNK_BYTES) + self._first)
            stop = min(stop, end)
            pieces.append((first, start, self._span(stop - 1)[1], stop - first))
            first = stop
        for number, start, finish, lines in reversed(pieces) if backwards else pieces:
            yield Chunk(line_no=number, data=bytes(self._data[start:finish]), lines=lines)

    def close(self) -> None:
        """Let go of what it holds."""

    def _span(self, line_no: int) -> tuple[int, int]:
        index = line_no - self._first
        end = self._starts[index + 1] if index + 1 < len(self._starts) else len(self._data)
        return self._starts[index], end
