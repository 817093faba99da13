"""One session seen by the console: runs it, drains its stream into the model and the book, carries out orders.

It knows no Textual: whoever shows it runs `supervise()` and `drain()` as workers, and is called after each batch. It
decides nothing about the server, and draws nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from supervisor.adapters.spool import Spool
from supervisor.core import events as ev
from supervisor.core.events import Phase
from supervisor.core.holder import Holder
from supervisor.errors import SupervisorError
from supervisor.supervise.book import Book
from supervisor.supervise.clear import Cleared
from supervisor.supervise.desk import Desk
from supervisor.supervise.left_overs import LeftOvers
from supervisor.supervise.notify import Notifier
from supervisor.supervise.record import Recorder, record
from supervisor.supervise.stop import Stopped
from supervisor.supervise.witness import Witness
from supervisor.tui.model import SessionModel
from supervisor.tui.order import Order

REST = 1.5
"""So many times as long as a batch took to be taken is rested after it."""
PING_SOON_S, PING_EVERY_S = 1.0, 10.0
CLOSE_S = 3.0
"""How long closing waits for the connection to be closed in order."""


class Attended(Protocol):
    """What the console asks of the attended run (`supervise.attend.Attendance`)."""

    @property
    def tree(self) -> Sequence[ev.Process]:
        """Its processes, as last told by the node."""

    @property
    def tree_at(self) -> float:
        """When that was: their ages have gone on since."""

    @property
    def log_path(self) -> str:
        """The log's file on the node."""

    async def verify_again(self) -> None:
        """Ask for a generation at the next look."""


class Settings(Protocol):
    """What the console reads of the plan."""

    @property
    def grace_s(self) -> float:
        """Seconds from TERM to KILL."""


class Supervised(Protocol):
    """What the console needs of a session (`supervise.session.Session`)."""

    @property
    def desk(self) -> Desk:
        """Machine, tally and hub."""

    @property
    def plan(self) -> Settings:
        """What was settled before."""

    @property
    def attendance(self) -> Attended | None:
        """The run that is attended."""

    async def run(self) -> None:
        """Supervise until cancelled."""

    async def stop(self, by: str | None = None, *, witness: Witness | None = None) -> Stopped | None:
        """Stop the attended run."""

    async def restart(self, *, witness: Witness | None = None) -> Stopped | None:
        """Stop what runs, then launch."""

    async def left_overs(self) -> LeftOvers:
        """Who holds memory on the node, by a fresh look."""

    async def clear(
        self, targets: Sequence[Holder], spared: Sequence[Holder], *, witness: Witness | None = None
    ) -> Cleared:
        """End left-over holders, and prove the release."""

    async def ping(self) -> float | None:
        """Milliseconds until the node has answered, None where it cannot be asked now."""

    async def read_log(self, offset: int, length: int) -> bytes:
        """Older bytes of the log, from the node."""

    async def count_log_lines(self, offset: int) -> int:
        """How many lines of the log end before this offset."""


LOG_CAME = (ev.LogBlock(at=0.0, data=b"", offset=0, line_no=0, lines=0),)
"""What a change is told with that is none but the log's."""
OnChange = Callable[["Watcher", Sequence[ev.AnyEvent]], None]


