"""What the console says of several profiles: a row each, a tile each, and the sums. Pure, as in `pieces.py`.

Every function draws from one `SessionModel`; what a profile is called and what of it is text of a node's is masked
before it is cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from supervisor.core.events import LinkState, Phase
from supervisor.core.gpu import GIB
from supervisor.tui import big
from supervisor.tui.format_summary import Summary, summary
from supervisor.tui.model import SessionModel
from supervisor.tui.pieces import (
    Piece,
    Pieces,
    age,
    clip,
    fit,
    joined,
    left,
    length,
    one_line,
    right,
    rows,
    spread,
    wrapped,
)
from supervisor.tui.sparkline import gauge, thin

_SERVES = (Phase.HEALTHY, Phase.SERVING, Phase.DEGRADED)
_OVER = (Phase.IDLE, Phase.FAILED, Phase.STOPPED)
_DOING = {"stop": "stopping", "restart": "restarting", "clear": "clearing"}
_SHORT = {
    "PREFLIGHT": "CHECK",
    "LAUNCHING": "START",
    "LOADING": "LOAD",
    "SERVING": "SERVE",
    "FAILED": "FAIL",
    "STOPPING": "STOP",
    "STOPPED": "STOP",
    "LOOKING": "LOOK",
    "REFUSED": "NO",
}
"""For large letters: what else the state can be called."""
WIDE_FROM = 150
TILE_LEAST = 16
WORD_CELLS = 23
"""Of a tile in which "SERVE" stands in the smallest of the large letters."""
NARROW_BELOW = 100


class Columns(Struct, frozen=True):
    """How wide each column is; 0: it is left out. What is wrong takes the rest of the line."""

    title: int
    node: int
    link: int
    phase: int
    progress: int
    memory: int
    health: int


# ------------------------------------------------------------------------------------------------ one session in words


def tone(model: SessionModel, busy: str = "") -> str:
    """The role that a whole row or tile is seen in: `bad` needs a hand, `warn` a look."""
    return _tone(model, summary(model, 0.0), busy)


def _tone(model: SessionModel, told: Summary, busy: str) -> str:
    phase = model.view.phase
    if model.error or phase is Phase.FAILED:
        return "bad"
    if busy:
        return "now"
    if phase is Phase.IDLE:
        return "bad" if _refused(model) else "dim"
    if not told.trouble[0] or phase is Phase.STOPPED or _only_warned(model, told):
        return told.phase[1]
    return told.trouble[1]


def _only_warned(model: SessionModel, told: Summary) -> bool:
    """Whether the trouble is a warning alone: one about PATH must not paint a server that serves."""
    warnings = model.view.warnings
    return bool(warnings) and told.trouble[0] == one_line(model.mask(warnings[-1].text))


def _refused(model: SessionModel) -> bool:
    """Nothing was launched, and why is told."""
    return model.view.phase is Phase.IDLE and bool(model.view.changes or model.view.warnings)


def state(model: SessionModel, told: Summary, busy: str = "") -> Piece:
    """The phase, or what stands in its way: a mark and a word."""
    if model.error:
        return "✘ not watched", "bad"
    if busy:
        return f"● {_DOING.get(busy, busy)}", "now"
    if _refused(model):
        return "✘ refused", "bad"
    return ("○ looking", "dim") if model.view.phase is Phase.IDLE else told.phase


def progress(model: SessionModel, told: Summary, width: int) -> Pieces:
    """How far the load is, or what the server has to do; nothing where neither is known."""
    metrics = model.trail.metrics
    if told.stage:
        return _load(told, width)
    if model.view.phase in _SERVES and metrics is not None and not metrics.why:
        parts: list[list[Piece]] = []
        if metrics.generated_tokens_s is not None:
            parts.append([(f"{metrics.generated_tokens_s:,.0f} tok/s", "plain")])
        if metrics.running is not None:
            parts.append([(f"{metrics.running:,} running", "plain")])
        if metrics.queued:
            parts.append([(f"{metrics.queued:,} queued", "warn")])
        return fit(joined(parts), width)
    return ()


def _load(told: Summary, width: int) -> Pieces:
    at_end: list[Piece] = []
    if told.fraction is not None:
        at_end.append((f" {int(told.fraction * 100):>3} %", "strong"))
    if told.left_s is not None:
        at_end.append((f" ≈{age(told.left_s)}", "dim"))
    room = width - length(at_end)
    if told.fraction is None:
        return fit(((left(told.stage, max(0, room)), "plain"), *at_end), width)
    stage = clip(told.stage, min(14, room - 7)) + " " if room >= 14 else ""
    done, rest = thin(told.fraction, max(0, min(24, room - length(((stage, ""),)))))
    return fit(((stage, "plain"), (done, "now"), (rest, "track"), *at_end), width)


def health(model: SessionModel, told: Summary) -> Piece:
    """The last answer; nothing of a server that is not there any more."""
    return ("", "plain") if model.view.phase in _OVER else told.health


def link(model: SessionModel) -> Piece:
    """The link, with its round trip where it is known."""
    event = model.view.link
    if event is None or event.state is LinkState.CONNECTING:
        return "◌ …", "now"
    if event.state is LinkState.UP:
        return ("● up" if model.rtt_ms is None else f"● {model.rtt_ms:.0f} ms"), "good"
    return f"○ {event.state.value}", "bad" if event.state is LinkState.DOWN else "warn"


def since(model: SessionModel, told: Summary) -> str:
    """How long the phase has lasted, in at most five cells."""
    return age(told.since_s) if model.view.changes else ""


# ------------------------------------------------------------------------------------------------ the table


def columns(models: Sequence[SessionModel], width: int) -> Columns:
    """Columns that fit `width`: names as wide as the longest needs, up to a bound."""
    titles = max((len(model.title) for model in models), default=0)
    nodes = max((len(model.node) for model in models), default=0)
    if width >= WIDE_FROM:
        return Columns(_between(7, titles, 32), _between(4, nodes, 32), 9, 13, 34, 26, 16)
    if width >= NARROW_BELOW:
        return Columns(_between(7, titles, 24), _between(4, nodes, 18), 8, 12, 0, 22, 0)
    return Columns(_between(7, titles, 16), _between(4, nodes, 10), 0, 12, 0, 7, 0)


def heading(cols: Columns, width: int) -> Pieces:
    """The columns' names, in the cells of `row`."""
    cells = [("  ", 2), ("profile", cols.title), ("node", cols.node), ("link", cols.link), ("phase", cols.phase)]
    text = "".join(left(name, size) + "  " if number else name for number, (name, size) in enumerate(cells) if size)
    text += right("for", 5) + "  "
    rest = [
        ("load", cols.progress),
        ("GPU memory" if cols.memory > 9 else "memory", cols.memory),
        ("health", cols.health),
    ]
    text += "".join(left(name, size) + "  " for name, size in rest if size)
    text += "what is wrong" if cols.progress else "load, health, what is wrong"
    return fit(((text, "dim"),), width)


