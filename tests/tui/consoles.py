"""The console on a session without a node, and how a test looks at its screen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from textual.app import App
from textual.pilot import Pilot

from supervisor.core import events as ev
from supervisor.core.gpu import Driver, DriverState, Gpu, Memory, Use
from supervisor.core.gpu_events import GpuEvent
from supervisor.tui.app import ConsoleApp
from supervisor.tui.pieces import text_of
from supervisor.tui.screens.run import RunScreen
from supervisor.tui.watcher import Watcher
from supervisor.tui.widgets.line import Line
from supervisor.tui.widgets.log_pane import LogPane
from tests.tui.fakes import FakeSession

SMALL, USUAL, WIDE = (80, 24), (120, 40), (200, 60)
SECRET = "sk-hunter2"
GIB = 1 << 30
TREE = [
    ev.Process(pid=48190, start_ticks=1, uid=1003, age_s=401, title="python3 -m sglang.launch_server --tp 2"),
    ev.Process(pid=48211, start_ticks=2, uid=1003, age_s=399, title="sglang::scheduler_TP0"),
    ev.Process(pid=48212, start_ticks=3, uid=1004, age_s=7, title="[not markup] sglang::scheduler_TP1"),
]
Until = Callable[[], object]


def watcher_of(session: FakeSession, title: str = "kimi") -> Watcher:
    """With a mask that hides `SECRET`."""
    return Watcher(session, title=title, node="gpu1", mask=lambda text: text.replace(SECRET, "•••"))


def console(
    session: FakeSession,
    *,
    layout: str | None = None,
    config: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> ConsoleApp:
    """The console of one session, as on a terminal that has everything."""
    return ConsoleApp([watcher_of(session)], layout_name=layout, config=config, environ=environ or {})


async def until(pilot: Pilot[Any], holds: Until) -> None:
    """Let the app work until it holds; a test that waits in vain shows the screen."""
    try:
        async with asyncio.timeout(15):
            # Not pilot.pause(): it waits for ever for a toast that another one replaces meanwhile.
            while not holds():  # noqa: ASYNC110 - Textual has no event for "drawn"
                await asyncio.sleep(0.02)
    except TimeoutError:
        pytest.fail(f"waited in vain; the screen:\n{screen_text(pilot.app)}")


async def press(pilot: Pilot[Any], *keys: str) -> None:
    """Keys in a row, without the pauses of `pilot.press`: what comes of them is awaited by whoever pressed them."""
    for key in keys:
        pilot.app.simulate_key(key)
        await asyncio.sleep(0)


def screen_text(app: App[Any]) -> str:
    """Every row of the screen as it is drawn."""
    return "\n".join("".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips())


def shows(app: App[Any], *texts: str) -> Until:
    """All of these stand on the screen."""
    return lambda: all(text in screen_text(app) for text in texts)


def said(app: App[Any], *texts: str) -> Until:
    """A toast says it, wherever it is wrapped."""
    return lambda: all(any(text in toast.message for toast in app._notifications) for text in texts)


def run_screen(app: App[Any]) -> RunScreen:
    """The screen of the session, whatever stands over it."""
    return next(screen for screen in app.screen_stack if isinstance(screen, RunScreen))


def pieces(app: App[Any], name: str) -> str:
    """What a line says in all, also where the screen is too narrow for it."""
    return text_of(run_screen(app).query_one(f"#{name}", Line).pieces)


def pane(app: App[Any]) -> LogPane:
    """The log."""
    return run_screen(app).pane


def gpus(session: FakeSession, *used_gib: int, ours_gib: int | None = None, simulated: bool = False) -> GpuEvent:
    """A look at GPUs of 80 GiB; all but the root of `TREE` are on them, one each."""
    found = tuple(
        Gpu(
            uuid=f"GPU-{index}",
            index=index,
            name="NVIDIA H100 80GB HBM3",
            memory=Memory(total_bytes=80 * GIB, used_bytes=used * GIB),
            uses=(Use(pid=TREE[1 + index % 2].pid, used_bytes=used * GIB),) if used else (),
            gpu_percent=3,
            temperature_c=40 + index,
            power_w=90.0,
        )
        for index, used in enumerate(used_gib)
    )
    driver = Driver(state=DriverState.OK, simulated=simulated)
    ours = ours_gib * GIB if ours_gib is not None else None
    return GpuEvent(at=session.clock.now(), host="gpu1", driver=driver, gpus=found, ours_bytes=ours)
