"""The bar at the log's foot: what is searched, filtered or gone to is typed here, and how it stands is told here.

It knows no log. It says what was typed and which way to go; its owner does the rest and sets the status.
"""

from __future__ import annotations

from typing import Protocol

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Input, Static

MAX_CHARS = 400
PROMPTS = {"search": "search", "filter": "show only", "line": "go to line"}


class Owner(Protocol):
    """What the bar tells whom it belongs to. Called, not sent: the key after enter must find the bar closed."""

    def typed(self, purpose: str, text: str, *, regex: bool, done: bool) -> None:
        """Something was typed; `done` with enter."""

    def cancelled(self, purpose: str) -> None:
        """Escape."""

    def asked(self, what: str) -> None:
        """A key of the bar that is about the log: `next`, `previous` or `level`."""

    def give_back(self, event: events.Key) -> None:
        """A key that came when the bar was closed already."""


class _Field(Input, inherit_bindings=False):
    """What is typed into. Its keys act at once, in their order, however fast they come."""

    BINDINGS = Input.BINDINGS  # without those of what scrolls: up and down are the bar's

    def __init__(self, bar: FindBar, owner: Owner) -> None:
        super().__init__(id="find-input", compact=True, max_length=MAX_CHARS, select_on_focus=False)
        self._bar = bar
        self._owner = owner

    async def on_key(self, event: events.Key) -> None:
        """Textual's hook, before the field's own."""
        if not self._bar.purpose:
            self._owner.give_back(event)
        elif event.key == "enter":
            self._bar.submit()
        else:
            active = None if event.is_printable else self.screen.active_bindings.get(event.key)
            if active is None or active.node not in (self, self._bar):
                return
            await self.app.run_action(active.binding.action, active.node)
        event.stop()
        event.prevent_default()


class FindBar(Horizontal):
    """One row. Shown while something is typed, and while there is a status."""

    BINDINGS = [
        Binding("escape", "cancel", "cancel", id="find.cancel", show=False),
        Binding("ctrl+r", "regex", "regular expression", id="find.regex", show=False),
        Binding("down,ctrl+n", "go(1)", "next match", id="find.next", show=False),
        Binding("up,ctrl+p", "go(-1)", "previous match", id="find.previous", show=False),
        Binding("tab", "level", "level", id="find.level", show=False, priority=True),
    ]

    def __init__(self, owner: Owner) -> None:
        super().__init__()
        self.purpose = ""
        """What is typed: `search`, `filter`, `line`, or nothing."""
        self._regex = False
        self._prompt = Static(id="find-prompt", markup=False)
        self._owner = owner
        self._input = _Field(self, owner)
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
        self._input.select_all()  # the next letter takes its place; not when the focus comes, which is later
        self.set_status("")
        self._draw()
        self.screen.set_focus(self._input)

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
        if self.purpose:
            self._say(done=False)

    def type(self, event: events.Key) -> None:
        """A key that was on its way to the log when the bar was opened."""
        self._input.post_message(events.Key(event.key, event.character))

    def submit(self) -> None:
        """Enter."""
        self._say(done=True)

    def _say(self, *, done: bool) -> None:
        self._owner.typed(self.purpose, self._input.value, regex=self._regex, done=done)

    def action_cancel(self) -> None:
        """Escape."""
        self._owner.cancelled(self.purpose)

    def action_regex(self) -> None:
        """Regular expression or plain text."""
        if self.purpose != "line":
            self._regex = not self._regex
            self._draw()
            self._say(done=False)

    def action_go(self, step: int) -> None:
        """The next or the previous match, while typing goes on."""
        self._say(done=False)  # what was typed just now may not have been told yet
        self._owner.asked("next" if step > 0 else "previous")

    def action_level(self) -> None:
        """All lines, warnings and errors, or errors alone."""
        self._owner.asked("level")
