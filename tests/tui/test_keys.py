"""Each key asks for what it says, from the bar and from the palette as well; and they can be others."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from textual.binding import Binding
from textual.widgets import Input

from supervisor.core import events as ev
from supervisor.core.events import Verdict
from supervisor.tui import keys
from supervisor.tui.app import ConsoleApp
from supervisor.tui.format_keys import Key, Known, fitting, help_rows
from supervisor.tui.pieces import cells, text_of
from supervisor.tui.screens import every
from supervisor.tui.screens.confirm import ConfirmScreen
from supervisor.tui.screens.help import HelpScreen
from supervisor.tui.screens.run import RunScreen
from supervisor.tui.screens.transaction import TransactionScreen
from supervisor.tui.screens.zombies import ZombiesScreen
from supervisor.tui.widgets.key_bar import KeyBar
from supervisor.tui.widgets.line import Line
from tests.tui.consoles import (
    SMALL,
    TREE,
    USUAL,
    WIDE,
    console,
    pane,
    press,
    run_screen,
    said,
    screen_text,
    shows,
    until,
)
from tests.tui.fakes import FakeSession

# ------------------------------------------------------------------------------- orders


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [SMALL, WIDE])
async def test_stop_and_restart_show_whom_they_will_signal_and_do_it_on_yes_alone(size: tuple[int, int]) -> None:
    session = FakeSession(tree=TREE)
    app = console(session)
    async with app.run_test(size=size, notifications=True) as pilot:
        session.serving()
        await until(pilot, shows(app, "✔ serving"))
        for key, order in (("k", "stop"), ("r", "restart")):
            await press(pilot, key)
            await until(pilot, shows(app, f"{order.capitalize()} kimi @ gpu1?", f"{order} (y)", "leave it (n)"))
            for process in TREE:
                row = rf"{process.pid} +{process.uid} +\S+( s)? +{re.escape(process.title)}"
                assert re.search(row, screen_text(app)), process
            words = " ".join(text_of(app.screen.query_one("#consequence", Line).pieces).split())
            assert "These 3 processes" in words and "KILL after 30 s" in words and "6:41" in screen_text(app)
            assert ("launched anew" in words) is (order == "restart") and session.orders == []
            await press(pilot, "enter", "space", "y")  # stray keys decide nothing
            await until(pilot, lambda order=order: session.orders == [order])  # type: ignore[misc]
            await until(pilot, shows(app, "✔ done", "all 3 processes are gone after 1.2 s"))
            await press(pilot, "enter")
            await until(pilot, lambda: isinstance(app.screen, RunScreen))
            session.orders.clear()
        for no in ("n", "escape", "ctrl+c", "q"):
            await press(pilot, "k")
            await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
            await press(pilot, "enter", no)
            await until(pilot, lambda: isinstance(app.screen, RunScreen))
        assert app.is_running and session.cancelled == 0 and session.orders == []


@pytest.mark.asyncio
async def test_the_dialog_follows_a_tree_that_grows_and_its_button_works() -> None:
    session = FakeSession(tree=TREE[:1])
    app = console(session)
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        await press(pilot, "k")
        await until(pilot, shows(app, "48190", "This process"))
        assert session.attendance is not None
        session.attendance.tree = tuple(TREE)
        session.desk.warn("anything")
        await until(pilot, shows(app, "48212", "These 3 processes"))
        await pilot.click("#yes")
        await until(pilot, lambda: session.orders == ["stop"])


@pytest.mark.asyncio
async def test_without_a_run_stop_verify_and_the_transaction_say_so_and_restart_asks_to_launch() -> None:
    session = FakeSession()
    app = console(session)
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        await press(pilot, "k")
        await until(pilot, said(app, "there is nothing to stop"))
        await press(pilot, "v")
        await until(pilot, said(app, "there is nothing to verify"))
        await press(pilot, "t")
        await until(pilot, said(app, "Nothing was ordered yet"))
        await press(pilot, "y")
        await until(pilot, said(app, "Nothing is selected"))
        await press(pilot, "enter")  # no finding: nothing happens
        await press(pilot, "z")
        await until(pilot, lambda: isinstance(app.screen, ZombiesScreen) and "look" in session.orders)
        await press(pilot, "escape")
        await until(pilot, lambda: isinstance(app.screen, RunScreen))
        await press(pilot, "r")
        await until(pilot, shows(app, "No process of the run is known to live."))
        await press(pilot, "y")
        await until(pilot, lambda: session.orders == ["look", "restart"])


@pytest.mark.asyncio
@pytest.mark.parametrize("verify", [True, False])
async def test_v_asks_for_a_generation_or_says_that_verification_is_off(verify: bool) -> None:
    session = FakeSession(verify=verify, tree=TREE)
    app = console(session)
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        session.loading()
        await press(pilot, "v")
        await until(pilot, said(app, "at the first 200." if verify else "Verification is off in this profile."))
        session.answer(Verdict.READY, 200)
        await press(pilot, "v")
        if verify:
            await until(pilot, said(app, "A generation is asked for now."))
        assert session.attendance is not None and session.attendance.verified_again == (2 if verify else 0)


@pytest.mark.asyncio
@pytest.mark.parametrize("key", ["q", "ctrl+c", "ctrl+q"])
async def test_quitting_ends_our_session_and_says_that_the_server_goes_on(key: str) -> None:
    session = FakeSession(tree=TREE)
    app = console(session)
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        session.serving()
        await until(pilot, shows(app, "✔ serving"))
        await press(pilot, key)
        await until(pilot, lambda: not app.is_running)
    assert session.cancelled == 1 and session.orders == []
    assert app.return_value == 0
    assert app.farewell == "kimi @ gpu1: the server goes on (serving). This console has only stopped looking."


@pytest.mark.asyncio
async def test_quitting_amid_a_stop_takes_a_second_key_and_does_not_say_that_the_server_goes_on() -> None:
    session = FakeSession(tree=TREE)
    session.stop_takes = asyncio.Event()
    app = console(session)
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        session.serving()
        await press(pilot, "k")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        await press(pilot, "y")
        await until(pilot, lambda: isinstance(app.screen, TransactionScreen))
        await press(pilot, "escape")
        await until(pilot, lambda: isinstance(app.screen, RunScreen))
        await press(pilot, "q")
        await until(pilot, said(app, "A stop is under way: leaving now would break it off. q again leaves"))
        assert app.is_running and not app.farewell
        await press(pilot, "q")
        await until(pilot, lambda: not app.is_running)
    assert "a stop was under way" in app.farewell and "goes on" not in app.farewell


# ------------------------------------------------------------------------------- the log, the picture, the layout, help


@pytest.mark.asyncio
async def test_the_log_has_its_keys_and_the_picture_can_be_paused() -> None:
    session = FakeSession(tree=TREE)
    app = console(session)
    async with app.run_test(size=USUAL, notifications=True) as pilot:
        session.loading()
        for number in range(1, 400):
            session.log("ERROR: it is broken" if number == 100 else f"line number {number}", number)
        await until(pilot, shows(app, "line number 399", "following"))
        await press(pilot, "pageup")
        await until(pilot, lambda: not pane(app).following)
        await press(pilot, "f")
        await until(pilot, lambda: pane(app).following)
        await press(pilot, "E")
        await until(pilot, shows(app, "ERROR: it is broken"))
        await press(pilot, "slash")
        await until(pilot, lambda: isinstance(app.focused, Input))
        await press(pilot, *"number 7", "enter")  # the screen's own keys (r, e, …) are letters here
        await until(pilot, lambda: "number 7" in screen_text(app) and not isinstance(app.focused, Input))
        assert session.orders == [] and not isinstance(app.screen, ConfirmScreen)
        await press(pilot, "escape", "f")
        await until(pilot, shows(app, "line number 399"))

        await press(pilot, "p")
        await until(pilot, shows(app, "picture paused", "p goes on"))
        session.after(30).desk.warn("seen only later")
        session.log("line number 400", 400)
        await until(pilot, shows(app, "picture paused 30 s"))
        assert "seen only later" not in screen_text(app) and "line number 400" not in screen_text(app)
        assert "● loading 6:36" in screen_text(app)
        await press(pilot, "p")
        await until(pilot, shows(app, "seen only later", "line number 400", "● loading 7:06"))
        assert "picture paused" not in screen_text(app)


@pytest.mark.asyncio
async def test_the_help_says_every_key_with_its_id_and_the_palette_runs_them() -> None:
    session = FakeSession(tree=TREE)
    app = console(session)
    async with app.run_test(size=(120, 70), notifications=True) as pilot:
        await press(pilot, "question_mark")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        await until(pilot, shows(app, "this server", "console.restart", "log.search", "app.layout", "restart"))
        await press(pilot, "escape")
        await until(pilot, lambda: isinstance(app.screen, RunScreen))
        await press(pilot, "ctrl+p")
        await until(pilot, lambda: isinstance(app.focused, Input))
        await press(pilot, *"layout wall")
        await until(pilot, shows(app, "layout wall"))
        await press(pilot, "enter")
        await until(pilot, lambda: isinstance(app.screen, RunScreen) and app.has_class("-wall"))


@pytest.mark.asyncio
async def test_the_mouse_presses_the_keys_of_the_bar_which_never_runs_off_the_screen() -> None:
    session = FakeSession(tree=TREE)
    app = console(session)
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        for width in (80, 100, 120, 200):
            await pilot.resize_terminal(width, 30)
            bar = run_screen(app).query_one(KeyBar)
            await until(pilot, lambda width=width, bar=bar: bar.size.width == width - 2)  # type: ignore[misc]
            text = screen_text(app).splitlines()[-1]
            assert cells(text.rstrip()) <= width and "? help" in text and "q quit" in text and "k stop" in text
            assert ("quit (the server goes on)" in text) is (width >= 120)
        assert "p pause" in screen_text(app)
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: bar.size.width == 78)
        row = screen_text(app).splitlines()[-1]
        await pilot.click(KeyBar, offset=(row.index("k stop"), 0))
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))


# ------------------------------------------------------------------------------- the user's own keys


def test_every_binding_has_an_id_and_no_two_of_a_place_share_one() -> None:
    for owner in (ConsoleApp, RunScreen, ConfirmScreen, TransactionScreen, HelpScreen, ZombiesScreen):
        bindings = owner.__dict__["BINDINGS"]
        ids = [binding.id for binding in bindings if isinstance(binding, Binding)]
        assert len(ids) == len(bindings) and all(ids) and len(set(ids)) == len(ids), owner
        assert getattr(owner, "AUTO_FOCUS", None) in (None, "*", ""), owner
    assert {"console.restart", "app.quit", "log.search", "confirm.yes"} <= every.binding_ids(ConsoleApp)


@pytest.mark.asyncio
async def test_keys_of_the_users_own_hold_and_what_cannot_be_meant_is_told(tmp_path: Path) -> None:
    (tmp_path / "keys.toml").write_text(
        '"console.stop" = "K"\n[console]\nrestart = ["f5", "ctrl+r"]\nverfy = "x"\n[log]\nsearch = "nonsense"\n'
    )
    session = FakeSession(tree=TREE)
    app = console(session, config=tmp_path)
    async with app.run_test(size=WIDE, notifications=True) as pilot:
        await until(pilot, said(app, "there is no 'console.verfy'; did you mean console.verify?"))
        await until(pilot, said(app, "there is no key 'nonsense'"))
        await until(pilot, shows(app, "K stop", "f5 restart"))
        await press(pilot, "k")
        await press(pilot, "r")
        await press(pilot, "K")
        await until(pilot, shows(app, "Stop kimi @ gpu1?"))
        await press(pilot, "n")
        await until(pilot, lambda: isinstance(app.screen, RunScreen))
        await press(pilot, "f5")
        await until(pilot, shows(app, "Restart kimi @ gpu1?"))


def test_a_keymap_that_cannot_be_read_costs_its_keys_alone(tmp_path: Path) -> None:
    ids = ["console.stop", "console.restart"]
    assert keys.load(None, lambda: ids) == keys.Keymap() == keys.load(tmp_path, lambda: ids)
    path = tmp_path / "keys.toml"
    path.write_text("[console\n")
    broken = keys.load(tmp_path, lambda: ids)
    assert broken.keys == {} and "line 1" in broken.problems[0] and str(path) in broken.problems[0]
    path.write_bytes(b"\xff\xfe")
    assert keys.load(tmp_path, lambda: ids).problems
    path.write_text('"console.stop" = 7\n"console.restart" = []\n')
    assert [problem.rpartition(": ")[2] for problem in keys.load(tmp_path, lambda: ids).problems] == [
        "a key, or a list of keys, is wanted"
    ] * 2
    path.write_text('console.stop = "x"\nconsole.restart = "x,comma"\n')
    found = keys.load(tmp_path, lambda: ids)
    assert found.keys == {"console.stop": "x", "console.restart": "x,comma"}
    assert "console.restart and console.stop both want x" in found.problems[0]


@pytest.mark.parametrize(
    "good", ["R", "/", " ", "f5", "ctrl+r", "shift+tab", "pagedown", "slash", "asterisk", "ctrl+/"]
)
def test_keys_that_a_terminal_sends(good: str) -> None:
    assert keys.is_key(good)


@pytest.mark.parametrize("bad", ["", "nonsense", "ctrl+", "ctrl+nonsense", "control+r", "ctrl+ctrl+r", "\x07", "F5 "])
def test_keys_that_no_terminal_sends(bad: str) -> None:
    assert not keys.is_key(bad)


# ------------------------------------------------------------------------------- what fits


def test_the_bar_keeps_the_help_and_the_end_whatever_the_width() -> None:
    every = [Key(str(n), str(n), f"what {n}") for n in range(8)]
    every += [Key("?", "?", "help", always=True), Key("q", "q", "quit (the server goes on)", always=True)]
    for width in range(20, 140):
        shown = fitting(every, width)
        assert [key for key in every if key.key in [item.key for item in shown]] and shown[-1].what.startswith("quit")
        assert sum(cells(f"{key.shown} {key.what}") for key in shown) + 2 * (len(shown) - 1) <= width
    assert fitting(every, 139) == every
    assert [key.key for key in fitting(every, 40)] == ["0", "1", "?", "q"]


def test_the_help_groups_keys_and_shows_their_ids() -> None:
    known = [Known(("e",), "errors", "log.next_error"), Known(("r", "f5"), "restart", "console.restart")]
    assert text_of(help_rows(known)).splitlines() == [
        "this server",
        "  r f5  restart   console.restart",
        "",
        "the log",
        "     e  errors    log.next_error",
    ]


def test_an_event_of_no_kind_is_no_reason_to_look() -> None:
    """The vocabulary that `Looks.changed` sorts by is that of the stream."""
    assert issubclass(ev.LogBlock, ev.Event) and issubclass(ev.Log, ev.Event)


@pytest.mark.asyncio
async def test_x_puts_warnings_away_until_a_new_one_comes() -> None:
    session = FakeSession(tree=TREE)
    app = console(session)
    async with app.run_test(size=USUAL, notifications=True) as pilot:
        session.serving()
        session.desk.warn("the first thing")
        await until(pilot, shows(app, "the first thing", "x: put the warnings away"))
        rows = pane(app).size.height
        await press(pilot, "x")
        await until(pilot, lambda: "the first thing" not in screen_text(app))
        assert pane(app).size.height > rows, "the log has its rows"
        session.after(1).desk.warn("another thing")  # as many rows as before: what was drawn there must not come back
        await until(pilot, shows(app, "another thing"))
        assert "the first thing" not in screen_text(app)
        await press(pilot, "x", "x")
        await until(pilot, said(app, "There is no warning to put away."))
