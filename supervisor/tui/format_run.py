"""What the screen of one session says beside its parts: that its picture is paused, and the few large facts of the
wall layout. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from supervisor.core import events as ev
from supervisor.core.durations import spell
from supervisor.core.events import Phase
from supervisor.tui import big, format_finding
from supervisor.tui.format import LOADS, PHASE_ROLES, known_until, run_of
from supervisor.tui.model import SessionModel
from supervisor.tui.pieces import (
    Piece,
    Pieces,
    cells,
    clock_time,
    fit,
    joined,
    one_line,
    rows,
    running,
    spread,
    text_of,
)  # fmt: skip
from supervisor.tui.sparkline import gauge

_GAP = 6


def paused(header: Pieces, paused_s: float, width: int, key: str) -> Pieces:
    """The top line with its sign: the picture stands still, nothing else does."""
    sign: Piece = (f"‖ picture paused {running(paused_s)}: {key} goes on ", "warn")
    return fit((sign, *header), width)


def ordered(header: Pieces, order: str, order_s: float, width: int, key: str) -> Pieces:
    """The same for an order that goes on in the background."""
    return fit(((f"● {order} under way {running(order_s)}: {key} shows it ", "now"), *header), width)


def report(model: SessionModel) -> str:
    """What went wrong as plain text, to be pasted into a ticket: whose it is, when, the evidence, the finding."""
    view = model.view
    head = [f"{model.title} @ {model.node}" + (f", run {run_of(view)}" if run_of(view) else "")]
    for change in view.changes:
        words = "; ".join(item.text for item in change.evidence)
        head.append(f"{clock_time(change.at)} {ev.LABELS[change.to]}: {words}")
    found = format_finding.report(model)
    return model.mask("\n".join([*head, text_of(found.pieces) if found is not None else ""]).rstrip())


_SIGNS = {
    Phase.IDLE: "○",
    Phase.SERVING: "✔",
    Phase.DEGRADED: "▲",
    Phase.FAILED: "✘",
    Phase.STOPPING: "■",
    Phase.STOPPED: "■",
}


def window_title(models: Sequence[SessionModel]) -> str:
    """What a window is called: "✔ serving · kimi", "✘ 1 failed, 3 serving"; masked. It changes with a phase alone."""
    if len(models) == 1:
        model = models[0]
        phase = model.view.phase
        word = "left alone" if model.error else ev.LABELS[phase]
        return f"{'✘' if model.error else _SIGNS.get(phase, '●')} {word} · {model.mask(model.title)}"
    counts = Counter(Phase.FAILED if model.error else model.view.phase for model in models)
    order = sorted(counts, key=lambda phase: (phase is not Phase.FAILED, phase is not Phase.DEGRADED, phase.value))
    sign = _SIGNS.get(order[0], "●") if order else "○"
    return f"{sign} " + ", ".join(f"{counts[phase]} {ev.LABELS[phase]}" for phase in order)


def wall(model: SessionModel, now: float, width: int, height: int) -> Pieces:
    """The phase and how long it has lasted in letters for people far away; the load, how full it is, what is left."""
    view = model.view
    now = known_until(view, now)
    clock = _clock(now - view.since) if view.changes else ""
    load = _load(view.progress, now, width, model) if view.phase in LOADS and view.progress is not None else []
    letters = _letters(ev.LABELS[view.phase], clock, PHASE_ROLES.get(view.phase, "now"), width, height - len(load) - 1)
    return rows([*letters, (), *load][:height] if load else letters[:height])


def _clock(seconds: float) -> str:
    """As a clock shows it: 0:07, 6:38, 1:02:03."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _letters(word: str, clock: str, role: str, width: int, height: int) -> list[Pieces]:
    both = f"{word} {clock}".strip()
    most = max(1, height * 2 // big.DOTS_HIGH)
    scale = big.scale_for(both, width - _GAP, most)
    if scale < 1:
        return [fit(((word.upper(), role), (f"  {clock}", "plain")), width)]
    left, right = big.rows(word, scale), big.rows(clock, scale) if clock else []
    out: list[Pieces] = []
    for number, row in enumerate(left):
        time = right[number] if right else ""
        out.append(spread(((row, role),), ((time, "strong"),), width))
    return out


def _load(event: ev.Progress, now: float, width: int, model: SessionModel) -> list[Pieces]:
    parts: list[Pieces] = [((one_line(model.mask(event.stage)), "strong"),)]
    if event.done is not None:
        parts.append(((f"{event.done:,}" + (f" of {event.total:,}" if event.total is not None else ""), "plain"),))
    if event.fraction is not None:
        parts.append(((f"{int(event.fraction * 100)} %", "strong"),))
    if event.eta_s is not None:
        parts.append(((f"≈ {spell(max(0.0, event.eta_s - max(0.0, now - event.at)))} left", "strong"),))
    out: list[Pieces] = [fit(joined(parts), width)]
    if event.fraction is not None:
        bar = gauge(event.fraction, width)
        full = bar.rstrip()
        # Another character, not only another colour: there are terminals without.
        row: Pieces = ((full, "now"), ("░" * (cells(bar) - cells(full)), "track"))
        out += [row, row]
    return out
