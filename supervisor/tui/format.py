"""What the console says: the present state as pieces of text with a role each. Pure: no widget, no clock, no I/O.

A piece's role names what it is for ("bad" needs a hand), never a colour: that is what `layouts/*.tcss` decides.
Nothing here is markup, and nothing is cut: masking a secret must come before any cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from supervisor.core import events as ev
from supervisor.core.durations import spell
from supervisor.core.events import LinkState, Phase, Verdict
from supervisor.core.gpu import gib
from supervisor.supervise.hub import View

Piece = tuple[str, str]
Pieces = tuple[Piece, ...]

ROLES = ("plain", "strong", "dim", "good", "now", "warn", "bad")
ROAD = (Phase.LAUNCHING, Phase.LOADING, Phase.WARMING, Phase.HEALTHY, Phase.SERVING)
_BEFORE = (Phase.PREFLIGHT, Phase.QUEUED)
_OVER = {Phase.FAILED: "bad", Phase.STOPPING: "warn", Phase.STOPPED: "strong"}
_VERDICTS = {
    Verdict.READY: ("ready", "good"),
    Verdict.NOT_YET: ("not yet", "now"),
    Verdict.REJECTED: ("not accepted", "warn"),
    Verdict.REFUSED: ("refused", "dim"),
    Verdict.SILENT: ("no answer", "warn"),
    Verdict.BROKEN: ("broken", "warn"),
}
_LINKS = {LinkState.UP: ("●", "good"), LinkState.CONNECTING: ("◌", "now")}
WARNINGS_SHOWN = 3
STILL_S = 5.0
"""A stage that has not moved for longer says so."""
INDENT = "  "


def clock_time(at: float) -> str:
    """The operator's local time, seconds."""
    return datetime.fromtimestamp(at).astimezone().strftime("%H:%M:%S")


def running(seconds: float) -> str:
    """A duration that still grows: whole seconds, since tenths that are drawn once a second only flicker."""
    return spell(seconds) if seconds >= 9.95 else f"{max(0.0, seconds):.0f} s"


def length(pieces: Sequence[Piece]) -> int:
    """Characters in all."""
    return sum(len(text) for text, _role in pieces)


# ------------------------------------------------------------------------------------------------ the top line


def header(title: str, node: str, view: View, now: float, width: int) -> Pieces:
    """What is supervised at the left, the run and its age at the right."""
    left: list[Piece] = [("supervisor", "dim"), (" · ", "dim"), (title, "strong"), (" @ ", "dim"), (node, "strong")]
    right: list[Piece] = []
    run_id = run_of(view)
    if run_id:
        right.append((f"run {run_id}", "dim"))
    if age := _age(view, now):
        right.append((f"   {age}", "plain"))
    gap = width - length(left) - length(right)
    if gap < 2:
        right, gap = right[-1:], width - length(left) - length(right[-1:])
    return (*left, (" " * max(2, gap), "plain"), *right)


def run_of(view: View) -> str:
    """The id of the run that is shown: the first change of a run carries the id of the run before it."""
    return next((change.run_id for change in view.changes if change.run_id and change.to not in _BEFORE), "")


def _age(view: View, now: float) -> str:
    if not view.changes:
        return ""
    launched = next((change.at for change in view.changes if change.to is Phase.LAUNCHING), None)
    began = launched if launched is not None else view.changes[0].at
    if view.phase in (Phase.FAILED, Phase.STOPPED):
        return f"{view.phase.value} after {spell(view.since - began)}"
    if view.phase is Phase.IDLE:
        return ""
    return f"{running(now - began)} {'since launch' if launched is not None else 'watched'}"


# ------------------------------------------------------------------------------------------------ the phase strip


