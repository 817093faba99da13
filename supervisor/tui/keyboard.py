"""What steps aside while somebody is at the keyboard: logs that flood, and Python's garbage collector.

It knows no Textual, and touches no widget: the thread that reads the terminal tells it of each key.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import Self

from supervisor.adapters.sweeper import Sweeper
from supervisor.tui.watcher import Watcher


class Keyboard:
    """The hands of the one user, and who makes way for them.

    Entered where the process is a console's own: a test has a garbage collector of its own.

    Args:
        watchers: the sessions; others may be added to the list.
    """

    def __init__(self, watchers: Sequence[Watcher]) -> None:
        self._watchers = watchers
        self._sweeper = Sweeper()

    def __enter__(self) -> Self:
        """The process is a console's own from now on."""
        self._sweeper.begin(monotonic())
        return self

    def __exit__(self, *_: object) -> None:
        self._sweeper.end()

    def came(self) -> None:
        """A key, or the mouse. Any thread may tell it."""
        for watcher in tuple(self._watchers):
            watcher.desk.courtesy.touched(watcher.desk.clock.now())
        self._sweeper.busy(monotonic())

    def look(self) -> None:
        """Now and then: what was put off may be due."""
        self._sweeper.look(monotonic())
