"""The top of the screen in each phase, word for word, at three widths."""

from __future__ import annotations

import re

import pytest

from supervisor.core import events as ev
from supervisor.core.events import LinkState, Verdict
from supervisor.core.gpu import Driver, DriverState
from supervisor.core.machine import describe_answer
from supervisor.tui import format
from supervisor.tui.evidence import said
from supervisor.tui.pieces import Pieces, cells, clip, first_fitting, fit, left, length, right, spread, text_of, wrapped
from tests.tui.models import RUN, WHY_OURS, Told, gpu_event, gpus

NARROW, USUAL, WIDE = 80, 120, 200
AT = r"\d\d:\d\d:\d\d"


def top(told: Told, width: int, rtt_ms: float | None = 12.3) -> list[str]:
    """Header, strip and stage, times of the day as HH:MM:SS."""
    model, now = told.model, told.now
    lines = [
        format.header(model.title, model.node, model.view, now, width, rtt_ms=rtt_ms),
        format.strip(model.view, now, width),
        format.stage(model.view, now, width, trail=model.trail),
    ]
    texts = [text_of(line) for line in lines]
    assert all(cells(text) <= width for text in texts)
    return [re.sub(AT, "HH:MM:SS", text).rstrip() for text in texts]


def roles(pieces: Pieces, text: str) -> set[str]:
    return {role for said, role in pieces if text in said}


def degraded() -> Told:
    told = Told().serving().after(600)
    for _ in range(3):
        told.after(1).answer(Verdict.SILENT, why="no answer within 20 s")
    return told


def refused() -> Told:
    told = Told().link().begin().after(1)
    return told.note(ev.Refused(at=told.now, reasons=("port 30000 is held by pid 7, nginx",)))


def stopping() -> Told:
    told = Told().serving().after(600)
    return told.note(ev.StopBegan(at=told.now, by="ana@laptop")).after(3)


def stopped(release: str = "proved") -> Told:
    told = stopping()
    return told.note(ev.TreeGone(at=told.now, release=release)).after(30)


# ------------------------------------------------------------------------------- each phase


def test_before_anything_is_known() -> None:
    assert top(Told(), NARROW) == [
        "supervisor · kimi-k25-eagle3 @ gpu1                            link ◌ connecting",
        "○ launching ─ ○ loading ─ ○ 503 ─ ○ 200 ─ ○ serving",
        "  no run yet",
    ]


def test_preflight_and_launching() -> None:
    told = Told().link().begin().after(3)
    assert top(told, USUAL)[1:] == [
        "● preflight 3 s ─ ○ launching ─ ○ loading ─ ○ 503 ─ ○ 200 ─ ○ serving",
        f"  since HH:MM:SS · run {RUN}: nothing runs: launch",
    ]
    told.launch().after(4)
    assert top(told, USUAL)[1:] == [
        "✔ preflight 3.0 s ─ ● launching 4 s ─ ○ loading ─ ○ 503 ─ ○ 200 ─ ○ serving",
        "  since HH:MM:SS · keeper 48180 started python3 -m sglang.launch_server",
    ]


def test_a_run_that_lived_already_is_said_to_be_taken_over() -> None:
    told = Told().link()
    told.note(ev.RunBegan(at=told.now, run_id=RUN, why="taken over; started 03:12:00 by ana@desk"))
    assert top(told.after(56), USUAL)[0].endswith("56 s since takeover")
    assert top(Told().link().begin().after(56), USUAL)[0].endswith("56 s watched")


