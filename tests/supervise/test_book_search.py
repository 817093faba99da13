"""Search, filter and the pane's view on the book that keeps a log on the disk: the same as on one in memory."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from supervisor.adapters.spool import Spool
from supervisor.core import events as ev
from supervisor.core import log_search
from supervisor.core.log_finder import Finder, Seek
from supervisor.core.log_levels import Level
from supervisor.core.log_search import Matcher, Query
from supervisor.supervise.book import Book
from supervisor.testing import MemoryBook
from supervisor.tui.log_view import LogView, Mark
from tests.core.test_log_search import HEAD, LOGS, QUERIES, mask


def feed(book: Book, data: bytes, cuts: list[int]) -> None:
    """The bytes as blocks, cut anywhere."""
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for start, end in pairwise(edges):
        line_no = 1 + data.count(b"\n", 0, start)
        piece = data[start:end]
        book.append(ev.LogBlock(at=0.0, data=piece, offset=start, line_no=line_no, lines=piece.count(b"\n")))


@given(LOGS, QUERIES, st.lists(st.integers(0, 10_000), max_size=4), st.integers(1, 400))
def test_a_book_on_the_disk_is_searched_and_shown_as_one_in_memory(
    data: bytes, query: Query, cuts: list[int], step_bytes: int
) -> None:
    data = data.rstrip(b"\r")  # how an unfinished bar is shown is each book's own
    in_memory = MemoryBook(data)
    book = Book(spool=Spool(Path("/nonexistent")))
    try:
        feed(book, data, cuts)
        assert (book.first_line, book.last_line) == (in_memory.first_line, in_memory.last_line)
        matcher = Matcher(query)
        steps = log_search.STEP_BYTES
        log_search.STEP_BYTES = step_bytes
        try:
            finders = [Finder(book, matcher, mask), Finder(in_memory, matcher, mask)]
            for finder in finders:
                while finder.step():
                    pass
            assert list(finders[0].hits) == list(finders[1].hits)
            seeks = [Seek(finder, 3, down=False) for finder in finders]
            for seek in seeks:
                while seek.step():
                    pass
            assert seeks[0].found == seeks[1].found
        finally:
            log_search.STEP_BYTES = steps
        views = [LogView(mask), LogView(mask)]
        for view in views:
            view.height, view.width, view.wrap = 7, 40, True
            view.marks = [Mark(2, "loading")]
        views[0].open(book)
        views[1].open(in_memory)
        whole = [[row for row in view.draw() if not row.living] for view in views]
        assert whole[0] == whole[1]
    finally:
        book.close()


def test_a_spool_that_has_let_go_is_searched_as_far_as_it_goes(tmp_path: Path) -> None:
    lines = [f"line {number} {'needle' if number % 1000 == 0 else 'hay'} {'x' * 80}\n" for number in range(1, 60_001)]
    lines[30_000] = f"{HEAD}\n"
    lines[30_001] = "ValueError: in the middle\n"
    data = "".join(lines).encode()
    book = Book(spool=Spool(tmp_path, limit_bytes=4 << 20, segment_bytes=1 << 20))
    try:
        feed(book, data, list(range(0, len(data), 100_000)))
        finder = Finder(book, Matcher(Query("needle")), mask)
        while finder.step():
            pass
        first_held = book.first_line + finder.unseen_lines
        assert finder.complete
        assert list(finder.hits) == [n for n in range(1000, 60_001, 1000) if n >= first_held]
        assert 5 <= len(finder.hits) < 60
        errors = Finder(book, Matcher(Query(level=Level.ERROR)), mask)
        while errors.step():
            pass
        assert list(errors.hits) == ([30_001, 30_002] if first_held <= 30_001 else [])
    finally:
        book.close()
