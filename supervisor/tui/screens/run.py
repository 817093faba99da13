"""The screen of one session. It knows which part of the model each widget says, and what each key asks for.

What is said stands in `format*.py`, how it looks in `layouts/*.tcss`, what is done in the session. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container
from textual.screen import Screen
from textual.timer import Timer
from textual.widget import Widget

from supervisor.core import events as ev
from supervisor.core.events import LinkState, Phase
from supervisor.tui import (
    format,
    format_finding,
    format_gpus,
    format_health,
    format_holders,
    format_metrics,
    format_run,
    ordering,
    room,
)  # fmt: skip
from supervisor.tui.pieces import Pieces, clip_start, one_line
from supervisor.tui.screens.looks import Looks
from supervisor.tui.screens.once import Once
from supervisor.tui.watcher import Watcher
from supervisor.tui.widgets.key_bar import KeyBar
from supervisor.tui.widgets.line import Line
from supervisor.tui.widgets.log_pane import LogPane
from supervisor.tui.widgets.panel import Panel

SAMPLES_S = 0.2
FLOOD_S = 0.15
"""Between two pictures of a log that moves by whole screens: nobody reads more of them, and what each costs is missed
where the log is read and keys are heard."""
TICK_S = 0.6
TITLE_FRAME = 2
"""Cells that a text in a border has less than one below it."""
PATH_FRAME = 8
"""Cells of the log's upper border that its path has not: the corners, and "log"."""
_AT_ONCE = (ev.PhaseChanged, ev.Finding, ev.Warning_, ev.LinkEvent)
_HELD = (Phase.LAUNCHING, Phase.LOADING, Phase.WARMING, Phase.HEALTHY, Phase.SERVING, Phase.DEGRADED)


BAR = (
    "console.restart", "console.stop", "console.zombies", "console.verify", "log.search", "log.next_error",
    "log.follow", "app.layout", "console.pause", "app.help", "app.quit",
)  # fmt: skip
"""What stands at the foot, the first ones first where not all fit."""


