"""Looks at a node's GPUs before a stop and after it, and feeds the proof of `core/release.py`. Decides nothing itself.

A driver that hangs, is missing or cannot be used never holds a stop up for longer than a look may take, and never
raises: it is what the verdict says. Only a node that cannot be asked any more raises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping

from supervisor.adapters import gpu
from supervisor.adapters.base import Clock
from supervisor.adapters.node import NodeClient
from supervisor.core.claim import Claim, Identity, claim, grown, never_looked
from supervisor.core.gpu import Snapshot
from supervisor.core.release import RELEASE_WAIT_S, Proof, State, Verdict
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
AGAIN_S = 2.0
"""So often it is looked again at what a run holds while it is being stopped: one that loads still takes more."""


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
        self._looked_at = 0.0
        self.claim: Claim | None = None
        self.snapshot: Snapshot | None = None
        """The look before the stop."""

    async def before(self, tree: Iterable[Identity], tell: Tell) -> Claim | None:
        """Look at what is held, before the first signal. None where the driver takes too long: the stop goes on."""
        tree = tuple(tree)
        self._seen.update(tree)
        self._begin()
        assert self._looking is not None
        quiet_s = min(QUIET_S, BEFORE_WAIT_S)
        try:
            done, _ = await asyncio.wait((self._looking,), timeout=quiet_s)
            if not done:
                tell(f"the GPUs' driver has not answered yet; the stop waits {BEFORE_WAIT_S:.0f} s for it at most")
                await asyncio.wait((self._looking,), timeout=BEFORE_WAIT_S - quiet_s)
            self.saw(tree)
        except BaseException:
            await self.close()
            raise
        return self.claim

    def _begin(self) -> None:
        self._looking = asyncio.create_task(_safe(self._look, BEFORE_WAIT_S))

    def saw(self, tree: Iterable[Identity]) -> None:
        """The run's processes at this moment of the stop. A look that comes late is still one of a living run."""
        tree = tuple(tree)
        self._seen.update(tree)
        if self._looking is None:
            if tree and self._clock.now() - self._looked_at >= AGAIN_S:
                self._begin()
            return
        if not self._looking.done():
            return
        snapshot, self._looking, self._looked_at = self._looking.result(), None, self._clock.now()
        if self.claim is not None and not self.claim.unknown:
            self.claim = grown(self.claim, snapshot, tree)
            return
        before = self.claim or self._before
        self.claim = claim(snapshot, run_ids=self._run_ids, tree=tree, baseline=self._baseline, before=before)
        self.snapshot = self.snapshot or snapshot

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
    began = clock.now()
    patience = _Patience(clock, tell)
    pauses = iter(PAUSES_S)
    verdict = Verdict(state=State.PENDING, text="their driver has not answered yet")
    while True:
        verdict = proof.feed(await patience.over(_safe(look, LOOK_WAIT_S), verdict))
        if verdict.settled:
            return verdict
        if clock.now() - began >= wait_s:
            return proof.give_up()
        patience.tell_if_due(verdict)
        await clock.sleep(next(pauses, PAUSE_S))


class _Patience:
    """Says what is waited for: after two seconds, then every fifteen, in the middle of a look too."""

    def __init__(self, clock: Clock, tell: Tell) -> None:
        self._clock = clock
        self._tell = tell
        self._due = clock.now() + QUIET_S

    def tell_if_due(self, verdict: Verdict) -> None:
        if self._clock.now() >= self._due:
            self._tell(f"all processes are gone; waiting for the GPUs: {verdict.text}")
            self._due = self._clock.now() + TELL_EVERY_S

    async def over(self, work: Coroutine[None, None, Snapshot], verdict: Verdict) -> Snapshot:
        """What `work` comes to; `verdict` is what is known till then."""
        looking = asyncio.ensure_future(work)
        try:
            while not looking.done():
                pause = asyncio.ensure_future(self._clock.sleep(max(0.01, self._due - self._clock.now())))
                try:
                    await asyncio.wait((looking, pause), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    pause.cancel()
                    await asyncio.gather(pause, return_exceptions=True)
                if not looking.done():
                    self.tell_if_due(verdict)
            return looking.result()
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)


async def _safe(look: Look, wait_s: float) -> Snapshot:
    """A look whose trouble, if it is not the node's end, is a state of the driver."""
    try:
        return await look(wait_s)
    except (NodeRequestError, NodeProgramError) as error:
        return gpu.snapshot_of(
            {"at": 0.0, "driver": {"state": "unavailable", "why": f"the look at the GPUs failed: {error}"}}
        )
