"""What the console says at the top: header, phase strip, stage or verdict, link. Pure: no widget, no clock, no I/O.

The other parts of the screen stand in `format_*.py`; `pieces.py` says what a piece is. Text of the node's passes `mask`
before it is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from supervisor.core import events as ev
from supervisor.core.durations import spell
from supervisor.core.events import LinkState, Phase
from supervisor.core.trail import Trail
from supervisor.supervise.hub import View
from supervisor.tui.evidence import said
from supervisor.tui.pieces import (
    INDENT,
    Mask,
    Piece,
    Pieces,
    clock_time,
    first_fitting,
    fit,
    joined,
    length,
    one_line,
    rows,
    running,
    spread,
)  # fmt: skip
from supervisor.tui.sparkline import thin

ROAD = (Phase.LAUNCHING, Phase.LOADING, Phase.WARMING, Phase.HEALTHY, Phase.SERVING)
_BEFORE = (Phase.PREFLIGHT, Phase.QUEUED)
LOADS = (Phase.LAUNCHING, Phase.LOADING, Phase.WARMING)
"""Where the progress of a load says something."""
PHASE_ROLES = {
    Phase.IDLE: "dim",
    Phase.SERVING: "good",
    Phase.DEGRADED: "warn",
    Phase.FAILED: "bad",
    Phase.STOPPING: "warn",
    Phase.STOPPED: "strong",
}
"""What is neither here nor in the strip is under way: `now`."""
_OVER = {Phase.FAILED: "bad", Phase.STOPPING: "warn", Phase.STOPPED: "strong"}
_LINKS = {LinkState.UP: ("●", "good"), LinkState.CONNECTING: ("◌", "now"), LinkState.DOWN: ("○", "bad")}
_VERDICTS = {
    Phase.IDLE: ("✘ refused", "bad"),
    Phase.HEALTHY: ("● 200", "now"),
    Phase.SERVING: ("✔ serving", "good"),
    Phase.DEGRADED: ("▲ degraded", "warn"),
    Phase.FAILED: ("✘ failed", "bad"),
    Phase.STOPPING: ("■ stopping", "warn"),
    Phase.STOPPED: ("■ stopped", "strong"),
}
STILL_S = 5.0
"""A stage that has not moved for longer says so."""
LONG_STILL_S = 120.0


# ------------------------------------------------------------------------------------------------ the top line


def header(
    title: str, node: str, view: View, now: float, width: int, *, rtt_ms: float | None = None, mask: Mask = str
) -> Pieces:
    """What is supervised at the left; at the right the link with its round-trip time, the run, and its age."""
    name = [(one_line(mask(title)), "strong"), (" @ ", "dim"), (one_line(mask(node)), "strong")]
    brand: Pieces = (("supervisor", "dim"), (" · ", "dim"))
    signs: list[Pieces] = [(("SIMULATED", "warn"),)] if simulated(view, title) else []
    run_id = run_of(view)
    run: list[Pieces] = [((f"run {one_line(mask(run_id))}", "dim"),)] if run_id else []
    age, short_age = _age(view, now)
    link, short_link = _link_sign(view.link, now, rtt_ms)
    shown = (
        ((*brand, *name), [*signs, link, *run, age]),
        (name, [*signs, link, *run, age]),
        (name, [*signs, link, age]),
        (name, [*signs, short_link, age]),
        (name, [*signs, short_link, short_age]),
        (name, [*signs, short_link if _lost(view) else short_age]),
    )
    for left, groups in shown:
        right = joined(groups, "   ")
        if length(left) + 2 + length(right) <= width:
            break
    return spread(left, right, width)


def simulated(view: View, title: str = "") -> bool:
    """Whether what is shown is no real GPU: that stands on the screen all the time."""
    driver = view.gpu.driver if view.gpu is not None else None
    return (driver is not None and driver.simulated) or "simulated" in title.lower()


def run_of(view: View) -> str:
    """The id of the run that is shown: the first change of a run carries the id of the run before it."""
    return next((change.run_id for change in view.changes if change.run_id and change.to not in _BEFORE), "")


def _age(view: View, now: float) -> tuple[Pieces, Pieces]:
    """In words, and alone."""
    if not view.changes or view.phase is Phase.IDLE:
        return (), ()
    launched = next((change.at for change in view.changes if change.to is Phase.LAUNCHING), None)
    began = launched if launched is not None else view.changes[0].at
    if view.phase in (Phase.FAILED, Phase.STOPPED):
        ended: Pieces = ((f"{view.phase.value} after {spell(max(0.0, view.since - began))}", "plain"),)
        return ended, ended
    age = running(now - began)
    words = "since launch" if launched is not None else "since takeover" if _taken_over(view) else "watched"
    return ((age, "plain"), (f" {words}", "dim")), ((age, "plain"),)


def _taken_over(view: View) -> bool:
    """Whether the run lived already: its launch was another console's, and its time is not told here."""
    return any("taken over" in item.text for item in view.changes[0].evidence)


