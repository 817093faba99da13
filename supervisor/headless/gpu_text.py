"""GPUs and their holders as text for people. Formatting only: a snapshot and its holders in, lines out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from supervisor.core.gpu import Coverage, DriverState, Gpu, GpuState, Snapshot, gib
from supervisor.core.holder import Holder, HolderClass
from supervisor.core.lineage import spell_age
from supervisor.core.unowned import threshold
from supervisor.headless.text import Style

PIPE_WIDTH = 160
"""Into a file or a pipe lines are longer, and still have an end."""
BAR_FROM_WIDTH = 100
BAR_CELLS = 20
NAME_CELLS = 14
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_BRAND = re.compile(r"^(?:NVIDIA|Tesla|Quadro)\s+|\bGeForce\s+", re.ASCII)
_GIB = 1 << 30
_NOTED = (HolderClass.OTHER_NAMESPACE, HolderClass.UTILISATION_LATCH, HolderClass.SHARED)


def node_lines(
    name: str, snapshot: Snapshot, holders: Sequence[Holder], style: Style, width: int, note: str = ""
) -> list[str]:
    """One node: a line of its own, then each GPU with its holders."""
    out = [head(name, snapshot, style) + (f" · {style(note, 'yellow')}" if note else "")]
    if snapshot.driver.state is not DriverState.OK and snapshot.driver.why:
        out.append(f"  {style(snapshot.driver.why, 'yellow')}")
    placed: set[int] = set()
    for gpu in snapshot.gpus:
        out += _gpu_lines(gpu, snapshot, holders, style, width)
        here = [number for number, holder in enumerate(holders) if gpu.uuid in holder.held]
        placed.update(here)
        out += [holder_line(holders[number], snapshot, gpu.uuid, style, width) for number in here]
    rest = [
        holder
        for number, holder in enumerate(holders)
        if number not in placed and holder.class_ is not HolderClass.PROTECTED
    ]
    if rest:
        out.append("  on no list, with a GPU's device files open or of an ended run:")
        out += [holder_line(holder, snapshot, None, style, width) for holder in rest]
    return [cut(line, width) for line in out]


def head(name: str, snapshot: Snapshot, style: Style) -> str:
    """ "gpu1 · 8 GPUs · driver 580.95.05 · CUDA 13.0" """
    whole = sum(1 for gpu in snapshot.gpus if gpu.parent is None)
    driver = snapshot.driver
    count = "no GPU" if driver.state is DriverState.ABSENT else f"{whole} GPU{'' if whole == 1 else 's'}"
    if driver.count_before is not None:
        count = style(f"{count} (there were {driver.count_before})", "red")
    parts = [style(name, "bold"), count]
    parts += [f"driver {driver.version}"] if driver.version else []
    parts += [f"CUDA {driver.cuda_version}"] if driver.cuda_version else []
    return " · ".join(parts)


def _gpu_lines(gpu: Gpu, snapshot: Snapshot, holders: Sequence[Holder], style: Style, width: int) -> list[str]:
    name = short_name(gpu.name)[:NAME_CELLS].ljust(NAME_CELLS)
    number = f"{gpu.index:>2}" if gpu.parent is None else f"  └ MIG {gpu.index}"
    if gpu.state is not GpuState.OK:
        return [f"{number} {name} {style(str(gpu.state), 'red')}: {gpu.why or 'nothing of it can be read'}"]
    parts = [f"{number} {name}", _memory(gpu, width), *_figures(gpu)]
    out = ["  ".join(part for part in parts if part)]
    out += [f"{'':6}{style(trouble, 'yellow')}" for trouble in troubles(gpu)]
    unexplained = gpu.unexplained_bytes
    explained = any(gpu.uuid in holder.held and holder.pid is None for holder in holders)
    if gpu.memory.kind == "device" and unexplained is not None and unexplained > threshold(gpu) and not explained:
        out.append(f"{'':6}{style(f'{gib(unexplained)} belong to no process in the list', 'yellow')}")
    if gpu.uses is None:
        out.append(f"{'':6}its processes cannot be read: {gpu.errors.get('uses', 'not told why')}")
    return out


def _memory(gpu: Gpu, width: int) -> str:
    used, total = gpu.memory.used_bytes, gpu.memory.total_bytes
    if used is None or not total:
        return f"memory unknown ({gpu.errors.get('memory', 'not told why')})"
    share = min(1.0, used / total)
    amount = f"{used / _GIB:.1f}/{total / _GIB:.1f} GiB".rjust(15)
    kind = " unified" if gpu.memory.kind == "unified" else ""
    return (f"▕{bar(share)}▏ " if width >= BAR_FROM_WIDTH else "") + amount + kind


def _figures(gpu: Gpu) -> list[str]:
    out = [f"{gpu.gpu_percent:>3} %" if gpu.gpu_percent is not None else "  ? %"]
    out.append(f"{gpu.temperature_c:>3}°" if gpu.temperature_c is not None else "  ?°")
    if gpu.power_w is not None:
        limit = f"/{gpu.power_limit_w:.0f}" if gpu.power_limit_w else ""
        out.append(f"{gpu.power_w:.0f}{limit} W")
    return out


def troubles(gpu: Gpu) -> list[str]:
    """What is wrong with a GPU; empty for a healthy one."""
    out = []
    if gpu.throttle:
        out.append(f"slowed by: {', '.join(gpu.throttle)}")
    if gpu.ecc_uncorrected:
        out.append(f"{gpu.ecc_uncorrected} uncorrected memory errors (ECC)")
    if gpu.xid is not None:
        kind = "of the hardware or driver" if gpu.xid.bad else "of the program"
        out.append(f"XID {gpu.xid.code}, an error {kind}" + (f": {gpu.xid.text}" if gpu.xid.text else ""))
    return out


def holder_line(holder: Holder, snapshot: Snapshot, uuid: str | None, style: Style, width: int) -> str:
    """ "  4711  ours-orphan   71.2 GiB   2 h  ana  sglang::scheduler_TP3" """
    pid = str(holder.pid) if holder.pid is not None else "–"
    amount = gib(holder.held[uuid]) if uuid is not None else ""
    age = spell_age(snapshot.at - holder.started_at) if holder.started_at else ""
    kind = style(f"{holder.class_:<16}", "red" if holder.zombie else "dim" if not _matters(holder) else "bold")
    of = f" of {holder.key or holder.run_id}" if holder.run_id else ""
    line = f"{'':4}{pid:>8}  {kind}  {amount:>9}  {age:>7}  {(holder.user or '')[:10]:<10}  "
    return line + (holder.title or holder.comm or "") + of


def zombie_lines(name: str, snapshot: Snapshot, holders: Sequence[Holder], style: Style, width: int) -> list[str]:
    """The left-over holders with their evidence, then what else is worth a word."""
    zombies = [holder for holder in holders if holder.zombie]
    out = [f"{head(name, snapshot, style)}: {count_words(zombies)}"]
    if snapshot.driver.state is not DriverState.OK and snapshot.driver.why:
        out.append(f"  {style(snapshot.driver.why, 'yellow')}")
    for holder in zombies:
        out += _told(holder, snapshot, style, width)
    noted = [holder for holder in holders if not holder.zombie and holder.class_ in _NOTED]
    if noted:
        out += ["", "not left over, but worth a look:"]
        for holder in noted:
            out += _told(holder, snapshot, style, width)
    living = [holder for holder in holders if not holder.zombie and holder not in noted and holder.held]
    if living:
        out += ["", f"{len(living)} more hold memory and are alive: supervisor gpus {name}"]
    if snapshot.coverage is not Coverage.ALL and snapshot.driver.state is not DriverState.ABSENT:
        out += ["", _sight(snapshot)]
    return out


def _told(holder: Holder, snapshot: Snapshot, style: Style, width: int) -> list[str]:
    who = f"pid {holder.pid}" if holder.pid is not None else "no process"
    parts = [f"{who}  {style(str(holder.class_), 'red' if holder.zombie else 'bold')}"]
    parts += [f"{gib(amount)} on {_label(snapshot, uuid)}" for uuid, amount in holder.held.items()]
    parts += [f"{spell_age(snapshot.at - holder.started_at)} old"] if holder.started_at else []
    parts += [holder.user] if holder.user else []
    parts += [holder.title or holder.comm] if holder.title or holder.comm else []
    out = ["", cut("  ".join(parts), width)]
    out += [f"    {sentence}" for sentence in holder.evidence]
    return [*out, f"    → {holder.advice}"]


def places(holder: Holder, snapshot: Snapshot) -> str:
    """ "70.8 GiB on GPU 0, ", empty for one that holds nothing."""
    return "".join(f"{gib(amount)} on {_label(snapshot, uuid)}, " for uuid, amount in holder.held.items())


def _sight(snapshot: Snapshot) -> str:
    if snapshot.coverage is Coverage.OWN:
        return "Seen: the device files that our own user has open. Left-overs of others show as root."
    if snapshot.coverage is Coverage.PARTIAL:
        return "Not everything was seen: there are very many descriptors, or /proc hides processes."
    return "Nobody's device files could be read: this is NVML's list alone."


def count_words(zombies: Iterable[Holder]) -> str:
    """ "no left-over holders", "2 left-over holders with 84.0 GiB"."""
    found = list(zombies)
    if not found:
        return "no left-over holders"
    known = [amount for holder in found for amount in holder.held.values() if amount is not None]
    unknown = any(amount is None for holder in found for amount in holder.held.values())
    amount = f" with {'at least ' if unknown else ''}{gib(sum(known))}" if known else ""
    return f"{len(found)} left-over holder{'' if len(found) == 1 else 's'}{amount}"


def short_name(name: str) -> str:
    """ "NVIDIA H100 80GB HBM3" → "H100 80GB HBM3"."""
    return _BRAND.sub("", _BRAND.sub("", name)).strip() or "GPU"


def bar(share: float) -> str:
    """A bar of eighths."""
    eighths = round(share * BAR_CELLS * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(BAR_CELLS)


def cut(line: str, width: int) -> str:
    """The line in that many cells, colours not counted."""
    shown, out = 0, []
    for part in re.split(r"(\x1b\[\d*m)", line):
        if part.startswith("\x1b["):
            out.append(part)
            continue
        room = width - shown
        if len(part) > room:
            part = part[: max(0, room - 1)] + ("…" if room > 0 else "")
        out.append(part)
        shown += len(part)
    return "".join(out)


def _matters(holder: Holder) -> bool:
    return holder.class_ in (*_NOTED, HolderClass.OURS_LIVE)


def _label(snapshot: Snapshot, uuid: str) -> str:
    gpu = snapshot.gpu(uuid)
    if gpu is None:
        return uuid
    above = snapshot.gpu(gpu.parent) if gpu.parent else None
    return f"MIG instance {gpu.index} of GPU {above.index}" if above is not None else f"GPU {gpu.index}"
