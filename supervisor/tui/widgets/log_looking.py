"""The log shown and looked through: rows, borders, search, errors and filter, with their work in the background.

`LogPane` adds the keys, the bar and the moving about. What is shown is decided in `log_view.py`, what is looked for in
`log_hunt.py`; nothing is drawn or read but when somebody calls.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from time import perf_counter

import msgspec
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.reactive import reactive
from textual.worker import Worker

from supervisor.adapters.time_limit import within
from supervisor.core.log_book import LogBook
from supervisor.core.log_finder import Seek
from supervisor.core.log_levels import Level
from supervisor.core.log_search import Query
from supervisor.tui import log_words
from supervisor.tui.hints import USUAL_HINTS
from supervisor.tui.log_hunt import Hunt
from supervisor.tui.log_view import LogView, MarkedLine
from supervisor.tui.slices import first_slice, in_slices
from supervisor.tui.widgets.find_bar import FindBar, Owner
from supervisor.tui.widgets.log_lines import LogLines

PATTERN_S = 0.02
"""A pattern that takes longer than this on one line is left out there."""
FETCHED_BYTES = 16 << 20
"""So much older log is fetched before it is looked through."""
TELL_EVERY_S = 0.15
"""How often work in the background says how far it is."""


class LookedThrough(Vertical):
    """Rows of a log, and a bar at its foot.

    Args:
        mask: takes secrets out of a text.
        take_key: what a key of the rows does; False where it is none of ours.
        owner: whom the bar tells what is typed.
    """

    book: reactive[LogBook | None] = reactive(None)
    path: reactive[str] = reactive("")
    """What stands in the upper border behind "log"."""

    def __init__(
        self,
        mask: Callable[[str], str],
        *,
        take_key: Callable[[events.Key], Awaitable[bool]],
        owner: Owner,
        id: str | None = None,
    ) -> None:
        super().__init__(id=id)
        self.view = LogView(mask)
        self.mask = mask
        self.hints = USUAL_HINTS
        """What the user calls the keys; the screen sets it."""
        self._hunt = Hunt(mask, within(PATTERN_S))
        self._lines = LogLines(self.view, take_key)
        self._bar = FindBar(owner)
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
            hints=self.hints,
        )
        if text != self.border_subtitle:
            self.border_subtitle = text
        standing = self._hunt.standing(view.current, fetching=self._fetching)
        if standing is not None and self._bar.purpose in ("", self._hunt.walk):
            if self._bar.purpose:
                self._bar.set_status(log_words.standing(msgspec.structs.replace(standing, text=""), hints=self.hints))
            else:
                self._bar.set_status(
                    log_words.standing(standing, log_words.walking(self._hunt.walk, self.hints), self.hints)
                )

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

    def go_to_match(self, *, down: bool) -> None:
        """To the next match or the one before, round the end, where there is a search."""
        if self._hunt.search is not None:
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
