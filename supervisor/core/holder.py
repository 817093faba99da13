"""What a holder of GPU memory is, and a snapshot with the questions about its processes answered once. Pure.

`holders.py` is the door; `owned.py` and `unowned.py` have the rules.
"""

from __future__ import annotations

import re
from enum import StrEnum

from msgspec import Struct, field

from supervisor.core.gpu import Coverage, DriverState, Gpu, HolderProcess, Past, RunFacts, Snapshot, Use, gib
from supervisor.core.known import Known
from supervisor.core.lineage import Lineages

DEAD_STATES = ("Z", "X")
_DEVICE = re.compile(r"/(?:nvidia(\d+)|nvidia-uvm|nvidia-caps/[^/]+|dxg)$", re.ASCII)


class HolderClass(StrEnum):
    """What a holder is."""

    OURS_LIVE = "ours-live"
    """Of a run of ours that lives."""
    OURS_ORPHAN = "ours-orphan"
    """Of a run of ours that has ended."""
    FOREIGN_ORPHAN = "foreign-orphan"
    """A server's child of our own user, not of our runs, whose server is gone."""
    ENGINE_LIVE = "engine-live"
    """Of a server that lives, started without us."""
    OTHER_USER = "other-user"
    PROTECTED = "protected"
    DEFUNCT = "defunct"
    UNINTERRUPTIBLE = "uninterruptible"
    OTHER_NAMESPACE = "other-namespace"
    """In another pid namespace, or not visible from here."""
    TEARDOWN = "teardown"
    """It has gone, and the driver still takes its memory apart."""
    HEIR = "heir"
    """Alive, and has the device files of a holder that is gone still open."""
    GHOST_MEMORY = "ghost-memory"
    UTILISATION_LATCH = "utilisation-latch"
    SHARED = "shared"
    PROCESS = "process"
    """A living process of our user that is none of the others."""


class Holder(Struct, frozen=True, kw_only=True):
    """One holder. `pid` None: memory, or a state, that no process can be named for."""

    class_: HolderClass = field(name="class")
    pid: int | None = None
    start_ticks: int | None = None
    uid: int | None = None
    user: str = ""
    title: str = ""
    comm: str = ""
    run_id: str | None = None
    key: str = ""
    started_at: float | None = None
    held: dict[str, int | None] = {}
    """GPU's UUID → bytes; None where a figure cannot be read."""
    evidence: tuple[str, ...] = ()
    """Sentences."""
    advice: str = ""
    """The next sensible step. The word HOST in a command stands for the node."""
    preselected: bool = False
    killable: str = "no"
    """`yes`; `root`: only as root, with a confirmation typed by hand; `no`."""
    zombie: bool = False
    """It belongs to no living server."""

    @property
    def held_bytes(self) -> int | None:
        """Over all GPUs; None where any figure is missing."""
        if any(amount is None for amount in self.held.values()):
            return None
        return sum(amount or 0 for amount in self.held.values())


class Look:
    """A snapshot with its questions answered once."""

    def __init__(self, snapshot: Snapshot, known: Known) -> None:
        self.snapshot = snapshot
        self.known = known
        self.lineages = Lineages(snapshot, known)
        self.by_pid = {process.pid: process for process in snapshot.processes}
        self.gpus = {gpu.uuid: gpu for gpu in snapshot.gpus}
        self.runs = {run.run_id: run for run in snapshot.runs}
        self.uses: dict[int, dict[str, Use]] = {}
        for gpu in snapshot.gpus:
            for use in gpu.uses or ():
                self.uses.setdefault(use.pid, {})[gpu.uuid] = use

    def believed(self, process: HolderProcess) -> bool:
        """Whether NVML's row of this number means this process (P5: it can be a host's pid, or one used before)."""
        if process.pid not in self.uses:
            return False
        if process.devices or process.state in DEAD_STATES:
            return True
        if process.devices is None:
            return not self.snapshot.container
        if self.run_of(process) is not None and not self.snapshot.container:
            return True  # our own server's, told by more than the number
        return self.snapshot.coverage not in (Coverage.ALL, Coverage.OWN) and not self.snapshot.container

    def holds(self, process: HolderProcess) -> bool:
        """Whether it is a holder at all, or what is left of a run of ours."""
        if self.believed(process) or any(_DEVICE.search(path) for path in process.devices or ()):
            return True
        run = self.run_of(process)
        # Not the keeper, which may bear the id as well: it ends by itself when its tree is empty.
        return run is not None and not run.live and self.names_an_engine(process) and process.state not in DEAD_STATES

    def run_of(self, process: HolderProcess) -> RunFacts | None:
        """The run of our records that it carries the id of."""
        return self.runs.get(process.run_id) if process.run_id is not None else None

    def names_an_engine(self, process: HolderProcess) -> bool:
        """Whether its title is an engine's or a worker's."""
        return self.known.engine_of(process) is not None or self.known.is_worker(process)

    def has_open(self, process: HolderProcess, gpu: Gpu) -> bool:
        """Whether it has this GPU's device file open."""
        for path in process.devices or ():
            found = _DEVICE.search(path)
            if found is None:
                continue
            if path.endswith("/dxg") or (gpu.parent is not None and "/nvidia-caps/" in path):
                return True
            if found.group(1) is not None and gpu.minor is not None and int(found.group(1)) == gpu.minor:
                return True
        return False

    def label(self, uuid: str) -> str:
        """A GPU for people."""
        return self.snapshot.label(uuid)

    def amounts(self, held: dict[str, int | None]) -> str:
        """ "70.8 GiB on GPU 0 and 70.8 GiB on GPU 1"."""
        parts = [
            f"{gib(amount)} on {self.label(uuid)}" if amount is not None else f"memory on {self.label(uuid)}"
            for uuid, amount in held.items()
        ]
        return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"

    def order(self, holder: Holder) -> tuple[int, int, int]:
        """By GPU, the largest first."""
        places = [place for place, gpu in enumerate(self.snapshot.gpus) if gpu.uuid in holder.held]
        return (min(places, default=len(self.gpus)), -(holder.held_bytes or 0), holder.pid or 0)

    def past_of(self, pid: int) -> Past | None:
        """Who had this pid, and has gone."""
        now = self.by_pid.get(pid)
        gone = [item for item in self.snapshot.past if item.pid == pid]
        gone = [item for item in gone if now is None or item.start_ticks != now.start_ticks]
        return max(gone, key=lambda item: item.last_at, default=None)

    def sees_every_pid(self) -> bool:
        """Whether a pid that is not here is nobody's: not in a container, and not where /proc hides other users'."""
        mine = self.snapshot.uid
        if self.snapshot.container:
            return False
        return mine == 0 or any(process.uid != mine for process in self.snapshot.processes)

    def readable(self) -> bool:
        """Whether the holders of every namespace and user are seen: only then memory can be said to have none."""
        driver_ok = self.snapshot.driver.state is DriverState.OK
        return self.snapshot.coverage is Coverage.ALL and not self.snapshot.container and driver_ok
