"""Text for people, and the same as JSON lines."""

from __future__ import annotations

import json

import msgspec
import pytest

from supervisor.core import events as ev
from supervisor.core.events import LinkState, Outcome, Phase, Verdict
from supervisor.headless.jsonl import iso, to_line, to_object, wanted
from supervisor.headless.text import Style, clock_time, ending, finding_lines, line_of, live_line

PLAIN, COLOUR = Style(colour=False), Style(colour=True)
AT = 1_000_000_000.25
PROOF = ev.Evidence(kind="answered", at=AT, text="200 with an empty body")
FINDING = ev.Finding(
    at=AT, category="memory", detail="oom", cause="out of memory", line="CUDA OOM", line_no=7, advice="less"
)
PHASE = ev.PhaseChanged(at=AT, from_=Phase.WARMING, to=Phase.HEALTHY, label="200", evidence=(PROOF, PROOF))
LOG = ev.Log(at=AT, text="Loading", line_no=1, offset=0)
SUMMARY = ev.Summary(
    at=AT,
    verdict=Outcome.TIMEOUT,
    exit_code=124,
    phase=Phase.WARMING,
    reason="--timeout 1m fired",
    phases=(ev.PhaseTime(phase=Phase.IDLE, s=0.01), ev.PhaseTime(phase=Phase.LOADING, s=398.0)),
    answers={"refused": 212, "503": 38},
    finding=FINDING,
    evidence=(PROOF,),
)


def health(verdict: Verdict, status: int | None = 401) -> ev.Health:
    return ev.Health(at=AT, status=status, bytes=0, ms=1, verdict=verdict, why="asks for a key")


LINES: list[tuple[ev.AnyEvent, str | None]] = [
    (PHASE, "healthy (200): 200 with an empty body; 200 with an empty body"),
    (
        ev.PhaseChanged(at=AT, from_=Phase.IDLE, to=Phase.LOADING, label="loading", evidence=(PROOF,)),
        "loading: 200 with an empty body",
    ),
    (ev.LinkEvent(at=AT, state=LinkState.LOST, why="no answer"), "link lost: no answer"),
    (ev.Warning_(at=AT, text="look here"), "warning: look here"),
    (FINDING, "finding: out of memory"),
    (health(Verdict.REJECTED), "answer 401 not accepted: asks for a key"),
    (health(Verdict.BROKEN, None), "answer not accepted: asks for a key"),
    (health(Verdict.READY, 200), None),
    (health(Verdict.NOT_YET, 503), None),
    (health(Verdict.REFUSED, None), None),
    (ev.Progress(at=AT, stage="weights"), "weights"),
    (LOG, "| Loading"),
    (SUMMARY, None),
]


@pytest.mark.parametrize(("event", "text"), LINES)
def test_the_line_of_each_kind(event: ev.AnyEvent, text: str | None) -> None:
    assert line_of(event, PLAIN) == (None if text is None else f"{clock_time(AT)} {text}")


@pytest.mark.parametrize("event", [event for event, text in LINES if text])
def test_colour_is_all_that_differs_and_only_where_it_is_wanted(event: ev.AnyEvent) -> None:
    plain, coloured = line_of(event, PLAIN), line_of(event, COLOUR)
    assert plain is not None and coloured is not None
    assert "\x1b" not in plain
    assert "\x1b[" in coloured and coloured.count("\x1b[0m") * 2 == coloured.count("\x1b[")
    bare = coloured
    for code in ("0", "1", "2", "31", "32", "33"):
        bare = bare.replace(f"\x1b[{code}m", "")
    assert bare == plain


@pytest.mark.parametrize("width", [1, 10, 40, 80, 500])
def test_a_live_line_never_wraps(width: int) -> None:
    progress = ev.Progress(at=100.0, stage="weights", fraction=0.4567)
    line = live_line("loading", progress, 101.0, 398, "x" * 300, width)
    assert len(line) <= max(10, width - 1)
    if width == 80:
        assert line.startswith("6:38 · loading · weights 46 % · xxx")


def test_a_live_line_leaves_out_what_is_not_known() -> None:
    assert live_line("loading", None, 4.0, 4, "", 80) == "4.0 s · loading"


