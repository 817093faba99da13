"""What the app asks of every screen that shows sessions: to look anew. A mixin; it draws nothing itself."""

from __future__ import annotations

from collections.abc import Sequence

from supervisor.core import events as ev
from supervisor.tui.watcher import Watcher


class Looks:
    """The app calls `changed` after each batch of the stream, and `tick` once a second, on every open screen."""

    def changed(self, watcher: Watcher, events: Sequence[ev.AnyEvent]) -> None:
        """A watcher has taken a batch: nothing but log lines moves nothing but the log."""
        if not events or any(not isinstance(event, ev.Log | ev.LogBlock) for event in events):
            self.look()

    def tick(self) -> None:
        """A second has passed: what says a time says another one."""
        self.look()

    def look(self) -> None:
        """Set the widgets' attributes by the models; what has not changed is not painted."""
