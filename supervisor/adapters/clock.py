"""The real clock: the operator's wall time, anchored once, then monotonic, so that it never jumps."""

from __future__ import annotations

import asyncio
import time


class SystemClock:
    """Implements `adapters.base.Clock`. A wall clock that is set while we wait must not fire a timeout."""

    def __init__(self) -> None:
        self._anchor = time.time() - time.monotonic()

    def now(self) -> float:
        """Seconds since the epoch as of the start of this process, going on monotonically."""
        return self._anchor + time.monotonic()

    async def sleep(self, wait_s: float) -> None:
        """Sleep for `wait_s` seconds."""
        await asyncio.sleep(max(0.0, wait_s))
