"""GPUs and their holders as text for people. Formatting only: a snapshot and its holders in, lines out."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Sequence

from supervisor.core import left_over
from supervisor.core.gpu import Coverage, DriverState, Gpu, GpuState, Snapshot, gib
from supervisor.core.holder import Holder, HolderClass
from supervisor.core.holder_words import alike, held_of, pids
from supervisor.core.lineage import spell_age
from supervisor.headless.text import Style

PIPE_WIDTH = 160
"""Into a file or a pipe lines are longer, and still have an end."""
BAR_FROM_WIDTH = 100
BAR_CELLS = 20
NAME_CELLS = 14
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_BRAND = re.compile(r"^(?:NVIDIA|Tesla|Quadro)\s+|\bGeForce\s+", re.ASCII)
_GIB = 1 << 30
_USUAL = ("sw_power_cap", "applications_clocks", "display_clocks", "sync_boost")
"""Reasons that slow the clocks of a GPU that is well: under load it is at its power limit all the time."""
_NO_PID = {
    HolderClass.GHOST_MEMORY: "memory that no process accounts for",
    HolderClass.TEARDOWN: "memory on its way back",
    HolderClass.OTHER_NAMESPACE: "memory of somebody who is not seen from here",
    HolderClass.UTILISATION_LATCH: "no memory: utilisation that stayed behind",
}
_NOTED = (HolderClass.OTHER_NAMESPACE, HolderClass.UTILISATION_LATCH, HolderClass.SHARED)


def node_lines(
    name: str, snapshot: Snapshot, holders: Sequence[Holder], style: Style, width: int, note: str = ""
) -> list[str]:
    """One node: a line of its own, then each GPU with its holders."""
    out = [head(name, snapshot, style) + (f" · {style(note, 'yellow')}" if note else "")]
    if snapshot.driver.state is not DriverState.OK and snapshot.driver.why:
        out += _wrapped(snapshot.driver.why, 2, style, width)
    placed: set[int] = set()
    for gpu in snapshot.gpus:
        out += _gpu_lines(gpu, snapshot, holders, style, width)
        here = [number for number, holder in enumerate(holders) if gpu.uuid in holder.held]
        placed.update(here)
        groups = alike(holders[number] for number in here)
        out += [holder_line(group, snapshot, gpu.uuid, style, width) for group in groups]
    rest = [
        holder
        for number, holder in enumerate(holders)
        if number not in placed and holder.class_ is not HolderClass.PROTECTED
    ]
    if rest:
        out.append("  on no list (a device file open, or of an ended run):")
        out += [holder_line(group, snapshot, None, style, width) for group in alike(rest)]
    return [cut(line, width) for line in out]


def head(name: str, snapshot: Snapshot, style: Style) -> str:
    """ "gpu1 · 8 GPUs · driver 580.95.05 · CUDA 13.0" """
    whole = sum(1 for gpu in snapshot.gpus if gpu.parent is None)
    driver = snapshot.driver
    kind = "SIMULATED GPU" if driver.simulated else "GPU"
    count = f"no {kind}" if driver.state is DriverState.ABSENT else f"{whole} {kind}{'' if whole == 1 else 's'}"
    if not whole and driver.state in (DriverState.UNAVAILABLE, DriverState.STUCK):
        count = "GPUs not known"
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
        why = _wrapped(gpu.why or "nothing of it can be read", 6, style, width)
        return [f"{number} {name} {style(str(gpu.state), 'red')}", *why]
    parts = [f"{number} {name}", _memory(gpu, width), *_figures(gpu)]
    out = ["  ".join(part for part in parts if part)]
    for trouble in troubles(gpu):
        out += _wrapped(trouble, 6, style, width)
    unexplained = gpu.unexplained_bytes
    explained = any(gpu.uuid in holder.held and holder.pid is None for holder in holders)
    if gpu.memory.kind == "device" and unexplained is not None and unexplained > gpu.slack_bytes and not explained:
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
    slowed = [reason for reason in gpu.throttle or () if reason not in _USUAL]
    if slowed:
        out.append(f"slowed by: {', '.join(slowed)}")
    if gpu.ecc_uncorrected:
        out.append(f"{gpu.ecc_uncorrected} uncorrected memory errors (ECC)")
    if gpu.xid is not None:
        kind = ", an error of the hardware or driver" if gpu.xid.bad else ""
        told = gpu.xid.text or "what it means is not known here, see NVIDIA's list of XIDs"
        out.append(f"XID {gpu.xid.code}{kind}: {told}")
    return out


def holder_line(group: Sequence[Holder], snapshot: Snapshot, uuid: str | None, style: Style, width: int) -> str:
    """ "  4711  ours-orphan   71.2 GiB   2 h  ana  sglang::scheduler_TP3"; of many alike "126×" and some pids."""
    holder, many = group[0], len(group) > 1
    pid = f"{len(group)}×" if many else str(holder.pid) if holder.pid is not None else "–"
    amount = gib(held_of(group, uuid)) if uuid is not None else ""
    narrow = width < BAR_FROM_WIDTH
    amount = amount.rjust((26 if narrow else 27) - len(holder.class_))  # one of the names is longer than its column
    kind = style(str(holder.class_), "red" if holder.zombie else "dim" if not _matters(holder) else "bold")
    what = (holder.title or holder.comm or "") if holder.pid is not None else holder.title or _NO_PID[holder.class_]
    what += f" of {holder.key or holder.run_id}" if holder.run_id else ""
    what = f"{pids(group)}: {what}" if many else what
    if narrow:
        return f"  {pid:>7} {kind}{amount} {_age(group, snapshot):>6} {(holder.user or '')[:8]:<8} {what}"
    start = f"{'':4}{pid:>8}  {kind}{amount}  {_age(group, snapshot):>7}  "
    return f"{start}{(holder.user or '')[:10]:<10}  {what}"


def _age(group: Sequence[Holder], snapshot: Snapshot) -> str:
    """Of the oldest."""
    started = [holder.started_at for holder in group if holder.started_at]
    return spell_age(snapshot.at - min(started)) if started else ""


def zombie_lines(name: str, snapshot: Snapshot, holders: Sequence[Holder], style: Style, width: int) -> list[str]:
    """The left-over holders with their evidence, then what else is worth a word."""
    zombies = [holder for holder in holders if holder.zombie]
    out = [f"{head(name, snapshot, style)}: {left_over.count_words(zombies)}"]
    if snapshot.driver.state is not DriverState.OK and snapshot.driver.why:
        out.append(f"  {style(snapshot.driver.why, 'yellow')}")
    for group in alike(zombies):
        out += _told(group, snapshot, style, width)
    noted = [holder for holder in holders if not holder.zombie and holder.class_ in _NOTED]
    if noted:
        out += ["", "not left over, but worth a look:"]
        for group in alike(noted):
            out += _told(group, snapshot, style, width)
    living = [holder for holder in holders if not holder.zombie and holder not in noted and holder.held]
    if living:
        out += ["", f"{len(living)} more hold memory and are alive: supervisor gpus {name}"]
    if snapshot.coverage is not Coverage.ALL and snapshot.driver.state is not DriverState.ABSENT:
        out += ["", _sight(snapshot)]
    return out


def _told(group: Sequence[Holder], snapshot: Snapshot, style: Style, width: int) -> list[str]:
    holder, many = group[0], len(group) > 1
    who = f"pid {holder.pid}" if holder.pid is not None else "no process"
    who = f"{len(group)} processes" if many else who
    parts = [f"{who}  {style(str(holder.class_), 'red' if holder.zombie else 'bold')}"]
    parts += [f"{gib(held_of(group, uuid))} on {snapshot.label(uuid)}" for uuid in holder.held]
    parts += [f"{age} old"] if (age := _age(group, snapshot)) else []
    parts += [holder.user] if holder.user else []
    parts += [holder.title or holder.comm] if holder.title or holder.comm else []
    out = ["", cut("  ".join(parts), width)]
    advice = holder.advice
    if many:
        out += [f"    {pids(group, most=None)}", f"    of pid {holder.pid}, and alike of the others:"]
        if advice.endswith(f"--kill {holder.pid}"):
            advice = " ".join([advice, *(str(item.pid) for item in group[1:])])
    out += [f"    {sentence}" for sentence in holder.evidence]
    return [*out, f"    → {advice}"]


def _sight(snapshot: Snapshot) -> str:
    if snapshot.coverage is Coverage.OWN:
        return "Seen: the device files that our own user has open. Left-overs of others show as root."
    if snapshot.coverage is Coverage.PARTIAL:
        return "Not everything was seen: there are very many descriptors, or /proc hides processes."
    return "Nobody's device files could be read: this is NVML's list alone."


def short_name(name: str) -> str:
    """ "NVIDIA H100 80GB HBM3" → "H100 80GB HBM3"."""
    return _BRAND.sub("", _BRAND.sub("", name)).strip() or "GPU"


def bar(share: float) -> str:
    """A bar of eighths."""
    eighths = round(share * BAR_CELLS * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(BAR_CELLS)


def cut(line: str, width: int) -> str:
    """The line in at most that many cells, colours not counted."""
    shown, out = 0, []
    for part in re.split(r"(\x1b\[\d*m)", line):
        if part.startswith("\x1b["):
            out.append(part)
            continue
        needed = cells(part)
        if needed > width - shown:
            part = _fitting(part, width - shown)
        out.append(part)
        shown += cells(part)
    return "".join(out)


def _fitting(text: str, room: int) -> str:
    """So much of a text that is too long, and a sign that there is more."""
    if room <= 0:
        return ""
    kept, used = [], 0
    for char in text:
        used += cells(char)
        if used > room - 1:
            break
        kept.append(char)
    return "".join(kept) + "…"


def cells(text: str) -> int:
    """How many cells of a terminal a text takes: one that is wider than thought breaks what is drawn in place."""
    if text.isascii():
        return len(text)
    return sum(_cells(char) for char in text)


def _cells(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _wrapped(text: str, indent: int, style: Style, width: int) -> list[str]:
    """A sentence of which nothing may be missing: its end says what to do."""
    lines = textwrap.wrap(text, max(20, width - indent))
    return [" " * indent + style(line, "yellow") for line in lines]


def _matters(holder: Holder) -> bool:
    return holder.class_ in (*_NOTED, HolderClass.OURS_LIVE)
