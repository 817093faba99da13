"""The keys of the screen, at its foot: those that fit, the help and the end always. A click presses the key.

Not Textual's Footer: that is a widget a key, and runs off the side of an 80-column screen.
"""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.reactive import reactive
from textual.screen import Screen
from textual.style import Style
from textual.widget import Widget

from supervisor.tui.format_keys import Key, fitting


class KeyBar(Widget, can_focus=False):
    """Draws active bindings.

    Args:
        ids: which, in this order; none: those that want to be shown.
    """

    ALLOW_SELECT = False
    COMPONENT_CLASSES = {"key-bar--key", "key-bar--what"}

    keys: reactive[tuple[Key, ...]] = reactive(())

    def __init__(self, ids: Sequence[str] = (), *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._ids = tuple(ids)

    def on_mount(self) -> None:
        """Textual's hook."""
        self.screen.bindings_updated_signal.subscribe(self, self._changed)

    def _changed(self, screen: Screen[object]) -> None:
        if screen is self.screen:
            self.keys = tuple(self._found())

    def render(self) -> Content:
        """Textual's hook."""
        key_style, what_style = self.get_visual_style("key-bar--key"), self.get_visual_style("key-bar--what")
        parts: list[Content | tuple[str, Style]] = []
        for number, key in enumerate(fitting(self.keys, self.size.width)):
            click = Style.from_meta({"@click": f"app.simulate_key({key.key!r})"})
            parts.append(("  " if number else "", what_style))
            parts.append((key.shown, key_style + click))
            parts.append((f" {key.what}", what_style + click))
        return Content.assemble(*parts)

    def _found(self) -> list[Key]:
        """In the wanted order; one key of each binding."""
        found: dict[str, Key] = {}
        for _node, binding, enabled, _tooltip in self.screen.active_bindings.values():
            name = binding.id or binding.action
            if enabled and name not in found and (name in self._ids or (not self._ids and binding.show)):
                shown = self.app.get_key_display(binding)
                found[name] = Key(binding.key, shown, binding.description, name.endswith((".help", ".quit")))
        return [found[name] for name in self._ids or found if name in found]
