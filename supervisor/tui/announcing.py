"""What the terminal is told beside the picture, of all sessions of a console: one title, and each session's notices.

What is said stands in `announce.py` and `format_run.py`; here is only who says it when.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from supervisor.tui.announce import Announcer
from supervisor.tui.format_run import window_title
from supervisor.tui.watcher import Watcher


class Announcing:
    """Bell, notification and title.

    Args:
        write: takes what goes to the terminal as it is.
        environ: of the process.
    """

    def __init__(self, write: Callable[[str], None], environ: Mapping[str, str]) -> None:
        self._write = write
        self._environ = environ
        self._title = Announcer(write, environ, bell=False, terminal=False)
        self._titled = False

    def attend(self, watcher: Watcher) -> None:
        """Tell this session's notices from now on, as its profile wants them."""
        if watcher.notifier is None:
            return
        plan = watcher.notifier.plan
        told = Announcer(self._write, self._environ, bell=plan.bell, terminal=plan.terminal, title=False)
        watcher.notifier.on_notice(told.announce)

    def look(self, watchers: Sequence[Watcher]) -> None:
        """The window's title by how all of them stand; none where no profile wants one."""
        wanted = [item for item in watchers if item.notifier is None or item.notifier.plan.title]
        if not wanted:
            return
        if not self._titled:
            self._titled = True
            self._title.begin()
        self._title.show_title(window_title([item.model for item in wanted]))

    def end(self) -> None:
        """The title of before comes back."""
        self._title.end()