class Watcher:
    """One session, its model, its log book and its order.

    Args:
        title: the profile's name.
        node: what the user calls the node.
        mask: takes secrets out of a text.
        path: the profile's file, empty where there is none.
        notifier: tells the profile's hooks, and whoever has a terminal, what is news.
        recorder: gets the whole stream, with its lines.
        refusal: why nothing can be ordered of it, as of a recording; empty where it can.
        spool: where the log's bytes are kept; None: in the user's cache folder.
    """

    def __init__(
        self,
        session: Supervised,
        *,
        title: str,
        node: str,
        mask: Callable[[str], str],
        path: str = "",
        notifier: Notifier | None = None,
        recorder: Recorder | None = None,
        refusal: str = "",
        spool: Spool | None = None,
    ) -> None:
        self.session = session
        self.title = title
        self.node = node
        self.mask = mask
        self.path = path
        self.notifier = notifier
        self.refusal = refusal
        self._recorder = recorder
        self._recording: asyncio.Task[None] | None = None
        self.model = SessionModel(title, node, mask)
        self.book: Book | None = Book(
            read=session.read_log, count=session.count_log_lines, on_change=self._log_came, spool=spool
        )
        self.order: Order | None = None
        """The last one, ended or under way."""
        self._on_change: OnChange = lambda _watcher, _events: None
        self._over = asyncio.Event()
        self._over.set()

    @property
    def desk(self) -> Desk:
        """Machine, tally and hub of the session."""
        return self.session.desk

    @property
    def error(self) -> str:
        """Why supervision has ended; empty while it goes on."""
        return self.model.error

    @property
    def tree(self) -> tuple[ev.Process, ...]:
        """The processes of the attended run, none without one."""
        attendance = self.session.attendance
        return tuple(attendance.tree) if attendance is not None else ()

    @property
    def tree_older_s(self) -> float:
        """How long ago the node told the processes: their ages have gone on since."""
        attendance = self.session.attendance
        return max(0.0, self.desk.clock.now() - attendance.tree_at) if attendance is not None else 0.0

    @property
    def log_path(self) -> str:
        """The attended run's log on its node, empty while there is none."""
        attendance = self.session.attendance
        return attendance.log_path if attendance is not None else ""

    @property
    def busy(self) -> str:
        """The order that is under way, empty where none is."""
        return self.order.kind if self.order is not None and self.order.under_way else ""

    # ------------------------------------------------------------------------------- the two coroutines

    async def supervise(self) -> None:
        """Run the session until it ends or is cancelled; an end that it tells of is kept in `error`."""
        self.model.error = ""
        self._over.clear()
        pinging = asyncio.create_task(self._ping())
        try:
            await self.session.run()
        except SupervisorError as error:
            self.model.error = str(error)
            self._on_change(self, ())
        finally:
            pinging.cancel()
            self._over.set()

    async def _ping(self) -> None:
        """The link's round-trip time: soon after it is up, then now and then."""
        while True:
            self.model.rtt_ms = await self.session.ping()
            await asyncio.sleep(PING_EVERY_S if self.model.rtt_ms is not None else PING_SOON_S)

    async def drain(self, on_change: OnChange, pace_s: float) -> None:
        """Take the stream batch by batch, at most one in `pace_s`. Ends when the hub closes."""
        self._on_change = on_change
        if self._recorder is not None and self._recording is None:
            self._recording = asyncio.create_task(record(self.desk, self._recorder))
        hub = self.desk.hub
        subscription = hub.subscribe(lines=False)
        loop = asyncio.get_running_loop()
        try:
            known = subscription.view
            self._take((*known.blocks, *known.log))
            on_change(self, ())
            async for batch in subscription.batches():
                await self.desk.step_aside()
                began = loop.time()
                self._take(batch)
                self._tell(batch)
                on_change(self, batch)
                # What a flood costs is paid back in idle time: keys and pictures come in between.
                await asyncio.sleep(max(pace_s, REST * (loop.time() - began)))
        finally:
            hub.unsubscribe(subscription)

    def _take(self, batch: Sequence[ev.AnyEvent]) -> None:
        if (book := self.book) is not None:
            for event in batch:
                if isinstance(event, ev.LogBlock):
                    book.append(event)
                elif isinstance(event, ev.Log):
                    book.append_line(event)
        self.model.take(batch, self.desk.hub.view, self.desk.tally.answers)

    def _tell(self, batch: Sequence[ev.AnyEvent]) -> None:
        """What is news. An order is over when what it came to has been taken too: its own stop is none."""
        if self.notifier is not None:
            self.notifier.take(batch)
            if not self.busy:
                self.notifier.order_over()

    def _log_came(self) -> None:
        """Older bytes that the pane has asked for."""
        self._on_change(self, LOG_CAME)

    async def close(self) -> None:
        """The session's workers were cancelled: wait a moment for its connection and hooks, then let the book go."""
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._over.wait()
        except TimeoutError:
            pass  # the node's side ends by itself at the end of its input
        if self._recording is not None:
            self._recording.cancel()
            await asyncio.gather(self._recording, return_exceptions=True)
        if self.notifier is not None:
            await self.notifier.finish(limit_s=CLOSE_S)
        if self.book is not None:
            self.book.close()

    # ------------------------------------------------------------------------------- orders

    async def stop(self) -> Order:
        """Stop the attended run, and prove that its memory is free."""
        return await self._carry_out("stop", lambda order: self.session.stop(witness=order))

    async def restart(self) -> Order:
        """The same, then launch anew, unless something is left."""
        return await self._carry_out("restart", lambda order: self.session.restart(witness=order))

    async def clear(self, targets: Sequence[Holder], spared: Sequence[Holder]) -> Order:
        """End left-over holders of GPU memory, and prove that it was given back."""
        return await self._carry_out("clear", lambda order: self.session.clear(targets, spared, witness=order))

    async def _carry_out(self, kind: str, work: Callable[[Order], Awaitable[Stopped | Cleared | None]]) -> Order:
        """One at a time: whoever asks looks at `busy` before."""
        order = Order(kind, self.desk.clock.now, gpus=self.desk.hub.view.gpu)
        self.order = order
        if self.notifier is not None:
            self.notifier.ordered(kind)
        order.alive(self.tree if kind != "clear" else ())
        try:
            done = await work(order)
        except SupervisorError as error:
            order.end(f"The {kind} could not be carried out: {error}", good=False)
        except asyncio.CancelledError:
            order.end(f"The {kind} was broken off: what it has signalled goes on ending", good=False)
            raise
        else:
            text, good = _outcome(done)
            order.end(text, good=good)
        return order

    async def verify(self) -> str:
        """Ask the server for a generation now. Says what will come of it."""
        attendance = self.session.attendance
        if attendance is None:
            return "No run is attended: there is nothing to verify."
        if not self.desk.machine.verify:
            return "Verification is off in this profile."
        await attendance.verify_again()
        if self.desk.phase in (Phase.HEALTHY, Phase.SERVING, Phase.DEGRADED):
            return "A generation is asked for now."
        return "A generation is asked for at the first 200."


def _outcome(done: Stopped | Cleared | None) -> tuple[str, bool]:
    if done is None:
        return "Nothing ran, so nothing was signalled.", True
    return done.text, done.released or (isinstance(done, Stopped) and done.idle)
