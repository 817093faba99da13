"""What the console says of the GPUs: a table of them, its title, and one line of memory. Pure.

A figure that could not be read is "–" or "?", never a number. Figures that are the last known are drawn dim.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from supervisor.core.gpu import DriverState, Gpu, GpuState, gib
from supervisor.core.gpu_events import GpuEvent, Holders
from supervisor.tui.format import simulated
from supervisor.tui.gpu_columns import Columns, plan, widths
from supervisor.tui.gpu_memory import Shares, memory_bar, shares
from supervisor.tui.gpu_words import (
    STALE_S,
    Note,
    common_name,
    full_name,
    is_stale,
    name_of,
    notes,
    spaces,
    sums,
    trouble,
    unreadable,
    usual,
)  # fmt: skip
from supervisor.tui.model import SessionModel
from supervisor.tui.pieces import (
    Piece,
    Pieces,
    cells,
    clip,
    first_fitting,
    fit,
    in_gib,
    joined,
    left,
    length,
    one_line,
    right,
    rows,
    running,
    wrapped,
)  # fmt: skip
from supervisor.tui.sparkline import LEVELS, spark

NARROWEST = 24
"""A GPU in fewer cells than this tells nothing."""
MOST_COLUMNS = 6


class _Look(Struct, frozen=True):
    """What every row of one drawing needs."""

    model: SessionModel
    event: GpuEvent
    shares: Mapping[str, Shares] | None
    now: float
    stale: bool


# ------------------------------------------------------------------------------------------------ the table


def table(model: SessionModel, now: float, width: int, height: int) -> Pieces:
    """A row a GPU. More GPUs than rows stand side by side in fewer words, or are summed up in the last row."""
    event = model.view.gpu
    if height <= 0 or width <= 0:
        return ()
    if event is None:
        return fit((("no GPU has been looked at yet", "dim"),), width)
    lines = _trouble_lines(event, now, width, height)
    height -= len(lines)
    if not event.gpus or height <= 0:
        return rows(lines or [fit((("no GPU is here", "dim"),), width)])
    look = _Look(model, event, shares(event, model.view), now, is_stale(event, now))
    return rows([*lines, *_rows(look, event.gpus, width, height)])


def _trouble_lines(event: GpuEvent, now: float, width: int, height: int) -> list[Pieces]:
    told = trouble(event, now)
    if not told:
        return []
    (text, role) = told[0]
    most = 1 if event.gpus else height
    found = wrapped(text, width)
    if len(found) > most:
        found = [clip(text, width)] if most == 1 else found[:most]
    return [fit(((line, role),), width) for line in found]


def _rows(look: _Look, gpus: Sequence[Gpu], width: int, height: int) -> list[Pieces]:
    if len(gpus) <= height:
        return _one_below_the_other(look, gpus, width, height)
    side_by_side = -(-len(gpus) // height)
    if side_by_side <= MOST_COLUMNS and (width + 2) // side_by_side - 2 >= NARROWEST:
        return _side_by_side(look, gpus, width, height, side_by_side)
    return _summed_up(look, gpus, width, height)


def _one_below_the_other(look: _Look, gpus: Sequence[Gpu], width: int, height: int) -> list[Pieces]:
    columns = plan(width, widths(gpus, look.now))
    out: list[Pieces] = []
    spare = height - len(gpus)
    for gpu in gpus:
        out.append(_row(look, gpu, columns, width))
        for note in notes(gpu, look.now) if columns.note < cells_of_notes(gpu, look.now) else ():
            if spare > 0:
                out.append(fit((("   ", "plain"), (f"└ {look.model.mask(note.words)}", note.role)), width))
                spare -= 1
    return out


def cells_of_notes(gpu: Gpu, now: float) -> int:
    """How wide all that there is to note is."""
    return cells(", ".join(note.words for note in notes(gpu, now)))


def _side_by_side(look: _Look, gpus: Sequence[Gpu], width: int, height: int, count: int) -> list[Pieces]:
    cell = (width + 2) // count - 2
    columns = plan(cell, widths(gpus, look.now))
    out: list[Pieces] = []
    for row in range(height):
        line: list[Piece] = []
        for gpu in gpus[row::height]:
            drawn = _row(look, gpu, columns, cell)
            line += [(" " * (2 if line else 0), "plain"), *drawn, (" " * (cell - length(drawn)), "plain")]
        if line:
            out.append(fit(line, width))
    return out


def _summed_up(look: _Look, gpus: Sequence[Gpu], width: int, height: int) -> list[Pieces]:
    """The ones with a trouble first have a row, and the last row stands for all that have none."""
    needy = [n for n, gpu in enumerate(gpus) if gpu.state is GpuState.LOST or notes(gpu, look.now)]
    order = [*needy, *(n for n in range(len(gpus)) if n not in set(needy))]
    kept = sorted(order[: height - 1])
    shown = [gpus[n] for n in kept]
    rest = [gpus[n] for n in range(len(gpus)) if n not in set(kept)]
    columns = plan(width, widths(shown or rest, look.now))
    return [*(_row(look, gpu, columns, width) for gpu in shown), _rest(look, rest, bool(shown), width)]


def _rest(look: _Look, gpus: Sequence[Gpu], more: bool, width: int) -> Pieces:
    told = sums(_of(look.event, gpus))
    whole = sum(gpu.parent is None for gpu in gpus)
    count = f"{whole} {'more' if more else 'GPUs'}" if whole else f"{len(gpus)} more instances"
    parts: list[Pieces] = [((f"{'+ ' if more else ''}{count}: {told.amount()}", "plain"),)]
    if told.lost:
        parts.append(((f"{told.lost} lost", "bad"),))
    if needy := sum(bool(notes(gpu, look.now)) for gpu in gpus):
        parts.append(((f"{needy} with a trouble", "warn"),))
    if told.percent is not None:
        parts.append(((f"busiest {told.percent} %", "dim"),))
    if told.temperature_c is not None:
        parts.append(((f"hottest {told.temperature_c}°", "dim"),))
    return fit(joined(parts), width)


def _of(event: GpuEvent, gpus: Sequence[Gpu]) -> list[Gpu]:
    """What of them has memory of its own."""
    wanted = {gpu.uuid for gpu in gpus}
    return [gpu for gpu in spaces(event) if gpu.uuid in wanted]


# ------------------------------------------------------------------------------------------------ one row


def _row(look: _Look, gpu: Gpu, columns: Columns, width: int) -> Pieces:
    number = f"{gpu.index}" if gpu.parent is None else f"└{gpu.index}"
    out: list[Piece] = [(right(number, columns.number), "dim" if gpu.parent else "plain")]
    if columns.name:
        whole = full_name(gpu) if columns.full_name else name_of(gpu)
        name = one_line(look.model.mask(whole)) if gpu.parent is None else "MIG"
        out.append((f" {left(name, columns.name)}", "dim" if gpu.parent else "plain"))
    if gpu.state is not GpuState.OK:
        return fit((*out, *_unwell(look, gpu)), width)
    out += _memory(look, gpu, columns)
    if columns.spark:
        out += _spark(look, gpu, columns.spark)
    out += [(f" {text}", "dim" if look.stale else role) for text, role in _figures(gpu, columns)]
    if columns.note or columns.spare:
        out += _noted(look, gpu, columns)
    return fit(out, width)


def _unwell(look: _Look, gpu: Gpu) -> Pieces:
    why = one_line(look.model.mask(gpu.why))
    if gpu.state is GpuState.LOST:
        return (("  ✘ LOST ", "bad"), (f" {why or 'it is to be reset, or the node to be rebooted'}", "warn"))
    if gpu.mig:
        return ((f"  {why or 'divided: its instances have the memory'}", "dim"),)
    return (("  ? not readable ", "warn"), (f" {why or unreadable(gpu)}", "dim"))


def _memory(look: _Look, gpu: Gpu, columns: Columns) -> list[Piece]:
    used, total = gpu.memory.used_bytes, gpu.memory.total_bytes
    room = (columns.bar + 3 if columns.bar else 0) + columns.amount + 1
    if used is None or not total:
        return [(" " + left(f"memory ? {unreadable(gpu)}", room - 1), "dim" if look.stale else "warn")]
    out: list[Piece] = []
    if columns.bar:
        of = look.shares.get(gpu.uuid, Shares()) if look.shares is not None else None
        drawn = memory_bar(used, total, of, columns.bar)
        if look.stale:
            drawn = tuple((text, "dim" if role != "left" else role) for text, role in drawn)
        out += [(" ▕", "dim"), *drawn, ("▏", "dim")]
    amount = f"{in_gib(used)}/{in_gib(total)}{' GiB' if columns.unit else ''}"
    out.append((" " + right(amount, columns.amount), "dim" if look.stale else "plain"))
    return out


def _spark(look: _Look, gpu: Gpu, count: int) -> list[Piece]:
    trail, total = look.model.trail.gpus.get(gpu.uuid), gpu.memory.total_bytes
    values = trail.used_bytes.spans(look.now, count) if trail is not None else [None] * count
    return [(" " + spark(values, float(total or 1)), "dim" if look.stale else "spark")]


def _figures(gpu: Gpu, columns: Columns) -> list[Piece]:
    out: list[Piece] = []
    percent = gpu.gpu_percent
    out.append((right(f"{percent} %" if percent is not None else "– %", 5), "plain" if percent is not None else "dim"))
    if columns.temperature:
        degrees = gpu.temperature_c
        out.append(
            (right(f"{degrees}°" if degrees is not None else "–°", 4), "plain" if degrees is not None else "dim")
        )
    if columns.power:
        limit = f"/{gpu.power_limit_w:.0f}" if columns.power_limit and gpu.power_limit_w is not None else ""
        power = f"{gpu.power_w:.0f}" if gpu.power_w is not None else "–"
        out.append((right(f"{power}{limit} W", columns.power), "dim"))
    if columns.clock:
        clock = f"{gpu.sm_clock_mhz:,}" if gpu.sm_clock_mhz is not None else "–"
        out.append((right(f"{clock} MHz", columns.clock), "dim"))
    if columns.bus:
        out.append((left(one_line(gpu.bus_id).lower(), columns.bus), "dim"))
    return out


def _noted(look: _Look, gpu: Gpu, columns: Columns) -> list[Piece]:
    found = notes(gpu, look.now)
    room = columns.note + columns.spare
    if not found:
        calm = usual(gpu)
        return [(f"  {calm}", "dim")] if calm and columns.spare >= cells(calm) + 2 else []
    worst = found[0].role
    words = look.model.mask(", ".join(note.words for note in found))
    if cells(words) > room:
        words = ", ".join(note.short for note in found)
    return [(" ▲ " if worst == "warn" else " ✘ ", worst), (clip(words, room), worst)]


# ------------------------------------------------------------------------------------------------ its title, one line


def title(model: SessionModel, now: float, width: int = 200) -> Pieces:
    """ "GPUs · 8 × PRO 6000 · 489.6 of 764.8 GiB · this run 351.0 GiB", and always whether they are simulated."""
    event = model.view.gpu
    if event is None:
        return (("GPUs", "plain"),)
    whole = [gpu for gpu in event.gpus if gpu.parent is None]
    signs: Pieces = (("simulated", "warn"),) if simulated(model.view, model.title) else ()
    name = one_line(model.mask(common_name(whole)))
    count: Pieces = ((f"{len(whole)} × {name}" if name else f"{len(whole)}", "plain"),) if whole else ()
    told = sums(spaces(event))
    amount: Pieces = ((told.amount(), "plain"),) if whole else ()
    lost: Pieces = ((f"{told.lost} lost", "bad"),) if told.lost else ()
    ours: Pieces = ((f"this run {gib(event.ours_bytes)}", "now"),) if event.ours_bytes is not None else ()
    driver: Pieces = ((f"driver {one_line(event.driver.version)}", "dim"),) if event.driver.version else ()
    head: Pieces = (("GPUs", "plain"),)
    return first_fitting(
        (
            joined((head, count, amount, ours, driver, lost, signs)),
            joined((head, count, amount, ours, lost, signs)),
            joined((head, count, amount, lost, signs)),
            joined((head, count, lost, signs)),
            joined((head, lost, signs)),
        ),
        width,
    )


def memory(event: GpuEvent | None, holders: Holders | None, now: float) -> Pieces:
    """A column a GPU, the sums, what of it is this run's, and what is left over. Nothing on a node without a GPU."""
    if event is None:
        return ()
    out: list[Piece] = [("gpus    ", "dim"), *columns(event)]
    told = sums(spaces(event))
    if told.known:
        out.append((f"  {told.amount()}", "plain"))
    if event.ours_bytes is not None:
        out.append((f" · this run {gib(event.ours_bytes)}", "plain"))
    if told.lost:
        out.append((f" · {told.lost} lost", "bad"))
    left_over = [item for item in (holders.holders if holders is not None else ()) if item.zombie]
    if left_over:
        amounts = [item.held_bytes for item in left_over]
        known = gib(sum(filter(None, amounts))) if None not in amounts else "an unknown amount"
        out.append((f" · {len(left_over)} left over with {known} (supervisor zombies)", "warn"))
    if event.driver.state is not DriverState.OK:
        out.append((f" · {one_line(event.driver.why)}", "warn"))
    elif now - event.at > STALE_S:
        out.append((f" · {running(now - event.at)} ago", "warn"))
    return tuple(out)


def columns(event: GpuEvent) -> Pieces:
    """One character a GPU."""
    return tuple(_column(gpu) for gpu in event.gpus if gpu.parent is None)


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


__all__ = ["Note", "columns", "held_by_pid", "memory", "table", "title"]
