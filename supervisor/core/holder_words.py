"""How the launch gate calls GPUs and those who hold them. Pure."""

from __future__ import annotations

from supervisor.core.gpu import Gpu, Snapshot
from supervisor.core.holders import Holder, HolderClass

_WORDS = {
    HolderClass.TEARDOWN: "gone, its memory is being released",
    HolderClass.HEIR: "which has what a dead process held",
    HolderClass.FOREIGN_ORPHAN: "left over from a server that is not one of our runs",
    HolderClass.ENGINE_LIVE: "a live server that is not one of our runs",
    HolderClass.DEFUNCT: "dead, not reaped",
    HolderClass.UNINTERRUPTIBLE: "stuck in the kernel",
    HolderClass.OTHER_NAMESPACE: "in another container or on the host",
    HolderClass.SHARED: "a service that others share",
    HolderClass.PROCESS: "",
}


def label(gpu: Gpu, snapshot: Snapshot) -> str:
    """ "GPU 3", by NVML's index, as the other tools show it."""
    above = snapshot.gpu(gpu.parent) if gpu.parent else None
    if above is not None:
        return f"MIG instance {gpu.uuid[:12]} of GPU {above.index}"
    return f"GPU {gpu.index}"


def who(holder: Holder, now: float) -> str:
    """ "pid 4711 sglang::scheduler_TP3, orphan of run …, 2 h old"."""
    title = (holder.title or holder.comm)[:80]
    text = f"pid {holder.pid} {title}".rstrip()
    if holder.class_ is HolderClass.OURS_ORPHAN:
        text += f", orphan of run {holder.run_id}" if holder.run_id else ", an orphan of ours"
    elif holder.class_ is HolderClass.OURS_LIVE:
        text += f", of the live run {holder.run_id}"
    elif holder.class_ is HolderClass.OTHER_USER:
        text += f", of user {holder.user or holder.uid}"
    elif words := _WORDS.get(holder.class_, str(holder.class_)):
        text += f" ({words})"
    age = age_of(now - holder.started_at) if holder.started_at else ""
    return f"{text}, {age} old" if age else text


def age_of(seconds: float) -> str:
    """ "2 h": one unit is enough to know a left-over by. Empty where the clock says less than nothing."""
    if seconds < 0:
        return ""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"
