"""A finding from how a run ended and what its log last said. Pure.

This tells what is certain: exit code or signal, the last error-looking lines. Which of them is the root cause is a
matter of engine knowledge that comes on top; so the confidence here is "low" wherever a line is picked.
"""

from __future__ import annotations

from collections.abc import Sequence

from supervisor.core import events as ev
from supervisor.core.engine import Engine
from supervisor.core.progress import ErrorLines

LOOKED_AT_LINES = 400
SHOWN_LINES = 3
SHOWN_CHARACTERS = 300


def finding_of_end(ended: ev.Exit, log: Sequence[ev.Log], engine: Engine, at: float) -> ev.Finding:
    """Why a server ended, as far as its end and its last lines tell."""
    errors = ErrorLines(engine)
    tail = [line for line in log[-LOOKED_AT_LINES:] if line.text.strip()]
    shown = [line for line in tail if errors.own(line.text)] or [line for line in tail if errors.looks(line.text)]
    line = shown[-1] if shown else (tail[-1] if tail else None)
    category, detail, advice = _by_end(ended)
    cause = f"the server ended: {ended.words()}"
    if shown:
        # Every rank says the same: once is enough. The later of two alike is the one that stands.
        said = list(dict.fromkeys(item.text.strip()[:SHOWN_CHARACTERS] for item in reversed(shown)))[:SHOWN_LINES]
        what = "lines that look like errors" if len(said) > 1 else "line that looks like an error"
        cause += f"; the last {what}: {' | '.join(reversed(said))}"
    elif line is not None:
        cause += "; no line of its log looks like an error"
    else:
        cause += "; its log is empty"
    return ev.Finding(
        at=at,
        category=category,
        detail=detail,
        cause=cause,
        line=line.text[:1000] if line is not None else "",
        line_no=line.line_no if line is not None else None,
        confidence="low",
        advice=advice,
    )


def says_its_line(finding: ev.Finding) -> bool:
    """Whether the cause has the line in its words, so that it need not stand beside it once more."""
    line = finding.line.strip()[:SHOWN_CHARACTERS]
    return bool(line) and line in finding.cause


def _by_end(ended: ev.Exit) -> tuple[str, str, str]:
    if ended.signal == "SIGKILL":
        return (
            "killed",
            "SIGKILL",
            "SIGKILL is sent by the kernel when memory runs out (dmesg, cgroup oom_kill), by a user, or by the "
            "engine's own parent process after a child failed: read the lines before it.",
        )
    if ended.signal in ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE"):
        return "native_crash", ended.signal, "A native crash: the lines before it name the library or the check."
    if ended.code == 0:
        advice = "Exit code 0 without being asked to stop: some engines end so when their core process has died."
        return "unknown", "exit 0", advice
    return "unknown", "exit", "Read the log upwards from its end; the last error is often not the first cause."
