"""A watcher without any screen: the stream into the model and the book, the session's end, its link."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from supervisor.core import events as ev
from supervisor.core.events import Phase, Verdict
from supervisor.errors import LoginError
from supervisor.testing import settle
from supervisor.tui.watcher import LOG_CAME, Watcher
from tests.tui.consoles import TREE, watcher_of
from tests.tui.fakes import FakeSession

Change = tuple[ev.AnyEvent, ...]


class Changes:
    """What a watcher has told, for whoever waits for some of it."""

    def __init__(self) -> None:
        self.told: list[Change] = []
        self._came = asyncio.Event()

    def __call__(self, _watcher: Watcher, events: Sequence[ev.AnyEvent]) -> None:
        self.told.append(tuple(events))
        self._came.set()

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(10):
            while not holds():
                self._came.clear()
                await self._came.wait()


@asynccontextmanager
async def drained(watcher: Watcher, pace_s: float = 0.001) -> AsyncIterator[Changes]:
    changes = Changes()
    draining = asyncio.create_task(watcher.drain(changes, pace_s))
    try:
        yield changes
    finally:
        draining.cancel()
        await asyncio.gather(draining, return_exceptions=True)
        await watcher.close()


@pytest.mark.asyncio
async def test_what_was_there_and_what_comes_is_taken_into_the_model_and_the_book() -> None:
    session = FakeSession(tree=TREE)
    session.loading()
    session.desk.tell(ev.LogBlock(at=session.clock.at, data=b"an early line\n", offset=0, line_no=1, lines=1))
    watcher = watcher_of(session)
    async with drained(watcher) as changes:
        await changes.until(lambda: watcher.model.view.phase is Phase.LOADING)
        assert changes.told[0] == ()
        session.desk.tell(ev.LogBlock(at=session.clock.at, data=b"a later", offset=14, line_no=2, lines=0))
        session.desk.tell(ev.LogBlock(at=session.clock.at, data=b" line\nhalf", offset=21, line_no=2, lines=1))
        session.answer(Verdict.NOT_YET, 503)
        await changes.until(lambda: watcher.model.answers == {"503": 1})
        book = watcher.book
        assert book is not None
        assert [row.text for row in book.rows(1, 9)] == ["an early line", "a later line", "half"]
        assert watcher.model.view.phase is Phase.WARMING and watcher.model.marks
    assert (watcher.model.title, watcher.model.node) == ("kimi", "gpu1")


@pytest.mark.asyncio
async def test_the_stream_ends_with_its_hub_and_a_flood_is_taken_in_few_batches() -> None:
    session = FakeSession()
    watcher = watcher_of(session)
    changes = Changes()
    draining = asyncio.create_task(watcher.drain(changes, 0.02))
    await changes.until(lambda: changes.told)
    for number in range(1, 2001):
        session.log(f"line number {number}", number)
        if number % 200 == 0:
            await asyncio.sleep(0)
    session.desk.hub.close()
    async with asyncio.timeout(10):
        await draining
    assert watcher.book is not None and watcher.book.last_line == 2000
    assert len(changes.told) < 15
    await watcher.close()


@pytest.mark.asyncio
async def test_an_end_of_supervision_is_kept_and_told_and_it_can_begin_anew() -> None:
    session = FakeSession()
    watcher = watcher_of(session)
    async with drained(watcher) as changes:
        supervising = asyncio.create_task(watcher.supervise())
        await changes.until(lambda: changes.told)
        await settle()
        assert watcher.model.rtt_ms == 12.3 and session.end is not None
        before = len(changes.told)
        session.end.set_exception(LoginError("gpu1 refused every key"))
        await supervising
        assert watcher.error == watcher.model.error == "gpu1 refused every key" and len(changes.told) == before + 1
        supervising = asyncio.create_task(watcher.supervise())
        await asyncio.sleep(0)
        assert watcher.error == "" and session.runs == 2
        supervising.cancel()
        await asyncio.gather(supervising, return_exceptions=True)
    assert session.cancelled == 1


@pytest.mark.asyncio
async def test_the_tree_ages_and_has_a_log_only_while_a_run_is_attended() -> None:
    session = FakeSession(tree=TREE)
    watcher = watcher_of(session)
    assert watcher.tree == tuple(TREE) and watcher.tree_older_s == 0.0 and watcher.log_path == "/data/logs/kimi.log"
    session.attendance = None
    assert watcher.tree == () and watcher.tree_older_s == 0.0 and watcher.log_path == ""
    assert watcher.busy == "" and watcher.order is None
    await watcher.close()


@pytest.mark.asyncio
async def test_verify_says_what_will_come_of_it() -> None:
    session = FakeSession(tree=TREE)
    watcher = watcher_of(session)
    session.loading()
    assert await watcher.verify() == "A generation is asked for at the first 200."
    session.answer(Verdict.READY, 200)
    assert await watcher.verify() == "A generation is asked for now."
    session.attendance = None
    assert "nothing to verify" in await watcher.verify()
    assert "off in this profile" in await watcher_of(FakeSession(verify=False, tree=TREE)).verify()


@pytest.mark.asyncio
async def test_older_bytes_that_came_are_told_as_a_change_of_the_log_alone() -> None:
    watcher = watcher_of(FakeSession())
    async with drained(watcher) as changes:
        await changes.until(lambda: changes.told)
        watcher._log_came()
        assert changes.told[-1] == LOG_CAME and all(isinstance(event, ev.LogBlock) for event in LOG_CAME)
