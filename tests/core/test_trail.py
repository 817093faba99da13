"""The histories: right by the clock that was told, whatever it does; bounded, whatever comes."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from supervisor.core import events as ev
from supervisor.core.events import Phase, Verdict
from supervisor.core.gpu import GIB, Driver, DriverState, Gpu, Memory
from supervisor.core.gpu_events import GpuEvent
from supervisor.core.trail import MOST_GPUS, PROBES, SLOT_S, SPAN_S, Series, Trail

WELL = Driver(state=DriverState.OK)
SLOTS = int(SPAN_S / SLOT_S)


def look(at: float, *used_gib: float, driver: Driver = WELL, first: int = 0) -> GpuEvent:
    gpus = tuple(
        Gpu(uuid=f"GPU-{first + n}", index=n, memory=Memory(used_bytes=round(used * GIB)), gpu_percent=n)
        for n, used in enumerate(used_gib)
    )
    return GpuEvent(at=at, host="h", driver=driver, gpus=gpus, sampled_at=at)


def health(at: float, verdict: Verdict = Verdict.REFUSED, status: int | None = None, count: int = 1) -> ev.Health:
    return ev.Health(at=at, status=status, bytes=None, ms=1.0, verdict=verdict, count=count)


def progress(at: float, done: int, total: int = 64, stage: str = "weights") -> ev.Progress:
    return ev.Progress(at=at, stage=stage, done=done, total=total, fraction=done / total)


def changed(at: float, to: Phase) -> ev.PhaseChanged:
    return ev.PhaseChanged(at=at, from_=Phase.IDLE, to=to, label=to.value, evidence=())


# ------------------------------------------------------------------------------- a series


def test_a_series_gives_equal_spans_the_oldest_first() -> None:
    series = Series(span_s=20, slot_s=2)
    for second in range(20):
        series.put(100 + second, float(second))
    assert series.spans(119, 10) == [1, 3, 5, 7, 9, 11, 13, 15, 17, 19]  # the last one in a slot stands
    assert series.spans(119, 5) == [2, 6, 10, 14, 18]
    assert series.spans(119, 1) == [10]
    assert series.spans(119, 0) == [] and Series().spans(119, 2) == [None, None]


def test_a_picture_moves_by_whole_spans_and_holds_still_between() -> None:
    series = Series(span_s=40, slot_s=2)
    for second in range(40):
        series.put(1000 + second, float(second))
    before = series.spans(1040, 10)
    assert series.spans(1043.9, 10) == before
    assert series.spans(1044, 10) == [*before[1:], None]


def test_where_nothing_was_seen_nothing_is_said() -> None:
    series = Series(span_s=20, slot_s=2)
    series.put(100, 5.0)
    series.put(108, None)
    series.put(110, 7.0)
    assert series.spans(110, 10) == [None, None, None, None, 5, None, None, None, None, 7]
    assert series.spans(200, 10) == [None] * 10


def test_a_clock_set_back_forgets_what_now_lies_in_the_future() -> None:
    series = Series(span_s=20, slot_s=2)
    for second in range(100, 120):
        series.put(second, 9.0)
    series.put(110, 1.0)
    assert series.spans(110, 10) == [None] * 4 + [9] * 5 + [1]
    series.put(-3600, 4.0)
    assert series.spans(-3600, 10) == [None] * 9 + [4]


def test_a_clock_set_forward_leaves_a_gap() -> None:
    series = Series(span_s=20, slot_s=2)
    series.put(100, 9.0)
    series.put(1_000_000, 1.0)
    assert series.spans(1_000_000, 10) == [None] * 9 + [1]


@given(
    st.lists(st.tuples(st.floats(-200, 200), st.one_of(st.none(), st.floats(0, 100))), max_size=60),
    st.integers(1, 25),
    st.floats(-10, 60),
)
def test_a_series_is_what_its_rules_say(steps: Sequence[tuple[float, float | None]], count: int, later: float) -> None:
    """Against the plainest way to do the same: a dict of slots that forgets the future and the too old."""
    series, slots, now = Series(span_s=40, slot_s=2), dict[int, float | None](), 0.0
    for step, value in steps:
        now += step
        slot = math.floor(now / 2)
        slots = {at: known for at, known in slots.items() if slot - 20 < at <= slot}
        slots[slot] = value
        series.put(now, value)
    shown = series.spans(now + later, count)
    assert len(shown) == count
    if not slots:
        assert shown == [None] * count
        return
    last, wide = max(slots), math.ceil(20 / count)
    here = max(math.floor((now + later) / 2), last) // wide
    for position, value in enumerate(reversed(shown)):
        begins = (here - position) * wide
        found = [
            known
            for slot in range(begins, begins + wide)
            if slot > last - 20 and (known := slots.get(slot)) is not None
        ]
        assert value is None if not found else value is not None and math.isclose(value, sum(found) / len(found))


@given(st.floats(allow_nan=True, allow_infinity=True), st.floats(allow_nan=True, allow_infinity=True))
def test_no_time_breaks_a_series(at: float, now: float) -> None:
    series = Series()
    series.put(at, 1.0)
    series.put(now, 2.0)
    assert len(series.spans(now, 7)) == 7 and len(series.spans(at, 7)) == 7


# ------------------------------------------------------------------------------- GPUs


def test_each_gpu_has_a_history_of_its_own() -> None:
    trail = Trail()
    for second in range(300):
        trail.take(look(1000 + second, 10, second / 10))
    assert trail.gpus["GPU-0"].used_bytes.spans(1299, 3) == [10 * GIB] * 3
    growing = trail.gpus["GPU-1"].used_bytes.spans(1299, 30)
    assert None not in growing and growing == sorted(growing, key=lambda value: value or 0.0)
    assert trail.gpus["GPU-1"].percent.spans(1299, 2) == [1, 1]


def test_a_driver_that_does_not_answer_adds_no_sample() -> None:
    trail = Trail()
    trail.take(look(1000, 10))
    for second in range(1001, 1060):
        stuck = GpuEvent(
            at=second,
            host="h",
            driver=Driver(state=DriverState.STUCK),
            gpus=look(1000, 10).gpus,
            sampled_at=1000.0,
        )
        trail.take(stuck)
    assert trail.gpus["GPU-0"].used_bytes.spans(1059, SLOTS)[-29:] == [None] * 29


def test_ever_new_uuids_fill_no_memory() -> None:
    trail = Trail()
    for number in range(40):
        trail.take(look(1000 + number * 400, *[1.0] * 64, first=number * 64))
    assert len(trail.gpus) == 64  # those of five minutes ago are gone
    for number in range(20):
        trail.take(look(50_000, *[1.0] * 128, first=number * 128))
    assert len(trail.gpus) <= MOST_GPUS


def test_a_node_with_eight_gpus_costs_a_few_kilobytes() -> None:
    trail = Trail()
    for second in range(3600):
        trail.take(look(1000 + second, *[1.0] * 8))
    values = [getattr(series, "_values") for gpu in trail.gpus.values() for series in (gpu.used_bytes, gpu.percent)]  # noqa: B009
    assert len(values) == 16 and sum(sys.getsizeof(value) for value in values) < 24_000


# ------------------------------------------------------------------------------- health, metrics


def test_the_last_probes_are_kept_and_a_run_begins_with_none() -> None:
    trail = Trail()
    for second in range(1000):
        trail.take(health(second))
    assert len(trail.probes) == PROBES and trail.probes[-1].at == 999
    trail.take(health(1000, Verdict.READY, 200, count=7))
    assert (trail.probes[-1].status, trail.probes[-1].count) == (200, 7)
    trail.take(ev.Metrics(at=1000, running=3))
    trail.take(changed(1001, Phase.STOPPED))
    assert trail.probes and trail.metrics is not None
    trail.take(changed(1002, Phase.PREFLIGHT))
    assert not trail.probes and trail.metrics is None and trail.running.spans(1002, 2) == [None, None]


def test_what_the_view_told_already_is_not_counted_twice() -> None:
    trail = Trail()
    trail.begin(look(100, 1.0), health(100), progress(100, 1))
    trail.take(health(100, count=3))
    assert [probe.count for probe in trail.probes] == [3]


def test_metrics_have_histories_with_gaps_where_one_is_not_told() -> None:
    trail = Trail()
    for second in range(0, 300, 2):
        trail.take(ev.Metrics(at=second, running=second, generated_tokens_s=None, cache_share=0.5))
    assert trail.running.spans(299, 3) == [49, 149, 249]
    assert trail.generated_tokens_s.spans(299, 3) == [None] * 3
    assert trail.cache_share.spans(299, 2) == [0.5, 0.5]


# ------------------------------------------------------------------------------- how long a stage still takes


def test_a_stage_of_even_steps_tells_how_long_it_still_takes() -> None:
    trail = Trail()
    for step in range(1, 33):
        trail.take(progress(100 + step * 4, step))
    now = 100 + 32 * 4
    assert trail.stage_left_s(now) == 32 * 4
    assert trail.stage_left_s(now + 3) == 32 * 4 - 3  # time goes on between two steps


def test_too_little_says_nothing() -> None:
    trail = Trail()
    assert trail.stage_left_s(100) is None
    trail.take(progress(100, 1))
    trail.take(progress(101, 2))
    assert trail.stage_left_s(101) is None  # two points
    trail.take(progress(102, 3))
    assert trail.stage_left_s(102) is None  # two seconds
    trail.take(progress(106, 4))
    assert trail.stage_left_s(106) is not None


def test_a_stage_that_stands_still_or_is_done_has_no_rate() -> None:
    trail = Trail()
    for step in range(1, 33):
        trail.take(progress(100 + step, step))
    now = 132.0
    assert trail.stage_left_s(now + 20) is not None and trail.stage_left_s(now + 21) is None
    trail.take(progress(200, 64))
    assert trail.stage_left_s(200) is None


def test_another_stage_a_smaller_figure_and_a_clock_set_back_begin_anew() -> None:
    for interruption in (progress(200, 1, stage="graphs"), progress(200, 1), progress(50, 40)):
        trail = Trail()
        for step in range(1, 33):
            trail.take(progress(100 + step, step))
        assert trail.stage_left_s(132) is not None
        trail.take(interruption)
        assert trail.stage_left_s(interruption.at) is None


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.one_of(st.none(), st.floats(0, 1)), st.sampled_from("ab"))))
def test_an_estimate_is_never_negative_and_never_raises(steps: Sequence[tuple[float, float | None, str]]) -> None:
    trail = Trail()
    for at, fraction, stage in steps:
        trail.take(ev.Progress(at=at, stage=stage, fraction=fraction))
        left = trail.stage_left_s(at)
        assert left is None or left >= 0
