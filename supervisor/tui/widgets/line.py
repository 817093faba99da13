"""Pieces of text, each in the style of its role. Everything that the console says beside the log is drawn by this.

Drawn row by row, and only the rows that have changed: a clock that goes on each second must not cost a whole table.
"""

from __future__ import annotations

from collections.abc import Callable

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from supervisor.tui.pieces import ELLIPSIS, ROLES, Pieces, length, one_line


class Line(Widget):
    """Draws `pieces`, a row of the screen for each of their lines; markup is never interpreted, each passes the mask.

    What does not fit into the width is cut: whoever makes the pieces knows it.
    """

    ALLOW_SELECT = False
    COMPONENT_CLASSES = {f"line--{role}" for role in ROLES}

    pieces: reactive[Pieces] = reactive((), repaint=False)
    title: reactive[Pieces] = reactive((), repaint=False)
    """What stands in the border above, where the layout gives it one."""
    foot: reactive[Pieces] = reactive((), repaint=False)
    """What stands in the border below."""

    class Resized(Message):
        """It has another width now: what was said by its old one may not fit."""

    def __init__(self, mask: Callable[[str], str], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._mask = mask
        self._width = 0
        self._rows: list[Pieces] = []
        self._looks: dict[str, Style] = {}

    # ------------------------------------------------------------------------------- what it says

    def watch_pieces(self, pieces: Pieces) -> None:
        """Textual's hook: another number of rows moves the widgets around it; a changed row is painted in place."""
        before, self._rows = self._rows, _rows(pieces)
        if len(before) != len(self._rows):
            self.refresh(layout=True)
            return
        width, top = self.size.width, self._top
        changed = [y for y, row in enumerate(self._rows) if row != before[y]]
        if changed and not self.is_on_screen:
            self.refresh()  # else what it said when it was last seen comes back with it
        elif changed:
            self.refresh(*(Region(0, top + y, width, 1) for y in changed))

    def watch_title(self, title: Pieces) -> None:
        """Textual's hook: `title` changed."""
        self.border_title = self._content(title)

    def watch_foot(self, foot: Pieces) -> None:
        """Textual's hook: `foot` changed."""
        self.border_subtitle = self._content(foot)

    def _content(self, pieces: Pieces) -> Content:
        return Content.assemble(
            *((one_line(self._mask(text)), self.get_visual_style(f"line--{role}")) for text, role in pieces)
        )

    # ------------------------------------------------------------------------------- its size

    def get_content_width(self, container: Size, viewport: Size) -> int:
        """Textual's hook."""
        return max((length(row) for row in self._rows), default=0)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Textual's hook."""
        return len(self._rows)

    def on_resize(self, event: events.Resize) -> None:
        """Textual's hook."""
        if event.size.width != self._width:
            self._width = event.size.width
            self.post_message(self.Resized())

    # ------------------------------------------------------------------------------- drawing

    @property
    def _top(self) -> int:
        """The first row that is drawn on, where the layout aligns what is less than the widget is high."""
        if self.styles.content_align_vertical != "middle":
            return 0
        return max(0, (self.size.height - len(self._rows)) // 2)

    def notify_style_update(self) -> None:
        """Textual's hook: the theme or the layout has changed."""
        super().notify_style_update()
        self._looks.clear()

    def render_line(self, y: int) -> Strip:
        """Textual's hook: one row of the screen."""
        width, style = self.size.width, self.rich_style
        number = y - self._top
        if not 0 <= number < len(self._rows):
            return Strip.blank(width, style)
        row = self._rows[number]
        strip = Strip([Segment(self._mask(text), self._look(role)) for text, role in row])
        if strip.cell_length > width:
            end = Segment(ELLIPSIS, self._look(row[-1][1] if row else "dim"))
            return Strip([*strip.crop(0, width - 1), end]).adjust_cell_length(width, style)
        return strip.extend_cell_length(width, style)

    def _look(self, role: str) -> Style:
        found = self._looks.get(role)
        if found is None:
            found = self._looks[role] = self.get_component_rich_style(f"line--{role}")
        return found


def _rows(pieces: Pieces) -> list[Pieces]:
    """The pieces of each row; nothing takes no row."""
    if not pieces:
        return []
    out: list[list[tuple[str, str]]] = [[]]
    for text, role in pieces:
        first, *rest = map(
            one_line, text.split("\n")
        )  # whatever was forgotten: nothing of a node's drives the terminal
        if first:
            out[-1].append((first, role))
        out += [[(line, role)] if line else [] for line in rest]
    return [tuple(row) for row in out]
