"""The hub: nothing lost between snapshot and stream, and a slow reader loses log lines alone, counted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core import events as ev
from supervisor.core.events import LinkState, Phase, Verdict
from supervisor.core.gpu import Coverage, Driver, DriverState
from supervisor.core.gpu_events import GpuEvent, Holders
from supervisor.supervise.desk import Desk
from supervisor.supervise.hub import (
    EVENT_BYTES,
    LOG_TAIL_BYTES,
    LOG_TAIL_LINES,
    QUEUE_BYTES,
    QUEUE_EVENTS,
    SLICE_BYTES,
    Hub,
    Subscription,
    View,
)
from supervisor.testing import ManualClock
from tests.core.test_block_reader import blocks_of


def log(n: int, *, living: bool = False, dropped: int = 0) -> ev.Log:
    return ev.Log(at=n, text=f"line {n}", line_no=n, offset=n * 10, living=living, dropped=dropped)


def phase(at: float, to: Phase = Phase.LOADING, run_id: str = "") -> ev.PhaseChanged:
    return ev.PhaseChanged(at=at, from_=Phase.IDLE, to=to, label=to.value, evidence=(), run_id=run_id)


def finding(at: float) -> ev.Finding:
    return ev.Finding(at=at, category="memory", detail="d", cause="c")


def health(at: float, status: int = 503, count: int = 1) -> ev.Health:
    return ev.Health(at=at, status=status, bytes=0, ms=1, verdict=Verdict.NOT_YET, count=count)


def gpus(at: float) -> GpuEvent:
    return GpuEvent(at=at, host="h", driver=Driver(state=DriverState.OK))


def holders(at: float) -> Holders:
    return Holders(at=at, host="h", coverage=Coverage.ALL)


def progress(at: float, done: int = 0) -> ev.Progress:
    return ev.Progress(at=at, stage="weights", done=done, total=100)


def warning(at: float) -> ev.Warning_:
    return ev.Warning_(at=at, text="w")


def link(at: float) -> ev.LinkEvent:
    return ev.LinkEvent(at=at, state=LinkState.LOST, why="w")


EVENTS: list[ev.AnyEvent] = [
    phase(1, Phase.PREFLIGHT, "run-1"), phase(2), phase(3, Phase.FAILED), phase(4, Phase.PREFLIGHT, "run-2"),
    link(5), health(6), progress(7, 1), progress(8, 2), finding(9), warning(10),
    gpus(10.1), holders(10.2), gpus(10.3),
    log(11), log(12, living=True), log(12, living=True), log(12), log(13),
]  # fmt: skip


SAMPLES = (ev.Progress, ev.Health, GpuEvent, Holders)


def replayed(view: View, events: Sequence[ev.AnyEvent]) -> View:
    """What a front end has that took the snapshot and then every event."""
    hub = Hub()
    hub._view = msgspec.structs.replace(view, log=())
    for event in (*view.log, *events):
        hub.publish(event)
    return state(hub)


def state(hub: Hub) -> View:
    return msgspec.structs.replace(hub.view, log=hub.log_tail())


def uncounted(view: View) -> View:
    """Answers that were put together count for more than one: how many the reader missed is not the state."""
    if view.health is None:
        return view
    return msgspec.structs.replace(view, health=msgspec.structs.replace(view.health, count=1))


@given(st.lists(st.sampled_from(EVENTS), max_size=40), st.integers(0, 40))
def test_snapshot_and_stream_together_are_the_state(events: list[ev.AnyEvent], when: int) -> None:
    hub = Hub()
    for event in events[:when]:
        hub.publish(event)
    subscription = hub.subscribe()
    for event in events[when:]:
        hub.publish(event)
    there = replayed(subscription.view, subscription.take())
    assert uncounted(there) == uncounted(state(hub))


@given(st.lists(st.sampled_from(EVENTS), max_size=60), st.lists(st.integers(1, 20), max_size=10))
def test_a_reader_in_any_rhythm_gets_all_but_what_coalesces(events: list[ev.AnyEvent], rhythm: list[int]) -> None:
    hub = Hub()
    subscription = hub.subscribe()
    got: list[ev.AnyEvent] = []
    for number, event in enumerate(events):
        hub.publish(event)
        if number in rhythm:
            got += subscription.take()
    got += subscription.take()

    def kept(stream: list[ev.AnyEvent]) -> list[ev.AnyEvent]:
        return [
            event
            for event in stream
            if not isinstance(event, SAMPLES) and not (isinstance(event, ev.Log) and event.living)
        ]

    assert kept(got) == kept(events)


def test_the_view_of_a_new_run_forgets_the_old_ones_finding() -> None:
    hub = Hub()
    for event in (phase(1, Phase.PREFLIGHT, "a"), finding(2), progress(3), phase(4, Phase.FAILED, "a")):
        hub.publish(event)
    assert (hub.view.phase, hub.view.since, hub.view.finding) == (Phase.FAILED, 4, finding(2))
    hub.publish(phase(5, Phase.PREFLIGHT, "b"))
    view = hub.view
    assert (view.run_id, view.finding, view.progress, len(view.changes)) == ("b", None, None, 1)


def test_the_view_is_bounded() -> None:
    hub = Hub()
    for n in range(LOG_TAIL_LINES + 50):
        hub.publish(log(n))
        hub.publish(warning(n))
        hub.publish(phase(n))
    view = state(hub)
    assert (len(view.log), view.log[0].line_no, view.log[-1].line_no) == (LOG_TAIL_LINES, 50, LOG_TAIL_LINES + 49)
    assert (len(view.warnings), len(view.changes)) == (50, 200)
    assert view.changes[-1].at == LOG_TAIL_LINES + 49


def flood(subscription_of: Hub, lines: int) -> tuple[Subscription, list[ev.AnyEvent]]:
    """A reader that reads nothing while the log floods and everything else happens now and then."""
    subscription = subscription_of.subscribe()
    others: list[ev.AnyEvent] = []
    for n in range(lines):
        subscription_of.publish(log(n))
        if n % 1000 == 0:
            for event in (phase(n), finding(n), warning(n), link(n), health(n)):
                others.append(event)
                subscription_of.publish(event)
    return subscription, others


def test_a_slow_reader_loses_log_lines_and_is_told_how_many() -> None:
    lines = QUEUE_EVENTS * 3 + 17
    subscription, others = flood(Hub(), lines)
    got = subscription.take()
    logs = [event for event in got if isinstance(event, ev.Log)]
    assert len(logs) == QUEUE_EVENTS
    assert sum(event.dropped for event in logs) + len(logs) == lines
    assert logs[0].dropped == lines - QUEUE_EVENTS, "the gap is told where it is"
    assert [event.line_no for event in logs] == list(range(lines - QUEUE_EVENTS, lines)), "the newest are kept"
    kept = [event for event in others if not isinstance(event, SAMPLES)]
    assert [event for event in got if not isinstance(event, (ev.Log, *SAMPLES))] == kept
    answers = [event for event in got if isinstance(event, ev.Health)]
    assert answers == [health(lines // 1000 * 1000, count=len(others) - len(kept))]
    assert subscription.take() == []


def test_samples_of_many_kinds_cost_a_reader_that_never_reads_no_memory() -> None:
    """Two kinds that took turns grew the queue for ever: only equal neighbours were put together."""
    hub = Hub()
    subscription = hub.subscribe()
    for n in range(10_000):
        for event in (health(n), progress(n, n), gpus(n), holders(n), health(n, 500)):
            hub.publish(event)
    last = 9_999
    assert subscription.take() == [
        health(last, count=10_000), progress(last, last), gpus(last), holders(last), health(last, 500, count=10_000)
    ]  # fmt: skip
    assert (hub.view.gpu, hub.view.holders) == (gpus(last), holders(last))


def test_an_answer_of_another_kind_never_falls_away() -> None:
    hub = Hub()
    subscription = hub.subscribe()
    for event in (health(1, 503), health(2, 200), health(3, 503)):
        hub.publish(event)
    assert subscription.take() == [health(2, 200), health(3, 503, count=2)]


def test_the_count_of_a_gap_waits_for_the_next_line_and_is_told_once() -> None:
    hub = Hub()
    subscription, _ = flood(hub, QUEUE_EVENTS + 5)
    assert sum(event.dropped for event in subscription.take() if isinstance(event, ev.Log)) == 5
    hub.publish(log(9999))
    assert subscription.take() == [log(9999)]


def test_a_gap_that_was_told_to_the_hub_already_is_added() -> None:
    hub = Hub()
    subscription = hub.subscribe()
    for n in range(QUEUE_EVENTS + 3):
        hub.publish(log(n, dropped=7 if n in (1, 3) else 0))
    logs = [event for event in subscription.take() if isinstance(event, ev.Log)]
    assert logs[0].line_no == 3
    assert logs[0].dropped == 3 + 7 + 7


def test_a_bar_that_is_redrawn_pushes_no_line_out() -> None:
    """Ten thousand redraws in one line were ten thousand lines to a slow reader, and counted as lost ones."""
    hub = Hub()
    subscription = hub.subscribe()
    hub.publish(log(1))
    for _ in range(QUEUE_EVENTS * 2):
        hub.publish(log(2, living=True))
    hub.publish(log(2))
    assert subscription.take() == [log(1), log(2)]


def test_progress_coalesces_to_the_latest() -> None:
    hub = Hub()
    subscription = hub.subscribe()
    for done in range(100):
        hub.publish(progress(done, done))
    assert subscription.take() == [progress(99, 99)]


def test_one_slow_reader_takes_nothing_from_another() -> None:
    hub = Hub()
    slow, quick = hub.subscribe(), hub.subscribe()
    seen: list[ev.AnyEvent] = []
    for n in range(QUEUE_EVENTS * 2):
        hub.publish(log(n))
        if n % 100 == 0:
            seen += quick.take()
    seen += quick.take()
    assert [event.line_no for event in seen if isinstance(event, ev.Log)] == list(range(QUEUE_EVENTS * 2))
    assert len(slow.take()) == QUEUE_EVENTS


@pytest.mark.asyncio
async def test_batches_wait_for_events_and_end_with_the_hub() -> None:
    hub = Hub()
    subscription = hub.subscribe()
    batches: list[list[ev.AnyEvent]] = []

    async def read() -> None:
        async for batch in subscription.batches():
            batches.append(batch)

    task = asyncio.create_task(read())
    await asyncio.sleep(0)
    assert batches == []
    hub.publish(phase(1))
    hub.publish(log(1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    hub.publish(finding(2))
    hub.close()
    await asyncio.wait_for(task, 5)
    assert batches == [[phase(1), log(1)], [finding(2)]]


@pytest.mark.asyncio
async def test_who_comes_after_the_end_has_the_last_state_and_an_end() -> None:
    hub = Hub()
    hub.publish(phase(1, Phase.FAILED))
    hub.close()
    subscription = hub.subscribe()
    assert subscription.view.phase is Phase.FAILED
    assert [batch async for batch in subscription.batches()] == []


def test_who_left_gets_nothing_more() -> None:
    hub = Hub()
    subscription = hub.subscribe()
    hub.unsubscribe(subscription)
    hub.publish(phase(1))
    assert subscription.take() == []


def test_no_title_of_a_process_drives_a_terminal() -> None:
    """Titles are the processes' own to choose, and both evidence and warnings name them."""
    desk = Desk(clock=ManualClock(), verify=True, on_phase=lambda _change: None)
    evil = ev.Process(pid=7, start_ticks=1, title="python\x1b]0;owned\x07\x1b[2J")
    desk.note(ev.RunBegan(at=1.0, run_id="r", why="new"))
    desk.note(ev.ProcessSeen(at=2.0, root=evil))
    desk.warn(f"will stop {evil.title}")
    view = desk.hub.view
    assert "\x1b" not in str(view.changes[-1].evidence) + view.warnings[-1].text
    assert "owned" not in view.changes[-1].evidence[0].text