def test_loading() -> None:
    told = Told().loading()
    assert top(told, NARROW) == [
        "kimi-k25-eagle3 @ gpu1     link ● 12 ms   run 1130-0412-a3f1   6:41 since launch",
        "✔ launching 2.0 s ─ ● loading 6:39 ━━━━── 64 % ─ ○ 503 ─ ○ 200 ─ ○ serving",
        "  weights 41/64  ━━━━━━━━━━━━━━━━╸───────── 64 %  ≈ 3:27 left in this stage",
    ]
    assert top(told, USUAL) == [
        "supervisor · kimi-k25-eagle3 @ gpu1                                link ● 12 ms   run 1130-0412-a3f1   "
        "6:41 since launch",
        "✔ preflight 0.8 s ─ ✔ launching 2.0 s ─ ● loading 6:39 ━━━━━━╸─── 64 % ─ ○ 503 ─ ○ 200 ─ ○ serving",
        "  weights 41/64  ━━━━━━━━━━━━━━━━━━━━━━━━━╸────────────── 64 %  ≈ 3:27 left in this stage",
    ]
    assert top(told, WIDE)[1:] == top(told, USUAL)[1:]
    assert len(top(told, WIDE)[0]) == WIDE


def test_a_load_with_an_estimate_of_all_of_it_counts_down_to_nothing() -> None:
    told = Told().loading()
    told.tell(ev.Progress(at=told.now, stage="weights", done=42, total=64, fraction=42 / 64, eta_s=190.0)).after(3)
    assert top(told, USUAL)[1].endswith("─ ○ serving           ≈ 3:07 left")
    assert top(told, USUAL)[2].endswith(" 65 %  ≈ 3:07 left")
    assert top(told.after(1000), USUAL)[1].endswith("≈ 0.0 s left")


def test_what_an_estimate_rests_on_stands_beside_it_where_there_is_room() -> None:
    told = Told().loading()
    told.tell(ev.Progress(at=told.now, stage="weights", fraction=0.5, eta_s=190.0, rests_on="history")).after(3)
    assert top(told, USUAL)[2].endswith("  ≈ 3:07 left by earlier runs")
    assert "≈ 3:07 left" in top(told, 40)[2] and "earlier" not in top(told, 40)[2]


def test_a_stage_that_is_told_anew_says_for_how_long_it_has_been_silent() -> None:
    told = Told().loading()
    told.tell(ev.Progress(at=told.now, stage="kv cache", still_s=100.0)).after(5)
    assert top(told, NARROW)[2] == "  kv cache  still 1:45"
    told.tell(ev.Progress(at=told.now, stage="kernels", still_s=240.0, signs="silent for 4:00; children: 16 cicc busy"))
    assert top(told, NARROW)[2] == "  kernels  silent for 4:00; children: 16 cicc busy"


def test_a_stage_that_stands_still_says_so_and_estimates_nothing() -> None:
    told = Told().loading().after(40)
    assert top(told, NARROW)[2] == "  weights 41/64  ━━━━━━━━━━━━━━━━╸───────── 64 %  still 40 s"
    stage = format.stage(told.model.view, told.now, NARROW, trail=told.model.trail)
    assert roles(stage, "still 40 s") == {"dim"}
    told.after(120)
    assert roles(format.stage(told.model.view, told.now, NARROW), "still 2:40") == {"warn"}


def test_503_does_not_show_what_was_loaded_before_it() -> None:
    told = Told().warming().after(3)
    assert top(told, USUAL)[1:] == [
        "✔ preflight 0.8 s ─ ✔ launching 2.0 s ─ ✔ loading 9:59 ─ ● 503 3 s ─ ○ 200 ─ ○ serving",
        "  since HH:MM:SS · 503 (0 bytes, 12 ms) · by the engine's rule: not ready yet",
    ]
    told.stage(50, 64)  # an engine that answers 503 while it loads
    assert "● 503 3 s ━━━━━━━━── 78 %" in top(told, USUAL)[1] and "weights 50/64" in top(told, USUAL)[2]


def test_200_and_serving_stand_on_their_evidence() -> None:
    told = Told().healthy()
    assert (
        top(told, USUAL)[2]
        == "● 200 since HH:MM:SS · 200 (0 bytes, 1,003 ms) from pid 48190, ours · model kimi-k2.5-int4"
    )
    told = Told().serving().after(3700)
    assert top(told, NARROW)[1:] == [
        "✔ launching 2.0 s ✔ loading 9:59 ✔ 503 8.0 s ✔ 200 0.4 s ✔ serving 1:01:40",
        '✔ serving since HH:MM:SS · 200 from pid 48190, ours · "Paris" in 412 ms',
    ]
    assert top(told, USUAL)[1:] == [
        "✔ preflight 0.8 s ─ ✔ launching 2.0 s ─ ✔ loading 9:59 ─ ✔ 503 8.0 s ─ ✔ 200 0.4 s ─ ✔ serving 1:01:40",
        "✔ serving since HH:MM:SS · 200 (0 bytes, 1,003 ms) from pid 48190, ours · model kimi-k2.5-int4 · "
        '"Paris" in 412 ms',
    ]


