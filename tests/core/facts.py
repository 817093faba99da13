"""Facts with few words, and any fact at all, for the tests of the core."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from hypothesis import strategies as st

from supervisor.core import events as ev
from supervisor.core.events import Phase, Verdict
from supervisor.core.machine import Machine

ROOT = ev.Process(pid=4711, start_ticks=99, title="python3 -m engine.launch_server")


def answered(
    at: float, status: int | None = 200, verdict: Verdict = Verdict.READY, *, size: int | None = 0, cause: str = ""
) -> ev.Answered:
    """One look at the health endpoint."""
    answer = ev.Answer(verdict=verdict, why=f"because {verdict.value}", status=status, bytes=size, ms=3.0, cause=cause)
    return ev.Answered(at=at, answer=answer)


def refused(at: float) -> ev.Answered:
    """Nothing listens there."""
    return answered(at, None, Verdict.REFUSED, size=None, cause="refused")


def not_yet(at: float) -> ev.Answered:
    """A 503 that means "still loading"."""
    return answered(at, 503, Verdict.NOT_YET, cause="status 503")


def ended(at: float, *, code: int | None = 1, log_size: int | None = None, by: str | None = None) -> ev.Ended:
    """The root process is gone."""
    return ev.Ended(at=at, exit=ev.Exit(code=code), log_size=log_size, stopped_by=by)


def launched(machine: Machine, at: float = 0.0, run_id: str = "run-1") -> None:
    """From nothing to a process that lives."""
    feed(
        machine,
        ev.RunBegan(at=at, run_id=run_id, why="nothing runs there"),
        ev.Launched(at=at, text="keeper started"),
        ev.ProcessSeen(at=at, root=ROOT),
    )


def feed(machine: Machine, *facts: ev.AnyFact) -> list[ev.AnyEvent]:
    """All events of these facts."""
    return [event for fact in facts for event in machine.feed(fact)]


def changes(events: Iterable[ev.AnyEvent]) -> list[ev.PhaseChanged]:
    """The changes of the phase among them."""
    return [event for event in events if isinstance(event, ev.PhaseChanged)]


def reached(events: Iterable[ev.AnyEvent]) -> list[Phase]:
    """The phases entered, in order."""
    return [event.to for event in changes(events)]


def _one_of_every_kind() -> list[ev.AnyFact]:
    answers = [
        ev.Answer(verdict=verdict, why="why", status=status, bytes=size)
        for verdict in Verdict
        for status, size in ((None, None), (200, 0), (401, 5), (503, 70_000))
    ]
    exits = [ev.Exit(), ev.Exit(code=0), ev.Exit(code=1), ev.Exit(signal="SIGKILL")]
    out: list[ev.AnyFact] = [ev.Answered(at=0, answer=answer) for answer in answers]
    out += [ev.LinkChanged(at=0, state=state, why="w") for state in ev.LinkState]
    out += [ev.LogRead(at=0, offset=offset) for offset in (0, 99, 100, 200)]
    out += [
        ev.Ended(at=0, exit=how, log_size=size, stopped_by=by, left=left)
        for how in exits
        for size, by, left in ((None, None, ()), (100, None, (ROOT,) * 7), (150, "bob", ()), (None, "", ()))
    ]
    for run_id in ("a", "b"):
        out += [
            ev.RunBegan(at=0, run_id=run_id, why="w"),
            ev.Refused(at=0, reasons=()),
            ev.Queued(at=0, job="12"),
            ev.Launched(at=0, text=""),
            ev.ProcessSeen(at=0, root=ROOT),
            ev.StageSeen(at=0, stage="weights", done=3, total=0),
            ev.StageSeen(at=0, stage=""),
            ev.ReadyLineSeen(at=0, line=""),
            ev.CannotComeUp(at=0, text=""),
            ev.Verified(at=0, text=""),
            ev.VerifyFailed(at=0, text=""),
            ev.StopBegan(at=0, by=""),
            ev.StopIncomplete(at=0, text="", left=(ROOT,)),
            ev.TreeGone(at=0, release="no gpu"),
            ev.Tick(at=0),
        ]
    return out


# Ready answers, runs and processes are what leads anywhere: without weight, hardly a history would reach serving.
_FACTS = _one_of_every_kind()
_LEADING: list[ev.AnyFact] = [fact for fact in _FACTS if isinstance(fact, ev.RunBegan | ev.ProcessSeen | ev.Verified)]
_LEADING += [fact for fact in _FACTS if isinstance(fact, ev.Answered) and fact.answer.verdict is Verdict.READY]
_STEPS_S = [0.0, 0.05, 0.1, 0.3, 0.5, 1.0, 60.0]


def _timed(steps: list[tuple[float, ev.AnyFact]]) -> list[ev.AnyFact]:
    at, out = 0.0, []
    for step_s, fact in steps:
        at += step_s
        out.append(msgspec.structs.replace(fact, at=at))
    return out


def histories(max_size: int = 40) -> st.SearchStrategy[list[ev.AnyFact]]:
    """Any facts at all, at times that never go back: mostly near one another, so that an end's drain is met."""
    fact = st.sampled_from(_FACTS) | st.sampled_from(_LEADING)
    return st.lists(st.tuples(st.sampled_from(_STEPS_S), fact), max_size=max_size).map(_timed)
