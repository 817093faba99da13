"""What a run holds on the GPUs, written down before it is touched: the measure of the proof in `release.py`. Pure.

A process is ours by identity (pid and start ticks) or by the run id that it carries, never by a bare pid: a pid that
the lists still name may belong to a bystander by now. A dead pid of ours that a list still names is ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from supervisor.core.gpu import Coverage, DriverState, Gpu, HolderProcess, Snapshot, Use, gib

Identity = tuple[int, int]
"""Pid and start ticks."""

MIB = 1 << 20
IDLE_MAX_BYTES = 1024 * MIB
"""More than this is no idle GPU's: where we learn the baseline only at the stop, the rest may be the run's own."""

_NUMBERED = re.compile(r"/nvidia(\d+)$")
_DEAD = "ZXx"


class Held(Struct, frozen=True, kw_only=True):
    """One GPU (or MIG instance) before the stop."""

    uuid: str
    label: str
    unified: bool = False
    ours_bytes: int | None = None
    """What the lists say of our pids; None where a figure is missing."""
    used_bytes: int | None = None
    """None: what was used before is not known."""
    others_bytes: int = 0
    """What the lists say of everybody else, as far as they say it."""
    complete: bool = True
    """Whether everybody has a figure."""
    baseline_bytes: int = 0
    """What the idle GPU uses and no process accounts for."""
    recorded: bool = False
    """The baseline was written down at the launch; else it was learnt at the stop, or is nothing."""
    others: tuple[Identity, ...] = ()
    """Who else was in the lists; start ticks 0 for a pid that our namespace does not have."""
    suspects: tuple[int, ...] = ()
    """Pids of another namespace which may be ours: our processes had the GPU open, and no list named them."""

    @property
    def estimate_bytes(self) -> int | None:
        """What we held: by the lists, else what neither the idle GPU nor anybody else accounts for."""
        if self.ours_bytes is not None:
            return self.ours_bytes
        if self.used_bytes is None:
            return None
        return max(0, self.used_bytes - self.others_bytes - self.baseline_bytes)


class Claim(Struct, frozen=True, kw_only=True):
    """All that a run (or a left-over) holds, and who it is."""

    at: float = 0.0
    """The node's clock at the look, 0 without one."""
    run_ids: frozenset[str] = frozenset()
    ours: frozenset[Identity] = frozenset()
    spaces: tuple[Held, ...] = ()
    unknown: str = ""
    """Why it is not known what was held; empty where it is."""
    untouched: bool = False
    """It was looked at while it lived, and it had nothing to do with any GPU."""
    baseline: dict[str, int] = {}
    """GPU's UUID → bytes, as recorded at the launch."""

    def held_by(self, snapshot: Snapshot) -> dict[int, str]:
        """Pid → "71.2 GiB on GPU 0", of our pids in the lists of a snapshot: for the plan that is shown."""
        eyes = Eyes(snapshot, self.ours, self.run_ids)
        out: dict[int, list[str]] = {}
        for gpu in snapshot.spaces():
            for use in eyes.uses(gpu) or ():
                if eyes.is_ours(use.pid):
                    out.setdefault(use.pid, []).append(f"{gib(use.used_bytes)} on {label(gpu, snapshot)}")
        return {pid: ", ".join(parts) for pid, parts in out.items()}


def never_looked(why: str, *, run_id: str = "", ours: Iterable[Identity] = (), baseline: Mapping[str, int]) -> Claim:
    """The claim of a run whose memory nobody has seen."""
    return Claim(run_ids=frozenset(filter(None, (run_id,))), ours=frozenset(ours), unknown=why, baseline=dict(baseline))


def claim(
    snapshot: Snapshot,
    *,
    run_ids: Iterable[str],
    tree: Iterable[Identity],
    baseline: Mapping[str, int] | None = None,
    before: Claim | None = None,
) -> Claim:
    """What `run_ids` and `tree` hold in this snapshot.

    Args:
        tree: the identities of every living process of it, on a GPU or not; empty when it is dead already.
        baseline: what each GPU used without an owner, as recorded at the launch.
        before: an earlier claim of the same run: what it saw stands where this snapshot sees nothing any more.
    """
    wanted, known = frozenset(run_ids), dict(baseline or (before.baseline if before is not None else {}))
    tree = frozenset(tree)
    ours = tree | (before.ours if before is not None else frozenset())
    remembered = [past for past in snapshot.past if past.run_id in wanted or (past.pid, past.start_ticks) in ours]
    ours |= {(past.pid, past.start_ticks) for past in remembered}
    eyes = Eyes(snapshot, ours, wanted)
    spaces: dict[str, Held] = {item.uuid: item for item in before.spaces} if before is not None else {}
    readable = snapshot.driver.state is DriverState.OK
    for gpu in snapshot.spaces() if readable else ():
        if eyes.touches(gpu):
            spaces[gpu.uuid] = _held(gpu, eyes, known, spaces.get(gpu.uuid))
        elif gpu.uuid not in spaces and (amounts := [p.held[gpu.uuid] for p in remembered if p.held.get(gpu.uuid)]):
            spaces[gpu.uuid] = Held(
                uuid=gpu.uuid,
                label=label(gpu, snapshot),
                unified=gpu.memory.kind == "unified",
                ours_bytes=sum(filter(None, amounts)),
                baseline_bytes=known.get(gpu.uuid, 0),
                recorded=gpu.uuid in known,
                others=eyes.others(gpu),
            )
    untouched = not spaces and bool(tree) and _sees_all(snapshot) and not eyes.touching()
    unknown = ""
    if not spaces and not untouched:
        if before is not None and before.untouched:
            untouched = True
        elif not readable:
            unknown = snapshot.driver.why or f"the driver is {snapshot.driver.state}"
        else:
            unknown = "it was gone before anybody looked at what it held"
    return Claim(
        at=snapshot.at, run_ids=wanted, ours=ours, spaces=tuple(spaces.values()),
        unknown=unknown, untouched=untouched, baseline=known,
    )  # fmt: skip


