"""Has the rules look at every block of a log, in order; at once where they keep up, later where a log floods.

Whoever watches the log must not wait for the rules: under a flood they get a share of the time, and the rest when it is
over. What is too much to be kept is read from the node's file once more. At an end there is no time for all of it: what
was not looked at then is told.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable

import msgspec

from supervisor.core import events as ev
from supervisor.supervise.desk import Desk

SHARE = 0.25
"""Of the time, while more of the log comes in."""
SAVED_S = 0.1
"""So much of its share can be saved: the usual log never waits."""
IDLE_S = 0.02
"""Nothing new for so long: the rules may have all the time."""
KEPT_BYTES = 16 << 20
PIECE_BYTES = 256 << 10
AT_THE_END_S = 0.3

Fetch = Callable[[int, int], Awaitable[bytes | None]]
"""offset, length → the bytes of the log's file on the node; None where that file is gone."""


class Examiner:
    """Blocks in, each examined once.

    Args:
        examine: looks at one block.
        fetch: see `Fetch`.
    """

    def __init__(self, desk: Desk, examine: Callable[[ev.LogBlock], None], fetch: Fetch) -> None:
        self._desk = desk
        self._examine = examine
        self._fetch = fetch
        self._queue: deque[ev.LogBlock] = deque()
        self._kept_bytes = 0
        self._gap: ev.LogBlock | None = None
        """Where the bytes begin that were not kept: a block without any, with its place."""
        self._gap_end = 0
        self._saved_s = SAVED_S
        self._put_at = time.monotonic()
        self._hurry = False
        self._wake = asyncio.Event()
        self.unread_bytes = 0
        """What nobody looked at, and nobody will."""

    @property
    def behind(self) -> bool:
        """Whether something waits."""
        return bool(self._queue) or self._gap is not None

    def put(self, block: ev.LogBlock) -> None:
        """The next block."""
        now = time.monotonic()
        self._saved_s = min(SAVED_S, self._saved_s + SHARE * (now - self._put_at))
        self._put_at = now
        if block.fresh and self._gap is not None:
            self._lose(self._gap_end - self._gap.offset)  # those bytes stood in another file
            self._gap = None
        if not self.behind and self._saved_s > 0:
            self._look(block)
        elif self._gap is not None:
            self._gap_end = block.offset + len(block.data)
        elif self._kept_bytes + len(block.data) > KEPT_BYTES:
            self._gap = msgspec.structs.replace(block, data=b"", lines=0)
            self._gap_end = block.offset + len(block.data)
        else:
            self._queue.append(block)
            self._kept_bytes += len(block.data)
        self._wake.set()

    def _look(self, block: ev.LogBlock) -> None:
        began = time.monotonic()
        self._examine(block)
        self._saved_s -= time.monotonic() - began
        if not self.behind:
            self._desk.note(ev.LogRead(at=self._desk.clock.now(), offset=block.offset + len(block.data)))

    def _lose(self, count: int) -> None:
        self.unread_bytes += count
        self._desk.warn(f"{count:,} bytes of the log were gone before the rules had looked at them")

    async def run(self) -> None:
        """Look at what waits, for ever. Raises `UnreachableError` when the link is gone."""
        while True:
            if not self.behind:
                self._wake.clear()
                await self._wake.wait()
                continue
            pause_s = IDLE_S - (time.monotonic() - self._put_at)
            if self._saved_s <= 0 and pause_s > 0 and not self._hurry:
                await asyncio.sleep(pause_s)
                self._saved_s = min(SAVED_S, self._saved_s + SHARE * pause_s)
                continue
            if self._queue:
                self._look(self._next())
            else:
                await self._look_at_gap()
            await self._desk.step_aside()

    def _next(self) -> ev.LogBlock:
        block = self._queue.popleft()
        self._kept_bytes -= len(block.data)
        return block

    async def _look_at_gap(self) -> None:
        gap = self._gap
        assert gap is not None
        data = await self._fetch(gap.offset, min(PIECE_BYTES, self._gap_end - gap.offset))
        if self._gap is not gap:
            return  # another file stands there meanwhile
        if not data:
            self._gap = None
            self._lose(self._gap_end - gap.offset)
            return
        lines, end = data.count(b"\n"), gap.offset + len(data)
        after = msgspec.structs.replace(gap, offset=end, line_no=gap.line_no + lines, fresh=False)
        self._gap = after if end < self._gap_end else None
        self._look(msgspec.structs.replace(gap, data=data, lines=lines))

    def ended(self) -> None:
        """The server has ended: nobody watches a flood any more, and the verdict waits for the rules."""
        self._hurry = True
        self._wake.set()

    def finish(self, last: ev.LogBlock | None) -> int:
        """Look at what waits, as far as there is time, and then at the last words. How many bytes were left out.

        Args:
            last: the end of the log, where it was fetched.
        """
        began = time.monotonic()
        left = self.unread_bytes
        while self._queue and time.monotonic() - began < AT_THE_END_S:
            self._examine(self._next())
        waiting = sum(len(block.data) for block in self._queue)
        if self._gap is not None:
            waiting += self._gap_end - self._gap.offset
        if last is None and self._queue:
            last = self._queue.pop()  # the end of the log is worth more than its middle
        if last is not None:
            self._examine(last)
            waiting = max(0, waiting - len(last.data))
        self._queue.clear()
        self._kept_bytes, self._gap = 0, None
        return left + waiting
