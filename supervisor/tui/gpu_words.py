"""What is told of one GPU in words: its name, what is wrong with it, the sums over several. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from msgspec import Struct

from supervisor.core.gpu import GIB, DriverState, Gpu, GpuState, gib
from supervisor.core.gpu_events import GpuEvent
from supervisor.tui.pieces import Piece, clock_time, one_line, running

STALE_S = 5.0
"""The node tells its GPUs each second."""
_BRAND = re.compile(r"^(?:NVIDIA|Tesla|Quadro)\s+|\bGeForce\s+|\bRTX\s+(?=PRO\b)", re.ASCII)
_SMALL_PRINT = re.compile(
    r"[ -](?:\d+ ?GB|SXM\d?|PCIe|HBM\d\w*|NVL\w*|Blackwell|Ada|Generation|Max-Q|Server|Workstation|Laptop|Edition|GPU)"
    r"\b.*"
)
_SLOWED = {
    "hw_slowdown": ("by the hardware: heat or power", "warn"),
    "sw_thermal": ("too hot", "warn"),
    "hw_thermal": ("far too hot", "bad"),
    "hw_power_brake": ("the power supply brakes it", "bad"),
}
_USUAL = {
    "sw_power_cap": "at its power limit",
    "applications_clocks": "clocks set by hand",
    "display_clocks": "display clocks",
    "sync_boost": "in step with others",
}
"""What slows the clocks of a GPU that is well: under load it is at its power limit all the time."""


class Note(Struct, frozen=True):
    """Something about one GPU that a look at its figures does not tell."""

    short: str
    words: str
    role: str


def name_of(gpu: Gpu) -> str:
    """ "NVIDIA RTX PRO 6000 Blackwell Server Edition" → "PRO 6000"."""
    return _names(gpu.name)[1]


def full_name(gpu: Gpu) -> str:
    """Without the brand, which all share."""
    return _names(gpu.name)[0]


@lru_cache(256)
def _names(name: str) -> tuple[str, str]:
    whole = _BRAND.sub("", _BRAND.sub("", one_line(name))).strip() or "GPU"
    return whole, _SMALL_PRINT.sub("", whole).strip() or whole


def notes(gpu: Gpu) -> list[Note]:
    """What is wrong with a GPU that can be read, the worst first; empty for a healthy one."""
    out: list[Note] = []
    if gpu.xid is not None:
        name, role = f"XID {gpu.xid.code}", "bad" if gpu.xid.bad else "warn"
        told = one_line(gpu.xid.text) or ("an error of the hardware or driver" if gpu.xid.bad else "a program's error")
        out.append(Note(name, f"{name} at {clock_time(gpu.xid.at)}: {told}", role))
    if gpu.ecc_uncorrected:
        count = gpu.ecc_uncorrected
        out.append(Note(f"ECC {count:,}", f"{count:,} uncorrected memory errors (ECC)", "bad"))
    slowed = [reason for reason in gpu.throttle or () if reason not in _USUAL]
    if slowed:
        words = ", ".join(_SLOWED.get(reason, (one_line(reason), ""))[0] for reason in slowed)
        grave = any(_SLOWED.get(reason, ("", ""))[1] == "bad" for reason in slowed)
        out.append(Note("slowed", f"slowed: {words}", "bad" if grave else "warn"))
    if gpu.uses is None and gpu.state is GpuState.OK:
        out.append(Note("list ?", f"its processes cannot be read: {_why(gpu, 'uses')}", "warn"))
    return sorted(out, key=lambda note: note.role != "bad")


def unexplained(gpu: Gpu) -> str:
    """Memory that no process accounts for, and more than a driver's small change; empty where there is none."""
    amount = gpu.unexplained_bytes
    if gpu.memory.kind != "device" or amount is None or amount <= gpu.slack_bytes:
        return ""
    return f"{gib(amount)} of no process in the list"


def usual(gpu: Gpu) -> str:
    """What slows a GPU that is well, for where there is room for it."""
    return ", ".join(_USUAL[reason] for reason in gpu.throttle or () if reason in _USUAL)


def unreadable(gpu: Gpu) -> str:
    """Why its memory is not known."""
    return _why(gpu, "memory")


