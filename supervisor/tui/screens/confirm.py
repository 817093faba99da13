"""The question before a stop or a restart: exactly which processes will be signalled, and how. Answers yes or no."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button

from supervisor.tui.format import Pieces
from supervisor.tui.widgets.line import Line


class ConfirmScreen(ModalScreen[bool]):
    """Yes only by `y` or its button: a stray Enter must never stop a server.

    Args:
        yes: the word on the button that does it.
    """

    BINDINGS = [
        Binding("y", "answer(True)", "yes", id="confirm.yes"),
        Binding("n,escape,q,ctrl+c", "answer(False)", "no", id="confirm.no"),
        Binding("up", "scroll_list('scroll_up')", "up", id="confirm.up", show=False),
        Binding("down", "scroll_list('scroll_down')", "down", id="confirm.down", show=False),
        Binding("pageup", "scroll_list('scroll_page_up')", "page up", id="confirm.page_up", show=False),
        Binding("pagedown", "scroll_list('scroll_page_down')", "page down", id="confirm.page_down", show=False),
    ]

    def __init__(self, mask: Callable[[str], str], *, question: Pieces, yes: str) -> None:
        super().__init__()
        self._question = Line(mask, id="question")
        self._question.pieces = question
        self._victims = Line(mask, id="victims")
        self._consequence = Line(mask, id="consequence")
        self._list = VerticalScroll(self._victims, id="victims-scroll", can_focus=False)
        self._yes = yes

    def show(self, victims: Pieces, consequence: Pieces) -> None:
        """Set what will be signalled: the tree may grow while the dialog stands."""
        self._victims.pieces = victims
        self._consequence.pieces = consequence

    def compose(self) -> ComposeResult:
        """Textual's hook."""
        with Vertical(id="dialog"):
            yield self._question
            yield self._list
            yield self._consequence
            with Horizontal(id="answers"):
                yield Button(f"{self._yes} (y)", id="yes", variant="warning", compact=True)
                yield Button("leave it (n)", id="no", compact=True)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Textual's hook."""
        self.dismiss(event.button.id == "yes")

    def action_answer(self, yes: bool) -> None:
        """Close with the answer."""
        self.dismiss(yes)

    def action_scroll_list(self, how: str) -> None:
        """Scroll the processes by one of Textual's own movements."""
        getattr(self._list, how)(animate=False)
