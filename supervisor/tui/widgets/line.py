"""Pieces of text, each in the style of its role. Everything that the console says beside the log is drawn by this."""

from __future__ import annotations

from collections.abc import Callable

from textual import events
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

from supervisor.tui.pieces import ROLES, Pieces


class Line(Widget):
    """Draws `pieces`; markup in them is never interpreted, and each passes the mask."""

    ALLOW_SELECT = False
    COMPONENT_CLASSES = {f"line--{role}" for role in ROLES}

    pieces: reactive[Pieces] = reactive(())
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

    def watch_pieces(self, before: Pieces, after: Pieces) -> None:
        """Textual's hook: only another number of rows moves the widgets around it; the rest is painted in place."""
        if self.styles.text_wrap != "nowrap" or _rows(before) != _rows(after):
            self.refresh(layout=True)

    def watch_title(self, title: Pieces) -> None:
        """Textual's hook: `title` changed."""
        self.border_title = self._styled(title)

    def watch_foot(self, foot: Pieces) -> None:
        """Textual's hook: `foot` changed."""
        self.border_subtitle = self._styled(foot)

    def on_resize(self, event: events.Resize) -> None:
        """Textual's hook."""
        if event.size.width != self._width:
            self._width = event.size.width
            self.post_message(self.Resized())

    def render(self) -> Content:
        """Textual's hook."""
        return self._styled(self.pieces)

    def _styled(self, pieces: Pieces) -> Content:
        styled = ((self._mask(text), self.get_visual_style(f"line--{role}")) for text, role in pieces)
        return Content.assemble(*styled)


def _rows(pieces: Pieces) -> int:
    """Rows without wrapping; nothing takes none."""
    return 1 + sum(text.count("\n") for text, _role in pieces) if pieces else 0
