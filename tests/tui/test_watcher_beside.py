"""What a watcher does beside its screen: what is news and what the user did himself, a record of it all, a replay."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from supervisor.core import events as ev
from supervisor.core.events import Phase
from supervisor.core.notices import Notice
from supervisor.supervise.notify import Notifier, NotifyPlan
from supervisor.supervise.record import Recorder
from supervisor.supervise.replay import REFUSAL, ReplaySession
from supervisor.supervise.stop import Stopped
from supervisor.supervise.witness import Witness
from supervisor.testing import settle
from supervisor.tui.watcher import Watcher
from tests.schema import checked
from tests.tui.fakes import BEGAN, FakeSession

PACE_S = 0.005


class Stopping(FakeSession):
    """A session whose stop really ends the run, as the facts of a stop do."""

    async def stop(self, by: str | None = None, *, witness: Witness | None = None) -> Stopped | None:
        self.end_run("me@here")
        return await super().stop(by, witness=witness)

    def end_run(self, by: str) -> None:
        self.desk.note(ev.StopBegan(at=self.clock.at, by=by))
        self.desk.note(ev.TreeGone(at=self.clock.at, release="no gpu"))


class Taken:
    """What a watcher has taken, for whoever waits for some of it."""

    def __init__(self) -> None:
        self._events: list[ev.AnyEvent] = []
        self._came = asyncio.Event()

    def __len__(self) -> int:
        return len(self._events)

    def __call__(self, _watcher: Watcher, events: Sequence[ev.AnyEvent]) -> None:
        self._events += events
        self._came.set()

    async def until(self, *wanted: ev.AnyEvent | type[ev.Event]) -> None:
        async with asyncio.timeout(10):
            while not any(event in wanted or type(event) in wanted for event in self._events):
                self._came.clear()
                await self._came.wait()


class Place:
    def __init__(self, session: FakeSession, recorder: Recorder | None = None) -> None:
        self.session = session
        self.taken = Taken()
        self.notices: list[Notice] = []
        notifier = Notifier(
            NotifyPlan(), profile="kimi", node="gpu1", clock=session.clock, mask=str, warn=session.desk.warn
        )
        notifier.on_notice(self.notices.append)
        self.watcher = Watcher(session, title="kimi", node="gpu1", mask=str, notifier=notifier, recorder=recorder)

    async def drained(self) -> list[str]:
        """The titles told so far, once all that was published has been taken."""
        self.session.desk.warn(f"mark {len(self.taken)}")
        await self.taken.until(self.session.desk.hub.view.warnings[-1])
        return [notice.title for notice in self.notices]


@asynccontextmanager
async def watched(session: FakeSession, recorder: Recorder | None = None) -> AsyncIterator[Place]:
    place = Place(session, recorder)
    draining = asyncio.create_task(place.watcher.drain(place.taken, PACE_S))
    await settle()
    try:
        yield place
    finally:
        await place.watcher.close()
        draining.cancel()
        await asyncio.gather(draining, return_exceptions=True)


@pytest.mark.asyncio
async def test_ones_own_stop_is_no_news_and_anothers_is() -> None:
    session = Stopping(tree=(ev.Process(pid=1, start_ticks=1),))
    async with watched(session) as place:
        session.serving()
        assert await place.drained() == ["kimi serves"]
        await place.watcher.stop()
        assert await place.drained() == ["kimi serves"]
        session.after(1000).begin("1130-0500-b2c3")
        session.seen()
        session.end_run("ana@there")
        assert (await place.drained())[1:] == ["kimi was stopped"]
        assert "stop asked for by ana@there" in place.notices[-1].text


@pytest.mark.asyncio
async def test_all_that_was_seen_is_in_the_record_and_plays_back(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    recorder = Recorder(str(path), at=BEGAN, mask=str, profile="kimi", node="gpu1")
    session = FakeSession()
    async with watched(session, recorder) as place:
        session.serving()
        session.log("it serves", 7)
        await place.drained()
        session.desk.warn("the last word")
    lines = [checked(line) for line in path.read_text().splitlines()]
    assert lines[0]["kind"] == "record" and lines[-1]["text"] == "the last word"
    assert [line["to"] for line in lines if line["kind"] == "phase"][-1] == "serving"

    replay = ReplaySession(str(path), clock=session.clock, speed=1e6)
    watcher = Watcher(replay, title=replay.title, node=replay.node, mask=str)
    taken = Taken()
    draining = asyncio.create_task(watcher.drain(taken, PACE_S))
    await settle()
    await replay.play()
    await taken.until(ev.Summary)
    assert watcher.model.view.phase is Phase.SERVING
    assert watcher.book is not None and watcher.book.rows(7, 1)[0].text == "it serves"
    for order in (await watcher.stop(), await watcher.restart(), await watcher.clear((), ())):
        assert order.good is False and REFUSAL in order.text
    draining.cancel()
    await asyncio.gather(draining, return_exceptions=True)
    await watcher.close()
