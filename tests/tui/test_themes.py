"""Looks of the console: themes, colours that every eye tells apart, no colours, terminals without Unicode."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rich.cells import cell_len
from rich.segment import Segment
from textual.app import App
from textual.color import Color

from supervisor.core import events as ev
from supervisor.core.events import Verdict
from supervisor.tui import glyphs, themes
from supervisor.tui.app import ConsoleApp
from tests.tui.consoles import SMALL, TREE, USUAL, console, gpus, press, run_screen, said, screen_text, shows, until
from tests.tui.fakes import FakeSession


def colours(app: App[int]) -> Iterator[tuple[int, int, int]]:
    for strip in app.screen._compositor.render_strips():
        for segment in strip:
            if segment.style is not None and segment.style.color is not None:
                red, green, blue = segment.style.color.get_truecolor()
                yield red, green, blue


# ------------------------------------------------------------------------------- themes


@pytest.mark.asyncio
async def test_themes_are_chosen_by_the_environment_and_an_unknown_one_is_told() -> None:
    app = console(FakeSession(), environ={themes.SWITCH: themes.COLOUR_BLIND.name})
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        await until(pilot, shows(app, "no run yet"))
        assert app.theme == themes.COLOUR_BLIND.name
        app.theme = "textual-light"
        await until(
            pilot, lambda: app.screen.styles.background == Color.parse(app.current_theme.background or "#e0e0e0")
        )
        app.theme = "nord"
        await until(pilot, shows(app, "no run yet"))
    app = console(FakeSession(), environ={themes.SWITCH: "nonsense"})
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        await until(pilot, said(app, "there is no theme 'nonsense'"))
        assert app.theme == themes.DEFAULT


def _simulated(colour: Color, matrix: tuple[tuple[float, float, float], ...]) -> tuple[float, ...]:
    """As somebody with that kind of colour vision sees it (Viénot, Brettel and Mollon, on linear light)."""
    linear = [(part / 255) ** 2.2 for part in (colour.r, colour.g, colour.b)]
    return tuple(sum(weight * part for weight, part in zip(row, linear, strict=True)) for row in matrix)


DEUTERANOPE = ((0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969))
PROTANOPE = ((0.152, 1.053, -0.205), (0.115, 0.786, 0.099), (-0.004, -0.048, 1.052))


@pytest.mark.parametrize("eyes", [DEUTERANOPE, PROTANOPE])
def test_good_warning_and_bad_are_told_apart_by_every_eye(eyes: tuple[tuple[float, float, float], ...]) -> None:
    theme = themes.COLOUR_BLIND
    seen = [_simulated(Color.parse(colour or ""), eyes) for colour in (theme.success, theme.warning, theme.error)]
    for one in range(3):
        for two in range(one):
            apart = sum((a - b) ** 2 for a, b in zip(seen[one], seen[two], strict=True)) ** 0.5
            assert apart > 0.25, (one, two, apart)


@pytest.mark.asyncio
async def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    session = FakeSession(tree=TREE)
    session.serving()
    session.desk.tell(gpus(session, 70, 10))
    app = console(session)
    async with app.run_test(size=USUAL, notifications=True) as pilot:
        await until(pilot, shows(app, "✔ serving"))
        found = set(colours(app))
        assert found and all(max(colour) - min(colour) <= 1 for colour in found), found


# ------------------------------------------------------------------------------- no Unicode


@pytest.mark.asyncio
async def test_a_terminal_without_unicode_gets_none_anywhere() -> None:
    session = FakeSession(tree=TREE)
    session.loading()
    session.desk.tell(gpus(session, 70, 10, 33))
    session.answer(Verdict.NOT_YET, 503)
    session.log("progress ███▌ 41 % – naïve 漢字 \U0001f980", 1)
    session.desk.tell(ev.Metrics(at=session.clock.at, running=12, queued=3, generated_tokens_s=912.0))
    app = console(session, environ={"SUPERVISOR_ASCII": "1"})
    async with app.run_test(size=USUAL, notifications=True) as pilot:
        await until(pilot, shows(app, "* 503", "v launching", "progress ###= 41 % - na?ve ???? ??"))
        for key, shown in (("k", "stop (y)"), ("n", "k stop"), ("question_mark", "this server"), ("escape", "k stop")):
            await press(pilot, key)
            await until(pilot, lambda shown=shown: shown in screen_text(app))  # type: ignore[misc]
            text = screen_text(app)
            assert text.isascii(), sorted({character for character in text if not character.isascii()})
            assert all(cell_len(row) == 120 for row in text.splitlines())
            await until(pilot, lambda key=key: run_screen(app).is_active is (key in "n escape"))  # type: ignore[misc]
        await press(pilot, "l")
        await until(pilot, lambda: app.has_class("-compact"))
        assert screen_text(app).isascii()


@pytest.mark.parametrize(
    ("environ", "encoding", "wanted"),
    [
        ({"TERM": "xterm-256color"}, "UTF-8", False),
        ({"TERM": "xterm-256color"}, "utf8", False),
        ({"TERM": "xterm-256color"}, "ANSI_X3.4-1968", True),
        ({"TERM": "xterm"}, "ISO-8859-1", True),
        ({"TERM": "xterm", "LC_ALL": "C"}, "utf-8", True),
        ({"TERM": "xterm", "LANG": "C", "LC_CTYPE": "C.UTF-8"}, "utf-8", True),
        ({"TERM": "xterm", "LANG": "C", "LC_CTYPE": "de_DE.UTF-8"}, "utf-8", False),
        ({"TERM": "xterm", "LANG": "C", "LC_ALL": "C.UTF-8"}, "utf-8", False),
        ({"TERM": "xterm"}, "utf-8", False),
        ({"TERM": "linux"}, "UTF-8", True),
        ({"TERM": "dumb"}, "UTF-8", True),
        ({"TERM": "linux", "SUPERVISOR_ASCII": "0"}, "UTF-8", False),
        ({"TERM": "xterm", "SUPERVISOR_ASCII": "1"}, "UTF-8", True),
    ],
)
def test_which_terminal_has_no_unicode(environ: dict[str, str], encoding: str, wanted: bool) -> None:
    assert glyphs.needs_ascii(environ, encoding) is wanted


def test_what_stands_in_is_as_wide_and_known_glyphs_have_no_question_mark() -> None:
    used = "╭╮╰╯─│━╸●○◌✔✘▲■▪·…–→≈▁▂▃▄▅▆▇█▉▊▋▌▍▎▏▕░▒▓×°└‖⏎↑↓←→⌫"
    for glyph in used:
        plain = glyphs.to_ascii(glyph)
        assert plain.isascii() and len(plain) == cell_len(glyph) == 1 and plain != "?", glyph
    assert glyphs.to_ascii("漢字 ok") == "???? ok" and glyphs.to_ascii("plain") == "plain"
    segments = glyphs.AsciiFilter().apply([Segment("─ x"), Segment("plain")], Color.parse("black"))
    assert [segment.text for segment in segments] == ["- x", "plain"]


def test_the_marks_of_the_states_differ_without_colour_too() -> None:
    """✔ ✘ ▲ ● ○ ■: in ASCII as well."""
    plain = [glyphs.to_ascii(mark) for mark in "✔✘▲●○■"]
    assert len(set(plain)) == len(plain)


def test_a_theme_is_no_business_of_the_apps_class() -> None:
    assert ConsoleApp.CSS == "" and not ConsoleApp.CSS_PATH