def row(model: SessionModel, now: float, cols: Columns, width: int, *, busy: str = "") -> Pieces:
    """One profile on one line."""
    told = summary(model, now)
    bad = _tone(model, told, busy) == "bad"
    out: list[Piece] = [("  ", "plain"), (left(told.title, cols.title) + "  ", "bad" if bad else "strong")]
    out.append((left(told.node, cols.node) + "  ", "plain"))
    if cols.link:
        out += _cell((link(model),), cols.link)
    out += _cell((state(model, told, busy),), cols.phase)
    out.append((right(since(model, told), 5) + "  ", "plain"))
    if cols.progress:
        out += _cell(progress(model, told, cols.progress), cols.progress)
    out += _memory_cell(told, cols.memory)
    if cols.health:
        out += _cell((health(model, told),), cols.health)
        out.append(told.trouble)
    else:
        out += _gist(model, told, max(0, width - length(out)))
    return fit(out, width)


def _gist(model: SessionModel, told: Summary, width: int) -> Pieces:
    """The one thing to know, where there is room for one: what is wrong, how far it is, how its health is."""
    if told.trouble[0] and not _only_warned(model, told):
        return (told.trouble,)
    return progress(model, told, width) or (told.trouble if told.trouble[0] else health(model, told),)


def _cell(pieces: Pieces, width: int) -> Pieces:
    shown = fit(pieces, width)
    return (*shown, (" " * (width - length(shown) + 2), "plain"))


def _memory_cell(told: Summary, width: int) -> Pieces:
    if told.used_bytes is None or not told.total_bytes:
        return ((" " * (width + 2), "plain"),)
    text = f"{told.used_bytes / GIB:,.0f}/{told.total_bytes / GIB:,.0f} GiB"
    if len(text) > width:
        text = f"{told.used_bytes / GIB:,.0f} GiB"
    bar = width - len(text) - 1
    if bar < 6:
        return ((left(text, width) + "  ", "plain"),)
    return ((gauge(told.used_bytes / told.total_bytes, bar), "used"), (f" {text}  ", "plain"))


def totals(models: Sequence[SessionModel], now: float, width: int) -> Pieces:
    """The top line: how many there are, and how many of them in which state; what needs a hand comes first."""
    told = [(model, summary(model, now)) for model in models]
    states = [state(model, item) for model, item in told]
    counts = Counter(word.partition(" ")[2] for word, _role in states)
    roles = {word.partition(" ")[2]: role for word, role in states}
    order = sorted(counts, key=lambda word: ("bad", "warn").index(roles[word]) if roles[word] in ("bad", "warn") else 2)
    groups: list[list[Piece]] = [[(f"{counts[word]} {word}", roles[word])] for word in order]
    if lost := sum(item.link[1] in ("warn", "bad") for _model, item in told):
        groups.append([(f"{lost} link{'' if lost == 1 else 's'} lost", "warn")])
    at_left: list[Piece] = [("supervisor", "dim"), (f" · {len(models)} profiles", "strong")]
    if any(item.simulated for _model, item in told):
        at_left.append(("  SIMULATED", "warn"))
    return spread(at_left, joined(groups), width)


