"""What is recorded plays back: the same events at their own pace, whatever the file has been through."""

from __future__ import annotations

import asyncio
import io
import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from supervisor.core import events as ev
from supervisor.core.event_json import from_object, harmless, to_line, to_object
from supervisor.core.events import LinkState, Phase, Verdict
from supervisor.core.wait import Limits
from supervisor.errors import RefusedError, UsageError
from supervisor.headless.run import Options, wait
from supervisor.supervise.desk import Desk
from supervisor.supervise.record import Recorder, record
from supervisor.supervise.replay import REFUSAL, ReplaySession, ReplayWaiter
from supervisor.testing import ManualClock, settle
from tests.core.event_strategies import KINDS, events
from tests.scale import scaled
from tests.schema import checked

T0 = 1_700_000_000.0
P = Phase


def link(at: float) -> ev.LinkEvent:
    return ev.LinkEvent(at=at, state=LinkState.UP, why="gpu1")


def change(at: float, to: Phase, before: Phase) -> ev.PhaseChanged:
    evidence = (ev.Evidence(kind="x", at=at, text="seen"),)
    return ev.PhaseChanged(at=at, from_=before, to=to, label=to.value, evidence=evidence, run_id="r1")


def log(at: float, number: int) -> ev.Log:
    return ev.Log(at=at, text=f"line {number}", line_no=number, offset=number * 10)


class Base(ManualClock):
    """The time of whoever looks on: it goes by as soon as somebody waits for it."""

    def __init__(self) -> None:
        super().__init__(start=5.0)
        self.waited_s = 0.0

    async def sleep(self, wait_s: float) -> None:
        self.waited_s += wait_s
        self._now += wait_s
        await asyncio.sleep(0)


def write(path: Path, stream: Sequence[ev.AnyEvent], *, head: bool = True) -> Path:
    if not head:
        path.write_text("".join(to_line(event) + "\n" for event in stream))
        return path
    recorder = Recorder(str(path), at=T0, mask=str, profile="kimi", node="gpu1")
    for event in stream:
        recorder.write(event)
    recorder.close()
    assert recorder.problem == ""
    return path


async def played(path: Path, **how: Any) -> tuple[list[ev.AnyEvent], ReplaySession, Base]:
    """All that a reader of the recording's hub gets."""
    base = Base()
    session = ReplaySession(str(path), clock=base, **how)
    subscription = session.desk.hub.subscribe()
    await session.play()
    session.desk.hub.close()
    return [event async for batch in subscription.batches() for event in batch], session, base


# ------------------------------------------------------------------------------------------- round trips


_ALL_BUT_THE_LAST = tuple(kind for kind in KINDS if kind is not ev.Summary)


@settings(max_examples=scaled(500), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(events(*_ALL_BUT_THE_LAST), max_size=8), events(ev.Summary))
def test_a_record_plays_back_as_the_stream_that_it_was(
    tmp_path: Path, stream: list[ev.AnyEvent], summary: ev.Summary
) -> None:
    """Samples of a kind are told apart by the reader taking each as it comes, as a front end does."""
    path = tmp_path / "record.jsonl"
    path.unlink(missing_ok=True)
    summary = msgspec.structs.replace(summary, exit_code=summary.exit_code % 256)
    write(path, [*stream, summary])
    monkey = pytest.MonkeyPatch()

    async def play() -> list[ev.AnyEvent]:
        session = ReplaySession(str(path), clock=Base(), speed=1e6)
        seen: list[ev.AnyEvent] = []

        class Hub:
            """Takes each event as it comes."""

            publish = staticmethod(seen.append)

        monkey.setattr(session.desk, "hub", Hub)
        await session.play()
        return seen

    wanted = [from_object(harmless(to_object(event))) for event in (*stream, summary)]
    assert asyncio.run(play()) == wanted


