"""Every ending explains itself: what was counted, and what the summary says of it."""

from __future__ import annotations

import pytest
from hypothesis import given

from supervisor.core import events as ev
from supervisor.core.events import LinkState, Outcome, Phase, Verdict
from supervisor.core.gpu import Driver, DriverState, Gpu, Memory
from supervisor.core.gpu_events import GpuEvent
from supervisor.core.machine import Machine
from supervisor.core.tally import UNANSWERED_S, Tally
from supervisor.core.wait import Decision
from supervisor.headless.jsonl import to_line, to_object
from tests.core.facts import ROOT, answered, ended, histories, not_yet, refused

TIMEOUT = Decision(outcome=Outcome.TIMEOUT, exit_code=124, reason="--timeout 1m fired")
REACHED = Decision(outcome=Outcome.REACHED, exit_code=0, reason="healthy: 200")
FAILED = Decision(outcome=Outcome.FAILED, exit_code=1, reason="the server failed")


def session(*facts: ev.AnyFact, verify: bool = True) -> Tally:
    """A tally that heard what a session's desk tells it."""
    tally, machine = Tally(began_at=0.0), Machine(verify=verify)
    for fact in facts:
        tally.fact(fact)
        for event in machine.feed(fact):
            tally.event(event)
    return tally


def rejected(at: float, status: int = 401, why: str = "it asks for a key") -> ev.Answered:
    answer = ev.Answer(verdict=Verdict.REJECTED, why=why, status=status, bytes=2, ms=4, cause=f"status {status}")
    return ev.Answered(at=at, answer=answer)


def kinds(summary: ev.Summary) -> list[str]:
    return [item.kind for item in summary.evidence]


def test_the_summary_has_every_field_of_the_contract() -> None:
    shown = to_object(session(refused(1), not_yet(2)).summary(TIMEOUT, 60.0))
    wanted = {"kind", "at", "verdict", "exit_code", "phase", "reason", "phases", "answers", "finding", "evidence"}
    assert wanted <= set(shown)
    assert (shown["kind"], shown["verdict"], shown["exit_code"], shown["phase"]) == (
        "summary",
        "timeout",
        124,
        "warming",
    )
    assert shown["finding"] is None
    assert shown["at"] == "1970-01-01T00:01:00.000Z"
    assert [set(item) for item in shown["phases"]] == [{"phase", "s"}] * 3
    assert shown["evidence"]
    assert all(set(item) == {"kind", "at", "text"} for item in shown["evidence"])


def test_answers_are_counted_by_status_or_by_kind() -> None:
    facts = [*map(refused, range(212)), *map(not_yet, range(212, 250)), answered(250)]
    assert session(*facts).answers == {"refused": 212, "503": 38, "200": 1}


def test_the_times_of_the_phases_add_up_to_the_whole_wait() -> None:
    tally = session(refused(2), not_yet(5), refused(6), not_yet(7.5), answered(10))
    phases = tally.summary(REACHED, 11.0).phases
    assert [(item.phase, item.s) for item in phases] == [
        (Phase.IDLE, 2.0),
        (Phase.LOADING, 3.0),
        (Phase.WARMING, 1.0),
        (Phase.LOADING, 1.5),
        (Phase.WARMING, 2.5),
        (Phase.HEALTHY, 1.0),
    ]


@given(histories())
def test_no_phase_lasts_less_than_nothing(history: list[ev.AnyFact]) -> None:
    now = history[-1].at if history else 0.0
    summary = session(*history, verify=False).summary(TIMEOUT, now)
    assert all(item.s >= 0 for item in summary.phases)
    assert sum(item.s for item in summary.phases) == pytest.approx(now, abs=0.1)
    assert sum(summary.answers.values()) == sum(isinstance(fact, ev.Answered) for fact in history)


def test_answers_that_were_not_accepted_are_told_in_words() -> None:
    reason = session(refused(1), rejected(2), rejected(3), rejected(4, 404, "no such path")).summary(TIMEOUT, 5).reason
    assert "--timeout 1m fired" in reason
    assert "2 answers were not accepted (401): it asks for a key" in reason


