"""The log: follows, pauses, searches, filters, jumps. A window on a `LogBook` of any size.

The screen sets `book`, `marks` and `path`, and calls `refresh_log()` after each batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from textual import events
from textual.actions import SkipAction
from textual.message import Message

from supervisor.core.log_search import BadPatternError, Query
from supervisor.tui.log_keys import KEYS
from supervisor.tui.widgets.log_looking import LookedThrough


class LogPane(LookedThrough):
    """Rows of a log, and a bar at its foot. Every key calls the method that is named in its binding."""

    BINDINGS = KEYS

    class Open(Message):
        """The log is to be opened in a pager or an editor at a line: `tui/outside.py` does it for a screen."""

        def __init__(self, pane: LogPane, line_no: int, *, editor: bool) -> None:
            super().__init__()
            self.pane = pane
            self.line_no = line_no
            self.editor = editor

    def __init__(self, mask: Callable[[str], str], *, id: str | None = None) -> None:
        super().__init__(mask, take_key=self._take_key, owner=self, id=id)
        self._before: tuple[int, bool] = (1, True)  # where the view was when the bar was opened

    def focus(self, scroll_visible: bool = True) -> Self:
        """Textual's method: the keys go to the rows."""
        self._lines.focus(scroll_visible)
        return self

    # ------------------------------------------------------------------------------- looking

    def next_match(self) -> None:
        """Down to the next match, round the end to the first. Begins a search where there is none."""
        self._next_match(down=True)

    def previous_match(self) -> None:
        """Up to the match before, round the start to the last. Begins a search where there is none."""
        self._next_match(down=False)

    def _next_match(self, *, down: bool) -> None:
        if self._hunt.search is None:
            self.open_bar("search")
        else:
            self.go_to_match(down=down)

    def leave(self) -> None:
        """End what was begun last: the mouse's selection, the selection, the search or the filter.

        Where nothing was begun the key is the screen's, which may go back to the one below.
        """
        if self._lines.text_selection is not None:
            self.screen.clear_selection()
        elif self.view.unselect():
            self._show()
        elif self._hunt.newest:
            self._end(self._hunt.newest)
        else:
            raise SkipAction

    # ------------------------------------------------------------------------------- moving

    def follow(self) -> None:
        """Keep the newest line in sight."""
        self.following = True

    def toggle_following(self) -> None:
        """Follow, or pause."""
        self.following = not self.following

    def go_to(self, line_no: int) -> None:
        """Show this line as the current one; a filter that leaves it out ends."""
        filtered = self._hunt.filter
        if filtered is not None and line_no not in filtered.hits:
            self._end("filter")
        self.view.go_to(line_no)
        self._show()

    def next_mark(self) -> None:
        """Down to where the next phase began."""
        self._go_to_mark(down=True)

    def previous_mark(self) -> None:
        """Up to where the phase before began."""
        self._go_to_mark(down=False)

    def _go_to_mark(self, *, down: bool) -> None:
        mark = self.view.next_mark(down=down)
        if mark is not None:
            self.view.go_to(mark.line_no)
            self._show()

    def toggle_wrap(self) -> None:
        """Long lines in several rows, or cut at the edge."""
        self.view.wrap = not self.view.wrap
        self.view.pan = 0
        self._show()

    def scroll_rows(self, rows: int) -> None:
        """Up (negative) pauses, down to the end follows again."""
        self.view.scroll(rows)
        self.refresh_log()

    def scroll_pages(self, pages: int) -> None:
        """By a screen less one row."""
        self.scroll_rows(pages * max(1, self.view.height - 1))

    def to_start(self) -> None:
        """The log's first line."""
        self.view.to_start()
        self.refresh_log()

    def pan(self, steps: int) -> None:
        """Sideways by half a screen a step: by single columns nobody reaches the end of a long line."""
        self.view.pan_by(steps)
        self._show()

    # ------------------------------------------------------------------------------- selection

    def pick(self) -> None:
        """Take the current line into the selection or out of it, and go on to the next."""
        self.view.pick()
        self._show()

    def extend(self, step: int) -> None:
        """Select a line further, up (negative) or down."""
        self.view.extend(down=step > 0)
        self._show()

    def selected_text(self) -> str:
        """What the mouse or the keys have selected, else the current line; empty where there is neither."""
        selection = self._lines.text_selection
        if selection is not None and (found := self._lines.get_selection(selection)) is not None:
            return found[0]
        return "\n".join(self.view.lines.shown(line).text for line in self.view.selected_lines())

    def copy(self) -> int:
        """Put `selected_text()` on the clipboard; returns how many lines, 0 where nothing is selected."""
        text = self.selected_text()
        if not text:
            return 0
        self.app.copy_to_clipboard(text)
        return text.count("\n") + 1

    def open(self, editor: bool) -> None:
        """Ask the screen to open the log in another program, at the line that is looked at."""
        self.post_message(self.Open(self, self.view.looked_at(), editor=editor))

    # ------------------------------------------------------------------------------- the bar

    def open_bar(self, purpose: str) -> None:
        """Type what is searched (`search`), filtered (`filter`) or gone to (`line`)."""
        finder = {"search": self._hunt.search, "filter": self._hunt.filter}.get(purpose)
        query = finder.matcher.query if finder is not None else Query()
        self._before = (self.view.place.line_no, self.view.following)
        self._bar.open(purpose, query.text, regex=query.regex)

    def typed(self, purpose: str, text: str, *, regex: bool, done: bool) -> None:
        """The bar: something was typed."""
        try:
            problem = self._take_typed(purpose, text, regex=regex, done=done)
        except BadPatternError as error:
            problem = f"no regular expression: {error}"
        if problem:
            self._bar.set_status(problem, bad=True)
        elif done:
            self._close_bar()

    def _take_typed(self, purpose: str, text: str, *, regex: bool, done: bool) -> str:
        """Do what was typed; what is wrong with it, else nothing."""
        if purpose == "search":
            known = self._hunt.search
            if known is None or known.matcher.query != Query(text, regex=regex):
                line_no, following = self._before  # each letter searches from where it began
                self.view.back_to(line_no, following=following)
                self.search(text, regex=regex)
        elif purpose == "filter":
            self._bar.set_status("")
            self.filter(text, self.level, regex=regex)
        elif done:
            digits = text.strip().replace(",", "")[:18]
            if not digits.isascii() or not digits.isdigit():
                return "a line's number is wanted"
            self.go_to(int(digits))
        return ""

    def cancelled(self, purpose: str) -> None:
        """The bar: escape. What was typed is taken back."""
        self._close_bar()
        if purpose != "line":
            self._end(purpose)
        if purpose == "search":
            line_no, following = self._before
            self.view.back_to(line_no, following=following)
        self._show()

    def asked(self, what: str) -> None:
        """The bar: a key that is about the log."""
        if what == "level":
            self.next_level()
        else:
            self.go_to_match(down=what == "next")

    def _close_bar(self) -> None:
        self._bar.close()
        self._bar.set_status("")
        self._tell()
        self.screen.set_focus(self._lines)

    # ------------------------------------------------------------------------------- keys

    async def _take_key(self, event: events.Key) -> bool:
        """A key of the rows: the bar's where it has just opened, else one of ours."""
        if self._bar.purpose:
            self._bar.type(event)
            return True
        active = self.screen.active_bindings.get(event.key)
        if active is None or active.node is not self or not active.enabled:
            return False
        return await self.app.run_action(active.binding.action, self)

    def give_back(self, event: events.Key) -> None:
        """The bar: a key that came when it was closed already."""
        self._lines.post_message(events.Key(event.key, event.character))

    def action_log(self, method: str, *arguments: object) -> None:
        """Textual's hook: a key."""
        getattr(self, method)(*arguments)
