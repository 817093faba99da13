"""What the panel says: why it failed, how sure that is, what to try; else the run's latest warnings. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from supervisor.core import events as ev
from supervisor.core.diagnosis.saying import says_its_line
from supervisor.core.durations import spell
from supervisor.core.events import Phase
from supervisor.supervise.hub import View
from supervisor.tui.hints import Hints
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
    foot: str = ""
    """What can be done with it."""


def panel(model: SessionModel, now: float, width: int, error: str = "") -> Report | None:
    """What needs a look, in lines of at most `width` cells; None where nothing does.

    Args:
        error: why supervision has ended, where the model has not been told.
    """
    return _report(model, error or model.error, model.mask, width, model.hints)


def report(model: SessionModel) -> Report | None:
    """The same unwrapped and unmasked, without keys, with every warning."""
    return _report(model, model.error, str, _UNWRAPPED, hints=None)


def _report(model: SessionModel, error: str, mask: Mask, width: int, hints: Hints | None) -> Report | None:
    view, finding = model.view, model.view.finding
    lines: list[Pieces] = []
    title, tone = "warnings", "warn"
    if finding is not None or view.phase is Phase.FAILED:
        title, tone = _title(view, mask), "bad"
        lines += _finding(finding, mask, width, hints) if finding is not None else _bare(view, mask, width)
    if error:
        title, tone = "supervision has ended", "bad"
        ended: list[Pieces] = [((text, "strong"),) for text in wrapped(mask(error), width)]
        again = f" {hints.of('console.restart')}: try again." if hints is not None else ""
        ended += [((text, "plain"),) for text in wrapped(f"The server was left as it is.{again}", width)]
        lines = ended + lines
    warnings = model.warnings(unread=hints is not None)
    lines += _warnings(warnings, mask, width)
    if not lines:
        return None
    return Report(
        title=title,
        tone=tone,
        pieces=rows(fit(line, width) for line in lines),
        line_no=finding.line_no if finding is not None else None,
        foot=f"{hints.of('console.dismiss')}: put the warnings away" if warnings and hints is not None else "",
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


def _finding(finding: ev.Finding, mask: Mask, width: int, hints: Hints | None) -> list[Pieces]:
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
        lines += [((line, "dim"),) for line in wrapped(mask(f"Not: {text.removeprefix('not ')}"), width, rest=INDENT)]
    if finding.advice:
        lines += [((line, "plain"),) for line in wrapped(mask(f"Try: {finding.advice}"), width, rest=INDENT)]
    if hints is not None:
        offered = f"{hints.of('console.copy')}: copy as a report"
        if finding.line_no is not None:
            where = f"line {finding.line_no:,}" if said else "the line"
            offered = f"{hints.of('console.finding')}: go to {where}   {offered}"
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


def _warnings(found: Sequence[ev.Warning_], mask: Mask, width: int) -> list[Pieces]:
    """The latest; how many came before them."""
    out: list[Pieces] = []
    for warning in found[-WARNINGS_SHOWN:]:
        when = f"{clock_time(warning.at)} "
        for position, text in enumerate(wrapped(mask(warning.text), max(20, width - len(when))) or [""]):
            out.append(((when if not position else " " * len(when), "dim"), (text, "warn")))
    if len(found) > WARNINGS_SHOWN:
        out.append(((f"{len(found) - WARNINGS_SHOWN} earlier", "dim"),))
    return out
