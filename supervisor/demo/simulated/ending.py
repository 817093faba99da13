"""Nothing of a demonstration outlives it: its processes end by themselves when nobody holds its lock any more.

The demonstration holds an exclusive lock on a file, which the kernel lets go whatever it dies of.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable

LOOK_EVERY_S = 0.5


def is_over(path: str) -> bool:
    """Whether the file is gone, or nobody holds it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: those that look do not hide each other
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)


def wait_until_over(path: str) -> None:
    """Returns when it is over."""
    while not is_over(path):
        time.sleep(LOOK_EVERY_S)


def watch(path: str, end: Callable[[], None]) -> None:
    """Calls `end` from a thread of its own when it is over."""

    def run() -> None:
        wait_until_over(path)
        end()

    threading.Thread(target=run, name="ending", daemon=True).start()
