"""Several sessions on one screen: what each row and tile says, what is drawn again, and on whom a key acts."""

from __future__ import annotations

import asyncio

import pytest

from supervisor.core import events as ev
from supervisor.core.events import LinkState, Verdict
from supervisor.tui import format_profiles
from supervisor.tui.pieces import Pieces, length, text_of
from supervisor.tui.screens.confirm import ConfirmScreen
from supervisor.tui.screens.table import TableScreen
from supervisor.tui.screens.transaction import TransactionScreen
from supervisor.tui.screens.zombies import ZombiesScreen
from supervisor.tui.watcher import Watcher
from supervisor.tui.widgets.row_list import RowList
from supervisor.tui.widgets.tile import Tile
from tests.scale import FULL
from tests.tui.fakes import FakeSession
from tests.tui.host import Host, picture, said, screen_text, until, until_shown
from tests.tui.models import Told, gpu_event, gpus

TREE = [ev.Process(pid=48190, start_ticks=1, uid=1003, age_s=401, title="python3 -m sglang.launch_server --tp 2")]
SECRET = "sk-hunter2"
MANY = 64 if FULL else 24
SIZES = [(80, 24), (120, 40), (200, 60)]


class Floor:
    """Sessions in every state, on one screen."""

    def __init__(self, *extra: str) -> None:
        self.sessions: dict[str, FakeSession] = {}
        self.watchers: list[Watcher] = []
        for title in ("kimi", "qwen", "deepseek", "llama", *extra):
            session = FakeSession(tree=TREE)
            self.sessions[title] = session
            watcher = Watcher(session, title=title, node=f"gpu-{title}", mask=lambda text: text.replace(SECRET, "•••"))
            self.watchers.append(watcher)
        self.opened: list[Watcher] = []
        self.screen = TableScreen(self.watchers, self.opened.append)

    def tell(self) -> None:
        kimi, qwen, deepseek, llama = (self.sessions[name] for name in ("kimi", "qwen", "deepseek", "llama"))
        kimi.loading()
        kimi.desk.tell(gpu_event(kimi.clock.at, gpus(61.2, 61.1)))
        qwen.serving()
        deepseek.loading()
        deepseek.desk.note(ev.Ended(at=deepseek.clock.at, exit=ev.Exit(code=1)))
        deepseek.desk.tell(
            ev.Finding(at=deepseek.clock.at, category="communication", detail="", cause=f"/dev/shm is 64 MiB {SECRET}")
        )
        llama.serving()
        llama.link(LinkState.LOST, "connection reset by peer")

    def host(self, layout: str = "console") -> Host:
        return Host(self.screen, layout=layout, watchers=self.watchers)


def row_of(app: Host, title: str) -> str:
    rows = app.screen.query_one(RowList).rows
    return next((text for row in rows if f" {title} " in (text := text_of(row))), "")


# ------------------------------------------------------------------------------------------------ in words


@pytest.mark.parametrize("width", [60, 78, 118, 160, 198])
def test_rows_and_tiles_never_run_off_their_room(width: int) -> None:
    told = [
        Told(title="kimi-k25-eagle3-with-a-long-name-indeed", node="root@gpu1.cluster.example").loading().look(61.2, 3),
        Told().warming(),
        Told().serving().look(70, 70),
        Told().failed().look(0.4),
        Told().serving().link(LinkState.LOST, "connection reset by peer"),
        Told(),
    ]
    models = [one.model for one in told]
    cols = format_profiles.columns(models, width)
    assert length(format_profiles.heading(cols, width)) <= width
    for one in told:
        row = format_profiles.row(one.model, one.now, cols, width)
        assert length(row) <= width and "\n" not in text_of(row)
        for high in (3, 4, 7, 12):
            for wide in (14, 20, 24, 60):
                lines = text_of(format_profiles.tile(one.model, one.now, wide, high)).split("\n")
                assert len(lines) <= high and all(length(((line, ""),)) <= wide for line in lines)
                assert lines[0].split()[0].rstrip("…") in one.model.title
        for line in text_of(format_profiles.detail(one.model, one.now, width, 4)).split("\n"):
            assert length(((line, ""),)) <= width


