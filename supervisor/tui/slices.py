"""Long work in the console's own event loop, a few milliseconds at a time, so that keys never wait for it.

A key passes through several queues before the screen changes. So a slice is followed by a pause in which all of them
can turn, not by one turn of the loop alone: that would put a slice between each two queues.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter

SLICE_S = 0.004
PAUSE_S = 0.002


def first_slice(step: Callable[[], bool]) -> bool:
    """One slice at once; whether there is more to do."""
    until = perf_counter() + SLICE_S
    more = True
    while more and perf_counter() < until:
        more = step()
    return more


async def in_slices(step: Callable[[], bool], after_slice: Callable[[], None] | None = None) -> None:
    """Call `step` until it returns False. Cancel the task to stop it."""
    more = True
    while more:
        more = first_slice(step)
        if after_slice is not None:
            after_slice()
        await asyncio.sleep(PAUSE_S if more else 0)
