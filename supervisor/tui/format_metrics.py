"""What the engine tells of its load while it serves: tokens a second, running and queued requests, cache. Pure."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from supervisor.core.trail import Series
from supervisor.tui.model import SessionModel
from supervisor.tui.pieces import Pieces, age, cells, fit, joined, length, one_line, right, rows, spread, wrapped
from supervisor.tui.sparkline import gauge, spark

OLD_S = 10.0
"""The engine is asked about every two seconds."""
LABEL_CELLS = 9
VALUE_CELLS = 8
GAP = 3
LEAST_HALF = 36
"""Two figures side by side need at least as much each."""


class Figure(Struct, frozen=True):
    """One row."""

    name: str
    value: float | None
    series: Series
    least_top: float
    """A history is drawn against its own highest value, and against this where that is lower: noise is no load."""
    spell: Callable[[float], str]


def lines(model: SessionModel, now: float, width: int, height: int = 4) -> Pieces:
    """A row a figure with its history of five minutes; in two rows two of them side by side, in one figures alone."""
    metrics = model.trail.metrics
    if metrics is None:
        return fit((("the engine's metrics have not been read yet", "dim"),), width)
    figures = _figures(model)
    if all(figure.value is None for figure in figures):
        why = one_line(model.mask(metrics.why)) or "the engine tells nothing of its load"
        found = wrapped(f"not known: {why}", width)[: max(1, height)]
        return rows(fit(((line, "dim"),), width) for line in found)
    late: Pieces = ((f"{age(now - metrics.at)} ago", "warn"),) if now - metrics.at > OLD_S else ()
    half = (width - GAP) // 2
    if height < 2 or (height < len(figures) and half < LEAST_HALF):
        return _one_line(figures, late, width)
    if height < len(figures):
        return _in_pairs(figures, late, now, width, half)
    drawn = [_row(figure, now, width) for figure in figures]
    if late and height > len(figures):
        drawn.append(late)
    elif late:
        drawn[-1] = fit((*drawn[-1], ("  ", "plain"), *late), width)
    return rows(drawn)


def _in_pairs(figures: tuple[Figure, ...], late: Pieces, now: float, width: int, half: int) -> Pieces:
    """The load at the left, what waits and what is kept for it at the right."""
    lines: list[Pieces] = []
    for first, second in (figures[:3:2], figures[1::2]):
        head = _row(first, now, half)
        lines.append((*head, (" " * (half + GAP - length(head)), "plain"), *_row(second, now, half)))
    if late:
        lines[-1] = spread(lines[-1], late, width)
    return rows(fit(line, width) for line in lines)


def _figures(model: SessionModel) -> tuple[Figure, ...]:
    trail = model.trail
    assert trail.metrics is not None
    tokens = Figure("tok/s", trail.metrics.generated_tokens_s, trail.generated_tokens_s, 1.0, _rate)
    running = Figure("running", _float(trail.metrics.running), trail.running, 4.0, _count)
    queued = Figure("queued", _float(trail.metrics.queued), trail.queued, 4.0, _count)
    prompt = Figure("prompt/s", trail.metrics.prompt_tokens_s, trail.prompt_tokens_s, 1.0, _rate)
    cache = Figure("KV cache", trail.metrics.cache_share, trail.cache_share, 1.0, _share)
    last = cache if cache.value is not None or prompt.value is None else prompt
    return (tokens, running, queued, last)


def _row(figure: Figure, now: float, width: int) -> Pieces:
    value = figure.spell(figure.value) if figure.value is not None else "–"
    role = "strong" if figure.value is not None else "dim"
    room = min(60, width - LABEL_CELLS - VALUE_CELLS - 2)
    picture: Pieces = ()
    if room >= 6:
        if figure.spell is _share and figure.value is not None:
            bar = gauge(figure.value, min(20, room - 2))
            picture = (
                ("▕", "dim"),
                (bar.rstrip(), "now"),
                (" " * (len(bar) - len(bar.rstrip())), "track"),
                ("▏", "dim"),
            )
        else:
            picture = ((_history(figure, now, room), "spark"),)
    queued = figure.name == "queued" and bool(figure.value)
    value_piece = (right(value, VALUE_CELLS), "warn" if queued else role)
    return fit(((figure.name.ljust(LABEL_CELLS), "dim"), value_piece, ("  ", "plain"), *picture), width)


def _history(figure: Figure, now: float, room: int) -> str:
    values = figure.series.spans(now, room)
    known = [value for value in values if value is not None]
    return spark(values, max([figure.least_top, *known]))


def _one_line(figures: tuple[Figure, ...], late: Pieces, width: int) -> Pieces:
    parts: list[Pieces] = []
    for figure in figures:
        value = figure.spell(figure.value) if figure.value is not None else "–"
        part: Pieces = ((f"{figure.name} ", "dim"), (value, "strong" if figure.value is not None else "dim"))
        parts.append(part)
    while len(parts) > 1 and cells("".join(text for text, _ in joined([*parts, late]))) > width:
        parts.pop()
    return fit(joined([*parts, late]), width)


def _float(value: int | None) -> float | None:
    return None if value is None else float(value)


def _rate(value: float) -> str:
    return f"{value:,.1f}" if value < 10 else f"{value:,.0f}"


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _share(value: float) -> str:
    return f"{value * 100:.0f} %"
