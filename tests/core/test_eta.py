"""The estimate of what is left: by bars, memory, earlier runs; and whatever comes in whatever order."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.core.engine import LoadStage
from supervisor.core.eta import MAX_SEGMENTS, Estimate, Estimator, Mark, Past
from supervisor.core.pace import Bar

LOAD = tuple(
    LoadStage(stage=stage, typical_s=typical_s)
    for stage, typical_s in (("config", 10.0), ("weights", 100.0), ("graphs", 40.0), ("http", 1.0))
)
GIB = 1 << 30


def past(*marks: tuple[str, float], total_s: float) -> Past:
    return Past(marks=tuple(Mark(stage=stage, at_s=at_s) for stage, at_s in marks), total_s=total_s)


BEFORE = past(("config", 2.0), ("weights", 10.0), ("graphs", 110.0), ("http", 140.0), total_s=150.0)


def settled(estimator: Estimator, now: float) -> Estimate:
    """What it comes to, whatever was shown before."""
    return estimator.estimate(now, calm=False)


# ------------------------------------------------------------------------------------ without an earlier run


def test_nothing_supports_an_estimate_before_anything_is_measured() -> None:
    estimator = Estimator(LOAD, began_at=100.0)
    assert estimator.estimate(101.0) == Estimate()
    estimator.stage(102.0, "config")
    assert estimator.estimate(110.0) == Estimate()
    estimator.stage(112.0, "weights", 0.0)
    assert estimator.estimate(113.0).eta_s is None
    estimator.stage(114.0, "weights", 0.02)
    assert estimator.estimate(115.0).eta_s is None, "the first of fifty steps tells nothing yet"


def test_an_even_bar_is_extrapolated_and_the_rest_is_typical() -> None:
    estimator = Estimator(LOAD, began_at=0.0)
    estimator.stage(0.0, "config")
    for step in range(51):
        estimator.stage(10.0 + step, "weights", step / 100)
    said = settled(estimator, 60.0)
    assert said.rests_on == "log bar"
    assert said.eta_s == pytest.approx(50.0 + 41.0, rel=0.02), "weights as typical: so is the rest"
    assert said.overall == pytest.approx(60 / 151, rel=0.05)


def test_of_a_bar_that_began_slowly_the_last_steps_count() -> None:
    """The first graph takes two minutes, every other one a second."""
    estimator = Estimator(LOAD, began_at=0.0)
    estimator.stage(0.0, "weights", 0.0)
    estimator.stage(100.0, "weights", 1.0)
    estimator.stage(101.0, "graphs", 0.0)
    for step in range(1, 31):
        estimator.stage(220.0 + step, "graphs", step / 60)
    left_s = settled(estimator, 250.0).eta_s
    assert left_s is not None and 30.0 <= left_s < 80.0, "by the average alone it were 150 s"


def test_a_bar_that_stands_still_is_not_counted_down_to_nothing() -> None:
    estimator = Estimator(LOAD, began_at=0.0)
    for step in range(11):
        estimator.stage(step * 10.0, "weights", step / 20)
    left_s = settled(estimator, 100.0 + 3600.0).eta_s
    assert left_s is not None and left_s > 41.0


def test_a_stage_without_anything_to_measure_has_no_estimate_for_ever() -> None:
    estimator = Estimator(LOAD, began_at=0.0)
    for step in range(11):
        estimator.stage(step * 10.0, "weights", step / 10)
    estimator.stage(101.0, "graphs")
    said = settled(estimator, 102.0)
    assert said.rests_on == "typical" and said.eta_s == pytest.approx(40.0, abs=1.5)
    assert settled(estimator, 101.0 + 3 * 40 + 20).eta_s is None


def test_memory_stands_for_a_bar_that_the_log_has_not() -> None:
    estimator = Estimator(LOAD, began_at=0.0, weights_bytes=100 * GIB)
    estimator.stage(0.0, "weights")
    for second in range(41):
        estimator.memory(float(second), (2 + second) * GIB)
    said = settled(estimator, 40.0)
    assert said.rests_on == "memory" and said.fraction == pytest.approx(0.4)
    assert said.eta_s == pytest.approx(60.0 + 41.0, rel=0.05)


def test_memory_that_is_no_weights_tells_nothing() -> None:
    estimator = Estimator(LOAD, began_at=0.0, weights_bytes=100 * GIB)
    for second in range(41):
        estimator.memory(float(second), second * GIB)
    assert estimator.estimate(41.0) == Estimate()
    estimator.stage(42.0, "graphs")
    estimator.memory(43.0, 90 * GIB)
    assert estimator.estimate(44.0) == Estimate()


# ------------------------------------------------------------------------------------ with earlier runs


def test_an_earlier_run_tells_before_the_first_line() -> None:
    estimator = Estimator(LOAD, [BEFORE], began_at=0.0)
    said = estimator.estimate(1.0)
    assert (said.eta_s, said.rests_on) == (149.0, "history") and said.overall == pytest.approx(1 / 150)
    assert settled(estimator, 60.0).eta_s is None, "it should have said something long ago"


def test_the_rest_is_what_it_was_before() -> None:
    estimator = Estimator(LOAD, [BEFORE], began_at=0.0)
    estimator.stage(2.0, "config")
    estimator.stage(10.0, "weights")
    assert settled(estimator, 60.0).eta_s == pytest.approx(90.0)
    estimator.stage(80.0, "graphs")
    said = settled(estimator, 90.0)
    assert said.eta_s == pytest.approx(30.0), "faster so far: the graphs and what follows take what they took"
    assert said.rests_on == "history"


def test_a_bar_is_compared_with_the_earlier_runs_bar() -> None:
    curve = ((0.0, 0.0), (80.0, 0.1), (90.0, 0.9), (95.0, 1.0))
    before = Past(marks=(Mark(stage="graphs", at_s=0.0, curve=curve),), total_s=100.0)
    estimator = Estimator(LOAD, [before], began_at=0.0)
    estimator.stage(0.0, "graphs", 0.0)
    estimator.stage(80.0, "graphs", 0.1)
    assert settled(estimator, 80.0).eta_s == pytest.approx(20.0), "the slow beginning is known by now"
    slow = Estimator(LOAD, [before], began_at=0.0)
    slow.stage(0.0, "graphs", 0.0)
    slow.stage(160.0, "graphs", 0.1)
    assert settled(slow, 160.0).eta_s == pytest.approx(38.0, abs=2.0), "at half the pace"


def test_a_stage_that_was_not_there_before_does_not_take_away_what_is_known() -> None:
    estimator = Estimator(LOAD, [BEFORE], began_at=0.0)
    estimator.stage(2.0, "config")
    estimator.stage(10.0, "weights")
    estimator.stage(110.0, "kernels")
    assert settled(estimator, 120.0).eta_s == pytest.approx(40.0)


def test_a_stage_that_takes_far_longer_than_before_has_no_estimate() -> None:
    estimator = Estimator(LOAD, [BEFORE], began_at=0.0)
    estimator.stage(110.0, "graphs")
    assert settled(estimator, 145.0).eta_s is not None
    assert settled(estimator, 110.0 + 3 * 30 + 31).eta_s is None


def test_of_two_earlier_runs_the_like_one_counts() -> None:
    """The first after a boot reads the weights from the disk, the next ones from memory."""
    cold = past(("weights", 0.0), ("graphs", 400.0), ("http", 500.0), total_s=500.0)
    warm = past(("weights", 0.0), ("graphs", 40.0), ("http", 60.0), total_s=60.0)
    estimator = Estimator(LOAD, [warm, cold, warm], began_at=0.0)
    estimator.stage(0.0, "weights")
    estimator.stage(390.0, "graphs")
    assert settled(estimator, 391.0).eta_s == pytest.approx(99.0)


def test_a_second_model_is_known_by_its_bar_that_begins_anew() -> None:
    estimator = Estimator(LOAD, began_at=0.0)
    for at, fraction in ((0.0, 0.0), (50.0, 1.0), (60.0, 0.0), (61.0, 1.0)):
        estimator.stage(at, "weights", fraction)
    assert [(mark.stage, mark.nth, mark.at_s) for mark in estimator.record(70.0).marks] == [
        ("weights", 1, 0.0),
        ("weights", 2, 60.0),
    ]


def test_another_ranks_bar_is_no_second_model() -> None:
    estimator = Estimator(LOAD, began_at=0.0)
    for at, fraction in ((0.0, 0.0), (1.0, 0.5), (1.1, 0.4), (2.0, 1.0), (2.1, 0.9), (2.2, 1.0)):
        estimator.stage(at, "weights", fraction)
    assert len(estimator.record(3.0).marks) == 1


def test_lines_of_unknown_age_say_nothing_of_the_pace() -> None:
    """A run that is taken over: its log so far is read at once."""
    before = Past(
        marks=(Mark(stage="weights", at_s=0.0, curve=((0.0, 0.0), (100.0, 1.0))), Mark(stage="graphs", at_s=100.0)),
        total_s=130.0,
    )
    estimator = Estimator(LOAD, [before], began_at=0.0)
    for step in range(51):
        estimator.stage(1000.0, "weights", step / 100, timed=False)
    assert settled(estimator, 1000.0).eta_s == pytest.approx(80.0)


def test_a_run_of_its_own_record_is_estimated_right() -> None:
    def fed(estimator: Estimator, until_s: float) -> Estimator:
        lines = [(2.0, "config", None), *((10.0 + step, "weights", step / 60) for step in range(61)),
                 (75.0, "graphs", None), (90.0, "http", None)]  # fmt: skip
        for at, stage, fraction in lines:
            if at <= until_s:
                estimator.stage(at, stage, fraction)
        return estimator

    before = fed(Estimator(LOAD, began_at=0.0), 100.0).record(95.0)
    for now in (5.0, 12.0, 40.0, 72.0, 80.0, 92.0):
        assert settled(fed(Estimator(LOAD, [before], began_at=0.0), now), now).eta_s == pytest.approx(95 - now, abs=1.5)


# ------------------------------------------------------------------------------------ calm


def test_a_jump_is_shown_little_by_little() -> None:
    estimator = Estimator(LOAD, [BEFORE], began_at=0.0)
    estimator.stage(2.0, "config")
    estimator.stage(10.0, "weights")
    before = estimator.estimate(20.0).eta_s
    estimator.stage(20.5, "graphs")
    after = estimator.estimate(21.0).eta_s
    assert before is not None and after is not None
    assert before == pytest.approx(130.0)
    assert 100.0 < after < 125.0, "it comes to 40 s, and is on its way there"
    assert estimator.estimate(40.0).eta_s == pytest.approx(20.5, abs=2.0)


# ------------------------------------------------------------------------------------ whatever comes

NUMBERS = st.floats(allow_nan=True, allow_infinity=True)
TIMES = st.one_of(NUMBERS, st.floats(-1e3, 1e6))
STAGES = st.sampled_from(["config", "weights", "graphs", "http", "kernels", "", "никогда"])
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("stage"), TIMES, STAGES, st.one_of(st.none(), NUMBERS, st.floats(0, 1)), st.booleans()),
        st.tuples(st.just("memory"), TIMES, st.integers(-(10**18), 10**18)),
        st.tuples(st.just("ask"), TIMES),
    ),
    max_size=60,
)
PASTS = st.lists(
    st.builds(
        Past,
        marks=st.lists(
            st.builds(
                Mark,
                stage=STAGES,
                nth=st.integers(-1, 3),
                at_s=st.floats(-10, 1e6),
                curve=st.lists(st.tuples(st.floats(-10, 1e6), st.floats(-1, 2)), max_size=5).map(tuple),
            ),
            max_size=6,
        ).map(tuple),
        total_s=NUMBERS,
    ),
    max_size=3,
)


@settings(max_examples=300, deadline=None)
@given(EVENTS, PASTS, st.one_of(st.none(), st.integers(-1, 10**15)))
def test_it_never_raises_and_never_says_nonsense(
    events: list[tuple[object, ...]], pasts: list[Past], weights_bytes: int | None
) -> None:
    estimator = Estimator(LOAD, pasts, began_at=0.0, weights_bytes=weights_bytes)
    overall = 0.0
    for kind, at, *rest in events:
        if kind == "stage":
            stage, fraction, timed = rest
            estimator.stage(at, stage, fraction, timed=timed)  # type: ignore[arg-type]
        elif kind == "memory":
            estimator.memory(at, rest[0])  # type: ignore[arg-type]
        said = estimator.estimate(at)  # type: ignore[arg-type]
        assert said.eta_s is None or (math.isfinite(said.eta_s) and said.eta_s >= 0)
        assert said.fraction is None or 0 <= said.fraction <= 1
        assert (said.eta_s is None) == (said.rests_on == "")
        if said.overall is not None:
            assert overall <= said.overall <= 1, "what was done stays done"
            overall = said.overall
    record = estimator.record(1e6)
    assert len(record.marks) <= MAX_SEGMENTS
    assert [mark.at_s for mark in record.marks] == sorted(mark.at_s for mark in record.marks)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=400), NUMBERS)
def test_a_bar_takes_anything(steps: list[tuple[float, float]], now: float) -> None:
    bar = Bar()
    for at, fraction in steps:
        bar.put(at, fraction)
    left_s = bar.left_s(now if math.isfinite(now) else 0.0)
    assert left_s is None or left_s >= 0
    assert len(bar.curve(0.0)) <= 26
    fractions = [fraction for _, fraction in bar.curve(0.0)]
    assert fractions == sorted(fractions)
