"""The bar at the log's foot: what is searched, filtered or gone to is typed here, and how it stands is told here.

It knows no log. It says what was typed and which way to go; the pane does the rest and sets `status`.
"""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Static

MAX_CHARS = 400
PROMPTS = {"search": "search", "filter": "show only", "line": "go to line"}


class FindBar(Horizontal):
    """One row. Shown while something is typed, and while there is a status."""

    BINDINGS = [
        Binding("escape", "cancel", "cancel", id="find.cancel", show=False),
        Binding("ctrl+r", "regex", "regular expression", id="find.regex", show=False),
        Binding("down,ctrl+n", "go(1)", "next match", id="find.next", show=False),
        Binding("up,ctrl+p", "go(-1)", "previous match", id="find.previous", show=False),
        Binding("tab", "level", "level", id="find.level", show=False, priority=True),
    ]

    class Edited(Message):
        """Something was typed; `done` with enter."""

        def __init__(self, purpose: str, text: str, *, regex: bool, done: bool) -> None:
            super().__init__()
            self.purpose = purpose
            self.text = text
            self.regex = regex
            self.done = done

    class Cancelled(Message):
        """Escape."""

        def __init__(self, purpose: str) -> None:
            super().__init__()
            self.purpose = purpose

    class Asked(Message):
        """A key of the bar that is about the log: `next`, `previous` or `level`."""

        def __init__(self, what: str) -> None:
            super().__init__()
            self.what = what

    def __init__(self) -> None:
        super().__init__()
        self.purpose = ""
        """What is typed: `search`, `filter`, `line`, or nothing."""
        self._regex = False
        self._prompt = Static(id="find-prompt", markup=False)
        self._input = Input(id="find-input", compact=True, max_length=MAX_CHARS, select_on_focus=True)
        self._status = Static(id="find-status", markup=False)

    def compose(self) -> ComposeResult:
        """Textual's hook."""
        yield self._prompt
        yield self._input
        yield self._status

    def on_mount(self) -> None:
        """Textual's hook."""
        self.set_status("")
        self._draw()

    def open(self, purpose: str, text: str = "", *, regex: bool = False) -> None:
        """Type into it: `search`, `filter` or `line`."""
        self.purpose, self._regex = purpose, regex
        with self._input.prevent(Input.Changed):
            self._input.value = text
        self._input.cursor_position = len(text)
        self.set_status("")
        self._draw()
        self._input.focus()

    def close(self) -> None:
        """No more typing; the status stays if there is one."""
        self.purpose = ""
        self._draw()

    def set_status(self, text: str, *, bad: bool = False) -> None:
        """How it stands. Nothing in it is markup."""
        self._status.update(Content(text))
        self._status.set_class(bad, "-bad")
        self._status.display = bool(text)
        self.set_class(bool(text) or bool(self.purpose), "-shown")

    def _draw(self) -> None:
        regex = " regex" if self._regex else ""
        self._prompt.update(Content(f"{PROMPTS.get(self.purpose, '')}{regex}:" if self.purpose else ""))
        self._prompt.display = self._input.display = bool(self.purpose)
        self.set_class(bool(self.purpose), "-typing")
        self.set_class(bool(self.purpose) or self._status.display, "-shown")

    def on_input_changed(self, event: Input.Changed) -> None:
        """Textual's hook."""
        event.stop()
        if bool(self.purpose):
            self._say(done=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Textual's hook."""
        event.stop()
        if bool(self.purpose):
            self._say(done=True)

    def _say(self, *, done: bool) -> None:
        self.post_message(self.Edited(self.purpose, self._input.value, regex=self._regex, done=done))

    def action_cancel(self) -> None:
        """Escape."""
        self.post_message(self.Cancelled(self.purpose))

    def action_regex(self) -> None:
        """Regular expression or plain text."""
        if self.purpose != "line":
            self._regex = not self._regex
            self._draw()
            self._say(done=False)

    def action_go(self, step: int) -> None:
        """The next or the previous match, while typing goes on."""
        self.post_message(self.Asked("next" if step > 0 else "previous"))

    def action_level(self) -> None:
        """All lines, warnings and errors, or errors alone."""
        self.post_message(self.Asked("level"))
