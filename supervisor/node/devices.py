"""Which processes have a GPU's device file open: the evidence that NVML does not give (a forked child that keeps a dead
rank's memory, a process that no list names). Reads /proc/*/fd, in slices, so that 100,000 descriptors hold nobody up.

It signals nobody and decides nothing: monitors and daemons open these files too.
"""

from __future__ import annotations

import os
import re
import time
from typing import Dict, Iterable, Iterator, List, Mapping, Optional, Set, Tuple

from . import proc

ALL, OWN, PARTIAL = "all", "own", "partial"

_NAMES = re.compile(r"/(?:nvidia\d+|nvidiactl|nvidia-uvm|nvidia-caps/[\w-]+|dxg)$")
_OPENS_A_GPU = re.compile(r"/(?:nvidia\d+|dxg)$")
SLICE_S = 0.05


def folder() -> str:
    """What stands for /dev: another folder in tests, where no GPU is."""
    return os.environ.get("INFERENCE_SUPERVISOR_DEV") or "/dev"


def present() -> bool:
    """Whether any GPU has a device file here."""
    try:
        return any(_OPENS_A_GPU.search("/" + name) for name in os.listdir(folder()))
    except OSError:
        return False


class Scan:
    """One pass over every process. `step()` until it says that it is done; then `found` and `coverage` hold."""

    def __init__(self, listening: Optional[Mapping[int, int]] = None) -> None:
        """`listening`: inode → port of the sockets that listen."""
        self._base = folder()
        self._listening = listening or {}
        self._pids: Iterator[int] = iter(sorted(proc.pids()))
        self._foreign = False
        self.found: Dict[int, List[str]] = {}
        self.ports: Dict[int, List[int]] = {}
        """pid → ports that it listens on, for every process that listens."""
        self.done = False

    @property
    def coverage(self) -> str:
        """Whose descriptors were read: all, own (some could not be looked at), partial (not done yet)."""
        if not self.done:
            return PARTIAL
        return OWN if self._foreign or hides_processes() else ALL

    def step(self, budget_s: float = SLICE_S) -> bool:
        """Go on for about this long. True when it is done."""
        end = time.monotonic() + budget_s
        for pid in self._pids:
            self._look(pid)
            if time.monotonic() > end:
                return False
        self.done = True
        return True

    def finish(self, limit_s: float) -> None:
        """Go on until it is done, or for this long."""
        self.step(limit_s)

    def _look(self, pid: int) -> None:
        looked = opened(pid, self._base)
        if looked is None:
            self._foreign = True
            return
        files, inodes = looked
        if files:
            self.found[pid] = files
        if ports := {self._listening[inode] for inode in inodes & self._listening.keys()}:
            self.ports[pid] = sorted(ports)


def opened(pid: int, base: Optional[str] = None) -> Optional[Tuple[List[str], Set[int]]]:
    """The GPU device files that a process has open, and the inodes of its sockets. None where we may not look."""
    base = base or folder()
    found: Set[str] = set()
    inodes: Set[int] = set()
    count = 0
    try:
        count = _links("/proc/%d/fd" % pid, base, found, inodes)
    except PermissionError:
        return None
    except OSError:
        pass
    if not count:
        # It has gone; or it is a zombie leader, whose threads may live and hold what it held.
        state = proc.stat(pid)
        if state is not None and state["state"] in "ZX" and state["threads"] > 1:
            for task in _tasks(pid):
                try:
                    _links("/proc/%d/task/%s/fd" % (pid, task), base, found, inodes)
                except OSError:
                    continue
    return sorted(found), inodes


def mapped(pid: int) -> List[str]:
    """Device files that a process has mapped, for one that closed them. Dear: for few processes only."""
    base = folder()
    found: Set[str] = set()
    for line in proc.read("/proc/%d/maps" % pid).splitlines():
        path = line.rpartition(b" ")[2].decode("utf-8", "replace")
        if path.startswith(base) and _NAMES.search(path):
            found.add(path)
    return sorted(found)


def _links(path: str, base: str, found: Set[str], inodes: Set[int]) -> int:
    """Look at one folder of descriptors; returns how many there are."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        names = os.listdir(descriptor)
        for name in names:
            try:
                target = os.readlink(name, dir_fd=descriptor)
            except OSError:
                continue
            if target.startswith("socket:["):
                inodes.add(int(target[8:-1]))
            elif target.startswith(base) and _NAMES.search(target):
                found.add(target)
        return len(names)
    finally:
        os.close(descriptor)


def _tasks(pid: int) -> Iterable[str]:
    try:
        return os.listdir("/proc/%d/task" % pid)
    except OSError:
        return ()


def hides_processes() -> bool:
    """Whether /proc shows us our own processes alone (hidepid)."""
    return os.getuid() != 0 and not os.path.exists("/proc/1/stat")
