"""The console's screen of one server: what stands there in each state, on the smallest screen and on a large one."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace
from textual.command import CommandList
from textual.widgets import Button

from supervisor.core import events as ev
from supervisor.core.events import LinkState, Verdict
from supervisor.errors import LoginError
from supervisor.supervise.session import Session
from supervisor.tui.app import ConsoleApp
from supervisor.tui.screens.help import HelpScreen
from supervisor.tui.screens.palette import Palette
from supervisor.tui.watcher import Supervised
from supervisor.tui.widgets.panel import Panel
from tests.tui.consoles import (
    SECRET,
    SMALL,
    TREE,
    USUAL,
    WIDE,
    console,
    gpus,
    pane,
    pieces,
    press,
    run_screen,
    screen_text,
    shows,
    until,
    watcher_of,
)  # fmt: skip
from tests.tui.fakes import FakeSession

Size = tuple[int, int]


def as_supervised(session: Session) -> Supervised:
    """Checked by mypy alone: the real session fits what the console asks for."""
    return session


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [SMALL, WIDE])
async def test_a_load_shows_its_phases_stage_link_gpus_and_answers(size: Size) -> None:
    session = FakeSession(tree=TREE)
    app = console(session)
    async with app.run_test(size=size, notifications=True) as pilot:
        await until(pilot, shows(app, "◌ connecting", "no run yet", "r restart", "? help", "q quit"))
        session.loading()
        session.answer(Verdict.REFUSED, None, "nothing listens on 127.0.0.1:30000")
        session.log("Load weight begin", 1)
        await until(pilot, shows(app, "✔ launching 2.0 s", "● loading 6:36", "○ 503", "○ 200", "○ serving"))
        await until(pilot, shows(app, "weights 41/64", "64 %", "refused", "6:38 since launch", "Load weight begin"))
        assert ("✔ preflight 0.8 s" in screen_text(app)) is (size is WIDE)
        screen = run_screen(app)
        assert not screen.query_one(Panel).display and not screen.query_one("#devices").display
        await until(pilot, shows(app, "link ● 12 ms"))  # the round trip
        session.desk.tell(gpus(session, 70, 10, ours_gib=71))
        await until(pilot, shows(app, "80.0 of 160.0 GiB", "this run 71.0 GiB"))
        session.after(61)  # elapsed time grows without any event
        await until(pilot, shows(app, "● loading 7:37", "still 1:01", "7:39 since launch"))


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [SMALL, WIDE])
async def test_a_failure_ends_the_strip_and_shows_its_finding(size: Size) -> None:
    session = FakeSession(tree=TREE)
    app = console(session)
    async with app.run_test(size=size, notifications=True) as pilot:
        session.loading()
        for number in range(1, 3000):
            session.log(f"line number {number}", number)
        session.after(10)
        session.desk.note(ev.Ended(at=session.clock.at, exit=ev.Exit(code=1)))
        await until(pilot, shows(app, "✘ loading 6:46", "failed after 6:48", "the server ended: exit code 1"))
        assert "○ serving" not in screen_text(app)
        session.desk.tell(
            ev.Finding(
                at=session.clock.at,
                category="communication",
                detail="shm",
                cause="NCCL could not map shared memory",
                line="NCCL WARN Error while creating [shared] memory",
                line_no=2113,
                confidence="sure",
                advice="--shm-size 16g",
                ruled_out=("the memory of the GPUs",),
            )
        )
        await until(pilot, shows(app, "failed after 6:48 · communication", "NCCL could not map shared memory", "sure"))
        await until(pilot, shows(app, "line 2,113", "[shared]", "Not: the memory of the GPUs", "Try: --shm-size 16g"))
        assert run_screen(app).query_one(Panel).has_class("-bad")
        assert "line number 2113" not in screen_text(app)
        await press(pilot, "enter")
        await until(pilot, shows(app, "line number 2113"))
        await press(pilot, "y")
        await until(pilot, lambda: "NCCL could not map shared memory" in app.clipboard)
        assert app.clipboard.startswith("kimi @ gpu1, run 1130-0412-a3f1\n") and "loading" in app.clipboard


@pytest.mark.asyncio
async def test_serving_stopping_and_the_next_run() -> None:
    session = FakeSession(tree=TREE)
    app = console(session)
    async with app.run_test(size=WIDE, notifications=True) as pilot:
        session.serving()
        session.after(63).answer(Verdict.READY, 200, "200 from our own process", ms=1001)
        await until(pilot, shows(app, "✔ loading 6:38", "✔ 503 8.0 s", "✔ 200 0.4 s", "✔ serving 1:03"))
        await until(pilot, shows(app, '"Paris" in 412 ms', "200 ready", "1,001 ms", "503 1 · 200 2"))
        session.desk.tell(ev.Metrics(at=session.clock.at, running=12, queued=3, generated_tokens_s=912.0))
        await until(pilot, shows(app, "tok/s", "912", "running", "queued"))
        session.desk.note(ev.StopBegan(at=session.clock.at, by="me"))
        session.desk.note(ev.TreeGone(at=session.clock.at, release="no gpu"))
        await until(pilot, shows(app, "■ stopped", "503 1 · 200 2"))
        session.after(1).begin("1130-0500-ffff")
        session.launch()
        session.answer(Verdict.REFUSED)
        await until(pilot, shows(app, "● launching", "refused"))
        assert "200 2" not in pieces(app, "health")  # answers are counted for each run


@pytest.mark.asyncio
async def test_a_skipped_503_and_a_degraded_server() -> None:
    session = FakeSession(verify=False)
    app = console(session)
    async with app.run_test(size=USUAL, notifications=True) as pilot:
        session.loading()
        session.answer(Verdict.READY, 200, "200")
        await until(pilot, shows(app, "– 503", "✔ serving"))
        session.begin("1130-0500-ffff")  # ignored while it serves: the strip must not move
        for _ in range(3):
            session.after(1).answer(Verdict.SILENT)
        await until(pilot, shows(app, "▲ degraded"))


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [SMALL, USUAL])
async def test_a_lost_link_says_at_a_glance_that_the_rest_is_the_last_known(size: Size) -> None:
    session = FakeSession(tree=TREE)
    session.serving()
    app = console(session)
    async with app.run_test(size=size, notifications=True) as pilot:
        await until(pilot, shows(app, "✔ serving"))
        screen = run_screen(app)
        assert not screen.has_class("-stale") and not screen.query_one("#link").display
        session.link(LinkState.LOST, "connection reset by peer")
        session.after(12).desk.warn("something else")
        await until(pilot, shows(app, "lost 12 s", "what stands here is the last known"))
        assert "connection reset by peer" in pieces(app, "link") or size is SMALL
        await until(pilot, lambda: screen.query_one("#strip").styles.text_opacity < 1)
        assert "✔ serving" in screen_text(app)
        session.link(LinkState.UP)
        await until(pilot, lambda: not screen.has_class("-stale") and not screen.query_one("#link").display)


@pytest.mark.asyncio
async def test_what_was_there_before_and_warnings_of_this_run_alone() -> None:
    session = FakeSession(tree=TREE)
    session.desk.warn("of yesterday")
    session.after(1).loading()
    session.log("an early line", 1)
    app = console(session)
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        await until(pilot, shows(app, "● loading", "an early line"))
        for number in range(5):
            session.after(1).desk.warn(f"warning {number}")
        await until(pilot, shows(app, "warning 4", "warning 2", "2 earlier"))
        assert "warning 1" not in screen_text(app) and "of yesterday" not in screen_text(app)
        assert not run_screen(app).query_one(Panel).has_class("-bad")
        assert pane(app).size.height >= 8


@pytest.mark.asyncio
async def test_a_refusal_and_an_error_of_our_own_stay_on_the_screen_and_r_tries_again() -> None:
    session = FakeSession()
    app = console(session)
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        session.link(LinkState.UP)
        session.begin()
        session.desk.note(ev.Refused(at=session.clock.at, reasons=("port 30000 belongs to pid 7",)))
        await until(pilot, shows(app, "✘ refused: nothing was launched", "port 30000 belongs to pid 7"))
        await until(pilot, lambda: session.end is not None)
        assert session.end is not None
        session.end.set_exception(LoginError(f"gpu1 refused every key, and {SECRET}"))
        await until(pilot, shows(app, "supervision has ended", "gpu1 refused every key, and •••", "r: try again"))
        assert app.is_running
        await press(pilot, "r")
        await until(pilot, lambda: session.runs == 2)
        await until(pilot, lambda: not run_screen(app).query_one(Panel).display)
        assert session.orders == []


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [SMALL, USUAL])
async def test_simulated_gpus_are_called_so_all_the_time(size: Size) -> None:
    session = FakeSession(tree=TREE)
    session.loading()
    session.desk.tell(gpus(session, 40, 40, simulated=True))
    app = console(session)
    async with app.run_test(size=size, notifications=True) as pilot:
        await until(pilot, lambda: "simulated" in screen_text(app).splitlines()[0].lower())
        for name in ("wall", "console", "compact"):
            app.action_layout(name)
            await until(pilot, lambda name=name: app.has_class(f"-{name}"))  # type: ignore[misc]
            await until(pilot, lambda: "simulated" in screen_text(app).splitlines()[0].lower())
        await press(pilot, "p")
        await until(pilot, shows(app, "picture paused"))
        assert "simulated" in screen_text(app).splitlines()[0].lower()


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [(10, 3), (20, 5)])
async def test_the_palette_pages_through_a_list_that_has_no_room(size: Size) -> None:
    app = console(FakeSession(tree=TREE))
    async with app.run_test(size=size) as pilot:
        await press(pilot, "ctrl+p")
        await until(pilot, lambda: isinstance(app.screen, Palette))
        await press(pilot, "e", "pagedown", "down", "pageup")
        await press(pilot, "escape", "escape", "question_mark")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))  # every key before has come by then


@pytest.mark.asyncio
async def test_no_title_of_a_profile_or_of_a_process_drives_the_terminal() -> None:
    evil = "\x1b]0;pwned\x07\x9b2J[bold]x[/] \u202eevil"
    session = FakeSession(tree=[replace(TREE[0], title=evil)])
    session.stop_takes = asyncio.Event()
    assert session.attendance is not None
    session.attendance.log_path = f"/data/{evil}.log"
    app = ConsoleApp([watcher_of(session, title=f"kimi {evil}")], environ={})
    async with app.run_test(size=USUAL, notifications=True) as pilot:
        session.serving()
        await until(pilot, shows(app, "✔ serving"))
        seen = screen_text(app)
        for keys, text in (("k", "leave it"), ("y", "background")):
            await press(pilot, keys)
            await until(pilot, shows(app, text, "48190"))
            seen += screen_text(app)
        session.stop_takes.set()
        await until(pilot, shows(app, "done after"))
        seen += screen_text(app)
    assert "[bold]x[/]" in seen, "nor is it markup"
    assert not [char for char in seen if not char.isprintable() and char != "\n"]


@pytest.mark.asyncio
async def test_what_is_closed_twice_closes_nothing_beneath() -> None:
    """A second escape, enter or click came to the screen below, and with the last one the console fell."""
    session = FakeSession(tree=TREE)
    app = console(session)
    async with app.run_test(size=USUAL, notifications=True) as pilot:
        session.serving()
        await until(pilot, shows(app, "✔ serving"))
        for key, button in (("k", "no"), ("r", "no"), ("z", "no"), ("k", "yes"), ("t", "close")):
            await press(pilot, key)
            await until(pilot, lambda: app.screen is not run_screen(app))
            await until(pilot, lambda: app.screen.query(Button))
            pressed = app.screen.query_one(f"#{button}", Button)
            for _ in range(3):
                pressed.post_message(Button.Pressed(pressed))
            if button == "yes":
                await until(pilot, shows(app, "done after"))
                await press(pilot, "enter", "enter", "enter")
            await until(pilot, lambda: app.screen is run_screen(app))
        await press(pilot, "ctrl+p")
        await until(pilot, lambda: any(found.option_count for found in app.screen.query(CommandList)))
        await press(pilot, "down", "enter", "enter", "enter")
        await until(pilot, lambda: app.screen is run_screen(app))
        await press(pilot, *["escape"] * 3, "question_mark")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
    assert session.orders.count("stop") == 1


@pytest.mark.asyncio
async def test_that_gpus_are_simulated_is_never_cut_off() -> None:
    session = FakeSession(tree=TREE)
    app = console(session)
    async with app.run_test(size=(100, 30)) as pilot:
        session.serving()
        await until(pilot, shows(app, "✔ serving"))
        model = run_screen(app).watcher.model
        for length in range(1, 30):  # titles of many lengths
            event = gpus(session, *[70] * 8, ours_gib=1, simulated=True)
            session.desk.tell(replace(event, driver=replace(event.driver, version="5" * length)))
            await until(pilot, lambda: model.view.gpu is session.desk.hub.view.gpu)
            run_screen(app).look()
            await until(pilot, shows(app, "GPUs · 8 × H100"))
            assert "simulated ─" in screen_text(app), length
