"""Attends one run: hears the node's notices and reads the log; the health endpoint is looked at in `looking.py`.

Survives the connection: `attend()` is called again with each new one, and goes on where it stood. All that it learns
goes to the desk as facts; it never changes a phase.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from supervisor.adapters.http import Http
from supervisor.core import events as ev
from supervisor.core.events import Phase
from supervisor.core.machine import DRAIN_S
from supervisor.core.phases import ENDED_PHASES
from supervisor.engines import loader
from supervisor.errors import NodeRequestError, UnreachableError
from supervisor.supervise.begin import Run
from supervisor.supervise.connection import Connection, first_of
from supervisor.supervise.desk import Desk
from supervisor.supervise.ending import EndWatch
from supervisor.supervise.examining import Examiner
from supervisor.supervise.follow import Blocks, Position, frames
from supervisor.supervise.holding import Holding
from supervisor.supervise.looking import HealthLook
from supervisor.supervise.plan import Plan
from supervisor.supervise.progressing import LoadWatch
from supervisor.supervise.stop import NOT_LOOKED
from supervisor.supervise.suspecting import DeadRanks, LogVerdict
from supervisor.supervise.takedown import processes

LAST_WORDS_BYTES = 512 * 1024
PROGRAM_ENDED_S = 1.0


class Attendance:
    """One run under our eyes.

    Args:
        after: where the log of the run before was read to, if it was attended too: the file may go on there.
        history: the folder in which launches are remembered; None remembers none.
    """

    def __init__(
        self,
        plan: Plan,
        run: Run,
        connection: Connection,
        desk: Desk,
        *,
        after: Position | None = None,
        history: Path | None = None,
    ) -> None:
        self._plan = plan
        self._run = run
        self._connection = connection
        self._desk = desk
        self._blocks = Blocks(run.begins, after=after)
        self._end = EndWatch(run.root, now=desk.clock.now())
        self._verdict = LogVerdict(plan.engine, loader.common(), desk, self._beside)
        self._rules = Examiner(desk, self._examine, self._fetch)
        self._last_words: ev.LogBlock | None = None
        self._dead = DeadRanks(plan.engine, desk, self._beside)
        self._timers: set[asyncio.Task[None]] = set()
        self._our_stop = self._gone = self._stop_seen = False
        self.tree: tuple[ev.Process, ...] = ()
        self.tree_at = desk.clock.now()
        self.holding = Holding(plan, run.run_id, connection, desk)
        self._health = HealthLook(plan, run, connection, desk, beside=self._beside)
        self._load = LoadWatch(plan, run, desk, node=connection.link.name, folder=history)

    @property
    def run(self) -> Run:
        """The run that is attended."""
        return self._run

    @property
    def log_path(self) -> str:
        """The log's file on the node, empty where the run has none."""
        return self._run.position.path or ""

    async def attend(self) -> None:
        """Attend over the present connection. Raises `UnreachableError` when it breaks; never returns."""
        client = self._connection.client
        await client.request("watch", key=self._plan.key, run_id=self._run.run_id)
        url = self._run.settled.url
        http = Http(self._connection.dial)
        self._health.connected(http)
        self._load.connected()
        await client.request("watch_port", host=url.host, port=url.port, interval_s=0.1)
        try:
            await first_of(
                asyncio.create_task(self._connection.wait_lost()),
                asyncio.create_task(self._hear()),
                asyncio.create_task(self._read_log()),
                asyncio.create_task(self._rules.run()),
                asyncio.create_task(self._load.watch()),
                asyncio.create_task(self._health.look()),
                asyncio.create_task(self.holding.watch()),
                asyncio.create_task(self._health.metrics.watch(http)),
            )
        finally:
            for timer in self._timers:
                timer.cancel()
            await asyncio.gather(*self._timers, return_exceptions=True)
            await http.close()

    def phase_changed(self, change: ev.PhaseChanged) -> None:
        """Called at every change of the phase: wakes the looks, and tells why a run failed."""
        self._health.moved(change.at, wake=True)
        self._health.metrics.phase_changed()
        self._load.phase_changed(change)
        self._end.phase_changed(change)
        if change.to is Phase.FAILED:
            self._tell_finding(change.at)

    def _tell_finding(self, at: float) -> None:
        left_bytes = self._rules.finish(self._last_words)
        if left_bytes:
            size = f"{left_bytes / (1 << 20):.1f} MiB"
            self._desk.warn(f"{size} of the log came too fast at the end to be examined: see `supervisor diagnose`")
        self._desk.tell(self._verdict.finding(self._end.facts(at), at))

    # ------------------------------------------------------------------------------- notices

    async def _hear(self) -> None:
        async for notice in self._connection.client.notices():
            self._notice(notice)
        await self._desk.clock.sleep(PROGRAM_ENDED_S)  # if the link has gone, its own watcher tells why
        raise UnreachableError("the node program ended (killed, or out of memory)")

    def _notice(self, notice: dict[str, Any]) -> None:
        now = self._desk.clock.now()
        match notice["notice"]:
            case "tree":
                self._tree(now, notice["tree"])
            case "port":
                self._health.port(bool(notice["open"]))
            case "exit":
                self._ended(now, notice)
            case "stop":
                self._stop_is_wanted()
                self._desk.note(ev.StopBegan(at=now, by=notice["stop"].get("by") or "somebody"))
            case "tree_gone":
                self._tree_gone(now)
            case "gpu":
                if not self.holding.take(notice, self.tree):
                    self._beside(self.holding.end_watch())
                elif (event := self._desk.hub.view.gpu) is not None:
                    self._end.gpus(event)
            case "work":
                self._load.worked(notice)
            case "child_ended":
                if self._dead.take(self._end.child_ended(notice["dead"], self._offset_s)):
                    self._health.doubt()
            case "keeper_gone":
                self._end.keeper_gone()
                self._desk.warn("the keeper was killed: the server lives on, its exit code will be unknown")
            case _:
                pass
        self._verdict.settle()

    @property
    def _offset_s(self) -> float:
        """How far the node's clock is before ours."""
        return self._connection.client.hello.clock_offset_s

    def _tree(self, now: float, raw: list[dict[str, Any]]) -> None:
        before, self.tree, self.tree_at = self.tree, processes(raw), now
        self._end.tree(now, self.tree)
        self._load.tree(self.tree)
        if _stopped(self.tree) - _stopped(before):
            self._health.doubt()
        known = self._run.root
        root = next((p for p in self.tree if known is not None and p.pid == known.pid), None)
        if root is None and self._plan.detaches and self.tree:
            root = self.tree[0]
        if root is not None:
            text = f"process {root.pid} lives: {root.title[:120]}"
            self._desk.note(ev.ProcessSeen(at=now, root=root, text=text))

    def _stop_is_wanted(self) -> None:
        self._stop_seen = True
        self._end.stop_wanted()
        self.holding.stop_began()

    def _tree_gone(self, now: float) -> None:
        """Nothing of it runs. After a stop that is half of it: `stopped` is entered with the proof of the release."""
        self._gone = True
        if self._our_stop or self._desk.phase in ENDED_PHASES:
            return  # whoever stops it through us notes the end, with the proof
        if self._stop_seen:
            self._beside(self._prove())
        else:
            self._desk.note(ev.TreeGone(at=now, release=NOT_LOOKED))

    async def _prove(self) -> None:
        try:
            await self.holding.prove_and_note()
        except UnreachableError:
            pass  # told by the link's own watcher; the next connection hears of the end once more

    def our_stop(self, begins: bool) -> None:
        """A stop through this session begins or is over; one that was broken off leaves the rest to the notices."""
        self._our_stop = begins
        if begins:
            self._end.stop_wanted()
            self.holding.stop_began()
        elif self._gone and self._stop_seen and self._desk.phase not in ENDED_PHASES:
            self._beside(self._prove())

    def _ended(self, now: float, notice: dict[str, Any]) -> None:
        told = notice["exit"]
        stop = notice["stop"]
        self._end.ended(now, told, wanted=bool(stop), offset_s=self._offset_s)
        if stop:
            self._stop_is_wanted()
        self._desk.note(
            ev.Ended(
                at=now,
                exit=ev.Exit(code=told.get("code"), signal=told.get("signal")),
                log_size=notice["log_size"],
                left=processes(notice["left"]),
                stopped_by=(stop.get("by") or "somebody") if stop else None,
            )
        )
        self._rules.ended()
        self._beside(self._tick_later())
        size = notice["log_size"]
        if size and self._run.position.path and self._run.position.offset < size:
            self._beside(self._read_last_words(size))

    def _beside(self, work: Coroutine[None, None, None]) -> None:
        timer = asyncio.create_task(work)
        self._timers.add(timer)
        timer.add_done_callback(self._timers.discard)

    async def _read_last_words(self, size: int) -> None:
        """The end of the log by a request: a server that dies at once is gone before the log's own channel stands."""
        path = self._run.position.path
        offset = max(self._run.begins.offset, self._verdict.read_to, size - LAST_WORDS_BYTES)
        client = self._connection.client
        try:
            lines = (await client.request("log_lines", path=path, until=offset))["lines"] if offset else 0
            reply = await client.request("log_read", path=path, offset=offset, length=size - offset)
        except (NodeRequestError, UnreachableError):
            return  # the finding then says what it has
        data, now = base64.b64decode(reply["data"]), self._desk.clock.now()
        last = ev.LogBlock(at=now, data=data, offset=offset, line_no=lines + 1, lines=data.count(b"\n"))
        if self._rules.behind:
            self._last_words = last  # in its turn
            return
        self._verdict.take(last)
        self._desk.note(ev.LogRead(at=now, offset=size))

    async def _tick_later(self) -> None:
        await self._desk.clock.sleep(DRAIN_S + 0.001)
        self._desk.note(ev.Tick(at=self._desk.clock.now()))

    # ------------------------------------------------------------------------------- the log

    async def _read_log(self) -> None:
        if not self._run.position.path:
            await asyncio.Event().wait()
        async for frame in frames(self._connection, self._run.position):
            now = self._desk.clock.now()
            if frame.rotated:
                self._desk.warn(
                    f"the log {self._run.position.path} was replaced by another file: read on from its start"
                )
            block = self._blocks.take(now, frame)
            if block is not None:
                self._desk.tell(block)
                self._end.log_grew(now)
                self._rules.put(block)
            elif not self._rules.behind:
                self._desk.note(ev.LogRead(at=now, offset=self._run.position.offset))
            await self._desk.step_aside()

    def _examine(self, block: ev.LogBlock) -> None:
        self._verdict.take(block)
        for ready in self._load.take(block):
            self._health.moved(self._desk.clock.now(), wake=ready)

    async def _fetch(self, offset: int, length: int) -> bytes | None:
        position = self._run.position
        try:
            reply = await self._connection.client.request(
                "log_read", path=position.path, offset=offset, length=length, dev=position.dev, ino=position.ino
            )
        except NodeRequestError:
            return None  # gone, or another file stands there now
        return base64.b64decode(reply["data"])

    async def verify_again(self) -> None:
        """Ask for a generation at the next look, whatever the last one came to."""
        await self._health.verify_again()


def _stopped(tree: Sequence[ev.Process]) -> set[int]:
    return {item.pid for item in tree if item.state in ("T", "t")}
