"""What a test started, found again by a mark in the environment, and the waiting for things outside of this process.

The mark is inherited by every child, also by one that daemonised itself, so a left-over is seen wherever it hides. A
process is ended only by a psutil handle that was taken while it bore the mark: psutil compares the start time before
it signals, so a pid that was given to somebody else in between is never hit.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import psutil

T = TypeVar("T")

MARK = "SUPERVISOR_TEST_MARK"
PATIENCE = 2.0


def poll(look: Callable[[], T | None], timeout_s: float, what: str, *, pause_s: float = 0.01) -> T:
    """The first answer of `look` that is neither None nor False. `AssertionError` telling `what` did not come.

    `timeout_s` is for a machine of one's own: one that others use as well may take `PATIENCE` times as long.
    """
    deadline = time.monotonic() + timeout_s * PATIENCE
    while True:
        answer = look()
        if answer is not None and answer is not False:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not seen in {timeout_s:g} s: {what}")
        time.sleep(pause_s)


def alive(process: psutil.Process) -> bool:
    """False also for a zombie: where PID 1 reaps late, a dead process stays in the table for a second."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def descendants(process: psutil.Process) -> list[psutil.Process]:
    """All below it, none when it is gone."""
    try:
        return process.children(recursive=True)
    except psutil.Error:
        return []


def name(process: psutil.Process) -> str:
    """The kernel's name of it, "" when it is gone."""
    try:
        return process.name()
    except psutil.Error:
        return ""


def send(process: psutil.Process, number: signal.Signals) -> None:
    """The signal, if it is still the process that the handle was taken for; else nothing."""
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        pass  # it went by itself


def wait_gone(watched: Iterable[psutil.Process], timeout_s: float) -> list[psutil.Process]:
    """Those that live when the time is over. Not psutil's own wait: for that a zombie is no end."""
    left = list(watched)
    deadline = time.monotonic() + timeout_s
    while left := [process for process in left if alive(process)]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.01)
    return left


def describe(process: psutil.Process) -> str:
    """pid and command line, for a message."""
    try:
        return f"{process.pid} {' '.join(process.cmdline())[:200]}"
    except psutil.Error:
        return f"{process.pid} (gone)"


def marked(mark: str) -> list[psutil.Process]:
    """Every living process that was started with this mark in its environment, this one left out."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            process = psutil.Process(int(entry.name))
            if wanted in (entry / "environ").read_bytes().split(b"\0") and alive(process):
                found.append(process)
        except (OSError, psutil.Error):
            continue  # it ended while we looked, or belongs to another user: then we did not start it
    return found


def end(processes: Iterable[psutil.Process], timeout_s: float = 5.0) -> None:
    """TERM, and KILL for what is left (and for what is stopped: it would never see the TERM). Waits for the end."""
    left = [process for process in processes if alive(process)]
    for process in left:
        stopped = process.is_running() and process.status() == psutil.STATUS_STOPPED
        send(process, signal.SIGKILL if stopped else signal.SIGTERM)
    left = wait_gone(left, timeout_s)
    for process in left:
        send(process, signal.SIGKILL)
    wait_gone(left, timeout_s)


class Tracker:
    """Says which processes bear its mark, and insists that none is left."""

    def __init__(self, mark: str) -> None:
        self.mark = mark

    @property
    def environment(self) -> dict[str, str]:
        """To be added to the environment of what does not inherit ours, such as an sshd's sessions."""
        return {MARK: self.mark}

    def alive(self) -> list[psutil.Process]:
        return marked(self.mark)

    def assert_none_left(self, timeout_s: float = 3.0) -> None:
        """Waits for the last one to go; what is left is ended, told, and fails the test."""
        try:
            poll(lambda: not self.alive(), timeout_s, "the end of every process that the test started", pause_s=0.05)
        except AssertionError:
            left = self.alive()
            names = [describe(process) for process in left]
            end(left)
            raise AssertionError("processes outlived the test that started them:\n" + "\n".join(names)) from None