def test_the_model_gives_way_before_the_figures_and_they_before_what_was_generated() -> None:
    told = Told().serving()
    assert (
        top(told, 100)[2]
        == '✔ serving since HH:MM:SS · 200 (0 bytes, 1,003 ms) from pid 48190, ours · "Paris" in 412 ms'
    )
    assert top(told, 75)[2] == '✔ serving since HH:MM:SS · 200 from pid 48190, ours · "Paris" in 412 ms'


def test_what_was_not_verified_is_seen_at_once() -> None:
    told = Told().healthy()
    told.note(ev.Verified(at=told.now, text="not verified (verification is off)", checked=False))
    stage = format.stage(told.model.view, told.now, USUAL)
    assert text_of(stage).endswith(" · not verified (verification is off)") and roles(stage, "not verified") == {"warn"}


def test_degraded_stopping_and_stopped() -> None:
    assert top(degraded(), NARROW)[1:] == [
        "✔ launching ─ ✔ loading ─ ✔ 503 ─ ✔ 200 ─ ✔ serving ─ ▲ degraded 0 s",
        "▲ degraded since HH:MM:SS · no answer within 20 s",
    ]
    assert top(stopping(), USUAL)[1:] == [
        "✔ preflight 0.8 s ─ ✔ launching 2.0 s ─ ✔ loading 9:59 ─ ✔ 503 8.0 s ─ ✔ 200 0.4 s ─ ✔ serving 10:00 ─ "
        "■ stopping 3 s",
        "■ stopping since HH:MM:SS · stop asked for by ana@laptop",
    ]
    assert top(stopped(), NARROW) == [
        "kimi-k25-eagle3 @ gpu1   link ● 12 ms   run 1130-0412-a3f1   stopped after 20:12",
        "✔ launching ─ ✔ loading ─ ✔ 503 ─ ✔ 200 ─ ✔ serving ─ ■ stopped 30 s",
        "■ stopped at HH:MM:SS · no process of the run is left; release: proved",
    ]
    view = stopped("unproved (the driver did not answer)").model.view
    assert roles(format.stage(view, 0, USUAL), "unproved") == {"warn"}


def test_a_failure_and_a_refusal() -> None:
    told = Told().failed().after(90)
    assert top(told, NARROW) == [
        "kimi-k25-eagle3 @ gpu1     link ● 12 ms   run 1130-0412-a3f1   failed after 6:51",
        "✔ preflight 0.8 s ─ ✔ launching 2.0 s ─ ✘ loading 6:49 ─ failed 1:30 ago",
        "✘ failed at HH:MM:SS · the server ended: exit code 1",
    ]
    assert top(refused(), NARROW)[1:] == [
        "✔ preflight 1.0 s ─ ✘ refused: nothing was launched",
        "✘ refused at HH:MM:SS · port 30000 is held by pid 7, nginx",
    ]


def test_a_503_that_never_came_and_one_that_was_fallen_back_from() -> None:
    told = Told().loading().after(5).answer(Verdict.READY, 200, WHY_OURS)
    assert "✔ loading 6:44 ─ – 503 ─ ● 200 0 s ─ ○ serving" in top(told, USUAL)[1]
    told = Told().warming().after(5).answer(Verdict.REFUSED)
    assert "● loading 9:59" in top(told, USUAL)[1] and "○ 503 5.0 s" in top(told, USUAL)[1]


# ------------------------------------------------------------------------------- the link