def _link_sign(event: ev.LinkEvent | None, now: float, rtt_ms: float | None) -> tuple[Pieces, Pieces]:
    state = event.state if event is not None else LinkState.CONNECTING
    mark, role = _LINKS.get(state, ("○", "warn"))
    if state is LinkState.UP:
        words = f" {_rtt(rtt_ms)}" if rtt_ms is not None else ""
        return (("link ", "dim"), (mark, role), (words, "plain")), ((mark, role), (words, "plain"))
    since = f" {running(now - event.at)}" if event is not None and state is not LinkState.CONNECTING else ""
    sign = ((f"{mark} {state.value}{since}", role),)
    return (("link ", "dim"), *sign), sign


def _rtt(rtt_ms: float) -> str:
    return f"{rtt_ms:.1f} ms" if rtt_ms < 9.95 else f"{rtt_ms:,.0f} ms"


def _lost(view: View) -> bool:
    """Whether what is shown is the last that was known."""
    return view.link is not None and view.link.state in (LinkState.LOST, LinkState.DOWN)


def known_until(view: View, now: float) -> float:
    """Nothing of a server is known to go on while the link is lost."""
    return min(now, view.link.at) if view.link is not None and _lost(view) else now


# ------------------------------------------------------------------------------------------------ the phase strip


def strip(view: View, now: float, width: int) -> Pieces:
    """launching ─ loading ━━━ 64 % ─ 503 ─ 200 ─ serving, with the time spent in each; the essentials at any width."""
    known, lost = known_until(view, now), _lost(view)
    progress = _progress(view)
    at_right: Pieces = _left(progress, known)
    if lost and view.changes:
        at_right = ((f"last known, {running(now - known)} ago", "warn"),)
    times = _times(view, known)
    for bar_cells, joint, before, terse, more in (
        (10, " ─ ", True, 0, at_right),
        (6, " ─ ", True, 0, at_right),
        (6, " ─ ", False, 0, at_right),
        *(((0, " ─ ", False, 1, at_right),) if lost else ()),
        (6, " ─ ", False, 0, ()),
        (0, " ─ ", False, 0, ()),
        (0, " ", False, 0, ()),
        (0, " ─ ", False, 1, ()),
        (0, " ", False, 1, ()),
        (0, " ", False, 2, ()),
    ):
        steps = [_before(phase, view, times) for phase in _BEFORE if phase in times]
        if not before and view.phase not in _BEFORE:
            steps = []
        road = joined([*steps, *_road(view, times, _gauge(progress, bar_cells), terse)], joint)
        if length(road) + (2 + length(more) if more else 0) <= width:
            return spread(road, more, width)
    return fit(road, width)


_RESTS = {
    "history": "by earlier runs",
    "log bar": "by its bar",
    "memory": "by its memory",
    "typical": "roughly",
}


def _progress(view: View) -> ev.Progress | None:
    """How far the load is. A server that answers has left behind what it told before, until it tells more."""
    progress = view.progress
    if progress is None or view.phase not in LOADS or (view.phase is Phase.WARMING and progress.at < view.since):
        return None
    return progress


def _left(progress: ev.Progress | None, now: float) -> Pieces:
    """How long the whole load still takes, where something supports an estimate."""
    if progress is None or progress.eta_s is None:
        return ()
    return ((f"≈ {spell(max(0.0, progress.eta_s - max(0.0, now - progress.at)))} left", "plain"),)


def _rests(progress: ev.Progress) -> Pieces:
    """What the estimate rests on: nobody has to take it on trust."""
    words = _RESTS.get(progress.rests_on)
    return ((f" {words}", "dim"),) if words is not None and progress.eta_s is not None else ()