def detail(model: SessionModel, now: float, width: int, height: int, *, busy: str = "") -> Pieces:
    """The selected profile in full: where, since when, and all of what is wrong; `height` lines at most."""
    told = summary(model, now)
    first: list[Piece] = [(f"{told.title} @ {told.node}", "strong"), ("  ", "plain"), state(model, told, busy)]
    if passed := since(model, told):
        first.append((f" for {passed}", "plain"))
    first += [(f" · {told.stage}", "plain")] if told.stage else []
    answer = health(model, told)
    first += [(" · health ", "dim"), answer] if answer[0] else []
    at_right: list[Piece] = [(f"run {model.view.run_id}", "dim")] if model.view.run_id else []
    text, role = told.trouble
    if not text and model.view.changes:
        text, role = model.mask(" · ".join(item.text for item in model.view.changes[-1].evidence)), "dim"
    found = wrapped(text, width) if text else []
    shown = found[: max(0, height - 1)]
    if len(found) > len(shown) and shown:
        shown[-1] = clip(f"{shown[-1]} …", width - 1)
    return rows([spread(first, at_right, width), *(((line, role),) for line in shown)])


# ------------------------------------------------------------------------------------------------ the wall


def _about(model: SessionModel, told: Summary) -> str:
    """How long the phase has lasted, as it is read from afar: seconds that run would paint every tile each second."""
    if not model.view.changes:
        return ""
    minutes = int(told.since_s) // 60
    return age(told.since_s) if not minutes else f"{minutes} min" if minutes < 100 else age(max(3600.0, told.since_s))


def tile(model: SessionModel, now: float, width: int, height: int, *, busy: str = "") -> Pieces:
    """One profile as a tile of `height` rows: its state in letters as large as there is room for."""
    told = summary(model, now)
    word, role = state(model, told, busy)
    first = spread(((told.title, "strong"),), ((_about(model, told), "plain"),), width)
    below: list[Pieces] = [fit((told.trouble,), width)] if told.trouble[0] else []
    below += [_tile_load(model, told, width), fit(((told.node, "dim"),), width)]
    below = [line for line in below if line]
    drawn = _letters(word, role, width, height - 1 - min(len(below), 1))
    if len(drawn) + len(below) < height - 2:
        drawn.insert(0, ())
    lines = [first, *drawn, *below][:height]
    return rows([*lines, *[()] * (height - len(lines))])  # always as many: another number would move the whole wall


def _letters(word: str, role: str, width: int, height: int) -> list[Pieces]:
    """The state as large as it goes: its own word, or a shorter one where that is read from farther away."""
    own = word.partition(" ")[2].upper()
    every = [own, *([_SHORT[own]] if own in _SHORT else [])]
    scales = [min(big.scale_for(text, width), _scale_high(height)) for text in every]
    best = max(scales)
    if not best:
        return [fit(((word.upper(), role),), width)]
    return [((text, role),) for text in big.rows(every[scales.index(best)], best)]


def _scale_high(rows_free: int) -> int:
    """The largest scale whose letters are no higher than that."""
    return max((scale for scale in (1, 2, 3, 4) if (big.DOTS_HIGH * scale + 1) // 2 <= rows_free), default=0)


def _tile_load(model: SessionModel, told: Summary, width: int) -> Pieces:
    if shown := progress(model, told, width):
        return shown
    if told.used_bytes is None or not told.total_bytes:
        return ()
    text = f" {told.used_bytes / GIB:,.0f}/{told.total_bytes / GIB:,.0f} GiB"
    return fit(((gauge(told.used_bytes / told.total_bytes, max(0, width - len(text))), "used"), (text, "plain")), width)


def tiles(count: int, width: int, height: int) -> tuple[int, int]:
    """Columns of the grid, and rows of a tile: the largest tiles with which all are seen, else ones to scroll through.

    A tile is at least 16 cells wide and three rows high, or nothing of it is read from afar.
    """
    best: tuple[int, int] = (max(1, width // WORD_CELLS), 4)
    most = (-1, 0)
    for across in range(1, max(1, width // TILE_LEAST) + 1):
        wide, down = width // across, -(-count // across)
        high = height // down if down else height
        letters = min((wide - 4) // (WORD_CELLS - 4), _scale_high(high - 2))
        if high >= 3 and (worth := (max(0, letters), min(wide // 4, high))) > most:
            best, most = (across, high), worth
    return best


def _between(least: int, wanted: int, most: int) -> int:
    return max(least, min(wanted, most))
