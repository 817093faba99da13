"""Waits for any endpoint: `--url`, with no profile and no run. Looks every 100 ms, one look in flight.

`--via HOST` looks from the node through its link, where the node program tells when something listens, so that a
long wait leaves nothing in the node's sshd log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from supervisor.core import events as ev
from supervisor.supervise.desk import Desk
from supervisor.supervise.probe import Prober

if TYPE_CHECKING:  # a wait for `healthy` verifies nothing, and starts the quicker for not importing it
    from supervisor.supervise.verify import Verifier

LOOK_EVERY_S = 0.1


class UrlWatch:
    """Looks at a URL for ever; whoever runs it ends it. With a verifier, the first healthy answer is followed by one
    generation (`--until serving`, which needs `--engine`)."""

    def __init__(self, desk: Desk, prober: Prober, verifier: Verifier | None = None) -> None:
        self._desk = desk
        self._prober = prober
        self._verifier = verifier

    async def run(self) -> None:
        """Look, tell, wait for the rest of the interval, again."""
        clock = self._desk.clock
        while True:
            began = clock.now()
            answer = await self._prober.look()
            now = clock.now()
            self._desk.note(ev.Answered(at=now, answer=answer))
            if self._verifier is not None and answer.verdict is ev.Verdict.READY:
                from supervisor.supervise.verify import verify_and_tell

                if await verify_and_tell(self._desk, self._verifier, self._prober.url, answer):
                    self._verifier = None
            await clock.sleep(LOOK_EVERY_S - (now - began))
