"""What the processes of a simulated engine hold on simulated GPUs: lines in a folder, and real device files open.

The demonstration makes the folder and the module that reads it (simulated_nvml.py beside this package): held/NAME has a
line for each process and GPU, "PID START_TICKS GPU BYTES PERCENT", and counts for as long as that process lives.
"""

from __future__ import annotations

import os
from typing import Dict, List, Sequence, Tuple

GIB = 1 << 30
_ALWAYS_OPEN = ("nvidiactl", "nvidia-uvm")
_KEPT: List[int] = []

Row = Tuple[int, int, int, int]
"""pid, GPU, bytes, percent"""


def open_devices(folder: str, gpu: int) -> None:
    """Has the device files of one GPU open from now on, as a process with a CUDA context has."""
    for name in (f"nvidia{gpu}", *_ALWAYS_OPEN):
        _KEPT.append(os.open(os.path.join(folder, "dev", name), os.O_RDWR | os.O_CLOEXEC))


class Gpus:
    """The folder. Without one nothing is held, and nothing is written."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._ticks: Dict[int, int] = {}
        self._own: Dict[int, int] = {}

    def write(self, rows: Sequence[Row]) -> None:
        """From now on these processes hold this much, and no others of this engine."""
        if not self.folder:
            return
        lines = [f"{pid} {self._started(pid)} {gpu} {count} {percent}\n" for pid, gpu, count, percent in rows]
        self._own = {gpu: count for _, gpu, count, _ in rows}
        path = os.path.join(self.folder, "held", str(os.getpid()))
        half = os.path.join(self.folder, "held", f".{os.getpid()}")
        try:
            with open(half, "w", encoding="ascii") as file:
                file.write("".join(lines))
            os.replace(half, path)
        except OSError:
            pass  # the demonstration is over, and we are about to be

    def taken_gb(self, gpu: int) -> float:
        """What others hold of a GPU: left-overs, whose lines stand in the folder too."""
        total = 0
        for name in self._names():
            try:
                with open(os.path.join(self.folder, "held", name), encoding="ascii") as file:
                    rows = [[int(word) for word in line.split()] for line in file]
            except (OSError, ValueError):
                continue
            total += sum(row[3] for row in rows if row[2] == gpu and start_ticks(row[0]) == row[1])
        return total / GIB

    def _names(self) -> List[str]:
        try:
            found = os.listdir(os.path.join(self.folder, "held")) if self.folder else []
        except OSError:
            return []
        return [name for name in found if name.isdigit() and name != str(os.getpid())]

    def lose(self, gpu: int) -> None:
        """The GPU falls off the bus, and the kernel says so."""
        if not self.folder:
            return
        with open(os.path.join(self.folder, "lost"), "w", encoding="ascii") as file:
            file.write(str(gpu))
        address = f"PCI:0000:{0x11 + 0x10 * gpu:02x}:00"
        with open(os.path.join(self.folder, "dev", "kmsg"), "a", encoding="ascii") as file:
            file.write(f"3,1,1,-;NVRM: Xid ({address}): 79, GPU has fallen off the bus. (simulated)\n")

    def _started(self, pid: int) -> int:
        if pid not in self._ticks:
            self._ticks[pid] = start_ticks(pid)
        return self._ticks[pid]


def start_ticks(pid: int) -> int:
    """When a living process began, as /proc tells it; 0 for one that is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return 0
