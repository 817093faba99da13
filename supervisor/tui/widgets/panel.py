"""The panel of what needs a look: a finding, an error of our own, warnings. Not there while nothing does."""

from __future__ import annotations

from collections.abc import Callable

from textual import events
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive

from supervisor.tui.format_finding import Report
from supervisor.tui.widgets.line import Line


class Panel(VerticalScroll, can_focus=False):
    """Shows `report`; hidden where it is None."""

    report: reactive[Report | None] = reactive(None)

    class Chosen(Message):
        """Somebody clicked on it: go to the line that it names."""

    def __init__(self, mask: Callable[[str], str], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._line = Line(mask)

    @property
    def room(self) -> int:
        """Cells of a line in it, 0 before it was laid out."""
        return self._line.content_size.width

    def compose(self) -> ComposeResult:
        """Textual's hook."""
        yield self._line

    def on_click(self, _event: events.Click) -> None:
        """Textual's hook."""
        self.post_message(self.Chosen())

    def watch_report(self, report: Report | None) -> None:
        """Textual's hook: `report` changed."""
        self.set_class(report is not None, "-shown")
        if report is None:
            return
        self.set_class(report.tone == "bad", "-bad")
        self.border_title = Content(report.title).markup
        self.border_subtitle = Content(report.foot).markup
        self._line.pieces = report.pieces
