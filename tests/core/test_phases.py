"""The table against moves that must never happen: a list written from the design, not from the table."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given

from supervisor.core import events as ev
from supervisor.core.events import LABELS, Phase, Verdict
from supervisor.core.machine import DRAIN_S, Machine
from supervisor.core.phases import ALARMS, ENDED_PHASES, IGNORED, TRANSITIONS, Input, successor
from tests.core.facts import changes, histories

NEVER = """
idle        -> queued launching serving degraded failed stopping stopped
preflight   -> warming healthy serving degraded stopped
queued      -> preflight warming healthy serving degraded stopped
launching   -> preflight serving degraded stopped
loading     -> idle preflight queued launching serving degraded stopped
warming     -> idle preflight queued launching serving degraded stopped
healthy     -> idle preflight queued launching degraded stopped
serving     -> idle preflight queued launching loading warming healthy stopped
degraded    -> idle preflight queued launching loading warming stopped
failed      -> idle queued launching loading warming healthy serving degraded stopping stopped
stopping    -> idle preflight queued launching loading warming healthy serving degraded failed
stopped     -> idle queued launching loading warming healthy serving degraded failed stopping
"""
"""By the design: serving needs a 200 before it; degraded is what served; preflight proves nothing by an answer; a stop
goes through stopping, and is over only when the tree is gone; failed and stopped are left by a new run alone."""

NEVER_ON = [
    (Phase.LOADING, Input.ANSWER_NOT_YET, Phase.HEALTHY),
    (Phase.LOADING, Input.ANSWER_REJECTED, Phase.HEALTHY),
    (Phase.LOADING, Input.READY_LINE_SEEN, Phase.HEALTHY),
    (Phase.WARMING, Input.READY_LINE_SEEN, Phase.HEALTHY),
    (Phase.WARMING, Input.ANSWER_REJECTED, Phase.HEALTHY),
    (Phase.WARMING, Input.ANSWER_SILENT, Phase.FAILED),
    (Phase.WARMING, Input.ANSWER_NOT_YET, Phase.FAILED),
    (Phase.LOADING, Input.ANSWER_REFUSED, Phase.FAILED),
    (Phase.LOADING, Input.TICK, Phase.FAILED),
    (Phase.WARMING, Input.TICK, Phase.FAILED),
    (Phase.HEALTHY, Input.ANSWER_READY, Phase.SERVING),
    (Phase.HEALTHY, Input.VERIFY_FAILED, Phase.FAILED),
    (Phase.SERVING, Input.ANSWER_REFUSED, Phase.FAILED),
    (Phase.SERVING, Input.VERIFY_FAILED, Phase.FAILED),
    (Phase.SERVING, Input.HEALTH_LOST, Phase.FAILED),
    (Phase.DEGRADED, Input.ANSWER_REFUSED, Phase.FAILED),
    (Phase.STOPPING, Input.ENDED, Phase.FAILED),
    (Phase.STOPPING, Input.ENDED_WANTED, Phase.STOPPED),
    (Phase.STOPPING, Input.STOP_INCOMPLETE, Phase.STOPPED),
    (Phase.SERVING, Input.ENDED_WANTED, Phase.FAILED),
    (Phase.SERVING, Input.ENDED_WANTED, Phase.STOPPED),
]

PAIRS = [
    (Phase(before), Phase(after))
    for row in NEVER.strip().splitlines()
    for before, _, targets in [row.partition("->")]
    for before, after in itertools.product([before.strip()], targets.split())
]


def test_the_list_is_long_enough_to_mean_something() -> None:
    assert len(set(PAIRS)) >= 40
    assert {before for before, _ in PAIRS} == set(Phase)


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_no_input_makes_a_forbidden_move(before: Phase, after: Phase) -> None:
    assert [given for given in Input if successor(before, given) is after] == []


@pytest.mark.parametrize(("before", "given", "after"), NEVER_ON)
def test_this_input_does_not_make_this_move(before: Phase, given: Input, after: Phase) -> None:
    assert successor(before, given) is not after


@pytest.mark.parametrize("phase", Phase)
def test_every_pair_stands_in_exactly_one_table(phase: Phase) -> None:
    moved, ignored = set(TRANSITIONS[phase]), IGNORED[phase]
    assert moved & ignored == set()
    assert moved | ignored == set(Input)


def test_a_pair_that_is_in_neither_table_is_a_loud_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(IGNORED, Phase.LOADING, IGNORED[Phase.LOADING] - {Input.TICK})
    with pytest.raises(KeyError, match="loading"):
        successor(Phase.LOADING, Input.TICK)


def test_alarms_are_ignored_by_the_table_and_only_in_ended_phases() -> None:
    assert {phase for phase, _ in ALARMS} == ENDED_PHASES
    assert all(given in IGNORED[phase] for phase, given in ALARMS)


def test_only_health_and_proof_lead_to_serving() -> None:
    ways = {(before, given) for before in Phase for given in Input if successor(before, given) is Phase.SERVING}
    assert ways == {
        (Phase.HEALTHY, Input.VERIFIED),
        (Phase.DEGRADED, Input.VERIFIED),
        (Phase.DEGRADED, Input.HEALTH_BACK),
    }


def test_every_phase_can_be_reached_and_every_running_one_can_fail_and_be_stopped() -> None:
    seen, edge = {Phase.IDLE}, [Phase.IDLE]
    while edge:
        for target in TRANSITIONS[edge.pop()].values():
            if target not in seen:
                seen.add(target)
                edge.append(target)
    assert seen == set(Phase)
    for phase in set(Phase) - ENDED_PHASES - {Phase.IDLE, Phase.STOPPING}:
        assert successor(phase, Input.ENDED) is Phase.FAILED
        assert successor(phase, Input.STOP_BEGAN) is Phase.STOPPING


def test_the_console_shows_the_two_http_phases_by_their_status() -> None:
    assert {phase: label for phase, label in LABELS.items() if label != phase.value} == {
        Phase.WARMING: "503",
        Phase.HEALTHY: "200",
    }


# ------------------------------------------------------------------------------------- any order of facts at all


@given(histories())
def test_serving_only_after_an_accepted_answer_in_this_run(history: list[ev.AnyFact]) -> None:
    machine, accepted = Machine(verify=True), False
    for fact in history:
        if isinstance(fact, ev.Answered) and fact.answer.verdict is Verdict.READY:
            accepted = True
        for change in changes(machine.feed(fact)):
            if change.to is Phase.PREFLIGHT:
                accepted = False
            assert change.to is not Phase.SERVING or accepted


@given(histories())
def test_nothing_leaves_an_ended_phase_but_a_new_run(history: list[ev.AnyFact]) -> None:
    machine = Machine(verify=False)
    for fact in history:
        for change in changes(machine.feed(fact)):
            if change.from_ in ENDED_PHASES:
                assert isinstance(fact, ev.RunBegan)
                assert change.to is Phase.PREFLIGHT


@given(histories())
def test_the_link_never_changes_the_phase(history: list[ev.AnyFact]) -> None:
    """A machine that hears of the link and one that does not go through the same phases."""
    with_link, without = Machine(verify=True), Machine(verify=True)
    phases: list[tuple[Phase, Phase]] = []
    for fact in history:
        if isinstance(fact, ev.LinkChanged):
            # Only an end whose time was over anyway may move now, as it would have by a tick.
            due = without.deadline is not None and fact.at >= without.deadline
            before = with_link.phase
            with_link.feed(fact)
            if due:
                without.feed(ev.Tick(at=fact.at))
            else:
                assert with_link.phase is before
        else:
            with_link.feed(fact)
            without.feed(fact)
        phases.append((with_link.phase, without.phase))
    assert all(one is other for one, other in phases)


@given(histories())
def test_the_deadline_is_the_drain_of_an_end_that_is_not_resolved(history: list[ev.AnyFact]) -> None:
    machine = Machine(verify=True)
    for fact in history:
        machine.feed(fact)
        if machine.deadline is not None:
            assert fact.at < machine.deadline <= fact.at + DRAIN_S
            assert machine.phase not in ENDED_PHASES


@given(histories())
def test_every_change_is_told_once_with_evidence_and_in_order(history: list[ev.AnyFact]) -> None:
    machine, phase, at, run_id = Machine(verify=False), Phase.IDLE, 0.0, ""
    for fact in history:
        for change in changes(machine.feed(fact)):
            assert change.from_ is phase
            assert change.evidence
            assert change.at >= at
            assert change.label == LABELS[change.to]
            if change.to is Phase.PREFLIGHT and isinstance(fact, ev.RunBegan):
                run_id = fact.run_id  # an end that was held back moves before it, and bears the old run's id
            assert change.run_id == run_id
            phase, at = change.to, change.at
        assert machine.phase is phase


@given(histories())
def test_an_accepted_answer_after_the_end_is_a_warning(history: list[ev.AnyFact]) -> None:
    machine = Machine(verify=True)
    for fact in history:
        machine.feed(fact)
    if machine.phase in ENDED_PHASES:
        answer = ev.Answer(verdict=Verdict.READY, why="", status=200, bytes=0)
        told = machine.feed(ev.Answered(at=1e9, answer=answer))
        warnings = [event for event in told if isinstance(event, ev.Warning_)]
        assert len(warnings) == 1
        assert machine.phase.value in warnings[0].text
