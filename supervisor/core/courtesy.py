"""When a log that floods steps aside for whoever types: the key's own work comes first, the log right after it.

The event loop has one queue and no precedence in it. A log that is read as fast as it goes fills that queue, and a key
waits behind what of the log is at hand. Nothing is lost by stepping aside: what is not read stays on the node, and the
window of the channel closes meanwhile. Pure: it is told the time.
"""

from __future__ import annotations

ASIDE_S = 0.06
"""After a key: longer than its picture takes to be made."""
MOST_S = 0.25
"""In a row: a key that is held down must not stop the log."""
TURN_S = 0.1
"""After that the log has the road for so long, whatever is typed."""


class Courtesy:
    """Tell it of each key; ask it before each piece of the log."""

    def __init__(self) -> None:
        self._until = 0.0
        self._since: float | None = None
        self._free_until = 0.0

    def touched(self, now: float) -> None:
        """A key was pressed. Another thread may tell it."""
        self._until = now + ASIDE_S

    def wait_s(self, now: float) -> float:
        """How long to step aside from now on, in seconds; 0 to go on."""
        left_s = min(self._until - now, ASIDE_S)  # a clock that was set back must not stop the log for an hour
        if left_s <= 0 or now < self._free_until <= now + TURN_S:
            self._since = None
            return 0.0
        if self._since is None or now < self._since:
            self._since = now
        if now - self._since >= MOST_S:
            self._since, self._free_until = None, now + TURN_S
            return 0.0
        return left_s
