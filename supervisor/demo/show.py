"""The demonstration: the main job from launch to serving, on a loopback SSH node with simulated GPUs and engine.

The road is the real one (SSH, node program, keeper, health, verification, holders, release); what is simulated says so.
On a terminal it opens the console, else it is a headless wait. What was launched is stopped at the end.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from argparse import Namespace

from supervisor import profile
from supervisor.adapters.clock import SystemClock
from supervisor.core import durations
from supervisor.core import events as ev
from supervisor.core.wait import Limits
from supervisor.demo.stage import FAST, SHOWN, Play, Stage
from supervisor.errors import UsageError
from supervisor.headless.run import Options, wait
from supervisor.headless.stop import run_stop


async def run_demo(options: Namespace) -> int:
    """Run it; the exit code is the wait's, 0 of the console."""
    try:
        timeout_s = durations.parse(options.timeout)
    except ValueError as error:
        raise UsageError(f"--timeout: {error}") from error
    play = Play(
        engine=options.engine,
        fault=options.fault or "",
        model=options.model or "",
        timeline=FAST if options.fast else SHOWN,
    )
    stage = Stage(play)
    async with stage:
        print(f"demo: {play.what}, on a loopback SSH node ({stage.node.target})", file=sys.stderr)
        try:
            if _headless(options):
                return await _wait(stage, options, timeout_s)
            return await _console(stage, options.layout)
        finally:
            print("demo: stopping what was launched", file=sys.stderr)
            await run_stop(
                stage.plan,
                stage.make_link,
                clock=SystemClock(),
                by="demo",
                as_json=False,
                mask=str,
                out=sys.stderr,
                nvml_source=stage.nvml_source,
            )


def _headless(options: Namespace) -> bool:
    wanted = options.headless or options.json or options.events or options.record
    return bool(wanted) or not (sys.stdin.isatty() and sys.stdout.isatty())


async def _wait(stage: Stage, options: Namespace, timeout_s: float) -> int:
    clock = SystemClock()
    session = stage.session(clock, stays=False)
    view = Options(
        until=ev.Phase.SERVING,
        limits=Limits(timeout_s=timeout_s, timeout_from="--timeout"),
        json=options.json,
        all_events=bool(options.events),
        record=options.record,
    )
    return await wait(session.desk, session.run, view, began_at=clock.now())


async def _console(stage: Stage, layout: str | None) -> int:
    from supervisor.adapters.spool import Spool
    from supervisor.tui.app import ConsoleApp
    from supervisor.tui.watcher import Watcher

    session = stage.session(SystemClock(), stays=True)
    spool = Spool(stage.folder / "spool")  # nothing of the demonstration is left in the user's home
    watcher = Watcher(session, title=stage.play.title, node=stage.node.target, mask=str, spool=spool)
    app = ConsoleApp([watcher], layout_name=layout, config=profile.config_dir())
    # Not for a hangup: its terminal is gone, and a screen that cannot be given back holds the end up for ever. Dying of
    # it is the quick end, and the guard does the rest.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: app.exit(128 + signal.SIGTERM))
    code = await app.run_async()
    return code if code is not None else (app.return_code or 0)
