"""The commands on a record: `--replay FILE`, headless or in the console. Called by cli.py alone, as commands.py is.

Nothing is connected to and nothing launched; the exit code is the recorded one.
"""

from __future__ import annotations

import asyncio
import math
import os
import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from supervisor.adapters.clock import SystemClock
from supervisor.core import durations
from supervisor.core import events as ev
from supervisor.core.wait import Limits
from supervisor.errors import UsageError

if TYPE_CHECKING:
    from supervisor.supervise.replay import ReplaySession

MAX_SPEED = 1e6


def session_of(options: Namespace, *, each: bool = False) -> ReplaySession:
    """The recording that the options name; `each`: see there. Raises `UsageError`."""
    from supervisor.supervise.replay import ReplaySession

    speed, max_gap_s = _speed(options), _max_gap_s(options)
    return ReplaySession(options.replay, clock=SystemClock(), speed=speed, max_gap_s=max_gap_s, each=each)


def headless(options: Namespace) -> int:
    """Print it as it was printed; the ending and the exit code are the record's."""
    from supervisor.headless.run import Options, wait
    from supervisor.supervise.replay import ReplayWaiter

    if options.events and not options.json:
        raise UsageError("--events belongs to --json")
    session = session_of(options, each=True)
    session.desk.warn(session.said)
    view = Options(
        until=ev.Phase.SERVING,
        limits=Limits(timeout_s=math.inf),
        json=options.json,
        all_events=options.events == "all",
    )

    async def run() -> int:
        return await wait(session.desk, session.play, view, began_at=session.clock.now(), waiter=ReplayWaiter())

    return asyncio.run(run())


def console(options: Namespace) -> int:
    """Show it in the console, in which nothing can be ordered then."""
    if not sys.stdin.isatty() or not sys.stdout.isatty():
        raise UsageError("the console needs a terminal; for scripts: supervisor --headless --replay FILE")
    session = session_of(options)
    from supervisor import profile
    from supervisor.supervise.replay import REFUSAL
    from supervisor.tui.app import run_console
    from supervisor.tui.watcher import Watcher

    refusal = REFUSAL[0].upper() + REFUSAL[1:] + "."
    watcher = Watcher(session, title=session.title, node=session.node, mask=str, refusal=refusal)
    return run_console([watcher], layout_name=options.layout, config=profile.config_dir(os.environ))


def _speed(options: Namespace) -> float:
    if options.speed is None:
        return 1.0
    try:
        speed = float(options.speed.removesuffix("x"))
    except ValueError:
        speed = math.nan
    if not 0 < speed <= MAX_SPEED:
        raise UsageError(f"--speed: {options.speed!r} is no speed: 10 plays ten times as fast, 0.5 half as fast")
    return speed


def _max_gap_s(options: Namespace) -> float | None:
    if options.max_gap is None:
        return None
    try:
        return durations.parse(options.max_gap)
    except ValueError as error:
        raise UsageError(f"--max-gap: {error}") from error
