"""The start screen: which rows it has, what nodes have told, what enter opens, and that nothing is launched unasked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from textual.app import App

from supervisor.core.events import Answer, Owner, Verdict
from supervisor.errors import ProfileError
from supervisor.supervise.live_runs import LiveRun, Told
from supervisor.tui import format_start
from supervisor.tui.app import ConsoleApp
from supervisor.tui.pieces import length, text_of
from supervisor.tui.screens.run import RunScreen
from supervisor.tui.screens.start import DEMO_WANTED, LaunchScreen, StartScreen
from supervisor.tui.screens.table import TableScreen
from supervisor.tui.start_list import Entry, Item, items, launches
from supervisor.tui.watcher import Watcher
from supervisor.tui.widgets.row_list import RowList
from tests.tui.fakes import BEGAN, FakeSession, StandingClock
from tests.tui.host import Host, picture, said, screen_text, until, until_shown

SIZES = [(80, 24), (120, 40), (200, 60)]


def entry(name: str, node: str, **more: Any) -> Entry:
    fields: dict[str, Any] = {
        "engine": "sglang",
        "model": "/shared/kimi-k2.5-int4",
        "command": f"python3 -m sglang.launch_server --model-path /shared/kimi-k2.5-int4 --tp 8 # {name}",
    }
    return Entry(path=f"/here/{name}.toml", typed=f"./{name}.toml", name=name, node=node, **{**fields, **more})


KIMI, QWEN, LLAMA = entry("kimi", "gpu1"), entry("qwen", "gpu2"), entry("llama", "gpu1")
ELSEWHERE = entry("elsewhere", "gpu3", state_dir="/data/state")
BROKEN = Entry(path="/here/half.toml", typed="./half.toml", name="half", error="line 2: node.host: expected text")
ENTRIES = (KIMI, QWEN, LLAMA, ELSEWHERE, BROKEN)
RUN = LiveRun(
    host="gpu1",
    key="kimi",
    run_id="1130-0412-a3f1",
    started_at=BEGAN - 7200,
    by="ana@desk",
    engine="sglang",
    port=30000,
)
FOREIGN = LiveRun(host="gpu1", key="other", run_id="1130-0000-ffff", started_at=BEGAN - 60, engine="vllm", port=8000)
READY = Answer(verdict=Verdict.READY, why="200 from our own process", status=200, owner=Owner.OURS)


class FakeStart:
    """Stands for what the command line gives: profiles and nodes as the test has them. Opens sessions of no node."""

    def __init__(self, *entries: Entry) -> None:
        self.clock = StandingClock()
        self.listed: list[Entry] = list(entries or ENTRIES)
        self.opened: list[tuple[str, bool]] = []
        self.asked = 0
        self.on_told: Callable[[Told], None] | None = None
        self.broken: ProfileError | None = None

    def entries(self) -> Sequence[Entry]:
        return tuple(self.listed)

    async def ask(self, on_told: Callable[[Told], None]) -> None:
        self.asked += 1
        self.on_told = on_told
        await asyncio.Event().wait()

    def tell(self, **fields: Any) -> None:
        assert self.on_told is not None
        self.on_told(Told(**fields))

    def open(self, path: str, *, launch: bool) -> Watcher:
        if self.broken is not None:
            raise self.broken
        self.opened.append((path, launch))
        found = next(one for one in self.listed if one.path == path)
        return Watcher(FakeSession(), title=found.name, node=found.node, mask=str, path=path)


class StartHost(Host):
    """Keeps what the screen asks the app for."""

    def __init__(self, start: FakeStart, layout: str = "console") -> None:
        super().__init__(StartScreen(start), layout=layout)
        self.shown: list[tuple[str, ...]] = []
        self.demos = 0

    def on_start_screen_opened(self, event: StartScreen.Opened) -> None:
        self.shown.append(tuple(watcher.title for watcher in event.watchers))

    def on_start_screen_demo_wanted(self) -> None:
        self.demos += 1


def row_of(app: App[Any], name: str) -> str:
    rows = app.screen_stack[-1].query(RowList).first().rows
    return next((text for row in rows if name in (text := text_of(row)).split()), "")


# ------------------------------------------------------------------------------------------------ the rows


def test_a_run_belongs_to_the_profile_of_its_key_node_and_records() -> None:
    strayed = LiveRun(host="gpu3", key="elsewhere", run_id="1", started_at=0.0, state_dir=None)
    told = {
        "gpu1": Told(host="gpu1", reached=True, runs=(RUN, FOREIGN)),
        "gpu2": Told(host="gpu2", why="no route"),
        "gpu3": Told(host="gpu3", reached=True, runs=(strayed,)),
    }
    found = items(ENTRIES, told, {QWEN.path})
    assert [item.entry for item in found[:5]] == list(ENTRIES)
    assert [item.run for item in found] == [RUN, None, None, None, None, FOREIGN, strayed, None]
    assert [item.can_open for item in found] == [True, True, True, True, False, False, False, True]
    assert found[1].opened and launches(found) == [LLAMA, ELSEWHERE, BROKEN]


@pytest.mark.parametrize("width", [60, 78, 118, 198])
def test_no_row_runs_off_the_screen(width: int) -> None:
    told = {
        "gpu1": Told(host="gpu1", reached=True, done=True, runs=(RUN, FOREIGN)),
        "gpu2": Told(host="gpu2", why="name or service not known " * 9, done=True),
    }
    for answer in (None, READY, *(Answer(verdict=verdict, why="w" * 300, status=503) for verdict in Verdict)):
        told["gpu1"] = Told(host="gpu1", reached=True, runs=(run_with(answer), FOREIGN))
        rows, headings, shown = format_start.lines(items(ENTRIES, told), {KIMI.path}, BEGAN, width)
        assert all(length(row) <= width for row in rows) and len(rows) == len(shown)
        assert all(shown[number] is None for number in headings)
        for item in shown:
            lines = text_of(format_start.detail(item, BEGAN, width, 4)).split("\n")
            assert len(lines) <= 4 and all(length(((line, ""),)) <= width for line in lines)
    plan = text_of(format_start.plan([KIMI, QWEN], {"gpu1"}, width))
    assert "nothing of it lives there" in plan.split("\n")[0] and all(len(line) <= width for line in plan.split("\n"))
    assert format_start.lines(items((), {}), (), BEGAN, width)[2][-1] == Item()


def run_with(answer: Answer | None) -> LiveRun:
    return msgspec.structs.replace(RUN, answer=answer)


# ------------------------------------------------------------------------------------------------ the screen


@pytest.mark.asyncio
@pytest.mark.parametrize("size", SIZES)
async def test_what_nodes_tell_comes_in_beneath_a_cursor_that_stays(size: tuple[int, int]) -> None:
    start = FakeStart()
    app = StartHost(start, "compact" if size[0] < 100 else "console")
    async with app.run_test(size=size) as pilot:
        await until_shown(pilot, "what to watch?", "asking 3 nodes", "kimi", "✘ line 2: node.host", "demo")
        assert "◌ asking" in row_of(app, "kimi")
        await pilot.press("down", "down")
        await until(pilot, lambda: said(app, "detail").startswith("llama @ gpu1"))
        start.tell(host="gpu1", reached=True, runs=(RUN, FOREIGN))
        await until_shown(pilot, "runs that live, of no profile here", "other")
        assert "● 2 h · looking at its health" in row_of(app, "kimi") and "none" in row_of(app, "llama")
        start.tell(host="gpu1", reached=True, done=True, runs=(run_with(READY), FOREIGN))
        start.tell(host="gpu2", why="gpu2: no route to host", done=True)
        await until(pilot, lambda: "answers 200" in row_of(app, "kimi"))
        await until_shown(pilot, "asking 1 node", "○ not reached: gpu2: no route")
        assert said(app, "detail").startswith("llama @ gpu1"), "the cursor stays where it was"
        assert "serving" not in screen_text(app), "one look proves no generation"
        await pilot.press("up", "up")
        await until(pilot, lambda: "enter: take this run over; nothing is launched" in said(app, "detail"))
        picture(app, f"start-{size[0]}x{size[1]}")


@pytest.mark.asyncio
async def test_a_live_run_is_opened_without_a_question_and_can_launch_nothing() -> None:
    start = FakeStart()
    app = StartHost(start)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: start.asked)
        start.tell(host="gpu1", reached=True, done=True, runs=(RUN,))
        await until(pilot, lambda: "● 2 h" in row_of(app, "kimi"))
        await pilot.press("enter")
        await until(pilot, lambda: app.shown == [("kimi",)])
        assert start.opened == [(KIMI.path, False)], "it may have ended by now: not launched unasked"
        await until(pilot, lambda: "● open here" in row_of(app, "kimi"))
        await pilot.press("enter")
        await until(pilot, lambda: app.shown == [("kimi",), ("kimi",)])
        assert len(start.opened) == 1, "the same session, shown again"


@pytest.mark.asyncio
@pytest.mark.parametrize(("key", "launch"), [("y", True), ("w", False), ("n", None)])
async def test_a_launch_is_asked_about_with_what_goes_where(key: str, launch: bool | None) -> None:
    start = FakeStart()
    app = StartHost(start)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: start.asked)
        start.tell(host="gpu1", reached=True, done=True, runs=(RUN,))
        await pilot.press("space", "space", "space")
        await until(pilot, lambda: all("[x]" in row_of(app, name) for name in ("kimi", "qwen", "llama")))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, LaunchScreen))
        await until_shown(
            pilot, "Launch 2 profiles?", "qwen @ gpu2", "its node has not told", "llama @ gpu1", "nothing of it"
        )
        await until_shown(pilot, "# qwen", "# llama", "1 more is opened and not launched")
        picture(app, "start-launch")
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, LaunchScreen), "enter is no yes"
        await pilot.press(key)
        if launch is None:
            await until(pilot, lambda: not isinstance(app.screen, LaunchScreen))
            assert not start.opened and not app.shown
        else:
            await until(pilot, lambda: app.shown == [("kimi", "qwen", "llama")])
            assert start.opened == [(KIMI.path, False), (QWEN.path, launch), (LLAMA.path, launch)]


@pytest.mark.asyncio
async def test_watching_alone_a_broken_profile_a_run_of_nobody_and_the_demonstration() -> None:
    start = FakeStart()
    app = StartHost(start)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: start.asked)
        start.tell(host="gpu1", reached=True, done=True, runs=(FOREIGN,))
        await until_shown(pilot, "other")
        await pilot.press("w")
        await until(pilot, lambda: app.shown == [("kimi",)])
        assert start.opened == [(KIMI.path, False)]
        await pilot.press("down", "down", "down", "down", "enter", "space")
        await until(pilot, lambda: "half.toml: line 2: node.host" in said(app, "detail"))
        await pilot.press("down", "enter")
        await until(pilot, lambda: "it cannot be opened" in said(app, "detail"))
        await pilot.press("down", "w")  # nothing is launched by it, nor is the demonstration
        assert app.demos == 0
        await pilot.press("enter")
        await until(pilot, lambda: app.demos == 1)
        assert len(app.shown) == 1 and len(start.opened) == 1


@pytest.mark.asyncio
async def test_profiles_are_read_anew_and_what_cannot_be_opened_says_why() -> None:
    start = FakeStart(KIMI)
    app = StartHost(start)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await until_shown(pilot, "kimi")
        start.listed = [KIMI, Entry(path="/b.toml", typed="b", name="kimi", node="gpu9")]
        await pilot.press("u")
        await until_shown(pilot, "gpu9", "asking 2 nodes")
        start.broken = ProfileError("/here/kimi.toml", "node.host", "is gone")
        await pilot.press("w")
        await until(pilot, lambda: any("node.host: is gone" in toast.message for toast in app._notifications))
        start.broken = None
        await pilot.press("space", "space", "w")
        await until(
            pilot, lambda: any("two profiles are called 'kimi'" in toast.message for toast in app._notifications)
        )
        assert not app.shown
        start.listed = []
        await pilot.press("u")
        await until_shown(pilot, "no profile in this folder", "demo")


@pytest.mark.asyncio
async def test_a_second_click_opens() -> None:
    start = FakeStart()
    app = StartHost(start)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: start.asked)
        await pilot.click(RowList, offset=(6, 2))
        await until(pilot, lambda: said(app, "detail").startswith("qwen @"))
        await pilot.click(RowList, offset=(6, 2))
        await until(pilot, lambda: isinstance(app.screen, LaunchScreen))


@pytest.mark.asyncio
async def test_from_the_start_screen_to_several_sessions_to_one_and_back() -> None:
    start = FakeStart()
    app = ConsoleApp(start=start, environ={})
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: start.asked)
        await pilot.press("space", "space", "w")
        await until(pilot, lambda: isinstance(app.screen, TableScreen))
        await until_shown(pilot, "2 profiles", "kimi", "qwen", "l layout", "q quit")
        sessions = [watcher.session for watcher in app.watchers]
        assert all(isinstance(session, FakeSession) and session.runs == 1 for session in sessions), "both run"
        await pilot.press("l", "l")
        await until(pilot, lambda: app.screen.query_one("#tiles").display)
        await until_shown(pilot, "█")
        await pilot.press("l")
        await until(pilot, lambda: not app.screen.query_one("#tiles").display)
        await pilot.press("down", "enter")
        await until(pilot, lambda: isinstance(app.screen, RunScreen) and app.screen.watcher.title == "qwen")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, TableScreen))
        await until(pilot, lambda: said(app, "detail").startswith("qwen @"))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, StartScreen) and "● open here" in row_of(app, "kimi"))
        await pilot.press("question_mark")
        await until_shown(pilot, "start.mark", "the profiles")
        await pilot.press("escape", "q")
        await until(pilot, lambda: app.farewell)
    assert [session.cancelled for session in sessions if isinstance(session, FakeSession)] == [1, 1]
    assert app.farewell.count("\n") == 1 and app.return_value == 0


@pytest.mark.asyncio
async def test_the_demonstration_begins_after_the_console() -> None:
    app = ConsoleApp(start=FakeStart(KIMI), environ={})
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, "demo")
        await pilot.press("end", "pagedown", "enter")
        await until(pilot, lambda: app.return_value == DEMO_WANTED)
