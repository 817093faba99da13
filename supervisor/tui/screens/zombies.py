"""The zombies dialog: what is left over on a node, with evidence, and which of it is to be ended. Answers with that.

Pre-selected is only what our own ended runs left. Another user's process is marked by its typed pid alone, a protected
one never. It signals nothing itself: yes closes it with the targets, and whoever pushed it carries them out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec import Struct
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.events import Resize
from textual.screen import ModalScreen
from textual.widgets import Button, Input

from supervisor.core.holder import Holder
from supervisor.errors import SupervisorError
from supervisor.supervise.left_overs import LeftOvers
from supervisor.tui import choice as choices
from supervisor.tui import format_zombies
from supervisor.tui.choice import Choice
from supervisor.tui.pieces import Mask
from supervisor.tui.screens.once import Once
from supervisor.tui.widgets.line import Line
from supervisor.tui.widgets.row_list import RowList

Look = Callable[[], Awaitable[LeftOvers]]


class Chosen(Struct, frozen=True):
    """What yes means: end `targets`; `spared` are all holders of the same look."""

    targets: tuple[Holder, ...]
    spared: tuple[Holder, ...]


class ZombiesScreen(Once, ModalScreen[Chosen | None]):
    """Yes only by `y` or its button, and only while something is marked.

    Args:
        node: what the user calls the node.
        look: a fresh look at who holds its memory.
    """

    BINDINGS = [
        Binding("space", "mark", "mark", id="zombies.mark"),
        Binding("y", "yes", "end what is marked", id="zombies.yes"),
        Binding("n,escape,q,ctrl+c", "no", "leave it", id="zombies.no"),
        Binding("u", "look", "look again", id="zombies.look"),
        Binding("up", "move(-1)", "up", id="zombies.up", show=False),
        Binding("down", "move(1)", "down", id="zombies.down", show=False),
        Binding("pageup", "page(-1)", "page up", id="zombies.page_up", show=False),
        Binding("pagedown", "page(1)", "page down", id="zombies.page_down", show=False),
    ]

    def __init__(self, mask: Mask, *, node: str, look: Look) -> None:
        super().__init__()
        self._mask = mask
        self._node = node
        self._look = look
        self._choice: Choice | None = None
        self._lines: list[choices.Line | None] = []
        self._typed_for: choices.Line | None = None
        self._why = ""
        self._looking = False
        self._heading = Line(mask, id="question")
        self._list = RowList(id="holders-list")
        self._detail = Line(mask, id="holder-detail")
        self._typing = Input(id="typing", compact=True)
        self._plan = Line(mask, id="plan")
        self._hint = Line(mask, id="hint")
        self._hint.pieces = format_zombies.HINT
        self._yes = Button("end them (y)", id="yes", variant="error", compact=True)

    def compose(self) -> ComposeResult:
        """Textual's hook."""
        with Vertical(id="dialog"):
            yield self._heading
            yield self._list
            yield VerticalScroll(self._detail, id="holder-detail-scroll", can_focus=False)
            yield self._typing
            yield self._plan
            with Horizontal(id="answers"):
                yield self._hint
                yield self._yes
                yield Button("leave it (n)", id="no", compact=True)

    def on_mount(self) -> None:
        """Textual's hook: look."""
        self._redraw()
        self._list.focus()
        self.action_look()

    def on_resize(self, _event: Resize) -> None:
        """Textual's hook."""
        self.call_after_refresh(self._redraw)

    # ------------------------------------------------------------------------------- looking

    @work(exclusive=True, group="look")
    async def action_look(self) -> None:
        """Look at the node anew; marks stay on whoever is still there."""
        self._looking = True
        self._redraw()
        try:
            found = await self._look()
        except SupervisorError as error:
            self._why = f"It could not be looked at: {error}"
        else:
            self._why = ""
            self._choice = Choice(found, before=self._choice)
        self._looking = False
        self._stop_typing()
        self._redraw()

    def _redraw(self) -> None:
        found = self._choice.found if self._choice is not None else None
        self._heading.pieces = format_zombies.heading(self._node, found, self._why, self._width, looking=self._looking)
        if self._choice is not None:
            rows, headings, self._lines = format_zombies.lines(self._choice, self._mask, self._width)
            self._list.show(rows, headings)
        self._plan.pieces = format_zombies.plan(self._choice, self._mask, self._width)
        self._yes.disabled = self._choice is None or not self._choice.targets
        self._redraw_detail()

    def _redraw_detail(self) -> None:
        self._detail.pieces = format_zombies.detail(self._line, self._choice, self._mask, self._width)

    @property
    def _width(self) -> int:
        return max(40, self._list.size.width or self.size.width - 8)

    @property
    def _line(self) -> choices.Line | None:
        """The holder that the cursor stands on."""
        at = self._list.cursor
        return self._lines[at] if 0 <= at < len(self._lines) else None

    # ------------------------------------------------------------------------------- choosing

    def on_row_list_moved(self) -> None:
        """The list's message: the cursor stands elsewhere."""
        self._redraw_detail()

    def on_row_list_entered(self) -> None:
        """The list's message: a second click marks."""
        self.action_mark()

    def action_move(self, steps: int) -> None:
        """Move the cursor."""
        self._list.move(steps)

    def action_page(self, pages: int) -> None:
        """Move the cursor by a page."""
        self._list.page(pages)

    def action_mark(self) -> None:
        """Mark the chosen line or take its mark away; of another user's process the pid is asked for first."""
        choice, line = self._choice, self._line
        if choice is None or line is None:
            return
        if line.why_not:
            self.app.bell()
        elif line.by_hand and not choice.is_marked(line):
            self._typed_for = line
            self._typing.value = ""
            self._typing.placeholder = format_zombies.typing(line)
            self._typing.add_class("-shown")
            self._typing.focus()
        else:
            choice.mark(line, not choice.is_marked(line))
            self._redraw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Textual's hook: the pid was typed."""
        line, typed = self._typed_for, event.value.strip()
        self._stop_typing()
        if line is None or self._choice is None:
            return
        if typed == str(line.holder.pid):
            self._choice.mark(line, True)
            self._why = ""
        else:
            self._why = f"That was not the pid {line.holder.pid}: it is not marked."
        self._redraw()

    def _stop_typing(self) -> None:
        self._typed_for = None
        self._typing.remove_class("-shown")
        self._list.focus()

    # ------------------------------------------------------------------------------- the answer

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Textual's hook."""
        if event.button.id == "yes":
            self.action_yes()
        else:
            self.action_no()

    def action_yes(self) -> None:
        """Close with what is marked."""
        choice = self._choice
        if choice is not None and choice.targets and self._typed_for is None:
            self.dismiss(Chosen(choice.targets, choice.found.holders))

    def action_no(self) -> None:
        """Close with nothing; while a pid is typed: type it not."""
        if self._typed_for is not None:
            self._stop_typing()
        else:
            self.dismiss(None)
