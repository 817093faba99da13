"""The class of a holder that is a process, by the first rule that fits; and what may be done about it. Pure.

The order of the rules is the safety: what is never touched comes first, another user's before what carries our run id.
"""

from __future__ import annotations

from msgspec.structs import replace

from supervisor.core.gpu import GpuState, HolderProcess, RunFacts, Use
from supervisor.core.holder import DEAD_STATES, Holder, HolderClass, Look
from supervisor.core.known import Shared
from supervisor.core.lineage import Lineage, spell_age

D_LOOKS = 3
_COMPUTE = frozenset("CM")


def of_process(look: Look, process: HolderProcess) -> Holder:
    uses = look.uses.get(process.pid, {}) if look.believed(process) else {}
    run = look.run_of(process)
    base = Holder(
        class_=HolderClass.PROCESS,
        pid=process.pid,
        start_ticks=process.start_ticks,
        uid=process.uid,
        user=process.user,
        title=process.title,
        comm=process.comm,
        run_id=process.run_id,
        key=run.key if run is not None else "",
        started_at=process.started_at or None,
        held={uuid: use.used_bytes for uuid, use in uses.items()},
        evidence=_seen(look, process, uses),
    )
    holder = _named(look, process, base, uses)
    return _limits(look, process, holder)


def _named(look: Look, process: HolderProcess, base: Holder, uses: dict[str, Use]) -> Holder:
    """The class, by the first rule that fits."""
    if why := _protected(look, process, uses):
        return _with(base, HolderClass.PROTECTED, why, "Nothing is to be done: it is never touched.")
    if process.state in DEAD_STATES:
        return _defunct(look, process, base)
    lineage = look.lineages.of(process)
    run = look.run_of(process)
    gone = not run.live if run is not None else lineage.orphaned
    if process.state == "D" and process.uninterruptible_looks >= D_LOOKS and (process.kill_pending or gone):
        return replace(_uninterruptible(process, base), zombie=gone or (run is None and process.kill_pending))
    if run is not None and run.live:
        advice = f"Stop the run it belongs to: supervisor stop {run.key or 'PROFILE'}"
        return _with(base, HolderClass.OURS_LIVE, f"It is of run {run.run_id}, which lives.", advice)
    if process.uid != look.snapshot.uid:
        return _of_another(look, process, base, lineage)
    if run is not None:
        return _ours_orphan(look, base, run)
    if process.run_id is not None:
        why = f"It carries the id of run {process.run_id}, of which there are no records here."
        base = replace(base, evidence=(*base.evidence, why))
    if process.same_namespace is False:
        return _foreign_namespace(base, lineage)
    shared = look.known.shared_of(process, look.lineages.above(process))
    if shared is not None:
        return _shared(base, shared)
    return _engine_or_process(look, process, base, lineage)


def _protected(look: Look, process: HolderProcess, uses: dict[str, Use]) -> str:
    if process.pid in look.snapshot.own_chain:
        return "It is this program, or what this program runs under."
    if process.pid <= 1:
        return "It is the init process."
    if look.known.is_protected(process):
        return "It belongs to the node, the desktop or a monitor."
    if uses and not any(_COMPUTE & set(use.types) for use in uses.values()):
        return "It uses the GPU for graphics alone."
    return ""


def _defunct(look: Look, process: HolderProcess, base: Holder) -> Holder:
    run = look.run_of(process)
    zombie = run is None or not run.live
    if process.threads > 0:
        why = f"Its first thread has ended and {process.threads} threads live on: they hold what it held."
        advice = f"KILL still reaches the threads: supervisor zombies HOST --kill {process.pid}"
        return replace(_with(base, HolderClass.DEFUNCT, why, advice), killable="yes", zombie=zombie)
    parent = look.by_pid.get(process.ppid)
    name = f", {(parent.title or parent.comm)[:60]}," if parent is not None and (parent.title or parent.comm) else ""
    why = f"It is dead and was not collected by its parent, pid {process.ppid}{name} so no signal does anything to it."
    advice = f"Its parent, pid {process.ppid}, has to collect it: end that one if it will not."
    if process.ppid <= 1:
        advice = "Only pid 1 can collect it, and it does not: a restart of the container does."
        if not look.snapshot.container:
            advice = "Its parent, pid 1, collects it in a moment: look again."
    return replace(_with(base, HolderClass.DEFUNCT, why, advice), zombie=zombie)


def _uninterruptible(process: HolderProcess, base: Holder) -> Holder:
    looks = f"It waits in the kernel (state D) at {process.uninterruptible_looks} looks in a row"
    if process.kill_pending:
        why = f"{looks}; SIGKILL was sent and is not carried out."
        advice = "No signal ends it. The driver is stuck with it: see dmesg; reset the GPU, or reboot the node."
        return _with(base, HolderClass.UNINTERRUPTIBLE, why, advice)
    advice = "A signal waits until the driver lets it go. If that fails: reset the GPU, or reboot the node."
    return replace(_with(base, HolderClass.UNINTERRUPTIBLE, f"{looks}.", advice), killable="yes")


