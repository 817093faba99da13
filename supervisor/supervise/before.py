"""All that is looked at before a launch: the node's facts and its GPUs at once, the rules over both, `--clean` first.

What is refused is decided in `core` (preflight.py, memory_gate.py); here it is asked, cleared and told.
"""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Struct

from supervisor.adapters import gpu
from supervisor.adapters.node import NodeClient
from supervisor.core import memory_gate, preflight
from supervisor.core.gpu import Driver, DriverState, Snapshot
from supervisor.core.holders import Holder, HolderClass, classify
from supervisor.engines import loader
from supervisor.errors import NodeRequestError
from supervisor.supervise.clear import clear
from supervisor.supervise.desk import Desk
from supervisor.supervise.plan import Plan, Settled

DRIVER_WAIT_S = 12.0
"""A driver without persistence takes up to 10 s to wake up; a launch that nothing speaks against waits no longer."""


class Found(Struct, frozen=True, kw_only=True):
    """What the launch goes on with, or why it does not."""

    refusals: tuple[str, ...] = ()
    path: str = ""
    """PATH of the node's ssh environment."""
    gpu_baseline: dict[str, int] = {}
    """GPU's UUID → bytes that no process accounted for before the launch: what may stay after a stop."""
    weights_bytes: int | None = None
    """Of the model on the node's disk, where they could be told."""


class Before:
    """The looks before one launch.

    Args:
        force: what the memory gate refuses is a warning; all else stays refused.
        clean: our own left-overs are stopped first, and their release proved.
    """

    def __init__(self, plan: Plan, client: NodeClient, desk: Desk, *, force: bool, clean: bool) -> None:
        self._plan = plan
        self._client = client
        self._desk = desk
        self._force = force
        self._clean = clean

    async def look(self, settled: Settled) -> Found:
        """Look, clean where that is wanted, look again; warnings go to the desk."""
        facts, snapshot = await self._facts(settled)
        holders = _holders(snapshot)
        checked, gate = self._rules(facts, snapshot, holders, settled)
        if self._clean and not self._hopeless(facts, settled):
            targets = (*gate.clean, *_left_overs(facts, self._plan.key, gate.clean))
            if targets:
                if why := await self._clear(targets, holders):
                    return Found(refusals=(why,))
                facts, snapshot = await self._facts(settled)
                checked, gate = self._rules(facts, snapshot, _holders(snapshot), settled)
        for text in (*checked.warnings, *gate.warnings):
            self._desk.warn(text)
        refusals = checked.refusals
        if gate.refusals and self._force:
            for text in gate.refusals:
                self._desk.warn(f"{text} (launched all the same: --force)")
        elif gate.refusals:
            refusals = (*refusals, *gate.refusals, gate.advice)
        baseline = {space.uuid: space.unexplained_bytes for space in snapshot.spaces()}
        return Found(
            refusals=refusals,
            path=facts["path"],
            gpu_baseline={uuid: count for uuid, count in baseline.items() if count is not None},
            weights_bytes=(facts.get("weights") or {}).get("bytes"),
        )

    async def _facts(self, settled: Settled) -> tuple[dict[str, Any], Snapshot]:
        """Both at once: a driver that has to wake up can take seconds."""
        rules = self._plan.engine.memory
        looking = asyncio.create_task(self._gpus())
        try:
            facts = await self._client.request(
                "preflight",
                argv=settled.argv,
                cwd=settled.cwd,
                log=settled.log,
                key=self._plan.key,
                port=settled.port,
                env=self._plan.env,
                login_env=self._plan.login_env,
                gpu={"model": settled.learnt.model, "env": (*rules.unsure_env, *rules.rule_unsure_env)},
            )
            return facts, await looking
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    async def _gpus(self) -> Snapshot:
        try:
            async with asyncio.timeout(DRIVER_WAIT_S):
                return await gpu.settled_look(self._client, clock=self._desk.clock)
        except NodeRequestError as error:
            driver = Driver(state=DriverState.UNAVAILABLE, why=str(error))
        except TimeoutError:
            why = f"no answer within {DRIVER_WAIT_S:.0f} s, and the launch waits no longer"
            driver = Driver(state=DriverState.STUCK, why=why)
        return Snapshot(at=self._desk.clock.now(), driver=driver)

    def _rules(
        self, facts: dict[str, Any], snapshot: Snapshot, holders: tuple[Holder, ...], settled: Settled
    ) -> tuple[preflight.Checked, memory_gate.Checked]:
        checked = preflight.check(facts, settled.launching(self._plan.engine))
        asked = memory_gate.asked_of(facts, settled.argv, self._plan.engine, self._plan.name)
        return checked, memory_gate.check(snapshot, holders, asked)

    def _hopeless(self, facts: dict[str, Any], settled: Settled) -> bool:
        """Whether the launch is refused for what no cleaning changes: then nothing is stopped for it."""
        rest = {**facts, "listeners": [], "leftovers": []}
        return bool(preflight.check(rest, settled.launching(self._plan.engine)).refusals)

    async def _clear(self, targets: tuple[Holder, ...], spared: tuple[Holder, ...]) -> str:
        """Stop left-overs of ours; empty, or why the launch must not follow."""
        cleared = await clear(
            self._client,
            clock=self._desk.clock,
            targets=targets,
            grace_s=self._plan.grace_s,
            tell=self._desk.warn,
            spared=spared,
        )
        if cleared.released or self._force:
            self._desk.warn(f"--clean: {cleared.text}")
            return ""
        return f"not launched, since --clean could not clear the left-overs: {cleared.text}"


def _holders(snapshot: Snapshot) -> tuple[Holder, ...]:
    return () if snapshot.driver.state is DriverState.ABSENT else classify(snapshot, loader.known_holders())


def _left_overs(facts: dict[str, Any], key: str, already: tuple[Holder, ...]) -> list[Holder]:
    """Processes of this profile's ended runs that hold no GPU: they can hold the port, or shared memory."""
    seen = {(holder.pid, holder.start_ticks) for holder in already}
    return [
        Holder(
            class_=HolderClass.OURS_ORPHAN,
            pid=item["pid"],
            start_ticks=item["start_ticks"],
            uid=item["uid"],
            title=item["title"],
            run_id=item["run_id"],
            key=key,
            preselected=True,
            killable="yes",
        )
        for item in facts["leftovers"]
        if (item["pid"], item["start_ticks"]) not in seen
    ]