def test_a_live_line_counts_down_what_is_left() -> None:
    progress = ev.Progress(at=100.0, stage="weights", fraction=0.5, eta_s=190.0)
    line = live_line("loading", progress, 110.0, 30, "last line", 120)
    assert line == "30 s · loading · weights 50 % · ≈ 3:00 left · last line"
    assert "≈ 0.0 s left" in live_line("loading", progress, 900.0, 830, "", 120)


def test_a_live_line_tells_a_silence_instead_of_the_old_last_line() -> None:
    progress = ev.Progress(at=100.0, stage="kernels", signs="silent for 4:00; children: 16 cicc, 1 ninja busy")
    line = live_line("loading", progress, 101.0, 300, "an old line", 120)
    assert line == "5:00 · loading · kernels · silent for 4:00; children: 16 cicc, 1 ninja busy"


def test_the_ending_tells_all_that_was_seen() -> None:
    lines = ending(SUMMARY, PLAIN)
    assert lines[0] == "timeout (exit 124): --timeout 1m fired"
    assert lines[1:4] == [
        "  phases:  loading 6:38",
        "  answers: refused 212, 503 38",
        "  answered: 200 with an empty body",
    ]
    assert lines[4:] == finding_lines(FINDING)
    assert "\x1b[33m" in ending(SUMMARY, COLOUR)[0]


def test_a_finding_shows_its_line_and_number() -> None:
    assert finding_lines(FINDING) == [
        "  finding (memory, low): out of memory",
        "    line 7: CUDA OOM",
        "    less",
    ]


def test_what_was_ruled_out_and_advice_of_several_lines_are_told() -> None:
    out = ("not the kernel's OOM killer: nobody was killed", "leaked semaphores: every end tells of them")
    found = msgspec.structs.replace(FINDING, advice="less\nor another card", ruled_out=out)
    assert finding_lines(found)[2:] == [
        "    not: the kernel's OOM killer: nobody was killed",
        "    not: leaked semaphores: every end tells of them",
        "    less",
        "    or another card",
    ]


@pytest.mark.parametrize("event", [event for event, _ in LINES])
def test_a_json_line_is_one_line_with_kind_and_time(event: ev.AnyEvent) -> None:
    line = to_line(event)
    assert "\n" not in line
    shown = json.loads(line)
    assert list(shown)[:2] == ["kind", "at"]
    assert shown["at"] == "2001-09-09T01:46:40.250Z"


def test_phases_have_the_names_of_the_contract_and_every_time_is_text() -> None:
    shown = to_object(PHASE)
    assert (shown["from"], shown["to"], shown["label"]) == ("warming", "healthy", "200")
    assert shown["evidence"][0] == {"kind": "answered", "at": iso(AT), "text": "200 with an empty body"}
    assert to_object(SUMMARY)["finding"]["at"] == iso(AT)


def test_a_block_of_a_log_is_never_printed() -> None:
    assert not wanted(ev.LogBlock(at=AT, data=b"x\n", offset=0, line_no=1, lines=1), everything=False)


def test_log_lines_and_samples_are_printed_only_when_all_is_wanted() -> None:
    for event in (LOG, ev.Metrics(at=AT, running=1)):
        assert [wanted(event, everything=value) for value in (False, True)] == [False, True]
    assert all(wanted(event, everything=False) for event, _ in LINES if event is not LOG)


@pytest.mark.parametrize(
    ("progress", "words"),
    [
        ({}, "weights"),
        ({"done": 12, "total": 64, "fraction": 12 / 64}, "weights 12 of 64"),
        ({"fraction": 0.42}, "weights 42 %"),
        ({"eta_s": 190.0, "rests_on": "history"}, "weights, ≈ 3:10 left (history)"),
        ({"signs": "silent for 2:00; CPU 310 %"}, "weights, silent for 2:00; CPU 310 %"),
    ],
)
def test_a_stage_is_told_in_a_line(progress: dict[str, object], words: str) -> None:
    event = ev.Progress(at=1.0, stage="weights", **progress)  # type: ignore[arg-type]
    line = line_of(event, Style(colour=False))
    assert line is not None and line.partition(" ")[2] == words
