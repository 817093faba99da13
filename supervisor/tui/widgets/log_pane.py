"""The log: follows, pauses, searches, filters, jumps. A window on a `LogBook` of any size.

The screen sets `book`, `marks` and `path`, and calls `refresh_log()` after each batch; nothing is drawn or read without
that, or without a key. What is shown is decided in `log_view.py`, what is looked for in `log_hunt.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Self

import msgspec
from textual import events
from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.worker import Worker

from supervisor.adapters.time_limit import within
from supervisor.core.log_book import LogBook
from supervisor.core.log_finder import Seek
from supervisor.core.log_levels import Level
from supervisor.core.log_search import BadPatternError, Query
from supervisor.tui import log_words
from supervisor.tui.log_hunt import Hunt
from supervisor.tui.log_keys import KEYS
from supervisor.tui.log_view import LogView, MarkedLine
from supervisor.tui.slices import first_slice, in_slices
from supervisor.tui.widgets.find_bar import FindBar
from supervisor.tui.widgets.log_lines import LogLines

PATTERN_S = 0.02
"""A pattern that takes longer than this on one line is left out there."""
FETCHED_BYTES = 16 << 20
"""So much older log is fetched before it is looked through."""
KEYS_OF = {"search": "n next, N previous, esc ends", "errors": "e next, E previous, esc ends"}
TELL_EVERY_S = 0.15
"""How often work in the background says how far it is."""


class LogPane(Vertical):
    """Rows of a log, and a bar at its foot. Every key calls the method that is named in its binding."""

    BINDINGS = KEYS

    class Open(Message):
        """The log is to be opened in a pager or an editor at a line: `tui/outside.py` does it for a screen."""

        def __init__(self, pane: LogPane, line_no: int, *, editor: bool) -> None:
            super().__init__()
            self.pane = pane
            self.line_no = line_no
            self.editor = editor

    book: reactive[LogBook | None] = reactive(None)
    path: reactive[str] = reactive("")
    """What stands in the upper border behind "log"."""

    def __init__(self, mask: Callable[[str], str], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.view = LogView(mask)
        self.mask = mask
        self._hunt = Hunt(mask, within(PATTERN_S))
        self._lines = LogLines(self.view, self._take_key)
        self._bar = FindBar(self)
        self._before: tuple[int, bool] = (1, True)  # where the view was when the bar was opened
        self._looking: Worker[None] | None = None
        self._told_at = 0.0
        self._fetching = False

    def compose(self) -> ComposeResult:
        """Textual's hook."""
        yield self._lines
        yield self._bar

    def on_mount(self) -> None:
        """Textual's hook."""
        self.watch_path(self.path)
        self.refresh_log()

    def focus(self, scroll_visible: bool = True) -> Self:
        """Textual's method: the keys go to the rows."""
        self._lines.focus(scroll_visible)
        return self

    # ------------------------------------------------------------------------------- what the screen sets

    def watch_book(self, book: LogBook | None) -> None:
        """Textual's hook: another log."""
        self._hunt.open(book)
        self._lines.spans = None
        self.view.open(book)
        self._show()

    def watch_path(self, path: str) -> None:
        """Textual's hook: `path` changed."""
        self.border_title = Content(self.mask(f"log {path}".strip())).markup

    @property
    def marks(self) -> Sequence[MarkedLine]:
        """Where phases began, in the order of the log: drawn as rules over their lines at the next `refresh_log()`."""
        return self.view.marks

    @marks.setter
    def marks(self, marks: Sequence[MarkedLine]) -> None:
        self.view.marks = marks

    @property
    def following(self) -> bool:
        """The newest line is kept in sight."""
        return self.view.following

    @following.setter
    def following(self, following: bool) -> None:
        if following:
            self.view.follow()
        else:
            self.view.pause()
        self.refresh_log()

    def refresh_log(self) -> None:
        """The book or the marks may have changed: show it. Cheap where nothing has."""
        self._show(restyle=False)

    def _show(self, *, restyle: bool = True) -> None:
        if not self.is_mounted:
            return
        if self.view.begins_anew():
            self._hunt.begin_anew()
            if (filtered := self._hunt.filter) is not None:
                self.view.lines.show_only(filtered.hits, filtered.matcher)
        self._lines.show(restyle=restyle)
        self._hunt.look_at_gaps(self._lines.in_sight())
        self._tell()
        if not self._hunt.complete and (self._looking is None or not self._looking.is_running):
            self._looking = self.run_worker(self._look, group="log-look", exclusive=True)

    def on_log_lines_moved(self, event: LogLines.Moved) -> None:
        """The rows' message: scrolled or clicked."""
        event.stop()
        self._tell()

    def _tell(self) -> None:
        view, query, filtered = self.view, self._hunt.query, self._hunt.filter
        text = log_words.subtitle(
            following=view.following,
            new_lines=view.new_lines,
            lines=max(0, view.lines.last - view.lines.first + 1),
            passing=view.lines.count if filtered is not None else None,
            passing_as=log_words.filter_name(query.text, query.level),
            fraction=1.0 if filtered is None else filtered.fraction,
            lost_lines=self.book.lost_lines if self.book is not None else 0,
        )
        if text != self.border_subtitle:
            self.border_subtitle = text
        standing = self._hunt.standing(view.current, fetching=self._fetching)
        if standing is not None and self._bar.purpose in ("", self._hunt.walk):
            if self._bar.purpose:
                self._bar.set_status(log_words.standing(msgspec.structs.replace(standing, text="")))
            else:
                self._bar.set_status(log_words.standing(standing, KEYS_OF[self._hunt.walk]))

    # ------------------------------------------------------------------------------- work in slices

    async def _look(self) -> None:
        await in_slices(self._hunt.step, self._looked)

    def _looked(self) -> None:
        now = perf_counter()
        if now - self._told_at >= TELL_EVERY_S or self._hunt.complete:
            self._told_at = now
            if self._hunt.filter is not None:
                self._lines.show()
            self._tell()

    def _go(self, line_no: int, *, down: bool) -> None:
        seek = self._hunt.seek(line_no, down=down)
        if seek is None:
            return
        # What is known is gone to at once: the next key may go on from there.
        if first_slice(seek.step):
            _: Worker[None] = self.run_worker(partial(self._seek, seek, down), group="log-seek", exclusive=True)
        else:
            self._arrive(seek, down)

    async def _seek(self, seek: Seek, down: bool) -> None:
        await in_slices(seek.step)
        self._arrive(seek, down)

    def _arrive(self, seek: Seek, down: bool) -> None:
        self._hunt.passed = ("end" if down else "start") if seek.found is not None and seek.wrapped else ""
        if seek.found is not None:
            spans = self._lines.spans(self.view.lines.shown(seek.found).text) if self._lines.spans is not None else []
            self.view.go_to(seek.found, spans[0][0] if spans and self._hunt.walk == "search" else 0)
        self._show()

    def fetch_older(self) -> None:
        """Bring older lines that lie on the node alone, and look there too. Escape ends it with the search."""
        _: Worker[None] = self.run_worker(self._fetch_older, group="log-fetch", exclusive=True)

    async def _fetch_older(self) -> None:
        book, missing = self.book, self._hunt.look_at_gaps()
        self._fetching = True
        try:
            while book is not None and missing is not None:
                self._tell()
                all_there = await book.fetch_before(missing, at_most_bytes=FETCHED_BYTES)
                before, missing = missing, self._hunt.look_at_gaps()
                await in_slices(self._hunt.step)  # at once: the book may let it go again for newer bytes
                if all_there or missing == before:
                    break
        finally:
            self._fetching = False
            self._show()
        if not self._hunt.stands_on(self.view.current):
            self._go(self.view.here(down=False), down=False)

    # ------------------------------------------------------------------------------- search, errors, filter

    def search(self, text: str, *, regex: bool = False) -> None:
        """Search: highlight, count, and show the nearest match. An empty text ends the search.

        Raises `BadPatternError` for what is no regular expression.
        """
        finder = self._hunt.look_for(Query(text, regex=regex))
        if finder is None:
            self._end("search")
            return
        self._lines.spans = finder.matcher.spans
        self._show()
        # Whoever follows reads the end: the newest match. Whoever reads elsewhere: the next one from there.
        if self.view.following:
            self._go(self.view.lines.last + 1, down=False)
        else:
            self._go(self.view.place.line_no - 1, down=True)

    def next_match(self) -> None:
        """Down to the next match, round the end to the first. Begins a search where there is none."""
        self._next_match(down=True)

    def previous_match(self) -> None:
        """Up to the match before, round the start to the last. Begins a search where there is none."""
        self._next_match(down=False)

    def _next_match(self, *, down: bool) -> None:
        if self._hunt.search is None:
            self.open_bar("search")
            return
        self._hunt.begin("search")
        self._go(self.view.here(down=down), down=down)

    def next_error(self) -> None:
        """Down to the next error; a traceback is one."""
        if self._hunt.walk_errors() is not None:
            self._go(self.view.here(down=True), down=True)

    def previous_error(self) -> None:
        """Up to the error before."""
        if self._hunt.walk_errors() is not None:
            self._go(self.view.here(down=False), down=False)

    def filter(self, text: str = "", level: Level = Level.ALL, *, regex: bool = False) -> None:
        """Show only lines with this text, at least so bad. Nothing shows all again.

        Raises `BadPatternError` for what is no regular expression.
        """
        finder = self._hunt.show_only(Query(text, regex=regex, level=level))
        if finder is None:
            self._end("filter")
        else:
            self.view.lines.show_only(finder.hits, finder.matcher)
            self._show()

    @property
    def level(self) -> Level:
        """How bad a line must be to be shown."""
        return self._hunt.query.level

    def next_level(self) -> None:
        """All lines, warnings and errors, errors, all lines …"""
        query = self._hunt.query
        self.filter(query.text, Level((query.level + 1) % len(Level)), regex=query.regex)

    def _end(self, name: str) -> None:
        walked = self._hunt.walk == name
        self._hunt.end(name)
        if name == "search":
            self._lines.spans = None
        elif name == "filter":
            self.view.show_all()
        if walked:
            self._bar.set_status("")
        self._show()

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
        elif self._hunt.search is not None:
            self._next_match(down=what == "next")

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