# ------------------------------------------------------------------------------------------------- the log in blocks


LINES = b"".join(b"line %d of a log that floods\n" % n for n in range(1, 2_001))
CUTS = st.lists(st.integers(0, 1 << 20), max_size=12)
TEXT = st.lists(st.sampled_from([b"\n", b"\n", b"\r", b"word", b" 45%|##", b"\r\n"]), max_size=40).map(b"".join)


def texts(events: Sequence[ev.AnyEvent]) -> list[tuple[int | None, str]]:
    return [(event.line_no, event.text) for event in events if isinstance(event, ev.Log) and not event.living]


@given(data=TEXT, cuts=CUTS, when=st.integers(0, 14), rhythm=st.sets(st.integers(0, 14)))
def test_who_wants_lines_gets_every_line_once(data: bytes, cuts: list[int], when: int, rhythm: set[int]) -> None:
    """Whenever he comes, and however he reads: what the view's tail began, the stream goes on with."""
    hub, whole = Hub(), Hub().subscribe()
    subscription, got = None, list[ev.AnyEvent]()
    for number, block in enumerate(blocks_of(data, cuts)):
        if number == when:
            subscription = hub.subscribe()
        hub.publish(block)
        whole.push(block)
        if number in rhythm and subscription is not None:
            got += subscription.take()
    subscription = subscription or hub.subscribe()
    got = [*subscription.view.log, *got, *subscription.take()]
    assert texts(got) == texts(whole.take())
    assert sum(event.dropped for event in got if isinstance(event, ev.Log)) == 0


