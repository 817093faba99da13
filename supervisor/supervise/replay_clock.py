"""The clock of a recording that is played: it shows the record's own time, which goes faster, jumps, or stands still.

All that is shown of a recording ("12 s ago", the time in a phase) is reckoned by it, so it looks as it did then.
"""

from __future__ import annotations

from supervisor.adapters.base import Clock

LATE_S = 0.2
"""Of the time of whoever looks on: less than this is caught up with."""


class ReplayClock:
    """Implements `adapters.base.Clock`.

    Args:
        base: the time of whoever looks on.
        start: the record's first time; it shows that until `begin`.
        speed: how many of the record's seconds go by in one.
    """

    def __init__(self, base: Clock, *, start: float, speed: float = 1.0) -> None:
        self.speed = speed
        self._base = base
        self._shown = start
        self.next_at = float("inf")
        """When the next event comes; set by whoever plays."""
        self._since: float | None = None
        """The base's time when `_shown` was true; None: it stands."""

    def now(self) -> float:
        """The record's time; never later than the event that comes next, however late that is."""
        if self._since is None:
            return self._shown
        return min(self.next_at, self._shown + (self._base.now() - self._since) * self.speed)

    async def sleep(self, wait_s: float) -> None:
        """Sleep for so much of the record's time."""
        await self._base.sleep(max(0.0, wait_s) / self.speed)

    async def rest(self, wait_s: float) -> None:
        """Sleep for so much of the time of whoever looks on."""
        await self._base.sleep(wait_s)

    def begin(self) -> None:
        """From here on time goes by."""
        self._since = self._base.now()

    def arrive(self, at: float) -> None:
        """The next event is here. Where that is late by much, what follows keeps its distance instead of running."""
        if self._since is None:
            return
        late_s = self._base.now() - self._since - (at - self._shown) / self.speed
        if late_s > LATE_S or late_s < 0:
            self._shown, self._since = at, self._base.now()

    def stand(self, at: float) -> None:
        """The recording is over: it is that late, and stays so."""
        self._shown, self._since = at, None
