"""The command palette: Textual's own, which falls over its list where the terminal leaves that no row."""

from __future__ import annotations

from textual.command import CommandPalette

from supervisor.tui.screens.once import Once


class Palette(Once, CommandPalette):
    """Moves through its list only where there is one."""

    def _action_command_list(self, action: str) -> None:
        try:
            super()._action_command_list(action)
        except LookupError:
            pass  # no row of it was laid out
