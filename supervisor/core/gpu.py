"""What was seen of a node's GPUs and of the processes on them: facts, no verdict. Structs only, pure.

A `Snapshot` is what the node program tells (`supervisor/node/`), and all that `holders.py`, `release.py` and
`memory_gate.py` are ever fed with; the tests feed recorded ones. Everything is keyed by UUID: an index means one thing
to NVML and another to CUDA (field report P26). A value that could not be read is None, and `errors` says why.

All sizes are in bytes, `used_bytes` is NVML's version 2: without what the driver reserves.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from msgspec import Struct

GIB = 1 << 30
SLACK_BYTES = 512 << 20
SLACK_SHARE = 0.015


class DriverState(StrEnum):
    """How the NVIDIA driver stands, as far as we can ask it."""

    OK = "ok"
    ABSENT = "absent"
    """No NVIDIA GPU and no driver on this node: there is nothing to look at."""
    UNAVAILABLE = "unavailable"
    """There is a GPU or a driver, and NVML cannot be used: `why` says what to do."""
    STUCK = "stuck"
    """A call into the driver has not come back, or an earlier look still hangs in it."""


class Driver(Struct, frozen=True, kw_only=True):
    """The driver as a whole."""

    state: DriverState
    why: str = ""
    """A sentence, for every state but `ok`."""
    version: str | None = None
    nvml_version: str | None = None
    cuda_version: str | None = None
    stuck_s: float | None = None
    """For how long it has not answered."""
    call: str = ""
    """The call that has not come back."""
    count_before: int | None = None
    """How many GPUs there were at the first look, where that was more than now."""
    simulated: bool = False
    """There is no GPU: a module that stands for the driver's says so of itself (the demonstration's own node)."""


class GpuState(StrEnum):
    """One GPU."""

    OK = "ok"
    LOST = "lost"
    """Fallen off the bus, or not to be reached: only a reset or a reboot brings it back."""
    UNREADABLE = "unreadable"
    """It is there, and its memory cannot be read (permissions, MIG's parent): `why` says it."""


class Memory(Struct, frozen=True, kw_only=True):
    """One GPU's memory. `unified`: the system's own memory, where total and free are the machine's."""

    kind: str = "device"
    """`device` or `unified`."""
    total_bytes: int | None = None
    reserved_bytes: int | None = None
    used_bytes: int | None = None
    free_bytes: int | None = None
    """What a new CUDA context can get; of unified memory: MemAvailable."""


class Use(Struct, frozen=True, kw_only=True):
    """One process in NVML's lists of one GPU. A pid here need not exist in the namespace that we see."""

    pid: int
    used_bytes: int | None = None
    types: str = "C"
    """Letters: C compute, G graphics, M client of the multi-process service."""
    sm_percent: int | None = None


class Xid(Struct, frozen=True, kw_only=True):
    """An error that the driver told. `bad`: of the hardware or driver, not of the program."""

    code: int
    at: float
    bad: bool
    text: str = ""


class Gpu(Struct, frozen=True, kw_only=True):
    """One GPU, or one MIG instance of one (`parent` is then the GPU's UUID)."""

    uuid: str
    index: int
    """NVML's, which is the order on the PCI bus; shown to people, never a key."""
    name: str = ""
    bus_id: str = ""
    minor: int | None = None
    """The number in /dev/nvidiaN."""
    parent: str | None = None
    state: GpuState = GpuState.OK
    why: str = ""
    memory: Memory = Memory()
    uses: tuple[Use, ...] | None = ()
    """Each pid once; None where no list can be read."""
    gpu_percent: int | None = None
    memory_percent: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    sm_clock_mhz: int | None = None
    sm_clock_max_mhz: int | None = None
    memory_clock_mhz: int | None = None
    throttle: tuple[str, ...] | None = None
    """Names of the reasons that slow the clocks now; empty: none, None: not to be read."""
    ecc_uncorrected: int | None = None
    xid: Xid | None = None
    """The last one told since the look began. None is "none seen", never "none happened"."""
    mig: bool | None = None
    persistence: bool | None = None
    errors: dict[str, str] = {}
    """Field → why it is null: not_supported, no_permission, lost, timeout, no_symbol, no_data or another word."""
    complete: bool = True
    """Whether every field that this GPU has could be read."""

    @property
    def held_bytes(self) -> int | None:
        """The sum over its processes, None where any figure is missing: then nothing follows from the rest."""
        if self.uses is None or any(use.used_bytes is None for use in self.uses):
            return None
        return sum(use.used_bytes or 0 for use in self.uses)

    @property
    def slack_bytes(self) -> int:
        """What may be used beyond what is known of: a driver's small change. What is above it has an owner."""
        return max(SLACK_BYTES, int(SLACK_SHARE * (self.memory.total_bytes or 0)))

    @property
    def unexplained_bytes(self) -> int | None:
        """Used memory that no process in the lists accounts for; never negative, None where it cannot be told."""
        held, used = self.held_bytes, self.memory.used_bytes
        return None if held is None or used is None else max(0, used - held)


class HolderProcess(Struct, frozen=True, kw_only=True):
    """A process as /proc tells of it: on a GPU, or with a GPU's device file open, or above one that has."""

    pid: int
    start_ticks: int
    started_at: float = 0.0
    """Seconds since the epoch, the node's clock."""
    ppid: int = 0
    pgid: int = 0
    sid: int = 0
    uid: int = 0
    user: str = ""
    state: str = ""
    """The letter of /proc/PID/stat: Z is dead, D waits in the kernel."""
    comm: str = ""
    title: str = ""
    """Command line without secrets; empty for a zombie (its `comm` remains)."""
    tty: bool = False
    threads: int = 1
    """Living threads: a zombie leader can have some, and they hold what it held."""
    run_id: str | None = None
    """The run that it carries in its environment; None without one, or where we may not look."""
    devices: tuple[str, ...] | None = None
    """Device files of GPUs that it has open or mapped, as paths; None where we may not look."""
    same_namespace: bool | None = None
    """Whether it lives in our own pid namespace; None where we may not look."""
    kill_pending: bool = False
    """SIGKILL was sent and has not been carried out."""
    uninterruptible_looks: int = 0
    """Looks in a row that found it in state D."""
    ports: tuple[int, ...] = ()
    """TCP ports that it listens on."""
    leader_alive: bool | None = None
    """Whether the leader of its session lives; None where it stands outside the node program's pid namespace."""


class RunFacts(Struct, frozen=True, kw_only=True):
    """A run of the records, as far as its processes' class hangs on it."""

    run_id: str
    key: str = ""
    live: bool = False
    """By the records: its root lives, or its keeper has not told its end (CONTRACT section 3, detaches)."""
    ended_at: float | None = None


class Past(Struct, frozen=True, kw_only=True):
    """Who held memory until it went: from the ring that the node keeps of the last minutes."""

    pid: int
    start_ticks: int
    title: str = ""
    uid: int = 0
    run_id: str | None = None
    held: dict[str, int | None] = {}
    """GPU's UUID → bytes at the last look that saw it."""
    last_at: float = 0.0
    """The node's clock at that look."""


class Coverage(StrEnum):
    """Whose descriptors the last scan could read."""

    ALL = "all"
    OWN = "own"
    """Our own user's alone: somebody else's holder may be missing from it."""
    PARTIAL = "partial"
    """The scan was not finished yet (very many descriptors), or /proc hides processes."""
    NONE = "none"


class Snapshot(Struct, frozen=True, kw_only=True):
    """One look: GPUs × NVML's lists × device files × the process table."""

    at: float
    """The node's clock, seconds since the epoch."""
    driver: Driver
    sampled_at: float | None = None
    """The node's clock when NVML told `gpus`: older than `at` where the driver does not answer."""
    gpus: tuple[Gpu, ...] = ()
    """GPUs in NVML's order, each followed by its MIG instances. A GPU that was lost keeps its place."""
    processes: tuple[HolderProcess, ...] = ()
    coverage: Coverage = Coverage.NONE
    uid: int = 0
    """The user that we are on the node."""
    container: bool = False
    """We are in a pid namespace of our own: holders outside of it have no name for us."""
    own_chain: tuple[int, ...] = ()
    """Our program, its NVML child, and what it runs under (sshd …): never touched."""
    runs: tuple[RunFacts, ...] = ()
    """Of every run id that a process here or in `past` carries and that our records know."""
    past: tuple[Past, ...] = ()
    looks: dict[str, int] = {}
    """GPU's UUID → looks in a row in which memory was used that no process accounts for."""

    def process(self, pid: int) -> HolderProcess | None:
        """The process of this pid, None where the namespace has none."""
        return next((process for process in self.processes if process.pid == pid), None)

    def gpu(self, uuid: str) -> Gpu | None:
        """The GPU or MIG instance of this UUID."""
        return next((gpu for gpu in self.gpus if gpu.uuid == uuid), None)

    def label(self, uuid: str) -> str:
        """A GPU for people, by NVML's index as other tools show it: "GPU 3", "MIG instance 2 of GPU 0"."""
        gpu = self.gpu(uuid)
        if gpu is None:
            return f"GPU {uuid}"
        parent = self.gpu(gpu.parent) if gpu.parent is not None else None
        return f"MIG instance {gpu.index} of GPU {parent.index}" if parent is not None else f"GPU {gpu.index}"

    def spaces(self) -> Iterator[Gpu]:
        """What has memory of its own: GPUs, and instead of a GPU whose memory cannot be read, its MIG instances."""
        parents = {gpu.parent for gpu in self.gpus if gpu.parent}
        for gpu in self.gpus:
            if gpu.uuid in parents and gpu.memory.used_bytes is None:
                continue
            if gpu.parent is not None:
                above = self.gpu(gpu.parent)
                if above is not None and above.memory.used_bytes is not None:
                    continue
            yield gpu


def gib(count: int | None) -> str:
    """For people: "71.2 GiB", "384 MiB", "?"."""
    if count is None:
        return "?"
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / (1 << 20):.0f} MiB"
