"""An NVIDIA driver without a GPU: a libnvidia-ml.so.1 in C, built here, and the file that tells it what to answer.

    with StubNvml(folder) as stub:
        gpu = stub.gpu(total=80 * GIB)                      # one more GPU; fields of `StubGpu` by name
        stub.proc(gpu, process.pid, 70 * GIB)               # until that real process is dead
        stub.release_delay_ms = 8000                        # … and its memory 8 s longer
        stub.fail("nvmlDeviceGetMemoryInfo_v2", LOST, gpu)
        stub.write()                                        # nothing counts before; it may be written again at any time
        subprocess.run([...], env=os.environ | stub.environment())
        assert stub.calls("nvmlInitWithFlags") == 1

Used memory is `base_bytes` + `ghost_bytes` + what the living processes hold. A process that a test cannot name in time
(the child of a child) claims memory itself: see `claim` for the line that it writes into $NVML_STUB_CLAIMS.

`devices` is a folder that stands for /dev where the node program looks for open device files; a dummy process that
opens `devices / "nvidia0"` holds GPU 0 as far as /proc tells.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

GIB = 1 << 30
MIB = 1 << 20

# nvmlReturn_t
UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, INSUFFICIENT_SIZE = 1, 2, 3, 4, 6, 7
DRIVER_NOT_LOADED, TIMEOUT, LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND, LOST, RESET_REQUIRED = 9, 10, 12, 13, 15, 16
MISMATCH, UNKNOWN = 18, 999

V3_LISTS = tuple(f"nvmlDeviceGet{kind}RunningProcesses_v3" for kind in ("Compute", "Graphics", "MPSCompute"))
NEW_FUNCTIONS = ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetMemoryInfo_v2")
"""What an old driver's library has not got."""

SOURCE = Path(__file__).with_name("nvml_stub.c")
_TALLY = struct.Struct("64sQ")


# ------------------------------------------------------------------------------------------------ building


def _header() -> Path | None:
    """The folder of NVIDIA's nvml.h, from the nvidia-nvml-dev wheel."""
    for entry in sys.path:
        for found in sorted(Path(entry or ".").glob("nvidia/cu*/include/nvml.h")):
            return found.parent
    return None


def missing() -> str | None:
    """Why the stub cannot be built, None when it can."""
    if shutil.which("gcc") is None:
        return "no gcc"
    if _header() is None:
        return "no nvml.h (pip install nvidia-nvml-dev)"
    try:
        library()
    except subprocess.CalledProcessError as error:
        return f"gcc failed: {error.stderr[-300:]}"
    return None


@cache
def _cache() -> Path:
    """A folder of our own user's, the same for every pytest worker."""
    folder = Path(tempfile.gettempdir()) / f"nvml-stub-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid() or folder.stat().st_mode & 0o022:
        return Path(tempfile.mkdtemp(prefix="nvml-stub-"))  # somebody else's: nothing in it is to be loaded
    return folder


@cache
def library(without: tuple[str, ...] = ()) -> Path:
    """The built libnvidia-ml.so.1, in a folder of its own; `without`: symbols that it lacks."""
    header = _header()
    assert header is not None
    words = ["-Wall", "-Werror", "-shared", "-fPIC", "-O1", "-DNVML_NO_UNVERSIONED_FUNC_DEFS"]
    words += ["-Wl,-soname,libnvidia-ml.so.1", "-pthread", f"-I{header}"]
    words += [f"-D{symbol}=without_{symbol}" for symbol in without]  # exported under another name
    stamp = hashlib.sha256(SOURCE.read_bytes() + (header / "nvml.h").read_bytes() + repr(words).encode()).hexdigest()
    built = _cache() / stamp[:16] / "libnvidia-ml.so.1"
    if not built.exists():
        built.parent.mkdir(mode=0o700, exist_ok=True)
        unfinished = built.with_name(f".{os.getpid()}.so")  # two workers build at once: the last rename wins, alike
        subprocess.run(["gcc", *words, "-o", unfinished, SOURCE], check=True, capture_output=True, text=True)
        unfinished.rename(built)
    return built