@pytest.mark.asyncio
async def test_each_event_comes_at_its_own_time(tmp_path: Path) -> None:
    path = write(tmp_path / "r", [link(T0 + 2), change(T0 + 5, P.PREFLIGHT, P.IDLE), log(T0 + 5, 1)])
    base = ManualClock(0.0)
    session = ReplaySession(str(path), clock=base, speed=2.0)
    subscription = session.desk.hub.subscribe()
    assert session.desk.clock.now() == T0
    playing = asyncio.create_task(session.run())
    await base.advance(0.9)
    assert subscription.take() == [] and session.desk.clock.now() == pytest.approx(T0 + 1.8)
    await base.advance(0.1)
    assert subscription.take() == [link(T0 + 2)]
    await base.advance(1.5)
    first, second, summary = subscription.take()
    assert isinstance(first, ev.PhaseChanged) and isinstance(second, ev.Log) and isinstance(summary, ev.Summary)
    assert session.desk.phase is P.PREFLIGHT and session.over
    await base.advance(100.0)
    assert session.desk.clock.now() == T0 + 5, "at its end the recording stands still"
    assert not playing.done()
    playing.cancel()
    await settle()


@pytest.mark.asyncio
async def test_long_gaps_are_left_out_where_that_is_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "r", [link(T0 + 1), link(T0 + 601), link(T0 + 603)])
    assert (await played(path))[2].waited_s == pytest.approx(603)
    seen, session, base = await played(path, max_gap_s=5.0)
    assert base.waited_s == pytest.approx(8)
    assert [event.at for event in seen[:-1]] == [T0 + 1, T0 + 601, T0 + 603]
    assert session.desk.clock.now() == T0 + 603


class Busy(Base):
    """Whoever waits is held up: the machine has more to do than it can."""

    async def sleep(self, wait_s: float) -> None:
        await super().sleep(wait_s + 1.5)


@pytest.mark.asyncio
async def test_a_player_that_is_held_up_shows_no_time_that_has_not_come(tmp_path: Path) -> None:
    """Else "12 s ago" and the time in a phase would tell of the machine that plays, not of the record."""
    path = write(tmp_path / "r", [link(T0 + number) for number in range(1, 30)])
    session = ReplaySession(str(path), clock=Busy(), speed=10.0)
    late: list[float] = []
    publish = session.desk.hub.publish

    def published(event: ev.AnyEvent) -> None:
        late.append(session.clock.now() - event.at)
        publish(event)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session.desk.hub, "publish", published)
        await session.play()
    assert len(late) == 30 and late == pytest.approx([0.0] * 30)


@pytest.mark.asyncio
async def test_the_view_is_what_a_console_had(tmp_path: Path) -> None:
    health = ev.Health(at=T0 + 3, status=503, bytes=0, ms=4.0, verdict=Verdict.NOT_YET, count=7)
    stream: list[ev.AnyEvent] = [
        change(T0 + 1, P.WARMING, P.LOADING),
        health,
        *(log(T0 + 3, number) for number in range(1, 4)),
    ]
    _, session, _ = await played(write(tmp_path / "r", stream))
    view = session.desk.hub.view
    assert (view.phase, view.health, view.run_id) == (P.WARMING, health, "r1")
    assert session.desk.tally.answers == {"503": 7}
    assert [line.text for line in session.desk.hub.log_tail()] == ["line 1", "line 2", "line 3"]
    assert (session.title, session.node) == ("kimi (recording)", "gpu1")


@pytest.mark.asyncio
async def test_very_many_lines_at_once_reach_a_reader_that_draws(tmp_path: Path) -> None:
    """A reader at thirty pictures a second loses none of them, which it would if all came at once."""
    count = 8_000
    path = write(tmp_path / "r", [log(T0, number) for number in range(1, count + 1)])
    base = Base()
    session = ReplaySession(str(path), clock=base)
    subscription = session.desk.hub.subscribe()
    playing = asyncio.create_task(session.play())
    seen: list[ev.Log] = []
    drawn_at = base.waited_s
    while not playing.done():
        await asyncio.sleep(0)
        if base.waited_s - drawn_at >= 1 / 30 or playing.done():
            drawn_at = base.waited_s
            seen += [event for event in subscription.take() if isinstance(event, ev.Log)]
    assert len(seen) == count and not any(event.dropped for event in seen)


