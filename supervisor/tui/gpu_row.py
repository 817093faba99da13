"""One GPU as one row of the table: which figures stand in its columns, and what is wrong with it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from supervisor.core.gpu import Gpu, GpuState
from supervisor.core.gpu_events import GpuEvent
from supervisor.tui.gpu_columns import Columns
from supervisor.tui.gpu_memory import Shares, memory_bar
from supervisor.tui.gpu_words import Note, full_name, name_of, notes, unexplained, unreadable, usual
from supervisor.tui.model import SessionModel
from supervisor.tui.pieces import Piece, Pieces, cells, first_fitting, fit, in_gib, left, length, one_line, right
from supervisor.tui.sparkline import spark

LEAST_NOTE = 4
"""Cells in which a trouble can be named."""


class Look(Struct, frozen=True):
    """What every row of one drawing needs."""

    model: SessionModel
    event: GpuEvent
    shares: Mapping[str, Shares] | None
    now: float
    stale: bool


def row(look: Look, gpu: Gpu, columns: Columns, width: int) -> Pieces:
    found, dim = notes(gpu), gpu.parent is not None
    parts: list[Pieces] = []
    if columns.name:
        whole = full_name(gpu) if columns.full_name else name_of(gpu)
        name = one_line(look.model.mask(whole)) if not dim else "MIG"
        parts.append(((left(name, columns.name), "dim" if dim else "plain"),))
    if gpu.state is GpuState.OK:
        parts += _memory(look, gpu, columns)
        figures: list[Pieces] = [((text, "dim" if look.stale else role),) for text, role in _figures(gpu, columns)]
        load: list[Pieces] = [_spark(look, gpu, columns.load, load=True)] if columns.load else []
        parts += [figures[0], *load, *figures[1:]]
    named = columns.note + columns.spare >= LEAST_NOTE
    # In the narrowest of cells a sign instead of a blank has to do.
    joint: Piece = (_sign(found[0]), found[0].role) if found and not named else (" ", "plain")
    out: list[Piece] = [(right(f"└{gpu.index}" if dim else f"{gpu.index}", columns.number), "dim" if dim else "plain")]
    for part in parts:
        out += [joint, *part]
        joint = (" ", "plain")
    if gpu.state is not GpuState.OK:
        return (*out, *_unwell(look, gpu, width - length(out)))
    return fit((*out, *(_noted(look, gpu, columns) if named else ())), width)


def _unwell(look: Look, gpu: Gpu, room: int) -> Pieces:
    why = one_line(look.model.mask(gpu.why))
    if gpu.state is GpuState.LOST:
        told = [why] if why else []
        return first_fitting(
            [
                (("  ✘ LOST ", "bad"), (f" {text}", "warn"))
                for text in (*told, "reset it, or reboot the node", "reset it")
            ],
            room,
        )
    if gpu.mig:
        return fit(((f"  {why or 'divided: its instances have the memory'}", "dim"),), room)
    return fit((("  ? not readable ", "warn"), (f" {why or unreadable(gpu)}", "dim")), room)


def _memory(look: Look, gpu: Gpu, columns: Columns) -> list[Pieces]:
    used, total = gpu.memory.used_bytes, gpu.memory.total_bytes
    if used is None or not total:
        room = columns.amount + (columns.bar + 3 if columns.bar else 0) + (columns.spark + 1 if columns.spark else 0)
        return [((left(f"memory unknown: {unreadable(gpu)}", room), "dim" if look.stale else "warn"),)]
    out: list[Pieces] = []
    if columns.bar:
        of = look.shares.get(gpu.uuid, Shares()) if look.shares is not None else None
        drawn = memory_bar(used, total, of, columns.bar)
        if look.stale:
            drawn = tuple((text, "dim" if role != "left" else role) for text, role in drawn)
        out.append((("▕", "dim"), *drawn, ("▏", "dim")))
    amount = f"{in_gib(used)}/{in_gib(total)}{' GiB' if columns.unit else ''}"
    out.append(((right(amount, columns.amount), "dim" if look.stale else "plain"),))
    if columns.spark:
        out.append(_spark(look, gpu, columns.spark))
    return out


def _spark(look: Look, gpu: Gpu, count: int, *, load: bool = False) -> Pieces:
    """The history of the memory against all that there is, or of the utilisation."""
    trail = look.model.trail.gpus.get(gpu.uuid)
    series = None if trail is None else trail.percent if load else trail.used_bytes
    values = series.spans(look.now, count) if series is not None else [None] * count
    top = 100.0 if load else float(gpu.memory.total_bytes or 1)
    return ((spark(values, top), "dim" if look.stale else "spark"),)


def _figures(gpu: Gpu, columns: Columns) -> list[Piece]:
    # An instance has none of its own; of a GPU a dash says that a figure is missing.
    none = "–" if gpu.parent is None else ""
    out: list[Piece] = [_figure(gpu.gpu_percent, " %", none, 5)]
    if columns.temperature:
        out.append(_figure(gpu.temperature_c, "°", none, 4))
    if columns.power:
        limit = f"/{gpu.power_limit_w:.0f}" if columns.power_limit and gpu.power_limit_w is not None else ""
        text, _role = _figure(gpu.power_w, f"{limit} W", none, columns.power)
        out.append((text, "dim"))
    if columns.clock:
        text, _role = _figure(gpu.sm_clock_mhz, " MHz", none, columns.clock)
        out.append((text, "dim"))
    if columns.bus:
        out.append((left(one_line(gpu.bus_id).lower() if gpu.parent is None else "", columns.bus), "dim"))
    return out


def _figure(value: float | None, unit: str, none: str, width: int) -> Piece:
    text = f"{value:,.0f}{unit}" if value is not None else f"{none}{unit}" if none else ""
    return right(text, width), "plain" if value is not None else "dim"


def _noted(look: Look, gpu: Gpu, columns: Columns) -> list[Piece]:
    found = notes(gpu)
    if not found:
        words, role = nobodys(look, gpu), "warn"
        if not words:
            words, role = usual(gpu), "dim"
        return [(f"  {words}", role)] if words and cells(words) + 2 <= columns.spare else []
    role = found[0].role
    short = [note.short for note in found[1:]]
    told: list[list[Piece]] = [
        [(look.model.mask(", ".join(words)), role)]
        for words in ([note.words for note in found], [found[0].words, *short], [found[0].short, *short])
    ]
    return [(f" {_sign(found[0])} ", role), *first_fitting(told, columns.note + columns.spare)]


def _sign(note: Note) -> str:
    return "▲" if note.role == "warn" else "✘"


def nobodys(look: Look, gpu: Gpu) -> str:
    """Memory that neither a process in the list nor a holder accounts for."""
    of = look.shares.get(gpu.uuid) if look.shares is not None else None
    explained = of is not None and of.others + of.left > 0 and not gpu.held_bytes
    return "" if explained or gpu.state is not GpuState.OK else unexplained(gpu)
