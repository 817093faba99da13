"""The health strip: a cell a probe, the last answer, the counts; the same length whatever is said beside it."""

from __future__ import annotations

import pytest

from supervisor.core import events as ev
from supervisor.core.events import Owner, Verdict
from supervisor.tui import format_health
from supervisor.tui.pieces import Pieces, text_of
from tests.tui.models import WHY_OURS, Told, lines_of, widest

WHY = "nothing listens on localhost:30000 (looked at on the node)"


def pieces(told: Told, width: int, height: int = 1, later: float = 0.0) -> Pieces:
    drawn = format_health.cells(told.model, told.now + later, width, height)
    assert widest(drawn) <= width and len(lines_of(drawn)) <= height
    return drawn


def strip(told: Told, width: int, height: int = 1, later: float = 0.0) -> str:
    return "\n".join(lines_of(pieces(told, width, height, later)))


def role(told: Told, text: str, width: int = 200) -> set[str]:
    return {name for shown, name in pieces(told, width) if text in shown}


def test_before_the_first_look_and_after_a_new_run() -> None:
    assert strip(Told(), 80) == "health  ○ not looked at yet"
    told = Told().serving()
    told.note(ev.StopBegan(at=told.now, by="me")).note(ev.TreeGone(at=told.now, release="no gpu")).after(1)
    assert "200 ready" in strip(told, 80)
    assert strip(told.begin("1130-0500-ffff"), 80) == "health  ○ not looked at yet"  # that was the run's before


def test_while_nothing_listens() -> None:
    told = Told().loading()
    assert strip(told, 40) == "health  ········  refused 31"
    assert strip(told, 80) == "health  ················  refused 31   nothing listens on localhost:30000 (look…"
    assert strip(told, 120) == f"health  {'·' * 30}  refused 31   {WHY}"
    assert strip(told, 200) == f"health  {'·' * 31}{' ' * 37}refused 31   {WHY}"
    assert strip(told, 80, 2).split("\n") == ["health  ················  refused 31", f"        {WHY}"]
    assert role(told, "refused") == {"dim"} and role(told, "····") == {"dim"}


def test_every_kind_of_answer_has_its_own_sign_and_role() -> None:
    told = Told().link().begin().launch().seen()
    told.after(1).answer(Verdict.REFUSED).after(1).answer(Verdict.SILENT, why="no answer within 20 s")
    told.after(1).answer(Verdict.BROKEN).after(1).answer(Verdict.REJECTED, 401)
    told.after(1).answer(Verdict.NOT_YET, 503).after(1).answer(Verdict.READY, 200, WHY_OURS)
    shown = pieces(told, 180)
    assert text_of(shown).startswith("health  ·○✘✘▄■  ")
    assert [item for item in shown if item[0] in ("·", "○", "✘✘", "▄", "■")] == [
        ("·", "dim"), ("○", "warn"), ("✘✘", "bad"), ("▄", "waiting"), ("■", "good"),
    ]  # fmt: skip
    assert "refused 1 · no answer 1 · broken 1 · 401 1 · 503 1 · 200 1" in text_of(shown)


@pytest.mark.parametrize(
    ("width", "said"),
    [
        (40, "200 ready · 1,003 ms"),
        (80, "200 ready · 1,003 ms · refused 31 · 503 1 · 200 1"),
        (120, "200 ready · 1,003 ms · 0 bytes · ours · 2 s ago · refused 31 · 503 1 · 200 1"),
        (
            200,
            "200 ready · 1,003 ms · 0 bytes · ours · 2 s ago · refused 31 · 503 1 · 200 1   127.0.0.1:30000 is held",
        ),
    ],
)
def test_the_last_answer_is_told_as_far_as_there_is_room(width: int, said: str) -> None:
    assert said in strip(Told().serving().after(2), width)


def test_the_strip_is_as_long_as_before_whatever_stands_beside_it() -> None:
    """A strip that jumps each second cannot be read."""
    for width in range(30, 200, 9):
        told = Told().loading()
        ends = set()
        for later in (0, 3, 9, 10, 200):
            ends.add(strip(told, width, later=later).index("refused"))
        told.after(1).answer(Verdict.REJECTED, 401)
        ends.add(strip(told, width).index("401"))
        assert len(ends) == 1


def test_a_look_that_hangs_is_told_by_its_age_and_an_old_one_stands_out() -> None:
    told = Told().serving().after(2)
    assert role(told, "2 s ago") == {"dim"} and role(told.after(10), "12 s ago") == {"warn"}
    assert "12 s ago" in strip(told, 60)
    loading = Told().loading()
    assert "ago" not in strip(loading, 200, later=2) and "4 s ago" in strip(loading, 200, later=4)
    failed = Told().failed().after(100)  # nobody looks any more
    assert role(failed, "1:50 ago") == {"dim"}


def test_an_answer_of_somebody_else_stands_out() -> None:
    told = Told().loading()
    answer = ev.Answer(
        verdict=Verdict.REJECTED, status=200, bytes=9, ms=1, owner=Owner.OTHER, why="held by pid 7, nginx"
    )
    told.after(1).note(ev.Answered(at=told.now, answer=answer))
    assert role(told, "other") == {"bad"} and "other" in strip(told, 60)
    assert role(told, "200 not accepted") == {"bad"} and "held by pid 7" in strip(told, 120, 2)


def test_answers_of_a_body_that_was_not_read() -> None:
    told = Told().loading()
    answer = ev.Answer(verdict=Verdict.READY, status=200, bytes=None, ms=1, why="")
    told.after(1).note(ev.Answered(at=told.now, answer=answer))
    assert "200 ready · 1 ms · body not read" in strip(told, 200)


def test_the_last_answer_of_a_server_that_is_gone_is_told_as_the_last() -> None:
    told = Told().serving().after(3)
    told.note(ev.Ended(at=told.now, exit=ev.Exit(code=1)))
    found = format_health.cells(told.model, told.now, 100)
    assert "last 200 ready" in text_of(found)
    assert ("200 ready", "good") not in found
