"""Makes the README's pictures: the console on the demonstration, in several phases, as layouts/pictures/*.svg.

    scripts/pictures [--only NAME…] [--to FOLDER]

What they show is what anybody sees with `supervisor demo`: the same node, GPUs, engine and console, a little faster. An
SVG of them loads nothing from anywhere. Where rsvg-convert is installed, --png makes PNG files beside them.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from supervisor.adapters.clock import SystemClock  # noqa: E402
from supervisor.core.events import Phase  # noqa: E402
from supervisor.demo.stage import Play, Stage, Timeline  # noqa: E402
from supervisor.tui.app import ConsoleApp  # noqa: E402
from supervisor.tui.watcher import Watcher  # noqa: E402

FOLDER = ROOT / "layouts" / "pictures"
LARGEST_BYTES = 150_000
PATIENCE_S = 120.0
PACE = Timeline(load_s=26.0, warm_s=4.0, health_s=0.6, fall_s=2.0)
QUICK = Timeline(load_s=7.0, warm_s=1.0, health_s=0.2, fall_s=1.0)
_FONTS = re.compile(r"@font-face\s*\{.*?\}\s*", re.DOTALL)


class Scene:
    """The console on a demonstration, without a terminal."""

    def __init__(self, app: ConsoleApp, pilot: Any, watcher: Watcher) -> None:
        self.app = app
        self.pilot = pilot
        self.watcher = watcher

    async def until(self, true: Callable[[], bool]) -> None:
        """Until something of the stream has come."""
        async with asyncio.timeout(PATIENCE_S):
            while not true():
                await self.pilot.pause(0.1)
        await self.pilot.pause(0.3)

    async def until_phase(self, phase: Phase) -> None:
        """Until the run stands there."""
        await self.until(lambda: self.watcher.model.view.phase is phase)

    def picture(self) -> str:
        """What the screen shows, as SVG."""
        return plain(self.app.export_screenshot(title="supervisor demo"))


def plain(svg: str) -> str:
    """The same without what would be fetched from elsewhere."""
    svg = _FONTS.sub("", svg)
    outside = re.findall(r"(?:href|src|url)\s*[=(]\s*[\"']?(?:https?:)?//[^\"')]+", svg)
    assert not outside, outside
    return svg


@asynccontextmanager
async def scene(play: Play, size: tuple[int, int], layout: str | None = None) -> AsyncIterator[Scene]:
    """A demonstration and the console on it."""
    async with Stage(play) as stage:
        session = stage.session(SystemClock(), stays=True)
        watcher = Watcher(session, title="demo", node=stage.node.target, mask=str)
        app = ConsoleApp([watcher], layout_name=layout)
        async with app.run_test(size=size) as pilot:
            yield Scene(app, pilot, watcher)
        await asyncio.sleep(0)


def _fraction(it: Scene) -> float:
    progress = it.watcher.model.view.progress
    return (progress.fraction or 0.0) if progress is not None and progress.stage == "weights" else 0.0


async def loading() -> str:
    """Amid the weights."""
    async with scene(Play(timeline=PACE), (120, 40)) as it:
        await it.until(lambda: _fraction(it) >= 0.64)
        return it.picture()


async def serving() -> str:
    """Serving for a while, with traffic."""
    async with scene(Play(timeline=QUICK), (120, 40)) as it:
        await it.until_phase(Phase.SERVING)
        await it.pilot.pause(35.0)
        return it.picture()


async def failed() -> str:
    """A launch that dies amid the weights, since a GPU is lost."""
    async with scene(Play(timeline=QUICK, fault="gpu-lost"), (120, 40)) as it:
        await it.until_phase(Phase.FAILED)
        await it.pilot.pause(1.0)
        return it.picture()


async def stopping() -> str:
    """The end of a stop, with its proof."""
    async with scene(Play(timeline=QUICK), (120, 40)) as it:
        await it.until_phase(Phase.SERVING)
        await it.pilot.pause(6.0)
        await it.pilot.press("k")
        await it.pilot.pause(1.0)
        await it.pilot.press("y")
        await it.until_phase(Phase.STOPPED)
        await it.pilot.pause(1.0)
        return it.picture()


async def compact() -> str:
    """The same launch on 80x24."""
    async with scene(Play(timeline=QUICK), (80, 24)) as it:
        await it.until(lambda: _fraction(it) >= 0.7)
        return it.picture()


PICTURES: dict[str, Callable[[], Awaitable[str]]] = {
    "loading": loading,
    "serving": serving,
    "failed": failed,
    "stopping": stopping,
    "compact": compact,
}


def main() -> None:
    """Make them, one after the other."""
    parser = argparse.ArgumentParser(prog="scripts/pictures", description="Makes the README's pictures.")
    parser.add_argument("--only", nargs="+", choices=PICTURES, default=list(PICTURES), metavar="NAME")
    parser.add_argument("--to", type=Path, default=FOLDER, metavar="FOLDER")
    parser.add_argument("--png", action="store_true", help="PNG files too, by rsvg-convert")
    options = parser.parse_args()
    options.to.mkdir(parents=True, exist_ok=True)
    for name in options.only:
        svg = asyncio.run(_made(PICTURES[name]))
        path = options.to / f"{name}.svg"
        path.write_text(svg, encoding="utf-8")
        size = len(svg.encode())
        print(f"{path}: {size / 1000:.0f} kB" + (" (too large)" if size > LARGEST_BYTES else ""))
        if options.png and (program := shutil.which("rsvg-convert")):
            subprocess.run([program, "-z", "1.2", "-o", path.with_suffix(".png"), path], check=True)


async def _made(make: Callable[[], Awaitable[str]]) -> str:
    return await make()


if __name__ == "__main__":
    main()
