"""What the start screen says: a row a profile, a run or the demonstration; what is chosen in full; the question before
a launch. Pure, as in `pieces.py`. Nothing in it is a secret: commands come redacted.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from supervisor.core.events import Verdict
from supervisor.supervise.live_runs import LiveRun, Told
from supervisor.tui.pieces import Piece, Pieces, age, clip, clock_time, fit, left, one_line, rows, spread, wrapped
from supervisor.tui.start_list import Entry, Item

_ANSWERS = {
    Verdict.READY: ("answers {status}", "good"),
    Verdict.NOT_YET: ("answers {status}: not ready yet", "waiting"),
    Verdict.REJECTED: ("answers {status}, which is not accepted", "warn"),
    Verdict.REFUSED: ("nothing listens yet", "now"),
    Verdict.SILENT: ("no answer to a look at its health", "warn"),
    Verdict.BROKEN: ("its answer is broken", "warn"),
}
_NARROW_BELOW = 100
DEMO = "a launch on simulated GPUs, on this machine; nothing of it is left afterwards"


def header(asking: int, width: int) -> Pieces:
    """The top line."""
    at_right: list[Piece] = [(f"◌ asking {asking} {'node' if asking == 1 else 'nodes'}", "now")] if asking else []
    return spread([("supervisor", "strong"), (" · what to watch?", "dim")], at_right, width)


# ------------------------------------------------------------------------------------------------ the list


def lines(
    items: Sequence[Item], marked: Collection[str], now: float, width: int
) -> tuple[list[Pieces], list[int], list[Item | None]]:
    """The rows, which of them are headings, and the item that each row shows."""
    out: list[Pieces] = []
    shown: list[Item | None] = []
    profiles = [item for item in items if item.entry is not None]
    runs = [item for item in items if item.entry is None and item.run is not None]
    demo = [item for item in items if item.entry is None and item.run is None]
    sizes = _sizes(profiles, width)
    for title, group in (
        (_heading(sizes, width), profiles),
        ("runs that live, of no profile here", runs),
        ("", demo),
    ):
        if not group:
            continue
        for text in ([""] if out else []) + ([title] if title else []):
            out.append(fit(((text, "dim"),), width))
            shown.append(None)
        for item in group:
            out.append(row(item, sizes, now, width, marked=item.key in marked))
            shown.append(item)
    if not profiles:
        text = "no profile in this folder, none in the configuration folder"
        out[:0] = [fit(((text, "dim"),), width)]
        shown[:0] = [None]
    return out, [number for number, item in enumerate(shown) if item is None], shown


def _sizes(profiles: Sequence[Item], width: int) -> tuple[int, int, int, int]:
    """Cells of name, node, engine and model."""
    entries = [item.entry for item in profiles if item.entry is not None]
    name = min(max((len(entry.name) for entry in entries), default=7), 16 if width < _NARROW_BELOW else 28)
    node = min(max((len(entry.node) for entry in entries), default=4), 12 if width < _NARROW_BELOW else 24)
    if width < _NARROW_BELOW:
        return max(7, name), max(4, node), 0, 0
    return max(7, name), max(4, node), 9, 20 if width < 150 else 32


def _heading(sizes: tuple[int, int, int, int], _width: int) -> str:
    names = ("profile", "node", "engine", "model")
    return (
        "    " + "".join(left(name, size) + "  " for name, size in zip(names, sizes, strict=True) if size) + "live run"
    )


def row(item: Item, sizes: tuple[int, int, int, int], now: float, width: int, *, marked: bool) -> Pieces:
    """One item on one line."""
    box: Piece = ("[x] ", "now") if marked else ("    ", "plain")
    if item.entry is None:
        return _run_row(item.run, box, sizes, now, width) if item.run is not None else _demo_row(box, sizes, width)
    entry = item.entry
    name, node, engine, model = sizes
    out: list[Piece] = [box, (left(entry.name, name) + "  ", "bad" if entry.error else "strong")]
    if entry.error:
        return fit([*out, (f"✘ {entry.error}", "bad")], width)
    out.append((left(one_line(entry.node), node) + "  ", "plain"))
    if engine:
        out.append((left(entry.engine, engine) + "  ", "plain"))
        out.append((left(one_line(entry.model.rpartition("/")[2]), model) + "  ", "dim"))
    return fit([*out, *_life(item, now)], width)


def _life(item: Item, now: float) -> list[Piece]:
    if item.opened:
        return [("● open here", "now")]
    if item.run is not None:
        return _run_words(item.run, item.told, now)
    told = item.told
    if told is None:
        return []
    if told.why and not told.reached:
        return [(f"○ not reached: {told.why}", "warn")]
    if not told.reached:
        return [("◌ asking", "now")]
    return [("none", "dim")]


def _run_words(run: LiveRun, told: Told | None, now: float) -> list[Piece]:
    out: list[Piece] = [(f"● {age(max(0.0, now - run.started_at))}", "good")]
    answer = run.answer
    if answer is not None:
        words, role = _ANSWERS[answer.verdict]
        out.append((f" · {words.format(status=answer.status)}", role))
    elif told is not None and not told.done:
        out.append((" · looking at its health", "dim"))
    if run.port is not None:
        out.append((f" · port {run.port}", "dim"))
    return out


def _run_row(run: LiveRun, box: Piece, sizes: tuple[int, int, int, int], now: float, width: int) -> Pieces:
    out: list[Piece] = [box, (left(run.key, sizes[0]) + "  ", "plain"), (left(run.host, sizes[1]) + "  ", "plain")]
    if sizes[2]:
        out.append((left(run.engine, sizes[2]) + "  ", "plain"))
        out.append((" " * (sizes[3] + 2), "plain"))
    return fit([*out, *_run_words(run, None, now)], width)


def _demo_row(box: Piece, sizes: tuple[int, int, int, int], width: int) -> Pieces:
    return fit([box, (left("demo", sizes[0]) + "  ", "strong"), (DEMO, "dim")], width)


# ------------------------------------------------------------------------------------------------ the chosen one


def detail(item: Item | None, now: float, width: int, height: int) -> Pieces:
    """The chosen item in full, and what enter will do."""
    if item is None:
        return ()
    if item.entry is None:
        if item.run is None:
            return rows([(("demo", "strong"),), ((clip(f"{DEMO}. enter: begin it", width), "dim"),)])
        lines_ = [((f"run {item.run.run_id} of {item.run.key} on {item.run.host}", "strong"),), _since(item.run, width)]
        what = "There is no profile of it here, so it cannot be opened."
        return rows([*lines_, ((what, "dim"),)][:height])
    entry = item.entry
    first = spread(
        [(f"{entry.name} @ {entry.node}" if entry.node else entry.name, "strong")], [(entry.typed, "dim")], width
    )
    if entry.error:
        found = wrapped(f"{entry.path}: {entry.error}", width)
        return rows([first, *(((text, "bad"),) for text in found)][:height])
    if item.opened:
        return rows([first, (("It is open here: enter goes to it.", "dim"),)])
    out: list[Pieces] = [first]
    if item.run is not None:
        out += [_since(item.run, width), (("enter: take this run over; nothing is launched", "dim"),)]
    else:
        told = item.told
        if told is not None and told.why:
            out += [((text, "warn"),) for text in wrapped(told.why, width)[:2]]
        out += [((text, "plain"),) for text in wrapped(entry.command, width)[:2]]
        out.append((("enter: launch it (asks first)   w: watch, launch nothing", "dim"),))
    return rows(out[:height])


def _since(run: LiveRun, width: int) -> Pieces:
    by = f" by {run.by}" if run.by else ""
    answer = f"; {run.answer.why}" if run.answer is not None and run.answer.why else ""
    text = f"run {run.run_id}, started {clock_time(run.started_at)}{by}{answer}"
    return ((clip(one_line(text), width), "plain"),)


# ------------------------------------------------------------------------------------------------ before a launch


def question(launched: Sequence[Entry]) -> Pieces:
    """The heading of the question."""
    what = launched[0].name if len(launched) == 1 else f"{len(launched)} profiles"
    return ((f"Launch {what}?", "strong"),)


def plan(launched: Sequence[Entry], told: Collection[str], width: int) -> Pieces:
    """What will be launched where.

    Args:
        told: nodes that have said that nothing of these lives there.
    """
    out: list[Pieces] = []
    for entry in launched:
        known = "nothing of it lives there" if entry.node in told else "its node has not told what lives there"
        out.append(fit(((f"{entry.name} @ {entry.node}", "strong"), (f"  {known}", "dim")), width))
        out += [((f"  {text}", "plain"),) for text in wrapped(entry.command, width - 2)]
    return rows(out)


def consequence(launched: Sequence[Entry], opened: int, width: int) -> Pieces:
    """What each answer does."""
    rest = f" {opened} more {'is' if opened == 1 else 'are'} opened and not launched." if opened else ""
    one = len(launched) == 1
    text = (
        f"What lives by then is taken over and never launched twice.{rest} Without a launch "
        f"{'it is' if one else 'they are'} only watched; r in its console launches later."
    )
    return rows(((line, "plain"),) for line in wrapped(text, width))
