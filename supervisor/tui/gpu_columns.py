"""Which columns of the GPU table stand at which width: the essentials first, then more of each. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from supervisor.core.gpu import Gpu, GpuState
from supervisor.tui.gpu_words import common_name, full_name, name_of, notes
from supervisor.tui.pieces import cells, in_gib


class Widths(Struct, frozen=True):
    """What the GPUs of one table need at most, in cells."""

    number: int
    name: int
    full_name: int
    amount: int
    power: int
    clock: int
    bus: int
    short_note: int
    note: int
    alike: bool
    """All have the same name, and the title tells it."""


class Columns(Struct, frozen=True):
    """Cells of each column without the blank before it; 0: it is not there."""

    number: int
    amount: int
    unit: bool = False
    name: int = 0
    full_name: bool = False
    bar: int = 0
    spark: int = 0
    temperature: bool = False
    power: int = 0
    power_limit: bool = False
    clock: int = 0
    bus: int = 0
    note: int = 0
    spare: int = 0
    """What is left at the end of the row."""


def widths(gpus: Sequence[Gpu], now: float) -> Widths:
    """Measured over what will be shown."""
    found = {gpu.uuid: notes(gpu, now) for gpu in gpus if gpu.state is GpuState.OK}
    return Widths(
        number=max(1 + (gpu.parent is not None) + (abs(gpu.index) > 9) + (abs(gpu.index) > 99) for gpu in gpus),
        name=max(cells(name_of(gpu)) for gpu in gpus),
        full_name=max(cells(full_name(gpu)) for gpu in gpus),
        amount=max((cells(_amount(gpu)) for gpu in gpus), default=1),
        power=max(cells(f"{gpu.power_w or 0:.0f}/{gpu.power_limit_w or 0:.0f} W") for gpu in gpus),
        clock=max(cells(f"{gpu.sm_clock_mhz or 0:,} MHz") for gpu in gpus),
        bus=max(cells(gpu.bus_id) for gpu in gpus),
        short_note=max((cells(", ".join(note.short for note in items)) for items in found.values()), default=0),
        note=max((cells(", ".join(note.words for note in items)) for items in found.values()), default=0),
        alike=bool(common_name(gpus)),
    )


def _amount(gpu: Gpu) -> str:
    return f"{in_gib(gpu.memory.used_bytes)}/{in_gib(gpu.memory.total_bytes)}"


def plan(width: int, need: Widths) -> Columns:
    """As many columns as fit, in the order of what they are worth."""
    best = Columns(number=need.number, amount=need.amount)
    for changes in _wishes(need):
        wished = replace(best, **changes)
        if used(wished) <= width:
            best = wished
    return replace(best, spare=max(0, width - used(best) - (0 if best.note else 3)))


def _wishes(need: Widths) -> list[dict[str, int | bool]]:
    """Each is taken where there is room for it beside what was taken before."""
    short, words = min(need.short_note, 20), min(need.note, 60)
    name = min(need.name, 12)
    return [
        {"bar": 4},
        *([{"note": short}] if short else []),
        {"bar": 6},
        {"temperature": True},
        {"unit": True, "amount": need.amount + 4},
        *([] if need.alike else [{"name": name}]),
        {"bar": 10},
        {"spark": 6},
        {"power": need.power, "power_limit": True},
        {"name": name},
        {"bar": 16},
        {"spark": 10},
        *([{"note": words}] if words else []),
        {"bar": 22},
        {"spark": 16},
        {"clock": need.clock},
        *([{"name": need.full_name, "full_name": True}] if need.full_name <= 30 else []),
        {"bar": 30},
        {"spark": 30},
        {"bus": need.bus} if need.bus else {},
        {"spark": 50},
        {"bar": 40},
    ]


def used(columns: Columns) -> int:
    """Cells of a whole row."""
    parts = [columns.name, columns.spark, columns.power, columns.clock, columns.bus]
    return (
        columns.number
        + sum(part + 1 for part in parts if part)
        + (columns.bar + 3 if columns.bar else 0)
        + (columns.amount + 1)
        + 6
        + (5 if columns.temperature else 0)
        + (columns.note + 3 if columns.note else 0)
    )