@given(cuts=CUTS, when=st.integers(0, 14))
def test_who_takes_blocks_gets_every_byte_once(cuts: list[int], when: int) -> None:
    hub, blocks = Hub(), blocks_of(LINES[:5000], cuts)
    for block in blocks[:when]:
        hub.publish(block)
    subscription = hub.subscribe(lines=False)
    for block in blocks[when:]:
        hub.publish(block)
    got = [*subscription.view.blocks, *subscription.take()]
    assert b"".join(event.data for event in got if isinstance(event, ev.LogBlock)) == LINES[:5000]
    assert subscription.view.log == ()


@pytest.mark.parametrize("lines", [True, False])
def test_a_reader_that_never_reads_loses_the_oldest_blocks_alone(lines: bool) -> None:
    hub = Hub()
    subscription = hub.subscribe(lines=lines)
    data = LINES * (3 * QUEUE_BYTES // len(LINES))
    blocks = blocks_of(data, range(0, len(data), 65_536))
    others: list[ev.AnyEvent] = []
    for number, block in enumerate(blocks):
        hub.publish(block)
        if number % 10 == 0:
            others += [phase(number), warning(number)]
            hub.publish(others[-2])
            hub.publish(others[-1])
    got = subscription.take()
    assert [event for event in got if isinstance(event, ev.PhaseChanged | ev.Warning_)] == others
    logs = [event for event in got if isinstance(event, ev.Log)]
    kept = [event for event in got if isinstance(event, ev.LogBlock)]
    if lines:
        assert not kept
        assert sum(log.dropped for log in logs) + len(logs) == data.count(b"\n")
        assert logs[0].dropped == (logs[0].line_no or 0) - 1, "the gap is told where it is"
        assert logs[-1].line_no == data.count(b"\n"), "the newest are kept"
        assert sum(len(log.text) + 1 for log in logs) > QUEUE_BYTES - 3 * 65_536
    else:
        assert not logs
        assert QUEUE_BYTES - 2 * 65_536 < sum(len(block.data) for block in kept) <= QUEUE_BYTES
        assert b"".join(block.data for block in kept) == data[kept[0].offset :]
    assert subscription.take() == []


def test_a_block_that_began_another_file_falls_out_and_the_next_one_says_so() -> None:
    hub = Hub()
    subscription = hub.subscribe(lines=False)
    size = QUEUE_BYTES // 2 - EVENT_BYTES
    for number in range(6):
        hub.publish(
            ev.LogBlock(
                at=0, data=b"x" * size, offset=size * (number - 2 if number > 1 else number), line_no=1, lines=0,
                fresh=number in (0, 2),
            )
        )  # fmt: skip
    kept = [event for event in subscription.take() if isinstance(event, ev.LogBlock)]
    assert [(block.offset, block.fresh) for block in kept] == [(2 * size, True), (3 * size, False)]


def test_the_tail_for_a_newcomer_is_bounded_in_lines_and_in_bytes() -> None:
    hub = Hub()
    for block in blocks_of(LINES, range(0, len(LINES), 100)):
        hub.publish(block)
    tail = hub.log_tail()
    assert [line.line_no for line in tail] == list(range(1001, 2001))
    assert tail[0].text == "line 1001 of a log that floods"
    assert hub.subscribe().view.log == tail
    blocks = hub.subscribe(lines=False).view.blocks
    assert sum(block.lines for block in blocks) < LOG_TAIL_LINES + 10
    for number in range(100):
        hub.publish(ev.LogBlock(at=0, data=b"y" * 65_536, offset=len(LINES) + 65_536 * number, line_no=2001, lines=0))
    blocks = hub.subscribe(lines=False).view.blocks
    assert sum(len(block.data) for block in blocks) <= LOG_TAIL_BYTES
    assert hub.log_tail() == ()


@pytest.mark.asyncio
async def test_a_flood_that_is_made_into_lines_lets_others_run() -> None:
    hub = Hub()
    subscription = hub.subscribe()
    data = LINES * 40
    for block in blocks_of(data, range(0, len(data), 65_536)):
        hub.publish(block)
    hub.publish(finding(2))
    hub.close()
    turns, batches = 0, []

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(count())
    async for batch in subscription.batches():
        batches.append(batch)
    task.cancel()
    assert turns >= len(batches) - 1 >= len(data) // (SLICE_BYTES + 65_536)
    events = [event for batch in batches for event in batch]
    assert texts(events)[-1] == (80_000, "line 2000 of a log that floods")
    assert len(texts(events)) == 80_000
    assert events[-1] == finding(2)


def test_a_server_that_writes_a_byte_at_a_time_fills_neither_the_tail_nor_a_queue() -> None:
    """Each block weighs some hundred bytes beside what is in it."""
    hub = Hub()
    sleepy = hub.subscribe(lines=False)
    count = 2 * QUEUE_BYTES // EVENT_BYTES
    for at in range(count):
        hub.publish(ev.LogBlock(at=0, data=b".", offset=at, line_no=1, lines=0, fresh=not at))
    kept = sleepy.take()
    assert len(kept) <= QUEUE_BYTES // EVENT_BYTES and isinstance(kept[-1], ev.LogBlock)
    assert kept[-1].offset == count - 1
    assert len(hub.subscribe(lines=False).view.blocks) <= LOG_TAIL_BYTES // EVENT_BYTES
