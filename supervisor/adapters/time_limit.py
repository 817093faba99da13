"""A limit on the processor time of one call that cannot be cut into steps: a pattern of the user's on a line of a log.

`re` backtracks for years on some patterns and gives way to nobody, but it looks for signals on its way. A timer's
signal whose handler raises ends it. That works in the main thread alone; elsewhere the call is made without a limit.
Processor time, not the clock's: on a busy machine every pattern would take too long.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType


class _OverTime(Exception):
    pass


def within(limit_s: float) -> Callable[[Callable[[], object]], bool]:
    """What runs a call and returns True, or False where it was ended at the limit. Other exceptions pass."""

    def guard(call: Callable[[], object]) -> bool:
        if threading.current_thread() is not threading.main_thread():
            call()
            return True
        return _limited(call, limit_s)

    return guard


def _limited(call: Callable[[], object], limit_s: float) -> bool:
    armed = True

    def over(_number: int, _frame: FrameType | None) -> None:
        if armed:  # a signal that comes just behind the call must hit nobody else
            raise _OverTime

    before = signal.signal(signal.SIGVTALRM, over)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, limit_s)
        call()
        armed = False
        return True
    except _OverTime:
        armed = False
        return False
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
