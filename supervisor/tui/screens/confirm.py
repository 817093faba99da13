"""The question before a stop or a restart: exactly which processes will be signalled, and how. Answers yes or no."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button

from supervisor.tui import format_order
from supervisor.tui.screens.looks import Looks
from supervisor.tui.screens.once import Once
from supervisor.tui.watcher import Watcher
from supervisor.tui.widgets.line import Line


class ConfirmScreen(Once, Looks, ModalScreen[bool]):
    """Yes only by `y` or its button: a stray Enter must never stop a server.

    Args:
        order: `stop` or `restart`.
    """

    AUTO_FOCUS = None
    BINDINGS = [
        Binding("y", "answer(True)", "yes", id="confirm.yes"),
        Binding("n,escape,q,ctrl+c", "answer(False)", "no", id="confirm.no"),
        Binding("up", "scroll_list('scroll_up')", "up", id="confirm.up", show=False),
        Binding("down", "scroll_list('scroll_down')", "down", id="confirm.down", show=False),
        Binding("pageup", "scroll_list('scroll_page_up')", "page up", id="confirm.page_up", show=False),
        Binding("pagedown", "scroll_list('scroll_page_down')", "page down", id="confirm.page_down", show=False),
    ]

    def __init__(self, watcher: Watcher, order: str) -> None:
        super().__init__()
        self._watcher = watcher
        self._order = order
        self._question, self._victims, self._consequence = (
            Line(watcher.mask, id=name) for name in ("question", "victims", "consequence")
        )
        self._list = VerticalScroll(self._victims, id="victims-scroll", can_focus=False)

    def compose(self) -> ComposeResult:
        """Textual's hook."""
        with Vertical(id="dialog"):
            yield self._question
            yield self._list
            yield self._consequence
            with Horizontal(id="answers"):
                yield Button(f"{self._order} (y)", id="yes", variant="warning", compact=True)
                yield Button("leave it (n)", id="no", compact=True)

    def on_mount(self) -> None:
        """Textual's hook."""
        self.look()

    def on_line_resized(self) -> None:
        """A line's message."""
        self.look()

    def look(self) -> None:
        """Set what will be signalled: the tree may grow while the dialog stands."""
        watcher = self._watcher
        width = self._question.size.width or max(40, self.size.width * 9 // 10 - 6)
        tree, older_s = watcher.tree, watcher.tree_older_s
        self._question.pieces = format_order.question(self._order, watcher.title, watcher.node)
        self._victims.pieces = format_order.plan(tree, watcher.model.view.gpu, older_s, watcher.mask, width)
        grace_s = watcher.session.plan.grace_s
        self._consequence.pieces = format_order.consequence(self._order, tree, grace_s, width)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Textual's hook."""
        self.dismiss(event.button.id == "yes")

    def action_answer(self, yes: bool) -> None:
        """Close with the answer."""
        self.dismiss(yes)

    def action_scroll_list(self, how: str) -> None:
        """Scroll the processes by one of Textual's own movements."""
        getattr(self._list, how)(animate=False)
