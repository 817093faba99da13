"""Several sessions: a table of them, or a wall of tiles where the layout says so. Enter opens one.

What is said stands in `format_profiles.py`; orders act on the chosen one and are carried out as on its own screen.
Only what has changed is drawn again, at one pace for all: sixty-four sessions must not cost sixty-four times a screen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container, VerticalScroll
from textual.screen import Screen

from supervisor.core import events as ev
from supervisor.tui import format_profiles, ordering
from supervisor.tui.pieces import Pieces
from supervisor.tui.screens.looks import Looks
from supervisor.tui.screens.once import Once
from supervisor.tui.watcher import Watcher
from supervisor.tui.widgets.key_bar import KeyBar
from supervisor.tui.widgets.line import Line
from supervisor.tui.widgets.row_list import RowList
from supervisor.tui.widgets.tile import Tile

PACE_S = 0.25
"""Between two drawings of what has changed meanwhile; the clocks of all rows go on once a second."""
DETAIL_ROWS = 4
GRID_MOST = 16
ROOMY_ROWS = 8
"""Tiles as high as this have a gap between them."""

BAR = (
    "table.open", "console.restart", "console.stop", "console.zombies", "console.verify", "app.layout", "app.help",
    "app.quit",
)  # fmt: skip
"""What stands at the foot."""

Open = Callable[[Watcher], None]


class TableScreen(Once, Looks, Screen[None]):
    """The sessions in the order in which they were given.

    Args:
        open_one: shows the screen of one session.
        leaves: escape goes back to the screen below (the start screen), and does nothing else.
    """

    AUTO_FOCUS = ""
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-usual"), (150, "-broad")]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (30, "-tall")]
    BINDINGS = [
        Binding("enter", "open", "open", id="table.open"),
        Binding("r", "order('restart')", "restart", id="console.restart"),
        Binding("k", "order('stop')", "stop", id="console.stop"),
        Binding("z", "order('zombies')", "zombies", id="console.zombies"),
        Binding("v", "order('verify')", "verify now", id="console.verify"),
        Binding("t", "order('transaction')", "the last transaction", id="console.transaction", show=False),
        Binding("escape", "leave", "back", id="table.back", show=False),
        Binding("up", "move(0, -1)", "up", id="table.up", show=False),
        Binding("down", "move(0, 1)", "down", id="table.down", show=False),
        Binding("left", "move(-1, 0)", "left", id="table.left", show=False),
        Binding("right", "move(1, 0)", "right", id="table.right", show=False),
        Binding("pageup", "page(-1)", "page up", id="table.page_up", show=False),
        Binding("pagedown", "page(1)", "page down", id="table.page_down", show=False),
        Binding("home", "page(-1000)", "first", id="table.first", show=False),
        Binding("end", "page(1000)", "last", id="table.last", show=False),
    ]

    def __init__(self, watchers: Sequence[Watcher], open_one: Open, *, leaves: bool = False) -> None:
        super().__init__()
        self.watchers = list(watchers)
        self._open_one = open_one
        self._leaves = leaves
        self._at = 0
        self._across = 1
        self._dirty: set[Watcher] = set()
        self._header, self._columns, self._detail = (Line(str, id=name) for name in ("header", "columns", "detail"))
        self._list = RowList(id="profiles")
        self._tiles = [Tile(number) for number in range(len(self.watchers))]
        self._grid = Container(*self._tiles, id="grid")

    def compose(self) -> ComposeResult:
        """Textual's hook."""
        yield self._header
        yield self._columns
        yield self._list
        yield VerticalScroll(self._grid, id="tiles", can_focus=False)
        yield self._detail
        yield KeyBar(BAR)

    def on_mount(self) -> None:
        """Textual's hook."""
        self._list.cursor = 0
        self.call_after_refresh(self.look)

    def on_resize(self) -> None:
        """Textual's hook: what fits into a line has changed."""
        self.call_after_refresh(self.look)

    def on_screen_resume(self) -> None:
        """Textual's hook: it is seen again."""
        self.call_after_refresh(self.look)

    @property
    def watcher(self) -> Watcher:
        """The chosen one."""
        return self.watchers[self._at]

    # ------------------------------------------------------------------------------- looking

    def changed(self, watcher: Watcher, events: Sequence[ev.AnyEvent]) -> None:
        """A batch was taken: its row is drawn at the next beat, with all others that changed by then."""
        if events and all(isinstance(event, ev.Log | ev.LogBlock) for event in events):
            return
        if watcher not in self.watchers or not self.is_current:
            return
        if not self._dirty:
            self.set_timer(PACE_S, self._beat)
        self._dirty.add(watcher)

    def _beat(self) -> None:
        """Draw what has changed."""
        dirty, self._dirty = self._dirty, set()
        if self.is_current:
            self._draw(dirty)

    def look(self) -> None:
        """Draw all of it: the clocks of every row have gone on."""
        if self.is_current:
            self._draw(set(self.watchers))

    def _draw(self, dirty: set[Watcher]) -> None:
        width = self._width
        models = [watcher.model for watcher in self.watchers]
        self._header.pieces = format_profiles.totals(models, self._now, width)
        if self._grid.parent is not None and self._wall:
            self._draw_tiles(dirty)
        else:
            self._draw_rows(dirty, width)
        self._detail.pieces = self._told_in_detail(width)

    def _draw_rows(self, dirty: set[Watcher], width: int) -> None:
        models = [watcher.model for watcher in self.watchers]
        cols = format_profiles.columns(models, width)
        self._columns.pieces = format_profiles.heading(cols, width)
        before = self._list.rows
        rows, bad = [], []
        for number, watcher in enumerate(self.watchers):
            stays = watcher not in dirty and number < len(before)
            rows.append(before[number] if stays else self._row(watcher, cols, width))
            if format_profiles.tone(watcher.model, watcher.busy) == "bad":
                bad.append(number)
        self._list.show(rows, bad=bad)

    def _row(self, watcher: Watcher, cols: format_profiles.Columns, width: int) -> Pieces:
        return format_profiles.row(watcher.model, watcher.desk.clock.now(), cols, width, busy=watcher.busy)

    def _draw_tiles(self, dirty: set[Watcher]) -> None:
        space = self.query_one("#tiles").content_size
        if not space:
            return
        across, high = format_profiles.tiles(len(self.watchers), space.width, space.height)
        self._across = min(across, GRID_MOST)
        for number in range(1, GRID_MOST + 1):
            self._grid.set_class(number == self._across, f"-across-{number}")
        self._grid.set_class(high >= ROOMY_ROWS, "-roomy")
        self._grid.set_class(high * -(-len(self.watchers) // self._across) <= space.height, "-fits")
        for number, (tile, watcher) in enumerate(zip(self._tiles, self.watchers, strict=True)):
            if watcher in dirty or not tile.pieces:
                tile.show(watcher, tile.content_size)
            tile.set_class(number == self._at, "-chosen")

    def _told_in_detail(self, width: int) -> Pieces:
        watcher = self.watcher
        return format_profiles.detail(watcher.model, self._now, width, DETAIL_ROWS, busy=watcher.busy)

    @property
    def _width(self) -> int:
        """Cells of a line of ours."""
        return max(20, self._header.content_size.width or self.size.width - 2)

    @property
    def _now(self) -> float:
        return self.watchers[0].desk.clock.now()

    @property
    def _wall(self) -> bool:
        """Whether the layout shows tiles."""
        return self.query_one("#tiles").display

    # ------------------------------------------------------------------------------- choosing

    def on_row_list_moved(self) -> None:
        """The list's message: another row is chosen."""
        self._choose(self._list.cursor)

    def on_row_list_entered(self) -> None:
        """The list's message: a click on the row that was chosen already."""
        self.action_open()

    def on_tile_picked(self, event: Tile.Picked) -> None:
        """A tile's message: a click chooses it, the next one opens it."""
        if event.number == self._at:
            self.action_open()
        else:
            self._choose(event.number)

    def on_tile_sized(self, event: Tile.Sized) -> None:
        """A tile's message: it has another size now."""
        if self._wall:
            self._tiles[event.number].show(self.watchers[event.number], event.size)

    def _choose(self, number: int) -> None:
        if not 0 <= number < len(self.watchers):
            return
        self._at = number
        self._list.cursor = number
        for at, tile in enumerate(self._tiles):
            tile.set_class(at == number, "-chosen")
        if self._wall:
            self._tiles[number].scroll_visible(animate=False)
        self._detail.pieces = self._told_in_detail(self._width)

    def action_move(self, across: int, down: int) -> None:
        """Choose another: in the table a row up or down, on the wall the tile beside."""
        step = across + down * (self._across if self._wall else 1)
        if self._wall or down:
            self._choose(max(0, min(len(self.watchers) - 1, self._at + step)))

    def action_page(self, pages: int) -> None:
        """Choose one a page away."""
        rows = max(1, self._list.size.height - 1) if not self._wall else self._across * 4
        self._choose(max(0, min(len(self.watchers) - 1, self._at + pages * rows)))

    # ------------------------------------------------------------------------------- orders

    def action_open(self) -> None:
        """The screen of the chosen one."""
        self._open_one(self.watcher)

    def action_leave(self) -> None:
        """Back to where it was opened from."""
        if self._leaves:
            self.dismiss(None)

    def action_order(self, kind: str) -> None:
        """Restart, stop, zombies, verify, transaction: of the chosen one."""
        work = {
            "restart": ordering.restart,
            "stop": ordering.stop,
            "zombies": ordering.zombies,
            "verify": ordering.verify,
        }.get(kind)
        if work is not None:
            work(self.app, self.watcher)
        elif not ordering.show(self.app, self.watcher, ended=True):
            ordering.say(self.app, self.watcher, "There is no transaction to show.")
