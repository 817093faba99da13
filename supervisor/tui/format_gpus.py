"""What the console says of GPU memory, in one line. Pure: pieces of text with a role each, as in `format.py`."""

from __future__ import annotations

from collections.abc import Mapping

from supervisor.core.gpu import DriverState, Gpu, GpuState, gib
from supervisor.core.gpu_events import GpuEvent, Holders
from supervisor.tui.format import Piece, Pieces, running

LEVELS = "▁▂▃▄▅▆▇█"
STALE_S = 5.0


def memory(event: GpuEvent | None, holders: Holders | None, now: float) -> Pieces:
    """A column a GPU, the sums, what of it is this run's, and what is left over. Nothing on a node without a GPU."""
    if event is None:
        return ()
    out: list[Piece] = [("gpus    ", "dim")]
    for gpu in event.gpus:
        if gpu.parent is None:
            out.append(_column(gpu))
    spaces = [gpu.memory for gpu in event.gpus if gpu.memory.used_bytes is not None and gpu.memory.total_bytes]
    if spaces:
        used, total = sum(m.used_bytes or 0 for m in spaces), sum(m.total_bytes or 0 for m in spaces)
        out.append((f"  {gib(used)} of {gib(total)}", "plain"))
    if event.ours_bytes is not None:
        out.append((f" · this run {gib(event.ours_bytes)}", "plain"))
    if lost := sum(gpu.state is GpuState.LOST for gpu in event.gpus):
        out.append((f" · {lost} lost", "bad"))
    left = [item for item in (holders.holders if holders is not None else ()) if item.zombie]
    if left:
        amounts = [item.held_bytes for item in left]
        known = gib(sum(filter(None, amounts))) if None not in amounts else "an unknown amount"
        out.append((f" · {len(left)} left over with {known} (supervisor zombies)", "warn"))
    if event.driver.state is not DriverState.OK:
        out.append((f" · {event.driver.why}", "warn"))
    elif now - event.at > STALE_S:
        out.append((f" · {running(now - event.at)} ago", "warn"))
    return tuple(out)


def _column(gpu: Gpu) -> Piece:
    used, total = gpu.memory.used_bytes, gpu.memory.total_bytes
    if gpu.state is GpuState.LOST:
        return ("✗", "bad")
    if used is None or not total:
        return ("?", "dim")
    share = min(1.0, used / total)
    return (LEVELS[min(len(LEVELS) - 1, int(share * len(LEVELS)))], "now" if share > 0.01 else "dim")


def held_by_pid(event: GpuEvent | None) -> Mapping[int, int | None]:
    """pid → bytes over all GPUs; None where a figure is missing."""
    out: dict[int, int | None] = {}
    for gpu in event.gpus if event is not None else ():
        for use in gpu.uses or ():
            before = out.get(use.pid, 0)
            out[use.pid] = None if before is None or use.used_bytes is None else before + use.used_bytes
    return out
