"""The start screen: which profile, or which live run, is to be watched. And the question before it launches anything.

It asks nodes in the background and waits for none. What it opens, the app shows; what already lives is taken over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.message import Message
from textual.screen import ModalScreen, Screen
from textual.widgets import Button

from supervisor.adapters.base import Clock
from supervisor.core import events as ev
from supervisor.errors import SupervisorError
from supervisor.supervise.live_runs import Told
from supervisor.tui import format_start
from supervisor.tui.screens.looks import Looks
from supervisor.tui.screens.once import Once
from supervisor.tui.start_list import Entry, Item, items, launches
from supervisor.tui.watcher import Watcher
from supervisor.tui.widgets.key_bar import KeyBar
from supervisor.tui.widgets.line import Line
from supervisor.tui.widgets.row_list import RowList

DETAIL_ROWS = 4
BAR = ("start.open", "start.mark", "start.watch", "start.look", "app.help", "app.quit")
"""What stands at the foot."""
DEMO_WANTED = -1
"""What the console returns where the demonstration was chosen: it has a node of its own, and begins after it."""


class Start(Protocol):
    """What the start screen is given: profiles, a way to ask nodes, a way to open."""

    @property
    def clock(self) -> Clock:
        """The operator's clock."""

    def entries(self) -> Sequence[Entry]:
        """The profiles as their files stand now."""

    async def ask(self, on_told: Callable[[Told], None]) -> None:
        """Ask the nodes of the profiles that were read last what lives there."""

    def open(self, path: str, *, launch: bool) -> Watcher:
        """A session of this profile, not begun. Raises a `SupervisorError`."""


class StartScreen(Looks, Screen[None]):
    """Profiles, live runs, the demonstration. Enter opens the chosen one, or all that are marked."""

    AUTO_FOCUS = ""
    VERTICAL_BREAKPOINTS = [(0, "-short"), (30, "-tall")]
    BINDINGS = [
        Binding("enter", "open(True)", "open", id="start.open"),
        Binding("space", "mark", "mark", id="start.mark"),
        Binding("w", "open(False)", "watch, launch nothing", id="start.watch"),
        Binding("u", "ask", "look again", id="start.look"),
        Binding("up", "move(-1)", "up", id="start.up", show=False),
        Binding("down", "move(1)", "down", id="start.down", show=False),
        Binding("pageup", "page(-1)", "page up", id="start.page_up", show=False),
        Binding("pagedown", "page(1)", "page down", id="start.page_down", show=False),
    ]

    class Opened(Message):
        """These are to be watched: sessions that were not begun yet, or are open already."""

        def __init__(self, watchers: Sequence[Watcher]) -> None:
            super().__init__()
            self.watchers = tuple(watchers)

    class DemoWanted(Message):
        """The demonstration is to begin."""

    def __init__(self, start: Start) -> None:
        super().__init__()
        self._start = start
        self._entries: Sequence[Entry] = ()
        self._told: dict[str, Told] = {}
        self._marked: set[str] = set()
        self._opened: dict[str, Watcher] = {}
        self._shown: list[Item | None] = []
        self._header, self._detail = Line(str, id="header"), Line(str, id="detail")
        self._list = RowList(id="choices")

    def compose(self) -> ComposeResult:
        """Textual's hook."""
        yield self._header
        yield self._list
        yield self._detail
        yield KeyBar(BAR)

    def on_mount(self) -> None:
        """Textual's hook."""
        self._list.cursor = 0
        self.action_ask()

    def on_resize(self) -> None:
        """Textual's hook."""
        self.call_after_refresh(self.look)

    def on_screen_resume(self) -> None:
        """Textual's hook: it is seen again."""
        self.call_after_refresh(self.look)

    # ------------------------------------------------------------------------------- asking

    @work(exclusive=True, group="ask")
    async def action_ask(self) -> None:
        """Read the profiles anew and ask their nodes; what was told before stands until it is told anew."""
        self._entries = self._start.entries()
        paths = {entry.path for entry in self._entries if not entry.error}
        self._marked &= paths
        nodes = {entry.node for entry in self._entries if not entry.error}
        self._told = {node: self._told.get(node, Told(host=node)) for node in nodes}
        self.look()
        await self._start.ask(self._hear)

    def _hear(self, told: Told) -> None:
        before = self._told.get(told.host)
        if before is not None and before.reached and not (told.reached or told.done):
            return
        self._told[told.host] = told
        self.look()

    def changed(self, watcher: Watcher, events: Sequence[ev.AnyEvent]) -> None:
        """Sessions that are open go on beneath their own screens; here nothing of them is shown."""

    def look(self) -> None:
        """Draw the list; what has not changed is not painted."""
        if not self.is_mounted:
            return
        now, width = self._start.clock.now(), max(20, self.size.width - 2)
        asking = sum(not told.done for told in self._told.values())
        self._header.pieces = format_start.header(asking, width)
        chosen = self._item
        found = items(self._entries, self._told, self._opened)
        rows, headings, self._shown = format_start.lines(found, self._marked, now, width)
        bad = [
            number
            for number, item in enumerate(self._shown)
            if item is not None and item.entry is not None and item.entry.error
        ]
        self._list.show(rows, headings, bad)
        if chosen is not None:  # the list has grown above it: the cursor stays on what it stood on
            keys = [item.key if item is not None else "" for item in self._shown]
            if chosen.key in keys:
                self._list.cursor = keys.index(chosen.key)
        self._draw_detail()

    def _draw_detail(self) -> None:
        width = max(20, self.size.width - 2)
        self._detail.pieces = format_start.detail(self._item, self._start.clock.now(), width, DETAIL_ROWS)

    @property
    def _item(self) -> Item | None:
        """What the cursor stands on."""
        at = self._list.cursor
        return self._shown[at] if 0 <= at < len(self._shown) else None

    # ------------------------------------------------------------------------------- choosing

    def on_row_list_moved(self) -> None:
        """The list's message."""
        self._draw_detail()

    def on_row_list_entered(self) -> None:
        """The list's message: a second click."""
        self.action_open(True)

    def action_move(self, steps: int) -> None:
        """Move the cursor."""
        self._list.move(steps)

    def action_page(self, pages: int) -> None:
        """Move the cursor by a page."""
        self._list.page(pages)

    def action_mark(self) -> None:
        """Mark a profile, to open several together."""
        item = self._item
        if item is None or item.entry is None or not item.can_open:
            self.app.bell()
            return
        self._marked ^= {item.key}
        self.look()
        self._list.move(1)

    # ------------------------------------------------------------------------------- opening

    def action_open(self, launch: bool) -> None:
        """Open what is marked, else the chosen one; what would be launched is asked about first."""
        marked = [item for item in self._shown if item is not None and item.key in self._marked]
        chosen = marked or [item for item in (self._item,) if item is not None]
        if not chosen or not all(item.can_open for item in chosen):
            self.app.bell()
        elif chosen[0].entry is None and launch:
            self.post_message(self.DemoWanted())
        elif chosen[0].entry is None:
            self.app.bell()  # there is nothing of it to be watched before it is begun
        elif launch and (wanted := launches(chosen)):
            told = {node for node, item in self._told.items() if item.reached}

            def answered(answer: bool | None) -> None:
                if answer is not None:
                    self._open(chosen, wanted if answer else ())

            self.app.push_screen(LaunchScreen(wanted, told, len(chosen) - len(wanted)), answered)
        else:
            self._open(chosen, ())

    def _open(self, chosen: Sequence[Item], launched: Sequence[Entry]) -> None:
        """Only what was asked about is launched: a run that lived a moment ago may have ended by now."""
        watchers: list[Watcher] = []
        fresh: dict[str, Watcher] = {}
        for entry in [item.entry for item in chosen if item.entry is not None]:
            watcher = self._opened.get(entry.path)
            if watcher is None:
                try:
                    watcher = self._start.open(entry.path, launch=entry in launched)
                except SupervisorError as error:  # its file has changed meanwhile: nothing is opened by halves
                    self.app.notify(str(error), severity="error", markup=False)
                    return
                fresh[entry.path] = watcher
            watchers.append(watcher)
        if problem := _clash([*self._opened.values(), *fresh.values()]):
            self.app.notify(problem, severity="error", markup=False)
            return
        self._opened |= fresh
        self._marked.clear()
        self.look()
        self.post_message(self.Opened(watchers))


