"""Which changes are worth a message, and that no server can spam by them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core import events as ev
from supervisor.core.events import Phase, Verdict
from supervisor.core.notices import BURST, MAX_TEXT, QUIET_S, WINDOW_S, Notice, NoticeKind, Notices
from supervisor.core.wait import VERIFICATION

P = Phase


def change(to: Phase, before: Phase, at: float = 100.0, text: str = "seen") -> ev.PhaseChanged:
    evidence = (ev.Evidence(kind="x", at=at, text=text),)
    return ev.PhaseChanged(at=at, from_=before, to=to, label=to.value, evidence=evidence, run_id="r1")


def way(*phases: Phase, at: float = 100.0) -> list[ev.AnyEvent]:
    """A run through these phases."""
    return [change(to, before, at) for before, to in zip((P.IDLE, *phases), phases, strict=False)]


def kinds(notices: list[Notice]) -> list[str]:
    return [notice.kind.value for notice in notices]


LAUNCH = (P.PREFLIGHT, P.LAUNCHING, P.LOADING, P.WARMING, P.HEALTHY, P.SERVING)


def test_a_launch_that_serves_is_one_message() -> None:
    (notice,) = Notices("kimi").take(way(*LAUNCH))
    assert (notice.kind, notice.title, notice.text) == (NoticeKind.SERVED, "kimi serves", "seen")
    assert (notice.phase, notice.run_id) == (P.SERVING, "r1")


def test_a_failure_and_its_finding_are_one_message() -> None:
    finding = ev.Finding(at=101.0, category="memory", detail="oom", cause="out of memory on GPU 3")
    events = [*way(P.PREFLIGHT, P.LAUNCHING, P.LOADING, P.FAILED), finding]
    (notice,) = Notices("kimi").take(events)
    assert notice.title == "kimi failed" and notice.text == "out of memory on GPU 3 (seen)"
    (bare,) = Notices("kimi").take(events[:-1])
    assert bare.text == "seen"


def test_a_verification_that_fails_is_told_though_it_answers_200() -> None:
    finding = ev.Finding(at=101.0, category="wrong_output", detail=VERIFICATION, cause="the completion is empty")
    (notice,) = Notices("kimi").take([*way(*LAUNCH[:-1]), finding])
    assert notice.kind is NoticeKind.FAILED and "it answers, and the completion is empty" in notice.text
    degraded = Notices("kimi").take([*way(*LAUNCH, P.DEGRADED), finding])
    assert kinds(degraded) == ["served", "degraded"]


def test_degraded_and_recovered() -> None:
    notices = Notices("kimi").take(way(*LAUNCH, P.DEGRADED, P.SERVING))
    assert [notice.title for notice in notices] == ["kimi serves", "kimi is degraded", "kimi serves again"]


def test_what_served_before_we_came_is_no_news_and_its_end_is() -> None:
    taken_over = way(P.PREFLIGHT, P.LOADING, P.HEALTHY, P.SERVING)
    assert Notices("kimi").take(taken_over) == []
    refused = ev.Health(at=100, status=None, bytes=None, ms=1, verdict=Verdict.REFUSED)
    seen_coming = [*taken_over[:2], refused, *taken_over[2:]]
    assert kinds(Notices("kimi").take(seen_coming)) == ["served"]
    assert kinds(Notices("kimi").take([*taken_over, *way(P.SERVING, P.FAILED)[1:]])) == ["failed"]


def test_a_stop_by_somebody_else_names_him_and_ones_own_is_no_news() -> None:
    end = [
        change(P.STOPPING, P.SERVING, text="stop asked for by ana@gpu1"),
        change(P.STOPPED, P.STOPPING, text="no process of the run is left; release: proved"),
    ]
    theirs = Notices("kimi").take([*way(*LAUNCH), *end])[-1]
    assert theirs.title == "kimi was stopped"
    assert theirs.text == "stop asked for by ana@gpu1; no process of the run is left; release: proved"
    mine = Notices("kimi")
    mine.take(way(*LAUNCH))
    mine.ordered("stop")
    assert mine.take(end) == []


@pytest.mark.parametrize("order", ["stop", "restart"])
def test_after_an_order_the_next_stop_is_somebody_elses_again(order: str) -> None:
    notices = Notices("kimi")
    notices.take(way(*LAUNCH))
    notices.ordered(order)
    notices.order_over()  # it was refused, or broke off
    assert kinds(notices.take(way(P.SERVING, P.STOPPING, P.STOPPED)[1:])) == ["stopped"]


def test_a_restart_of_ones_own_is_silent_and_what_comes_of_it_is_told() -> None:
    notices = Notices("kimi")
    notices.take(way(*LAUNCH))
    notices.ordered("restart")
    assert kinds(notices.take([*way(P.SERVING, P.STOPPING, P.STOPPED)[1:], *way(*LAUNCH)])) == ["served"]
    assert kinds(notices.take(way(P.SERVING, P.STOPPING, P.STOPPED)[1:])) == [
        "stopped"
    ]  # the order was the run's before


def test_clearing_left_overs_hides_no_stop() -> None:
    notices = Notices("kimi")
    notices.take(way(*LAUNCH))
    notices.ordered("clear")
    assert kinds(notices.take(way(P.SERVING, P.STOPPING, P.STOPPED)[1:])) == ["stopped"]


# ------------------------------------------------------------------------------------------- not too many


def looped(notices: Notices, rounds: int, every_s: float, at: float = 0.0) -> list[Notice]:
    """A server that comes up and dies, again and again."""
    out: list[Notice] = []
    for number in range(rounds):
        out += notices.take(way(*LAUNCH, P.FAILED, at=at + number * every_s))
    return out


def test_a_restart_loop_falls_silent_and_tells_at_last_how_it_stands() -> None:
    notices = Notices("kimi")
    told = looped(notices, 50, 20.0)
    assert kinds(told) == ["served", "failed"] * (BURST // 2)
    assert "It changes often" in told[-1].text and all("often" not in one.text for one in told[:-1])
    assert notices.tick(1000.0) == []  # the last failure is 20 s old
    assert notices.deadline == 980.0 + QUIET_S
    assert notices.tick(980.0 + QUIET_S) == []  # failed was told last, and it is
    assert kinds(notices.take(way(*LAUNCH, at=2000.0))) == ["served"]
    assert notices.deadline is None


def test_what_stayed_up_after_the_silence_is_told() -> None:
    notices = Notices("kimi")
    looped(notices, 10, 5.0)
    assert notices.take(way(*LAUNCH, at=60.0)) == []
    (notice,) = notices.tick(60.0 + QUIET_S)
    assert notice.title == "kimi serves" and "17 changes were not told" in notice.text
    assert notices.tick(1e9) == []


def test_a_slow_pace_is_never_cut() -> None:
    assert len(looped(Notices("kimi"), 20, WINDOW_S / (BURST / 2))) == 40


def test_an_order_of_the_user_wakes_it_up() -> None:
    notices = Notices("kimi")
    looped(notices, 10, 5.0)
    notices.ordered("restart")
    assert notices.deadline is None
    assert kinds(notices.take(way(*LAUNCH, at=70.0))) == ["served"]


_STEPS = st.tuples(st.sampled_from(list(Phase)), st.floats(0, 400), st.sampled_from(["", "stop", "restart", "over"]))


@given(st.lists(_STEPS, max_size=60))
def test_never_more_than_one_message_a_change_and_never_more_than_the_burst(
    steps: list[tuple[Phase, float, str]],
) -> None:
    notices, before, at = Notices("x"), P.IDLE, 0.0
    times: list[float] = []
    for to, wait_s, order in steps:
        at += wait_s
        ticked = notices.tick(at)
        if order == "over":
            notices.order_over()
        elif order:
            notices.ordered(order)
            times = []  # an order begins a new count
        told = notices.take([change(to, before, at)])
        before = to
        assert len(told) <= 1 and len(ticked) <= 1
        times += [at for _ in (*ticked, *told)]
        recent = [one for one in times if at - one < WINDOW_S]
        assert len(recent) <= BURST + 1  # one more may end a silence


@given(st.text(max_size=2000), st.text(max_size=40))
def test_a_message_is_one_short_line_that_drives_nothing(text: str, name: str) -> None:
    events = [*way(*LAUNCH[:-1]), change(P.SERVING, P.HEALTHY, text=text)]
    (notice,) = Notices(name).take(events)
    assert len(notice.text) <= MAX_TEXT
    for shown in (notice.text, notice.title):
        assert not any(ord(char) < 32 or 127 <= ord(char) < 160 for char in shown)
