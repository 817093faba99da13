"""What the console looks like: each layout in each phase at three sizes, compared with pictures as text.

    SUPERVISOR_UPDATE_PICTURES=1 pytest tests/tui/test_pictures.py      draws them anew; look at what `git diff` says

Recorded streams are played up to a moment at which time stands still. Besides the pictures there are rules that every
screen must keep, whatever it looks like.
"""

from __future__ import annotations

import difflib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.tui.layout import automatic
from supervisor.tui.pieces import cells
from tests.scale import FULL
from tests.tui.recorded import Moment, console_on, degraded, lost, refused, stopped, stopping

PICTURES = Path(__file__).resolve().parents[1] / "corpora" / "pictures"
UPDATE = os.environ.get("SUPERVISOR_UPDATE_PICTURES", "") not in ("", "0")
SIZES = ((80, 24), (120, 40), (200, 60))
LAYOUTS = {"console": (120, 40), "compact": (80, 24), "wall": (200, 60)}
"""Each with the size that a quick run looks at."""
PROFILE = "kimi-k25-eagle3"
LOG_LEAST_ROWS = 6

MOMENTS = {
    "connecting": Moment(stream="serves", plus_s=0.1, shows=("connecting",), memory=False),
    "preflight": Moment(stream="serves", after="preflight", plus_s=0.6, shows=("preflight",), memory=False),
    "launching": Moment(stream="serves", after="launching", plus_s=0.03, shows=("launching",)),
    "loading": Moment(stream="serves", after="loading", plus_s=3.4, shows=("loading", "%"), reads=("refused",)),
    "503": Moment(stream="slow-503", after="warming", plus_s=5.1, shows=("503",)),
    "200": Moment(stream="serves", after="healthy", plus_s=0.03, shows=("200",)),
    "serving": Moment(stream="serves", after="serving", plus_s=7.4, shows=("serving", "200"), reads=("tok/s",)),
    "degraded": Moment(
        stream="serves", after="serving", plus_s=7.4, told=degraded, then_s=3, shows=("degraded",), reads=("no answer",)
    ),
    "failed": Moment(stream="fails", after="failed", shows=("failed",), reads=("SIGKILL", "AttributeError")),
    "stopping": Moment(stream="serves", after="serving", plus_s=7.4, told=stopping, then_s=2, shows=("stopping",)),
    "stopped": Moment(
        stream="serves", after="serving", plus_s=7.4, told=stopped, then_s=2, shows=("stopped",), reads=("release",)
    ),
    "lost": Moment(
        stream="serves", after="loading", plus_s=3.4, told=lost, then_s=12, shows=("lost 12 s", "last known", "loading")
    ),
    "refused": Moment(
        stream="serves", after="preflight", plus_s=0.6, told=refused, then_s=2, shows=("refused",), reads=("30000",),
        memory=False,
    ),
}  # fmt: skip
"""Each in the order in which a run comes by it."""


@pytest.fixture(autouse=True)
def frozen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """One time zone, and no file of the user's."""
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("NO_COLOR", raising=False)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def differences(name: str, text: str) -> list[str]:
    """How a picture differs from its file. Where that is wanted the file is written instead."""
    path = PICTURES / f"{name}.txt"
    if UPDATE:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return []
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    return list(difflib.unified_diff(before.splitlines(), text.splitlines(), name, "now", lineterm="", n=0))


def log_rows(text: str) -> int:
    """How many rows the log's pane has inside its frame."""
    rows = text.split("\n")
    top = next((number for number, row in enumerate(rows) if row.startswith("╭─ log")), None)
    if top is None:
        return 0
    return next(number for number, row in enumerate(rows) if number > top and row.startswith("╰")) - top - 1