# ------------------------------------------------------------------------------------------------ what it answers


@dataclass(kw_only=True)
class StubGpu:
    """One GPU. Change a field, then `stub.write()`."""

    index: int
    name: str = "NVIDIA H100 80GB HBM3 (stub)"
    uuid: str = ""
    bus_id: str = ""
    minor: int = -1
    """Left out: the index."""
    total_bytes: int = 80 * GIB
    reserved_bytes: int = 500 * MIB
    base_bytes: int = 0
    """Used while idle."""
    ghost_bytes: int = 0
    """Used, and nobody's."""
    unified: bool = False
    """Both versions of memory are NOT_SUPPORTED."""
    capability: int = 0
    """Compute capability, 90 for 9.0. Left out: 12.1 (a GB10) for one without memory of its own, else 9.0."""
    lost: int = 0
    """1: every call fails with GPU_IS_LOST; 2: there is not even a handle."""
    absent: bool = False
    """Not counted any more; the GPUs behind it get smaller indexes."""
    mig: int = -1
    """-1: cannot be divided, 0: is not, 1: it is."""
    util: int = 0
    """-1: NOT_SUPPORTED."""
    memory_util: int = 0
    temperature_c: int = 40
    power_mw: int = 120_000
    limit_mw: int = 700_000
    sm_clock_mhz: int = 1980
    sm_clock_max_mhz: int = 1980
    memory_clock_mhz: int = 2619
    events: int = 0
    """Bits of the reasons that slow the clocks."""
    ecc_uncorrected: int = 0
    persistence: bool = True
    wrong_layout: bool = False
    """The _v3 lists have rows of 32 bytes, as drivers 535.43 to 535.86 wrote them."""
    phantoms: int = 0
    """Utilisation samples of processes that do not exist, with absurd figures.

    -1: where there is no sample, that is told by success.
    """
    slices: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.uuid = self.uuid or f"GPU-00000000-0000-0000-0000-{self.index:012d}"
        self.bus_id = self.bus_id or f"00000000:{0x10 + self.index:02X}:00.0"
        self.capability = self.capability or (121 if self.unified or self.total_bytes == 0 else 90)
        self.minor = self.index if self.minor < 0 else self.minor

    def slice(self, number: int, uuid: str, total_bytes: int, base_bytes: int = 0, name: str = "MIG 1g.10gb") -> str:
        """Divide it: the MIG instance `number` (0 to 7). Returns the target "GPU.NUMBER" for `proc` and `fail`."""
        self.mig = 1
        self.slices.append(f"mig {self.index} {number} {uuid} {total_bytes} {base_bytes} {name}")
        return f"{self.index}.{number}"

    def lines(self) -> list[str]:
        values = {
            "name": self.name,
            "uuid": self.uuid,
            "bus_id": self.bus_id,
            "minor": self.minor,
            "total": self.total_bytes,
            "reserved": self.reserved_bytes,
            "base": self.base_bytes,
            "ghost": self.ghost_bytes,
            "unified": int(self.unified),
            "capability": self.capability,
            "lost": self.lost,
            "absent": int(self.absent),
            "mig": self.mig,
            "util": self.util,
            "memory_util": self.memory_util,
            "temperature": self.temperature_c,
            "power": self.power_mw,
            "limit": self.limit_mw,
            "sm_clock": self.sm_clock_mhz,
            "sm_clock_max": self.sm_clock_max_mhz,
            "memory_clock": self.memory_clock_mhz,
            "events": self.events,
            "ecc": self.ecc_uncorrected,
            "persistence": int(self.persistence),
            "garbage": int(self.wrong_layout),
            "phantoms": self.phantoms,
        }
        return [f"gpu {self.index} {key} {value}" for key, value in values.items()] + self.slices


