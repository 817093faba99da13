"""What the console says of the GPUs: a table of them, its title, and one line of memory. Pure.

A figure that could not be read is "–" or "?", never a number. Figures that are the last known are drawn dim.
"""

from __future__ import annotations

from collections.abc import Sequence

from supervisor.core.gpu import Gpu, GpuState, gib
from supervisor.core.gpu_events import GpuEvent
from supervisor.tui.format import simulated
from supervisor.tui.gpu_columns import Columns, plan, widths
from supervisor.tui.gpu_memory import shares
from supervisor.tui.gpu_row import Look, nobodys, row
from supervisor.tui.gpu_words import (
    common_name,
    is_stale,
    notes,
    spaces,
    sums,
    troubles,
    unexplained,
)  # fmt: skip
from supervisor.tui.model import SessionModel
from supervisor.tui.pieces import (
    Piece,
    Pieces,
    cells,
    first_fitting,
    fit,
    joined,
    length,
    one_line,
    rows,
    wrapped,
)  # fmt: skip
from supervisor.tui.sparkline import LEVELS

GAP = 2
NARROWEST = 24
"""A GPU in fewer cells than this tells nothing."""
MOST_COLUMNS = 6
MOST_NOTES = 4
"""More rows than this for what is wrong are not asked for: each GPU has its sign anyway."""


# ------------------------------------------------------------------------------------------------ the table


def table(model: SessionModel, now: float, width: int, height: int) -> Pieces:
    """A row a GPU. More GPUs than rows stand side by side in fewer words, or are summed up in the last row."""
    event = model.view.gpu
    if height <= 0 or width <= 0:
        return ()
    if event is None:
        return fit((("no GPU has been looked at yet", "dim"),), width)
    told = troubles(event, now)
    if not event.gpus:
        text, role = told[0] if told else ("no GPU is here", "dim")
        return rows(fit(((line, role),), width) for line in wrapped(model.mask(text), width)[:height])
    # What has but few words stands in the title alone.
    spare = height > len(event.gpus) and len(told) > 1
    lines = [first_fitting(([piece] for piece in told), width)] if spare else []
    look = Look(model, event, shares(event, model.view), now, is_stale(event, now))
    return rows([*lines, *_rows(look, event.gpus, width, height - len(lines))])


