"""The part of `holders.py` for memory whose process is not there: heirs, teardown, other namespaces, ghosts. Pure.

A pid that NVML names and /proc does not have is first looked for among those that have its device files open, then in
the ring of the last minutes. Ghost memory is claimed last, and only where everybody's descriptors could be read.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from supervisor.core.gpu import DriverState, Gpu, GpuState, HolderProcess, Past, gib
from supervisor.core.holder import DEAD_STATES, Holder, HolderClass, Look
from supervisor.core.lineage import spell_age

TEARDOWN_S = 60.0
"""So long after a process died its memory may still be on its way back."""
GHOST_LOOKS = 3
LATCH_PERCENT = 95
LATCH_POWER_SHARE = 0.35
_MAY_INHERIT = (
    HolderClass.PROCESS, HolderClass.FOREIGN_ORPHAN, HolderClass.OURS_ORPHAN, HolderClass.OTHER_USER,
    HolderClass.OTHER_NAMESPACE,
)  # fmt: skip


def unowned(look: Look, holders: dict[int, Holder]) -> list[Holder]:
    """All holders: `holders` (pid → holder), some of them now known as heirs, and what has no process."""
    absent: list[Holder] = []
    for pid, uses in look.uses.items():
        process = look.by_pid.get(pid)
        held = {uuid: use.used_bytes for uuid, use in uses.items()}
        if process is not None and look.believed(process):
            if process.state in DEAD_STATES and process.threads <= 0:
                _inherit(look, holders, pid, held, process)
        elif not _inherit(look, holders, pid, held, None):
            found = _absent(look, holders, pid, held)
            absent.append(replace(found, pid=None) if pid in holders else found)  # the number is another's here
    for gpu in look.snapshot.spaces():
        nameless = _without_a_pid(look, holders, gpu)
        if nameless is not None:
            absent.append(nameless)
    return [*holders.values(), *absent]


# ------------------------------------------------------------------------------------------- heirs


def _inherit(
    look: Look, holders: dict[int, Holder], pid: int, held: dict[str, int | None], dead: HolderProcess | None
) -> bool:
    """Mark who has the device files of the dead `pid` open. Whether there is any."""
    past = look.past_of(pid)
    heirs = [
        holder for holder in _candidates(look, holders, held) if _related(look, holder, pid, past, dead is not None)
    ]
    words = f"pid {pid}" if past is None else f"pid {pid}, which was {(past.title or 'without a name')[:60]},"
    state = "is dead" if dead is not None else "is gone"
    all_of_them = tuple(sorted(holder.pid or 0 for holder in heirs))
    for holder in heirs:
        others = {1: "", 2: ", and so has one other"}.get(len(heirs), f", and so have {len(heirs) - 1} others")
        why = f"NVML names {words} with {look.amounts(held)}; that one {state}"
        why = f"{why}, and this one has its device files open{others}."
        share = held if len(heirs) == 1 else dict.fromkeys(held)
        holders[holder.pid or 0] = _heir(look, holder, why, share, all_of_them)
    if heirs and dead is not None:
        pids = ", ".join(str(holder.pid) for holder in heirs[:8])
        holders[pid] = replace(holders[pid], advice=f"End who still has its device files open: pid {pids}")
    return bool(heirs)


def _candidates(look: Look, holders: dict[int, Holder], uuids: Iterable[str]) -> list[Holder]:
    """Holders that no list names, with one of these GPUs open, whose own life does not explain it."""
    gpus = [look.gpus[uuid] for uuid in uuids if uuid in look.gpus]
    out = []
    for pid, holder in holders.items():
        process = look.by_pid[pid]
        if holder.class_ not in _MAY_INHERIT or look.believed(process) or process.state in DEAD_STATES:
            continue
        lineage = look.lineages.of(process)
        if lineage.engine is not None and not lineage.orphaned and holder.class_ is not HolderClass.OURS_ORPHAN:
            continue
        if any(look.has_open(process, gpu) for gpu in gpus):
            out.append(holder)
    return out


def _related(look: Look, holder: Holder, pid: int, past: Past | None, is_here: bool) -> bool:
    """Whether it can be the dead one's child: by group, session or run; else once the driver has had its time."""
    process = look.by_pid[holder.pid or 0]
    if pid in (process.ppid, process.pgid, process.sid):
        return True
    if past is not None and past.run_id is not None and past.run_id == process.run_id:
        return True
    if is_here or (past is not None and past.uid != process.uid) or not _creator_gone(look, process):
        return False
    if past is None:
        return look.sees_every_pid()
    return look.snapshot.at - past.last_at > TEARDOWN_S


def _creator_gone(look: Look, process: HolderProcess) -> bool:
    """Whether it can be what a dead process forked. What leads a group of its own was started for itself (a job of a
    shell, a service), and one whose parent may have created it (a notebook's kernel) is that one's."""
    parent = look.by_pid.get(process.ppid)
    if process.pgid == process.pid:
        return False
    return process.ppid == 1 or (parent is not None and look.known.is_adopter(parent))


