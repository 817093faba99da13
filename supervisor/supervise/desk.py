"""Where facts come in: feeds the machine, the tally and the hub, in that order, and nothing else does.

Every fact of a session goes through `Desk.note`; every event that results goes to the hub. So the machine, the
figures of the ending and what the front ends show can never disagree.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from supervisor.adapters.base import Clock
from supervisor.core import events as ev
from supervisor.core.courtesy import Courtesy
from supervisor.core.lines import sanitise
from supervisor.core.machine import Machine
from supervisor.core.tally import Tally
from supervisor.supervise.hub import Hub


class Desk:
    """One session's machine, tally and hub behind one door.

    Args:
        on_phase: called after each change of the phase, with the event.
    """

    def __init__(self, *, clock: Clock, verify: bool, on_phase: Callable[[ev.PhaseChanged], None]) -> None:
        self.clock = clock
        self.machine = Machine(verify=verify)
        self.tally = Tally(began_at=clock.now())
        self.hub = Hub()
        self.courtesy = Courtesy()
        """What floods asks it before each piece; whoever has a keyboard tells it of the keys."""
        self._on_phase = on_phase

    @property
    def phase(self) -> ev.Phase:
        """The present phase."""
        return self.machine.phase

    def note(self, fact: ev.AnyFact) -> None:
        """Take one fact."""
        self.tally.fact(fact)
        for event in self.machine.feed(fact):
            self.tell(event)

    def tell(self, event: ev.AnyEvent) -> None:
        """Publish an event that is no consequence of the machine's (log lines, warnings, findings)."""
        self.tally.event(event)
        self.hub.publish(event)
        if isinstance(event, ev.PhaseChanged):
            self._on_phase(event)

    async def step_aside(self) -> None:
        """Let keys and everything else have their turn, before more of a flood is taken."""
        await asyncio.sleep(0)  # a flood has its next piece at hand always, and would keep everything else waiting
        while wait_s := self.courtesy.wait_s(self.clock.now()):
            await self.clock.sleep(wait_s)

    def warn(self, text: str, **facts: str | int | float | bool | None) -> None:
        """Publish a warning."""
        self.tell(ev.Warning_(at=self.clock.now(), text=sanitise(text), facts=facts))
