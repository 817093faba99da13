"""Eight GPUs that do not exist, behind the names of nvidia-ml-py that the node program calls. For the demonstration.

Its text goes to the demonstration's own node instead of nvidia-ml-py's, with that node's folder in `FOLDER`; nothing
else ever sends it. `SIMULATED` makes the node program say so in every look. What a GPU holds hangs on real processes:
each of them, while it lives, by the lines of FOLDER/held/*; when it has ended its memory falls within `FALL_S`, so a
release is seen, not told. Temperature, power and clocks follow the load. It writes nothing but FOLDER/died/*.
"""

from __future__ import annotations

import math
import os
import time
from typing import Any, Dict, List, NamedTuple, Tuple

FOLDER = ""
SIMULATED = True

NAME = "SIM PRO 6000"
COUNT = 8
MIB = 1 << 20
TOTAL_BYTES = 97887 * MIB
RESERVED_BYTES = 634 * MIB
IDLE_BYTES = 4 * MIB
FALL_S = 2.0
"""How long the memory of a process that has ended takes to be free."""
FRESH_S = 0.05
"""One look asks a hundred questions, and all of them are answered out of the same state."""

IDLE_W, LIMIT_W = 34.0, 600.0
IDLE_MHZ, MAX_MHZ = 180, 2430
MEMORY_MHZ = 12481
IDLE_C, HOT_C = 31.0, 74.0
INERTIA_S = 25.0

nvmlMemory_v2 = 0x2000028
_NOT_SUPPORTED, _LOST = 3, 15


class NVMLError(Exception):
    """As nvidia-ml-py's: `value` is NVML's code."""

    def __init__(self, value: int) -> None:
        Exception.__init__(self, "simulated error %d" % value)
        self.value = value


class _Row(NamedTuple):
    """What one process holds on one GPU, by its own word."""

    pid: int
    start_ticks: int
    gpu: int
    used_bytes: int
    percent: int


