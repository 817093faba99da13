"""Signals to processes that are proved to be the meant ones. By pidfd where the kernel has it (5.3)."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
from typing import Any, Dict, Iterable, List

from . import proc

_SYS_PIDFD_SEND_SIGNAL = 424  # the same number on every architecture
_SYS_PIDFD_OPEN = 434
_ALLOWED = {"TERM": signal.SIGTERM, "KILL": signal.SIGKILL, "INT": signal.SIGINT}

_libc = ctypes.CDLL(None, use_errno=True)


def pidfd_open(pid: int) -> int:
    """A descriptor of the process that has this pid now. Raises `OSError` (ENOSYS on old kernels)."""
    if hasattr(os, "pidfd_open"):
        return int(os.pidfd_open(pid))
    descriptor = int(_libc.syscall(_SYS_PIDFD_OPEN, pid, 0))
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return descriptor


def have_pidfd() -> bool:
    """Whether the kernel has pidfds."""
    try:
        os.close(pidfd_open(os.getpid()))
    except OSError:
        return False
    return True


def send(targets: Iterable[Dict[str, Any]], name: str) -> Dict[str, Any]:
    """Signal each target whose identity still holds; tell who got it, who is gone, and who may not be signalled."""
    number = _ALLOWED[name]
    sent: List[int] = []
    gone: List[int] = []
    denied: List[int] = []
    how = "pidfd"
    for target in targets:
        pid, ticks = int(target["pid"]), int(target["start_ticks"])
        if pid <= 1 or pid == os.getpid():
            denied.append(pid)
            continue
        try:
            method = _send_one(pid, ticks, number)
        except ProcessLookupError:
            gone.append(pid)
            continue
        except OSError:  # not permitted; or no process but a thread (EINVAL)
            denied.append(pid)
            continue
        sent.append(pid)
        if method != "pidfd":
            how = method
    return {"sent": sent, "gone": gone, "denied": denied, "how": how}


def _send_one(pid: int, ticks: int, number: int) -> str:
    try:
        descriptor = pidfd_open(pid)
    except OSError as error:
        if error.errno == errno.ESRCH:
            raise ProcessLookupError(pid) from error
        if error.errno != errno.ENOSYS:
            raise
        if not proc.alive(pid, ticks):
            raise ProcessLookupError(pid) from None
        os.kill(pid, number)
        return "identity"
    try:
        # The identity is read while the descriptor is open: from here on the pid cannot become another process.
        if not proc.alive(pid, ticks):
            raise ProcessLookupError(pid)
        if hasattr(signal, "pidfd_send_signal"):
            signal.pidfd_send_signal(descriptor, number)
        elif _libc.syscall(_SYS_PIDFD_SEND_SIGNAL, descriptor, number, None, 0) < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
    finally:
        os.close(descriptor)
    return "pidfd"
