"""The console on a session without a node: what stands on the screen, and what each key asks of the session."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import pytest
from textual.app import App
from textual.binding import Binding
from textual.pilot import Pilot

from supervisor import resources
from supervisor.core import events as ev
from supervisor.core.events import LinkState, Verdict
from supervisor.errors import LoginError, UnreachableError
from supervisor.supervise.session import Session
from supervisor.tui.app import ConsoleApp, Supervised
from supervisor.tui.screens.confirm import ConfirmScreen
from supervisor.tui.widgets.line import Line
from supervisor.tui.widgets.log_pane import MAX_LINES, LogPane
from supervisor.tui.widgets.panel import Panel
from tests.tui.fakes import FakeSession

SMALL, WIDE = (80, 24), (200, 60)
SECRET = "sk-hunter2"
TREE = [
    ev.Process(pid=48190, start_ticks=1, uid=1003, age_s=401, title="python3 -m sglang.launch_server --tp 2"),
    ev.Process(pid=48211, start_ticks=2, uid=1003, age_s=399, title="sglang::scheduler_TP0"),
    ev.Process(pid=48212, start_ticks=3, uid=1004, age_s=7, title="[not markup] sglang::scheduler_TP1"),
]

Console = ConsoleApp
Until = Callable[[], bool]


def as_supervised(session: Session) -> Supervised:
    """Checked by mypy alone: the real session fits what the console asks for."""
    return session


def console(session: FakeSession) -> Console:
    return ConsoleApp(session, title="kimi", node="gpu1", mask=lambda text: text.replace(SECRET, "•••"))


async def until(pilot: Pilot[int], holds: Until) -> None:
    """Let the app work until it holds; a test that waits in vain shows the screen."""
    try:
        async with asyncio.timeout(15):
            # Not pilot.pause(): it waits for ever for a toast that another one replaces meanwhile.
            while not holds():  # noqa: ASYNC110 - Textual has no event for "drawn"
                await asyncio.sleep(0.02)
    except TimeoutError:
        pytest.fail(f"waited in vain; the screen:\n{screen_text(pilot.app)}")


def screen_text(app: App[int]) -> str:
    """Every row of the screen as it is drawn."""
    return "\n".join("".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips())


def shows(app: Console, *texts: str) -> Until:
    return lambda: all(text in screen_text(app) for text in texts)


def said(app: Console, *texts: str) -> Until:
    """A toast says it, wherever it is wrapped."""
    return lambda: all(any(text in toast.message for toast in app._notifications) for text in texts)


def pieces(app: Console, name: str) -> str:
    """What a line says in all, also where the screen is too narrow for it."""
    return "".join(text for text, _role in app.query_one(f"#{name}", Line).pieces)


def pane(app: Console) -> LogPane:
    return app.query_one(LogPane)


# ------------------------------------------------------------------------------- what stands there


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [SMALL, WIDE])
async def test_a_load_shows_its_phases_stage_link_and_answers(size: tuple[int, int]) -> None:
    session = FakeSession(tree=TREE)
    app = console(session)
    async with app.run_test(size=size, notifications=True) as pilot:
        session.loading()
        session.answer(Verdict.REFUSED, None, "nothing listens on 127.0.0.1:30000")
        await until(pilot, shows(app, "✔ launching 2.0 s", "● loading 6:36", "○ 503", "○ 200", "○ serving"))
        await until(pilot, shows(app, "weights 41/64", "64 %", "● up", "○ refused", "refused 1", "6:38 since launch"))
        assert ("✔ preflight 0.8 s" in screen_text(app)) is (size is WIDE)
        await until(pilot, shows(app, "r restart", "k stop", "v verify now", "f follow", "q quit (the server goes on)"))
        assert not app.query_one(Panel).display


@pytest.mark.asyncio
async def test_serving_shows_all_times_and_its_evidence() -> None:
    session = FakeSession(tree=TREE)
    app = console(session)
    async with app.run_test(size=WIDE, notifications=True) as pilot:
        session.serving()
        session.after(63).answer(Verdict.READY, 200, "200 from our own process", ms=1001)
        await until(pilot, shows(app, "✔ loading 6:38", "✔ 503 8.0 s", "✔ 200 0.4 s", "✔ serving 1:03"))
        await until(
            pilot,
            shows(app, '"Paris" in 412 ms', "● 200 ready", "0 bytes · 1,001 ms · ours", "503 1 · 200 2"),
        )


@pytest.mark.asyncio
async def test_a_skipped_503_and_a_fall_back_are_told_apart() -> None:
    session = FakeSession(verify=False)
    app = console(session)
    async with app.run_test(size=WIDE, notifications=True) as pilot:
        session.loading()
        session.answer(Verdict.READY, 200, "200")
        await until(pilot, shows(app, "– 503", "✔ serving"))
        session.begin("1130-0500-ffff")  # ignored while it serves: the strip must not move
        for _ in range(3):
            session.after(1).answer(Verdict.SILENT)
        await until(pilot, shows(app, "▲ degraded"))

    session = FakeSession()
    app = console(session)
    async with app.run_test(size=WIDE, notifications=True) as pilot:
        session.loading()
        session.after(1).answer(Verdict.NOT_YET, 503)
        session.after(5).answer(Verdict.REFUSED)
        await until(pilot, shows(app, "● loading", "○ 503 5.0 s"))


@pytest.mark.asyncio
async def test_elapsed_time_grows_without_any_event() -> None:
    session = FakeSession(tree=TREE)
    app = console(session)
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        session.loading()
        await until(pilot, shows(app, "● loading 6:36"))
        session.after(61)
        await until(pilot, shows(app, "● loading 7:37", "still 1:01", "7:39 since launch"))


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [SMALL, WIDE])
async def test_a_failure_ends_the_strip_and_shows_its_finding(size: tuple[int, int]) -> None:
    session = FakeSession(tree=TREE)
    app = console(session)
    async with app.run_test(size=size, notifications=True) as pilot:
        session.loading()
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
        await until(
            pilot, shows(app, "failed after 6:48 · communication", "NCCL could not map shared memory", "(sure)")
        )
        await until(
            pilot, shows(app, "line 2,113  NCCL WARN", "[shared]", "Not: the memory of the GPUs", "Try: --shm-size 16g")
        )
        assert app.query_one(Panel).has_class("-bad")


@pytest.mark.asyncio
async def test_a_lost_link_says_that_the_rest_is_the_last_known() -> None:
    session = FakeSession(tree=TREE)
    app = console(session)
    async with app.run_test(size=WIDE, notifications=True) as pilot:
        await until(pilot, shows(app, "◌ connecting", "no run yet"))
        session.serving()
        session.link(LinkState.LOST, "connection reset by peer")
        session.after(12).desk.warn("something else")
        await until(pilot, shows(app, "○ lost 12 s: what stands here is the last known", "connection reset by peer"))
        assert "✔ serving" in screen_text(app)


@pytest.mark.asyncio
async def test_warnings_of_the_run_are_shown_and_those_of_the_one_before_are_not() -> None:
    session = FakeSession(tree=TREE)
    app = console(session)
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        session.desk.warn("of yesterday")
        session.after(1).loading()
        for number in range(5):
            session.after(1).desk.warn(f"warning {number}")
        await until(pilot, shows(app, "warning 4", "warning 2", "2 earlier"))
        assert "warning 1" not in screen_text(app) and "of yesterday" not in screen_text(app)
        assert not app.query_one(Panel).has_class("-bad")


@pytest.mark.asyncio
async def test_a_refusal_is_shown_as_one() -> None:
    session = FakeSession()
    app = console(session)
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        session.link(LinkState.UP)
        session.begin()
        session.desk.note(ev.Refused(at=session.clock.at, reasons=("port 30000 belongs to pid 7",)))
        await until(pilot, shows(app, "✘ refused: nothing was launched", "port 30000 belongs to pid 7"))


@pytest.mark.asyncio
async def test_what_was_there_before_the_console_came_is_shown() -> None:
    session = FakeSession(tree=TREE)
    session.serving()
    session.log("an early line", 1)
    app = console(session)
    async with app.run_test(size=WIDE, notifications=True) as pilot:
        await until(pilot, shows(app, "✔ serving", "an early line", "503 1 · 200 1"))


@pytest.mark.asyncio
async def test_answers_are_counted_for_each_run() -> None:
    session = FakeSession(tree=TREE)
    app = console(session)
    async with app.run_test(size=WIDE, notifications=True) as pilot:
        session.serving()
        session.desk.note(ev.StopBegan(at=session.clock.at, by="me"))
        session.desk.note(ev.TreeGone(at=session.clock.at, release="no gpu"))
        await until(pilot, shows(app, "■ stopped", "503 1 · 200 1"))
        session.after(1).begin("1130-0500-ffff")
        session.launch()
        session.answer(Verdict.REFUSED)
        await until(pilot, shows(app, "● launching", "refused 1"))
        assert "200 1" not in pieces(app, "health")


# ------------------------------------------------------------------------------- errors of our own


@pytest.mark.asyncio
async def test_an_error_of_the_session_stays_on_the_screen_and_r_tries_again() -> None:
    session = FakeSession()
    app = console(session)
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        await until(pilot, lambda: session.end is not None)
        assert session.end is not None
        session.end.set_exception(LoginError(f"gpu1 refused every key, and {SECRET}"))
        await until(pilot, shows(app, "supervision has ended", "gpu1 refused every key, and •••", "r: try again"))
        assert app.is_running
        await pilot.press("r")
        await until(pilot, lambda: session.runs == 2)
        await until(pilot, lambda: not app.query_one(Panel).display)
        assert session.orders == []


# ------------------------------------------------------------------------------- keys


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [SMALL, WIDE])
@pytest.mark.parametrize(("key", "order"), [("k", "stop"), ("r", "restart")])
async def test_stop_and_restart_show_whom_they_will_signal_and_do_it_on_yes(
    size: tuple[int, int], key: str, order: str
) -> None:
    session = FakeSession(tree=TREE)
    app = console(session)
    async with app.run_test(size=size, notifications=True) as pilot:
        session.serving()
        await until(pilot, shows(app, "✔ serving"))
        await pilot.press(key)
        await until(pilot, shows(app, f"{order.capitalize()} kimi @ gpu1?", f"{order} (y)", "leave it (n)"))
        for process in TREE:
            row = rf"{process.pid} +{process.uid} +\S+( s)? +{re.escape(process.title)}"
            assert re.search(row, screen_text(app)), process
        await until(pilot, shows(app, "6:41", "7 s", "These 3 processes", "KILL after 30 s"))
        assert ("launched anew" in screen_text(app)) is (order == "restart")
        assert session.orders == []
        await pilot.press("y")
        await until(pilot, lambda: session.orders == [order])
        await until(pilot, said(app, "all 3 processes are gone after 1.2 s"))
        assert not isinstance(app.screen, ConfirmScreen)


@pytest.mark.asyncio
@pytest.mark.parametrize("no", ["n", "escape", "ctrl+c", "q"])
async def test_no_leaves_the_server_alone_and_the_console_open(no: str) -> None:
    session = FakeSession(tree=TREE)
    app = console(session)
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        for key in ("k", "r"):
            await pilot.press(key)
            await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
            await pilot.press("enter", "space")  # stray keys decide nothing
            assert isinstance(app.screen, ConfirmScreen)
            await pilot.press(no)
            await until(pilot, lambda: not isinstance(app.screen, ConfirmScreen))
        assert session.orders == [] and app.is_running and session.cancelled == 0


@pytest.mark.asyncio
async def test_the_dialog_follows_a_tree_that_grows_and_its_button_works() -> None:
    session = FakeSession(tree=TREE[:1])
    app = console(session)
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        await pilot.press("k")
        await until(pilot, shows(app, "48190", "This process"))
        assert session.attendance is not None
        session.attendance.tree = tuple(TREE)
        session.desk.warn("anything")
        await until(pilot, shows(app, "48212", "These 3 processes"))
        await pilot.click("#yes")
        await until(pilot, lambda: session.orders == ["stop"])


@pytest.mark.asyncio
async def test_an_order_that_fails_is_told_and_another_is_not_taken_meanwhile() -> None:
    session = FakeSession(tree=TREE)
    session.stop_takes = asyncio.Event()
    session.stop_fails = UnreachableError("the link is down")
    app = console(session)
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        await pilot.press("k")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("y")
        await until(pilot, lambda: session.orders == ["stop"])
        await pilot.press("r")
        await until(pilot, said(app, "A stop is under way."))
        assert not isinstance(app.screen, ConfirmScreen)
        session.stop_takes.set()
        await until(pilot, said(app, "could not be carried out", "the link is down"))


@pytest.mark.asyncio
async def test_without_a_run_stop_and_verify_say_so_and_restart_asks_to_launch() -> None:
    session = FakeSession()
    app = console(session)
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        await pilot.press("k")
        await until(pilot, said(app, "there is nothing to stop"))
        await pilot.press("v")
        await until(pilot, said(app, "there is nothing to verify"))
        await pilot.press("r")
        await until(pilot, shows(app, "No process of the run is known to live."))
        await pilot.press("y")
        await until(pilot, lambda: session.orders == ["restart"])


@pytest.mark.asyncio
async def test_v_asks_for_a_generation() -> None:
    session = FakeSession(tree=TREE)
    app = console(session)
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        session.loading()
        await pilot.press("v")
        await until(pilot, said(app, "A generation is asked for at the first 200."))
        session.answer(Verdict.READY, 200)
        await pilot.press("v")
        await until(pilot, said(app, "A generation is asked for now."))
        assert session.attendance is not None and session.attendance.verified_again == 2


@pytest.mark.asyncio
async def test_v_says_when_verification_is_off() -> None:
    session = FakeSession(verify=False, tree=TREE)
    app = console(session)
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        await pilot.press("v")
        await until(pilot, said(app, "Verification is off in this profile."))
        assert session.attendance is not None and session.attendance.verified_again == 0


@pytest.mark.asyncio
@pytest.mark.parametrize("key", ["q", "ctrl+c", "ctrl+q"])
async def test_quitting_ends_our_session_and_says_that_the_server_goes_on(key: str) -> None:
    session = FakeSession(tree=TREE)
    app = console(session)
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        session.serving()
        await until(pilot, shows(app, "✔ serving"))
        await pilot.press(key)
        await until(pilot, lambda: not app.is_running)
    assert session.cancelled == 1 and session.orders == []
    assert app.return_value == 0
    assert app.farewell == "kimi @ gpu1: the server goes on (serving). This console has only stopped looking."


@pytest.mark.asyncio
async def test_quitting_amid_a_stop_does_not_say_that_the_server_goes_on() -> None:
    session = FakeSession(tree=TREE)
    session.stop_takes = asyncio.Event()
    app = console(session)
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        session.serving()
        await pilot.press("k")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("y")
        await until(pilot, lambda: session.orders == ["stop"])
        await pilot.press("q")
        await until(pilot, lambda: not app.is_running)
    assert "a stop was under way" in app.farewell and "goes on" not in app.farewell


# ------------------------------------------------------------------------------- the log


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [SMALL, WIDE])
async def test_a_flood_stays_bounded_and_shows_its_newest_line(size: tuple[int, int]) -> None:
    session = FakeSession(tree=TREE)
    app = console(session)
    async with app.run_test(size=size, notifications=True) as pilot:
        session.loading()
        for start in range(0, 50_000, 2_000):
            for number in range(start, start + 2_000):
                session.log(f"line number {number}", number + 1)
            await until(pilot, shows(app, f"line number {start + 1_999} "))
        assert len(pane(app)) == MAX_LINES
        await until(pilot, shows(app, "following · 50,000 lines"))
        assert pane(app).scroll_offset.y == pane(app).max_scroll_y


@pytest.mark.asyncio
async def test_lines_that_came_too_fast_are_counted_on_the_screen() -> None:
    session = FakeSession(tree=TREE)
    app = console(session)
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        await until(pilot, shows(app, "no run yet"))
        for number in range(6_000):  # one burst, which the hub's queue does not hold
            session.log(f"line number {number}", number + 1)
        await until(pilot, shows(app, "line number 5999"))
        await pilot.press("home")
        await until(pilot, shows(app, "1,904 lines came too fast"))


@pytest.mark.asyncio
async def test_scrolling_up_pauses_and_f_or_the_end_follows_again() -> None:
    session = FakeSession(tree=TREE)
    app = console(session)
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        for number in range(200):
            session.log(f"line number {number}", number + 1)
        await until(pilot, shows(app, "line number 199"))
        await pilot.press("pageup")
        await until(pilot, shows(app, "paused, f follows"))
        before = screen_text(app)[: screen_text(app).index("paused")]
        for number in range(200, 15_000):
            session.log(f"line number {number}", number + 1)
            if number % 1_000 == 0:
                await pilot.pause()
        await until(pilot, lambda: " new · " in screen_text(app) and len(pane(app)) > 4_000)
        assert "line number 14999" not in screen_text(app)
        assert screen_text(app).startswith(before[:200])
        await pilot.press("f")
        await until(pilot, shows(app, "line number 14999", "following"))
        await pilot.press("f")
        await until(pilot, shows(app, "paused"))
        await pilot.press("up", "end")
        await until(pilot, shows(app, "following"))


@pytest.mark.asyncio
async def test_a_paused_view_stays_on_its_lines_while_old_ones_fall_out() -> None:
    session = FakeSession(tree=TREE)
    app = console(session)
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        rows = [ev.Log(at=0.0, text=f"line number {n}", line_no=n, offset=n) for n in range(MAX_LINES + 3_000)]
        pane(app).extend(rows[:MAX_LINES])
        await until(pilot, shows(app, f"line number {MAX_LINES - 1} "))
        await pilot.press("pageup")
        await until(pilot, shows(app, "paused"))
        top = rows[pane(app).scroll_offset.y].text
        pane(app).extend(rows[MAX_LINES:])
        await until(pilot, shows(app, "3,000 new"))
        first = next(row for row in screen_text(app).splitlines() if "line number" in row)
        assert top in first and len(pane(app)) == MAX_LINES


@pytest.mark.asyncio
async def test_a_progress_bar_is_one_row_and_long_lines_can_be_read_to_their_end() -> None:
    session = FakeSession(tree=TREE)
    app = console(session)
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        session.log("before", 1)
        for percent in (10, 50, 100):
            session.log(f"shards {percent} %", 2, living=percent < 100)
            await until(pilot, shows(app, f"shards {percent} %"))
        session.log("x" * 100 + f" the [bold]end[/bold] {SECRET}", 3)
        await until(pilot, shows(app, "xxxx"))
        assert len(pane(app)) == 3 and screen_text(app).count("shards") == 1
        await pilot.press("right", "right")
        await until(pilot, shows(app, "the [bold]end[/bold] •••"))


@pytest.mark.asyncio
async def test_line_numbers_stand_where_there_is_room() -> None:
    for size, there in ((SMALL, False), (WIDE, True)):
        session = FakeSession(tree=TREE)
        app = console(session)
        async with app.run_test(size=size, notifications=True) as pilot:
            session.log("a line", 2113)
            await until(pilot, shows(app, "a line"))
            assert ("2113" in screen_text(app)) is there


# ------------------------------------------------------------------------------- rules of the house


def test_every_binding_has_an_id_and_no_two_share_one() -> None:
    bindings = [*ConsoleApp.BINDINGS, *ConfirmScreen.BINDINGS]
    ids = [binding.id for binding in bindings if isinstance(binding, Binding)]
    assert len(ids) == len(bindings) and all(ids) and len(set(ids)) == len(ids)
    assert ConsoleApp.AUTO_FOCUS is None


def test_layouts_name_colours_by_the_theme_alone() -> None:
    for path in resources.layouts().glob("*.tcss"):
        rules = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
        for name, value in re.findall(r"([\w-]+)\s*:\s*([^;{}]+);", rules):
            if name in ("color", "background", "border", "border-title-color", "border-subtitle-color"):
                assert "$" in value, f"{path.name}: {name}: {value}"


@pytest.mark.asyncio
async def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    session = FakeSession(tree=TREE)
    app = console(session)
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        session.loading()
        await until(pilot, shows(app, "● loading"))
        colours = {
            segment.style.color.get_truecolor()
            for strip in app.screen._compositor.render_strips()
            for segment in strip
            if segment.style is not None and segment.style.color is not None
        }
        assert all(max(colour) - min(colour) <= 1 for colour in colours), colours
