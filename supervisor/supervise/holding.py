"""Knows what an attended run holds on the GPUs, and proves the release when somebody else has stopped it.

It looks rarely, beside everything else: a driver that hangs holds up nothing but this. Facts go to the desk.
"""

from __future__ import annotations

import asyncio

from supervisor.core import events as ev
from supervisor.core.claim import Claim, claim, never_looked
from supervisor.core.gpu import DriverState
from supervisor.core.release import RELEASE_WAIT_S, Proof, State, Verdict
from supervisor.errors import SupervisorError
from supervisor.supervise.connection import Connection
from supervisor.supervise.desk import Desk
from supervisor.supervise.plan import Plan
from supervisor.supervise.release import BEFORE_WAIT_S, looks_of, prove
from supervisor.supervise.takedown import identities, processes

LOOK_EVERY_S = 30.0


class Holding:
    """What one attended run holds."""

    def __init__(self, plan: Plan, run_id: str, connection: Connection, desk: Desk) -> None:
        self._plan = plan
        self._run_id = run_id
        self._connection = connection
        self._desk = desk
        self._wake = asyncio.Event()
        self._stop_began = False
        self._no_gpu = False
        self._baseline: dict[str, int] = {}
        self.claim: Claim | None = None
        """By the last look that saw the run alive."""

    def look_soon(self) -> None:
        """Something changed that makes a look worth it."""
        self._wake.set()

    def stop_began(self) -> None:
        """From here on it holds less with every look: what was seen before stands, if there was a look."""
        self._stop_began = True
        self._wake.set()

    async def keep_looking(self) -> None:
        """Look now and then. Never returns and never raises: a link that is lost is told by its own watcher."""
        while True:
            if not self._no_gpu and not (self._stop_began and self.claim is not None):
                try:
                    await self._look()
                except SupervisorError:
                    pass
            self._wake.clear()
            try:
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _look(self) -> None:
        client = self._connection.client
        found = await client.request("tree", key=self._plan.key, run_id=self._run_id)
        self._baseline = found["gpu_baseline"]
        tree = identities(processes(found["tree"]))
        if not tree:
            return
        snapshot = await looks_of(client)(BEFORE_WAIT_S)
        self._no_gpu = snapshot.driver.state is DriverState.ABSENT
        seen = claim(snapshot, run_ids=[self._run_id], tree=tree, baseline=self._baseline)
        if not seen.unknown or self.claim is None:
            self.claim = seen

    async def proof(self) -> Verdict:
        """Of a run that somebody else has stopped, by what was seen of it. Raises `UnreachableError`."""
        claimed = self.claim
        if claimed is None:
            why = "it was stopped before this supervisor had looked at what it held"
            claimed = never_looked(why, run_id=self._run_id, baseline=self._baseline)
        look = looks_of(self._connection.client)
        return await prove(
            look, Proof(claimed), clock=self._desk.clock, wait_s=RELEASE_WAIT_S, tell=lambda text: self._desk.warn(text)
        )

    async def prove_and_note(self) -> None:
        """The same, noted as the end of the run."""
        verdict = await self.proof()
        if self._desk.phase is ev.Phase.STOPPED:
            return
        self._desk.note(ev.TreeGone(at=self._desk.clock.now(), release=verdict.release))
        if verdict.state is State.UNPROVED:
            self._desk.warn(verdict.text)
