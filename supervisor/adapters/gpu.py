"""Looks at a node's GPUs through its node program: replies and notices become `core.gpu.Snapshot`s.

A driver that hangs, is missing or cannot be used is a state of the snapshot, never an exception: only a node that
cannot be asked any more raises.
"""

from __future__ import annotations

from typing import Any

import msgspec

from supervisor.adapters.base import Clock
from supervisor.adapters.node import NodeClient
from supervisor.adapters.nvml_source import source
from supervisor.core.gpu import DriverState, HolderProcess, Snapshot
from supervisor.errors import NodeProgramError

FIRST_WAIT_S = 30.0
"""What the node program gives a driver for its first answer, whatever is asked."""
SETTLE_LOOKS = 3
SETTLE_PAUSE_S = 0.5


async def look(client: NodeClient, *, wait_s: float = FIRST_WAIT_S, scan: bool = True) -> Snapshot:
    """One look now.

    Args:
        wait_s: how long a driver may take; then the snapshot says that it does not answer, with what was known.
        scan: read the descriptors of every process now, not only when the last scan is 10 s old.

    Raises `UnreachableError` when the node is gone.
    """
    timeout_s = max(wait_s, FIRST_WAIT_S) + 30.0
    return snapshot_of(await _ask(client, "gpu_look", timeout_s, wait_s=wait_s, scan=scan))


async def _ask(client: NodeClient, op: str, timeout_s: float, **args: object) -> dict[str, Any]:
    """A request that may need nvidia-ml-py's source: 67 kB that travel once a connection, where there is a GPU."""
    reply = await client.request(op, timeout_s=timeout_s, **args)
    if reply.get("needs_nvml"):
        nvml = source() if client.nvml_source is None else client.nvml_source
        reply = await client.request(op, timeout_s=timeout_s, nvml=nvml or "", **args)
    return reply


async def settled_look(client: NodeClient, *, clock: Clock) -> Snapshot:
    """A look that can tell ghost memory: looked at again where memory without an owner was seen for the first time."""
    snapshot = await look(client)
    for _ in range(SETTLE_LOOKS - 1):
        open_counts = [count for count in snapshot.looks.values() if count < SETTLE_LOOKS]
        in_the_kernel = [item for item in snapshot.processes if 0 < item.uninterruptible_looks < SETTLE_LOOKS]
        if snapshot.driver.state is not DriverState.OK or not (open_counts or in_the_kernel):
            break
        await clock.sleep(SETTLE_PAUSE_S)
        snapshot = await look(client, scan=False)
    return snapshot


def snapshot_of(raw: dict[str, Any]) -> Snapshot:
    """A reply as facts. Raises `NodeProgramError` for what is none."""
    try:
        return msgspec.convert(raw, Snapshot, strict=False)
    except msgspec.ValidationError as error:
        raise NodeProgramError(f"the node's look at its GPUs cannot be read: {error}") from error


async def begin(client: NodeClient, *, interval_s: float = 1.0) -> None:
    """Ask for a "gpu" notice in every interval, from now on."""
    await _ask(client, "gpu_begin", 30.0, interval_s=interval_s)


async def end(client: NodeClient) -> None:
    """No more notices, and the driver is let go: an open handle would forbid the reset of a GPU."""
    await client.request("gpu_end")


class GpuFeed:
    """Makes whole snapshots of the "gpu" notices: one leaves the processes out when none of them changed."""

    def __init__(self) -> None:
        self._processes: tuple[HolderProcess, ...] = ()

    def take(self, notice: dict[str, Any]) -> Snapshot:
        """The snapshot of one notice."""
        raw = notice["snapshot"]
        if raw.get("processes") is None:
            snapshot = snapshot_of({**raw, "processes": []})
            return msgspec.structs.replace(snapshot, processes=self._processes)
        snapshot = snapshot_of(raw)
        self._processes = snapshot.processes
        return snapshot
