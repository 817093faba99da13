"""The console: one worker supervises, one drains the stream in batches and sets attributes on widgets.

It knows when something is shown and what a key asks of the session; what is said stands in `format.py`, how it looks in
`layouts/*.tcss`. It decides nothing about the server.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.widgets import Footer
from textual.worker import Worker

from supervisor import resources
from supervisor.core import events as ev
from supervisor.core.events import Phase
from supervisor.errors import SupervisorError
from supervisor.supervise.desk import Desk
from supervisor.supervise.stop import Stopped
from supervisor.tui import format, format_gpus
from supervisor.tui.screens.confirm import ConfirmScreen
from supervisor.tui.widgets.line import Line
from supervisor.tui.widgets.log_pane import LogPane
from supervisor.tui.widgets.panel import Panel

PACE_S = 1 / 30
"""Between two batches: more pictures a second than this nobody sees, and keys wait for them."""
REDRAW_S = 1.0
CLOSE_S = 3.0
"""How long quitting waits for the connection to be closed in order."""


class Attended(Protocol):
    """What the console asks of the attended run (`supervise.attend.Attendance`)."""

    @property
    def tree(self) -> Sequence[ev.Process]:
        """Its processes, as last told by the node."""

    @property
    def tree_at(self) -> float:
        """When that was: their ages have gone on since."""

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

    async def stop(self) -> Stopped | None:
        """Stop the attended run."""

    async def restart(self) -> Stopped | None:
        """Stop what runs, then launch."""


class ConsoleApp(App[int]):
    """The console of one profile.

    Args:
        title: the profile's name.
        node: what the user calls the node.
        mask: takes secrets out of a text.
        signals: end in order on hangup and termination (not in a test, whose process has its own).
    """

    TITLE = "supervisor"
    AUTO_FOCUS = None
    ENABLE_COMMAND_PALETTE = False
    VERTICAL_BREAKPOINTS = [(0, "-short"), (30, "-tall")]
    BINDINGS = [
        Binding("r", "restart", "restart", id="console.restart"),
        Binding("k", "stop", "stop", id="console.stop"),
        Binding("v", "verify", "verify now", id="console.verify"),
        Binding("f", "follow", "follow", id="console.follow"),
        Binding("q", "quit", "quit (the server goes on)", id="console.quit"),
        Binding("ctrl+c", "quit", "quit", id="console.interrupt", show=False),
        Binding("up", "log('scroll_up')", "log up", id="log.up", show=False),
        Binding("down", "log('scroll_down')", "log down", id="log.down", show=False),
        Binding("pageup", "log('scroll_page_up')", "log page up", id="log.page_up", show=False),
        Binding("pagedown", "log('scroll_page_down')", "log page down", id="log.page_down", show=False),
        Binding("home", "log('scroll_home')", "log start", id="log.start", show=False),
        Binding("end", "log('scroll_end')", "log end", id="log.end", show=False),
        Binding("left", "pan(-1)", "log left", id="log.left", show=False),
        Binding("right", "pan(1)", "log right", id="log.right", show=False),
    ]
    CSS_PATH = [resources.layouts() / name for name in ("base.tcss", "console.tcss", "dialogs.tcss")]

    def __init__(
        self, session: Supervised, *, title: str, node: str, mask: Callable[[str], str], signals: bool = False
    ) -> None:
        super().__init__()
        self._session = session
        self._profile = title
        self._node = node
        self._mask = mask
        self._signals = signals
        self._view = session.desk.hub.view
        self._error = ""
        self._order = ""
        self._answers_before: Counter[str] = Counter()  # those of earlier runs
        self._answers_seen: Counter[str] = Counter()
        self._dialog: tuple[str, ConfirmScreen] | None = None
        self._supervising: Worker[None] | None = None
        self._session_over = asyncio.Event()
        self.farewell = ""
        self._header = Line(mask, id="header")
        self._strip = Line(mask, id="strip")
        self._stage = Line(mask, id="stage")
        self._link = Line(mask, id="link")
        self._health = Line(mask, id="health")
        self._gpus = Line(mask, id="gpus")
        self._panel = Panel(mask, id="panel")
        self._log_pane = LogPane(mask, id="log")

    def compose(self) -> ComposeResult:
        """Textual's hook."""
        yield self._header
        yield self._strip
        yield self._stage
        yield self._link
        yield self._health
        yield self._gpus
        yield self._panel
        yield self._log_pane
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Textual's hook: begin."""
        self._drain()
        self._supervising = self._supervise()
        self.set_interval(REDRAW_S, self._redraw)
        if self._signals:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGHUP, signal.SIGTERM):
                loop.add_signal_handler(number, self._on_signal, number)

    def on_resize(self) -> None:
        """Textual's hook: what fits into a line has changed."""
        self._redraw()

    # ------------------------------------------------------------------------------- the two workers

    @work(group="session")
    async def _supervise(self) -> None:
        self._error = ""
        self._session_over.clear()
        try:
            await self._session.run()
        except SupervisorError as error:
            self._error = str(error)
            self._redraw()
        finally:
            self._session_over.set()

    @work(group="stream")
    async def _drain(self) -> None:
        hub = self._session.desk.hub
        subscription = hub.subscribe()
        try:
            self._view = subscription.view
            self._log_pane.extend(subscription.view.log)
            self._redraw()
            async for batch in subscription.batches():
                self._take(batch)
                await asyncio.sleep(PACE_S)
        finally:
            hub.unsubscribe(subscription)

    def _take(self, batch: Sequence[ev.AnyEvent]) -> None:
        """One batch onto the screen. The hub's view is what it came to; the events say which lines are new."""
        lines: list[ev.Log] = []
        for event in batch:
            if isinstance(event, ev.Log):
                lines.append(event)
            elif isinstance(event, ev.PhaseChanged) and event.to is Phase.PREFLIGHT:
                self._log_pane.extend(lines)
                lines = []
                self._log_pane.note(f"── {'; '.join(item.text for item in event.evidence)} ──")
                # As they stood after the batch before: this one may already have answers of the new run.
                self._answers_before = self._answers_seen
        self._answers_seen = Counter(self._session.desk.tally.answers)
        self._log_pane.extend(lines)
        if len(lines) < len(batch):
            self._view = self._session.desk.hub.view
            self._redraw()

    def _redraw(self) -> None:
        view, now = self._view, self._session.desk.clock.now()
        width = self.size.width - 2
        answers = Counter(self._session.desk.tally.answers) - self._answers_before
        self._header.pieces = format.header(self._profile, self._node, view, now, width)
        self._strip.pieces = format.strip(view, now, width)
        self._stage.pieces = format.stage(view, now, width)
        self._link.pieces = format.link(view.link, now)
        self._health.pieces = format.health(view.health, answers, now)
        self._gpus.pieces = format_gpus.memory(view.gpu, view.holders, now)
        self._gpus.display = view.gpu is not None
        self._panel.report = format.report(view, self._error)
        self._redraw_dialog()

    # ------------------------------------------------------------------------------- keys

    def action_log(self, how: str) -> None:
        """Scroll the log by one of Textual's own movements."""
        getattr(self._log_pane, how)(animate=False)

    def action_pan(self, screens: int) -> None:
        """Move sideways in long lines."""
        self._log_pane.pan(screens)

    def action_follow(self) -> None:
        """Follow the log's end, or pause."""
        self._log_pane.following = not self._log_pane.following

    async def action_verify(self) -> None:
        """Ask the server for a generation now."""
        attendance = self._session.attendance
        if attendance is None:
            self._say("No run is attended: there is nothing to verify.")
        elif not self._session.desk.machine.verify:
            self._say("Verification is off in this profile.")
        else:
            await attendance.verify_again()
            served = self._session.desk.phase in (Phase.HEALTHY, Phase.SERVING, Phase.DEGRADED)
            self._say("A generation is asked for now." if served else "A generation is asked for at the first 200.")

    def action_stop(self) -> None:
        """Ask, then stop the server."""
        if self._session.attendance is None:
            self._say("No run is attended: there is nothing to stop.")
        else:
            self._ask("stop")

    def action_restart(self) -> None:
        """Ask, then stop and launch; where supervision has ended, take it up again, which signals nothing."""
        if self._error:
            self._supervising = self._supervise()
            self._redraw()
        else:
            self._ask("restart")

    def _ask(self, order: str) -> None:
        if self._order:
            self._say(f"A {self._order} is under way.")
            return
        question = format.question(order, self._profile, self._node)
        dialog = ConfirmScreen(self._mask, question=question, yes=order)
        self._dialog = (order, dialog)
        self._redraw_dialog()
        self.push_screen(dialog, self._answered)

    def _redraw_dialog(self) -> None:
        if self._dialog is None:
            return
        order, dialog = self._dialog
        attendance = self._session.attendance
        tree = attendance.tree if attendance is not None else ()
        held = format_gpus.held_by_pid(self._view.gpu)
        older_s = self._session.desk.clock.now() - attendance.tree_at if attendance is not None else 0.0
        dialog.show(format.victims(tree, held, older_s), format.consequence(order, tree, self._session.plan.grace_s))

    def _answered(self, yes: bool | None) -> None:
        assert self._dialog is not None
        order, _dialog = self._dialog
        self._dialog = None
        if yes:
            self._carry_out(order)

    @work(group="order")
    async def _carry_out(self, order: str) -> None:
        self._order = order
        try:
            stopped = await (self._session.stop() if order == "stop" else self._session.restart())
        except SupervisorError as error:
            self._say(f"The {order} could not be carried out: {error}", bad=True)
        else:
            if stopped is not None:
                self._say(stopped.text, bad=not (stopped.released or stopped.idle))
        finally:
            self._order = ""

    def _say(self, text: str, *, bad: bool = False) -> None:
        self.notify(self._mask(text), severity="error" if bad else "information", markup=False)

    # ------------------------------------------------------------------------------- the end

    async def action_quit(self) -> None:
        """Close the console; the server goes on."""
        await self._end(0)

    def _on_signal(self, number: signal.Signals) -> None:
        self.run_worker(self._end(128 + number), group="end")

    async def _end(self, code: int) -> None:
        self.farewell = format.farewell(self._session.desk.hub.view, self._profile, self._node, self._order)
        if self._supervising is not None and self._supervising.is_running:
            self._supervising.cancel()
            try:
                async with asyncio.timeout(CLOSE_S):
                    await self._session_over.wait()
            except TimeoutError:
                pass  # the node's side ends by itself at the end of its input
        self.exit(code)


def run_console(session: Supervised, *, title: str, node: str, mask: Callable[[str], str]) -> int:
    """Run the console until the user quits; returns the exit code of the command."""
    app = ConsoleApp(session, title=title, node=node, mask=mask, signals=True)
    code = app.run()
    if app.farewell:
        print(mask(app.farewell))
    return code if code is not None else (app.return_code or 0)
