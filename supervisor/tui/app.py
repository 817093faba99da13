"""The console's app: themes, layout, keys, the workers of the sessions, and which screen stands at the bottom.

What is shown of a session, and what a key asks of it, is its screen's business. It decides nothing about a server.
"""

from __future__ import annotations

import asyncio
import contextlib
import locale
import os
import signal
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.app import App, SystemCommand
from textual.binding import Binding
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Resize
from textual.filter import LineFilter
from textual.keys import format_key
from textual.screen import Screen

from supervisor.core import events as ev
from supervisor.tui import format, glyphs, keys, layout, ordering, themes
from supervisor.tui.announcing import Announcing
from supervisor.tui.hints import Hints
from supervisor.tui.keyboard import Keyboard
from supervisor.tui.order import Order
from supervisor.tui.screens.looks import Looks
from supervisor.tui.screens.run import RunScreen
from supervisor.tui.terminal import TerminalDriver
from supervisor.tui.watcher import Watcher

if TYPE_CHECKING:
    from supervisor.tui.screens.start import Start, StartScreen
    from supervisor.tui.widgets.log_pane import LogPane

PACE_S = 1 / 30
"""Between two batches: more pictures a second than this nobody sees, and keys wait for them."""
REDRAW_S = 1.0
TOLD_S = 12.0
"""How long a sentence about the user's own files stands."""


