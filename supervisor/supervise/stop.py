"""Stops a run: the root first, the rest later, KILL at the grace; then proves that its GPU memory was given back.

The tree is listed before the root is touched. What is done to processes is `takedown.py`'s, the proof `release.py`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct

from supervisor.adapters.base import Clock
from supervisor.adapters.node import NodeClient
from supervisor.core import events as ev
from supervisor.core.claim import Claim, Identity
from supervisor.core.release import NO_GPU, RELEASE_WAIT_S, State, Verdict
from supervisor.supervise.plan import Plan
from supervisor.supervise.release import Look, Release, looks_of
from supervisor.supervise.takedown import (
    TakenDown,
    identities,
    planned,
    processes,
    still_there,
    take_down,
    why_left,
    wire,
)
from supervisor.supervise.witness import Witness

WRITTEN_WAIT_S = 3.0
WRITTEN_EVERY_S = 0.02
IDLE_WAIT_S = 15.0
"""How long to wait for the memory of a run that was gone before anybody looked: it may have been free long since."""
NOT_LOOKED = "unproved (the GPUs were not looked at)"


class Stopped(Struct, frozen=True, kw_only=True):
    """How a stop ended. `left` are processes that would not go."""

    gone: bool
    killed: int
    left: tuple[ev.Process, ...]
    text: str
    release: str = NOT_LOOKED
    """`proved (…)`, `unproved (why)` or `no gpu`."""
    idle: bool = False
    """Nothing of it was there to be stopped, and nobody had seen what it held."""

    @property
    def released(self) -> bool:
        """All gone, and its memory proved to be free (or there is no GPU)."""
        return self.gone and (self.release == NO_GPU or self.release.startswith(State.PROVED))

    @property
    def may_launch(self) -> bool:
        """Whether the next run may begin: not into memory that this stop could not see released."""
        return self.released or (self.gone and self.idle)


async def stop_run(
    client: NodeClient,
    *,
    clock: Clock,
    key: str,
    run_id: str,
    root: ev.Process | None,
    by: str,
    grace_s: float,
    tell: Callable[[str], None],
    before: Claim | None = None,
    look: Look | None = None,
    release_wait_s: float = RELEASE_WAIT_S,
    witness: Witness | None = None,
) -> Stopped:
    """The transaction of CONTRACT section 6.

    Args:
        witness: sees each process and each signal; then `tell` need not name who will be stopped.
        before: what was seen of the run's memory earlier, for one that has ended already.
        look: how to look at the GPUs; by default through `client`.
    """

    async def lister(known: Iterable[Identity]) -> tuple[ev.Process, ...]:
        return processes((await client.request("tree", key=key, run_id=run_id, known=wire(known)))["tree"])

    found = await client.request("tree", key=key, run_id=run_id)
    plan = processes(found["tree"])
    release = Release(
        look or looks_of(client), clock=clock, run_ids=[run_id], baseline=found["gpu_baseline"], before=before
    )  # fmt: skip
    try:
        claimed = await release.before(identities(plan), tell)
        held = claimed.held_by(release.snapshot) if claimed is not None and release.snapshot is not None else {}
        if witness is not None:
            witness.planned(plan, claimed)
        else:
            for process in plan:
                tell(planned(process, held))
        await client.request("write_stop", key=key, run_id=run_id, by=by)
        taken = await take_down(
            client, plan, clock=clock, lister=lister, root=root, grace_s=grace_s, saw=release.saw,
            witness=witness,
        )  # fmt: skip
        if taken.left:
            text = why_left(taken, held)
            why = f"unproved ({still_there(taken)})"
            return Stopped(gone=False, killed=taken.killed, left=taken.left, text=text, release=why)
        await _written_down(client, clock, key, run_id)
        idle = not plan and (release.claim is None or bool(release.claim.unknown))
        wait_s = min(release_wait_s, IDLE_WAIT_S) if idle else release_wait_s
        return _gone(taken, len(plan), await release.after(tell, wait_s=wait_s), idle=idle)
    finally:
        await release.close()


def _gone(taken: TakenDown, count: int, verdict: Verdict, *, idle: bool) -> Stopped:
    who = "the process is" if count == 1 else f"all {count} processes are"
    text = f"{who} gone after {taken.took_s:.1f} s (signals by {taken.how}"
    text += f", {taken.killed} by KILL)" if taken.killed else ")"
    if not count:
        text = "no process of it was there to be stopped"
    text = f"{text}; {verdict.text}"
    return Stopped(gone=True, killed=taken.killed, left=(), text=text, release=verdict.release, idle=idle)


async def stop_live(
    client: NodeClient,
    live: dict[str, Any],
    plan: Plan,
    *,
    clock: Clock,
    by: str,
    tell: Callable[[str], None],
) -> Stopped:
    """Stop the run that the node calls live (`state`'s answer)."""
    record = live["run"]
    root = record.get("root")
    return await stop_run(
        client,
        clock=clock,
        key=plan.key,
        run_id=record["run_id"],
        root=processes([root])[0] if root else None,
        by=by,
        grace_s=plan.grace_s,
        tell=tell,
    )


async def stop_left_overs(
    client: NodeClient,
    plan: Plan,
    *,
    clock: Clock,
    by: str,
    tell: Callable[[str], None],
) -> Stopped | None:
    """Where no run lives: stop what is left of the ended ones, and prove a release that can still be under way.

    A stop that was broken off, or a server that was killed, leaves both. None: there is neither.
    """
    now = (await client.request("ping"))["now"]
    ended = [item for item in (await client.request("runs"))["runs"] if item["key"] == plan.key and not item["live"]]
    done = []
    for item in ended:
        run_id, at = item["run_id"], (item["exit"] or {}).get("at")
        left = (await client.request("tree", key=plan.key, run_id=run_id))["tree"]
        if not left and (at is None or not 0 <= now - at < RELEASE_WAIT_S):
            continue
        if left:
            tell(f"run {run_id} has ended and left {_count(len(left))}")
        stopped = await stop_run(
            client, clock=clock, key=plan.key, run_id=run_id, root=None, by=by, grace_s=plan.grace_s, tell=tell
        )
        done.append(stopped)
    return _together(done) if done else None


def _count(processes: int) -> str:
    return "1 process" if processes == 1 else f"{processes} processes"


def _together(done: list[Stopped]) -> Stopped:
    """Several stops as one: as good as the worst of them."""
    worst = next((item for item in done if not (item.released or item.idle)), done[0])
    return Stopped(
        gone=all(item.gone for item in done),
        killed=sum(item.killed for item in done),
        left=tuple(process for item in done for process in item.left),
        text="; ".join(item.text for item in done),
        release=worst.release,
        idle=all(item.idle for item in done),
    )


async def _written_down(client: NodeClient, clock: Clock, key: str, run_id: str) -> None:
    """Wait until the keeper has written the end down: till then the next launch would take a dead run over."""
    end = clock.now() + WRITTEN_WAIT_S
    while clock.now() < end:
        live = (await client.request("state", key=key))["live"]
        if live is None or live["run"]["run_id"] != run_id:
            return
        await clock.sleep(WRITTEN_EVERY_S)
