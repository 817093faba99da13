"""Looks at a node's GPUs before a stop and after it, and feeds the proof of `core/release.py`. Decides nothing itself.

A driver that hangs, is missing or cannot be used never holds a stop up for longer than a look may take, and never
raises: it is what the verdict says. Only a node that cannot be asked any more raises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

from supervisor.adapters import gpu
from supervisor.adapters.base import Clock
from supervisor.adapters.node import NodeClient
from supervisor.core.claim import Claim, Identity, claim, never_looked
from supervisor.core.gpu import Snapshot
from supervisor.core.release import RELEASE_WAIT_S, Proof, Verdict
from supervisor.errors import NodeProgramError, NodeRequestError

Look = Callable[[float], Awaitable[Snapshot]]
"""One look, within about so many seconds. Raises `UnreachableError` alone for a node that is gone."""
Tell = Callable[[str], None]

BEFORE_WAIT_S = 10.0
"""How long a stop waits for the look at what is held; a driver without persistence mode can take that long."""
LOOK_WAIT_S = 10.0
PAUSES_S = (0.5, 0.5)
PAUSE_S = 1.0
QUIET_S = 2.0
"""So long a proof takes its time in silence; then it tells what it waits for."""
TELL_EVERY_S = 15.0


def looks_of(client: NodeClient) -> Look:
    """Looks through a node program."""

    async def look(wait_s: float) -> Snapshot:
        return await gpu.look(client, wait_s=wait_s)

    return look


class Release:
    """What one run (or left-over) holds, and the proof that it is given back.

    Args:
        run_ids: what its processes carry.
        before: an earlier claim of it, for what the look before the stop does not see any more.
    """

    def __init__(
        self,
        look: Look,
        *,
        clock: Clock,
        run_ids: Iterable[str],
        baseline: Mapping[str, int] | None = None,
        before: Claim | None = None,
    ) -> None:
        self._look = look
        self._clock = clock
        self._run_ids = tuple(run_ids)
        self._baseline = dict(baseline or {})
        self._before = before
        self._seen: set[Identity] = set()
        self._looking: asyncio.Task[Snapshot] | None = None
        self.claim: Claim | None = None
        self.snapshot: Snapshot | None = None
        """The look before the stop."""

    async def before(self, tree: Iterable[Identity]) -> Claim | None:
        """Look at what is held, before the first signal. None where the driver takes too long: the stop goes on."""
        tree = tuple(tree)
        self._seen.update(tree)
        self._looking = asyncio.create_task(_safe(self._look, BEFORE_WAIT_S))
        try:
            await asyncio.wait((self._looking,), timeout=BEFORE_WAIT_S)
            self.saw(tree)
        except BaseException:
            await self.close()
            raise
        return self.claim

    def saw(self, tree: Iterable[Identity]) -> None:
        """The run's processes at this moment of the stop. A look that comes late is still one of a living run."""
        tree = tuple(tree)
        self._seen.update(tree)
        if self._looking is not None and self._looking.done():
            self.snapshot, self._looking = self._looking.result(), None
            self.claim = claim(
                self.snapshot, run_ids=self._run_ids, tree=tree, baseline=self._baseline, before=self._before
            )

    async def after(self, tell: Tell, *, wait_s: float = RELEASE_WAIT_S) -> Verdict:
        """The proof, from the moment in which no process of it is left. Raises `UnreachableError`."""
        await self.close()
        claimed = self.claim or self._before
        if claimed is None:
            why = "the driver gave no answer before the stop"
            claimed = never_looked(why, ours=self._seen, baseline=self._baseline)
        proof = Proof(claimed)
        proof.saw(self._seen)
        return await prove(self._look, proof, clock=self._clock, wait_s=wait_s, tell=tell)

    async def close(self) -> None:
        """Wait for no look any more."""
        looking, self._looking = self._looking, None
        if looking is not None:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)


async def prove(look: Look, proof: Proof, *, clock: Clock, wait_s: float, tell: Tell) -> Verdict:
    """Look about once a second until it is proved, or the time is over."""
    began = told_at = clock.now()
    quiet_s = QUIET_S
    pauses = iter(PAUSES_S)
    while True:
        verdict = proof.feed(await _safe(look, LOOK_WAIT_S))
        now = clock.now()
        if verdict.settled:
            return verdict
        if now - began >= wait_s:
            return proof.give_up()
        if now - told_at >= quiet_s:
            tell(f"all processes are gone; waiting for the GPUs: {verdict.text}")
            told_at, quiet_s = now, TELL_EVERY_S
        await clock.sleep(next(pauses, PAUSE_S))


async def _safe(look: Look, wait_s: float) -> Snapshot:
    """A look whose trouble, if it is not the node's end, is a state of the driver."""
    try:
        return await look(wait_s)
    except (NodeRequestError, NodeProgramError) as error:
        return gpu.snapshot_of(
            {"at": 0.0, "driver": {"state": "unavailable", "why": f"the look at the GPUs failed: {error}"}}
        )
