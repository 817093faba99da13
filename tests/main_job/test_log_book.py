"""A real session's log in a book: whole, over a restart, another file and a takeover that begins at the log's end."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from supervisor.adapters.clock import SystemClock
from supervisor.adapters.local import LocalLink
from supervisor.adapters.spool import Spool
from supervisor.core import events as ev
from supervisor.core.lines import LineSplitter
from supervisor.core.log_book import Row
from supervisor.profile import load
from supervisor.supervise import begin
from supervisor.supervise.book import Book
from supervisor.supervise.session import Session
from supervisor.wiring import plan_of
from tests.main_job.kit import PATIENCE_S, Site
from tests.real.processes import Tracker

TALKER = """
import sys, time
for number in range(1, 2001):
    print(f"run {sys.argv[1]} line {number} \\u2588 of what it says", end="\\r" if number % 100 == 7 else "\\n")
sys.stdout.write("unfinished")
sys.stdout.flush()
time.sleep(600)
"""


class TalkingSite(Site):
    """A place whose server says two thousand lines and then nothing."""

    def command(self, *flags: str) -> list[str]:
        return [sys.executable, "-c", TALKER, "one", "--port", str(self.port)]


class Watched:
    """A session with a book beside it, as a console has it."""

    def __init__(self, here: Site, folder: Path, *, launch: bool = True) -> None:
        self.here = here
        plan = plan_of(load(here.file), str(here.file))
        self.session = Session(plan, LocalLink, clock=SystemClock(), by="watcher", launch=launch)
        self.changed = asyncio.Event()
        self.book = Book(
            read=self.session.read_log,
            count=self.session.count_log_lines,
            on_change=self.changed.set,
            spool=Spool(folder / "spool"),
        )

    async def drain(self) -> None:
        subscription = self.session.desk.hub.subscribe(lines=False)
        for block in subscription.view.blocks:
            self.book.append(block)
        async for batch in subscription.batches():
            for event in batch:
                if isinstance(event, ev.LogBlock):
                    self.book.append(event)
                    self.changed.set()

    async def until(self, look: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not look():
                self.changed.clear()
                await self.changed.wait()

    async def rows(self) -> list[Row]:
        """All of them, once nothing is missing."""
        out: list[Row] = []

        def whole() -> bool:
            out[:] = self.book.rows(1, 1 << 20)
            return all(row.held for row in out)

        await self.until(whole)
        return out


@asynccontextmanager
async def watching(here: Site, folder: Path, *, launch: bool = True) -> AsyncIterator[Watched]:
    watched = Watched(here, folder, launch=launch)
    tasks = [asyncio.create_task(watched.drain()), asyncio.create_task(watched.session.run())]
    try:
        yield watched
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        watched.book.close()


def lines_of(path: Path, *, offset: int = 0) -> list[str]:
    data = path.read_bytes()
    splitter = LineSplitter(offset=offset)
    return [line.text for line in [*splitter.feed(data[offset:]), *splitter.end()] if not line.living]


@pytest.fixture
def here(tmp_path: Path, tracker: Tracker) -> Iterator[TalkingSite]:
    made = TalkingSite(tmp_path, tracker)
    try:
        yield made
    finally:
        made.end()


def test_a_log_is_whole_over_a_restart_a_takeover_and_another_file(
    here: TalkingSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = b"of somebody else\n" * 7
    here.log.write_bytes(before)

    async def first() -> None:
        async with watching(here, tmp_path) as watched:
            book = watched.book
            await watched.until(lambda: book.last_line >= 1988 and book.rows(book.last_line, 1)[0].text == "unfinished")
            assert (book.first_line, [row.text for row in await watched.rows()]) == (8, lines_of(here.log)[7:])
            tail = watched.session.desk.hub.log_tail()
            assert [line.text for line in tail] == lines_of(here.log)[-1001:-1], "the newest finished lines"
            # Started again, it writes on in the same file: the old lines stay in sight.
            last = book.last_line
            await watched.session.restart()
            await watched.until(
                lambda: book.last_line > last + 1900 and book.rows(book.last_line, 1)[0].text == "unfinished"
            )
            assert (book.first_line, [row.text for row in await watched.rows()]) == (8, lines_of(here.log)[7:])

    async def taken_over() -> None:
        """Only the end is read; what is before, up to where the run began, comes when it is looked at."""
        monkeypatch.setattr(begin, "TAKEOVER_LOG_BYTES", 20_000)
        async with watching(here, tmp_path, launch=False) as watched:
            book = watched.book
            await watched.until(lambda: book.last_line > 1 and book.rows(book.last_line, 1)[0].text == "unfinished")
            run = watched.session.attendance
            assert run is not None
            began = run.run.begins
            assert began.offset == here.log.stat().st_size - 20_000
            assert book.first_line == began.run_line == before.count(b"\n") + 1 + 1980
            assert not book.rows(book.first_line, 1)[0].held
            lines = lines_of(here.log, offset=began.run_offset)
            assert [row.text for row in await watched.rows()] == lines
            assert lines[0].endswith("run one line 1 █ of what it says")
            await another_file(watched)

    async def another_file(watched: Watched) -> None:
        book = watched.book
        here.log.rename(here.log.with_suffix(".1"))
        assert await watched.session.read_log(0, 10) == b"", "no file stands there"
        here.log.write_bytes(b"first of a new file\nsecond\n")
        assert await watched.session.read_log(0, 10) == b"", "another file stands there"
        await watched.until(lambda: book.last_line == 2)
        assert [row.text for row in await watched.rows()] == ["first of a new file", "second"]
        assert await watched.session.read_log(6, 2) == b"of"
        assert await watched.session.count_log_lines(25) == 1

    asyncio.run(first())
    asyncio.run(taken_over())