def _rows(look: Look, gpus: Sequence[Gpu], width: int, height: int) -> list[Pieces]:
    if len(gpus) <= height:
        return _one_below_the_other(look, gpus, width, height)
    most = max(1, min(MOST_COLUMNS, (width + GAP) // (NARROWEST + GAP)))
    if len(gpus) <= height * most:
        return _side_by_side(look, gpus, width, height, -(-len(gpus) // height))
    return _summed_up(look, gpus, width, height, most)


def _one_below_the_other(look: Look, gpus: Sequence[Gpu], width: int, height: int) -> list[Pieces]:
    spare = height - len(gpus)
    columns = plan(width, widths(gpus), spelt=not spare)
    out: list[Pieces] = []
    for gpu in gpus:
        out.append(row(look, gpu, columns, width))
        words, role = _below(look, gpu, columns)
        lines = wrapped(words, width, first="   └ ", rest="     ")[:spare] if words and spare else []
        out += [fit(((line, role),), width) for line in lines]
        spare -= len(lines)
    return out


def _below(look: Look, gpu: Gpu, columns: Columns) -> Piece:
    """What the row of a GPU had no room for."""
    found = notes(gpu)
    words = look.model.mask(" · ".join(note.words for note in found))
    if found:
        return (words, found[0].role) if cells(words) > columns.note + columns.spare else ("", "plain")
    words = nobodys(look, gpu)
    return (words, "warn") if cells(words) + 2 > columns.spare else ("", "plain")


def _side_by_side(look: Look, gpus: Sequence[Gpu], width: int, height: int, count: int) -> list[Pieces]:
    """Column by column, from top to bottom."""
    cell = (width + GAP) // count - GAP
    columns = plan(cell, widths(gpus), spelt=True)
    out: list[Pieces] = []
    for first in range(min(height, len(gpus))):
        line: list[Piece] = []
        for gpu in gpus[first::height]:
            if line:
                line.append((" " * ((cell + GAP) - length(line) % (cell + GAP)), "plain"))
            line += row(look, gpu, columns, cell)
        out.append(fit(line, width))
    return out


def _summed_up(look: Look, gpus: Sequence[Gpu], width: int, height: int, most: int) -> list[Pieces]:
    """Those with a trouble have a place first, and the last row stands for all that have none."""
    needy = [n for n, gpu in enumerate(gpus) if gpu.state is GpuState.LOST or notes(gpu)]
    order = [*needy, *(n for n in range(len(gpus)) if n not in set(needy))]
    kept = set(order[: (height - 1) * most])
    shown = [gpu for n, gpu in enumerate(gpus) if n in kept]
    rest = [gpu for n, gpu in enumerate(gpus) if n not in kept]
    above = _side_by_side(look, shown, width, height - 1, most) if shown else []
    return [*above, _rest(look, rest, bool(shown), width)]


def _rest(look: Look, gpus: Sequence[Gpu], more: bool, width: int) -> Pieces:
    told = sums(_of(look.event, gpus))
    whole = sum(gpu.parent is None for gpu in gpus)
    count = f"{whole} {'more' if more else 'GPUs'}" if whole else f"{len(gpus)} more instances"
    parts: list[Pieces] = [((f"{'+ ' if more else ''}{count}: {told.amount()}", "plain"),)]
    if told.lost:
        parts.append(((f"{told.lost} lost", "bad"),))
    if needy := sum(bool(notes(gpu)) for gpu in gpus):
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


def rows_wanted(model: SessionModel, now: float | None = None) -> int:
    """Rows that the table would fill: its GPUs, what is wrong with them, what is wrong with all of it."""
    event = model.view.gpu
    if event is None:
        return 0
    at = event.at if now is None else now
    told = sum(bool(notes(gpu) or unexplained(gpu)) for gpu in event.gpus)
    return max(1, len(event.gpus) + min(told, MOST_NOTES) + (len(troubles(event, at)) > 1))


# ------------------------------------------------------------------------------------------------ its title, one line


def title(model: SessionModel, now: float, width: int = 200) -> Pieces:
    """ "GPUs · 8 × PRO 6000 · 489.6 of 764.8 GiB · this run 351.0 GiB", and always whether they are simulated."""
    event = model.view.gpu
    if event is None:
        return (("GPUs", "plain"),)
    whole = [gpu for gpu in event.gpus if gpu.parent is None]
    told, wrong = sums(spaces(event)), troubles(event, now)
    name = one_line(model.mask(common_name(whole)))
    unified = " unified" if whole and all(gpu.memory.kind != "device" for gpu in whole) else ""
    signs: Pieces = (("simulated", "warn"),) if simulated(model.view, model.title) else ()
    count: Pieces = ((f"{len(whole)} × {name}" if name else f"{len(whole)}", "plain"),) if whole else ()
    amount: Pieces = ((f"{told.amount()}{unified}", "plain"),) if whole else ()
    lost: Pieces = ((f"{told.lost} lost", "bad"),) if told.lost else ()
    ours: Pieces = ((f"this run {gib(event.ours_bytes)}", "now"),) if event.ours_bytes is not None else ()
    driver: Pieces = ((f"driver {one_line(event.driver.version)}", "dim"),) if event.driver.version else ()
    head: Pieces = (("GPUs", "plain"),)
    short: Pieces = (wrong[-1],) if wrong else ()
    return first_fitting(
        (
            joined((head, count, amount, ours, driver, lost, short, signs)),
            joined((head, count, amount, ours, lost, short, signs)),
            joined((head, count, amount, lost, short, signs)),
            joined((head, count, lost, short, signs)),
            joined((head, lost, short, signs)),
            joined((head, signs, lost, short)),
        ),
        width,
    )


def memory(model: SessionModel, now: float, width: int = 0) -> Pieces:
    """A column a GPU, the sums, what of it is this run's, and what is left over. Nothing on a node without a GPU.

    Args:
        width: cut to it; 0 leaves it whole.
    """
    event, holders = model.view.gpu, model.view.holders
    if event is None:
        return ()
    out: list[Piece] = [("gpus    ", "dim"), *columns(event)]
    told = sums(spaces(event))
    if told.known:
        out.append((f"  {told.amount()}", "plain"))
    # What needs a hand comes first: the end of the line is what a narrow screen cuts.
    if told.lost:
        out.append((f" · {told.lost} lost", "bad"))
    if wrong := troubles(event, now):
        words, role = wrong[-1] if event.gpus else wrong[len(wrong) // 2]
        out.append((f" · {words}" if event.gpus else words, role))
    left_over = [item for item in (holders.holders if holders is not None else ()) if item.zombie]
    if left_over:
        known = sum(amount or 0 for item in left_over for amount in item.held.values())
        key = model.hints.of("console.zombies")
        out.append((f" · {key}: {len(left_over)} left over{f' with {gib(known)}' if known else ''}", "bad"))
    if event.ours_bytes is not None:
        out.append((f" · this run {gib(event.ours_bytes)}", "now"))
    return fit(out, width) if width else tuple(out)


def columns(event: GpuEvent) -> Pieces:
    """One character a GPU."""
    return tuple(_column(gpu) for gpu in event.gpus if gpu.parent is None)


def _column(gpu: Gpu) -> Piece:
    used, total = gpu.memory.used_bytes, gpu.memory.total_bytes
    if gpu.state is GpuState.LOST:
        return ("✗", "bad")
    if used is None or not total:
        return ("?", "dim")
    share = min(1.0, max(0.0, used / total))
    return (LEVELS[min(len(LEVELS) - 1, int(share * len(LEVELS)))], "now" if share > 0.01 else "dim")
