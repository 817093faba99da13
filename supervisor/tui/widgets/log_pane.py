"""The log: follows, pauses, searches, filters, jumps. A window on a `LogBook` of any size.

The screen sets `book`, `marks` and `path`, and calls `refresh_log()` after each batch; nothing is drawn or read without
that, or without a key. What is shown is decided in `log_view.py`, what is found in `core/log_finder.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Self

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.worker import Worker

from supervisor.adapters.time_limit import within
from supervisor.core.log_book import LogBook
from supervisor.core.log_finder import Finder, Seek
from supervisor.core.log_levels import Level
from supervisor.core.log_search import BadPatternError, Matcher, Query
from supervisor.tui import log_words
from supervisor.tui.log_view import LogView, MarkedLine
from supervisor.tui.slices import in_slices
from supervisor.tui.widgets.find_bar import FindBar
from supervisor.tui.widgets.log_lines import LogLines

PATTERN_S = 0.05
"""A pattern that takes longer than this on one line is left out there."""
TELL_EVERY_S = 0.15
"""How often work in the background says how far it is."""
COUNTED = 200_000
"""Errors are numbered up to this many lines of them."""


class LogPane(Vertical):
    """Rows of a log, and a bar at its foot."""

    BINDINGS = [
        Binding("slash", "search", "search", id="log.search"),
        Binding("n", "next_match", "next match", id="log.next_match", show=False),
        Binding("N", "previous_match", "previous match", id="log.previous_match", show=False),
        Binding("ampersand", "filter", "show only lines with", id="log.filter", show=False),
        Binding("L", "level", "all lines, warnings and errors, errors", id="log.level", show=False),
        Binding("e", "next_error", "errors", id="log.next_error"),
        Binding("E", "previous_error", "previous error", id="log.previous_error", show=False),
        Binding("m", "next_mark", "next phase", id="log.next_mark", show=False),
        Binding("M", "previous_mark", "previous phase", id="log.previous_mark", show=False),
        Binding("colon", "go_to", "go to a line", id="log.line", show=False),
        Binding("w", "toggle_wrap", "wrap long lines", id="log.wrap", show=False),
        Binding("f", "follow", "follow", id="log.follow"),
        Binding("o", "open", "open in the pager", id="log.open", show=False),
        Binding("O", "open('editor')", "open in the editor", id="log.edit", show=False),
        Binding("space", "pick", "select the line", id="log.pick", show=False),
        Binding("shift+up", "extend(-1)", "select upwards", id="log.select_up", show=False),
        Binding("shift+down", "extend(1)", "select downwards", id="log.select_down", show=False),
        Binding("escape", "leave", "end the search, show all", id="log.leave", show=False),
        Binding("up", "scroll(-1)", "log up", id="log.up", show=False),
        Binding("down", "scroll(1)", "log down", id="log.down", show=False),
        Binding("pageup", "page(-1)", "log page up", id="log.page_up", show=False),
        Binding("pagedown", "page(1)", "log page down", id="log.page_down", show=False),
        Binding("home", "start", "log start", id="log.start", show=False),
        Binding("end", "end", "log end", id="log.end", show=False),
        Binding("left", "pan(-1)", "log left", id="log.left", show=False),
        Binding("right", "pan(1)", "log right", id="log.right", show=False),
    ]

    class Open(Message):
        """The log is to be opened in a pager or an editor, at a line. The screen does it: `tui/outside.py`."""

        def __init__(self, line_no: int, *, editor: bool) -> None:
            super().__init__()
            self.line_no = line_no
            self.editor = editor

    book: reactive[LogBook | None] = reactive(None)
    path: reactive[str] = reactive("")
    """What stands in the upper border behind "log"."""

    def __init__(self, mask: Callable[[str], str], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.view = LogView(mask)
        self._mask = mask
        self._lines = LogLines(self.view)
        self._bar = FindBar()
        self._guard = within(PATTERN_S)
        self._search: Finder | None = None
        self._filter: Finder | None = None
        self._errors: Finder | None = None
        self._ends: list[str] = []
        """What escape ends, the newest last."""
        self._walk = ""
        """What the bar tells of: `search` or `errors`."""
        self._wrapped = ""
        self._before: tuple[int, bool] = (1, True)
        self._finding: Worker[None] | None = None
        self._told_at = 0.0

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
        self._search = self._filter = self._errors = None
        self._ends.clear()
        self._walk = ""
        self._lines.spans = None
        self.view.open(book)
        self.refresh_log()

    def watch_path(self, path: str) -> None:
        """Textual's hook: `path` changed."""
        self.border_title = Content(self._mask(f"log {path}".strip())).markup

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
        """The book, the marks or the view may have changed: show it. Cheap where nothing has."""
        if not self.is_mounted:
            return
        self._lines.show()
        self._tell()
        self._look_on()

    def _restyle(self) -> None:
        self._lines.show(restyle=True)
        self._tell()
        self._look_on()

    def on_log_lines_moved(self, event: LogLines.Moved) -> None:
        """The rows' message: scrolled or clicked."""
        event.stop()
        self._tell()

    def _tell(self) -> None:
        view, book = self.view, self.book
        lines = max(0, view.last_line - view.first_line + 1)
        filtered = self._filter
        text = log_words.subtitle(
            following=view.following,
            new_lines=view.new_lines,
            lines=lines,
            passing=view.count if filtered is not None else None,
            passing_as="" if filtered is None else _name(filtered),
            fraction=1.0 if filtered is None else filtered.fraction,
            lost_lines=book.lost_lines if book is not None else 0,
        )
        if text != self.border_subtitle:
            self.border_subtitle = text
        if (self._walk and not self._bar.typing) or self._walk == "search":
            self._tell_walk()

    # ------------------------------------------------------------------------------- looking in the background

    def _finders(self) -> list[Finder]:
        return [finder for finder in (self._filter, self._search, self._errors) if finder is not None]

    def _look_on(self) -> None:
        """Lines have come that a search or a filter has not seen, or one has begun."""
        if self._finding is not None and self._finding.is_running:
            return
        if any(not finder.complete for finder in self._finders()):
            self._finding = self.run_worker(self._find(), group="log-find", exclusive=True)

    async def _find(self) -> None:
        await in_slices(self._find_step, self._found_more)

    def _find_step(self) -> bool:
        return any(finder.step() for finder in self._finders())

    def _found_more(self) -> None:
        now = perf_counter()
        if now - self._told_at >= TELL_EVERY_S or all(finder.complete for finder in self._finders()):
            self._told_at = now
            if self._filter is not None:
                self._lines.show()
            self._tell()

    # ------------------------------------------------------------------------------- search

    def search(self, text: str, *, regex: bool = False) -> None:
        """Search: highlight, count, and show the nearest match. An empty text ends the search.

        Raises `BadPatternError` for what is no regular expression.
        """
        if not text or self.book is None:
            self._end_search()
            return
        matcher = Matcher(Query(text, regex=regex), self._guard)
        if self._search is None or self._search.matcher.query != matcher.query:
            self._search = Finder(self.book, matcher, self._mask)
            self._lines.spans = matcher.spans
            self._begin("search")
        self._restyle()
        # Whoever follows reads the end: the newest match. Whoever reads elsewhere: the next one from there.
        if self.view.following:
            self._go_from(self.view.last_line + 1, down=False)
        else:
            self._go_from(self.view.place.line_no - 1, down=True)

    def next_match(self) -> None:
        """Down to the next match, round the end to the first."""
        self._go(self._search, down=True, walk="search")

    def previous_match(self) -> None:
        """Up to the match before, round the start to the last."""
        self._go(self._search, down=False, walk="search")

    def next_error(self) -> None:
        """Down to the next error; a traceback is one."""
        self._go(self._all_errors(), down=True, walk="errors")

    def previous_error(self) -> None:
        """Up to the error before."""
        self._go(self._all_errors(), down=False, walk="errors")

    def _all_errors(self) -> Finder | None:
        if self._errors is None and self.book is not None:
            self._errors = Finder(self.book, Matcher(Query(level=Level.ERROR)), self._mask)
        return self._errors

    def _go(self, finder: Finder | None, *, down: bool, walk: str) -> None:
        if finder is None:
            return
        if walk != self._walk or walk not in self._ends:
            self._begin(walk)
        view = self.view
        if view.current is not None and view.sees(view.current):
            here = view.current
        elif view.following:
            here = view.last_line + 1  # what is read is the end
        else:
            here = view.place.line_no - 1 if down else view.place.line_no
        self._go_from(here, down=down)

    def _go_from(self, line_no: int, *, down: bool) -> None:
        finder = self._errors if self._walk == "errors" else self._search
        if finder is not None:
            seek = Seek(finder, line_no, down=down, heads=self._walk == "errors")
            self.run_worker(self._seek(seek, down), group="log-seek", exclusive=True)

    async def _seek(self, seek: Seek, down: bool) -> None:
        await in_slices(seek.step)
        self._wrapped = ("end" if down else "start") if seek.found is not None and seek.wrapped else ""
        if seek.found is not None:
            self.view.go_to(seek.found)
        self._restyle()

    def _begin(self, walk: str) -> None:
        self._walk, self._wrapped = walk, ""
        if walk in self._ends:
            self._ends.remove(walk)
        self._ends.append(walk)

    def _tell_walk(self) -> None:
        finder = self._errors if self._walk == "errors" else self._search
        if finder is None:
            return
        heads = self._walk == "errors"
        hits, current = finder.hits, self.view.current
        number: int | None = None
        count = len(hits)
        if heads and count <= COUNTED:
            firsts = [line for line in hits if line - 1 not in hits]
            count = len(firsts)
            number = firsts.index(current) + 1 if current in firsts else None
        elif not heads and current is not None and current in hits:
            number = hits.rank(current) + 1
        now = log_words.Standing(
            noun="error" if heads else "match",
            nouns="errors" if heads else "matches",
            number=number,
            count=count,
            fraction=finder.fraction,
            unseen_lines=finder.unseen_lines,
            slow_lines=finder.matcher.slow_lines,
            given_up=finder.matcher.too_slow,
            wrapped=self._wrapped,
        )
        self._bar.set_status(log_words.standing(now))

    def _end_search(self) -> None:
        self._search = self._lines.spans = None
        self._drop("search")
        self._restyle()

    def _drop(self, walk: str) -> None:
        if walk in self._ends:
            self._ends.remove(walk)
        if self._walk == walk:
            self._walk = ""
            self._bar.set_status("")

    # ------------------------------------------------------------------------------- filter

    def filter(self, text: str = "", level: Level = Level.ALL, *, regex: bool = False) -> None:
        """Show only lines with this text, at least so bad. Nothing shows all again.

        Raises `BadPatternError` for what is no regular expression.
        """
        query = Query(text, regex=regex, level=level)
        if query.empty or self.book is None:
            self._filter = None
            self.view.show_all()
            if "filter" in self._ends:
                self._ends.remove("filter")
            if self.view.current is not None and not self.view.following:
                self.view.go_to(self.view.current)
        elif self._filter is None or self._filter.matcher.query != query:
            self._filter = Finder(self.book, Matcher(query, self._guard), self._mask)
            self.view.show_only(self._filter.hits, self._filter.matcher)
            if "filter" not in self._ends:
                self._ends.append("filter")
        self._restyle()

    @property
    def level(self) -> Level:
        """How bad a line must be to be shown."""
        return self._filter.matcher.query.level if self._filter is not None else Level.ALL

    def next_level(self) -> None:
        """All lines, warnings and errors, errors, all lines …"""
        query = self._filter.matcher.query if self._filter is not None else Query()
        self.filter(query.text, Level((query.level + 1) % len(Level)), regex=query.regex)

    # ------------------------------------------------------------------------------- moving

    def go_to(self, line_no: int) -> None:
        """Show this line; where a filter leaves it out, the filter ends."""
        if self._filter is not None and line_no not in self._filter.hits:
            self.filter()
        self.view.go_to(line_no)
        self._restyle()

    def next_mark(self) -> None:
        """Down to where the next phase began."""
        self._go_to_mark(down=True)

    def previous_mark(self) -> None:
        """Up to where the phase before began."""
        self._go_to_mark(down=False)

    def _go_to_mark(self, *, down: bool) -> None:
        if (mark := self.view.next_mark(down=down)) is not None:
            self.view.go_to(mark.line_no)
            self._restyle()

    def toggle_wrap(self) -> None:
        """Long lines in several rows, or cut at the edge."""
        self.view.wrap = not self.view.wrap
        self.view.pan = 0
        self._restyle()

    def scroll_rows(self, rows: int) -> None:
        """Up (negative) pauses, down to the end follows again."""
        self.view.scroll(rows)
        self.refresh_log()

    def pan(self, steps: int) -> None:
        """Sideways by half a screen a step: by single columns nobody reaches the end of a long line."""
        self.view.pan_by(steps)
        self._restyle()

    # ------------------------------------------------------------------------------- selection

    def selected_text(self) -> str:
        """What the mouse or the keys have selected, else the current line; empty where there is neither."""
        selection = self._lines.text_selection
        if selection is not None and (found := self._lines.get_selection(selection)) is not None:
            return found[0]
        lines = self.view.selected_lines()
        if not lines and self.view.current is not None:
            lines = [self.view.current]
        return "\n".join(self.view.text_of(line) for line in lines)

    def copy(self) -> int:
        """Put the selection on the clipboard; returns how many lines, 0 where nothing is selected."""
        text = self.selected_text()
        if not text:
            return 0
        self.app.copy_to_clipboard(text)
        return text.count("\n") + 1

    # ------------------------------------------------------------------------------- the bar

    def open_bar(self, purpose: str) -> None:
        """Type what is searched (`search`), filtered (`filter`) or gone to (`line`)."""
        finder = {"search": self._search, "filter": self._filter}.get(purpose)
        query = finder.matcher.query if finder is not None else Query()
        self._before = (self.view.place.line_no, self.view.following)
        self._bar.open(purpose, query.text, regex=query.regex)

    def on_find_bar_edited(self, event: FindBar.Edited) -> None:
        """The bar's message: something was typed."""
        event.stop()
        try:
            if event.purpose == "search":
                self._bar.set_status("")
                self.search(event.text, regex=event.regex)
            elif event.purpose == "filter":
                self._bar.set_status("")
                self.filter(event.text, self.level, regex=event.regex)
            elif event.done and not self._go_to_typed(event.text):
                return
        except BadPatternError as error:
            self._bar.set_status(f"no regular expression: {error}", bad=True)
            return
        if event.done:
            self._bar.close()
            self._lines.focus()

    def _go_to_typed(self, text: str) -> bool:
        digits = text.strip().replace(",", "")
        if not digits.isascii() or not digits.isdigit():
            self._bar.set_status("a line's number is wanted", bad=True)
            return False
        self.go_to(int(digits[:18]))
        return True

    def on_find_bar_cancelled(self, event: FindBar.Cancelled) -> None:
        """The bar's message: escape. What was typed is taken back."""
        event.stop()
        self._bar.close()
        if event.purpose == "search":
            self._end_search()
            line_no, following = self._before
            self.view.current = None
            if following:
                self.view.follow()
            else:
                self.view.to_index(self.view.index(line_no))
        elif event.purpose == "filter":
            self.filter()
        self._bar.set_status("")
        self._restyle()
        self._lines.focus()

    def on_find_bar_asked(self, event: FindBar.Asked) -> None:
        """The bar's message: a key that is about the log."""
        event.stop()
        {"next": self.next_match, "previous": self.previous_match, "level": self.next_level}[event.what]()

    # ------------------------------------------------------------------------------- keys

    def action_search(self) -> None:
        """Type what is searched."""
        self.open_bar("search")

    def action_filter(self) -> None:
        """Type what is shown alone."""
        self.open_bar("filter")

    def action_go_to(self) -> None:
        """Type a line's number."""
        self.open_bar("line")

    def action_level(self) -> None:
        """The next level."""
        self.next_level()

    def action_next_match(self) -> None:
        """The next match; begins a search where there is none."""
        if self._search is None:
            self.open_bar("search")
        else:
            self.next_match()

    def action_previous_match(self) -> None:
        """The match before; begins a search where there is none."""
        if self._search is None:
            self.open_bar("search")
        else:
            self.previous_match()

    def action_next_error(self) -> None:
        """The next error."""
        self.next_error()

    def action_previous_error(self) -> None:
        """The error before."""
        self.previous_error()

    def action_next_mark(self) -> None:
        """The next phase."""
        self.next_mark()

    def action_previous_mark(self) -> None:
        """The phase before."""
        self.previous_mark()

    def action_toggle_wrap(self) -> None:
        """Wrap or cut."""
        self.toggle_wrap()

    def action_follow(self) -> None:
        """Follow, or pause."""
        self.following = not self.following

    def action_open(self, how: str = "pager") -> None:
        """Ask the screen to open the log at the line that is looked at."""
        view = self.view
        line = view.current if view.current is not None and view.sees(view.current) else view.place.line_no
        self.post_message(self.Open(line, editor=how == "editor"))

    def action_pick(self) -> None:
        """Select the current line, go on to the next."""
        self.view.pick()
        self._restyle()

    def action_extend(self, step: int) -> None:
        """Select a line further."""
        self.view.extend(down=step > 0)
        self._restyle()

    def action_leave(self) -> None:
        """End what was begun last: the selection, the search, the filter."""
        if self._lines.text_selection is not None:
            self.screen.clear_selection()
        elif self.view.unselect():
            pass
        elif self._ends:
            last = self._ends[-1]
            if last == "filter":
                self.filter()
            elif last == "search":
                self._end_search()
            else:
                self._drop(last)
        self._restyle()

    def action_scroll(self, rows: int) -> None:
        """Row by row."""
        self.scroll_rows(rows)

    def action_page(self, pages: int) -> None:
        """A screen less one row."""
        self.scroll_rows(pages * max(1, self.view.height - 1))

    def action_start(self) -> None:
        """The log's first line."""
        self.view.to_start()
        self.refresh_log()

    def action_end(self) -> None:
        """The log's end."""
        self.following = True

    def action_pan(self, steps: int) -> None:
        """Sideways."""
        self.pan(steps)


def _name(finder: Finder) -> str:
    query = finder.matcher.query
    return log_words.filter_name(query.text, query.level)
