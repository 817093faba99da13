"""Makes the README's pictures: the console on the demonstration, in several phases, as layouts/pictures/*.svg.

    scripts/pictures [--only NAME…] [--to FOLDER]

What they show is what anybody sees with `supervisor demo`: the same node, GPUs, engine and console, a little faster. An
SVG of them loads nothing from anywhere. Where rsvg-convert is installed, --png makes PNG files beside them.
"""

from __future__ import annotations

import argparse
import asyncio
import html
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
from supervisor.demo.stage import SHOWN, Play, Stage, Timeline  # noqa: E402
from supervisor.tui.app import ConsoleApp  # noqa: E402
from supervisor.tui.watcher import Watcher  # noqa: E402

FOLDER = ROOT / "layouts" / "pictures"
LARGEST_BYTES = 150_000
PATIENCE_S = 120.0
QUICK = Timeline(load_s=7.0, warm_s=1.0, health_s=0.2, fall_s=1.0)
CELL = 12.2
_TEXT = re.compile(
    r'<text class="([^"]+)" x="([\d.]+)" y="([\d.]+)" textLength="([\d.]+)" clip-path="[^"]+">([^<]*)</text>\s*'
)
_WORD = re.compile(r"[^\s\xa0]{1,16}")
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
    """The same without what would be fetched from elsewhere, smaller, and with a place for each word.

    Rich says how long each piece of text is; a program that does not stretch letters to that would draw crooked tables.
    """
    svg = _FONTS.sub("", svg)
    svg = re.sub(r"terminal-\d+", "t", svg)
    svg = re.sub(r"<clipPath id=\"t-line-\d+\">.*?</clipPath>\s*", "", svg, flags=re.DOTALL)
    svg = _TEXT.sub(_placed, svg)
    outside = re.findall(r"(?:href|src|url)\s*[=(]\s*[\"']?(?:https?:)?//[^\"')]+", svg)
    assert not outside, outside
    assert str(ROOT) not in svg, "this checkout's place is nobody's business"
    return svg


def _placed(found: re.Match[str]) -> str:
    """One piece of text, word by word, each at its cell; nothing for blanks."""
    kind, x, y, length, raw = found.groups()
    text = html.unescape(raw)
    if round(float(length) / CELL) != len(text):  # wide letters: where each of them begins is not known here
        return f'<text class="{kind}" x="{x}" y="{y}" textLength="{length}">{raw}</text>'
    out = []
    for word in _WORD.finditer(text):
        place, wide = (f"{number * CELL:.1f}".removesuffix(".0") for number in (word.start(), len(word.group())))
        place = f"{float(x) + float(place):.1f}".removesuffix(".0")
        letters = html.escape(word.group(), quote=False)
        out.append(f'<text class="{kind}" x="{place}" y="{y}" textLength="{wide}">{letters}</text>')
    return "".join(out)


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


async def launch() -> dict[str, str]:
    """Amid the weights; then serving for a while, with traffic."""
    async with scene(Play(timeline=SHOWN), (120, 40)) as it:
        await it.until(lambda: _fraction(it) >= 0.64)
        first = it.picture()
        await it.until_phase(Phase.SERVING)
        await it.pilot.pause(35.0)
        return {"loading": first, "serving": it.picture()}


async def failed() -> dict[str, str]:
    """A launch that dies after nearly all of the load."""
    async with scene(Play(timeline=QUICK, fault="die-at-graphs"), (120, 40)) as it:
        await it.until_phase(Phase.FAILED)
        await it.pilot.pause(1.0)
        return {"failed": it.picture()}


async def stopping() -> dict[str, str]:
    """The end of a stop, with its proof."""
    async with scene(Play(timeline=QUICK), (120, 40)) as it:
        await it.until_phase(Phase.SERVING)
        await it.pilot.pause(6.0)
        await it.pilot.press("k")
        await it.pilot.pause(1.0)
        await it.pilot.press("y")
        await it.until_phase(Phase.STOPPED)
        await it.pilot.pause(1.0)
        return {"stopping": it.picture()}


async def compact() -> dict[str, str]:
    """The same launch on 80x24."""
    async with scene(Play(timeline=QUICK), (80, 24)) as it:
        await it.until(lambda: _fraction(it) >= 0.7)
        return {"compact": it.picture()}


SCENES: dict[str, Callable[[], Awaitable[dict[str, str]]]] = {
    "launch": launch,
    "failed": failed,
    "stopping": stopping,
    "compact": compact,
}


def main() -> None:
    """Make them, one after the other."""
    parser = argparse.ArgumentParser(prog="scripts/pictures", description="Makes the README's pictures.")
    parser.add_argument("--only", nargs="+", choices=SCENES, default=list(SCENES), metavar="NAME")
    parser.add_argument("--to", type=Path, default=FOLDER, metavar="FOLDER")
    parser.add_argument("--png", action="store_true", help="PNG files too, by rsvg-convert")
    options = parser.parse_args()
    options.to.mkdir(parents=True, exist_ok=True)
    for name in options.only:
        for title, svg in asyncio.run(_made(SCENES[name])).items():
            path = options.to / f"{title}.svg"
            path.write_text(svg, encoding="utf-8")
            size = len(svg.encode())
            print(f"{path}: {size / 1000:.0f} kB" + (" (too large)" if size > LARGEST_BYTES else ""))
            if options.png and (program := shutil.which("rsvg-convert")):
                subprocess.run([program, "-o", path.with_suffix(".png"), path], check=True)


async def _made(make: Callable[[], Awaitable[dict[str, str]]]) -> dict[str, str]:
    return await make()


if __name__ == "__main__":
    main()