def strip(view: View, now: float, width: int) -> Pieces:
    """launching ─ loading ─ 503 ─ 200 ─ serving, with the time spent in each; it fits into `width` where it can."""
    times = _times(view, now)
    before = [_before(phase, view, times) for phase in _BEFORE if phase in times]
    road = _road(view, times)
    steps = before + road
    for parts, joint in ((steps, " ─ "), (road if view.phase not in _BEFORE else steps, " ─ "), (road, " ")):
        out: list[Piece] = []
        for step in parts:
            out += [(joint, "dim"), *step] if out else step
        if length(out) <= width:
            break
    return tuple(out)


def _times(view: View, now: float) -> dict[Phase, float]:
    times: dict[Phase, float] = {}
    for position, change in enumerate(view.changes):
        last = position + 1 == len(view.changes)
        end = max(now, change.at) if last else view.changes[position + 1].at
        times[change.to] = times.get(change.to, 0.0) + end - change.at
    return times


def _step(mark: str, name: str, role: str, seconds: float | None, *, grows: bool = False) -> list[Piece]:
    step: list[Piece] = [(f"{mark} {name}".strip(), role)]
    if seconds is not None:
        step.append((f" {running(seconds) if grows else spell(seconds)}", "plain" if grows else "dim"))
    return step


def _before(phase: Phase, view: View, times: Mapping[Phase, float]) -> list[Piece]:
    if view.phase is phase:
        return _step("●", phase.value, "now", times[phase], grows=True)
    return _step("✔", phase.value, "good", times[phase])


def _road(view: View, times: Mapping[Phase, float]) -> list[list[Piece]]:
    phase = view.phase
    refused = phase is Phase.IDLE and bool(view.changes)
    if phase in _OVER or refused:
        return _ended_road(view, times, refused=refused)
    steps: list[list[Piece]] = []
    here = ROAD.index(phase) if phase in ROAD else (len(ROAD) if phase is Phase.DEGRADED else -1)
    for position, step in enumerate(ROAD):
        label, spent = ev.LABELS[step], times.get(step)
        if position == here:
            served = step is Phase.SERVING
            steps.append(_step("✔" if served else "●", label, "good" if served else "now", spent, grows=True))
        elif position > here:
            steps.append(_step("○", label, "dim", spent))  # with a time: it was there, and fell back
        elif spent is not None:
            steps.append(_step("✔", label, "good", spent))
        else:
            steps.append(_step("–", label, "dim", None))  # skipped, as engines do that never answer 503
    if phase is Phase.DEGRADED:
        steps.append(_step("▲", phase.value, "warn", times.get(phase), grows=True))
    return steps


def _ended_road(view: View, times: Mapping[Phase, float], *, refused: bool) -> list[list[Piece]]:
    """Only what was entered, then how it ended."""
    failed_in = view.changes[-1].from_ if view.phase is Phase.FAILED or refused else None
    steps: list[list[Piece]] = []
    for step in (*ROAD, Phase.DEGRADED):
        if step in times:
            good = step is not failed_in
            steps.append(_step("✔" if good else "✘", ev.LABELS[step], "good" if good else "bad", times[step]))
    if refused:
        steps.append(_step("✘", "refused: nothing was launched", "bad", None))
    elif view.phase is Phase.FAILED:
        steps.append(_step("", "failed", "bad", times[view.phase], grows=True))
        steps[-1].append((" ago", "plain"))
    else:
        steps.append(_step("■", view.phase.value, _OVER[view.phase], times[view.phase], grows=True))
    return steps


# ------------------------------------------------------------------------------------------------ beneath the strip


def stage(view: View, now: float, width: int) -> Pieces:
    """The stage of the load with its percentage, else the evidence that the present phase stands on."""
    progress = view.progress
    if progress is not None and view.phase in (Phase.LAUNCHING, Phase.LOADING, Phase.WARMING):
        return _progress(progress, now, width)
    if not view.changes:
        return ((INDENT + "no run yet", "dim"),)
    change = view.changes[-1]
    words = " · ".join(item.text for item in change.evidence)
    return ((f"{INDENT}since {clock_time(change.at)}", "plain"), (f" · {words}", "dim"))


