"""A screen that is closed once. A mixin; it shows nothing.

Textual's `dismiss` takes away whatever stands on top: a second click on a button that is about to vanish would close
the screen beneath as well, and with the last one the console.
"""

from __future__ import annotations

from typing import Any, cast

from textual.await_complete import AwaitComplete
from textual.screen import Screen


class Once:
    """Stands before Textual's `Screen` among the bases."""

    def dismiss(self, result: Any = None) -> AwaitComplete:
        """Textual's method: close with this answer, where that has not been done."""
        screen = cast("Screen[Any]", self)
        if not screen.is_current:
            done: AwaitComplete = AwaitComplete.nothing()  # type: ignore[no-untyped-call]
            return done
        return Screen.dismiss(screen, result)
