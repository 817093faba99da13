"""The terminal below the console, which may go away at any moment: a hangup, a killed tmux, a closed window.

What is written then goes nowhere, at once, and the app is told. Nothing here decides what comes of it. Textual's own
writer ends at the first error instead, and whoever writes after that waits for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import IO, Protocol, runtime_checkable

from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.events import InputEvent
from textual.message import Message

from supervisor.tui.keyboard import Keyboard


class TerminalGone(Message):
    """Nothing that is written arrives any more."""


class Outlet:
    """A terminal as the file that the driver's writer uses.

    Args:
        on_gone: called once, from the writer's thread.
    """

    def __init__(self, file: IO[str], on_gone: Callable[[], object]) -> None:
        self._file = file
        self._on_gone = on_gone
        self._gone = False

    def fileno(self) -> int:
        """The terminal's own."""
        return self._file.fileno()

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self._file.isatty()

    def write(self, text: str) -> None:
        """Write it, or throw it away where there is nobody to read it."""
        self._try(lambda: self._file.write(text))

    def flush(self) -> None:
        """The same for what is buffered."""
        self._try(self._file.flush)

    def _try(self, do: Callable[[], object]) -> None:
        if self._gone:
            return
        try:
            do()
        except OSError:
            self._gone = True
            self._on_gone()


@runtime_checkable
class HasKeyboard(Protocol):
    """An app that wants to know of a key before its turn in the queue comes."""

    keyboard: Keyboard


class TerminalDriver(LinuxDriver):
    """Textual's own, on an `Outlet`."""

    def __init__(self, app: App[object], **options: object) -> None:
        super().__init__(app, **options)  # type: ignore[arg-type]
        self._on_input: Callable[[], object] = app.keyboard.came if isinstance(app, HasKeyboard) else lambda: None
        if self._file is not None:
            self._file = Outlet(self._file, lambda: app.post_message(TerminalGone()))  # type: ignore[assignment]

    def process_message(self, message: Message) -> None:
        """Textual's hook, in the thread that reads the terminal: floods step aside before the key's turn comes."""
        if isinstance(message, InputEvent):
            self._on_input()
        super().process_message(message)

    def run_input_thread(self) -> None:
        """Textual's hook: a terminal that is gone cannot be read, which is no accident of the console's."""
        try:
            super().run_input_thread()
        except OSError:
            self._app.post_message(TerminalGone())