def _progress(progress: ev.Progress, now: float, width: int) -> Pieces:
    out: list[Piece] = [(INDENT + progress.stage, "plain")]
    if progress.done is not None:
        out.append((f" {progress.done:,}" + (f"/{progress.total:,}" if progress.total is not None else ""), "plain"))
    if progress.fraction is not None:
        out += [("  ", "plain"), *bar(progress.fraction, min(40, width // 3)), (f" {progress.fraction:.0%}", "strong")]
    if progress.eta_s is not None:
        out.append((f"  ≈ {spell(progress.eta_s)} left", "dim"))
    if (still_s := now - progress.at) > STILL_S:
        out.append((f"  moved {running(still_s)} ago", "dim"))
    return tuple(out)


def bar(fraction: float, width: int) -> Pieces:
    """A thin bar of `width` characters, in half steps."""
    halves = round(min(1.0, max(0.0, fraction)) * width * 2)
    done = "━" * (halves // 2) + "╸" * (halves % 2)
    return ((done, "now"), ("─" * (width - len(done)), "dim"))


def link(event: ev.LinkEvent | None, now: float) -> Pieces:
    """The state of the link and why; while it is not up, what is shown is the last that was known."""
    if event is None:
        return (("link    ", "dim"), ("◌ connecting", "now"))
    mark, role = _LINKS.get(event.state, ("○", "warn"))
    out: list[Piece] = [("link    ", "dim"), (f"{mark} {event.state.value}", role)]
    if event.state in (LinkState.LOST, LinkState.DOWN):
        out.append((f" {running(now - event.at)}: what stands here is the last known", "warn"))
    if event.why:
        out.append((f" · {event.why}", "dim"))
    return tuple(out)


def health(event: ev.Health | None, answers: Mapping[str, int], now: float) -> Pieces:
    """The last answer, the counts by kind, and by which rule the answer means what it is called."""
    if event is None:
        return (("health  ", "dim"), ("○ not looked at yet", "dim"))
    word, role = _VERDICTS[event.verdict]
    status = f"{event.status} " if event.status is not None else ""
    out: list[Piece] = [("health  ", "dim"), (f"{'○' if role == 'dim' else '●'} {status}{word}", role)]
    if event.status is not None:
        size = f"{event.bytes:,} bytes" if event.bytes is not None else "body not read"
        out.append((f" · {size} · {event.ms:,.0f} ms", "plain"))
    if event.owner in (ev.Owner.OURS, ev.Owner.OTHER):
        out.append((f" · {event.owner.value}", "plain" if event.owner is ev.Owner.OURS else "warn"))
    out.append((f" · {running(now - event.at)} ago", "dim"))
    if answers:
        out.append(("   " + " · ".join(f"{kind} {count:,}" for kind, count in answers.items()), "plain"))
    if event.why:
        out.append((f"   {event.why}", "dim"))
    return tuple(out)


# ------------------------------------------------------------------------------------------------ the panel


class Report(Struct, frozen=True):
    """What the panel shows. `tone` is a role: "bad" or "warn"."""

    title: str
    tone: str
    pieces: Pieces


def report(view: View, error: str) -> Report | None:
    """What needs a look: our own error, the finding, the run's latest warnings; None where nothing does."""
    parts: list[Piece] = []
    title, tone = "warnings", "warn"
    if view.finding is not None or view.phase is Phase.FAILED:
        title, tone = _failure_title(view), "bad"
        parts += _finding(view.finding) if view.finding is not None else _bare_failure(view)
    if error:
        title, tone = "supervision has ended", "bad"
        parts = [(error, "strong"), ("\nThe server was left as it is. r: try again.", "plain"), *_apart(parts)]
    if warnings := _warnings(view):
        parts += _apart(warnings)[0 if parts else 1 :]
    return Report(title, tone, tuple(parts)) if parts else None


def _apart(parts: list[Piece]) -> list[Piece]:
    return [("\n", "plain"), *parts]


def _failure_title(view: View) -> str:
    category = f" · {view.finding.category}" if view.finding is not None else ""
    if view.phase is not Phase.FAILED:
        return f"finding{category}"
    began = next((change.at for change in view.changes if change.to is Phase.LAUNCHING), view.changes[0].at)
    return f"failed after {spell(view.since - began)}{category}"


def _bare_failure(view: View) -> list[Piece]:
    return [(" · ".join(item.text for item in view.changes[-1].evidence), "strong")]


def _finding(finding: ev.Finding) -> list[Piece]:
    out: list[Piece] = [(finding.cause, "strong"), (f"  ({finding.confidence})", "dim")]
    if finding.line and finding.line != finding.cause:
        number = f"line {finding.line_no:,}  " if finding.line_no is not None else ""
        out += [(f"\n{INDENT}{number}", "dim"), (finding.line, "plain")]
    out += [(f"\nNot: {ruled_out}", "dim") for ruled_out in finding.ruled_out]
    if finding.advice:
        out.append((f"\nTry: {finding.advice}", "plain"))
    return out


def _warnings(view: View) -> list[Piece]:
    began = view.changes[0].at if view.changes else 0.0
    now = [warning for warning in view.warnings if warning.at >= began]
    out: list[Piece] = []
    for warning in now[-WARNINGS_SHOWN:]:
        out += [("\n" if out else "", "plain"), (f"{clock_time(warning.at)} ", "dim"), (warning.text, "warn")]
    if len(now) > WARNINGS_SHOWN:
        out.append((f"\n{len(now) - WARNINGS_SHOWN} earlier", "dim"))
    return out


# ------------------------------------------------------------------------------------------------ dialogs, the end


def question(order: str, title: str, node: str) -> Pieces:
    """The dialog's heading."""
    return ((f"{order.capitalize()} {title} @ {node}?", "strong"),)


def victims(
    processes: Sequence[ev.Process], held: Mapping[int, int | None] | None = None, older_s: float = 0.0
) -> Pieces:
    """Every process that will be signalled, one a line.

    Args:
        held: pid → bytes of GPU memory, None for no figure.
        older_s: how long ago the processes were told.
    """
    if not processes:
        return (("No process of the run is known to live.", "plain"),)
    held = held or {}
    out: list[Piece] = [(f"    pid    uid      age  {'GPU memory  ' if held else ''}what", "dim")]
    for process in processes:
        amount = (gib(held[process.pid]) if process.pid in held else "–") if held else ""
        column = f"{amount:>10}  " if held else ""
        out.append((f"\n{process.pid:>7} {process.uid:>6} {running(process.age_s + older_s):>8}  {column}", "plain"))
        out.append((process.title or "(no title)", "strong"))
    return tuple(out)


def consequence(order: str, processes: Sequence[ev.Process], grace_s: float) -> Pieces:
    """What yes will do."""
    out: list[Piece] = []
    if processes:
        one = len(processes) == 1
        count = "This process" if one else f"These {len(processes)} processes"
        out.append((f"{count} and any later child will be signalled: TERM to the root first", "plain"))
        out.append((f", TERM to the rest when it is gone, KILL after {spell(grace_s)}.", "plain"))
    else:
        out.append(("The node is asked once more; what it then names is signalled, else nothing.", "plain"))
    if order == "restart":
        out.append((" Then the profile is launched anew, unless something is left.", "plain"))
    return tuple(out)


def farewell(view: View, title: str, node: str, order: str) -> str:
    """The sentence that stands on the terminal after the console has closed."""
    name = f"{title} @ {node}"
    if order:
        return f"{name}: a {order} was under way and goes no further from here. Look with: supervisor status"
    match view.phase:
        case Phase.IDLE:
            return f"{name}: nothing was launched."
        case Phase.FAILED | Phase.STOPPED:
            return f"{name}: the run has {view.phase.value}."
        case _:
            return f"{name}: the server goes on ({ev.LABELS[view.phase]}). This console has only stopped looking."