def test_a_port_of_another_is_told_though_it_said_200() -> None:
    answer = ev.Answer(verdict=Verdict.REJECTED, why="not from our server: pid 9 nginx", status=200, cause="other")
    reason = session(ev.Answered(at=1, answer=answer)).summary(TIMEOUT, 2).reason
    assert "not accepted (200): not from our server: pid 9 nginx" in reason


def test_what_it_went_on_saying_is_told() -> None:
    assert "it went on answering 503" in session(not_yet(1), not_yet(2)).summary(TIMEOUT, 3).reason
    assert "because refused" in session(refused(1)).summary(TIMEOUT, 2).reason


def test_a_look_that_never_came_back_is_told() -> None:
    assert "no answer came at all" in session().summary(TIMEOUT, 60).reason
    reason = session(refused(1)).summary(TIMEOUT, 1 + UNANSWERED_S + 3).reason
    assert f"no answer for the last {UNANSWERED_S + 3:.1f} s" in reason
    assert "no answer" not in session(refused(1)).summary(TIMEOUT, 1 + UNANSWERED_S).reason


def last_words(*pieces: bytes) -> str | None:
    """What an ending shows as the log's last line, after these blocks."""
    tally, offset, line_no = Tally(began_at=0.0), 0, 1
    for piece in pieces:
        lines = piece.count(b"\n")
        tally.event(ev.LogBlock(at=2, data=piece, offset=offset, line_no=line_no, lines=lines))
        offset, line_no = offset + len(piece), line_no + lines
    return tally.last_line[1] if tally.last_line is not None else None


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        ((), None),
        ((b"one\ntwo\n",), "two"),
        ((b"one\ntw", b"o\n"), "two"),
        ((b"one\n\n  \x1b[0m\n\n",), "  "),
        ((b"one\n", b"\n", b"\n\n"), "one"),
        ((b"one\n 45%|##\r 46%|##",), " 46%|##"),
        ((b"unfinished",), None),
        ((b"x" * 300_000, b"\nafter a huge one\n"), "after a huge one"),
        ((*[b"line %d\n" % number for number in range(30_000)], b"\n"), "line 29999"),
    ],
)
def test_the_last_line_of_a_log_that_comes_in_blocks(pieces: tuple[bytes, ...], words: str | None) -> None:
    assert last_words(*pieces) == words


def test_the_last_line_stays_known_while_blank_ones_flood() -> None:
    tally = Tally(began_at=0.0)
    tally.event(ev.LogBlock(at=1, data=b"the last words\n", offset=0, line_no=1, lines=1))
    assert tally.last_line == (1, "the last words")
    for number in range(4):
        data = b"\n" * 60_000
        tally.event(
            ev.LogBlock(at=2, data=data, offset=15 + number * 60_000, line_no=2 + number * 60_000, lines=60_000)
        )
    assert tally.last_line == (1, "the last words")


@pytest.mark.parametrize("decision", [REACHED, FAILED])
def test_hints_are_for_a_wait_that_ran_out(decision: Decision) -> None:
    assert session(rejected(1), refused(2)).summary(decision, 60).reason == decision.reason


def test_an_ending_shows_the_last_answer_latency_process_log_and_link() -> None:
    tally = session(
        ev.RunBegan(at=0, run_id="r", why="w"),
        ev.Launched(at=0.1, text="keeper started"),
        ev.ProcessSeen(at=0.2, root=ROOT),
        rejected(1),
        ended(3),
    )
    tally.event(ev.Log(at=2, text="the last words", line_no=7, offset=0))
    tally.event(ev.Log(at=2.5, text="", line_no=8, offset=9))
    tally.event(ev.LinkEvent(at=4, state=LinkState.LOST, why="no answer for 15 s"))
    summary = tally.summary(FAILED, 5)
    text = {item.kind: item.text for item in summary.evidence}
    assert kinds(summary) == ["ended", "answer", "latency", "process", "log", "link"]
    assert "401 with 2 bytes in 4 ms" in text["answer"]
    assert "4 ms" in text["latency"]
    assert "exit code 1" in text["process"]
    assert text["log"] == "last log line: the last words"
    assert "lost: no answer for 15 s" in text["link"]