def test_a_lost_link_makes_the_last_known_of_everything() -> None:
    """What goes on meanwhile nobody knows: no time grows, and nothing is green."""
    told = Told().serving().after(100).link(LinkState.LOST, "connection reset by peer").after(12)
    lines = top(told, USUAL)
    assert "link ○ lost 12 s" in lines[0]
    assert lines[1].endswith("✔ serving 1:40                     last known, 12 s ago")
    assert (
        top(told.after(60), NARROW)[1]
        == "✔ launching ─ ✔ loading ─ ✔ 503 ─ ✔ 200 ─ ✔ serving 1:40    last known, 1:12 ago"
    )
    model = told.model
    strip, stage = format.strip(model.view, told.now, USUAL), format.stage(model.view, told.now, USUAL)
    assert roles(strip, "✔ serving") == roles(stage, "✔ serving") == {"warn"}
    assert "○ lost 1:12" in top(told, 40)[0]  # before the age of the run
    told.link().after(1)
    assert "last known" not in top(told, USUAL)[1] and "✔ serving 2:53" in top(told, USUAL)[1]


def test_a_load_under_a_lost_link_neither_estimates_nor_stands_still() -> None:
    told = Told().loading().after(3).link(LinkState.LOST, "no route").after(60)
    assert top(told, USUAL)[2].endswith("≈ 3:24 left in this stage")


def test_the_links_line_says_why_and_that_the_rest_is_old() -> None:
    event = ev.LinkEvent(at=100, state=LinkState.DOWN, why="gpu1 refused every key")
    line = format.link(event, 112)
    assert text_of(line) == "link    ○ down 12 s: what stands here is the last known · gpu1 refused every key"
    assert roles(line, "down") == {"bad"} and length(format.link(event, 112, 40)) <= 40
    assert text_of(format.link(None, 0)) == "link    ◌ connecting"
    assert "the node was not reached yet" in text_of(format.link(event, 112, known=False))
    assert "last known" not in text_of(format.link(event, 112, known=False))
    first, second = text_of(format.link(event, 112, 60, 2)).split("\n")
    assert first.endswith("the last known") and second.strip() == "gpu1 refused every key"


@pytest.mark.parametrize(
    ("rtt_ms", "shown"), [(0.84, "● 0.8 ms"), (12.3, "● 12 ms"), (1234.0, "● 1,234 ms"), (None, "●")]
)
def test_the_round_trip_time(rtt_ms: float | None, shown: str) -> None:
    assert f"link {shown}   run" in top(Told().loading(), WIDE, rtt_ms)[0]


# ------------------------------------------------------------------------------- simulated, names, masks


def test_simulated_gpus_are_said_to_be_at_every_width() -> None:
    told = Told(title="demo (simulated)").loading()
    assert all("SIMULATED" in top(told, width)[0] for width in (40, 60, NARROW, USUAL, WIDE))
    assert not format.simulated(Told().loading().model.view, "kimi")
    for is_so in (False, True):
        driver = Driver(state=DriverState.OK, simulated=is_so)
        session = Told().loading().tell(gpu_event(0, gpus(1.0), driver=driver))
        assert format.simulated(session.model.view) is is_so and ("SIMULATED" in top(session, NARROW)[0]) is is_so


def test_a_name_that_is_too_long_gives_way_to_what_changes() -> None:
    told = Told(title="深度求索" * 20, node="gpu1.rack7.example.com").loading()
    for width in (40, NARROW, USUAL):
        header = top(told, width)[0]
        assert "…" in header and "6:41" in header and cells(header) == width


def test_a_secret_is_masked_before_anything_is_cut() -> None:
    told = Told(mask=lambda text: text.replace("sk-hunter2", "***")).link().begin()
    told.note(ev.Refused(at=told.now, reasons=("the argument " + "x" * 20 + " sk-hunter2 is wrong",)))
    for width in range(30, 80):
        shown = text_of(format.stage(told.model.view, told.now, width, mask=told.model.mask))
        assert "sk-" not in shown and cells(shown) <= width


# ------------------------------------------------------------------------------- evidence in few words