def test_a_whole_row_is_seen_in_the_gravest_of_what_is_wrong() -> None:
    warned = Told().serving()
    warned.desk.warn("the login shell's PATH has what SSH's has not")
    warned.look(70)
    assert format_profiles.tone(Told().failed().model) == "bad"
    assert format_profiles.tone(Told().serving().model) == "good"
    assert format_profiles.tone(warned.model) == "good", "a warning alone paints no server"
    assert format_profiles.tone(Told().serving().link(LinkState.LOST).model) == "warn"
    assert format_profiles.tone(Told().loading().model) == "now"
    assert format_profiles.tone(Told().serving().model, "stop") == "now"


@pytest.mark.parametrize("width", [78, 118, 198])
def test_a_server_that_is_gone_has_no_health(width: int) -> None:
    told = Told().serving()
    cols = format_profiles.columns([told.model], width)
    assert "200 ready" in text_of(format_profiles.row(told.model, told.now, cols, width))
    told.note(ev.StopBegan(at=told.now, by="ana")).note(ev.TreeGone(at=told.now, release="no gpu"))
    assert told.model.view.phase is ev.Phase.STOPPED
    assert "200" not in text_of(format_profiles.row(told.model, told.now, cols, width))
    assert "200" not in text_of(format_profiles.detail(told.model, told.now, width, 4))


@pytest.mark.parametrize("count", [1, 2, 5, 16, 40, 64])
@pytest.mark.parametrize(("width", "height"), [(78, 18), (118, 32), (198, 52)])
def test_tiles_fill_the_wall_or_are_scrolled_through(count: int, width: int, height: int) -> None:
    across, high = format_profiles.tiles(count, width, height)
    down = -(-count // across)
    assert across >= 1 and high >= 3 and width // across >= 16
    assert down * high <= height or high == 4, "what does not fit is of a fixed height"
    if count == 64 and width == 198:
        assert (across, high) == (8, 6)


# ------------------------------------------------------------------------------------------------ the table


@pytest.mark.asyncio
@pytest.mark.parametrize("size", SIZES)
async def test_every_session_has_its_row_and_the_failed_one_stands_out(size: tuple[int, int]) -> None:
    floor = Floor()
    app = floor.host("compact" if size[0] < 100 else "console")
    async with app.run_test(size=size) as pilot:
        floor.tell()
        await until(pilot, lambda: "● loading" in row_of(app, "kimi") and "✘ failed" in row_of(app, "deepseek"))
        await until_shown(pilot, "4 profiles", "1 failed", "1 loading", "2 serving")
        assert "64 %" in row_of(app, "kimi") and "122" in row_of(app, "kimi") and "gpu-kimi" in row_of(app, "kimi")
        assert "✔ serving" in row_of(app, "qwen") and "✔ serving" in row_of(app, "llama")
        assert ("○ lost" in row_of(app, "llama")) is (size[0] >= 100) and "link lost" in row_of(app, "llama")
        assert [row_of(app, title) for title in floor.sessions] == [text_of(row) for row in rows_of(app)], "as given"
        await pilot.press("down", "down")
        await until(pilot, lambda: said(app, "detail").startswith("deepseek @ gpu-deepseek  ✘ failed"))
        assert "/dev/shm is 64 MiB •••" in said(app, "detail") and SECRET not in screen_text(app)
        picture(app, f"table-{size[0]}x{size[1]}")


def rows_of(app: Host) -> list[Pieces]:
    return list(app.screen.query_one(RowList).rows)


@pytest.mark.asyncio
async def test_only_the_row_that_changed_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    floor = Floor(*(f"more-{number}" for number in range(20)))
    app = floor.host()
    async with app.run_test(size=(120, 40)) as pilot:
        floor.tell()
        await until(pilot, lambda: "✘ failed" in row_of(app, "deepseek") and "✔ serving" in row_of(app, "llama"))
        drawn: list[int] = []
        draw = RowList._draw

        def seen(rows: RowList, number: int) -> None:
            drawn.append(number)
            draw(rows, number)

        monkeypatch.setattr(RowList, "_draw", seen)
        floor.sessions["qwen"].answer(Verdict.SILENT)
        for _ in range(50):
            floor.sessions["kimi"].log("a line that changes no row", 1)
        floor.sessions["kimi"].stage(50, 64)
        await until(pilot, lambda: "78 %" in row_of(app, "kimi"))
        assert set(drawn) <= {0, 1}, "the other twenty-two stand still"


@pytest.mark.asyncio
async def test_orders_act_on_the_chosen_row_and_enter_opens_it() -> None:
    floor = Floor()
    app = floor.host()
    async with app.run_test(size=(120, 40)) as pilot:
        floor.tell()
        await until(pilot, lambda: "✔ serving" in row_of(app, "qwen"))
        await pilot.press("down", "enter")
        assert floor.opened == [floor.watchers[1]]
        await pilot.press("k")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        await until_shown(pilot, "qwen @ gpu-qwen", "48190")
        await pilot.press("y")
        await until(pilot, lambda: isinstance(app.screen, TransactionScreen))
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is floor.screen)
        assert {title: session.orders for title, session in floor.sessions.items() if session.orders} == {
            "qwen": ["stop"]
        }
        await pilot.press("end", "z")
        await until(pilot, lambda: isinstance(app.screen, ZombiesScreen))
        await until_shown(pilot, "gpu-llama")
        await pilot.press("escape", "home", "v")
        await until(pilot, lambda: floor.sessions["kimi"].attendance.verified_again == 1)  # type: ignore[union-attr]
        await pilot.press("r")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        await until_shown(pilot, "kimi @ gpu-kimi")
        await pilot.press("n")