def test_an_ending_shows_the_gpu_memory_and_what_of_it_was_ours() -> None:
    tally = session(answered(2))
    gpus = tuple(
        Gpu(uuid=f"GPU-{n}", index=n, memory=Memory(total_bytes=80 << 30, used_bytes=(10 + n) << 30)) for n in range(2)
    )
    tally.event(GpuEvent(at=3, host="h", driver=Driver(state=DriverState.OK), gpus=gpus, ours_bytes=5 << 30))
    said = {item.kind: item.text for item in tally.summary(REACHED, 4).evidence}
    assert said["memory"] == "21.0 GiB of 160.0 GiB of GPU memory used on 2 GPUs, 5.0 GiB of it by this run"
    stuck = Driver(state=DriverState.STUCK, why="driver not responding since 14 s")
    tally.event(GpuEvent(at=5, host="h", driver=stuck, gpus=gpus[:1]))
    said = {item.kind: item.text for item in tally.summary(REACHED, 6).evidence}
    assert said["memory"] == (
        "driver not responding since 14 s; last known: 10.0 GiB of 80.0 GiB of GPU memory used on 1 GPU"
    )
    tally.event(GpuEvent(at=7, host="h", driver=stuck))
    said = {item.kind: item.text for item in tally.summary(REACHED, 8).evidence}
    assert said["memory"] == "driver not responding since 14 s"


def test_a_success_shows_what_proves_it_and_nothing_of_the_way() -> None:
    summary = session(refused(1), answered(2)).summary(REACHED, 3)
    assert kinds(summary) == ["answered"]
    assert "200 with an empty body" in summary.evidence[0].text


def test_a_link_that_is_up_is_no_news() -> None:
    tally = session(refused(1))
    tally.event(ev.LinkEvent(at=1, state=LinkState.LOST, why="w"))
    tally.event(ev.LinkEvent(at=2, state=LinkState.UP, why="back"))
    assert "link" not in kinds(tally.summary(TIMEOUT, 3))


def test_the_finding_stands_in_the_summary() -> None:
    tally = session()
    finding = ev.Finding(at=1, category="memory", detail="oom", cause="CUDA out of memory", line_no=7)
    tally.event(finding)
    summary = tally.summary(FAILED, 2)
    assert summary.finding == finding
    assert to_object(summary)["finding"]["line_no"] == 7


def test_nothing_that_a_node_or_a_server_calls_itself_drives_the_terminal() -> None:
    """A process gives itself its title, a node its name; what answers may answer anything."""
    wild = "\x1b]0;mine\x07\x1b[2J\u202e"
    root = ev.Process(pid=7, start_ticks=1, title=f"engine{wild}")
    facts = (
        ev.LinkChanged(at=0.0, state=LinkState.UP, why=f"gpu1 ({wild})"),
        ev.RunBegan(at=0.0, run_id="r", why=f"taken over; started by ana{wild}"),
        ev.ProcessSeen(at=1.0, root=root, text=f"process 7 lives: {root.title}"),
        rejected(2.0, why=f"it says no{wild}"),
        ev.LinkChanged(at=3.0, state=LinkState.LOST, why=f"gone{wild}"),
    )
    machine, told = Machine(verify=True), list[str]()
    for fact in facts:
        told += [to_line(event) for event in machine.feed(fact)]
    told.append(to_line(session(*facts).summary(TIMEOUT, 4.0)))
    assert "process 7 lived: engine" in told[-1] and "it says no" in told[-1]
    for line in told:
        assert "\\u00" not in line and line.isprintable()
