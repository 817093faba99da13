"""Ends left-over holders of GPU memory, and proves that it was given back: the deed behind `zombies --kill`.

Only what was named or pre-selected: of a run of ours that has ended, every process that belongs to it; of anything
else, exactly the named processes. Nothing protected, nothing that we run under, and no pid whose identity has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from supervisor.adapters.base import Clock
from supervisor.adapters.node import NodeClient
from supervisor.core import events as ev
from supervisor.core.claim import Identity
from supervisor.core.gpu import Snapshot
from supervisor.core.holder import Holder, HolderClass
from supervisor.core.release import NO_GPU, RELEASE_WAIT_S, State
from supervisor.errors import NodeRequestError
from supervisor.supervise.release import LOOK_WAIT_S, Look, Release, looks_of
from supervisor.supervise.takedown import identities, planned, processes, still_there, take_down, why_left, wire
from supervisor.supervise.witness import Witness


class Cleared(Struct, frozen=True, kw_only=True):
    """How it ended. `gone`: all that was asked for; `left` are processes that would not go."""

    gone: bool
    left: tuple[ev.Process, ...]
    text: str
    release: str
    """`proved (…)`, `unproved (why)` or `no gpu`."""
    refused: tuple[str, ...] = ()
    """A sentence for each holder that was not touched."""

    @property
    def released(self) -> bool:
        """All gone, and the memory proved to be free."""
        return self.gone and (self.release == NO_GPU or self.release.startswith(State.PROVED))


class _Work(Struct):
    """What may be touched, and what not."""

    runs: dict[str, str]
    """Run id → key, of our runs that have ended."""
    exact: list[Identity]
    refused: list[str]


async def clear(
    client: NodeClient,
    *,
    clock: Clock,
    targets: Sequence[Holder],
    grace_s: float,
    tell: Callable[[str], None],
    spared: Sequence[Holder] = (),
    look: Look | None = None,
    release_wait_s: float = RELEASE_WAIT_S,
    witness: Witness | None = None,
) -> Cleared:
    """TERM, the grace, KILL, gone, released. Raises `UnreachableError`.

    Args:
        witness: sees each process and each signal; then `tell` need not name who will be ended.
        spared: holders of the same look; one that is protected is left alone even where it bears a cleared run's id.
    """
    look = look or looks_of(client)
    snapshot = await look(LOOK_WAIT_S)
    work = _sort(targets, snapshot)
    for sentence in work.refused:
        tell(sentence)
    if not work.runs and not work.exact:
        text = "nothing was signalled: " + ("; ".join(work.refused) or "nothing was named")
        return Cleared(
            gone=not targets, left=(), text=text, release="unproved (nothing was signalled)",
            refused=tuple(work.refused),
        )  # fmt: skip
    never = {item.pid for item in spared if item.class_ is HolderClass.PROTECTED} | set(snapshot.own_chain) | {1}
    baseline: dict[str, int] = {}

    async def lister(known: Iterable[Identity]) -> tuple[ev.Process, ...]:
        return await _list(client, work, frozenset(known), never, baseline)

    plan = await lister(())
    release = Release(look, clock=clock, run_ids=work.runs, baseline=baseline)
    try:
        claimed = await release.before(identities(plan), tell)
        held = claimed.held_by(release.snapshot) if claimed is not None and release.snapshot is not None else {}
        if witness is not None:
            witness.planned(plan, claimed)
        else:
            for process in plan:
                tell(planned(process, held))
        taken = await take_down(
            client, plan, clock=clock, lister=lister, root=None, grace_s=grace_s, saw=release.saw, witness=witness
        )
        refused = tuple(work.refused)
        if taken.left:
            why = f"unproved ({still_there(taken)})"
            return Cleared(gone=False, left=taken.left, text=why_left(taken, held), release=why, refused=refused)
        verdict = await release.after(tell, wait_s=release_wait_s)
    finally:
        await release.close()
    count = "the process is" if len(plan) == 1 else f"all {len(plan)} processes are"
    text = f"{count} gone after {taken.took_s:.1f} s (signals by {taken.how}"
    text += f", {taken.killed} by KILL)" if taken.killed else ")"
    text = text if plan else "nothing of it was left to be ended"
    text = "; ".join([text, verdict.text, *refused])
    return Cleared(gone=not refused, left=(), text=text, release=verdict.release, refused=refused)


def _sort(targets: Sequence[Holder], snapshot: Snapshot) -> _Work:
    work = _Work(runs={}, exact=[], refused=[])
    for target in targets:
        sentence = _refusal(target, snapshot)
        if sentence:
            work.refused.append(sentence)
            continue
        assert target.pid is not None and target.start_ticks is not None
        work.exact.append((target.pid, target.start_ticks))
        if target.class_ is HolderClass.OURS_ORPHAN and target.run_id:
            work.runs[target.run_id] = target.key
    return work


def _refusal(target: Holder, snapshot: Snapshot) -> str:
    """Why a holder is not touched, empty where it may be."""
    if target.pid is None or target.start_ticks is None:
        return f"{target.class_} memory has no process that could be ended: {target.advice}".rstrip(": ")
    name = f"pid {target.pid} {(target.title or target.comm)[:60]}".rstrip()
    if target.pid <= 1:
        return f"{name} is not touched: pid 1 is never signalled"
    if target.class_ is HolderClass.PROTECTED:
        return f"{name} is protected, and never touched"
    if target.pid in snapshot.own_chain:
        return f"{name} is not touched: this supervisor runs under it, or is it"
    if target.killable == "no":
        return f"{name} ({target.class_}) is not touched: {target.advice or 'no signal would help'}"
    if target.killable == "root" and snapshot.uid != 0:
        return f"{name} belongs to {target.user or f'uid {target.uid}'}; as root: kill -TERM {target.pid}"
    found = snapshot.process(target.pid)
    if found is not None and found.start_ticks != target.start_ticks:
        return f"{name} is not touched: that pid belongs to another process by now ({(found.title or found.comm)[:60]})"
    return ""


async def _list(
    client: NodeClient, work: _Work, known: frozenset[Identity], never: set[int | None], baseline: dict[str, int]
) -> tuple[ev.Process, ...]:
    """What of it lives: of our ended runs everything, of the others the named ones alone."""
    exact = set(work.exact)
    below = wire(known - exact) if work.runs else []
    found: dict[int, ev.Process] = {}
    reply = await client.request("marked", run_ids=list(work.runs), known=below, exact=wire(exact))
    lists = [reply["tree"]]
    for run_id, key in work.runs.items():
        if key:
            try:
                tree = await client.request("tree", key=key, run_id=run_id)
            except NodeRequestError:
                continue  # its records were removed: the mark in its processes is enough
            lists.append(tree["tree"])
            baseline.update(tree["gpu_baseline"])
    for item in (process for raw in lists for process in processes(raw)):
        if item.pid not in never and item.pid > 1:
            found[item.pid] = item
    return tuple(found[pid] for pid in sorted(found))
