"""Every byte of a log is examined once and in order, however it floods, and nothing is skipped in silence."""

from __future__ import annotations

import asyncio
import random

import pytest

from supervisor.core import events as ev
from supervisor.supervise import examining
from supervisor.supervise.desk import Desk
from supervisor.supervise.examining import Examiner
from supervisor.testing import ManualClock

pytestmark = pytest.mark.asyncio


class Time:
    """Stands for the module `time` in the examiner: it passes when the test or the examination says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


class Log:
    """A file on a node, an examiner that reads its stream, and what was examined."""

    def __init__(self, time: Time, data: bytes, *, cost_s_per_byte: float = 0.0) -> None:
        self.time, self.data, self.cost = time, data, cost_s_per_byte
        self.desk = Desk(clock=ManualClock(1000.0), verify=False, on_phase=lambda _change: None)
        self.subscription = self.desk.hub.subscribe()
        self.seen: list[ev.LogBlock] = []
        self.gone = False
        self.fetched = 0
        self.rules = Examiner(self.desk, self._examine, self._fetch)
        self._offset, self._line_no = 0, 1

    def _examine(self, block: ev.LogBlock) -> None:
        self.seen.append(block)
        self.time.now += self.cost * len(block.data)

    async def _fetch(self, offset: int, length: int) -> bytes | None:
        await asyncio.sleep(0)
        self.fetched += 1
        return None if self.gone else self.data[offset : offset + length]

    def put(self, count: int, *, fresh: bool = False) -> None:
        """The next bytes of the stream."""
        data = self.data[self._offset : self._offset + count]
        lines = data.count(b"\n")
        self.rules.put(
            ev.LogBlock(at=1.0, data=data, offset=self._offset, line_no=self._line_no, lines=lines, fresh=fresh)
        )
        self._offset += len(data)
        self._line_no += lines

    async def until_caught_up(self) -> None:
        working = asyncio.create_task(self.rules.run())
        async with asyncio.timeout(20):
            while self.rules.behind:
                self.time.now += 1.0  # the reader is idle
                await asyncio.sleep(0)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)

    def warnings(self) -> list[str]:
        return [event.text for event in self.subscription.take() if isinstance(event, ev.Warning_)]

    def assert_whole(self) -> None:
        at, line_no = 0, 1
        for block in self.seen:
            assert (block.offset, block.line_no) == (at, line_no)
            at += len(block.data)
            line_no += block.lines
        assert b"".join(block.data for block in self.seen) == self.data[: self._offset]


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    made = Time()
    monkeypatch.setattr(examining, "time", made)
    return made


def lines(count: int) -> bytes:
    return b"".join(b"line %d\n" % number for number in range(count))


async def test_a_log_that_flows_gently_is_examined_before_anything_else_happens(time: Time) -> None:
    log = Log(time, lines(1000), cost_s_per_byte=1e-6)
    for _ in range(8):
        log.put(1000)
        assert not log.rules.behind
        time.now += 0.1
    log.assert_whole()


async def test_a_flood_gets_a_share_of_the_time_and_the_rest_later_in_order(time: Time) -> None:
    log = Log(time, lines(50_000), cost_s_per_byte=1e-5)
    began = time.now
    spent_at_once = 0.0
    while log._offset < len(log.data):
        before = time.now
        log.put(1000)
        spent_at_once += time.now - before
        time.now += 0.001
    assert log.rules.behind
    assert spent_at_once <= examining.SAVED_S + examining.SHARE * (time.now - began) + 0.01
    await log.until_caught_up()
    log.assert_whole()
    assert log.fetched == 0


@pytest.mark.parametrize("seed", range(5))
async def test_what_is_too_much_to_be_kept_is_read_from_the_file_again(
    time: Time, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(examining, "KEPT_BYTES", 5000)
    monkeypatch.setattr(examining, "PIECE_BYTES", 700)
    chance = random.Random(seed)
    log = Log(time, lines(20_000), cost_s_per_byte=1e-3)
    working = asyncio.create_task(log.rules.run())
    while log._offset < len(log.data):
        log.put(chance.randrange(1, 900))
        if chance.random() < 0.05:
            time.now += 1.0
        if chance.random() < 0.3:
            await asyncio.sleep(0)
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    # A piece that was being fetched when the link was lost is fetched again: nothing of it was examined.
    await log.until_caught_up()
    log.assert_whole()
    assert log.fetched > 0 and log.warnings() == [] and log.rules.unread_bytes == 0


async def test_a_file_that_is_gone_before_its_bytes_were_looked_at_is_told_with_their_number(
    time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examining, "KEPT_BYTES", 1000)
    log = Log(time, lines(1000), cost_s_per_byte=1.0)
    for _ in range(6):
        log.put(500)
    log.gone = True
    await log.until_caught_up()
    assert log.warnings() == ["1,500 bytes of the log were gone before the rules had looked at them"]
    assert sum(len(block.data) for block in log.seen) == 1500


async def test_a_rotation_behind_which_bytes_were_not_kept_is_told_too(
    time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examining, "KEPT_BYTES", 1000)
    log = Log(time, lines(1000), cost_s_per_byte=1.0)
    for _ in range(5):
        log.put(500)
    log.put(300, fresh=True)
    assert log.warnings() == ["1,000 bytes of the log were gone before the rules had looked at them"]


async def test_at_an_end_the_last_words_are_looked_at_and_what_was_left_out_is_counted(time: Time) -> None:
    log = Log(time, lines(1000), cost_s_per_byte=1e-3)
    for _ in range(6):
        log.put(500)
    assert len(log.seen) == 1
    assert log.rules.finish(None) == 3 * 500
    assert [block.offset for block in log.seen] == [0, 500, 2500], "in order while there was time, then the end"
    assert not log.rules.behind


async def test_an_end_of_a_log_that_was_kept_up_with_leaves_nothing_out(time: Time) -> None:
    log = Log(time, lines(100))
    log.put(400)
    assert log.rules.finish(None) == 0
    log.assert_whole()
