"""The log pane in an app: what stands on the screen, what keys, wheel, scrollbar and mouse do to it."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
from rich.cells import cell_len
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.events import Key, MouseScrollDown, MouseScrollUp
from textual.pilot import Pilot

from supervisor import resources
from supervisor.adapters import open_at
from supervisor.core.log_levels import Level
from supervisor.core.log_search import BadPatternError
from supervisor.testing import MemoryBook
from supervisor.tui.log_keys import KEYS
from supervisor.tui.log_view import Mark
from supervisor.tui.outside import open_log
from supervisor.tui.widgets.log_lines import LogLines
from supervisor.tui.widgets.log_pane import LogPane
from tests.scale import scaled

WAIT_S = 6.0
SECRET = "hunter2"
HEAD = "Traceback (most recent call last):"


class PaneApp(App[None]):
    """A screen with nothing but the pane, in the looks of the product."""

    CSS_PATH = [resources.layouts() / name for name in ("base.tcss", "console.tcss")]

    def __init__(self) -> None:
        super().__init__()
        self.pane = LogPane(lambda text: text.replace(SECRET, "•••"), id="log")
        self.opened: list[LogPane.Open] = []

    def compose(self) -> ComposeResult:
        yield self.pane

    def on_mount(self) -> None:
        self.pane.focus()

    def on_log_pane_open(self, event: LogPane.Open) -> None:
        self.opened.append(event)


def numbered(count: int, *, start: int = 1) -> bytes:
    return b"".join(b"line %d\n" % number for number in range(start, start + count))


def screen_text(app: App[None]) -> str:
    """Every row of the screen as it is drawn."""
    return "\n".join("".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips())


def numbers(app: PaneApp) -> list[int]:
    """The lines on the screen."""
    return [row.line_no for row in app.pane.view.draw()]


async def until(pilot: Pilot[None], holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        if time.monotonic() > deadline:
            pytest.fail(f"waited in vain; the screen:\n{screen_text(pilot.app)}", pytrace=False)
        await asyncio.sleep(0.003)


async def shows(pilot: Pilot[None], *texts: str) -> None:
    await until(pilot, lambda: all(text in screen_text(pilot.app) for text in texts))


def styled(app: PaneApp, y: int, style: str) -> str:
    """The text in that style (a component class) on a row of the pane."""
    lines = app.query_one(LogLines)
    wanted = lines.get_component_rich_style(f"log--{style}")
    row = lines.render_line(y)
    return "".join(part.text for part in row if part.style is not None and part.style.bgcolor == wanted.bgcolor)


def wheel(app: PaneApp, kind: type[MouseScrollUp] | type[MouseScrollDown], *, shift: bool = False) -> None:
    lines = app.query_one(LogLines)
    lines.post_message(kind(lines, 3, 3, 0, 0, 0, shift, False, False))


def grow(app: PaneApp, data: bytes) -> None:
    assert isinstance(app.pane.book, MemoryBook)
    app.pane.book.append(data)
    app.pane.refresh_log()


# ------------------------------------------------------------------------------- the binding table


def test_every_key_names_a_method_and_has_an_id_of_its_own() -> None:
    bindings = [binding for binding in KEYS if isinstance(binding, Binding)]
    assert len(bindings) == len(KEYS)
    assert len({binding.id for binding in bindings}) == len(bindings)
    for binding in bindings:
        name, *_ = re.findall(r"'(\w+)'", binding.action)
        assert callable(getattr(LogPane, name)), binding
        assert binding.id is not None and binding.id.startswith("log.")
        assert binding.description


# ------------------------------------------------------------------------------- following


@pytest.mark.asyncio
async def test_following_pausing_and_coming_back() -> None:
    app = PaneApp()
    async with app.run_test(size=(80, 24)) as pilot:
        app.pane.path = "/data/[logs]/x.log"
        app.pane.book = MemoryBook()
        await shows(pilot, "log /data/[logs]/x.log", "following · 0 lines")
        grow(app, numbered(100))
        await shows(pilot, "line 100", "following · 100 lines")
        rows = len(numbers(app))
        assert rows == 22 and numbers(app)[-1] == 100

        # Keys pause; what comes meanwhile is counted and moves nothing.
        await pilot.press("up", "up")
        await shows(pilot, "line 98", "paused, f follows · 100 lines")
        before = numbers(app)
        grow(app, numbered(50, start=101))
        await shows(pilot, "paused, f follows · 50 new · 150 lines")
        assert numbers(app) == before
        await pilot.press("f")
        await shows(pilot, "following · 150 lines", "line 150")
        await pilot.press("f")
        await shows(pilot, "paused, f follows · 150 lines")
        await pilot.press("end")
        await shows(pilot, "following")

        # A page back and forth; the start; down to the end resumes.
        await pilot.press("pageup")
        await until(pilot, lambda: numbers(app)[0] == 108)
        await pilot.press("pagedown")
        await shows(pilot, "following")
        await pilot.press("home")
        await until(pilot, lambda: numbers(app)[0] == 1 and not app.pane.following)
        app.pane.following = True
        await shows(pilot, "following", "line 150")

        # The wheel.
        wheel(app, MouseScrollUp)
        await until(pilot, lambda: numbers(app)[-1] == 147 and not app.pane.following)
        wheel(app, MouseScrollDown)
        await shows(pilot, "following")

        # The scrollbar: dragged up, then down to the end; a click beside the thumb pages.
        lines = app.query_one(LogLines)
        lines.scroll_to(y=40, animate=False)
        await until(pilot, lambda: numbers(app)[0] == 41 and not app.pane.following)
        assert lines.vertical_scrollbar.position == 40
        lines.scroll_to(y=lines.max_scroll_y, animate=False)
        await shows(pilot, "following")
        await pilot.click(lines.vertical_scrollbar, offset=(0, 2))
        await until(pilot, lambda: numbers(app)[-1] == 129)
        grow(app, numbered(1))
        assert numbers(app)[-1] == 129
        assert lines.vertical_scrollbar.window_virtual_size == 151

        # A living line grows in place.
        await pilot.press("f")
        grow(app, b"  10%\r")
        await shows(pilot, "10%", "152 lines")
        grow(app, b"  99%\r")
        await shows(pilot, "99%", "152 lines")
        assert "10%" not in screen_text(app)


@pytest.mark.asyncio
async def test_a_log_that_becomes_another_file_is_shown_from_its_end() -> None:
    app = PaneApp()
    async with app.run_test(size=(80, 24)) as pilot:
        book = MemoryBook(numbered(100))
        app.pane.book = book
        app.pane.filter("line 9")
        await shows(pilot, "filtered: 11 of 100 lines")
        await pilot.press("home")
        book.turn_into(b"line 1\nnew line 9\nline 3\n")
        app.pane.refresh_log()
        await shows(pilot, "following · filtered: 1 of 3 lines", "new line 9")
        app.pane.book = None
        await shows(pilot, "following · 0 lines")
        assert "new line 9" not in screen_text(app)


@pytest.mark.asyncio
async def test_older_lines_of_a_takeover_are_fetched_when_they_are_scrolled_to_or_searched() -> None:
    app = PaneApp()
    async with app.run_test(size=(120, 24)) as pilot:
        book = MemoryBook(numbered(60), first_line=40_001, held_from=40_041)
        app.pane.book = book
        await shows(pilot, "  40060  line 60")
        app.pane.search("line 1")
        await shows(pilot, "no match · 40 lines on the node not searched, F fetches them")
        await pilot.press("F")
        await shows(pilot, "match 11 of 11", "  40019  line 19")
        assert "not searched" not in screen_text(app)

        book = MemoryBook(numbered(60), first_line=40_001, held_from=40_041)
        app.pane.book = book
        await pilot.press("home")
        await shows(pilot, "  40001  … on the node, asked for")
        assert book.asked
        app.pane.filter("line 1")
        await until(pilot, lambda: "filtered: 0 of 60" in screen_text(app))
        await pilot.press("escape", "home")
        book.arrive()
        app.pane.refresh_log()
        await shows(pilot, "  40001  line 1")
        app.pane.search("line 1")
        await shows(pilot, "of 11")


# ------------------------------------------------------------------------------- search


@pytest.mark.asyncio
async def test_searching_by_keys() -> None:
    app = PaneApp()
    async with app.run_test(size=(80, 24)) as pilot:
        app.pane.book = MemoryBook(
            b"".join(b"%s %d\n" % (b"Needle" if n % 50 == 7 else b"hay", n) for n in range(1, 301))
        )
        await shows(pilot, "hay 300")
        await pilot.press("slash", *"nee")
        await shows(pilot, "search: nee", "match 6 of 6", "Needle 257", "paused, f follows")
        row = numbers(app).index(257)
        assert styled(app, row, "match-current") == "Nee"
        await pilot.press(*"dle")
        await until(pilot, lambda: styled(app, numbers(app).index(257), "match-current") == "Needle")
        await pilot.press("up")
        await shows(pilot, "Needle 207", "match 5 of 6")
        assert styled(app, numbers(app).index(257), "match") == "Needle" if 257 in numbers(app) else True
        await pilot.press("enter")
        await shows(pilot, "“needle” · match 5 of 6 · n next, N previous, esc ends")
        assert app.query_one(LogLines).has_focus
        await pilot.press("n")
        await shows(pilot, "match 6 of 6")
        await pilot.press("n")
        await shows(pilot, "“needle” · match 1 of 6 · went on from the start", "Needle 7")
        await pilot.press("N")
        await shows(pilot, "match 6 of 6 · went on from the end")
        grow(app, b"needle at last\n")
        await shows(pilot, "match 6 of 7")
        await pilot.press("n")
        await shows(pilot, "match 7 of 7")

        # Smart case, none found, taken back by escape, a key that begins a search.
        await pilot.press("slash", *"Needle at")
        await shows(pilot, "no match")
        await pilot.press("escape")
        await until(pilot, lambda: "Needle at" not in screen_text(app))
        await pilot.press("escape", "n", *"Needle", "enter")
        await shows(pilot, "of 6")
        await pilot.press("escape", "escape")
        await until(pilot, lambda: "Needle” ·" not in screen_text(app))
        assert not any(styled(app, y, "match") for y in range(20))


@pytest.mark.asyncio
async def test_no_key_is_lost_or_taken_for_another_however_fast_they_come() -> None:
    app = PaneApp()
    async with app.run_test(size=(80, 24)) as pilot:
        app.pane.book = MemoryBook(
            b"".join(b"%s %d\n" % (b"fine" if n % 50 == 7 else b"hay", n) for n in range(1, 301))
        )
        await shows(pilot, "hay 300")

        def burst(*keys: str) -> None:
            for key in keys:
                app.post_message(Key(key, key if len(key) == 1 else None))

        burst("slash", *"fine", "enter", "N", "N")
        await shows(pilot, "“fine” · match 4 of 6")
        burst("escape", "escape", "slash", *"nothing", "escape", "ampersand", *"fine", "tab", "enter", "f", "home")
        await shows(pilot, "filtered: 0 of 300 lines")
        burst("escape", "colon", *"77", "enter", "space", "space")
        await until(pilot, lambda: app.pane.view.selected_lines() == [77, 78])
        burst("slash", *"fi", "up", *"ne", "backspace", "enter", "n")
        await shows(pilot, "“fin” · match 4 of 6")


@pytest.mark.asyncio
async def test_regular_expressions_are_told_when_bad_and_cannot_hang() -> None:
    app = PaneApp()
    async with app.run_test(size=(100, 24)) as pilot:
        app.pane.book = MemoryBook((b"a" * 60 + b"!\n") * 40 + b"aab and so on\n")
        await pilot.press("slash", "ctrl+r", *"a+b")
        await shows(pilot, "search regex: a+b", "match 1 of 1")
        await pilot.press(*"(")
        await shows(pilot, "no regular expression: missing )")
        await pilot.press("enter")
        await shows(pilot, "search regex: a+b(", "no regular expression")
        await pilot.press("ctrl+u", *"(a+)+b")
        began = time.monotonic()
        await shows(pilot, "the pattern takes too long: given up after 20 lines")
        await pilot.press("ctrl+u", *"so")
        await shows(pilot, "match 1 of 1")
        assert time.monotonic() - began < 15
        await pilot.press("ctrl+r")
        await shows(pilot, "search: so")
        with pytest.raises(BadPatternError):
            app.pane.search("[", regex=True)


@pytest.mark.asyncio
async def test_keys_are_answered_while_a_large_log_is_searched() -> None:
    app = PaneApp()
    async with app.run_test(size=(80, 24)) as pilot:
        count = scaled(2_000_000)
        app.pane.book = MemoryBook(
            b"some line of a log that says nothing in particular, 80 characters or so, well\n" * count
        )
        await shows(pilot, f"{count:,} lines")
        app.pane.search("nothing in particular$", regex=True)
        await shows(pilot, "still searching")
        times = []
        for key in ["up", "pageup", "home", "end"] * 3:
            place = app.pane.view.place
            began = time.perf_counter()
            app.simulate_key(key)  # the pilot's own way waits until the app has nothing to do
            while app.pane.view.place == place:  # noqa: ASYNC110 - what is measured is how soon that changes
                await asyncio.sleep(0)
            times.append(time.perf_counter() - began)
            if app.pane._hunt.complete:
                break
        assert len(times) > 2, "the log was too small to tell"
        assert sorted(times)[len(times) // 2] < 0.25, times  # loose: other tests share this machine
        await pilot.press("escape", "escape")
        await until(pilot, lambda: "searching" not in screen_text(app))


# ------------------------------------------------------------------------------- filter, errors, marks, lines

MIXED = [
    *(f"INFO step {number}" for number in range(1, 31)), "WARNING low memory", HEAD, '  File "a.py", line 1',
    "ValueError: one", *(f"INFO step {number}" for number in range(35, 61)), "E1130 04:18:09.1 1 x.cc:1] two",
    *(f"INFO step {number}" for number in range(62, 91)),
]  # fmt: skip


@pytest.mark.asyncio
async def test_filtering_by_text_and_level() -> None:
    app = PaneApp()
    async with app.run_test(size=(80, 24)) as pilot:
        app.pane.book = MemoryBook("".join(f"{line}\n" for line in MIXED).encode())
        await pilot.press("ampersand", *"step 3")
        await shows(pilot, "show only: step 3", "following · filtered: 7 of 90 lines, esc shows all")
        assert numbers(app) == [3, 30, 35, 36, 37, 38, 39]
        await shows(pilot, "     30  INFO step 30")
        await pilot.press("enter")
        grow(app, b"INFO step 3 again\nINFO no\n")
        await shows(pilot, "filtered: 8 of 92 lines", "     91  INFO step 3 again")
        await pilot.press("escape")
        await shows(pilot, "following · 92 lines", "INFO no")

        await pilot.press("L")
        await shows(pilot, "warnings and errors: 5 of 92 lines, esc shows all", "     31  WARNING low memory")
        assert numbers(app) == [31, 32, 33, 34, 61]
        await pilot.press("L")
        await shows(pilot, "errors: 4 of 92 lines")
        assert numbers(app) == [32, 33, 34, 61]
        # The engine dies while it is filtered: the traceback comes in pieces.
        for piece in (HEAD, "\n  Fi", 'le "b.py"\n', "KeyErr", "or: 1\nINFO calm\n"):
            grow(app, piece.encode())
            await pilot.pause()
        await shows(pilot, "errors: 7 of 96 lines", "     95  KeyError: 1")
        await pilot.press("ampersand", *"File", "enter")
        await shows(pilot, "filtered: 2 of 96 lines")
        app.pane.go_to(50)
        await shows(pilot, "paused, f follows · 96 lines", "INFO step 50")
        app.pane.filter(level=Level.ERROR)
        await shows(pilot, "errors: 7 of 96")
        assert app.pane.level is Level.ERROR
        await pilot.press("L")
        await shows(pilot, "· 96 lines")


@pytest.mark.asyncio
async def test_from_error_to_error_from_phase_to_phase_and_to_a_line() -> None:
    app = PaneApp()
    async with app.run_test(size=(80, 14)) as pilot:
        app.pane.marks = (Mark(5, "launching"), Mark(40, f"loading {SECRET}"), Mark(91, "503"))
        app.pane.book = MemoryBook("".join(f"{line}\n" for line in MIXED).encode())
        current = app.pane.view
        await pilot.press("E")
        await shows(pilot, "error 2 of 2 · e next, E previous, esc ends", "two")
        assert current.current == 61
        await pilot.press("E")
        await shows(pilot, "error 1 of 2")
        assert current.current == 32, "the traceback's head"
        await pilot.press("e", "e")
        await shows(pilot, "error 1 of 2 · went on from the start")
        await pilot.press("escape", "escape")
        await until(pilot, lambda: "error 1" not in screen_text(app))

        await pilot.press("end", "M")
        await shows(pilot, "── loading ••• ──")
        assert current.current == 40
        await pilot.press("M")
        await shows(pilot, "── launching ──")
        await pilot.press("m", "m")
        await until(pilot, lambda: current.current == 40)  # 503 has no line yet
        grow(app, b"INFO first of 503\n")
        await pilot.press("m")
        await shows(pilot, "── 503 ──")
        assert current.current == 91

        await pilot.press("colon", *"1,0x", "enter")
        await shows(pilot, "go to line: 1,0x", "a line's number is wanted")
        await pilot.press("backspace", "enter")
        await shows(pilot, "INFO step 10")
        assert current.current == 10 and app.query_one(LogLines).has_focus
        await pilot.press("colon", "escape")
        await until(pilot, lambda: app.query_one(LogLines).has_focus)
        assert current.current == 10
        await pilot.press("colon", *"999999", "enter")
        await until(pilot, lambda: current.current == 91)


# ------------------------------------------------------------------------------- long, odd and secret text


@pytest.mark.asyncio
async def test_wrapping_panning_and_text_that_could_break_a_screen() -> None:
    app = PaneApp()
    odd = (
        b"\x1b[31mred\x1b[0m \x1b]0;title\x07tail\n"
        b"one\rtwo\rthree\n"
        b"broken \xff\xe6\xbc utf\n"
        + "漢字".encode() * 60
        + b"end\n"
        + b"e"
        + "\u0301".encode() * 300
        + b"x\n"
        + "a\u202eb\u2066c [red]no markup[/red]\n".encode()
        + f"token={SECRET} ".encode() * 30
        + b"\n"
        + b"q" * 10_000_000
        + b" tail\n"
        + b"last\n"
    )
    async with app.run_test(size=(80, 24)) as pilot:
        app.pane.book = MemoryBook(odd)
        await shows(
            pilot,
            "red tail",
            "three",
            "broken \ufffd\ufffd utf",
            "abc [red]no markup[/red]",
            "last",
            "following · 9 lines",
        )
        assert all(cell_len(row) == 80 for row in screen_text(app).split("\n"))
        assert "title" not in screen_text(app) and "one" not in screen_text(app)
        for _ in range(12):
            await pilot.press("right")
            assert all(cell_len(row) == 80 for row in screen_text(app).split("\n"))
            assert SECRET[:3] not in screen_text(app)
        await pilot.press(*["left"] * 12)
        await shows(pilot, "red tail")
        await pilot.press("w")
        await pilot.press("home")
        await shows(pilot, "red tail", "字end")
        assert all(cell_len(row) == 80 for row in screen_text(app).split("\n"))
        assert SECRET[:3] not in screen_text(app)
        await pilot.press("end")
        await shows(pilot, "in this line]", "last", "following")
        await pilot.press("up")
        await shows(pilot, "paused")
        await pilot.press("down")
        await shows(pilot, "following")


# ------------------------------------------------------------------------------- the mouse, selection, copying


@pytest.mark.asyncio
async def test_selecting_by_keys_and_mouse_and_copying() -> None:
    app = PaneApp()
    async with app.run_test(size=(80, 24)) as pilot:
        app.pane.book = MemoryBook(numbered(100) + f"key {SECRET}\n".encode())
        await shows(pilot, "key •••")
        assert app.pane.selected_text() == "" and app.pane.copy() == 0
        lines = app.query_one(LogLines)

        # A click makes a line the current one, and following goes on.
        await pilot.click(lines, offset=(5, 21))
        await until(pilot, lambda: app.pane.view.current == 101)
        assert app.pane.following
        assert (app.pane.copy(), app.clipboard) == (1, "key •••")

        # Keys: a range, single lines, escape.
        await pilot.press("shift+up", "shift+up")
        await until(pilot, lambda: app.pane.selected_text() == "line 99\nline 100\nkey •••")
        assert styled(app, numbers(app).index(100), "selected").startswith("line 100")
        assert not app.pane.following
        await pilot.press("escape", "space", "space")
        await until(pilot, lambda: app.pane.selected_text() == "key •••" or app.pane.view.selected_lines() != [])
        await pilot.press("escape")
        await pilot.click(lines, offset=(5, 10))
        await pilot.press("space", "space")
        first = numbers(app)[10]
        await until(pilot, lambda: app.pane.view.selected_lines() == [first, first + 1])
        await pilot.press("escape")

        # A double click is its line, not ten million.
        await pilot.click(lines, offset=(3, 4), times=2)
        await until(pilot, lambda: app.pane.selected_text() == f"line {numbers(app)[4]}")
        await pilot.press("escape")

        # Dragging selects text, across lines, and holds the log still.
        await pilot.press("f")
        await pilot.mouse_down(lines, offset=(5, 2))
        await pilot.hover(lines, offset=(3, 4))
        await pilot.mouse_up(lines, offset=(3, 4))
        first = numbers(app)[2]
        await until(pilot, lambda: app.pane.selected_text() == f"{first}\nline {first + 1}\nline")
        assert not app.pane.following
        grow(app, numbered(50))
        assert app.pane.selected_text() == f"{first}\nline {first + 1}\nline"
        assert app.pane.copy() == 3
        await pilot.press("pagedown")
        assert app.pane.selected_text().startswith(f"{first}\n"), "what is selected are lines, not rows of the screen"
        await pilot.press("escape")
        await until(pilot, lambda: app.pane.selected_text() == "")


@pytest.mark.asyncio
async def test_a_selection_in_wrapped_wide_text_is_what_is_under_the_mouse() -> None:
    app = PaneApp()
    async with app.run_test(size=(120, 24)) as pilot:
        app.pane.book = MemoryBook(("漢" * 80).encode() + b"abcdef\n")
        await pilot.press("w")
        await shows(pilot, "abcdef")
        lines = app.query_one(LogLines)
        width = app.pane.view.text_width // 2
        gutter = app.pane.view.gutter
        await pilot.mouse_down(lines, offset=(gutter + 2 * (80 - width) + 1, 1))
        await pilot.hover(lines, offset=(gutter + 2 * (80 - width) + 4, 1))
        await pilot.mouse_up(lines, offset=(gutter + 2 * (80 - width) + 4, 1))
        await until(pilot, lambda: app.pane.selected_text() == "bcde")


# ------------------------------------------------------------------------------- what it costs


@pytest.mark.asyncio
async def test_a_refresh_costs_little_and_nothing_where_nothing_has_changed() -> None:
    app = PaneApp()
    async with app.run_test(size=(200, 60)) as pilot:
        app.pane.book = book = MemoryBook(numbered(10_000))
        await shows(pilot, "line 10000")
        lines = app.query_one(LogLines)
        painted = []
        refresh = lines.refresh
        lines.refresh = lambda *where, **how: painted.append(where) or refresh(*where, **how)  # type: ignore[method-assign,func-returns-value]
        app.pane.refresh_log()
        assert painted == []
        await pilot.press("up")
        painted.clear()
        grow(app, numbered(10))
        assert painted == [], "what is read does not change"
        app.pane.following = True
        costs_s = []
        for _ in range(30):
            book.append(numbered(60))
            began = time.thread_time()  # not the time that others take of this machine
            app.pane.refresh_log()
            assert len(lines.render_lines(lines.size.region)) == lines.size.height
            costs_s.append(time.thread_time() - began)
        assert sorted(costs_s)[len(costs_s) // 2] < 0.02, costs_s  # about 4 ms with long lines, 2 with these


# ------------------------------------------------------------------------------- other programs


@pytest.mark.asyncio
async def test_the_log_opens_in_another_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = tmp_path / "seen"
    pager = tmp_path / "less"
    pager.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" >{seen}.args\nfor f; do :; done\nls -l "$f" >{seen}.ls\ncat "$f" >{seen}\n'
    )
    pager.chmod(0o755)
    environ = {"PAGER": f"{pager} -S", "PATH": os.environ["PATH"]}
    app = PaneApp()
    async with app.run_test(size=(80, 24)) as pilot:
        app.pane.book = MemoryBook(numbered(60) + f"key {SECRET}\n".encode(), first_line=101, held_from=111)
        await pilot.press("o")
        await until(pilot, lambda: len(app.opened) == 1)
        assert (app.opened[0].line_no, app.opened[0].editor) == (161, False)
        app.pane.go_to(120)
        await pilot.press("O")
        await until(pilot, lambda: len(app.opened) == 2)
        assert (app.opened[1].line_no, app.opened[1].editor) == (120, True)
        # A test's driver cannot step aside: that is said, and nothing runs.
        problem = await open_log(app, app.pane.view, 120, editor=False, environ=environ)
        assert "cannot be handed" in problem and not seen.exists()
        monkeypatch.setattr(app, "suspend", nullcontext)
        assert await open_log(app, app.pane.view, 120, editor=False, environ=environ) == ""
        *options, plus, path = Path(f"{seen}.args").read_text().split()
        assert (options, plus) == (["-S"], "+11")
        assert not Path(path).exists() and not Path(path).parent.exists()
        assert Path(f"{seen}.ls").read_text().startswith("-rw-------")
        written = seen.read_text().split("\n")
        assert written[0].startswith("# Lines 111 to 161 of the log")
        assert written[10] == "120  line 20"
        assert "161  key •••" in written and SECRET not in seen.read_text()
        log = tmp_path / "the.log"
        log.write_text("x\n")
        assert await open_log(app, app.pane.view, 7, editor=False, environ=environ, local=log) == ""
        assert Path(f"{seen}.args").read_text().split() == ["-S", "+7", str(log)]
        problem = await open_log(app, app.pane.view, 7, editor=True, environ={"PATH": str(tmp_path)})
        assert "$VISUAL or $EDITOR" in problem


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["less", "-R"], ["less", "-R", "+7", "/x"]),
        (["/usr/bin/vim"], ["/usr/bin/vim", "+7", "/x"]),
        (["code"], ["code", "--wait", "-g", "/x:7"]),
        (["code", "--wait"], ["code", "--wait", "-g", "/x:7"]),
        (["hx"], ["hx", "/x:7"]),
        (["unheard-of"], ["unheard-of", "/x"]),
        (["bat"], ["bat", "--pager=less -R +7", "/x"]),
    ],
)
def test_each_program_is_told_the_line_in_its_own_way(words: list[str], command: list[str]) -> None:
    assert open_at.at_line(words, "/x", 7) == command
    assert open_at.at_line(["less"], "/x", 7, last=True) == ["less", "+G", "/x"]


def test_the_program_is_the_users_own_or_one_that_is_there(tmp_path: Path) -> None:
    for name in ("less", "mine"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    path = {"PATH": str(tmp_path)}
    assert open_at.program({**path, "PAGER": "mine -x 'a b'"}, editor=False) == ["mine", "-x", "a b"]
    assert open_at.program({**path, "PAGER": "gone"}, editor=False) == ["less"]
    assert open_at.program({**path, "PAGER": "'open quote"}, editor=False) == ["less"]
    assert open_at.program({**path, "EDITOR": "gone", "VISUAL": "mine"}, editor=True) == ["mine"]
    with pytest.raises(open_at.NoProgramError):
        open_at.program(path, editor=True)
