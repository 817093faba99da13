"""Which processes of a run ended while it lived, in their order, and how: seen by the keeper, who is always there.

A pidfd tells the end at once, even of a process that is no child of ours. How it ended stands in its /proc/PID/stat
until its parent has collected it, and from Linux 6.15 on can be asked of the pidfd afterwards. Where neither was to be
had, nobody saw how, and that is what is told.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional, Set

from . import proc, signals

Json = Dict[str, Any]

MAX_WATCHED = 300
MAX_KNOWN_PIDS = 4096
FIRST, LAST, QUIET = 16, 16, 4
"""How many ends are kept: the first and the last that went wrong, and of those with exit code 0 the last."""
_PIDFD_GET_INFO = 0xC040FF0B
_PIDFD_INFO_EXIT = 1 << 3
_CONSEQUENCES = ("SIGKILL", "SIGTERM", "SIGHUP")


class Deaths:
    """The table of a run's processes but its root.

    Args:
        name_of: the name of a signal's number.
    """

    def __init__(self, name_of: Callable[[int], str]) -> None:
        self._name_of = name_of
        self._known: Dict[int, Json] = {}
        self._ends = select.epoll()  # one of its own: closing a descriptor takes it out of there, and nowhere else
        self._by_descriptor: Dict[int, int] = {}
        self._descriptors: Dict[int, int] = {}
        self._first: List[Json] = []
        self._last: Deque[Json] = deque(maxlen=LAST)
        self._quiet: Deque[Json] = deque(maxlen=QUIET)
        self.pids: Set[int] = set()
        """Every pid that was ever seen to be the run's."""

    def look(self, tree: List[Json], root: int) -> List[Json]:
        """Take the present tree. What is missing in it, and was not told before, has ended: that is returned."""
        alive = {item["pid"]: item for item in tree if item["pid"] != root}
        out = []
        for pid in [pid for pid in self._known if pid not in alive]:
            if not proc.alive(pid, self._known[pid]["start_ticks"]):  # else its parent has just died: it will be found
                out += self._ended(pid, self._status(pid))
        for pid, item in alive.items():
            known = self._known.get(pid)
            if known is None or known["start_ticks"] != item["start_ticks"]:
                self._forget(pid)
                self._watch(pid)
            self._known[pid] = item  # titles change: engines name their processes some time after their birth
        if len(self.pids) < MAX_KNOWN_PIDS:
            self.pids.update(alive)
        return out

    def _watch(self, pid: int) -> None:
        if len(self._descriptors) >= MAX_WATCHED:
            return
        try:
            descriptor = signals.pidfd_open(pid)
        except OSError:
            return  # an old kernel, or gone already: the next look misses it
        self._descriptors[pid] = descriptor
        self._by_descriptor[descriptor] = pid
        self._ends.register(descriptor, select.EPOLLIN)

    def fileno(self) -> int:
        """Becomes readable when one of them ends."""
        return self._ends.fileno()

    def ready(self) -> List[Json]:
        """Those that have ended."""
        out = []
        for descriptor, _ in self._ends.poll(0):
            pid = self._by_descriptor[descriptor]
            out += self._ended(pid, self._status(pid))
        return out

    def reaped(self, pid: int, status: int) -> List[Json]:
        """An orphan of the run whom we collected ourselves."""
        return self._ended(pid, status) if pid in self._known else []

    def settle(self) -> None:
        """The root has ended: take what ended with it. What is its consequence alone is left out."""
        for descriptor, _ in self._ends.poll(0):
            pid = self._by_descriptor[descriptor]
            status = self._status(pid)
            if status is None or (os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0) or self._consequence(status):
                self._forget(pid)
            else:
                self._ended(pid, status)

    def _consequence(self, status: int) -> bool:
        return os.WIFSIGNALED(status) and self._name_of(os.WTERMSIG(status)) in _CONSEQUENCES

    def _ended(self, pid: int, status: Optional[int]) -> List[Json]:
        known = self._known[pid]
        self._forget(pid)
        number = os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else None
        code = os.WEXITSTATUS(status) if status is not None and number is None else None
        told = {
            "at": time.time(),
            "pid": pid,
            "title": known["title"],
            "code": code,
            "signal": self._name_of(number) if number is not None else None,
        }
        if code == 0:
            self._quiet.append(told)  # a compiler's helpers come and go by thousands
            return []
        if len(self._first) < FIRST:
            self._first.append(told)
        else:
            self._last.append(told)
        return [told]

    def _forget(self, pid: int) -> None:
        self._known.pop(pid, None)
        descriptor = self._descriptors.pop(pid, None)
        if descriptor is not None:
            del self._by_descriptor[descriptor]
            self._ends.unregister(descriptor)
            os.close(descriptor)

    def _status(self, pid: int) -> Optional[int]:
        """As waitpid gives it, None where it is not to be had any more."""
        ticks = self._known[pid]["start_ticks"]
        fields = proc.read("/proc/%d/stat" % pid).rpartition(b")")[2].split()
        if len(fields) > 49 and fields[0] in (b"Z", b"X") and int(fields[19]) == ticks and _may_ask(pid):
            return int(fields[49])
        descriptor = self._descriptors.get(pid)
        if descriptor is None:
            return None
        info = bytearray(64)
        struct.pack_into("=Q", info, 0, _PIDFD_INFO_EXIT)
        try:
            fcntl.ioctl(descriptor, _PIDFD_GET_INFO, info)
        except OSError:
            return None  # a kernel before 6.15
        mask = struct.unpack_from("=Q", info, 0)[0]
        return int(struct.unpack_from("=i", info, 60)[0]) if mask & _PIDFD_INFO_EXIT else None

    def told(self) -> List[Json]:
        """All that are kept, in their order."""
        return sorted([*self._first, *self._last, *self._quiet], key=lambda item: float(item["at"]))

    def close(self) -> None:
        """Watch nobody any more."""
        for pid in list(self._known):
            self._forget(pid)


def _may_ask(pid: int) -> bool:
    """Of another user's process the kernel shows 0 in place of the status."""
    try:
        return os.getuid() in (0, os.stat("/proc/%d" % pid).st_uid)
    except OSError:
        return False