class ConsoleApp(App[int]):
    """The console of some sessions. Raises `UsageError` for a layout that does not exist.

    Args:
        watchers: the sessions; with one its screen is the first, with several their table.
        start: what the start screen is given, which is the first where there is no session.
        layout_name: of a layout that is kept; None: by the size of the terminal.
        config: the user's configuration folder, None: as if there were none.
        environ: of the process, by default the real one.
        signals: end in order on hangup and termination (not in a test, whose process has its own).
    """

    TITLE = "supervisor"
    AUTO_FOCUS = None
    BINDINGS = [
        Binding("l", "layout", "layout", id="app.layout"),
        Binding("question_mark", "help", "help", id="app.help"),
        Binding("q", "quit", "quit (the server goes on)", id="app.quit"),
        Binding("ctrl+c", "quit", "quit", id="app.interrupt", show=False),
    ]

    def __init__(
        self,
        watchers: Sequence[Watcher] = (),
        *,
        start: Start | None = None,
        layout_name: str | None = None,
        config: Path | None = None,
        environ: Mapping[str, str] | None = None,
        signals: bool = False,
    ) -> None:
        if layout_name is not None:
            layout.check_name(layout_name, config)
        self._ascii = glyphs.AsciiFilter()
        super().__init__()
        environ = os.environ if environ is None else environ
        self.watchers = list(watchers)
        self.keyboard = Keyboard(self.watchers)
        self.farewell = ""
        self.hints = Hints()
        self._ending = False
        self._told_of: list[Order] = []
        self._start = start
        self._layout_kept = layout_name
        self._layout_name = ""
        self._layout_paths: tuple[Path, ...] = ()
        self._config = config
        self._signals = signals
        self._told: set[str] = set()
        self._environ = environ
        self._announcing = Announcing(self._write, environ)
        self._ascii.enabled = glyphs.needs_ascii(environ, locale.getpreferredencoding(False))
        for theme in themes.OWN:
            self.register_theme(theme)
        self.theme, self._theme_problem = themes.chosen(environ, self.available_themes)
        self._use_layout(layout_name or layout.automatic(*os.terminal_size(self.size)))

    # ------------------------------------------------------------------------------- the beginning

    def get_driver_class(self) -> type[Driver]:
        """Textual's hook: a terminal that may go away."""
        usual = super().get_driver_class()
        return TerminalDriver if usual is LinuxDriver else usual

    def get_default_screen(self) -> Screen[Any]:
        """Textual's hook: what stands at the bottom."""
        if len(self.watchers) == 1:
            return RunScreen(self.watchers[0])
        if self.watchers:
            from supervisor.tui.screens.table import TableScreen

            return TableScreen(self.watchers, self.open_one)
        if self._start is not None:
            from supervisor.tui.screens.start import StartScreen

            return StartScreen(self._start)
        return Screen()

    def on_mount(self) -> None:
        """Textual's hook: begin."""
        keymap = keys.load(self._config, self._known_ids)
        self.set_keymap(keymap.keys)
        self.hints = Hints({name: format_key(text.split(",")[0]) for name, text in keymap.keys.items()})
        for watcher in self.watchers:
            self.attend(watcher)
        self.set_interval(REDRAW_S, self._tick)
        for problem in (self._theme_problem, *keymap.problems):
            self._tell_once(problem)
        if self._signals:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGHUP, signal.SIGTERM):
                loop.add_signal_handler(number, self._on_signal, number)

    def _known_ids(self) -> set[str]:
        from supervisor.tui.screens import every

        return every.binding_ids(ConsoleApp)

    def open_one(self, watcher: Watcher) -> None:
        """Show one session's own screen; escape there comes back."""
        self.push_screen(RunScreen(watcher))

    def on_start_screen_opened(self, event: StartScreen.Opened) -> None:
        """The start screen's message: begin with those that are new, and show them."""
        for watcher in event.watchers:
            if watcher not in self.watchers:
                self.attend(watcher)
        if len(event.watchers) == 1:
            self.open_one(event.watchers[0])
            return
        from supervisor.tui.screens.table import TableScreen

        self.push_screen(TableScreen(event.watchers, self.open_one, leaves=True))

    def on_start_screen_demo_wanted(self) -> None:
        """The start screen's message: the demonstration begins once this console has closed."""
        from supervisor.tui.screens.start import DEMO_WANTED

        self.run_worker(self._end(DEMO_WANTED), group="end")

    def attend(self, watcher: Watcher) -> None:
        """Run a session and take its stream, beside whatever screen is shown."""
        if watcher not in self.watchers:
            self.watchers.append(watcher)
        watcher.model.hints = self.hints
        self._announcing.attend(watcher)
        self.run_worker(watcher.drain(self._changed, PACE_S), group="stream")
        ordering.supervise(self, watcher)

    def _changed(self, watcher: Watcher, events: Sequence[ev.AnyEvent]) -> None:
        for screen in self.screen_stack:
            if isinstance(screen, Looks) and screen.is_mounted:
                screen.changed(watcher, events)

    def _tick(self) -> None:
        self.keyboard.look()
        self._announcing.look(self.watchers)
        for screen in self.screen_stack:
            if isinstance(screen, Looks) and screen.is_mounted:
                screen.tick()

    def _look(self) -> None:
        for screen in self.screen_stack:
            if isinstance(screen, Looks) and screen.is_mounted:
                screen.look()

    def _write(self, text: str) -> None:
        """To the terminal as it is: its bell, its title."""
        if self._driver is not None:
            self._driver.write(text)
            self._driver.flush()

    # ------------------------------------------------------------------------------- looks

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Textual's hook: ASCII alone, where the terminal has no more."""
        filters = super().get_line_filters()
        return [*filters, self._ascii] if self._ascii.enabled else filters

    def on_resize(self, event: Resize) -> None:
        """Textual's hook: the layout by size, where nobody chose one."""
        if self._layout_kept is None:
            self._use_layout(layout.automatic(event.size.width, event.size.height))

    def _use_layout(self, name: str) -> None:
        if name == self._layout_name:
            return
        found = layout.files(name, self._config, self.get_css_variables())
        for path in self._layout_paths:
            self.stylesheet.source.pop((str(path), ""), None)
        self.stylesheet.read_all(found.paths)
        self._layout_paths = found.paths
        self.remove_class(f"-{self._layout_name}")
        self._layout_name = name
        self.add_class(f"-{name}")
        if self.is_running:
            self.refresh_css(animate=False)
            self.call_after_refresh(self._look)
        for problem in found.problems:
            self._tell_once(problem)

    def _tell_once(self, problem: str) -> None:
        if problem and problem not in self._told:
            self._told.add(problem)
            self.notify(problem, severity="warning", markup=False, timeout=TOLD_S)

    # ------------------------------------------------------------------------------- keys

    def action_layout(self, name: str = "") -> None:
        """The next layout, or the named one; it stays, whatever the size."""
        every = layout.names(self._config)
        if not name:
            name = every[(every.index(self._layout_name) + 1) % len(every)] if self._layout_name in every else every[0]
        self._layout_kept = name
        self._use_layout(name)
        self.notify(f"layout: {name}", timeout=1.5, markup=False)

    def action_help(self) -> None:
        """All keys of this screen."""
        from supervisor.tui.format_keys import help_foot
        from supervisor.tui.screens.help import HelpScreen, known_keys

        foot = help_foot(str(self._config)) if self._config is not None else ()
        self.push_screen(HelpScreen(known_keys(self.screen), foot=foot))

    def action_command_palette(self) -> None:
        """Every command, found by its name."""
        from supervisor.tui.screens import palette

        palette.show(self)

    def search_themes(self) -> None:
        """Textual's hook: the same for the themes."""
        from supervisor.tui.screens import palette

        palette.show_themes(self)

    def on_log_pane_open(self, event: LogPane.Open) -> None:
        """A log's message: it is to be opened in another program, at this line."""
        self.run_worker(self._open_log(event), group="open", exclusive=True)

    async def _open_log(self, event: LogPane.Open) -> None:
        from supervisor.tui.outside import open_log

        problem = await open_log(self, event.pane.view, event.line_no, editor=event.editor, environ=self._environ)
        if problem:
            self.notify(problem, severity="warning", markup=False)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Textual's hook: the palette has every key of the screen, the layouts and the themes."""
        from supervisor.tui.screens import palette

        return palette.commands(self, screen, layout.names(self._config))

    # ------------------------------------------------------------------------------- the end

    async def action_quit(self) -> None:
        """Close the console; the servers go on. An order that this would break off is told of first."""
        orders = [item.order for item in self.watchers if item.order is not None and item.order.under_way]
        if news := [order for order in orders if order not in self._told_of]:
            self._told_of += news
            what, again = news[0].kind, self.hints.of("app.quit")
            text = f"A {what} is under way: leaving now would break it off. {again} again leaves all the same."
            self.notify(text, severity="warning", markup=False)
            return
        await self._end(0)

    def _on_signal(self, number: signal.Signals) -> None:
        self.run_worker(self._end(128 + number), group="end")

    def on_terminal_gone(self) -> None:
        """The terminal's message, which may come without any signal: nobody looks any more."""
        self._on_signal(signal.SIGHUP)

    async def _end(self, code: int) -> None:
        if self._ending:
            return
        self._ending = True
        self.farewell = "\n".join(
            format.farewell(watcher.desk.hub.view, watcher.title, watcher.node, watcher.busy)
            for watcher in self.watchers
        )
        self._announcing.end()
        self.workers.cancel_group(self, ordering.SUPERVISING)
        await asyncio.gather(*(watcher.close() for watcher in self.watchers))
        self.exit(code)


def run_console(
    watchers: Sequence[Watcher] = (),
    *,
    start: Start | None = None,
    layout_name: str | None = None,
    config: Path | None = None,
) -> int:
    """Run the console until the user quits; returns the exit code of the command, or `DEMO_WANTED`."""
    app = ConsoleApp(watchers, start=start, layout_name=layout_name, config=config, signals=True)
    with app.keyboard:
        code = app.run()
    with contextlib.suppress(OSError):  # the terminal has gone
        for line, watcher in zip(app.farewell.splitlines(), app.watchers, strict=False):
            print(watcher.mask(line))
    return code if code is not None else (app.return_code or 0)
