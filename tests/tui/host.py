"""An app that shows one screen with the real layouts, for tests of a screen alone; and pictures of what it shows."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from textual.app import App
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widget import Widget

from supervisor import resources
from supervisor.core import events as ev
from supervisor.tui import themes
from supervisor.tui.pieces import text_of
from supervisor.tui.screens.looks import Looks
from supervisor.tui.watcher import Watcher

PICTURES = os.environ.get("SUPERVISOR_TEST_PICTURES", "")
"""A folder that pictures of the screens are put into, for people to look at."""


class Host(App[Any]):
    """Shows `screen`; what it was dismissed with stands in `answers`."""

    ENABLE_COMMAND_PALETTE = False

    def __init__(self, screen: Screen[Any], *, layout: str = "console", watchers: Sequence[Watcher] = ()) -> None:
        super().__init__(css_path=[resources.layouts() / f"{name}.tcss" for name in ("base", layout, "dialogs")])
        self.register_theme(themes.CALM)
        self.theme = themes.CALM.name
        self._first = screen
        self._watchers = watchers
        self.answers: list[Any] = []

    def on_mount(self) -> None:
        """Textual's hook."""
        self.push_screen(self._first, self.answers.append)
        for watcher in self._watchers:
            self.run_worker(watcher.drain(self._changed, 0.01))

    def _changed(self, watcher: Watcher, events: Sequence[ev.AnyEvent]) -> None:
        for screen in self.screen_stack:
            if isinstance(screen, Looks) and screen.is_mounted:
                screen.changed(watcher, events)


def screen_text(app: App[Any]) -> str:
    """Every row of the screen as it is drawn."""
    return "\n".join("".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips())


def said(app: App[Any], name: str) -> str:
    """What a line says in all, also where the screen is too narrow for it."""
    widget: Widget = app.screen.query_one(f"#{name}")
    return text_of(getattr(widget, "pieces", ()))


async def until(pilot: Pilot[Any], holds: Callable[[], object]) -> None:
    """Let the app work until it holds; a test that waits in vain shows the screen."""
    try:
        async with asyncio.timeout(15):
            while not holds():  # noqa: ASYNC110 - Textual has no event for "drawn"
                await asyncio.sleep(0.01)
    except TimeoutError:
        pytest.fail(f"waited in vain; the screen:\n{screen_text(pilot.app)}")


async def until_shown(pilot: Pilot[Any], *texts: str) -> None:
    """Wait until all of them stand on the screen."""
    await until(pilot, lambda: all(text in screen_text(pilot.app) for text in texts))


def picture(app: App[Any], name: str) -> None:
    """Keep the screen as an SVG, where that is wanted."""
    if PICTURES:
        app.save_screenshot(f"{name}.svg", str(Path(PICTURES)))