def test_an_answer_is_shortened_by_what_it_says_and_nothing_else_of_it() -> None:
    def shown(answer: ev.Answer, terse: int = 0) -> str:
        item = ev.Evidence(kind="answered", at=0, text=describe_answer(answer))
        return " · ".join(text for text, _role in said([item], str, terse=terse))

    answer = ev.Answer(verdict=Verdict.READY, status=200, bytes=12345, ms=3, address="[::1]:3", why=WHY_OURS)
    assert shown(answer) == "200 (12,345 bytes, 3 ms) from pid 48190, ours · model kimi-k2.5-int4"
    assert shown(answer, 1) == "200 (12,345 bytes, 3 ms) from pid 48190, ours"
    assert shown(answer, 2) == "200 from pid 48190, ours"
    unread = ev.Answer(verdict=Verdict.READY, status=200, bytes=None, ms=3, why="owner not visible: held by somebody")
    assert shown(unread) == "200 (body not read, 3 ms) · owner not visible: held by somebody"
    theirs = ev.Answer(verdict=Verdict.REJECTED, status=200, bytes=1, ms=3, why="1.2.3.4:5 is held by pid 7 nginx")
    assert shown(theirs) == "200 (1 bytes, 3 ms) from pid 7"
    assert shown(ev.Answer(verdict=Verdict.REFUSED, why="nothing listens")) == "nothing listens"


def test_a_generation_with_quotes_in_it() -> None:
    items = [ev.Evidence(kind="verified", at=0, text=f"generated {text!r} in 1412 ms") for text in ("it's", 'a "b"')]
    assert [text for text, _ in said(items, str)] == ['"it\'s" in 1,412 ms', '"a "b"" in 1,412 ms']


# ------------------------------------------------------------------------------- the pieces


def test_cells_and_not_characters_are_counted() -> None:
    assert clip("深度求索", 5) == "深度…" and clip("深度求索", 4) == "深…" and clip("深度", 4) == "深度"
    assert left("深", 4) == "深  " and right("深", 4) == "  深" and left("abcdef", 3) == "ab…"
    assert clip("abc", 0) == "" and clip("abc", -1) == ""
    assert [cells(line) <= 20 for line in wrapped("深度求索" * 20, 20)] == [True] * 8
    assert "".join(wrapped("深度求索" * 20, 20)) == "深度求索" * 20


def test_an_option_is_never_broken_at_its_hyphens() -> None:
    assert wrapped("now set --mem-fraction-static lower", 27) == ["now set", "--mem-fraction-static lower"]


def test_what_does_not_fit_shows_that_there_was_more() -> None:
    pieces = (("abc", "plain"), ("def", "dim"), ("ghi", "bad"))
    assert text_of(fit(pieces, 9)) == "abcdefghi" and text_of(fit(pieces, 8)) == "abcdefg…"
    assert text_of(fit(pieces, 6)) == "abcde…" and text_of(fit(pieces, 1)) == "…" and fit(pieces, 0) == ()
    assert text_of(spread(pieces, (("xyz", "plain"),), 12)) == "abcdef…  xyz"
    assert text_of(first_fitting([pieces, pieces[:1]], 4)) == "abc"


def test_the_last_sentence_says_no_more_than_was_seen() -> None:
    def last(told: Told, order: str = "") -> str:
        return format.farewell(told.model.view, "kimi", "gpu1", order)

    unknown = "kimi @ gpu1: this console has launched nothing that it knows of. Look with: supervisor status"
    assert last(Told()) == last(Told().link().begin()) == unknown
    refused = Told().link().begin()
    refused.note(ev.Refused(at=refused.now, reasons=("port 30000 belongs to pid 7",)))
    assert last(refused) == "kimi @ gpu1: nothing was launched."
    served = "kimi @ gpu1: the server goes on (serving). This console has only stopped looking."
    assert last(Told().serving()) == served
    lost = Told().serving().link(LinkState.LOST, "reset")
    assert last(lost) == "kimi @ gpu1: serving when the link was lost. This console has only stopped looking."
    assert last(Told().failed()) == "kimi @ gpu1: the run has failed."
    assert "a stop was under way" in last(Told().serving(), "stop")