# ------------------------------------------------------------------------------------------- damaged files


@pytest.mark.asyncio
async def test_an_older_record_has_no_head(tmp_path: Path) -> None:
    path = write(tmp_path / "r", [link(T0 + 2), link(T0 + 3)], head=False)
    seen, session, base = await played(path)
    assert len(seen) == 3 and session.title == "r (recording)" and base.waited_s == pytest.approx(1)


@pytest.mark.asyncio
async def test_lines_that_cannot_be_read_are_told_by_number_and_the_rest_is_played(tmp_path: Path) -> None:
    path = write(tmp_path / "r", [link(T0 + 1), link(T0 + 2)])
    lines = path.read_text().splitlines()
    damaged = [lines[0], lines[1], "{}", '{"kind":"link","at":"\x1b]0;x\x07"}', "\x00\xff", "", lines[2]]
    path.write_text("\n".join(damaged) + "\n" + lines[2][:40])  # and the last one was cut
    seen, session, _ = await played(path)
    texts = [event.text for event in seen if isinstance(event, ev.Warning_)]
    assert [text.partition(" is left")[0] for text in texts] == [f"line {n} of the recording" for n in (3, 4, 5)]
    assert "\x1b" not in "".join(texts)
    assert len([event for event in seen if isinstance(event, ev.LinkEvent)]) == 2
    assert session.bad_lines == 3


@pytest.mark.asyncio
async def test_a_recording_that_somebody_made_up_drives_no_terminal(tmp_path: Path) -> None:
    wild = "\x1b]0;mine\x07\x1b[2J\u202e\x9b31m"
    head = {"kind": "record", "at": "2026-11-30T08:00:00.000Z", "version": 1}
    told = ev.Warning_(at=T0, text=f"a{wild}", facts={f"b{wild}": wild})
    stream = [told, change(T0, P.FAILED, P.IDLE), log(T0, 1)]
    stream += [msgspec.structs.replace(log(T0, 2), text=wild), msgspec.structs.replace(link(T0), why=wild)]
    path = tmp_path / "r"
    lines = [json.dumps({**head, "profile": wild, "node": wild, "title": f"t{wild}"}), *map(to_line, stream)]
    path.write_text("\n".join(lines) + "\n")
    seen, session, _ = await played(path)
    shown = "".join(map(to_line, seen)) + session.title + session.node + session.said
    assert "a" in shown and session.title == "t (recording)"
    assert shown.isprintable() and "\\u00" not in shown


@pytest.mark.parametrize("code", [-1, 256, 10**17])
@pytest.mark.asyncio
async def test_an_exit_code_that_no_command_has_is_none(tmp_path: Path, code: int) -> None:
    ending = ev.Summary(
        at=T0, verdict=ev.Outcome.REACHED, exit_code=code, phase=P.SERVING, reason="", phases=(), answers={},
        finding=None, evidence=(),
    )  # fmt: skip
    seen, session, _ = await played(write(tmp_path / "r", [link(T0), ending]))
    last = seen[-1]
    assert isinstance(last, ev.Summary) and last.exit_code == 130  # the one of a record without an ending
    assert session.bad_lines == 1


