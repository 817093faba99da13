"""The command palette and its commands. Textual's own falls over its list where the terminal leaves that no row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from textual.app import App, SystemCommand
from textual.command import CommandPalette
from textual.screen import Screen
from textual.theme import ThemeProvider

from supervisor.tui.screens.once import Once


class Palette(Once, CommandPalette):
    """Moves through its list only where there is one."""

    def _action_command_list(self, action: str) -> None:
        try:
            super()._action_command_list(action)
        except LookupError:
            pass  # no row of it was laid out


def show(app: App[Any]) -> None:
    """Every command, found by its name."""
    if not isinstance(app.screen, Palette):
        app.push_screen(Palette(id="--command-palette"))


def show_themes(app: App[Any]) -> None:
    """Every theme, found by its name."""
    app.push_screen(Palette(providers=[ThemeProvider], placeholder="Search for themes…"))


def commands(app: App[Any], screen: Screen[Any], layouts: Iterable[str]) -> Iterator[SystemCommand]:
    """Every key of the screen, the layouts and the themes."""
    seen: set[str] = set()
    for _node, binding, enabled, _tooltip in screen.active_bindings.values():
        if enabled and binding.description and binding.action not in seen and (binding.id or "").count("."):
            seen.add(binding.action)
            key = app.get_key_display(binding)
            yield SystemCommand(binding.description, f"{key}   {binding.id}", _runs(app, screen, binding.action))
    for name in layouts:
        yield SystemCommand(f"layout {name}", "", _runs(app, screen, f"app.layout({name!r})"))
    yield SystemCommand("theme", "choose among all themes", app.action_change_theme)


def _runs(app: App[Any], screen: Screen[Any], action: str) -> Callable[[], Any]:
    async def run() -> None:
        await app.run_action(action, default_namespace=screen)

    return run