def _clash(watchers: Sequence[Watcher]) -> str:
    """Why these cannot be watched together; empty where they can."""
    names = [watcher.title for watcher in watchers]
    twice = next((name for name in names if names.count(name) > 1), None)
    return f"two profiles are called {twice!r}: the name is the run's key, give one of them another" if twice else ""


class LaunchScreen(Once, ModalScreen[bool | None]):
    """What will be launched where. True: launch; False: open without; None: leave it. Never yes by a stray enter."""

    AUTO_FOCUS = ""
    BINDINGS = [
        Binding("y", "answer(True)", "launch", id="launch.yes"),
        Binding("w", "answer(False)", "watch, launch nothing", id="launch.watch"),
        Binding("n,escape,q,ctrl+c", "leave", "leave it", id="launch.no"),
        Binding("up", "scroll_list('scroll_up')", "up", id="launch.up", show=False),
        Binding("down", "scroll_list('scroll_down')", "down", id="launch.down", show=False),
    ]

    def __init__(self, launched: Sequence[Entry], told: set[str], others: int) -> None:
        super().__init__()
        self._launched = launched
        self._told = told
        self._others = others
        self._question, self._plan, self._consequence = (
            Line(str, id=name) for name in ("question", "victims", "consequence")
        )
        self._list = VerticalScroll(self._plan, id="victims-scroll", can_focus=False)

    def compose(self) -> ComposeResult:
        """Textual's hook."""
        with Vertical(id="dialog"):
            yield self._question
            yield self._list
            yield self._consequence
            with Horizontal(id="answers"):
                yield Button("launch (y)", id="yes", variant="warning", compact=True)
                yield Button("only watch (w)", id="watch", compact=True)
                yield Button("leave it (n)", id="no", compact=True)

    def on_mount(self) -> None:
        """Textual's hook."""
        self._question.pieces = format_start.question(self._launched)
        self._draw()

    def on_line_resized(self) -> None:
        """A line's message."""
        self._draw()

    def _draw(self) -> None:
        width = self._question.size.width or max(40, self.size.width * 9 // 10 - 6)
        self._plan.pieces = format_start.plan(self._launched, self._told, width)
        self._consequence.pieces = format_start.consequence(self._launched, self._others, width)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Textual's hook."""
        self.dismiss({"yes": True, "watch": False}.get(event.button.id or ""))

    def action_answer(self, launch: bool) -> None:
        """Close with the answer."""
        self.dismiss(launch)

    def action_leave(self) -> None:
        """Close, and open nothing."""
        self.dismiss(None)

    def action_scroll_list(self, how: str) -> None:
        """Scroll by one of Textual's own movements."""
        getattr(self._list, how)(animate=False)