def _of_another(look: Look, process: HolderProcess, base: Holder, lineage: Lineage) -> Holder:
    age = spell_age(look.snapshot.at - process.started_at) if process.started_at else "unknown"
    whose = process.user or f"uid {process.uid}"
    why = [f"It belongs to {whose}, another user, and is {age} old."]
    shared = look.known.shared_of(process, look.lineages.above(process))
    if shared is not None:
        return _shared(replace(base, evidence=(*base.evidence, *why)), shared)
    if lineage.why and (lineage.engine or lineage.orphaned):
        why.append(lineage.why)
    if look.snapshot.uid == 0:
        advice = f"Ask {whose} first. supervisor zombies HOST --kill {process.pid} asks you to type the pid."
    else:
        advice = f"Ask {whose}, or as root: sudo kill {process.pid}"
    holder = replace(_with(base, HolderClass.OTHER_USER, "", advice), killable="root", zombie=lineage.orphaned)
    return replace(holder, evidence=(*base.evidence, *why))


def _ours_orphan(look: Look, base: Holder, run: RunFacts) -> Holder:
    ended = f", which ended {spell_age(look.snapshot.at - run.ended_at)} ago" if run.ended_at else ", which has ended"
    key = f" of {run.key}" if run.key else ""
    why = f"It carries the id of run {run.run_id}{key}{ended}."
    advice = "Clear it: supervisor zombies HOST --kill"
    orphan = _with(base, HolderClass.OURS_ORPHAN, why, advice)
    return replace(orphan, preselected=True, killable="yes", zombie=True)


def _foreign_namespace(base: Holder, lineage: Lineage) -> Holder:
    why = "It lives in another pid namespace: a container's."
    if lineage.orphaned:
        why = f"{why} {lineage.why}"
        advice = f"If no container of it is left: supervisor zombies HOST --kill {base.pid} asks you to type the pid."
    else:
        advice = "Stop its container."
    return replace(_with(base, HolderClass.OTHER_NAMESPACE, why, advice), killable="root", zombie=lineage.orphaned)


def _shared(base: Holder, shared: Shared) -> Holder:
    killable = "yes" if shared.kill == "named" else "no"
    why = f"It is {shared.name}, shared by all that use it."
    return replace(_with(base, HolderClass.SHARED, why, shared.advice), killable=killable)


def _engine_or_process(look: Look, process: HolderProcess, base: Holder, lineage: Lineage) -> Holder:
    pid = process.pid
    named = f"supervisor zombies HOST --kill {pid}"
    if lineage.orphaned:
        of = f"It is named as {lineage.engine} names its processes. " if lineage.engine else ""
        holder = _with(base, HolderClass.FOREIGN_ORPHAN, f"{of}{lineage.why}", f"If it is yours to end: {named}")
        return replace(holder, killable="yes", zombie=True)
    if lineage.engine:
        why = lineage.why or "Nothing says that its server is gone."
        if ports := sorted({port for item in lineage.chain for port in item.ports}):
            why = f"{why} It listens on port {', '.join(map(str, ports))}." if str(ports[0]) not in why else why
        advice = f"It serves {lineage.engine}. Stop it where it was started."
        return replace(_with(base, HolderClass.ENGINE_LIVE, why, advice), killable="yes")
    age = spell_age(look.snapshot.at - process.started_at) if process.started_at else "of unknown age"
    why = f"It is a living process of {process.user or 'our user'}, {age} old."
    return replace(_with(base, HolderClass.PROCESS, why, f"End it where it was started, or: {named}"), killable="yes")


# ------------------------------------------------------------------------------------------- shared parts


def _with(base: Holder, class_: HolderClass, why: str, advice: str) -> Holder:
    return replace(base, class_=class_, evidence=(*base.evidence, *([why] if why else [])), advice=advice)


def _seen(look: Look, process: HolderProcess, uses: dict[str, Use]) -> tuple[str, ...]:
    """What it holds, and by which source."""
    out = []
    if uses:
        out.append(f"It holds {look.amounts({uuid: use.used_bytes for uuid, use in uses.items()})}.")
        if any(use.used_bytes is None for use in uses.values()):
            out.append("NVML gives no figure of its memory.")
        if any("M" in use.types for use in uses.values()):
            out.append("It is a client of the multi-process service.")
    elif process.devices:
        names = sorted({path.rpartition("/")[2] for path in process.devices})
        out.append(f"NVML does not name it; it has {', '.join(names)} open.")
    else:
        out.append("It holds no GPU memory.")
    for gpu in look.snapshot.gpus:
        if gpu.state is GpuState.LOST and look.has_open(process, gpu):
            out.append(f"{look.label(gpu.uuid)}, which it has open, is lost.")
    return tuple(out)


def _limits(look: Look, process: HolderProcess, holder: Holder) -> Holder:
    """What holds for every class: who may not be signalled at all, and who only by hand."""
    if holder.killable == "yes" and process.uid != look.snapshot.uid:
        holder = replace(holder, killable="root")
    lost = [gpu for gpu in look.snapshot.gpus if gpu.state is GpuState.LOST and look.has_open(process, gpu)]
    if lost and not holder.held and holder.killable != "no":
        advice = f"{look.label(lost[0].uuid)} is lost: reset it or reboot the node; ending the process does not help."
        return replace(holder, killable="no", preselected=False, advice=advice)
    by_number_alone = look.believed(process) and process.devices == ()
    if by_number_alone and holder.killable != "no" and holder.class_ is not HolderClass.OURS_ORPHAN:
        why = "It has no GPU device file open, so the number may be another process's."
        return replace(holder, killable="no", evidence=(*holder.evidence, why))
    return holder
