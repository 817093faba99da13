"""What stands on the screen is a window on all rows of the log, which nobody but this test ever lists."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from supervisor.core.line_set import LineSet
from supervisor.core.log_book import Row
from supervisor.core.log_levels import Level
from supervisor.core.log_search import Matcher, Query
from supervisor.testing import MemoryBook
from supervisor.tui import log_words
from supervisor.tui.hints import Hints
from supervisor.tui.log_hunt import Hunt
from supervisor.tui.log_text import MAX_ACCENTS, cells, cut, fold, tame
from supervisor.tui.log_view import LogView, Mark, Place, ScreenRow
from tests.scale import scaled

SECRET = "hunter2"
TEXTS = st.text(st.sampled_from("ab 漢é\u0301\u200b😀x"), max_size=30)


def mask(text: str) -> str:
    return text.replace(SECRET, "•••")


class CountingBook(MemoryBook):
    """Counts the rows that anybody looks at."""

    asked_rows = 0

    def rows(self, line_no: int, count: int) -> list[Row]:
        self.asked_rows += count
        return super().rows(line_no, count)


def view_of(lines: Sequence[str], *, height: int = 5, width: int = 120, first_line: int = 1) -> LogView:
    view = LogView(mask)
    view.height, view.width = height, width
    view.open(MemoryBook("".join(f"{line}\n" for line in lines).encode(), first_line=first_line))
    return view


def numbered(count: int, *, start: int = 1) -> list[str]:
    return [f"line {number}" for number in range(start, start + count)]


def lines_on(view: LogView) -> list[int]:
    return [row.line_no for row in view.draw()]


def add(view: LogView, *lines: str) -> None:
    book = view.lines.book
    assert isinstance(book, MemoryBook)
    book.append("".join(f"{line}\n" for line in lines).encode())
    view.lines.refresh()


# ------------------------------------------------------------------------------- cells


@given(TEXTS, st.integers(0, 40), st.integers(1, 40))
def test_a_cut_is_what_fits_and_no_wider(text: str, left: int, width: int) -> None:
    start, end, lead = cut(text, left, width)
    assert 0 <= start <= end <= len(text)
    assert cells(text[:start]) == min(left + lead, cells(text)) or not cells(text[start:end])
    assert lead + cells(text[start:end]) <= width
    if end < len(text) and start < end:
        assert lead + cells(text[start : end + 1]) > width  # not even one more would have fitted


@given(TEXTS, st.integers(2, 20))
def test_folding_loses_nothing_and_every_row_fits(text: str, width: int) -> None:
    rows = fold(text, width)
    assert "".join(text[start:end] for start, end in rows) == text
    assert all(cells(text[start:end]) <= width for start, end in rows)
    assert len(rows) >= 1
    assert all(cells(text[start:end]) >= width - 1 for start, end in rows[:-1])


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=40))
def test_what_is_drawn_is_as_wide_as_it_is_counted(text: str) -> None:
    drawn = tame(text)
    assert cells(drawn) == cell_len(drawn)
    assert tame(drawn) == drawn


def test_towers_of_accents_are_cut_down() -> None:
    assert len(tame("a" + "\u0301" * 500 + "b")) == 2 + MAX_ACCENTS
    assert tame("👩\u200d👩\u200d👧") == "👩👩👧"


# ------------------------------------------------------------------------------- the window


def all_rows(view: LogView) -> list[ScreenRow]:
    """Every row that there is, from the top."""
    return [row for at in range(view.lines.count) for row in view._rows(view.lines.number(at))]


MOVES = st.lists(
    st.tuples(st.sampled_from(["scroll", "append", "go", "index", "follow", "pause", "wrap", "resize", "mark"]),
              st.integers(-12, 30)),
    max_size=12,
)  # fmt: skip


@given(st.lists(TEXTS, min_size=1, max_size=25), MOVES, st.integers(2, 8), st.booleans())
def test_the_screen_is_a_window_on_all_rows(
    lines: list[str], moves: list[tuple[str, int]], height: int, filtered: bool
) -> None:
    view = view_of(lines, height=height, width=24)
    matcher = Matcher(Query("a"))
    passing = LineSet()
    marks: list[Mark] = []
    if filtered:
        view.lines.show_only(passing, matcher)
    for move, number in [("none", 0), *moves]:
        if filtered:
            passing.add(
                [at for at in range(1, view.lines.last + 1) if at not in passing and "a" in view.lines.shown(at).text]
            )
        before, was_full = view.draw(), len(view.draw()) == view.height
        paused = not view.following
        match move:
            case "scroll":
                rows = all_rows(view)
                top = rows.index(before[0]) if before else 0
                view.scroll(number)
                end = max(0, len(rows) - height)
                if before:
                    assert rows.index(view.draw()[0]) == min(max(0, top + number), end)
                    assert view.following is (max(0, top + number) >= end)
            case "append":
                add(view, *["new a"] * (number % 4))
                if paused and was_full:
                    assert view.draw() == before, "what is read has moved"
            case "go":
                reached = view.go_to(number)
                assert reached is None or (view.sees(reached) and not view.following)
                assert reached is not None or not view.lines.count
            case "index":
                view.to_index(number)
            case "follow":
                view.follow()
            case "pause":
                view.pause()
                assert view.draw() == before
            case "wrap":
                view.wrap = not view.wrap
            case "resize":
                view.height = height = 2 + abs(number) % 9
                view.width = 20 + abs(number)
            case "mark":
                marks = sorted([*marks, Mark(1 + abs(number), f"phase {number}")])
                view.marks = marks
        rows, drawn = all_rows(view), view.draw()
        assert len(drawn) == min(height, len(rows))
        starts = [at for at in range(len(rows) + 1) if rows[at : at + len(drawn)] == drawn]
        assert starts, "not a window"
        if view.following:
            assert len(rows) - len(drawn) in starts


def test_it_follows_and_pauses_and_counts_what_comes() -> None:
    view = view_of(numbered(20))
    assert lines_on(view) == [16, 17, 18, 19, 20]
    add(view, "line 21")
    assert lines_on(view) == [17, 18, 19, 20, 21]
    view.scroll(-3)
    assert (lines_on(view), view.following, view.new_lines) == ([14, 15, 16, 17, 18], False, 0)
    add(view, *numbered(1000, start=22))
    assert (lines_on(view), view.new_lines) == ([14, 15, 16, 17, 18], 1000)
    view.scroll(2)
    assert (view.following, view.new_lines) == (False, 1000)
    view.scroll(5000)
    assert (view.following, view.new_lines, lines_on(view)[-1]) == (True, 0, 1021)


def test_a_log_that_fits_cannot_be_scrolled_out_of_following() -> None:
    view = view_of(numbered(3))
    view.scroll(-1)
    assert view.following
    assert view_of([]).draw() == []


def test_a_takeover_begins_at_the_files_own_number_and_fetches_what_is_older() -> None:
    book = MemoryBook("".join(f"{line}\n" for line in numbered(50)).encode(), first_line=1001, held_from=1041)
    view = LogView(mask)
    view.height = 5
    view.open(book)
    assert lines_on(view) == [1046, 1047, 1048, 1049, 1050]
    assert book.asked == []
    view.scroll(-8)
    assert [(row.line_no, row.held) for row in view.draw()] == [
        (1038, False), (1039, False), (1040, False), (1041, True), (1042, True)
    ]  # fmt: skip
    assert book.asked[-1] == (1038, 1041)
    book.arrive()
    view.lines.refresh()
    assert [(row.text, row.held) for row in view.draw()][:2] == [("line 38", True), ("line 39", True)]
    view.to_start()
    assert lines_on(view)[0] == 1001


def test_ten_million_lines_are_shown_without_being_looked_at() -> None:
    count = scaled(10_000_000)
    book = CountingBook(b"x\n" * count)
    view = LogView(mask)
    view.wrap, view.height = True, 50
    view.open(book)
    for index in (count // 2, count - 60, 0):
        view.to_index(index)
        for rows in (-40, 7, 90):
            view.scroll(rows)
            view.lines.refresh()
            assert len(view.draw()) == 50
    view.go_to(count - 9)
    view.marks = [Mark(count // 3, "loading")]
    assert len(view.draw()) == 50
    assert book.asked_rows < 3000


def test_a_secret_is_masked_before_anything_is_cut() -> None:
    view = view_of([f"token {SECRET} end"], width=10)
    for wrap in (False, True):
        view.wrap = wrap
        for pan in range(12):
            view.pan = pan
            assert all("hunt" not in row.text for row in view.draw())


# ------------------------------------------------------------------------------- marks, filter, numbers


def test_marks_are_rules_that_change_no_number() -> None:
    view = view_of(numbered(8), height=20)
    view.marks = [Mark(3, "loading"), Mark(6, "503"), Mark(6, "200"), Mark(9, f"to come {SECRET}")]
    rows = [(row.line_no, row.rule) for row in view.draw()]
    assert rows == [
        (1, None), (2, None), (3, "loading"), (3, None), (4, None), (5, None), (6, "503 · 200"), (6, None), (7, None),
        (8, None),
    ]  # fmt: skip
    add(view, "line 9")
    assert ("to come •••") in [row.rule for row in view.draw()]
    mark = view.next_mark(down=True)
    assert mark is not None and mark.line_no == 3
    view.go_to(3)
    mark = view.next_mark(down=True)
    assert mark is not None and mark.line_no == 6
    view.go_to(6)
    mark = view.next_mark(down=False)
    assert mark is not None and mark.line_no == 3


def test_a_filter_keeps_numbers_marks_the_place_and_the_living_line() -> None:
    view = view_of([f"{'keep' if number % 5 == 0 else 'drop'} {number}" for number in range(1, 101)], width=80)
    assert view.gutter == 0
    view.marks = [Mark(41, "loading"), Mark(43, "503")]
    view.to_index(40)
    passing = LineSet()
    passing.add(range(5, 101, 5))
    view.lines.show_only(passing, Matcher(Query("keep")))
    assert view.gutter > 0
    assert [(row.line_no, row.rule) for row in view.draw()] == [
        (45, "loading · 503"), (45, None), (50, None), (55, None), (60, None)
    ]  # fmt: skip
    book = view.lines.book
    assert isinstance(book, MemoryBook)
    book.append(b"keep it")
    view.lines.refresh()
    assert (view.lines.count, view.lines.number(20), view.lines.index(101)) == (21, 101, 20)
    assert (view.lines.after(100), view.lines.before(101)) == (101, 100)
    view.follow()
    assert lines_on(view) == [85, 90, 95, 100, 101]
    book.append(b" no more\n")
    view.lines.refresh()
    assert lines_on(view) == [80, 85, 90, 95, 100]  # whole now: the finder's business
    view.go_to(91)
    assert view.current == 95
    view.show_all()
    assert view.current == 95 and view.sees(95)
    view.unselect()
    view.to_index(50)
    view.lines.show_only(passing, Matcher(Query("keep")))
    assert lines_on(view)[0] == 55
    view.show_all()
    assert lines_on(view)[0] == 51, "where it was before the filter"


# ------------------------------------------------------------------------------- selection


def test_lines_are_picked_and_ranges_grow_from_the_current_line() -> None:
    view = view_of(numbered(20))
    assert view.selected_lines() == []
    view.pick()
    assert (view.current, view.selected_lines(), view.following) == (20, [20], False)
    view.go_to(5)
    view.pick()
    view.pick()
    assert view.selected_lines() == [5, 6, 20]
    view.extend(down=True)
    assert view.selected_lines() == [5, 6, 7, 8, 20]
    view.extend(down=False)
    view.extend(down=False)
    assert view.selected_lines() == [5, 6, 7, 20]
    assert view.selects(6) and not view.selects(9)
    assert view.unselect()
    assert not view.unselect()
    view.go_to(9)
    assert view.selected_lines() == [9]
    for _ in range(12):
        view.extend(down=True)
    assert view.current == 20 and view.sees(20)


def test_where_the_next_one_begins() -> None:
    view = view_of(numbered(50))
    assert (view.here(down=True), view.here(down=False), view.looked_at()) == (51, 51, 50)
    view.to_index(10)
    assert (view.here(down=True), view.here(down=False), view.looked_at()) == (10, 11, 11)
    view.current = 13
    assert (view.here(down=True), view.here(down=False), view.looked_at()) == (13, 13, 13)
    view.scroll(30)
    assert view.here(down=True) == 40


def test_panning_goes_as_far_as_a_line_in_sight() -> None:
    view = view_of(["short", "y" * 250], width=100)
    for _ in range(9):
        view.pan_by(1)
    row = view.draw()[1]
    assert row.end == 250 and view.pan == 180
    view.pan_by(-9)
    assert view.pan == 0
    assert view.place == Place(1)


@pytest.mark.parametrize("wrap", [False, True])
def test_a_match_far_right_or_far_down_in_its_line_is_brought_into_sight(wrap: bool) -> None:
    view = view_of(["short"] * 9 + ["漢" * 300 + "here" + "y" * 3000] + ["short"] * 9, height=6, width=50)
    view.wrap = wrap
    for at, text in ((300, "here"), (0, "漢漢")):
        view.go_to(10, at)
        shown = [row for row in view.draw() if row.line_no == 10 and row.start <= at and at + len(text) <= row.end]
        assert shown and shown[0].text[at:].startswith(text)
    assert view.pan == 0


# ------------------------------------------------------------------------------- words


def test_what_the_pane_says_of_itself() -> None:
    assert log_words.subtitle(following=True, new_lines=0, lines=1) == "following · 1 line"
    paused = log_words.subtitle(following=False, new_lines=312, lines=48_211, lost_lines=7)
    assert paused == "paused, f follows · 312 new · 48,211 lines · 7 lost"
    only = log_words.subtitle(following=True, new_lines=0, lines=48_211, passing=1204, passing_as="filtered")
    assert only == "following · filtered: 1,204 of 48,211 lines, esc shows all"
    still = log_words.subtitle(following=True, new_lines=0, lines=9, passing=1, passing_as="errors", fraction=0.62)
    assert still == "following · errors: 1 of 9 lines, still looking 62%, esc shows all"
    assert log_words.filter_name("", Level.ERROR) == "errors"
    assert log_words.filter_name("x", Level.ERROR) == "filtered"
    assert log_words.walking("search") == "n next, N previous, esc ends"
    own = Hints({"log.follow": "^f", "log.next_error": "!", "log.fetch": "g"})
    assert log_words.subtitle(following=False, new_lines=0, lines=2, hints=own) == "paused, ^f follows · 2 lines"
    assert log_words.walking("errors", own) == "! next, E previous, esc ends"
    assert "g fetches them" in log_words.standing(log_words.Standing(unseen_lines=9), hints=own)


@pytest.mark.parametrize(
    ("standing", "text"),
    [
        (log_words.Standing(count=1204, number=3, fraction=0.62), "match 3 of 1,204, still searching 62%"),
        (log_words.Standing(count=1204), "1,204 matches"),
        (log_words.Standing(count=2, number=1, text="oom"), "“oom” · match 1 of 2"),
        (log_words.Standing(count=1, passed="end", number=1), "match 1 of 1 · went on from the start"),
        (log_words.Standing(count=2, passed="start", number=2), "match 2 of 2 · went on from the end"),
        (log_words.Standing(), "no match"),
        (log_words.Standing(noun="error", nouns="errors", unseen_lines=9),
         "no error · 9 lines on the node not searched, F fetches them"),
        (log_words.Standing(count=2, unseen_lines=9, fetching=True), "2 matches · fetching 9 lines from the node"),
        (log_words.Standing(count=1, slow_lines=2), "1 match · 2 lines left out: the pattern takes too long"),
        (log_words.Standing(count=7, slow_lines=20, given_up=True),
         "the pattern takes too long: given up after 20 lines, 7 matches until there"),
    ],
)  # fmt: skip
def test_how_a_search_stands(standing: log_words.Standing, text: str) -> None:
    assert log_words.standing(standing) == text
    assert log_words.standing(standing, "esc ends") in (text, f"{text} · esc ends")


def test_what_escape_ends_and_what_next_goes_through() -> None:
    hunt = Hunt(mask, lambda call: bool(call()) or True)
    assert hunt.look_for(Query("x")) is None
    book = MemoryBook(b"x\nERROR 1\nERROR 2\ny\nERROR 3\n")
    hunt.open(book)
    hunt.show_only(Query(level=Level.WARNING))
    search = hunt.look_for(Query("x"))
    assert hunt.look_for(Query("x")) is search
    assert hunt.newest == "search"
    hunt.walk_errors()
    assert hunt.newest == "errors"
    while hunt.step():
        pass
    assert hunt.complete
    standing = hunt.standing(5)
    assert standing is not None and (standing.count, standing.number, standing.noun) == (2, 2, "error")
    hunt.begin("search")
    standing = hunt.standing(1)
    assert standing is not None and (standing.count, standing.number) == (1, 1)
    for name in ("search", "errors", "filter"):
        assert hunt.newest == name
        hunt.end(name)
    assert (hunt.newest, hunt.standing(1), hunt.search, hunt.filter) == ("", None, None, None)


def test_what_is_fetched_is_looked_at_too() -> None:
    book = MemoryBook(b"x 1\nERROR 2\n  x 3\nx 4\n", held_from=3)
    hunt = Hunt(mask, lambda call: bool(call()) or True)
    hunt.open(book)
    search = hunt.look_for(Query("x"))
    assert search is not None
    while hunt.step():
        pass
    assert (list(search.hits), search.unseen_lines) == ([3, 4], 2)
    assert hunt.look_at_gaps([4]) == 3
    assert hunt.complete, "line 4 was there before"
    book.arrive()
    hunt.look_at_gaps([2])
    assert not hunt.complete
    while hunt.step():
        pass
    assert (list(search.hits), search.unseen_lines) == ([1, 3, 4], 0)


def test_another_file_is_looked_at_from_its_beginning() -> None:
    book = MemoryBook(b"x\nx\nx\n")
    view = LogView(mask)
    view.height = 5
    view.open(book)
    hunt = Hunt(mask, lambda call: bool(call()) or True)
    hunt.open(book)
    search = hunt.look_for(Query("x"))
    assert search is not None
    while hunt.step():
        pass
    view.go_to(1)
    assert not view.begins_anew()
    book.turn_into(b"y\nx\n")
    assert not search.step()
    assert view.begins_anew() and view.following and view.current is None
    hunt.begin_anew()
    while hunt.step():
        pass
    assert hunt.search is not None and list(hunt.search.hits) == [2]
    assert [row.text for row in view.draw()] == ["y", "x"]