def _heir(
    look: Look, holder: Holder, why: str, held: dict[str, int | None], all_of_them: tuple[int, ...] = ()
) -> Holder:
    process = look.by_pid[holder.pid or 0]
    evidence = (*holder.evidence, why)
    if holder.class_ in (HolderClass.OURS_ORPHAN, HolderClass.OTHER_USER, HolderClass.OTHER_NAMESPACE):
        return replace(holder, evidence=evidence, held=held, zombie=True)
    if holder.class_ is HolderClass.FOREIGN_ORPHAN and look.known.engine_of(process) is not None:
        return replace(holder, evidence=evidence, held=held)
    advice = f"Ending it gives the memory back: supervisor zombies HOST --kill {holder.pid}"
    if len(all_of_them) > 1:
        pids = " ".join(map(str, all_of_them))
        advice = f"The memory comes back when the last of these has ended: supervisor zombies HOST --kill {pids}"
    if holder.killable == "no":
        advice = holder.advice
    return replace(holder, class_=HolderClass.HEIR, evidence=evidence, held=held, advice=advice, zombie=True)


# ------------------------------------------------------------------------------------------- a pid, and no process


def _absent(look: Look, holders: dict[int, Holder], pid: int, held: dict[str, int | None]) -> Holder:
    """A pid that NVML names and that is not the holder that we see under this number, if any."""
    snapshot = look.snapshot
    here = look.by_pid.get(pid)
    past = look.past_of(pid)
    if past is not None and snapshot.container and past.run_id is None and not _was_an_engine(look, past):
        past = None  # in a container the number may have been somebody else's here
    base = Holder(class_=HolderClass.TEARDOWN, pid=pid, held=held)
    evidence = [f"NVML names pid {pid} with {look.amounts(held)}."]
    if here is not None:
        name = (here.title or here.comm)[:60]
        evidence.append(f"The process of this number here, {name}, has no GPU device file open: it is not that one.")
    if past is not None:
        run = look.runs.get(past.run_id) if past.run_id is not None else None
        base = replace(
            base, start_ticks=past.start_ticks, uid=past.uid, title=past.title, run_id=past.run_id,
            key=run.key if run is not None else "",
        )  # fmt: skip
        of = f" of run {past.run_id}" if past.run_id else ""
        ago_s = snapshot.at - past.last_at
        evidence.append(f"It was {past.title or 'a process without a name'}{of}, and died {spell_age(ago_s)} ago.")
        if ago_s <= TEARDOWN_S:
            advice = "Wait: the driver takes its memory apart, mostly within seconds."
            return replace(base, evidence=tuple(evidence), advice=advice, zombie=True)
    elif here is None:
        evidence.append("There is no process of this number here.")
    if not look.readable():
        advice = _where_to_look(look)
        return replace(base, class_=HolderClass.OTHER_NAMESPACE, evidence=tuple(evidence), advice=advice)
    if openers := sorted(holder.pid or 0 for holder in _candidates(look, holders, held)):
        some = ", ".join(map(str, openers[:8])) + (f" and {len(openers) - 8} more" if len(openers) > 8 else "")
        evidence.append(f"Its device files are open in pid {some}: whether these were its children is not known.")
        advice = "Look again in a minute. What stays then may be held by one of these: end those that nobody needs."
        return replace(base, evidence=tuple(evidence), advice=advice, zombie=True)
    evidence.append("Nobody else has its device files open.")
    if past is None:
        advice = "Look again in a minute: the driver may still be taking it apart. What stays needs a reset of the GPU."
        return replace(base, evidence=tuple(evidence), advice=advice, zombie=True)
    return replace(base, class_=HolderClass.GHOST_MEMORY, evidence=tuple(evidence), advice=_RESET, zombie=True)


_RESET = (
    "No process can be ended for it. Reset the GPU (nvidia-smi --gpu-reset, with nobody on it), or reboot the node."
)


def _was_an_engine(look: Look, past: Past) -> bool:
    process = HolderProcess(pid=past.pid, start_ticks=past.start_ticks, title=past.title)
    return look.names_an_engine(process)


def _where_to_look(look: Look) -> str:
    if look.snapshot.container:
        return "It is not visible from here: look on the host, outside of this container."
    if look.snapshot.driver.state is not DriverState.OK:
        return "The driver does not answer well enough to tell; see its state."
    return "It is not visible from here: look as root, who sees every process's device files."


# ------------------------------------------------------------------------------------------- memory, and no pid