@pytest.mark.asyncio
async def test_the_mouse_chooses_and_opens() -> None:
    floor = Floor()
    app = floor.host()
    async with app.run_test(size=(120, 40)) as pilot:
        floor.tell()
        await until(pilot, lambda: "✔ serving" in row_of(app, "llama"))
        await pilot.click(RowList, offset=(5, 3))
        await until(pilot, lambda: said(app, "detail").startswith("llama @"))
        assert not floor.opened
        await pilot.click(RowList, offset=(5, 3))
        await until(pilot, lambda: floor.opened == [floor.watchers[3]])


@pytest.mark.asyncio
async def test_an_order_under_way_is_seen_in_its_row() -> None:
    floor = Floor()
    app = floor.host()
    async with app.run_test(size=(120, 40)) as pilot:
        floor.tell()
        qwen = floor.sessions["qwen"]
        qwen.stop_takes = asyncio.Event()
        await until(pilot, lambda: "✔ serving" in row_of(app, "qwen"))
        await pilot.press("down", "k")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("y")
        await until(pilot, lambda: isinstance(app.screen, TransactionScreen))
        await pilot.press("escape")
        await until(pilot, lambda: "● stopping" in row_of(app, "qwen"))
        await pilot.press("t")
        await until(pilot, lambda: isinstance(app.screen, TransactionScreen))
        await pilot.press("escape")
        qwen.stop_takes.set()
        await until(pilot, lambda: not floor.watchers[1].busy)


# ------------------------------------------------------------------------------------------------ the wall


@pytest.mark.asyncio
@pytest.mark.parametrize(("size", "count"), [((80, 24), 4), ((120, 40), 12), ((200, 60), MANY)])
async def test_the_wall_has_a_tile_for_each_and_keys_go_across_it(size: tuple[int, int], count: int) -> None:
    floor = Floor(*(f"node-{number}" for number in range(count - 4)))
    app = floor.host("wall")
    async with app.run_test(size=size) as pilot:
        floor.tell()
        for title in list(floor.sessions)[4:]:
            floor.sessions[title].serving()
        tiles = list(app.screen.query(Tile))
        assert len(tiles) == count
        await until(pilot, lambda: tiles[2].has_class("-bad") and tiles[1].has_class("-good"))
        await until(pilot, lambda: tiles[3].has_class("-warn") and tiles[0].has_class("-now"))
        await until_shown(pilot, "kimi", "deepseek")
        assert not app.screen.query_one(RowList).display
        await pilot.press("right")
        await until(pilot, lambda: said(app, "detail").startswith("qwen @"))
        await pilot.press("right", "right", "left")
        await until(pilot, lambda: said(app, "detail").startswith("deepseek @") and tiles[2].has_class("-chosen"))
        await pilot.press("end")
        await until(pilot, lambda: tiles[-1].has_class("-chosen"))
        await until_shown(pilot, floor.watchers[-1].title)
        await pilot.press("home", "enter")
        assert floor.opened == [floor.watchers[0]]
        await until(pilot, lambda: tiles[0].size.height >= 3)
        picture(app, f"wall-{count}-{size[0]}x{size[1]}")
        await pilot.click(tiles[1])
        await until(pilot, lambda: tiles[1].has_class("-chosen"))
