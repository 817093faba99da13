"""One session of the wall: its state in large letters on a ground that is seen from far away."""

from __future__ import annotations

from textual import events
from textual.geometry import Size
from textual.message import Message

from supervisor.tui import format_profiles
from supervisor.tui.watcher import Watcher
from supervisor.tui.widgets.line import Line


class Tile(Line):
    """Draws what it is shown; a class of the tone (`-bad`, `-good` …) gives the layout its ground."""

    class Picked(Message):
        """It was clicked."""

        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

    class Sized(Picked):
        """It has another size."""

        def __init__(self, number: int, size: Size) -> None:
            super().__init__(number)
            self.size = size

    def __init__(self, number: int) -> None:
        super().__init__(str)  # what it is given has passed the session's own mask
        self._number = number
        self._tone = ""

    def show(self, watcher: Watcher, size: Size) -> None:
        """Set what it says of a session, in so much room."""
        if not size:
            return
        model, busy = watcher.model, watcher.busy
        now = watcher.desk.clock.now()
        self.pieces = format_profiles.tile(model, now, size.width, size.height, busy=busy)
        if (tone := format_profiles.tone(model, busy)) != self._tone:
            self.remove_class(f"-{self._tone}").add_class(f"-{tone}")
            self._tone = tone

    def on_click(self, _event: events.Click) -> None:
        """Textual's hook."""
        self.post_message(self.Picked(self._number))

    def on_resize(self, event: events.Resize) -> None:
        """Textual's hook."""
        super().on_resize(event)
        self.post_message(self.Sized(self._number, self.content_size))