def _why(gpu: Gpu, field: str) -> str:
    return one_line(gpu.errors.get(field, "not told why")).replace("_", " ")


def troubles(event: GpuEvent, now: float) -> list[Piece]:
    """What is wrong with the whole look: the driver, a GPU that is gone, an old sample. The fullest words first, those
    of a title last; empty where nothing is wrong."""
    driver = event.driver
    older_s = max(0.0, now - event.at)
    known = ": last known figures" if event.gpus else ""
    if driver.state is DriverState.STUCK and driver.stuck_s is not None:
        words = f"driver not responding since {running(driver.stuck_s + older_s)}"
        call = f" ({one_line(driver.call)})" if driver.call else ""
        return [(f"{words}{call}{known}", "bad"), (f"{words}{known}", "bad"), (words, "bad")]
    if driver.state is not DriverState.OK:
        role = "dim" if driver.state is DriverState.ABSENT else "bad" if driver.state is DriverState.STUCK else "warn"
        why = one_line(driver.why) or f"the driver is {driver.state.value}"
        short = "driver not responding" if driver.state is DriverState.STUCK else f"driver {driver.state.value}"
        return [(f"{why}{known}", role), (why, role), (short, role)]
    whole = sum(gpu.parent is None for gpu in event.gpus)
    if driver.count_before is not None and driver.count_before > whole:
        return [(f"{driver.count_before - whole} of {driver.count_before} GPUs are gone", "bad")]
    if (old_s := sample_age(event, now)) > STALE_S:
        return [(f"{running(old_s)} ago", "warn")]
    return []


def sample_age(event: GpuEvent, now: float) -> float:
    """How old the figures are."""
    return now - (event.sampled_at if event.sampled_at is not None else event.at)


def is_stale(event: GpuEvent, now: float) -> bool:
    """Whether the figures are the last known, and no present ones."""
    return event.driver.state is not DriverState.OK or sample_age(event, now) > STALE_S


class Sums(Struct, frozen=True):
    """Over several GPUs."""

    used_bytes: int
    total_bytes: int
    known: int
    """Of how many the memory is known."""
    lost: int
    percent: int | None
    temperature_c: int | None

    def amount(self) -> str:
        """ "489.6 of 764.8 GiB"."""
        if not self.known:
            return "memory unknown"
        digits = 1 if self.total_bytes < 1000 * GIB else 0
        return f"{self.used_bytes / GIB:,.{digits}f} of {self.total_bytes / GIB:,.{digits}f} GiB"


def spaces(event: GpuEvent) -> list[Gpu]:
    """What has memory of its own: GPUs, and instead of a GPU whose memory cannot be read, its MIG instances."""
    whole = {gpu.uuid: gpu for gpu in event.gpus if gpu.parent is None}
    parents = {gpu.parent for gpu in event.gpus if gpu.parent is not None}
    out: list[Gpu] = []
    for gpu in event.gpus:
        if gpu.parent is None:
            if gpu.memory.used_bytes is not None or gpu.uuid not in parents:
                out.append(gpu)
        elif (above := whole.get(gpu.parent)) is None or above.memory.used_bytes is None:
            out.append(gpu)
    return out


def sums(gpus: Iterable[Gpu]) -> Sums:
    """Of those whose memory is known."""
    found = list(gpus)
    there = [gpu for gpu in found if gpu.state is not GpuState.LOST]
    known = [gpu.memory for gpu in there if gpu.memory.used_bytes is not None and gpu.memory.total_bytes]
    return Sums(
        used_bytes=sum(memory.used_bytes or 0 for memory in known),
        total_bytes=sum(memory.total_bytes or 0 for memory in known),
        known=len(known),
        lost=sum(gpu.state is GpuState.LOST for gpu in found),
        percent=max((gpu.gpu_percent for gpu in found if gpu.gpu_percent is not None), default=None),
        temperature_c=max((gpu.temperature_c for gpu in found if gpu.temperature_c is not None), default=None),
    )


def common_name(gpus: Sequence[Gpu]) -> str:
    """The name that all share, empty where they differ."""
    names = {name_of(gpu) for gpu in gpus if gpu.parent is None}
    return names.pop() if len(names) == 1 else ""
