"""The machine by stories: what a launch looks like, second by second, and what must come of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core import events as ev
from supervisor.core.events import LinkState, Phase, Verdict
from supervisor.core.machine import DRAIN_S, HEALTH_LOST_AFTER, REPEAT_S, Machine, describe_answer
from tests.core.facts import ROOT, answered, changes, ended, feed, launched, not_yet, reached, refused


def serving(at: float = 10.0, *, verify: bool = False) -> Machine:
    """A machine whose server serves."""
    machine = Machine(verify=verify)
    launched(machine)
    machine.feed(answered(at))
    if verify:
        machine.feed(ev.Verified(at=at, text="8 tokens came back"))
    assert machine.phase is Phase.SERVING
    return machine


def healths(events: list[ev.AnyEvent]) -> list[ev.Health]:
    return [event for event in events if isinstance(event, ev.Health)]


# ---------------------------------------------------------------------------------------------- coming up


def test_the_founding_story() -> None:
    """Refused, then 503, then a 200 with an EMPTY body: the loop that waited for a body never saw it."""
    machine = Machine(verify=True)
    launched(machine)
    assert machine.phase is Phase.LOADING
    for second in range(1, 300):
        assert reached(machine.feed(refused(second))) == []
    assert reached(machine.feed(not_yet(300))) == [Phase.WARMING]
    for second in range(301, 400):
        assert reached(machine.feed(not_yet(second))) == []
    (change,) = changes(machine.feed(answered(400, 200, size=0)))
    assert (change.from_, change.to, change.at) == (Phase.WARMING, Phase.HEALTHY, 400)
    assert "200 with an empty body" in change.evidence[0].text
    assert reached(machine.feed(ev.Verified(at=401, text="Paris came back"))) == [Phase.SERVING]


def test_an_engine_without_503_goes_from_loading_to_healthy() -> None:
    machine = Machine(verify=True)
    launched(machine)
    assert reached(feed(machine, refused(1), refused(2), answered(3))) == [Phase.HEALTHY]


def test_a_url_alone_needs_no_run() -> None:
    machine = Machine(verify=True)
    assert reached(feed(machine, refused(1), not_yet(2), answered(3))) == [
        Phase.LOADING,
        Phase.WARMING,
        Phase.HEALTHY,
    ]


def test_a_port_that_refuses_again_is_loading_again() -> None:
    machine = Machine(verify=True)
    launched(machine)
    (back,) = changes(feed(machine, not_yet(1), refused(2)))[1:]
    assert back.to is Phase.LOADING
    assert any(str(ROOT.pid) in item.text for item in back.evidence), "the process that lives is part of the proof"


def test_503_for_ever_never_fails_by_itself() -> None:
    machine = Machine(verify=True)
    launched(machine)
    events = feed(machine, *(not_yet(at) for at in range(1, 3_600)))
    assert reached(events) == [Phase.WARMING]
    assert machine.deadline is None


@pytest.mark.parametrize("verdict", [Verdict.REJECTED, Verdict.SILENT, Verdict.BROKEN])
def test_answers_that_mean_nothing_move_nothing(verdict: Verdict) -> None:
    machine = Machine(verify=True)
    launched(machine)
    assert reached(feed(machine, *(answered(at, None, verdict) for at in range(1, 50)))) == []


def test_a_ready_line_is_a_hint_and_no_proof() -> None:
    machine = Machine(verify=True)
    launched(machine)
    assert machine.feed(ev.ReadyLineSeen(at=5, line="The server is fired up and ready to roll!")) == []
    assert machine.phase is Phase.LOADING


def test_verification_off_serves_at_once_and_says_that_nothing_was_verified() -> None:
    machine = Machine(verify=False)
    launched(machine)
    healthy, served = changes(machine.feed(answered(5)))
    assert (healthy.to, served.to) == (Phase.HEALTHY, Phase.SERVING)
    assert "not verified" in served.evidence[0].text
    assert "200" in served.evidence[1].text


def test_failed_verification_leaves_healthy_as_it_is() -> None:
    machine = Machine(verify=True)
    launched(machine)
    assert reached(feed(machine, answered(5), ev.VerifyFailed(at=6, text="garbage"))) == [Phase.HEALTHY]


def test_the_evidence_of_serving_has_the_generation_and_the_answer() -> None:
    machine = Machine(verify=True)
    launched(machine)
    machine.feed(answered(5))
    (change,) = changes(machine.feed(ev.Verified(at=6, text="'Paris' in 80 ms")))
    assert [item.at for item in change.evidence] == [6, 5]


def test_a_ten_minute_load_minute_by_minute() -> None:
    machine = Machine(verify=True)
    launched(machine, 0.5)
    events: list[ev.AnyEvent] = []
    for tenth in range(10, 6000):
        at = tenth / 10
        if at < 480:
            events += machine.feed(refused(at))
        elif at < 590:
            events += machine.feed(not_yet(at))
        else:
            events += machine.feed(answered(at))
        if tenth % 60 == 0:
            events += machine.feed(ev.StageSeen(at=at, stage="weights", done=tenth // 60, total=100))
    events += machine.feed(ev.Verified(at=600, text="ok"))
    assert [(change.to, change.at) for change in changes(events)] == [
        (Phase.WARMING, 480.0),
        (Phase.HEALTHY, 590.0),
        (Phase.SERVING, 600.0),
    ]
    assert len(healths(events)) <= 603, "5990 looks, about one line a second"
    assert len([event for event in events if isinstance(event, ev.Progress)]) == 99


# ------------------------------------------------------------------------------------- the end and the log


def test_an_end_waits_until_the_log_is_read_to_its_size() -> None:
    machine = Machine(verify=True)
    launched(machine)
    feed(machine, ev.LogRead(at=1, offset=100))
    assert machine.feed(ended(2, log_size=250)) == []
    assert machine.deadline == pytest.approx(2 + DRAIN_S)
    assert machine.feed(ev.LogRead(at=2.05, offset=249)) == []
    (change,) = changes(machine.feed(ev.LogRead(at=2.1, offset=250)))
    assert (change.to, change.at) == (Phase.FAILED, 2)
    assert "exit code 1" in change.evidence[0].text
    assert machine.deadline is None


def test_an_end_waits_for_300_ms_at_most() -> None:
    machine = Machine(verify=True)
    launched(machine)
    machine.feed(ended(2, log_size=250))
    assert machine.feed(ev.Tick(at=2.29)) == []
    assert pytest.approx(0.3) == DRAIN_S
    assert reached(machine.feed(ev.Tick(at=2.3))) == [Phase.FAILED]


@pytest.mark.parametrize("log_size", [None, 0, 100])
def test_an_end_whose_log_is_read_moves_at_once(log_size: int | None) -> None:
    machine = Machine(verify=True)
    launched(machine)
    machine.feed(ev.LogRead(at=1, offset=100))
    assert reached(machine.feed(ended(2, log_size=log_size))) == [Phase.FAILED]


def test_an_answer_that_was_under_way_makes_no_dead_server_healthy() -> None:
    """A wait would end with 0 between the last answer and the drained log."""
    machine = Machine(verify=False)
    launched(machine)
    machine.feed(ended(2, log_size=250))
    assert reached(machine.feed(answered(2.1))) == []
    assert reached(machine.feed(ev.Tick(at=2.4))) == [Phase.FAILED]


def test_a_tree_that_is_gone_before_the_log_is_drained_still_ends_in_stopped() -> None:
    """Somebody else stops it: the end, and right behind it the empty tree. It would have stood in stopping for ever."""
    machine = serving()
    machine.feed(ended(20, log_size=10_000, by="alice@laptop"))
    assert reached(machine.feed(ev.TreeGone(at=20.05, release="no gpu"))) == [Phase.STOPPING, Phase.STOPPED]


def test_a_new_run_while_an_end_drains_is_not_lost() -> None:
    machine = serving()
    machine.feed(ended(20, log_size=10_000))
    events = machine.feed(ev.RunBegan(at=20.1, run_id="run-2", why="restart"))
    assert reached(events) == [Phase.FAILED, Phase.PREFLIGHT]
    assert reached(machine.feed(ev.Tick(at=21))) == [], "the old end does not end the new run"


def test_an_end_that_was_wanted_is_stopping_then_stopped() -> None:
    machine = serving()
    (change,) = changes(machine.feed(ended(20, code=0, by="bob")))
    assert change.to is Phase.STOPPING
    assert "stopped by bob" in change.evidence[0].text
    (gone,) = changes(machine.feed(ev.TreeGone(at=21, release="proved")))
    assert gone.to is Phase.STOPPED
    assert "release: proved" in gone.evidence[0].text


def test_a_stop_before_the_end_is_no_failure() -> None:
    machine = serving()
    facts: list[ev.AnyFact] = [ev.StopBegan(at=20, by="bob"), ended(21), ev.StopIncomplete(at=22, text="1 is left")]
    assert reached(feed(machine, *facts)) == [Phase.STOPPING]
    assert reached(machine.feed(ev.TreeGone(at=23, release="no gpu"))) == [Phase.STOPPED]


def test_left_overs_are_named_and_long_lists_cut() -> None:
    machine = serving()
    left = tuple(ev.Process(pid=900 + n, start_ticks=1, title=f"worker {n}") for n in range(7))
    (change,) = changes(machine.feed(ev.Ended(at=20, exit=ev.Exit(signal="SIGKILL"), left=left)))
    text = change.evidence[0].text
    assert "signal SIGKILL" in text
    assert "7 of its processes are left: 900 worker 0" in text
    assert "906" not in text


def test_an_end_that_nobody_saw_says_so() -> None:
    machine = serving()
    (change,) = changes(machine.feed(ended(20, code=None)))
    assert "gone, exit code unknown" in change.evidence[0].text


# ------------------------------------------------------------------------------------- degraded and back


def test_degraded_after_three_bad_answers_and_back_with_the_first_good_one() -> None:
    machine = serving()
    assert HEALTH_LOST_AFTER == 3
    assert reached(feed(machine, answered(20, None, Verdict.SILENT), not_yet(21))) == []
    assert reached(machine.feed(refused(22))) == [Phase.DEGRADED]
    assert reached(feed(machine, refused(23), not_yet(24))) == []
    assert reached(machine.feed(answered(25))) == [Phase.SERVING]


def test_bad_answers_that_are_not_in_a_row_degrade_nothing() -> None:
    machine = serving()
    for start in range(20, 60, 3):
        assert reached(feed(machine, not_yet(start), not_yet(start + 1), answered(start + 2))) == []


def test_a_failed_canary_is_not_healed_by_a_health_answer() -> None:
    """Health says 200 while the engine makes garbage: only a generation brings it back."""
    machine = serving(verify=True)
    assert reached(machine.feed(ev.VerifyFailed(at=20, text="garbage"))) == [Phase.DEGRADED]
    assert reached(feed(machine, *(answered(at) for at in range(21, 40)))) == []
    assert reached(machine.feed(ev.Verified(at=41, text="Paris"))) == [Phase.SERVING]


def test_the_log_of_a_serving_server_can_degrade_it_only() -> None:
    machine = serving()
    assert reached(machine.feed(ev.CannotComeUp(at=20, text="a rank crashed"))) == [Phase.DEGRADED]
    loading = Machine(verify=True)
    launched(loading)
    assert reached(loading.feed(ev.CannotComeUp(at=20, text="a rank crashed"))) == [Phase.FAILED]


# ------------------------------------------------------------------------------------- a second run, the alarms


def test_a_new_run_bears_its_own_id_from_its_first_change() -> None:
    """The view of every front end takes the id from there."""
    machine = serving()
    machine.feed(ended(20))
    (change,) = changes(machine.feed(ev.RunBegan(at=21, run_id="run-2", why="restart")))
    assert (change.to, change.run_id) == (Phase.PREFLIGHT, "run-2")


def test_a_new_run_forgets_the_answers_of_the_old_one() -> None:
    machine = serving(verify=True)
    machine.feed(ended(20))
    launched(machine, 21, "run-2")
    assert reached(machine.feed(ev.Verified(at=22, text="late, of the old run"))) == []
    feed(machine, not_yet(23), not_yet(24))
    assert machine.phase is Phase.WARMING


@pytest.mark.parametrize("late", [answered(30), ev.Verified(at=30, text="a generation came back")])
def test_an_accepted_answer_after_the_end_is_never_silence(late: ev.AnyFact) -> None:
    machine = serving()
    machine.feed(ended(20))
    (warning,) = [event for event in machine.feed(late) if isinstance(event, ev.Warning_)]
    assert "failed" in warning.text
    assert warning.facts["phase"] == "failed"
    assert machine.phase is Phase.FAILED


def test_refused_goes_back_to_idle_with_every_reason() -> None:
    machine = Machine(verify=True)
    machine.feed(ev.RunBegan(at=1, run_id="r", why="w"))
    (change,) = changes(machine.feed(ev.Refused(at=2, reasons=("port 1 is taken", "no such model"))))
    assert change.to is Phase.IDLE
    assert "port 1 is taken; no such model" in change.evidence[0].text


# ------------------------------------------------------------------------------------- answers as lines


def test_equal_answers_are_told_at_most_once_a_second_and_counted() -> None:
    machine = Machine(verify=True)
    launched(machine)
    told = healths(feed(machine, *(refused(1 + n / 10) for n in range(31))))
    assert [(round(event.at, 1), event.count) for event in told] == [(1.0, 1), (2.0, 10), (3.0, 10), (4.0, 10)]


def test_another_answer_is_told_at_once_and_stands_for_itself_alone() -> None:
    """It said 503 four times, when three of the four were refusals before it."""
    machine = Machine(verify=True)
    launched(machine)
    told = healths(feed(machine, refused(1.0), refused(1.1), refused(1.2), refused(1.3), not_yet(1.4)))
    assert [(event.verdict, event.count) for event in told] == [(Verdict.REFUSED, 1), (Verdict.NOT_YET, 1)]


@given(st.lists(st.tuples(st.sampled_from([0.05, 0.1, 0.5, 1.0, 3.0]), st.sampled_from("rnoa")), max_size=60))
def test_counts_never_say_more_than_was_seen(looks: list[tuple[float, str]]) -> None:
    machine = Machine(verify=True)
    launched(machine)
    at, seen = 0.0, {"refused": 0, "not_yet": 0, "ready": 0, "rejected": 0}
    told = dict.fromkeys(seen, 0)
    last: dict[str, float] = {}
    before = ""
    for step, kind in looks:
        at += step
        fact = {"r": refused, "n": not_yet, "o": answered}.get(kind, lambda t: answered(t, 401, Verdict.REJECTED))(at)
        verdict = fact.answer.verdict.value
        seen[verdict] += 1
        events = healths(machine.feed(fact))
        if verdict != before:
            assert len(events) == 1
        for event in events:
            told[verdict] += event.count
            assert verdict != before or event.at - last[verdict] >= REPEAT_S
            last[verdict] = event.at
        assert told[verdict] <= seen[verdict]
        before = verdict


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (ev.Answer(verdict=Verdict.REFUSED, why="nothing listens"), "nothing listens"),
        (ev.Answer(verdict=Verdict.READY, why="", status=200, bytes=0, ms=1.4), "200 with an empty body in 1 ms"),
        (
            ev.Answer(verdict=Verdict.NOT_YET, why="w", status=503, bytes=7, ms=2, address="::1"),
            "503 with 7 bytes in 2 ms from ::1: w",
        ),
        (ev.Answer(verdict=Verdict.READY, why="", status=200), "200 with a body that was not read in 0 ms"),
    ],
)
def test_an_answer_in_words(answer: ev.Answer, text: str) -> None:
    assert describe_answer(answer) == text


# ------------------------------------------------------------------------------------- the link, stages


def test_the_link_is_told_when_it_changes_and_only_then() -> None:
    machine = Machine(verify=True)
    launched(machine)
    up = ev.LinkChanged(at=1, state=LinkState.UP, why="connected")
    (event,) = machine.feed(up)
    assert isinstance(event, ev.LinkEvent)
    assert machine.feed(up) == []
    (lost,) = machine.feed(ev.LinkChanged(at=2, state=LinkState.LOST, why="no answer for 15 s"))
    assert isinstance(lost, ev.LinkEvent)
    assert (lost.state, lost.why, machine.phase) == (LinkState.LOST, "no answer for 15 s", Phase.LOADING)


def test_a_stage_is_told_when_it_goes_on() -> None:
    machine = Machine(verify=True)
    launched(machine)
    stage = ev.StageSeen(at=1, stage="weights", done=3, total=64, fraction=3 / 64)
    assert len(machine.feed(stage)) == 1
    assert machine.feed(stage) == []
    (progress,) = machine.feed(ev.StageSeen(at=2, stage="weights", done=4, total=64, fraction=4 / 64))
    assert isinstance(progress, ev.Progress)
    assert progress.done == 4


def test_a_tree_that_goes_with_its_root_does_not_cut_the_last_words_short() -> None:
    machine = Machine(verify=True)
    machine.feed(ev.RunBegan(at=0.0, run_id="r", why="new"))
    machine.feed(ev.Launched(at=0.1, text="started"))
    machine.feed(ev.Ended(at=1.0, exit=ev.Exit(code=1), log_size=100))
    assert reached(machine.feed(ev.TreeGone(at=1.001, release="no gpu"))) == []
    assert reached(machine.feed(ev.LogRead(at=1.01, offset=100))) == [Phase.FAILED]
