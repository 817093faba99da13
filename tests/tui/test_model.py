"""What the console knows of a session: this run's answers, and where each phase began in its log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from supervisor.core import events as ev
from supervisor.core.events import Phase, Verdict
from supervisor.supervise.hub import View
from supervisor.tui.model import MARKS, Mark, SessionModel
from tests.tui.models import Told, gpu_event, gpus


def block(line_no: int, text: str, *, fresh: bool = False) -> ev.LogBlock:
    data = text.encode()
    return ev.LogBlock(at=0, data=data, offset=line_no * 80, line_no=line_no, lines=data.count(b"\n"), fresh=fresh)


def line(line_no: int, *, living: bool = False) -> ev.Log:
    return ev.Log(at=0, text="x", line_no=line_no, offset=line_no, living=living)


def changed(to: Phase) -> ev.PhaseChanged:
    return ev.PhaseChanged(at=0, from_=Phase.IDLE, to=to, label=ev.LABELS[to], evidence=())


def marks(*batches: Sequence[ev.AnyEvent]) -> list[tuple[int, str]]:
    model = SessionModel()
    for batch in batches:
        model.take(batch, View(), {})
    return [(mark.line_no, mark.text) for mark in model.marks]


# ------------------------------------------------------------------------------- marks


def test_a_phase_is_marked_at_the_first_line_that_was_written_after_it() -> None:
    assert marks(
        [changed(Phase.PREFLIGHT), changed(Phase.LAUNCHING)],
        [block(1, "one\ntwo\n"), changed(Phase.LOADING), block(3, "three\nfo")],
        [changed(Phase.WARMING), block(4, "ur\n"), changed(Phase.HEALTHY)],
    ) == [(1, "preflight · launching"), (3, "loading"), (4, "503"), (5, "200")]


def test_a_mark_stands_where_nothing_is_written_after_it() -> None:
    assert marks([block(1, "one\ntwo\n")], [changed(Phase.FAILED)]) == [(3, "failed")]


def test_lines_and_blocks_mark_alike() -> None:
    assert marks([line(7), line(8), changed(Phase.LOADING), line(9)]) == [(9, "loading")]
    assert marks([line(7, living=True), changed(Phase.LOADING), line(7)]) == [(7, "loading")]


def test_a_new_run_has_its_own_marks_wherever_its_log_begins() -> None:
    """A run's own folder has another file; a log that the profile names goes on."""
    before: list[ev.AnyEvent] = [changed(Phase.PREFLIGHT), block(1, "a\n" * 500), changed(Phase.STOPPED)]
    run: list[ev.AnyEvent] = [changed(Phase.PREFLIGHT), changed(Phase.LAUNCHING)]
    assert marks(before, run, [block(1, "new file\n")]) == [(1, "preflight · launching")]
    assert marks(before, run, [block(501, "goes on\n")]) == [(501, "preflight · launching")]


def test_a_log_that_was_rotated_takes_its_marks_with_it() -> None:
    first: list[ev.AnyEvent] = [block(1, "a\nb\n"), changed(Phase.LOADING), block(3, "c\n")]
    assert marks(first, [changed(Phase.WARMING), block(1, "anew\n", fresh=True), changed(Phase.HEALTHY)]) == [
        (1, "503"),
        (2, "200"),
    ]
    assert marks(first, [block(1, "cut to nothing\n"), changed(Phase.HEALTHY)]) == [(2, "200")]


def test_marks_are_bounded() -> None:
    events: list[ev.AnyEvent] = []
    for number in range(1, 1000):
        events += [changed(Phase.DEGRADED if number % 2 else Phase.SERVING), block(number, "a\n")]
    model = SessionModel()
    model.take(events, View(), {})
    assert len(model.marks) == MARKS and model.marks[-1] == Mark(999, "degraded")


@given(
    st.lists(
        st.one_of(
            st.sampled_from(list(Phase)).map(changed),
            st.builds(block, st.integers(1, 50), st.text("a\n", max_size=8), fresh=st.booleans()),
            st.builds(line, st.integers(1, 50), living=st.booleans()),
        )
    )
)
def test_marks_are_in_the_order_of_the_log(events: list[ev.AnyEvent]) -> None:
    model = SessionModel()
    model.take(events, View(), {})
    numbers = [mark.line_no for mark in model.marks]
    assert numbers == sorted(set(numbers)) and all(mark.text for mark in model.marks)


# ------------------------------------------------------------------------------- answers, the view


def test_answers_are_this_runs() -> None:
    told = Told().serving()
    assert told.model.answers == {"refused": 31, "503": 1, "200": 1}
    told.note(ev.StopBegan(at=told.now, by="me")).note(ev.TreeGone(at=told.now, release="no gpu"))
    told.begin("1130-0500-ffff").launch().answer(Verdict.REFUSED)
    assert told.model.answers == {"refused": 1}
    assert [probe.verdict for probe in told.model.trail.probes] == [Verdict.REFUSED]


def test_a_batch_that_begins_a_run_and_has_its_first_answers_counts_them() -> None:
    model = SessionModel()
    model.take((), View(), Counter({"200": 5}))
    model.take([changed(Phase.PREFLIGHT)], View(), Counter({"200": 5, "refused": 2}))
    assert model.answers == {"refused": 2}


def test_what_was_known_before_the_console_came_is_in_the_histories() -> None:
    view = View(
        gpu=gpu_event(100, gpus(10)), health=ev.Health(at=100, status=None, bytes=None, ms=0, verdict=Verdict.REFUSED)
    )
    model = SessionModel()
    model.take((), view, {"refused": 1})
    assert list(model.trail.gpus) == ["GPU-0"] and len(model.trail.probes) == 1
    model.take((), view, {"refused": 1})
    assert len(model.trail.probes) == 1
