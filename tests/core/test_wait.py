"""When a wait ends: which limit fired, in words, and with which exit code."""

from __future__ import annotations

import pytest

from supervisor.core import events as ev
from supervisor.core.events import LinkState, Outcome, Phase, Verdict
from supervisor.core.gpu import Driver, DriverState
from supervisor.core.gpu_events import GpuEvent
from supervisor.core.wait import EXIT_CODES, VERIFICATION, Decision, Limits, StatusWaiter, Waiter

BEGAN = 1000.0


def waiter(
    until: Phase = Phase.SERVING, *, timeout_s: float = 1800, stall_s: float | None = None, link_timeout_s: float = 300
) -> Waiter:
    limits = Limits(timeout_s=timeout_s, stall_s=stall_s, link_timeout_s=link_timeout_s)
    return Waiter(until=until, limits=limits, began_at=BEGAN)


def phase(to: Phase, from_: Phase = Phase.LOADING, at: float = BEGAN + 1, text: str = "seen") -> ev.PhaseChanged:
    proof = ev.Evidence(kind="answered", at=at, text=text)
    return ev.PhaseChanged(at=at, from_=from_, to=to, label=to.value, evidence=(proof,))


def link(state: LinkState, at: float, why: str = "no answer for 15 s") -> ev.LinkEvent:
    return ev.LinkEvent(at=at, state=state, why=why)


def log(at: float) -> ev.Log:
    return ev.Log(at=at, text="x", line_no=1, offset=0)


def verification(at: float = BEGAN + 5) -> ev.Finding:
    return ev.Finding(at=at, category="wrong_output", detail=VERIFICATION, cause="three empty generations")


def the(decision: Decision | None) -> Decision:
    assert decision is not None
    assert decision.exit_code == EXIT_CODES[decision.outcome]
    return decision


# ------------------------------------------------------------------------------------------------- phases


@pytest.mark.parametrize(
    ("until", "to", "over"),
    [
        (Phase.SERVING, Phase.SERVING, True),
        (Phase.SERVING, Phase.HEALTHY, False),
        (Phase.HEALTHY, Phase.HEALTHY, True),
        (Phase.HEALTHY, Phase.SERVING, True),
        (Phase.HEALTHY, Phase.WARMING, False),
        (Phase.SERVING, Phase.STOPPING, False),
        (Phase.SERVING, Phase.DEGRADED, False),
    ],
)
def test_the_target_ends_the_wait(until: Phase, to: Phase, over: bool) -> None:
    decision = waiter(until).feed(phase(to, text="200 with an empty body"))
    assert (decision is not None) == over
    if over:
        assert the(decision).outcome is Outcome.REACHED
        assert the(decision).exit_code == 0
        assert "200 with an empty body" in the(decision).reason


@pytest.mark.parametrize("until", [Phase.HEALTHY, Phase.SERVING])
def test_failed_and_stopped_end_every_wait_with_1(until: Phase) -> None:
    failed = the(waiter(until).feed(phase(Phase.FAILED, text="exit code 1")))
    assert (failed.outcome, failed.exit_code) == (Outcome.FAILED, 1)
    assert "exit code 1" in failed.reason
    stopped = the(waiter(until).feed(phase(Phase.STOPPED, Phase.STOPPING, text="stop asked for by bob")))
    assert stopped.exit_code == 1
    assert "bob" in stopped.reason


def test_back_to_idle_is_refused_with_4() -> None:
    decision = the(waiter().feed(phase(Phase.IDLE, Phase.PREFLIGHT, text="port 30000 is taken")))
    assert (decision.outcome, decision.exit_code) == (Outcome.REFUSED, 4)
    assert "port 30000 is taken" in decision.reason


def test_failed_verification_ends_a_wait_for_serving_only() -> None:
    decision = the(waiter(Phase.SERVING).feed(verification()))
    assert decision.exit_code == 1
    assert "three empty generations" in decision.reason
    assert waiter(Phase.HEALTHY).feed(verification()) is None


def test_any_other_finding_ends_nothing() -> None:
    finding = ev.Finding(at=BEGAN, category="memory", detail="oom", cause="out of memory")
    assert waiter().feed(finding) is None


# ------------------------------------------------------------------------------------------------- limits


