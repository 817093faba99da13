"""Pieces of text, each in the style of its role. Everything that the console says beside the log is drawn by this."""

from __future__ import annotations

from collections.abc import Callable

from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from supervisor.tui.format import ROLES, Pieces


class Line(Widget):
    """Draws `pieces`; markup in them is never interpreted, and each passes the mask."""

    COMPONENT_CLASSES = {f"line--{role}" for role in ROLES}

    pieces: reactive[Pieces] = reactive((), layout=True)

    def __init__(self, mask: Callable[[str], str], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._mask = mask

    def render(self) -> Content:
        """Textual's hook."""
        styled = ((self._mask(text), self.get_visual_style(f"line--{role}")) for text, role in self.pieces)
        return Content.assemble(*styled)