class RunScreen(Once, Looks, Screen[None]):
    """The console of one watcher."""

    AUTO_FOCUS = None
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-usual"), (room.BESIDE_WIDTH, "-broad")]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (30, "-tall")]
    BINDINGS = [
        Binding("r", "restart", "restart", id="console.restart"),
        Binding("k", "stop", "stop", id="console.stop"),
        Binding("z", "zombies", "zombies", id="console.zombies"),
        Binding("v", "verify", "verify now", id="console.verify"),
        Binding("p", "pause", "pause", id="console.pause"),
        Binding("t", "transaction", "the last transaction", id="console.transaction", show=False),
        Binding("enter", "finding", "go to the finding's line", id="console.finding", show=False),
        Binding("x", "put_away", "put the warnings away", id="console.dismiss", show=False),
        Binding("escape", "back", "back", id="console.back", show=False),
        Binding("y", "copy", "copy: what is selected, else the finding", id="console.copy", show=False),
    ]

    def __init__(self, watcher: Watcher) -> None:
        super().__init__()
        self.watcher = watcher
        mask = watcher.mask
        self._header, self._strip, self._stage, self._link, self._wall, self._gpus, self._holders = (
            Line(mask, id=name) for name in ("header", "strip", "stage", "link", "wall", "gpus", "holders")
        )
        self._health, self._metrics = Line(mask, id="health"), Line(mask, id="metrics")
        self._panel = Panel(mask, id="panel")
        self.pane = LogPane(mask, id="log")
        self._paused_at: float | None = None
        self._looked_at = self._log_shown_at = 0.0
        self._soon: Timer | None = None
        self._log_soon: Timer | None = None

    def compose(self) -> ComposeResult:
        """Textual's hook."""
        yield self._header
        yield self._strip
        yield self._stage
        yield self._link
        yield self._wall
        with Container(id="devices"):
            yield self._gpus
            yield self._holders
        with Container(id="vitals"):
            yield self._health
            yield self._metrics
        yield self._panel
        yield self.pane
        yield KeyBar(("console.back", *BAR) if self._opened_from_another else BAR)

    def on_mount(self) -> None:
        """Textual's hook: begin with what is known."""
        self.pane.book = self.watcher.book
        self.pane.hints = self.watcher.model.hints
        self.pane.focus()
        self.look()

    def on_resize(self) -> None:
        """Textual's hook: what fits into a line has changed."""
        self.look()

    def on_screen_suspend(self) -> None:
        """Textual's hook: something stands over it now."""
        self.call_later(self.look)

    def on_screen_resume(self) -> None:
        """Textual's hook: it is seen alone again."""
        self.call_later(self.look)

    def on_line_resized(self) -> None:
        """A line's message."""
        self.look()

    # ------------------------------------------------------------------------------- looking

    def changed(self, watcher: Watcher, events: Sequence[ev.AnyEvent]) -> None:
        """A batch was taken: the log first, then the rest where something of it moved."""
        if watcher is not self.watcher or self._paused_at is not None:
            return
        self._log_moved(events)
        if not events or any(isinstance(event, _AT_ONCE) for event in events):
            self.look()
        elif not all(isinstance(event, ev.Log | ev.LogBlock) for event in events):
            self._look_soon()

    def _log_moved(self, events: Sequence[ev.AnyEvent]) -> None:
        """Show the log's new lines: at once, in a flood a few times a second."""
        lines = sum(event.lines for event in events if isinstance(event, ev.LogBlock))
        waited_s = perf_counter() - self._log_shown_at
        if lines < self.pane.size.height or waited_s >= FLOOD_S:
            self._show_log()
        elif self._log_soon is None:
            self._log_soon = self.set_timer(FLOOD_S - waited_s, self._show_log)

    def _show_log(self) -> None:
        if self._log_soon is not None:
            self._log_soon.stop()
            self._log_soon = None
        self._log_shown_at = perf_counter()
        if self._paused_at is None:
            self.pane.refresh_log()

    def _look_soon(self) -> None:
        """Samples come many a second while it loads: a few pictures a second of them are enough."""
        waited_s = perf_counter() - self._looked_at
        if waited_s >= SAMPLES_S:
            self.look()
        elif self._soon is None:
            self._soon = self.set_timer(SAMPLES_S - waited_s, self.look)

    def tick(self) -> None:
        """A second has passed: look, unless that was done a moment ago."""
        if perf_counter() - self._looked_at > TICK_S:
            self.look()

    def look(self) -> None:
        """Set what every widget says. A paused picture stays as it is; the time of the pause goes on."""
        self._looked_at = perf_counter()
        if self._soon is not None:
            self._soon.stop()
            self._soon = None
        now = self.watcher.desk.clock.now()
        model = self.watcher.model
        view = model.view
        room_for = self._inner
        width = room_for(self._header)
        header = format.header(model.title, model.node, view, now, width, rtt_ms=model.rtt_ms, mask=model.mask)
        if self._paused_at is not None:
            self._header.pieces = format_run.paused(
                header, now - self._paused_at, width, model.hints.of("console.pause")
            )
            return
        order = self.watcher.order
        if order is not None and order.under_way and self.is_active:
            shown_by = model.hints.of("console.transaction")
            header = format_run.ordered(header, order.kind, now - order.began_at, width, shown_by)
        self._header.pieces = header
        self._strip.pieces = format.strip(view, now, room_for(self._strip))
        self._stage.pieces = format.stage(view, now, room_for(self._stage), trail=model.trail, mask=model.mask)
        known = bool(view.changes) or view.gpu is not None
        most = self._link.styles.max_height
        link_rows = most.cells if most is not None and most.cells else 1
        self._link.pieces = format.link(view.link, now, room_for(self._link), link_rows, known=known, mask=model.mask)
        up = view.link is not None and view.link.state is LinkState.UP
        self._panel.report = format_finding.panel(model, now, self._panel.room or room_for(self._panel, 6))
        # At once: with each class that changes Textual restyles the whole screen.
        self.update_classes(
            {
                "-up": up,
                "-stale": not up and bool(view.changes),
                "-failed": view.phase is Phase.FAILED,
                "-gpus": view.gpu is not None,
                "-metrics": model.trail.metrics is not None and view.phase in _HELD,
            }
        )
        self._look_at_tables(now)
        self.pane.marks = tuple(model.marks)
        self.pane.path = clip_start(one_line(model.mask(self.watcher.log_path)), self._inner(self.pane) - PATH_FRAME)

    def _look_at_tables(self, now: float) -> None:
        model = self.watcher.model
        if self._wall.display:
            rows = self._wall.content_size.height or self.size.height // 3
            self._wall.pieces = format_run.wall(model, now, self._inner(self._wall), rows)
        health_rows = self._rows_of(self._health, 1)
        self._health.pieces = format_health.cells(model, now, self._inner(self._health), health_rows)
        metrics_rows = self._rows_of(self._metrics, 4)
        self._metrics.title = (("load", "plain"),)
        if model.trail.metrics is not None:
            self._metrics.pieces = format_metrics.lines(model, now, self._inner(self._metrics, 4), metrics_rows)
        unseen = self.has_class("-holders") and not self._holders.display  # this layout has no place for them
        space = self._share(now, holders=not unseen)
        self.update_classes({"-beside": space.beside, "-holders": space.holders > 0 or unseen})
        gpus_width = self._inner(self._gpus, 4)
        self._gpus.title = format_gpus.title(model, now, gpus_width - TITLE_FRAME)
        if self._rows_of(self._gpus, 0) == 1:
            self._gpus.pieces = format_gpus.memory(model, now, gpus_width)
        else:
            self._gpus.pieces = _as_high(format_gpus.table(model, now, gpus_width, space.gpus), space)
        self._holders.title = format_holders.title(model, now)
        holders_width = self._inner(self._holders, 4)
        self._holders.foot = format_holders.foot(model, holders_width - TITLE_FRAME)
        self._holders.pieces = _as_high(format_holders.table(model, now, holders_width, space.holders), space)

    # ------------------------------------------------------------------------------- keys

    def action_restart(self) -> None:
        """Ask, then stop and launch; where supervision has ended, take it up again."""
        ordering.restart(self.app, self.watcher)

    def action_stop(self) -> None:
        """Ask, then stop the server."""
        ordering.stop(self.app, self.watcher)

    def action_zombies(self) -> None:
        """What is left over on the node."""
        ordering.zombies(self.app, self.watcher)

    def action_verify(self) -> None:
        """Ask the server for a generation now."""
        ordering.verify(self.app, self.watcher)

    def action_transaction(self) -> None:
        """Bring the order of the moment back, or show how the last one went."""
        if not ordering.show(self.app, self.watcher, ended=True):
            hints = self.watcher.model.hints
            ordering.say(
                self.app,
                self.watcher,
                f"Nothing was ordered yet: {hints.of('console.restart')} restarts, {hints.of('console.stop')} stops.",
            )

    @property
    def _opened_from_another(self) -> bool:
        """Whether there is a screen to go back to: the table of several, the start screen."""
        return self.app.screen_stack[0] is not self

    def action_back(self) -> None:
        """To the screen that this one was opened from."""
        if self._opened_from_another:
            self.dismiss(None)

    def action_pause(self) -> None:
        """Freeze the picture, or let it go on. The stream is read all the while."""
        if self._paused_at is None:
            self._paused_at = self.watcher.desk.clock.now()
        else:
            self._paused_at = None
            self.pane.refresh_log()
        self.set_class(self._paused_at is not None, "-paused")
        self.look()

    def action_finding(self) -> None:
        """Go to the line of the log that shows the cause."""
        report = self._panel.report
        if report is None or report.line_no is None:
            return
        self.pane.go_to(report.line_no)
        self.pane.focus()

    def action_put_away(self) -> None:
        """The warnings are read: their rows go to the log until a new one comes."""
        if self.watcher.model.put_away():
            self.look()
        else:
            ordering.say(self.app, self.watcher, "There is no warning to put away.")

    def on_panel_chosen(self) -> None:
        """The panel's message: a click on it."""
        self.action_finding()

    def action_copy(self) -> None:
        """Copy what is selected in the log, else the finding as a report, else the line that stands there."""
        text = self.pane.selected_text()
        what = "what is selected"
        if not self._selected(text) and self._panel.report is not None:
            text, what = format_run.report(self.watcher.model), "the report"
        if not text:
            ordering.say(
                self.app, self.watcher, "Nothing is selected: shift and the arrows, or the mouse, select lines."
            )
            return
        self.app.copy_to_clipboard(self.watcher.mask(text))
        lines = text.count("\n") + 1
        ordering.say(self.app, self.watcher, f"Copied {what}: {lines} {'line' if lines == 1 else 'lines'}.")

    def _selected(self, text: str) -> bool:
        """Whether somebody selected it: a line that is only the current one is not worth more than a finding."""
        view = self.pane.view
        picked = view.current is not None and view.selects(view.current)
        return bool(self.selections) or picked or "\n" in text

    # ------------------------------------------------------------------------------- room

    def _share(self, now: float, *, holders: bool) -> room.Room:
        """What is left for the tables beside everything that takes what it needs."""
        model = self.watcher.model
        view = model.view
        lines = (self._header, self._strip, self._stage, self._link, self._health, self._metrics)
        fixed = sum(_outer_rows(line, len(_split(line.pieces))) for line in lines) + 1
        if self._panel.report is not None:
            rows = len(_split(self._panel.report.pieces))
            fixed += min(_outer_rows(self._panel, rows), max(4, self.size.height * 2 // 5))
        shown = holders and view.holders is not None and bool(view.holders.holders)
        return room.share(
            width=self.size.width,
            height=self.size.height,
            fixed_rows=fixed,
            gpus=format_gpus.rows_wanted(model, now),
            holders=format_holders.rows_wanted(model) if shown else 0,
            yields=view.phase is Phase.FAILED,
        )

    def _inner(self, widget: Widget, frame: int = 2) -> int:
        """Cells inside a widget; before its first layout, what the screen would give it."""
        return widget.content_size.width or max(20, self.size.width - frame)

    def _rows_of(self, widget: Widget, otherwise: int) -> int:
        """Rows that the layout fixes for a widget; else as many as are asked for."""
        height = widget.styles.height
        if height is None or height.cells is None:
            return otherwise
        return max(0, height.cells - (widget.gutter.height if widget.styles.box_sizing == "border-box" else 0))


def _split(pieces: Pieces) -> list[str]:
    return "".join(text for text, _role in pieces).split("\n") if pieces else []


def _as_high(pieces: Pieces, space: room.Room) -> Pieces:
    """Tables side by side end at the same row."""
    missing = max(space.gpus, space.holders) - len(_split(pieces)) if space.beside and pieces else 0
    return (*pieces, ("\n" * missing, "plain")) if missing > 0 else pieces


def _outer_rows(widget: Widget, rows: int) -> int:
    """Rows that a widget takes with its frame and margin; none where it is not shown."""
    if not widget.display or not rows:
        return 0
    return rows + widget.gutter.height + widget.styles.margin.height