@pytest.mark.asyncio
async def test_a_file_full_of_bad_lines_does_not_flood(tmp_path: Path) -> None:
    path = write(tmp_path / "r", [link(T0 + 1)])
    with path.open("a") as file:
        file.write("rubbish\n" * 500)
    seen, _, _ = await played(path)
    texts = [event.text for event in seen if isinstance(event, ev.Warning_)]
    assert len(texts) == 6 and texts[-1] == "500 lines of the recording could not be read"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is empty"),
        (b"\n\n", r"line 1: it is no JSON"),
        (b"#!/bin/sh\necho\n", r"line 1: it is no JSON"),
        (b'{"kind":"dance"}\n', r"line 1: its kind is not known here"),
        (b"\xff" * 100, r"line 1: it is no JSON"),
        (b'{"kind":"record","at":"2026-11-30T08:00:00.000Z","version":2}\n', "of version 2"),
        (b'{"kind":"record","at":"now"}\n', "a time is written as"),
        (b'{"kind":"record","at":"2026-11-30T08:00:00.000Z","version":"x"}\n', "no recording"),
    ],
)
def test_a_file_that_is_no_record_is_refused(tmp_path: Path, data: bytes, why: str) -> None:
    path = tmp_path / "r"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=why):
        ReplaySession(str(path), clock=Base())


@pytest.mark.parametrize("path", ["/no/such/file", "/tmp", "a\0b"])
def test_a_file_that_cannot_be_read_is_refused(path: str) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        ReplaySession(path, clock=Base())


# ------------------------------------------------------------------------------------------- headless


async def headless(path: Path, **how: Any) -> tuple[int, list[dict[str, Any]]]:
    out = io.StringIO()
    session = ReplaySession(str(path), clock=Base(), each=True, **how)
    options = Options(until=P.SERVING, limits=Limits(timeout_s=1.0), json=True, all_events=True)
    began_at = session.clock.now()
    code = await wait(
        session.desk, session.play, options, began_at=began_at, waiter=ReplayWaiter(), out=out, err=io.StringIO()
    )
    return code, [checked(line) for line in out.getvalue().splitlines()]


@pytest.mark.asyncio
@pytest.mark.parametrize(("outcome", "code"), [("reached", 0), ("timeout", 124), ("unreachable", 3), ("failed", 1)])
async def test_the_ending_is_the_records(tmp_path: Path, outcome: str, code: int) -> None:
    """No limit of a wait fires, however long the recording is, and nothing ends it before its end."""
    summary = ev.Summary(
        at=T0 + 9000, verdict=ev.Outcome(outcome), exit_code=code, phase=P.WARMING, reason="as it was",
        phases=(ev.PhaseTime(phase=P.WARMING, s=8999.0),), answers={"503": 8000},
    )  # fmt: skip
    stream: list[ev.AnyEvent] = [change(T0 + 1, P.FAILED, P.LOADING), change(T0 + 2, P.PREFLIGHT, P.FAILED), summary]
    told, lines = await headless(write(tmp_path / "r", stream))
    assert told == code and [line["kind"] for line in lines] == ["phase", "phase", "summary"]
    last = lines[-1]
    assert (last["verdict"], last["answers"], last["reason"]) == (outcome, {"503": 8000}, "as it was")
    assert last["evidence"][-1]["kind"] == "replay"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("phase", "code", "verdict"),
    [(P.SERVING, 0, "reached"), (P.FAILED, 1, "failed"), (P.LOADING, 130, "interrupted")],
)
async def test_a_record_without_an_ending_says_where_it_stops(
    tmp_path: Path, phase: Phase, code: int, verdict: str
) -> None:
    told, lines = await headless(write(tmp_path / "r", [change(T0 + 7, phase, P.PREFLIGHT)]))
    assert told == code and lines[-1]["verdict"] == verdict
    assert "without a verdict of its own" in lines[-1]["reason"] and lines[-1]["phase"] == phase.value


@pytest.mark.asyncio
async def test_nothing_can_be_ordered(tmp_path: Path) -> None:
    session = ReplaySession(str(write(tmp_path / "r", [link(T0)])), clock=Base())
    for order in (session.stop(), session.restart(), session.clear((), ()), session.left_overs()):
        with pytest.raises(RefusedError, match=REFUSAL):
            await order
    assert session.attendance is None and await session.ping() is None and await session.read_log(0, 10) == b""


# ------------------------------------------------------------------------------------------- recording


