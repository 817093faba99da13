"""What is looked for in a log: a search, a filter, the errors; how far each is, and what escape ends next. Pure.

It moves nothing on the screen and runs nothing by itself: the pane calls `step()` in slices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from supervisor.core.log_book import LogBook
from supervisor.core.log_finder import Finder, Seek
from supervisor.core.log_levels import Level
from supervisor.core.log_search import Guard, Matcher, Query
from supervisor.tui.log_words import Standing

COUNTED_LINES = 20_000
"""Errors are numbered up to this many lines of them: which of them begins one is counted anew each time."""


class Hunt:
    """The finders of one pane.

    Args:
        guard: runs a user's pattern within a time limit.
    """

    def __init__(self, mask: Callable[[str], str], guard: Guard) -> None:
        self.search: Finder | None = None
        self.filter: Finder | None = None
        self.errors: Finder | None = None
        self.walk = ""
        """What "next" and "previous" last went through: `search` or `errors`."""
        self.passed = ""
        """Which end the last step went round: `start` or `end`."""
        self._mask = mask
        self._guard = guard
        self._book: LogBook | None = None
        self._begun: list[str] = []
        self._heads: tuple[int, list[int]] = (-1, [])

    def open(self, book: LogBook | None) -> None:
        """Another log: nothing is looked for."""
        self._book = book
        self.search = self.filter = self.errors = None
        self.walk = ""
        self._begun.clear()

    def begin_anew(self) -> None:
        """The log has become another file: look for the same there."""
        self.search, self.filter = self._anew(self.search), self._anew(self.filter)
        self.errors = self._anew(self.errors)

    def _anew(self, finder: Finder | None) -> Finder | None:
        return None if finder is None else Finder(finder.book, finder.matcher, self._mask)

    # ------------------------------------------------------------------------------- what is looked for

    def look_for(self, query: Query) -> Finder | None:
        """Search. Raises `BadPatternError`."""
        found = self._finder(query, self.search)
        if found is not self.search:
            self.search = found
        if found is not None:
            self.begin("search")
        return found

    def show_only(self, query: Query) -> Finder | None:
        """Filter. Raises `BadPatternError`."""
        self.filter = self._finder(query, self.filter)
        if self.filter is not None and "filter" not in self._begun:
            self._begun.append("filter")
        return self.filter

    def walk_errors(self) -> Finder | None:
        """From error to error."""
        self.errors = self._finder(Query(level=Level.ERROR), self.errors)
        if self.errors is not None:
            self.begin("errors")
        return self.errors

    def _finder(self, query: Query, known: Finder | None) -> Finder | None:
        if query.empty or self._book is None:
            return None
        if known is not None and known.matcher.query == query:
            return known
        return Finder(self._book, Matcher(query, self._guard), self._mask)

    def begin(self, walk: str) -> None:
        """Go through this one; escape ends it first."""
        if walk != self.walk or walk not in self._begun:
            self.walk, self.passed = walk, ""
            self._begun = [*(name for name in self._begun if name != walk), walk]

    def end(self, name: str) -> None:
        """Look for this no more. The errors stay known: they cost no look twice."""
        self._begun = [begun for begun in self._begun if begun != name]
        if name == "search":
            self.search = None
        elif name == "filter":
            self.filter = None
        if self.walk == name:
            self.walk = ""

    @property
    def newest(self) -> str:
        """What escape ends next: `search`, `errors`, `filter`, or nothing."""
        return self._begun[-1] if self._begun else ""

    @property
    def query(self) -> Query:
        """What is filtered by."""
        return self.filter.matcher.query if self.filter is not None else Query()

    # ------------------------------------------------------------------------------- looking

    def _all(self) -> list[Finder]:
        return [finder for finder in (self.filter, self.search, self.errors) if finder is not None]

    @property
    def complete(self) -> bool:
        """There is nothing to do until more lines come."""
        return all(finder.complete for finder in self._all())

    def step(self) -> bool:
        """Look at one more piece; False when there is nothing to do."""
        return any(finder.step() for finder in self._all())

    def look_at_gaps(self, lines: Sequence[int] = ()) -> int | None:
        """Look again at what was not held, or, with `lines`, where one of these was not: they are on the screen now.

        Returns the line before which something is missing, None where nothing is.
        """
        missing: list[int] = []
        for finder in self._all():
            gaps = finder.gaps
            missing += [until for _first, until in gaps]
            if gaps and (not lines or any(first <= line < until for first, until in gaps for line in lines)):
                finder.look_again()
        return max(missing, default=None)

    def seek(self, line_no: int, *, down: bool) -> Seek | None:
        """The way from a line to the nearest of what is walked through."""
        finder = self._walked()
        return None if finder is None else Seek(finder, line_no, down=down, heads=self.walk == "errors")

    def _walked(self) -> Finder | None:
        return {"search": self.search, "errors": self.errors}.get(self.walk)

    def stands_on(self, current: int | None) -> bool:
        """Whether the line is one of what is walked through."""
        finder = self._walked()
        return finder is not None and current in finder.hits

    def standing(self, current: int | None, *, fetching: bool = False) -> Standing | None:
        """How what is walked through stands, the current line being this one; None where nothing is."""
        finder = self._walked()
        if finder is None:
            return None
        count, number = self._errors_at(finder, current) if self.walk == "errors" else _match_at(finder, current)
        return Standing(
            text=finder.matcher.query.text,
            noun="error" if self.walk == "errors" else "match",
            nouns="errors" if self.walk == "errors" else "matches",
            number=number,
            count=count,
            fraction=finder.fraction,
            unseen_lines=finder.unseen_lines,
            fetching=fetching,
            slow_lines=finder.matcher.slow_lines,
            given_up=finder.matcher.too_slow,
            passed=self.passed,
        )

    def _errors_at(self, finder: Finder, current: int | None) -> tuple[int, int | None]:
        hits = finder.hits
        if len(hits) > COUNTED_LINES:
            return len(hits), None
        if self._heads[0] != len(hits):
            heads: list[int] = []
            before = -1
            for line in hits:
                if line != before + 1:
                    heads.append(line)
                before = line
            self._heads = (len(hits), heads)
        heads = self._heads[1]
        return len(heads), heads.index(current) + 1 if current in heads else None


def _match_at(finder: Finder, current: int | None) -> tuple[int, int | None]:
    hits = finder.hits
    return len(hits), hits.rank(current) + 1 if current is not None and current in hits else None