def test_the_timeout_counts_from_the_start_of_the_command() -> None:
    wait = waiter(timeout_s=60)
    for at in range(1, 60):
        wait.feed(log(BEGAN + at))  # a log that grows buys no time
    assert wait.deadline == BEGAN + 60
    assert wait.tick(BEGAN + 59.999) is None
    decision = the(wait.tick(BEGAN + 60))
    assert (decision.outcome, decision.exit_code) == (Outcome.TIMEOUT, 124)
    assert "not serving in time: --timeout 1m fired" in decision.reason


def test_a_limit_is_named_by_where_it_came_from() -> None:
    limits = Limits(timeout_s=90, timeout_from="ready.timeout of the profile")
    wait = Waiter(until=Phase.HEALTHY, limits=limits, began_at=BEGAN)
    reason = the(wait.tick(BEGAN + 90)).reason
    assert "ready.timeout of the profile 90s fired" in reason
    assert "--timeout" not in reason


def test_stall_fires_when_nothing_moves_and_tells_what_moved_last() -> None:
    wait = waiter(stall_s=30)
    wait.feed(log(BEGAN + 10))
    assert wait.deadline == BEGAN + 40
    assert wait.tick(BEGAN + 39) is None
    decision = the(wait.tick(BEGAN + 40))
    assert decision.exit_code == 124
    assert "nothing moved for 30s: --stall fired" in decision.reason
    assert "the log grew" in decision.reason


def memory(at: float, ours_bytes: int | None) -> GpuEvent:
    return GpuEvent(at=at, host="gpu1", driver=Driver(state=DriverState.OK), ours_bytes=ours_bytes)


@pytest.mark.parametrize(
    "moves",
    [
        log(BEGAN + 25),
        ev.LogBlock(at=BEGAN + 25, data=b"x", offset=0, line_no=1, lines=0),
        ev.Progress(at=BEGAN + 25, stage="weights", done=3, total=8),
        phase(Phase.WARMING, at=BEGAN + 25),
        ev.Health(at=BEGAN + 25, status=503, bytes=0, ms=1, verdict=Verdict.NOT_YET),
        memory(BEGAN + 25, 5 << 30),
    ],
    ids=["log", "a block of it", "progress", "phase", "another answer", "memory"],
)
def test_what_moves_puts_the_stall_off(moves: ev.AnyEvent) -> None:
    wait = waiter(stall_s=30)
    wait.feed(moves)
    assert wait.tick(BEGAN + 54) is None
    assert the(wait.tick(BEGAN + 55)).outcome is Outcome.TIMEOUT


def test_memory_that_stays_and_memory_of_others_is_no_movement() -> None:
    wait = waiter(stall_s=30)
    wait.feed(memory(BEGAN + 5, 5 << 30))
    wait.feed(memory(BEGAN + 25, (5 << 30) + (63 << 20)))
    wait.feed(memory(BEGAN + 26, None))
    decision = the(wait.tick(BEGAN + 35))
    assert decision.outcome is Outcome.TIMEOUT and "its GPU memory changed" in decision.reason


def test_the_same_answer_again_and_again_is_no_movement() -> None:
    wait = waiter(stall_s=30)
    for at in range(1, 31):
        wait.feed(ev.Health(at=BEGAN + at, status=503, bytes=0, ms=1, verdict=Verdict.NOT_YET))
    assert wait.tick(BEGAN + 30) is None
    assert "the answer changed" in the(wait.tick(BEGAN + 31)).reason


def test_stall_is_off_by_default() -> None:
    wait = waiter()
    assert wait.deadline == BEGAN + 1800
    assert wait.tick(BEGAN + 1799) is None


def test_a_lost_link_is_no_stall_of_the_server() -> None:
    """Nothing is seen over a lost link; it was told as a server that stands still, with 124."""
    wait = waiter(stall_s=30)
    wait.feed(link(LinkState.LOST, BEGAN + 10))
    assert wait.tick(BEGAN + 100) is None
    wait.feed(link(LinkState.UP, BEGAN + 100))
    assert wait.tick(BEGAN + 129) is None
    assert "--stall" in the(wait.tick(BEGAN + 130)).reason


def test_a_link_that_stays_lost_ends_with_3_and_claims_nothing_of_the_server() -> None:
    wait = waiter()
    wait.feed(link(LinkState.LOST, BEGAN + 10))
    wait.feed(link(LinkState.CONNECTING, BEGAN + 200))
    wait.feed(link(LinkState.LOST, BEGAN + 201))
    assert wait.deadline == BEGAN + 310, "an attempt in between is no connection"
    assert wait.tick(BEGAN + 309) is None
    decision = the(wait.tick(BEGAN + 310))
    assert (decision.outcome, decision.exit_code) == (Outcome.UNREACHABLE, 3)
    assert "--link-timeout 5m fired" in decision.reason
    assert "no answer for 15 s" in decision.reason
    assert "not known" in decision.reason


