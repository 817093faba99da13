"""How much of a log may be on its way to us: enough to keep the road busy, little enough that nothing waits behind it.

Everything of a connection shares one road in order, so that a health answer comes behind what of the log is in flight.
The window grows to what the road carries in a round trip and the patience below, and falls back when that is less:
64 KiB on a link of 1 MB/s, a mebibyte where fifty megabytes come in a second. Pure: it is told the time.
"""

from __future__ import annotations

LEAST_BYTES = 64 << 10
MOST_BYTES = 2 << 20
PATIENCE_S = 0.04
"""What others may have to wait behind the log, on top of the round trip."""
LOOK_S = 0.03
"""The rate is taken over so long, all of which somebody had more to send."""


class FlowWindow:
    """Tell it of everything that came.

    Args:
        rtt_s: the round trip while nothing else was on the road.
    """

    def __init__(self, rtt_s: float) -> None:
        self.bytes = LEAST_BYTES
        self._share_s = min(rtt_s, 1.0) + PATIENCE_S
        self._since: float | None = None
        self._came_bytes = 0

    def __repr__(self) -> str:
        return f"<FlowWindow {self.bytes}>"

    def took(self, now: float, size: int, *, behind: bool) -> bool:
        """`size` bytes came; `behind`: there are more to be sent already. True where `bytes` changed."""
        if not behind:
            self._since = None  # the writer is the limit and not the road: this tells nothing of it
            return False
        if self._since is None:
            self._since, self._came_bytes = now, 0
            return False
        self._came_bytes += size
        if now - self._since < LOOK_S:
            return False
        wanted = int(self._came_bytes / (now - self._since) * self._share_s)
        self._since, self._came_bytes = now, 0
        before = self.bytes
        self.bytes = max(LEAST_BYTES, min(MOST_BYTES, wanted, before * 2))
        return self.bytes != before