def broken_rules(layout: str, size: tuple[int, int], text: str, moment: Moment | None) -> list[str]:
    """What a screen must keep, whatever it looks like. `moment`: None for the table of all."""
    width, height = size
    rows = text.removesuffix("\n").split("\n")
    wrong = [f"{cells(row)} cells: {row}" for row in rows if cells(row) > width]
    wrong += [f"{len(rows)} rows"] if len(rows) != height else []
    wrong += [f"no {word!r} at the foot" for word in ("help", "quit") if word not in rows[-1]]
    if moment is None:  # the wall writes its phases in large letters
        words = (PROFILE, *(("serving", "loading", "failed", "lost") if layout != "wall" else ()))
        return wrong + [f"no {word!r}" for word in words if word not in text]
    wanted = (PROFILE, *moment.shows, *(("health", *moment.reads) if layout != "wall" else ()))
    wrong += [f"no {essential!r}" for essential in wanted if essential not in text]
    if moment.memory and "GiB" not in text:
        wrong.append("no memory")
    # A layout that somebody chose against the size of the terminal has to do with less.
    least = LOG_LEAST_ROWS if layout == automatic(*size) or size != SIZES[0] else LOG_LEAST_ROWS // 2
    if layout != "wall" and (found := log_rows(text)) < least:
        wrong.append(f"the log has {found} rows")
    return wrong


@pytest.mark.asyncio
@pytest.mark.parametrize("layout", LAYOUTS)
async def test_each_phase_at_each_size(layout: str) -> None:
    wrong: list[str] = []
    differ: list[str] = []
    names = set()

    def look(name: str, size: tuple[int, int], text: str, moment: Moment | None) -> None:
        stem = f"{name}/{layout}-{size[0]}x{size[1]}"
        names.add(stem)
        differ.extend(differences(stem, text))
        wrong.extend(f"{stem}: {rule}" for rule in broken_rules(layout, size, text, moment))

    every = FULL or UPDATE
    sizes = SIZES if every else (LAYOUTS[layout],)
    first = list(LAYOUTS).index(layout)  # a quick run looks at each phase in one of the layouts
    async with console_on(list(MOMENTS.values()), layout=layout) as scene:
        for size in sizes:
            await scene.resize(*size)
            look("table", size, await scene.table(), None)
            for number, (name, moment) in enumerate(MOMENTS.items()):
                if every or number % len(LAYOUTS) == first:
                    look(name, size, await scene.one(number), moment)
    assert not differ, "\n".join([*differ, "", "If it is meant: SUPERVISOR_UPDATE_PICTURES=1 draws them anew."])
    assert not wrong, "\n".join(wrong)
    known = {f"{path.parent.name}/{path.stem}" for path in PICTURES.glob(f"*/{layout}-*.txt")}
    assert known >= names and len(known) == (len(MOMENTS) + 1) * len(SIZES), "pictures of nothing"


@pytest.mark.asyncio
async def test_no_colour_where_none_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """And colours where nothing is said: so this cannot pass for the wrong reason."""
    for wanted in (True, False):
        if not wanted:
            monkeypatch.setenv("NO_COLOR", "1")
        async with console_on([MOMENTS["failed"], MOMENTS["serving"]]) as scene:
            scene.looks_at_colours = True
            for layout in LAYOUTS:
                scene.app.action_layout(layout)
                await scene.table()
                assert bool(scene.colours) is wanted, scene.colours
                await scene.one(0)
                assert bool(scene.colours) is wanted, scene.colours


@pytest.mark.asyncio
async def test_ascii_alone_where_no_more_is_wanted() -> None:
    names = ("failed", "serving", "lost")
    async with console_on([MOMENTS[name] for name in names], environ={"SUPERVISOR_ASCII": "1"}) as scene:
        for layout in LAYOUTS:
            scene.app.action_layout(layout)
            screens = {name: await scene.one(number) for number, name in enumerate(names)}
            for name, text in (*screens.items(), ("table", await scene.table())):
                assert text.isascii(), [row for row in text.split("\n") if not row.isascii()]
                assert all(cells(row) <= 120 for row in text.split("\n"))
                assert name == "table" or all(word in text for word in (PROFILE, *MOMENTS[name].shows)), text