def grown(claimed: Claim, snapshot: Snapshot, tree: Iterable[Identity]) -> Claim:
    """With what came to it after the claim was made: a server that is stopped while it loads takes more by the second.

    What fell since then stands as it was claimed.
    """
    ours = claimed.ours | frozenset(tree)
    if snapshot.driver.state is not DriverState.OK:
        return msgspec.structs.replace(claimed, ours=ours)
    eyes = Eyes(snapshot, ours, claimed.run_ids)
    spaces = {held.uuid: held for held in claimed.spaces}
    for gpu in snapshot.spaces():
        if not eyes.touches(gpu):
            continue
        older = spaces.get(gpu.uuid)
        now = _held(gpu, eyes, claimed.baseline, older)
        if older is None:
            spaces[gpu.uuid] = now
        elif (now.estimate_bytes or 0) > (older.estimate_bytes or 0):
            spaces[gpu.uuid] = msgspec.structs.replace(now, others=older.others)
    untouched = claimed.untouched and not spaces
    return msgspec.structs.replace(claimed, ours=ours, spaces=tuple(spaces.values()), untouched=untouched)


def late(gpu: Gpu, eyes: Eyes, claimed: Claim) -> Held:
    """A GPU that our processes came to only after the claim was made."""
    return _held(gpu, eyes, claimed.baseline, None)


def strict(gpu: Gpu, snapshot: Snapshot, claimed: Claim) -> Held:
    """For a claim that nobody saw: nothing but the recorded baseline may be without an owner."""
    return Held(
        uuid=gpu.uuid,
        label=label(gpu, snapshot),
        unified=gpu.memory.kind == "unified",
        baseline_bytes=claimed.baseline.get(gpu.uuid, 0),
        recorded=gpu.uuid in claimed.baseline,
    )


def _sees_all(snapshot: Snapshot) -> bool:
    """Whether a process of ours that has nothing to do with a GPU can be told from one that was not seen."""
    if snapshot.driver.state is DriverState.ABSENT:
        return True
    if snapshot.coverage in (Coverage.ALL, Coverage.OWN):
        return True
    listed = all(gpu.uses is not None for gpu in snapshot.spaces())
    return snapshot.driver.state is DriverState.OK and snapshot.coverage is Coverage.PARTIAL and listed


def _held(gpu: Gpu, eyes: Eyes, baseline: Mapping[str, int], older: Held | None) -> Held:
    uses = eyes.uses(gpu)
    mine = [use.used_bytes for use in uses or () if eyes.is_ours(use.pid)]
    invisible = [use.pid for use in uses or () if not eyes.is_ours(use.pid) and not eyes.exists(use.pid)]
    # A driver that gives the host's pids names none of ours on any GPU: then theirs may be ours.
    suspects = tuple(invisible) if eyes.snapshot.container and not eyes.names_ours() else ()
    rest = [use.used_bytes for use in uses or () if not eyes.is_ours(use.pid) and use.pid not in suspects]
    ours_bytes = None if uses is None or suspects or None in mine else sum(filter(None, mine))
    return Held(
        uuid=gpu.uuid,
        label=label(gpu, eyes.snapshot),
        unified=gpu.memory.kind == "unified",
        ours_bytes=ours_bytes,
        used_bytes=gpu.memory.used_bytes,
        others_bytes=sum(filter(None, rest)),
        complete=uses is not None and not suspects and None not in mine and None not in rest,
        baseline_bytes=_baseline(gpu, eyes, baseline, bool(rest), older),
        recorded=gpu.uuid in baseline,
        others=eyes.others(gpu),
        suspects=suspects,
    )