def _gauge(progress: ev.Progress | None, bar_cells: int) -> Pieces:
    if progress is None or progress.fraction is None:
        return ()
    shown = bar(progress.fraction, bar_cells) if bar_cells else ()
    return ((" ", "plain"), *shown, (f"{' ' if bar_cells else ''}{_percent(progress.fraction)}", "plain"))


def _percent(fraction: float) -> str:
    """Never 100 % before it is: the last shard of a model is the one that people wait for."""
    return f"{min(100, max(0, int(fraction * 100)))} %"


def _times(view: View, now: float) -> dict[Phase, float]:
    times: dict[Phase, float] = {}
    for position, change in enumerate(view.changes):
        last = position + 1 == len(view.changes)
        end = max(now, change.at) if last else view.changes[position + 1].at
        times[change.to] = times.get(change.to, 0.0) + end - change.at
    return times


def _step(
    mark: str, name: str, role: str, seconds: float | None, *, grows: bool = False, more: Pieces = ()
) -> list[Piece]:
    step: list[Piece] = [(f"{mark} {name}".strip(), role)]
    if seconds is not None:
        step.append((f" {running(seconds) if grows else spell(seconds)}", "plain" if grows else "dim"))
    return [*step, *more]


def _before(phase: Phase, view: View, times: Mapping[Phase, float]) -> list[Piece]:
    if view.phase is phase:
        return _step("●", phase.value, "now", times[phase], grows=True)
    return _step("✔", phase.value, "good", times[phase])


def _road(view: View, times: Mapping[Phase, float], gauge: Pieces, terse: int) -> list[list[Piece]]:
    """`terse`: 1 leaves out the times of all steps but the present one, 2 their names as well."""
    phase = view.phase
    refused = phase is Phase.IDLE and bool(view.changes)
    if phase in _OVER or refused:
        return _ended_road(view, times, refused=refused, terse=terse)
    steps: list[list[Piece]] = []
    here = ROAD.index(phase) if phase in ROAD else (len(ROAD) if phase is Phase.DEGRADED else -1)
    for position, step in enumerate(ROAD):
        label, spent = ("" if terse > 1 and position != here else ev.LABELS[step]), times.get(step)
        past = None if terse else spent
        if position == here:
            served = step is Phase.SERVING
            mark, role = ("✔", "good") if served else ("●", "now")
            role = "warn" if _lost(view) else role
            steps.append(_step(mark, label, role, spent, grows=True, more=gauge))
        elif position > here:
            steps.append(_step("○", label, "dim", past))  # with a time: it was there, and fell back
        elif spent is not None:
            steps.append(_step("✔", label, "good", past))
        else:
            steps.append(_step("–", label, "dim", None))  # skipped, as engines do that never answer 503
    if phase is Phase.DEGRADED:
        steps.append(_step("▲", phase.value, "warn", times.get(phase), grows=True))
    return steps


def _ended_road(view: View, times: Mapping[Phase, float], *, refused: bool, terse: int) -> list[list[Piece]]:
    """Only what was entered, then how it ended."""
    failed_in = view.changes[-1].from_ if view.phase is Phase.FAILED or refused else None
    steps: list[list[Piece]] = []
    for step in (*ROAD, Phase.DEGRADED):
        if step in times:
            good = step is not failed_in
            label, spent = ("" if terse > 1 and good else ev.LABELS[step]), (None if terse else times[step])
            steps.append(_step("✔" if good else "✘", label, "good" if good else "bad", spent))
    ended = times.get(view.phase)
    if refused:
        steps.append(_step("✘", "refused: nothing was launched", "bad", None))
    elif view.phase is Phase.FAILED:
        steps.append(_step("", "failed", "bad", ended, grows=True, more=((" ago", "plain"),)))
    else:
        steps.append(_step("■", view.phase.value, _OVER[view.phase], ended, grows=True))
    return steps


# ------------------------------------------------------------------------------------------------ beneath the strip


def stage(view: View, now: float, width: int, *, trail: Trail | None = None, mask: Mask = str) -> Pieces:
    """The stage of the load with its bar, else the verdict with the evidence that the present phase stands on."""
    now = known_until(view, now)
    progress = _progress(view)
    if progress is not None:
        left_s = trail.stage_left_s(now) if trail is not None else None
        return first_fitting(_stages(progress, now, width, left_s, mask), width)
    if not view.changes:
        return fit(((INDENT + "no run yet", "dim"),), width)
    change = view.changes[-1]
    words, role = _VERDICTS.get(view.phase, (INDENT, "plain"))
    if view.phase is Phase.SERVING and _lost(view):
        role = "warn"
    over = view.phase in (Phase.FAILED, Phase.STOPPED, Phase.IDLE)
    since: Pieces = ((words, role), (f"{'' if words == INDENT else ' '}{'at' if over else 'since'} ", "plain"))
    since = (*since, (clock_time(change.at), "plain"))
    told = (
        [((text, told_role),) for text, told_role in said(change.evidence, mask, terse=terse)] for terse in range(3)
    )
    return first_fitting((joined([since, *parts]) for parts in told), width)


