"""Hangup, interrupt and termination as decisions of a command, instead of a death without words."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from supervisor.core.events import Outcome
from supervisor.core.wait import Decision

EXIT_CODES = {signal.SIGHUP: 129, signal.SIGINT: 130, signal.SIGTERM: 143}


def catch_signals(decide: Callable[[Decision], None], said: str) -> Callable[[], None]:
    """From now on a signal decides; `said` completes "SIGINT ended this command". Returns what undoes it."""
    loop = asyncio.get_running_loop()

    def caught(number: signal.Signals) -> None:
        reason = f"{number.name} ended this command{said}"
        decide(Decision(outcome=Outcome.INTERRUPTED, exit_code=EXIT_CODES[number], reason=reason))

    try:
        for number in EXIT_CODES:
            loop.add_signal_handler(number, caught, number)
    except (ValueError, RuntimeError, NotImplementedError):
        return lambda: None  # not the main thread: tests run several commands in one process

    def restore() -> None:
        for number in EXIT_CODES:
            loop.remove_signal_handler(number)

    return restore
