"""What the panel says: why it failed, how sure that is, what to try; else the run's latest warnings. Pure."""

from __future__ import annotations

from msgspec import Struct

from supervisor.core import events as ev
from supervisor.core.diagnose import says_its_line
from supervisor.core.durations import spell
from supervisor.core.events import Phase
from supervisor.supervise.hub import View
from supervisor.tui.model import SessionModel
from supervisor.tui.pieces import (
    INDENT,
    Mask,
    Piece,
    Pieces,
    clip,
    clock_time,
    fit,
    length,
    one_line,
    rows,
    spread,
    wrapped,
)

WARNINGS_SHOWN = 3
LINES_OF_THE_LOG = 3
"""So many rows at most for the line that shows the cause: the log itself has all of it."""
_CONFIDENCE = {
    "sure": ("sure", "good"),
    "high": ("very likely", "good"),
    "likely": ("likely", "plain"),
    "medium": ("likely", "plain"),
    "low": ("a guess", "warn"),
}
_UNWRAPPED = 100_000


class Report(Struct, frozen=True):
    """What the panel shows. `tone` is a role: "bad" or "warn"."""

    title: str
    tone: str
    pieces: Pieces
    line_no: int | None = None
    """The line of the log that shows the cause, where one does."""


def panel(model: SessionModel, now: float, width: int, error: str = "") -> Report | None:
    """What needs a look, in lines of at most `width` cells; None where nothing does.

    Args:
        error: why supervision has ended, where the model has not been told.
    """
    return _report(model.view, error or model.error, model.mask, width, now)


def report(view: View, error: str) -> Report | None:
    """The same unwrapped, without keys."""
    return _report(view, error, str, _UNWRAPPED, None)


def _report(view: View, error: str, mask: Mask, width: int, now: float | None) -> Report | None:
    finding = view.finding
    lines: list[Pieces] = []
    title, tone = "warnings", "warn"
    if finding is not None or view.phase is Phase.FAILED:
        title, tone = _title(view, mask), "bad"
        lines += _finding(finding, mask, width, now is not None) if finding is not None else _bare(view, mask, width)
    if error:
        title, tone = "supervision has ended", "bad"
        ended: list[Pieces] = [((text, "strong"),) for text in wrapped(mask(error), width)]
        ended += [((text, "plain"),) for text in wrapped("The server was left as it is. r: try again.", width)]
        lines = ended + lines
    lines += _warnings(view, mask, width)
    if not lines:
        return None
    return Report(
        title, tone, rows(fit(line, width) for line in lines), finding.line_no if finding is not None else None
    )


def _title(view: View, mask: Mask) -> str:
    category = f" · {one_line(mask(view.finding.category))}" if view.finding is not None else ""
    if view.phase is not Phase.FAILED or not view.changes:
        return f"finding{category}"
    began = next((change.at for change in view.changes if change.to is Phase.LAUNCHING), view.changes[0].at)
    return f"failed after {spell(max(0.0, view.since - began))}{category}"


def _bare(view: View, mask: Mask, width: int) -> list[Pieces]:
    text = " · ".join(item.text for item in view.changes[-1].evidence) if view.changes else "failed"
    return [((line, "strong"),) for line in wrapped(mask(text), width)]


def _finding(finding: ev.Finding, mask: Mask, width: int, keys: bool) -> list[Pieces]:
    words, role = _CONFIDENCE.get(finding.confidence, (one_line(mask(finding.confidence)), "plain"))
    unwrapped = width == _UNWRAPPED
    room = width if unwrapped else max(20, width - len(words) - 3)
    cause = wrapped(mask(finding.cause), room) or ["the cause is not known"]
    lines: list[Pieces] = [((text, "strong"),) for text in cause]
    if unwrapped:
        lines[0] = (*lines[0], (f"  ({finding.confidence})", "dim"))
    else:
        lines[0] = spread(lines[0], ((words, role),), width)
    said = says_its_line(finding)
    if finding.line and not said:
        lines += _line_of_the_log(finding, mask, width)
    elif unwrapped and finding.line_no is not None:
        lines.append(((f"{INDENT}line {finding.line_no:,} of the log", "dim"),))
    for text in finding.ruled_out:
        lines += [((line, "dim"),) for line in wrapped(mask(f"Not: {text}"), width, rest=INDENT)]
    if finding.advice:
        lines += [((line, "plain"),) for line in wrapped(mask(f"Try: {finding.advice}"), width, rest=INDENT)]
    if keys:
        where = f"line {finding.line_no:,}" if said and finding.line_no is not None else "the line"
        offered = (
            f"enter: go to {where}   y: copy as a report" if finding.line_no is not None else "y: copy as a report"
        )
        tail: Pieces = ((clip(offered, width), "dim"),)
        if length(lines[-1]) + length(tail) + 3 <= width and len(lines) > 1:
            lines[-1] = spread(lines[-1], tail, width)
        else:
            lines.append(spread((), tail, width))
    return lines


def _line_of_the_log(finding: ev.Finding, mask: Mask, width: int) -> list[Pieces]:
    number = f"{INDENT}line {finding.line_no:,}  " if finding.line_no is not None else INDENT
    found = (
        wrapped(mask(finding.line), width - len(number)) if width > len(number) + 20 else [one_line(mask(finding.line))]
    )
    if len(found) > LINES_OF_THE_LOG:
        found = [*found[: LINES_OF_THE_LOG - 1], clip(found[LINES_OF_THE_LOG - 1] + " …", width - len(number))]
    out: list[Pieces] = []
    for position, text in enumerate(found):
        first: Piece = (number if not position else " " * len(number), "dim")
        out.append((first, (clip(text, width - len(number)), "plain")))
    return out


def _warnings(view: View, mask: Mask, width: int) -> list[Pieces]:
    """The latest of this run; how many came before them."""
    began = view.changes[0].at if view.changes else 0.0
    found = [warning for warning in view.warnings if warning.at >= began]
    out: list[Pieces] = []
    for warning in found[-WARNINGS_SHOWN:]:
        when = f"{clock_time(warning.at)} "
        for position, text in enumerate(wrapped(mask(warning.text), max(20, width - len(when))) or [""]):
            out.append(((when if not position else " " * len(when), "dim"), (text, "warn")))
    if len(found) > WARNINGS_SHOWN:
        out.append(((f"{len(found) - WARNINGS_SHOWN} earlier", "dim"),))
    return out
