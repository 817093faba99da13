"""Blocks of a log, cut anywhere, into lines across their borders and whole lines in between. Pure."""

from __future__ import annotations

from msgspec import Struct

from supervisor.core.events import LogBlock
from supervisor.core.lines import Line, LineSplitter


class Parts(Struct, frozen=True):
    """One block, in its order: `before`, the whole lines of `inner`, `after`."""

    before: list[Line]
    """What the block before left unfinished."""
    inner: bytes = b""
    """Lines that lie whole in this one; the first of them has the number `line_no`, and begins at `offset`."""
    offset: int = 0
    line_no: int = 0
    after: list[Line] = []
    """What this one leaves, as far as it shows already."""


class BlockLines:
    """Tell it the blocks in order."""

    def __init__(self) -> None:
        self._splitter: LineSplitter | None = None

    def take(self, block: LogBlock) -> Parts:
        """One block. After a gap, or in another file, it begins anew."""
        if block.fresh or self._splitter is None or block.offset != self._splitter.offset:
            self._splitter = LineSplitter(offset=block.offset, lines_before=block.line_no - 1)
        data = block.data
        first, last = data.find(b"\n") + 1, data.rfind(b"\n") + 1
        if first == last:
            return Parts(self._splitter.feed(data))
        before = self._splitter.feed(data[:first])
        self._splitter = LineSplitter(offset=block.offset + last, lines_before=block.line_no + block.lines - 1)
        after = self._splitter.feed(data[last:])
        return Parts(before, data[first:last], block.offset + first, block.line_no + 1, after)

    def end(self) -> list[Line]:
        """What has no newline yet, and will have none."""
        left = self._splitter.end() if self._splitter is not None else []
        self._splitter = None
        return left
