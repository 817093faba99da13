"""The help: every key of the screen that it was asked from, by the bindings themselves, with the ids for keys.toml."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen, Screen

from supervisor.tui.format_keys import Known, help_rows
from supervisor.tui.pieces import Pieces
from supervisor.tui.screens.once import Once
from supervisor.tui.widgets.line import Line


class HelpScreen(Once, ModalScreen[None]):
    """Shows the keys; any of the usual ways out closes it.

    Args:
        known: the bindings that are active where it was asked for.
        foot: where keys and layouts can be changed.
    """

    BINDINGS = [
        Binding("escape,question_mark,q,enter,ctrl+c", "close", "close", id="help.close"),
        Binding("up,k", "scroll_list('scroll_up')", "up", id="help.up", show=False),
        Binding("down,j", "scroll_list('scroll_down')", "down", id="help.down", show=False),
        Binding("pageup", "scroll_list('scroll_page_up')", "page up", id="help.page_up", show=False),
        Binding("pagedown,space", "scroll_list('scroll_page_down')", "page down", id="help.page_down", show=False),
    ]

    def __init__(self, known: list[Known], *, foot: Pieces) -> None:
        super().__init__()
        self._keys = Line(str, id="keys")
        self._keys.pieces = help_rows(known)
        self._foot = Line(str, id="help-foot")
        self._foot.pieces = foot
        self._list = VerticalScroll(self._keys, id="keys-scroll", can_focus=False)

    def compose(self) -> ComposeResult:
        """Textual's hook."""
        with Vertical(id="dialog"):
            yield self._list
            yield self._foot

    def action_close(self) -> None:
        """Back to the screen beneath."""
        self.dismiss(None)

    def action_scroll_list(self, how: str) -> None:
        """Scroll by one of Textual's own movements."""
        getattr(self._list, how)(animate=False)


def known_keys(screen: Screen[object]) -> list[Known]:
    """Every key that is active on a screen, in the order of its bindings; those with the same id as one."""
    found: dict[str, Known] = {}
    for _node, binding, _enabled, _tooltip in screen.active_bindings.values():
        if not binding.id or not binding.description:
            continue
        shown = screen.app.get_key_display(binding)
        before = found.get(binding.id)
        keys = (*before.keys, shown) if before is not None else (shown,)
        found[binding.id] = Known(keys, binding.description, binding.id)
    return list(found.values())
