"""Layouts: which is taken, what each has room for, the user's own files, and the rules that style keeps to."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from supervisor import resources
from supervisor.core import events as ev
from supervisor.errors import UsageError
from supervisor.tui import big, layout, room
from supervisor.tui.widgets.panel import Panel
from tests.tui.consoles import (
    SMALL,
    TREE,
    USUAL,
    WIDE,
    console,
    gpus,
    pane,
    press,
    run_screen,
    said,
    screen_text,
    shows,
    until,
)
from tests.tui.fakes import FakeSession

TUI = Path(layout.__file__).parent
VARIABLES = {"foreground": "#ffffff", "primary": "#0000ff"}


def eight(session: FakeSession) -> None:
    """Eight GPUs and a failed look at nothing else."""
    session.desk.tell(gpus(session, *range(70, 78)))


def finding(session: FakeSession) -> ev.Finding:
    return ev.Finding(
        at=session.clock.at, category="memory", detail="oom", cause="Out of GPU memory " + "while loading " * 12,
        line="torch.OutOfMemoryError: CUDA out of memory.", line_no=3, confidence="sure", advice="a smaller batch",
    )  # fmt: skip


# ------------------------------------------------------------------------------- by size, by key, by name


@pytest.mark.asyncio
async def test_the_layout_goes_by_size_until_somebody_chooses_one() -> None:
    session = FakeSession(tree=TREE)
    session.loading()
    eight(session)
    app = console(session)
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        screen = run_screen(app)
        await until(pilot, lambda: app.has_class("-compact") and screen.query_one("#gpus").size.height == 1)
        await pilot.resize_terminal(100, 30)
        await until(pilot, lambda: app.has_class("-console") and screen.query_one("#gpus").size.height == 8)
        await until(pilot, lambda: pane(app).size.height >= 8)
        await pilot.resize_terminal(99, 30)
        await until(pilot, lambda: app.has_class("-compact"))
        for name in ("wall", "console", "compact", "wall"):
            await press(pilot, "l")
            await until(pilot, lambda name=name: app.has_class(f"-{name}"))  # type: ignore[misc]
        await pilot.resize_terminal(200, 60)
        await until(pilot, shows(app, "weights · 41 of 64 · 64 %", "█"))
        assert app.has_class("-wall") and not pane(app).display


@pytest.mark.asyncio
@pytest.mark.parametrize("name", [*layout.OURS])
@pytest.mark.parametrize("size", [SMALL, USUAL, WIDE])
async def test_every_layout_has_the_essentials_at_every_size(name: str, size: tuple[int, int]) -> None:
    session = FakeSession(tree=TREE)
    session.loading()
    eight(session)
    app = console(session, layout=name)
    async with app.run_test(size=size, notifications=True) as pilot:
        await until(pilot, shows(app, "kimi @ gpu1", "● loading", "64 %", "588.0 of 640.0 GiB", "health", "k stop"))
        if name != "wall":
            await until(pilot, lambda: pane(app).size.height >= (8 if size is not SMALL or name == "compact" else 1))
        rows = screen_text(app).splitlines()
        assert len(rows) == size[1] and all(len(row) == size[0] for row in rows)
        session.desk.note(ev.Ended(at=session.clock.at, exit=ev.Exit(code=1)))
        session.desk.tell(finding(session))
        await until(pilot, shows(app, "failed", "Out of GPU memory"))
        panel = run_screen(app).query_one(Panel)
        assert panel.has_class("-bad")
        if size is not SMALL:
            await until(pilot, shows(app, "Try: a smaller batch"))


@pytest.mark.asyncio
async def test_gpus_and_holders_stand_side_by_side_where_there_is_room() -> None:
    session = FakeSession(tree=TREE)
    session.loading()
    eight(session)
    app = console(session)
    async with app.run_test(size=WIDE, notifications=True) as pilot:
        screen = run_screen(app)
        await until(pilot, lambda: screen.query_one("#gpus").size.height >= 8)
        await pilot.resize_terminal(130, 45)
        await until(pilot, lambda: not screen.has_class("-beside"))
        await until(pilot, lambda: screen.query_one("#gpus").size.width == 126)


# ------------------------------------------------------------------------------- the user's own


@pytest.mark.asyncio
async def test_a_layout_of_the_users_own_comes_after_ours_and_a_broken_one_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "layouts"
    folder.mkdir()
    (folder / "console.tcss").write_text("#stage { display: none; }\n")
    (folder / "mine.tcss").write_text("#gpus { display: none; }\n#log { heigth: 3; }\n")
    (folder / "tall.tcss").write_text("LogPane { min-height: 30; }\n")
    session = FakeSession(tree=TREE)
    session.loading()
    eight(session)
    app = console(session, config=tmp_path)
    async with app.run_test(size=USUAL, notifications=True) as pilot:
        await until(pilot, shows(app, "● loading"))
        await until(pilot, lambda: not run_screen(app).query_one("#stage").display)
        for name in ("wall", "mine", "tall"):
            app.action_layout(name)
        await until(pilot, lambda: run_screen(app).query_one("#stage").display)  # another layout, without that file
        await until(pilot, lambda: pane(app).size.height >= 28)
        await until(pilot, said(app, f"{folder / 'mine.tcss'}, line 2", "Invalid CSS property 'heigth'"))
        app.action_layout("mine")
        await until(pilot, lambda: pane(app).size.height < 28)
        assert run_screen(app).query_one("#gpus").display  # ours alone: nothing of a broken file holds
    assert (
        layout.names(tmp_path) == ("console", "compact", "wall", "mine", "tall") and layout.names(None) == layout.OURS
    )


def test_a_layout_that_does_not_exist_is_refused_with_those_that_do(tmp_path: Path) -> None:
    (tmp_path / "layouts").mkdir()
    (tmp_path / "layouts" / "mine.tcss").write_text("")
    with pytest.raises(UsageError, match=r"no layout 'wal' \(known: console, compact, wall, mine\)"):
        console(FakeSession(), layout="wal", config=tmp_path)
    console(FakeSession(), layout="mine", config=tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("#a { height: 1; }\n#b { color: $nope; }\n", "line 2: reference to undefined variable '$nope'"),
        ("#a { height: 1; }\n#b { color: red\n", "line 3: Unexpected end of file"),
        ("#a { heigth: 1; }\n", "line 1: Invalid CSS property 'heigth'"),
        ("#a { height: 1; color: $foreground; }\n", ""),
        ("", ""),
    ],
)
def test_what_is_wrong_with_a_layout_file_is_told_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "mine.tcss"
    path.write_text(text)
    found = layout.check(path, VARIABLES)
    assert (said in found and str(path) in found) if said else found == ""


def test_a_layout_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "layouts").mkdir()
    (tmp_path / "layouts" / "console.tcss").write_bytes(b"\xff\xfe\x00")
    found = layout.files("console", tmp_path, VARIABLES)
    assert len(found.paths) == 3 and "cannot be read" in found.problems[0]
    assert layout.names(tmp_path / "nowhere") == layout.OURS


# ------------------------------------------------------------------------------- arithmetic


def test_the_log_keeps_its_rows_and_the_tables_share_the_rest() -> None:
    for width in (80, 120, 139, 140, 200):
        for height in range(10, 80):
            for count in (0, 1, 8, 16, 64):
                for holders in (0, 2, 10, 601):
                    got = room.share(width=width, height=height, fixed_rows=8, gpus=count, holders=holders)
                    assert 0 <= got.gpus <= count
                    assert 0 <= got.holders <= (max(count, holders) if got.beside else holders)
                    frames = room.FRAME_ROWS * (bool(got.gpus) + bool(got.holders))
                    tables = max(got.gpus, got.holders) if got.beside else got.gpus + got.holders
                    left = height - 8 - tables - (room.FRAME_ROWS if got.beside else frames)
                    least = min(room.LOG_ROWS, height - 8 - room.FRAME_ROWS - room.GPUS_LEAST_ROWS)
                    assert left >= least, (width, height, count, holders)
                    assert bool(got.gpus) is bool(count), "no frame without a row"


def test_holders_give_place_to_a_finding_unless_they_cost_nothing() -> None:
    def holders(width: int, *, yields: bool) -> int:
        return room.share(width=width, height=50, fixed_rows=8, gpus=8, holders=10, yields=yields).holders

    assert holders(120, yields=False) == 10 == holders(200, yields=True)
    assert holders(120, yields=True) == 0


def test_big_letters_fit_into_what_they_are_given() -> None:
    for word in ("loading 6:38", "503", "preflight", "64 %"):
        for cells in (10, 40, 80, 200):
            scale = big.scale_for(word, cells)
            if scale:
                drawn = big.rows(word, scale)
                assert len(set(map(len, drawn))) == 1 and len(drawn[0]) == big.width(word) * scale <= cells
                assert len(drawn) == (5 * scale + 1) // 2
    assert big.rows("L", 1) == ["█  ", "█  ", "▀▀▀"] and big.rows("", 2) == ["", "", "", "", ""]


# ------------------------------------------------------------------------------- rules of the house


def test_layouts_name_colours_by_the_theme_alone() -> None:
    for path in resources.layouts().glob("*.tcss"):
        rules = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
        for name, value in re.findall(r"([\w-]+)\s*:\s*([^;{}]+);", rules):
            if "color" in name or name in ("background", "border"):
                assert "$" in value or value.strip() in ("none", "auto"), f"{path.name}: {name}: {value}"


def modules() -> list[tuple[str, ast.Module]]:
    return [(str(path.relative_to(TUI)), ast.parse(path.read_text())) for path in sorted(TUI.rglob("*.py"))]


def test_style_stands_in_layouts_alone() -> None:
    for name, tree in modules():
        for node in ast.walk(tree):
            targets = node.targets if isinstance(node, ast.Assign) else []
            for target in targets if not isinstance(node, ast.AnnAssign) else [node.target]:
                assert not (isinstance(target, ast.Name) and target.id in ("CSS", "DEFAULT_CSS")), name
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and name != "themes.py":
                assert not re.fullmatch(r"#[0-9a-fA-F]{6}", node.value), f"{name}: a colour: {node.value}"


def test_widgets_and_words_do_no_io_and_hold_no_domain() -> None:
    """No widget subscribes to a session, sleeps or reads; no text is made by anything but the state it is given."""
    banned = ("asyncio", "os", "socket", "subprocess", "threading", "time", "pathlib")
    for name, tree in modules():
        if not name.startswith(("widgets/", "format")) and name not in ("pieces.py", "room.py", "big.py"):
            continue
        for node in ast.walk(tree):
            found = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            found += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for module in found:
                measured = isinstance(node, ast.ImportFrom) and [alias.name for alias in node.names] == ["perf_counter"]
                assert module.split(".")[0] not in banned or measured, f"{name} imports {module}"
                if name.startswith("widgets/"):
                    assert not module.startswith("supervisor.supervise"), f"{name} imports {module}"
                else:
                    assert not module.startswith("textual"), f"{name} imports {module}"


def test_the_app_is_small_and_whoever_watches_a_session_knows_no_textual() -> None:
    assert len((TUI / "app.py").read_text().splitlines()) <= 330
    for name in ("watcher.py", "order.py", "model.py"):
        assert not re.search(r"^\s*(?:from|import) textual", (TUI / name).read_text(), re.MULTILINE), name
