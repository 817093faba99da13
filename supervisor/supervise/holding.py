"""Hears the node's looks at its GPUs while a run is attended: tells them, remembers what the run holds, and proves the
release when somebody else has stopped it.

A driver that hangs holds up nothing but this: the looks come as notices, and nobody waits for one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from supervisor.adapters import gpu
from supervisor.core import events as ev
from supervisor.core.claim import Claim, claim, never_looked
from supervisor.core.gpu import DriverState, Snapshot
from supervisor.core.gpu_events import gpu_event, holders_event, named, ours_bytes, safe
from supervisor.core.holders import classify
from supervisor.core.release import RELEASE_WAIT_S, Proof, State, Verdict
from supervisor.engines import loader
from supervisor.errors import SupervisorError, UnreachableError
from supervisor.supervise.connection import Connection
from supervisor.supervise.desk import Desk
from supervisor.supervise.plan import Plan
from supervisor.supervise.release import looks_of, prove
from supervisor.supervise.takedown import identities

CLASSIFY_EVERY_S = 10.0
"""Evidence tells ages; between two of these the holders are told again only when something else of them changed."""


class Holding:
    """What one attended run holds, and who else holds what on its node."""

    def __init__(self, plan: Plan, run_id: str, connection: Connection, desk: Desk) -> None:
        self._plan = plan
        self._run_id = run_id
        self._connection = connection
        self._desk = desk
        self._feed = gpu.GpuFeed()
        self._stop_began = False
        self._baseline: dict[str, int] = {}
        self._face: object = None
        self._classified_at = float("-inf")
        self.claim: Claim | None = None
        """By the last look that saw the run alive."""

    def stop_began(self) -> None:
        """From here on it holds less with every look: what was seen before stands, if there was a look."""
        self._stop_began = True

    async def watch(self) -> None:
        """Have the node tell its GPUs each second, over the present connection. Never returns and never raises."""
        self._feed = gpu.GpuFeed()
        try:
            client = self._connection.client
            found = await client.request("tree", key=self._plan.key, run_id=self._run_id)
            self._baseline = found["gpu_baseline"]
            await gpu.begin(client)
        except UnreachableError:
            pass  # told by the link's own watcher
        except SupervisorError as error:
            self._desk.warn(f"GPU memory is not watched: {error}")
        await asyncio.Event().wait()

    async def end_watch(self) -> None:
        """There is no GPU on this node: ask no more."""
        try:
            await gpu.end(self._connection.client)
        except SupervisorError:
            pass

    def take(self, notice: dict[str, Any], tree: Iterable[ev.Process]) -> bool:
        """One look of the watch, with the run's processes of this moment. False: there is no GPU to look at."""
        snapshot = safe(self._feed.take(notice))
        if snapshot.driver.state is DriverState.ABSENT:
            return False
        alive = identities(tree)
        self._tell(snapshot, ours_bytes(snapshot, self._run_id, (pid for pid, _ in alive)))
        if alive and not (self._stop_began and self.claim is not None):
            seen = claim(snapshot, run_ids=[self._run_id], tree=alive, baseline=self._baseline)
            if not seen.unknown or self.claim is None:
                self.claim = seen
        return True

    def _tell(self, snapshot: Snapshot, ours: int | None) -> None:
        now, host = self._desk.clock.now(), self._connection.link.name
        self._desk.tell(gpu_event(snapshot, host, now, ours_bytes=ours))
        uses = [
            (item.uuid, item.state, [(use.pid, use.used_bytes) for use in item.uses or ()]) for item in snapshot.gpus
        ]
        face = (snapshot.driver.state, snapshot.processes, uses)
        if face == self._face and now - self._classified_at < CLASSIFY_EVERY_S:
            return
        self._face, self._classified_at = face, now
        holders = named(classify(snapshot, loader.known_holders()), host)
        self._desk.tell(holders_event(snapshot, holders, host, now))

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
