"""Events as text for people: plain lines, a live line on a terminal, and the ending. Formatting only."""

from __future__ import annotations

from datetime import datetime

from supervisor.core import events as ev
from supervisor.core.diagnosis.saying import says_its_line
from supervisor.core.durations import spell
from supervisor.core.events import Outcome

_COLOURS = {"red": "31", "green": "32", "yellow": "33", "dim": "2", "bold": "1"}
_VERDICT_COLOUR = {Outcome.REACHED: "green", Outcome.FAILED: "red", Outcome.TIMEOUT: "yellow"}


class Style:
    """Colour where it is wanted, nothing where it is not."""

    def __init__(self, *, colour: bool) -> None:
        self.colour = colour

    def __call__(self, text: str, name: str) -> str:
        return f"\x1b[{_COLOURS[name]}m{text}\x1b[0m" if self.colour else text


def clock_time(at: float) -> str:
    """The operator's local time, seconds."""
    return datetime.fromtimestamp(at).astimezone().strftime("%H:%M:%S")


def line_of(event: ev.AnyEvent, style: Style) -> str | None:
    """The plain line of an event, None for one that has none."""
    when = style(clock_time(event.at), "dim")
    match event:
        case ev.PhaseChanged():
            label = event.to.value if event.label == event.to.value else f"{event.to.value} ({event.label})"
            why = "; ".join(item.text for item in event.evidence)
            return f"{when} {style(label, 'bold')}: {why}"
        case ev.LinkEvent():
            return f"{when} link {event.state.value}: {event.why}"
        case ev.Warning_():
            return f"{when} {style('warning', 'yellow')}: {event.text}"
        case ev.Finding():
            return f"{when} {style('finding', 'red')}: {event.cause}"
        case ev.Health() if event.verdict in (ev.Verdict.REJECTED, ev.Verdict.BROKEN):
            status = f"{event.status} " if event.status is not None else ""
            return f"{when} answer {status}not accepted: {event.why}"
        case ev.Progress():
            return f"{when} {progress_words(event, event.at)}"
        case ev.Log():
            return f"{when} {style('|', 'dim')} {event.text}"
        case _:
            return None


def progress_words(progress: ev.Progress, now: float) -> str:
    """How far the load is and what is left of it: "weights 12 of 64, ≈ 3:10 left (history)"."""
    out = progress.stage
    if progress.done is not None and progress.total:
        out += f" {progress.done} of {progress.total}"
    elif progress.fraction is not None:
        out += f" {progress.fraction * 100:.0f} %"
    if progress.eta_s is not None:
        out += f", ≈ {spell(max(0.0, progress.eta_s - max(0.0, now - progress.at)))} left"
        out += f" ({progress.rests_on})" if progress.rests_on else ""
    return f"{out}, {progress.signs}" if progress.signs else out


def live_line(phase: str, progress: ev.Progress | None, now: float, elapsed_s: float, last: str, width: int) -> str:
    """One line for a terminal: elapsed time, phase, stage, what is left, and the last thing seen, cut to the width."""
    stage = left = ""
    if progress is not None:
        stage = progress.stage + ("" if progress.fraction is None else f" {progress.fraction * 100:.0f} %")
        if progress.eta_s is not None:
            left = f"≈ {spell(max(0.0, progress.eta_s - max(0.0, now - progress.at)))} left"
        last = progress.signs or last
    parts = [spell(elapsed_s), phase, stage, left, last]
    return " · ".join(part for part in parts if part)[: max(10, width - 1)]


def ending(summary: ev.Summary, style: Style) -> list[str]:
    """The result: what it came to, why, and everything that was seen."""
    colour = _VERDICT_COLOUR.get(summary.verdict, "yellow")
    out = [f"{style(summary.verdict.value, colour)} (exit {summary.exit_code}): {summary.reason}"]
    if times := [f"{item.phase.value} {spell(item.s)}" for item in summary.phases if item.s >= 0.05]:
        out.append(f"  phases:  {', '.join(times)}")
    if summary.answers:
        out.append("  answers: " + ", ".join(f"{kind} {count}" for kind, count in summary.answers.items()))
    for item in summary.evidence:
        out.append(f"  {item.kind}: {item.text}")
    if summary.finding is not None:
        out += finding_lines(summary.finding)
    return out


def finding_lines(finding: ev.Finding) -> list[str]:
    """A finding, with the line that shows it."""
    out = [f"  finding ({finding.category}, {finding.confidence}): {finding.cause}"]
    number = f"line {finding.line_no}" if finding.line_no is not None else ""
    if finding.line and not says_its_line(finding):
        out.append(f"    {number}: {finding.line}" if number else f"    {finding.line}")
    elif number:
        out.append(f"    {number} of the log")
    out += [f"    not: {text.removeprefix('not ')}" for text in finding.ruled_out]
    out += [f"    {line}" for line in finding.advice.splitlines()]
    return out