class _Answer:
    """The fields that nvidia-ml-py's structs have."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


class _State:
    """The GPUs at one moment: living rows, and the bytes of those that have just ended."""

    def __init__(self) -> None:
        self._at = float("-inf")
        self.alive: List[_Row] = []
        self.falling: Dict[int, int] = {}
        self.warmth = [(0.0, IDLE_C + index) for index in range(COUNT)]

    def now(self) -> "_State":
        """The state, read anew where it is older than a moment."""
        if time.monotonic() - self._at >= FRESH_S:
            self._read()
            self._at = time.monotonic()
        return self

    def _read(self) -> None:
        self.alive, self.falling = [], {}
        for row in _rows():
            if _lives(row.pid, row.start_ticks):
                self.alive.append(row)
                continue
            left = 1.0 - (time.time() - _died_at(row)) / FALL_S
            if left > 0:
                self.falling[row.gpu] = self.falling.get(row.gpu, 0) + int(row.used_bytes * min(1.0, left))

    def of(self, index: int) -> List[_Row]:
        """The living rows of one GPU."""
        return [row for row in self.alive if row.gpu == index]

    def used_bytes(self, index: int) -> int:
        """What is used of one GPU, never more than there is."""
        held = sum(row.used_bytes for row in self.of(index)) + self.falling.get(index, 0)
        return min(TOTAL_BYTES - RESERVED_BYTES, IDLE_BYTES + held)

    def percent(self, index: int) -> int:
        """How busy one GPU is: what its processes say, with the unrest that a sampled figure has."""
        busy = max([row.percent for row in self.of(index)] or [0])
        unrest = math.sin(time.time() * 1.7 + index * 2.1) * 4 + math.sin(time.time() * 0.31 + index) * 3
        return max(0, min(100, int(busy + unrest * min(1.0, busy / 30.0)))) if busy else 0

    def celsius(self, index: int) -> float:
        """It follows the load slowly. GPUs in the middle of a machine are warmer."""
        target = IDLE_C + index % 4 * 1.5 + (HOT_C - IDLE_C) * self.percent(index) / 100.0
        if self.of(index):
            target += 4.0
        then, warm = self.warmth[index]
        now = time.monotonic()
        warm += (target - warm) * (1.0 - math.exp(-(now - then) / INERTIA_S)) if then else 0.0
        self.warmth[index] = (now, warm)
        return warm


_state = _State()


def _rows() -> List[_Row]:
    """What all processes of this node say that they hold."""
    out = []
    folder = os.path.join(FOLDER, "held")
    try:
        names = sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except OSError:
        return []
    for name in names:
        for line in _text(os.path.join(folder, name)).splitlines():
            words = line.split()
            if len(words) == len(_Row._fields) and all(word.isdigit() for word in words):
                out.append(_Row(*(int(word) for word in words)))
    return [row for row in out if row.gpu < COUNT and row.used_bytes]


def _lives(pid: int, start_ticks: int) -> bool:
    fields = _text("/proc/%d/stat" % pid).rpartition(")")[2].split()
    return len(fields) > 19 and fields[0] not in ("Z", "X") and int(fields[19]) == start_ticks


def _died_at(row: _Row) -> float:
    """When that process was found dead for the first time, by whichever look it was."""
    path = os.path.join(FOLDER, "died", "%d-%d" % (row.pid, row.start_ticks))
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError:
        pass  # told before, or the folder is going
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def _text(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(65536).decode("utf-8", "replace")
    except OSError:
        return ""


def _here(handle: int) -> int:
    """A GPU that is not lost. FOLDER/lost names those that are."""
    if str(handle) in _text(os.path.join(FOLDER, "lost")).split():
        raise NVMLError(_LOST)
    return handle


# ------------------------------------------------------------------------------------------- the driver


def nvmlInitWithFlags(_flags: int) -> None:
    if not os.path.isdir(FOLDER):
        raise NVMLError(9)


def nvmlShutdown() -> None:
    return None


def nvmlSystemGetDriverVersion() -> str:
    return "580.95.05"


def nvmlSystemGetNVMLVersion() -> str:
    return "13.580.95.05"


def nvmlSystemGetCudaDriverVersion_v2() -> int:
    return 13000


# ------------------------------------------------------------------------------------------- one GPU


def nvmlDeviceGetCount() -> int:
    return COUNT


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    return _here(index)


def nvmlDeviceGetUUID(handle: int) -> str:
    return "GPU-51d00000-0000-4000-8000-%012d" % _here(handle)


def nvmlDeviceGetName(handle: int) -> str:
    _here(handle)
    return NAME


def nvmlDeviceGetPciInfo(handle: int) -> _Answer:
    return _Answer(busId="00000000:%02X:00.0" % (0x11 + 0x10 * _here(handle)))


def nvmlDeviceGetMinorNumber(handle: int) -> int:
    return _here(handle)


def nvmlDeviceGetCudaComputeCapability(handle: int) -> Tuple[int, int]:
    _here(handle)
    return 12, 0


def nvmlDeviceGetMemoryInfo(handle: int, version: int = 0) -> _Answer:
    used = _state.now().used_bytes(_here(handle))
    free = TOTAL_BYTES - RESERVED_BYTES - used
    if not version:
        return _Answer(total=TOTAL_BYTES, used=used + RESERVED_BYTES, free=free)
    return _Answer(total=TOTAL_BYTES, reserved=RESERVED_BYTES, used=used, free=free)


def nvmlDeviceGetComputeRunningProcesses_v3(handle: int) -> List[_Answer]:
    nothing = 0xFFFFFFFF
    return [
        _Answer(pid=row.pid, usedGpuMemory=row.used_bytes, gpuInstanceId=nothing, computeInstanceId=nothing)
        for row in _state.now().of(_here(handle))
    ]


def nvmlDeviceGetGraphicsRunningProcesses_v3(handle: int) -> List[_Answer]:
    _here(handle)
    return []


def nvmlDeviceGetMPSComputeRunningProcesses_v3(handle: int) -> List[_Answer]:
    _here(handle)
    return []


def nvmlDeviceGetProcessUtilization(handle: int, _since_us: int) -> List[_Answer]:
    stamp = int(time.time() * 1e6)
    rows = _state.now().of(_here(handle))
    busy = _state.percent(handle)
    return [_Answer(pid=row.pid, timeStamp=stamp, smUtil=min(busy, row.percent)) for row in rows if row.percent]


def nvmlDeviceGetUtilizationRates(handle: int) -> _Answer:
    busy = _state.now().percent(_here(handle))
    return _Answer(gpu=busy, memory=busy * 6 // 10)


def nvmlDeviceGetTemperatureV(handle: int, _sensor: int) -> int:
    return int(_state.now().celsius(_here(handle)))


def nvmlDeviceGetPowerUsage(handle: int) -> int:
    busy = _state.now().percent(_here(handle)) / 100.0
    idle = IDLE_W + handle % 3 + (42.0 if _state.of(handle) else 0.0)  # a context keeps the clocks up
    return int((idle + (LIMIT_W * 0.9 - idle) * busy**0.85) * 1000)


def nvmlDeviceGetEnforcedPowerLimit(handle: int) -> int:
    _here(handle)
    return int(LIMIT_W * 1000)


def nvmlDeviceGetClockInfo(handle: int, kind: int) -> int:
    if kind == 2:
        return MEMORY_MHZ if _state.now().of(_here(handle)) else 405
    return MAX_MHZ - _state.now().percent(_here(handle)) * 3 if _state.of(handle) else IDLE_MHZ


def nvmlDeviceGetMaxClockInfo(handle: int, _kind: int) -> int:
    _here(handle)
    return MAX_MHZ


def nvmlDeviceGetCurrentClocksEventReasons(handle: int) -> int:
    return 0 if _state.now().of(_here(handle)) else 0x1


def nvmlDeviceGetTotalEccErrors(handle: int, _kind: int, _counter: int) -> int:
    _here(handle)
    return 0


def nvmlDeviceGetPersistenceMode(handle: int) -> int:
    _here(handle)
    return 1


def nvmlDeviceGetMigMode(handle: int) -> List[int]:
    _here(handle)
    raise NVMLError(_NOT_SUPPORTED)