def _stages(
    progress: ev.Progress, now: float, width: int, left_s: float | None, mask: Mask
) -> Iterator[tuple[Piece, ...]]:
    """From the fullest to the barest."""
    name: list[Piece] = [(INDENT + one_line(mask(progress.stage)), "plain")]
    if progress.done is not None:
        total = f"/{progress.total:,}" if progress.total is not None else ""
        name.append((f" {progress.done:,}{total}", "strong"))
    whole = _left(progress, now)
    words, short = (*whole, *_rests(progress)), whole
    if not whole and left_s is not None:
        words, short = ((f"≈ {spell(left_s)} left in this stage", "plain"),), ((f"≈ {spell(left_s)}", "plain"),)
    still = _still(progress, now)
    for cells, left in ((min(40, width // 3), words), (20, words), (12, words), (8, short), (0, short)):
        gauge: Pieces = ()
        if progress.fraction is not None:
            percent = (_percent(progress.fraction), "strong")
            gauge = (*bar(progress.fraction, cells), (" ", "plain"), percent) if cells else (percent,)
        yield joined([name, gauge, left, still], INDENT)


def _still(progress: ev.Progress, now: float) -> Pieces:
    if progress.signs:
        return ((one_line(progress.signs), "dim"),)  # it is silent, and what shows that it works says for how long
    still_s = progress.still_s + now - progress.at
    if still_s <= STILL_S:
        return ()
    return ((f"still {running(still_s)}", "dim" if still_s < LONG_STILL_S else "warn"),)


def bar(fraction: float, width: int) -> Pieces:
    """A thin bar of `width` characters, in half steps."""
    done, rest = thin(fraction, width)
    return ((done, "now"), (rest, "track"))


def link(
    event: ev.LinkEvent | None, now: float, width: int = 0, height: int = 1, *, known: bool = True, mask: Mask = str
) -> Pieces:
    """The state of the link and why; while it is not up, what is shown is the last that was known.

    Args:
        width: cut to it; 0 leaves it whole.
        height: with 2 lines, why has one of its own where both do not fit into one.
        known: something was told over it before.
    """
    cut: Callable[[Sequence[Piece]], Pieces] = partial(fit, width=width) if width else tuple
    if event is None:
        return cut((("link    ", "dim"), ("◌ connecting", "now")))
    mark, role = _LINKS.get(event.state, ("○", "warn"))
    out: list[Piece] = [("link    ", "dim"), (f"{mark} {event.state.value}", role)]
    if event.state in (LinkState.LOST, LinkState.DOWN):
        what = "what stands here is the last known" if known else "the node was not reached yet"
        out.append((f" {running(now - event.at)}: {what}", "warn"))
    if not event.why:
        return cut(out)
    why: Piece = (one_line(mask(event.why)), "dim")
    whole = [*out, (" · ", "dim"), why]
    if height > 1 and length(whole) > width > 0:
        return rows((cut(out), cut((("        ", "dim"), why))))
    return cut(whole)


def farewell(view: View, title: str, node: str, order: str) -> str:
    """The sentence that stands on the terminal after the console has closed."""
    name = f"{title} @ {node}"
    if order:
        return f"{name}: a {order} was under way and goes no further from here. Look with: supervisor status"
    looked = "This console has only stopped looking."
    match view.phase:
        case Phase.IDLE if view.changes:
            return f"{name}: nothing was launched."
        case Phase.IDLE | Phase.PREFLIGHT:  # what lives on the node it has not seen yet
            return f"{name}: this console has launched nothing that it knows of. Look with: supervisor status"
        case Phase.FAILED | Phase.STOPPED:
            return f"{name}: the run has {view.phase.value}."
        case _ if _lost(view):
            return f"{name}: {ev.LABELS[view.phase]} when the link was lost. {looked}"
        case _:
            return f"{name}: the server goes on ({ev.LABELS[view.phase]}). {looked}"
