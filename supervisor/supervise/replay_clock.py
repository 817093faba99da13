"""The clock of a recording that is played: it shows the record's own time, which goes faster, jumps, or stands still.

All that is shown of a recording ("12 s ago", the time in a phase) is reckoned by it, so it looks as it did then.
"""

from __future__ import annotations

from supervisor.adapters.base import Clock


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
        self._since: float | None = None
        """The base's time when `_shown` was true; None: it stands."""

    def now(self) -> float:
        """The record's time."""
        if self._since is None:
            return self._shown
        return self._shown + (self._base.now() - self._since) * self.speed

    async def sleep(self, wait_s: float) -> None:
        """Sleep for so much of the record's time."""
        await self._base.sleep(max(0.0, wait_s) / self.speed)

    async def rest(self, wait_s: float) -> None:
        """Sleep for so much of the time of whoever looks on."""
        await self._base.sleep(wait_s)

    def begin(self) -> None:
        """From here on time goes by."""
        self._since = self._base.now()

    def jump(self, to: float) -> None:
        """Leave out what is between now and then; never back."""
        self._shown = max(to, self.now())
        self._since = self._base.now() if self._since is not None else None

    def stand(self, at: float) -> None:
        """The recording is over: it is that late, and stays so."""
        self._shown, self._since = at, None
