"""A list of one-line rows with a cursor: many sessions, known profiles, holders of memory.

Not a widget a row: sixty-four of them change each second, and only the lines that did are drawn again. It is told rows
and tells where the cursor is; what a row means is its owner's.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from supervisor.tui.pieces import ROLES, Pieces


class RowList(ScrollView, can_focus=True):
    """Rows of pieces, already masked and of one line each. `cursor` is the chosen row, -1 where there is none."""

    ALLOW_SELECT = False
    COMPONENT_CLASSES = {f"line--{role}" for role in ROLES} | {"row-list--cursor", "row-list--bad"}

    cursor: reactive[int] = reactive(-1)

    class Moved(Message):
        """The cursor stands elsewhere."""

        def __init__(self, rows: RowList) -> None:
            super().__init__()
            self.rows = rows

        @property
        def control(self) -> RowList:
            """The list, for `on(…, "#id")`."""
            return self.rows

    class Entered(Moved):
        """A row was clicked that the cursor stood on already."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._rows: list[Pieces] = []
        self._skipped: frozenset[int] = frozenset()
        self._bad: frozenset[int] = frozenset()

    def __len__(self) -> int:
        return len(self._rows)

    def __bool__(self) -> bool:
        return True  # an empty list is a list

    @property
    def rows(self) -> Sequence[Pieces]:
        """What is shown."""
        return self._rows

    def show(self, rows: Sequence[Pieces], skipped: Collection[int] = (), bad: Collection[int] = ()) -> None:
        """Set the rows; only those that differ are drawn again.

        Args:
            skipped: rows on which the cursor never stands: headings.
            bad: rows that need a hand.
        """
        self._skipped = frozenset(skipped)
        turned, self._bad = self._bad ^ frozenset(bad), frozenset(bad)
        if len(rows) != len(self._rows):
            self._rows = list(rows)
            self.virtual_size = Size(0, len(rows))
            self.refresh()
        else:
            for number, pieces in enumerate(rows):
                if number in turned or pieces != self._rows[number]:
                    self._rows[number] = pieces
                    self._draw(number)
        if not self._stands(self.cursor):
            self.cursor = self._near(self.cursor)

    # ------------------------------------------------------------------------------- the cursor

    def move(self, steps: int) -> None:
        """Move the cursor by so many rows that it may stand on."""
        allowed = [number for number in range(len(self._rows)) if number not in self._skipped]
        if not allowed:
            return
        here = allowed.index(self.cursor) if self.cursor in allowed else 0
        self.cursor = allowed[max(0, min(len(allowed) - 1, here + steps))]

    def page(self, pages: int) -> None:
        """Move it by what is seen at once."""
        self.move(pages * max(1, self.size.height - 1))

    def watch_cursor(self, before: int, cursor: int) -> None:
        """Textual's hook: `cursor` changed."""
        for number in (before, cursor):
            self._draw(number)
        if 0 <= cursor < len(self._rows):
            top = 0 if all(number in self._skipped for number in range(cursor)) else cursor
            self.scroll_to_region(Region(0, top, 1, cursor - top + 1), animate=False, force=True)
        self.post_message(self.Moved(self))

    def on_click(self, event: events.Click) -> None:
        """Textual's hook."""
        number = event.y + self.scroll_offset.y
        if not self._stands(number):
            return
        if number == self.cursor:
            self.post_message(self.Entered(self))
        self.cursor = number

    def _stands(self, number: int) -> bool:
        return 0 <= number < len(self._rows) and number not in self._skipped

    def _near(self, number: int) -> int:
        allowed = [at for at in range(len(self._rows)) if at not in self._skipped]
        return min(allowed, key=lambda at: abs(at - number), default=-1)

    # ------------------------------------------------------------------------------- drawing

    def _draw(self, number: int) -> None:
        self.refresh(Region(0, number - self.scroll_offset.y, self.size.width, 1))

    def render_line(self, y: int) -> Strip:
        """Textual's hook: one row of the screen."""
        width, base = self.size.width, self.rich_style
        number = self.scroll_offset.y + y
        if number >= len(self._rows):
            return Strip.blank(width, base)
        kind = "cursor" if number == self.cursor else "bad" if number in self._bad else ""
        ground = self.get_component_rich_style(f"row-list--{kind}") if kind else None
        segments = [Segment(text, self._style(role, ground)) for text, role in self._rows[number]]
        return Strip(segments).crop_extend(0, width, base if ground is None else ground)

    def _style(self, role: str, ground: Style | None) -> Style:
        style = self.get_component_rich_style(f"line--{role}")
        return style if ground is None else ground + Style(color=style.color, bold=style.bold)