def _baseline(gpu: Gpu, eyes: Eyes, recorded: Mapping[str, int], shared: bool, older: Held | None) -> int:
    uses, used = eyes.uses(gpu), gpu.memory.used_bytes
    if uses is None or used is None or any(use.used_bytes is None for use in uses):
        return recorded.get(gpu.uuid, 0)
    learnt = max(0, used - sum(use.used_bytes or 0 for use in uses))
    if gpu.uuid in recorded:
        # A launch into memory that was still being torn down recorded too much: no process accounts for less now.
        return min(recorded[gpu.uuid], learnt + gpu.slack_bytes)
    if not shared:
        learnt = min(learnt, max(IDLE_MAX_BYTES, gpu.slack_bytes))
    return min(learnt, older.baseline_bytes) if older is not None else learnt


def label(gpu: Gpu, snapshot: Snapshot) -> str:
    """ "GPU 3", "GPU 3 MIG 1"."""
    if gpu.parent is None:
        return f"GPU {gpu.index}"
    above = snapshot.gpu(gpu.parent)
    number = [item.uuid for item in snapshot.gpus if item.parent == gpu.parent].index(gpu.uuid)
    return f"GPU {above.index if above is not None else gpu.index} MIG {number}"


class Eyes:
    """One snapshot, with an eye for what is ours."""

    def __init__(self, snapshot: Snapshot, ours: frozenset[Identity], run_ids: frozenset[str]) -> None:
        self.snapshot = snapshot
        self._table = {process.pid: process for process in snapshot.processes}
        self._pids = {pid for pid, _ in ours}
        self._ours = {
            process.pid
            for process in snapshot.processes
            if process.run_id in run_ids or (process.pid, process.start_ticks) in ours
        }

    def exists(self, pid: int) -> bool:
        """Whether our namespace has a process of this pid now."""
        return pid in self._table

    def process(self, pid: int) -> HolderProcess | None:
        """The process of this pid."""
        return self._table.get(pid)

    def is_ours(self, pid: int) -> bool:
        """Whether a pid of a list means one of ours: a living one by identity, or a dead one that is still named."""
        return pid in self._ours or (pid in self._pids and pid not in self._table)

    def names_ours(self) -> bool:
        """Whether any list names any of our pids."""
        return any(self.is_ours(use.pid) for gpu in self.snapshot.gpus for use in gpu.uses or ())

    def uses(self, gpu: Gpu) -> tuple[Use, ...] | None:
        """The list of one GPU; with those of its MIG instances, where it is the GPU that is measured."""
        below = [item for item in self.snapshot.gpus if item.parent == gpu.uuid]
        lists = [item.uses for item in (*below, gpu) if item.uses is not None]
        if not lists:
            return None
        found: dict[int, Use] = {}
        for use in (use for uses in lists for use in uses):
            old = found.get(use.pid)
            if old is None or old.used_bytes is None or (use.used_bytes or 0) > old.used_bytes:
                found[use.pid] = use
        return tuple(found.values())

    def touching(self) -> list[HolderProcess]:
        """Our living processes that have any GPU's device file open, or whose descriptors we may not read."""
        mine = (self._table[pid] for pid in sorted(self._ours))
        return [p for p in mine if p.devices or (p.devices is None and (p.state not in _DEAD or p.threads > 0))]

    def on_device(self, gpu: Gpu) -> list[HolderProcess]:
        """Those of them that may have this GPU open."""
        return [process for process in self.touching() if self._opens(process, gpu)]

    def heirs(self, gpu: Gpu) -> list[HolderProcess]:
        """Who has this GPU open, is none of ours by any mark, and stands in no list."""
        named = {use.pid for use in self.uses(gpu) or ()}
        return [
            process
            for process in self.snapshot.processes
            if process.devices
            and process.pid not in named
            and process.pid not in self._ours
            and process.pid not in self.snapshot.own_chain
            and any(_NUMBERED.search(path) for path in process.devices)
            and self._opens(process, gpu)
        ]

    def touches(self, gpu: Gpu) -> bool:
        """Whether any of ours has to do with this GPU."""
        return bool(self.on_device(gpu)) or any(self.is_ours(use.pid) for use in self.uses(gpu) or ())

    def others(self, gpu: Gpu) -> tuple[Identity, ...]:
        """Who else is in its list."""
        pids = [use.pid for use in self.uses(gpu) or () if not self.is_ours(use.pid)]
        return tuple((pid, found.start_ticks if (found := self.process(pid)) is not None else 0) for pid in pids)

    def _opens(self, process: HolderProcess, gpu: Gpu) -> bool:
        if process.devices is None:
            return True
        above = self.snapshot.gpu(gpu.parent) if gpu.parent else None
        minor = above.minor if above is not None else gpu.minor
        numbers = {int(found.group(1)) for path in process.devices if (found := _NUMBERED.search(path))}
        if not numbers or minor is None:
            return bool(process.devices)  # the control file alone, WSL's one file, or a GPU without a known number
        return minor in numbers