def _without_a_pid(look: Look, holders: dict[int, Holder], gpu: Gpu) -> Holder | None:
    """What a GPU shows that no list explains. It may find heirs instead, or say it of those who hold it."""
    if gpu.state is not GpuState.OK or gpu.memory.kind != "device" or gpu.uses is None:
        return None
    unexplained, used = gpu.unexplained_bytes, gpu.memory.used_bytes
    if used is None:
        return None
    others = [holder for holder in holders.values() if _is_on(look, holder, gpu)]
    if unexplained is None or unexplained <= gpu.slack_bytes:
        return _latch(look, gpu, used, bool(others))
    if look.snapshot.looks.get(gpu.uuid, 0) < GHOST_LOOKS:
        return None
    where = look.label(gpu.uuid)
    if others:
        _explain(look, holders, gpu, unexplained, others)
        return None
    evidence = [
        f"{where} uses {gib(used)}, and the processes in NVML's list hold {gib(gpu.held_bytes)} of it: "
        f"{gib(unexplained)} have no owner at {look.snapshot.looks[gpu.uuid]} looks in a row."
    ]
    base = Holder(class_=HolderClass.OTHER_NAMESPACE, held={gpu.uuid: unexplained}, evidence=tuple(evidence))
    recent = _recent(look, gpu)
    if recent is not None:
        of = f" of run {recent.run_id}" if recent.run_id else ""
        ago = spell_age(look.snapshot.at - recent.last_at)
        evidence.append(
            f"Pid {recent.pid}, {recent.title or 'without a name'}{of}, held memory there and died {ago} ago."
        )
        advice = "Wait: the driver takes its memory apart, mostly within seconds."
        return replace(
            base, class_=HolderClass.TEARDOWN, evidence=tuple(evidence), advice=advice, zombie=True,
            title=recent.title, run_id=recent.run_id,
        )  # fmt: skip
    if not look.readable():
        return replace(base, advice=_where_to_look(look))
    evidence.append("Every process's descriptors were read, and nobody has the GPU open.")
    return replace(base, class_=HolderClass.GHOST_MEMORY, evidence=tuple(evidence), advice=_RESET, zombie=True)


def _is_on(look: Look, holder: Holder, gpu: Gpu) -> bool:
    """Whether it is a process that can own memory there: the node's daemons have every GPU open and own none."""
    if holder.pid is None or holder.class_ is HolderClass.PROTECTED:
        return False
    process = look.by_pid[holder.pid]
    return gpu.uuid in holder.held or look.has_open(process, gpu)


def _explain(look: Look, holders: dict[int, Holder], gpu: Gpu, unexplained: int, others: list[Holder]) -> None:
    """Memory beyond the list where somebody has the GPU open: heirs where no owner lives, else its owners' own."""
    where = look.label(gpu.uuid)
    named = [holder for holder in others if look.believed(look.by_pid[holder.pid or 0])]
    heirs = _candidates(look, holders, [gpu.uuid])
    hidden = look.snapshot.container and not gpu.uses
    for holder in named or ([] if hidden else heirs):
        pid = holder.pid or 0
        if named:
            why = f"{where} uses {gib(unexplained)} more than NVML tells of its processes: managed memory looks so."
            holders[pid] = replace(holder, evidence=(*holder.evidence, why))
        elif gpu.uuid not in holder.held:
            why = f"On {where} {gib(unexplained)} have no owner in NVML's list, and this process has that GPU open."
            held = dict(holder.held)
            held[gpu.uuid] = unexplained if len(heirs) == 1 else None
            holders[pid] = _heir(look, holder, why, held, tuple(sorted(item.pid or 0 for item in heirs)))
    if hidden:
        for holder in others:
            why = (
                f"NVML names nobody on {where} in this container: how much of {gib(unexplained)} is its own is unknown."
            )
            held = {**holder.held, gpu.uuid: None}
            holders[holder.pid or 0] = replace(holder, evidence=(*holder.evidence, why), held=held)


def _recent(look: Look, gpu: Gpu) -> Past | None:
    """Who held memory there until less than a minute ago."""
    at = look.snapshot.at
    gone = [item for item in look.snapshot.past if gpu.uuid in item.held and at - item.last_at <= TEARDOWN_S]
    return max(gone, key=lambda item: item.held[gpu.uuid] or 0, default=None)


def _latch(look: Look, gpu: Gpu, used: int, somebody: bool) -> Holder | None:
    """Full utilisation without memory or process: telemetry that stayed when a process was killed in a kernel."""
    if (gpu.gpu_percent or 0) < LATCH_PERCENT or gpu.uses or somebody or used > gpu.slack_bytes:
        return None
    low = gpu.power_w is not None and gpu.power_limit_w and gpu.power_w < LATCH_POWER_SHARE * gpu.power_limit_w
    if not low and not (gpu.power_w is None and look.readable()):
        return None
    power = f" at {gpu.power_w:.0f} W of {gpu.power_limit_w:.0f} W" if low else ""
    why = (
        f"{look.label(gpu.uuid)} tells {gpu.gpu_percent} % utilisation{power}, with {gib(used)} used and no process: "
        "telemetry that stayed behind, not memory."
    )
    advice = "Nothing has to be ended, and a launch is not held up. The next CUDA program that ends in order clears it."
    held: dict[str, int | None] = {gpu.uuid: 0}
    return Holder(class_=HolderClass.UTILISATION_LATCH, held=held, evidence=(why,), advice=advice)