Target = StubGpu | str | None
"""A GPU, an instance as "GPU.NUMBER", or None for every device (and for calls that name none)."""


def _target(target: Target) -> str:
    return "*" if target is None else str(target.index) if isinstance(target, StubGpu) else target


class StubNvml:
    """One driver: a library, its file, and a folder that stands for /dev. A context manager; see the module."""

    def __init__(self, folder: Path, *, gpus: int = 0, without: Iterable[str] = ()) -> None:
        """`gpus`: so many of `StubGpu`'s defaults. `without`: symbols that the library lacks."""
        self.library = library(tuple(without))
        self.folder = folder
        self.devices = folder / "dev"
        self.claims = folder / "claims"
        self.config = folder / "nvml.conf"
        self.gpus: list[StubGpu] = []
        self.driver_version = "580.95.05"
        self.nvml_version = "13.580.95.05"
        self.cuda_version = 13000
        self.init_code = 0
        self.init_until = 0
        """Init fails with `init_code` until this many calls of it were made; 0: always."""
        self.latency_us = 0
        """Of every call."""
        self.list_delay_ms = 0
        """How long a dead process stands in the lists."""
        self.release_delay_ms = 0
        """How long its memory stays used."""
        self.banner_load = ""
        """Printed on standard output when the library is loaded."""
        self.banner_init = ""
        self._rows: list[str] = []
        self._rules: list[str] = []
        self._events: list[str] = []
        for path in (folder, self.devices, self.claims):
            path.mkdir(parents=True, exist_ok=True)
        for _ in range(gpus):
            self.gpu()
        self.write()

    def __enter__(self) -> StubNvml:
        return self

    def __exit__(self, *_: object) -> None:
        self.heal()  # what hangs in a call goes on, and can end
        self.write()

    # -------------------------------------------------------------------------------------------- the answers

    def gpu(self, **fields: object) -> StubGpu:
        """One more GPU."""
        gpu = StubGpu(index=len(self.gpus), **fields)  # type: ignore[arg-type]
        self.gpus.append(gpu)
        self._device(f"nvidia{gpu.minor}")
        for name in ("nvidiactl", "nvidia-uvm", "nvidia-caps/nvidia-cap1"):
            self._device(name)
        return gpu

    def proc(
        self,
        gpu: StubGpu | str,
        pid: int,
        used_bytes: int,
        types: str = "C",
        *,
        sm: int = -1,
        tied: bool = True,
        told: int | str = "all",
        listed: bool = True,
    ) -> None:
        """A process that holds memory. `types`: of "C", "G", "M". `sm`: its share in percent, -1 for no sample.

        Not `tied`: it does not go with the real process of that pid (there need be none). `told`: what the list says
        that it holds, "NA" for a figure that cannot be had. Not `listed`: it holds memory and stands in no list.
        """
        self._rows.append(proc_line(gpu, pid, used_bytes, types, sm=sm, tied=tied, told=told, listed=listed))

    def heir(self, gpu: StubGpu | str, dead_pid: int, used_bytes: int, living_pid: int, *, listed: bool = True) -> None:
        """Memory that stands under a dead process' pid until the living one, which inherited its files, is gone."""
        self._rows.append(f"heir {_target(gpu)} {dead_pid} {used_bytes} {living_pid} {int(listed)}")

    def forget(self) -> None:
        """No `proc` and no `heir` any more (claims stay)."""
        self._rows.clear()

    def fail(self, function: str, code: int, target: Target = None, *, after_calls: int = 0) -> None:
        """From the call after `after_calls` on this C function fails. "*" is every function."""
        self._rules.append(f"fail {function} {_target(target)} {code} {after_calls}")

    def hang(self, function: str, target: Target = None, *, seconds: float | None = None, deaf: bool = False) -> None:
        """This C function comes back after `seconds`, or when `heal` was written. `deaf`: TERM does not end it."""
        told = "forever" if seconds is None else f"{seconds:g}"
        self._rules.append(f"hang {function} {_target(target)} {told} {int(deaf)}")

    def heal(self) -> None:
        """Nothing fails, nothing hangs."""
        self._rules.clear()

    def xid(self, gpu: StubGpu, code: int) -> None:
        """One more XID event of that GPU, told once to each process that waits for events."""
        self._events.append(f"xid {gpu.index} {code} {len(self._events) + 1}")

    def write(self) -> None:
        """Make it so, at the next call of any process; atomically."""
        options = {
            "driver_version": self.driver_version,
            "nvml_version": self.nvml_version,
            "cuda_version": self.cuda_version,
            "init_code": self.init_code,
            "init_until": self.init_until,
            "latency_us": self.latency_us,
            "list_delay_ms": self.list_delay_ms,
            "release_delay_ms": self.release_delay_ms,
            "banner_load": self.banner_load,
            "banner_init": self.banner_init,
            "count_file": self.folder / "calls",
            "claims": self.claims,
        }
        lines = [f"option {key} {value}" for key, value in options.items()]
        for gpu in self.gpus:
            lines += gpu.lines()
        lines += self._rows + self._rules + self._events
        text = "".join(line + "\n" for line in lines)
        unfinished = self.config.with_name(".nvml.conf")
        unfinished.write_bytes(text.encode("utf-8", "surrogateescape"))  # a driver's text need not be UTF-8
        unfinished.rename(self.config)

    def claim(self, gpu: StubGpu | str, pid: int, used_bytes: int, types: str = "C") -> None:
        """At once, and beside `write`: what a process can do by itself with a file that it renames into the folder.

        f=$NVML_STUB_CLAIMS; printf 'proc 0 %d C 1073741824\\n' $$ >"$f/.$$" && mv "$f/.$$" "$f/$$"
        """
        unfinished = self.claims / f".{pid}.{_target(gpu)}"
        unfinished.write_text(proc_line(gpu, pid, used_bytes, types) + "\n", encoding="utf-8")
        unfinished.rename(self.claims / f"{pid}.{_target(gpu)}")

    # -------------------------------------------------------------------------------------------- for the tests

    def environment(self, *, by_name: bool = False) -> Mapping[str, str]:
        """To be added to a process' environment. `by_name`: also for programs that load "libnvidia-ml.so.1"."""
        named = {"LD_LIBRARY_PATH": str(self.library.parent)} if by_name else {}
        return named | {
            "NVML_LIBRARY": str(self.library),
            "NVML_STUB_CONFIG": str(self.config),
            "NVML_STUB_CLAIMS": str(self.claims),
            "INFERENCE_SUPERVISOR_DEV": str(self.devices),
        }

    def calls(self, function: str, pid: int | None = None) -> int:
        """How often this C function was called: by all processes together, or by one."""
        return sum(counts.get(function, 0) for of, counts in self.tallies().items() if pid in (None, of))

    def tallies(self) -> dict[int, dict[str, int]]:
        """Calls by pid and C function, of the living and the dead."""
        out: dict[int, dict[str, int]] = {}
        for path in self.folder.glob("calls.*"):
            data = path.read_bytes()
            rows = _TALLY.iter_unpack(data[: len(data) // _TALLY.size * _TALLY.size])
            out[int(path.suffix[1:])] = {name.rstrip(b"\0").decode(): count for name, count in rows if count}
        return out

    def device(self, gpu: StubGpu) -> Path:
        """The file that stands for /dev/nvidiaN."""
        return self.devices / f"nvidia{gpu.minor}"

    def _device(self, name: str) -> None:
        path = self.devices / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def proc_line(
    gpu: StubGpu | str,
    pid: int,
    used_bytes: int,
    types: str = "C",
    *,
    sm: int = -1,
    tied: bool = True,
    told: int | str = "all",
    listed: bool = True,
) -> str:
    """One process as the file has it; the last four words may be left out."""
    return f"proc {_target(gpu)} {pid} {types} {used_bytes} {sm} {int(tied)} {told} {int(listed)}"
