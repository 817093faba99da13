"""A clock that tests move by hand, shipped so that tests of plug-ins and scripts have it too.

Nothing in the product imports this. It never looks at the real time and never waits for it.
"""

from __future__ import annotations

import asyncio
import heapq
from itertools import count

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
