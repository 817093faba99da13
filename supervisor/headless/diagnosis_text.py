"""A diagnosis as text for people and as the end of a JSON stream. Formatting only; what a log holds is never shown raw.

Lines of a log were made safe for a terminal when they were read. Here secrets are taken out: an engine prints its
arguments, and a diagnosis is what people paste into issues.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from msgspec import Struct, structs

from supervisor.core import events as ev
from supervisor.core.diagnosis.conclude import Diagnosis, Possible
from supervisor.core.event_json import to_object
from supervisor.core.events import Outcome
from supervisor.core.families import FAMILIES
from supervisor.core.lines import sanitise
from supervisor.headless.text import Style
from supervisor.node.redact import HIDDEN, redact_argv

WIDTH = 100
LINE_CHARS = 600
"""What is shown of a line of the log; the whole line is in the file, under its number."""

_TOKENS = re.compile(
    r"\b(?:hf|sk|nvapi|ghp|glpat|xox[bp]|AKIA)[_-]?[A-Za-z0-9][A-Za-z0-9_-]{14,}|(?<=[Bb]earer )[\w.~+/-]{8,}=*"
)
_NAMED = re.compile(r"""((?:api_?key|token|password|passwd|secret)['"]?\s*[=:]\s*)(?:'[^']+'|"[^"]+")""", re.IGNORECASE)
S = TypeVar("S", bound=Struct)


class Read(Struct, frozen=True, kw_only=True):
    """What was read: for the last lines of a report."""

    engine: str
    """Its title; "" where it is not known whose log it is."""
    chosen: bool
    """By --engine, not by the log."""
    lines: int
    notes: tuple[str, ...] = ()


def masked(text: str) -> str:
    """The text without what looks like a key, and without anything that drives a terminal."""
    text = redact_argv([sanitise(text)])[0]
    text = _TOKENS.sub(HIDDEN, text)
    return _NAMED.sub(lambda match: f"{match[1]}'{HIDDEN}'", text)


def safe(diagnosis: Diagnosis) -> Diagnosis:
    """The diagnosis with every text of it masked."""
    return structs.replace(
        diagnosis,
        finding=None if diagnosis.finding is None else _each_text(diagnosis.finding, masked),
        candidates=tuple(_each_text(item, masked) for item in diagnosis.candidates),
        ruled_out=tuple(map(masked, diagnosis.ruled_out)),
        reason=masked(diagnosis.reason),
    )


def _each_text(item: S, change: Callable[[str], str]) -> S:
    found: dict[str, Any] = {}
    for name in item.__struct_fields__:
        value = getattr(item, name)
        if isinstance(value, str):
            found[name] = change(value)
        elif isinstance(value, tuple):
            found[name] = tuple(change(text) for text in value)
    return structs.replace(item, **found)


# ------------------------------------------------------------------------------------------------ for people


def report(diagnosis: Diagnosis, read: Read, style: Style) -> Iterator[str]:
    """A safe diagnosis, line by line."""
    finding = diagnosis.finding
    if finding is not None:
        yield from _named(finding, style)
        others = [item for item in diagnosis.candidates if item.line_no != finding.line_no]
        if others and finding.confidence == "low":
            yield ""
            yield from _possible(others, "what else it could be", style)
    elif diagnosis.candidates:
        yield f"{style('not known', 'yellow')}: {diagnosis.reason or 'no line of this log names a cause'}"
        yield from _possible(diagnosis.candidates, "the nearest that it has to one", style)
    else:
        yield f"{style('no failure', 'green')}: {diagnosis.reason or 'nothing in this log names one'}"
    ruled_out = finding.ruled_out if finding is not None else diagnosis.ruled_out
    if ruled_out:
        yield "  ruled out:"
        for text in ruled_out:
            yield from _wrapped(text, "    - ")
    yield style(f"  {_read(read)}", "dim")
    for note in read.notes:
        yield f"  {style('note', 'yellow')}: {note}"


def _named(finding: ev.Finding, style: Style) -> Iterator[str]:
    family = FAMILIES.get(finding.category, "")
    detail = f" ({finding.detail})" if finding.detail else ""
    yield f"{style(finding.category, 'red')}{detail}: {family}" if family else style(finding.category, "red")
    yield from _wrapped(finding.cause, "  cause:      ")
    if finding.line:
        place = f"line {finding.line_no}:" if finding.line_no is not None else "the log says:"
        yield f"  {place:<11} {finding.line.strip()[:LINE_CHARS]}"
    yield f"  confidence: {finding.confidence}"
    if finding.advice:
        yield from _wrapped(finding.advice, "  advice:     ")


def _possible(items: Sequence[Possible], title: str, style: Style) -> Iterator[str]:
    yield f"  {title}:"
    for item in items:
        yield f"  line {item.line_no} ({item.category}): {item.text.strip()[:LINE_CHARS]}"
        if item.cause and item.cause.strip() not in item.text:
            yield from _wrapped(item.cause, "    ")


def _wrapped(text: str, first: str) -> Iterator[str]:
    bullet = first.rstrip().endswith("-")
    yield from textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=" " * len(first) if bullet or first.strip() else first,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _read(read: Read) -> str:
    whose = (
        f"read as a log of {read.engine}" if read.engine else "whose log it is was not clear (--engine NAME says it)"
    )
    how = " (--engine)" if read.engine and read.chosen else ""
    return f"{whose}{how}; {read.lines:,} line{'s' if read.lines != 1 else ''}"


# ------------------------------------------------------------------------------------------------ for programs


def events(diagnosis: Diagnosis, read: Read, at: float) -> Iterator[dict[str, Any]]:
    """A safe diagnosis as objects of the stream: the finding if there is one, then the summary."""
    finding = diagnosis.finding
    if finding is not None:
        yield to_object(finding)
    for note in read.notes:
        yield to_object(ev.Warning_(at=at, text=note))
    reason = finding.cause if finding is not None else (diagnosis.reason or "the log does not tell")
    summary = ev.Summary(
        at=at,
        verdict=Outcome.REACHED,
        exit_code=0,
        phase=ev.Phase.IDLE,
        reason=reason,
        finding=finding,
        evidence=(ev.Evidence(kind="log", at=at, text=_read(read)),),
    )
    yield to_object(summary) | {
        "candidates": [
            {"line": item.text, "line_no": item.line_no, "category": item.category, "cause": item.cause}
            for item in (diagnosis.candidates if finding is None else ())
        ],
        "ruled_out": list(diagnosis.ruled_out),
    }