@pytest.mark.asyncio
async def test_a_console_records_all_from_its_beginning_to_its_end(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    desk = Desk(clock=clock, verify=True, on_phase=lambda _change: None)
    desk.warn("before")
    path = tmp_path / "r"
    recorder = Recorder(str(path), at=T0, mask=lambda text: text.replace("sesame", "***"), profile="kimi", node="gpu1")
    recording = asyncio.create_task(record(desk, recorder))
    await settle()
    desk.tell(log(T0 + 1, 1))
    data = b"open sesame 12345\nsecond\n"
    desk.tell(ev.LogBlock(at=T0 + 2, data=data, offset=20, line_no=2, lines=2))
    await settle()
    desk.warn("in the last moment")
    recording.cancel()
    await settle()
    lines = [checked(line) for line in path.read_text().splitlines()]
    assert [line["kind"] for line in lines] == ["record", "warning", "log", "log", "log", "warning"]
    assert lines[3]["text"] == "open *** 12345" and lines[-1]["text"] == "in the last moment"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text().splitlines()[0])["profile"] == "kimi"


@pytest.mark.asyncio
async def test_a_full_disk_is_told_once_and_the_session_goes_on(tmp_path: Path) -> None:
    desk = Desk(clock=ManualClock(T0), verify=True, on_phase=lambda _change: None)
    recorder = Recorder(str(tmp_path / "r"), at=T0, mask=str)
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, recorder._file.fileno())
    os.close(full)
    recording = asyncio.create_task(record(desk, recorder))
    await settle()
    for number in range(5):
        desk.tell(link(T0 + number))
        await settle()
    assert recording.done() and recording.exception() is None
    texts = [warning.text for warning in desk.hub.view.warnings]
    assert len(texts) == 1 and "ends here: No space left on device" in texts[0]
    with pytest.raises(UsageError, match="exists, and nothing is overwritten"):
        Recorder(str(tmp_path / "r"), at=T0, mask=str)


def test_a_secret_that_looks_like_a_number_leaves_the_lines_whole(tmp_path: Path) -> None:
    path = tmp_path / "r"
    recorder = Recorder(str(path), at=T0, mask=lambda text: text.replace("2024", "***").replace("null", "***"))
    recorder.write(ev.Log(at=T0, text="key 2024 and null", line_no=2024, offset=2024))
    recorder.close()
    shown = msgspec.json.decode(path.read_bytes().splitlines()[1])
    assert (shown["text"], shown["line_no"]) == ("key *** and ***", 2024)


# ------------------------------------------------------------------------------------------- the recorded streams


STREAMS = Path(__file__).parents[1] / "corpora" / "streams"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("name", "code", "phases"),
    [
        ("serves", 0, "preflight launching loading warming healthy serving"),
        ("fails", 1, "preflight launching loading failed"),
        ("slow-503", 124, "preflight launching loading warming"),
    ],
)
async def test_the_recorded_streams_play_to_their_ends(name: str, code: int, phases: str) -> None:
    path = STREAMS / f"{name}.jsonl"
    told, lines = await headless(path)
    assert told == code and lines[-1]["exit_code"] == code
    assert " ".join(line["to"] for line in lines if line["kind"] == "phase") == phases
    assert max(len(line["gpus"]) for line in lines if line["kind"] == "gpu") == 8
    assert {line["kind"] for line in lines} >= {"log", "gpu", "holders", "health", "progress", "link"}
    assert not any("left out" in line.get("text", "") for line in lines)
    numbers = [line["line_no"] for line in lines if line["kind"] == "log" and not line["living"]]
    assert numbers == sorted(set(numbers))


def test_the_recorded_streams_are_small_and_name_no_machine() -> None:
    files = sorted(STREAMS.glob("*.jsonl"))
    assert [path.stem for path in files] == ["fails", "serves", "slow-503"]
    assert sum(path.stat().st_size for path in files) < 150_000
    for path in files:
        text = path.read_text()
        assert not [word for word in ("/work", "/tmp", "/home", "/root", os.uname().nodename + ")") if word in text]
        assert text.count('"at":"2026-11-30T03:12:') == text.count('"at":')
