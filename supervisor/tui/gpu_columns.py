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
    load: int = 0
    """The history of the utilisation."""
    temperature: bool = False
    power: int = 0
    power_limit: bool = False
    clock: int = 0
    bus: int = 0
    note: int = 0
    spare: int = 0
    """What is left at the end of the row."""


def widths(gpus: Sequence[Gpu]) -> Widths:
    """Measured over what will be shown."""
    found = {gpu.uuid: notes(gpu) for gpu in gpus if gpu.state is GpuState.OK}
    return Widths(
        number=max(1 + (gpu.parent is not None) + (abs(gpu.index) > 9) + (abs(gpu.index) > 99) for gpu in gpus),
        name=max(cells(name_of(gpu)) for gpu in gpus),
        full_name=max(cells(full_name(gpu)) for gpu in gpus),
        amount=max(_amount(gpu) for gpu in gpus),
        power=max(_power(gpu) for gpu in gpus),
        clock=len("2,000 MHz"),
        bus=max(cells(gpu.bus_id) for gpu in gpus),
        short_note=max((cells(", ".join(note.short for note in items)) for items in found.values()), default=0),
        note=max((cells(", ".join(note.words for note in items)) for items in found.values()), default=0),
        alike=bool(common_name(gpus)),
    )


# By what a figure can become, not by what it is: columns that move with a figure are not to be read.


def _amount(gpu: Gpu) -> int:
    most = max(gpu.memory.total_bytes or 0, gpu.memory.used_bytes or 0)
    return len(in_gib(most)) + 1 + len(in_gib(gpu.memory.total_bytes))


def _power(gpu: Gpu) -> int:
    if gpu.power_limit_w is None:
        return len("999 W")
    limit = len(f"{gpu.power_limit_w:.0f}")
    return limit + max(limit, len(f"{gpu.power_w or 0:.0f}")) + len("/ W")


def plan(width: int, need: Widths, *, spelt: bool = False) -> Columns:
    """As many columns as fit, in the order of what they are worth.

    Args:
        spelt: what is wrong has no line of its own, so its words are worth more than a picture.
    """
    best = Columns(number=need.number, amount=need.amount)
    for changes in _wishes(need, spelt):
        wished = replace(best, **changes)
        if used(wished) <= width:
            best = wished
    return replace(best, spare=max(0, width - used(best) - (0 if best.note else 3)))


def _wishes(need: Widths, spelt: bool) -> list[dict[str, int | bool]]:
    """Each is taken where there is room for it beside what was taken before."""
    short, words = min(need.short_note, 20), min(need.note, 60)
    name = min(need.name, 12)
    in_words: list[dict[str, int | bool]] = [{"note": min(words, most)} for most in (24, 36, 60)] if words else []
    return [
        {"bar": 4},
        *([{"note": short}] if short else []),
        {"bar": 6},
        {"temperature": True},
        {"unit": True, "amount": need.amount + 4},
        *([] if need.alike else [{"name": name}]),
        *(in_words if spelt else []),
        {"bar": 10},
        {"spark": 6},
        {"power": need.power, "power_limit": True},
        {"name": name},
        {"bar": 16},
        {"spark": 10},
        *in_words,
        {"bar": 22},
        {"spark": 16},
        {"clock": need.clock},
        *([{"name": need.full_name, "full_name": True}] if need.full_name <= 30 else []),
        {"load": 10},
        {"spark": 30},
        {"bus": need.bus} if need.bus else {},
        {"load": 20},
        {"bar": 30},
        {"spark": 50},
    ]


def used(columns: Columns) -> int:
    """Cells of a whole row."""
    parts = [columns.name, columns.spark, columns.load, columns.power, columns.clock, columns.bus]
    return (
        columns.number
        + sum(part + 1 for part in parts if part)
        + (columns.bar + 3 if columns.bar else 0)
        + (columns.amount + 1)
        + 6
        + (5 if columns.temperature else 0)
        + (columns.note + 3 if columns.note else 0)
    )
