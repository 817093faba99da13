"""One order while it is carried out: each process, each GPU's memory, the steps, and the proof at the end.

It shows and stops nothing: in the background the order goes on, and the console beneath brings this back.
"""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button

from supervisor.core import events as ev
from supervisor.core.events import Phase
from supervisor.tui import format_order
from supervisor.tui.order import Order
from supervisor.tui.screens.looks import Looks
from supervisor.tui.screens.once import Once
from supervisor.tui.watcher import Watcher
from supervisor.tui.widgets.line import Line

REDRAW_S = 0.2
"""Processes end within tenths of a second: that is what one looks at here."""
STEPS_SHOWN = 5


class TransactionScreen(Once, Looks, ModalScreen[None]):
    """Shows the watcher's order of the moment in which it was opened."""

    BINDINGS = [
        Binding("escape,q,enter,ctrl+c", "close", "close", id="transaction.close"),
        Binding("up", "scroll_list('scroll_up')", "up", id="transaction.up", show=False),
        Binding("down", "scroll_list('scroll_down')", "down", id="transaction.down", show=False),
        Binding("pageup", "scroll_list('scroll_page_up')", "page up", id="transaction.page_up", show=False),
        Binding("pagedown", "scroll_list('scroll_page_down')", "page down", id="transaction.page_down", show=False),
    ]

    def __init__(self, watcher: Watcher, order: Order) -> None:
        super().__init__()
        self.order = order
        self._watcher = watcher
        self._heading, self._road, self._fates, self._memory, self._steps, self._outcome = (
            Line(watcher.mask, id=name) for name in ("heading", "road", "fates", "memory", "steps", "outcome")
        )
        self._list = VerticalScroll(self._fates, id="fates-scroll", can_focus=False)
        self._button = Button("background (esc)", id="close", compact=True)

    def compose(self) -> ComposeResult:
        """Textual's hook."""
        with Vertical(id="dialog"):
            yield self._heading
            yield self._road
            yield self._list
            yield self._memory
            yield self._steps
            yield self._outcome
            with Horizontal(id="answers"):
                yield self._button

    def on_mount(self) -> None:
        """Textual's hook."""
        self.set_interval(REDRAW_S, self.look)
        self.look()

    def on_line_resized(self) -> None:
        """A line's message."""
        self.look()

    def changed(self, watcher: Watcher, events: Sequence[ev.AnyEvent]) -> None:
        """A restart whose stop is proved makes way for its launch; the proof stays for a moment as a sentence."""
        super().changed(watcher, events)
        launched = any(isinstance(event, ev.PhaseChanged) and event.to is Phase.LAUNCHING for event in events)
        if launched and watcher is self._watcher and self.order.kind == "restart" and self.order.good:
            self.notify(watcher.mask(self.order.text), markup=False)
            self.dismiss(None)

    def look(self) -> None:
        """Set what each line says by the order, the view and the time."""
        order, mask = self.order, self._watcher.mask
        now = self._watcher.desk.clock.now()
        width = self._heading.size.width or max(40, self.size.width * 9 // 10 - 6)
        spaces = format_order.falling(order, self._watcher.model.view.gpu)
        memory_rows = max(2, self.size.height // 4)
        self._heading.pieces = format_order.heading(order, self._watcher.title, self._watcher.node, now, width)
        self._road.pieces = format_order.road(order, self._watcher.session.plan.grace_s, now, width)
        self._fates.pieces = format_order.fates(order, mask, now, width, max(4, self._list.size.height))
        self._memory.pieces = format_order.memory(spaces, width, memory_rows)
        self._steps.pieces = format_order.steps(order, mask, width, STEPS_SHOWN)
        self._outcome.pieces = format_order.outcome(order, mask, width)
        self.set_class(order.good is True, "-good")
        self.set_class(order.good is False, "-bad")
        self._button.label = "background (esc)" if order.under_way else "close (enter)"

    def on_button_pressed(self, _event: Button.Pressed) -> None:
        """Textual's hook."""
        self.action_close()

    def action_close(self) -> None:
        """To the background while it is under way; away when it has ended."""
        self.dismiss(None)

    def action_scroll_list(self, how: str) -> None:
        """Scroll the processes by one of Textual's own movements."""
        getattr(self._list, how)(animate=False)