def test_a_link_that_comes_back_starts_its_limit_anew() -> None:
    wait = waiter()
    wait.feed(link(LinkState.LOST, BEGAN + 10))
    wait.feed(link(LinkState.UP, BEGAN + 300))
    assert wait.tick(BEGAN + 400) is None
    wait.feed(link(LinkState.LOST, BEGAN + 500))
    assert wait.deadline == BEGAN + 800


def test_a_link_that_is_lost_at_the_deadline_is_3_and_names_the_timeout() -> None:
    wait = waiter(timeout_s=60)
    wait.feed(link(LinkState.LOST, BEGAN + 50))
    assert wait.deadline == BEGAN + 60
    decision = the(wait.tick(BEGAN + 60))
    assert decision.exit_code == 3
    assert "--timeout 1m fired" in decision.reason
    assert "--link-timeout" not in decision.reason


def test_the_deadline_is_always_the_next_limit() -> None:
    wait = waiter(timeout_s=100, stall_s=20, link_timeout_s=30)
    assert wait.deadline == BEGAN + 20
    wait.feed(log(BEGAN + 15))
    assert wait.deadline == BEGAN + 35
    wait.feed(link(LinkState.LOST, BEGAN + 16))
    assert wait.deadline == BEGAN + 46
    wait.feed(link(LinkState.UP, BEGAN + 40))
    assert wait.deadline == BEGAN + 60
    wait.feed(log(BEGAN + 95))
    assert wait.deadline == BEGAN + 100


# ------------------------------------------------------------------------------------------------- status


def status() -> StatusWaiter:
    return StatusWaiter(until=Phase.SERVING, limits=Limits(timeout_s=10), began_at=BEGAN)


@pytest.mark.parametrize(
    ("event", "code"),
    [
        (phase(Phase.SERVING, Phase.HEALTHY), 0),
        (phase(Phase.FAILED), 1),
        (phase(Phase.DEGRADED, Phase.SERVING), 1),
        (phase(Phase.STOPPING, Phase.SERVING), 5),
        (phase(Phase.STOPPED, Phase.STOPPING), 5),
        (ev.Health(at=BEGAN, status=503, bytes=0, ms=1, verdict=Verdict.NOT_YET, why="not ready yet"), 5),
        (ev.Health(at=BEGAN, status=None, bytes=None, ms=0, verdict=Verdict.REFUSED, why="nothing listens"), 5),
    ],
)
def test_status_is_over_with_the_first_certainty(event: ev.AnyEvent, code: int) -> None:
    decision = status().feed(event)
    assert decision is not None
    assert decision.exit_code == code


def test_status_waits_for_no_phase_and_its_own_limit_is_no_failure() -> None:
    wait = status()
    assert wait.feed(phase(Phase.LOADING, Phase.PREFLIGHT)) is None
    assert wait.feed(ev.Health(at=BEGAN, status=200, bytes=0, ms=1, verdict=Verdict.READY)) is None
    assert wait.tick(BEGAN + 9) is None
    decision = wait.tick(BEGAN + 10)
    assert decision is not None
    assert decision.exit_code == 5
    lost = status()
    lost.feed(link(LinkState.LOST, BEGAN + 1))
    decision = lost.tick(BEGAN + 10)
    assert decision is not None
    assert decision.exit_code == 3


def test_a_new_estimate_of_a_stage_that_stands_still_is_no_movement() -> None:
    waits = waiter(stall_s=60)
    waits.feed(ev.Progress(at=BEGAN + 1, stage="weights", done=3, total=9, fraction=1 / 3))
    waits.feed(ev.Progress(at=BEGAN + 50, stage="weights", done=3, total=9, fraction=1 / 3, eta_s=40.0, still_s=49.0))
    assert "weights went on" in the(waits.tick(BEGAN + 61)).reason


def test_compilers_that_work_in_a_silence_are_movement() -> None:
    waits = waiter(stall_s=60)
    waits.feed(ev.Progress(at=BEGAN + 1, stage="kernels"))
    waits.feed(ev.Progress(at=BEGAN + 50, stage="kernels", still_s=49.0, signs="children: 16 cicc busy"))
    assert waits.tick(BEGAN + 109) is None
    assert "last: children: 16 cicc busy" in the(waits.tick(BEGAN + 111)).reason
