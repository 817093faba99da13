"""Who holds GPU memory, what that holder is, and what may be done about it: a snapshot in, holders out. Pure.

Two sources stand against each other: NVML's lists and the device files that processes have open. A verdict carries
its evidence; where a figure or a view is missing, the answer is "cannot be told", never an accusation. Only what our
own ended runs left behind is ever pre-selected. It signals nobody.
"""

from __future__ import annotations

from supervisor.core.gpu import Snapshot
from supervisor.core.holder import Holder, HolderClass, Look
from supervisor.core.known import Known
from supervisor.core.owned import of_process
from supervisor.core.unowned import unowned

__all__ = ["Holder", "HolderClass", "classify"]


def classify(snapshot: Snapshot, known: Known) -> tuple[Holder, ...]:
    """Every holder of the snapshot: by GPU, the largest first. Never raises."""
    look = Look(snapshot, known)
    holders = {process.pid: of_process(look, process) for process in snapshot.processes if look.holds(process)}
    return tuple(sorted(unowned(look, holders), key=look.order))
