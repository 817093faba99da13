"""Waits for any endpoint: `--url`, with no profile and no run. Looks every 100 ms, one look in flight.

`--via HOST` looks from the node through its link, where the node program tells when something listens, so that a
long wait leaves nothing in the node's sshd log.
"""

from __future__ import annotations

from supervisor.core import events as ev
from supervisor.supervise.desk import Desk
from supervisor.supervise.probe import Prober

LOOK_EVERY_S = 0.1


class UrlWatch:
    """Looks at a URL for ever; whoever runs it ends it."""

    def __init__(self, desk: Desk, prober: Prober) -> None:
        self._desk = desk
        self._prober = prober

    async def run(self) -> None:
        """Look, tell, wait for the rest of the interval, again."""
        clock = self._desk.clock
        while True:
            began = clock.now()
            answer = await self._prober.look()
            now = clock.now()
            self._desk.note(ev.Answered(at=now, answer=answer))
            await clock.sleep(LOOK_EVERY_S - (now - began))
