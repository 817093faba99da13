"""A node that is made of Python objects: its processes go when the test says so, its GPUs show what the test says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec

from supervisor.adapters.node import NodeClient
from supervisor.core import events as ev
from supervisor.core.gpu import GIB, Coverage, Driver, DriverState, Gpu, HolderProcess, Memory, Snapshot, Use
from supervisor.testing import ManualClock

RUN = "20261130-080000-ab12"


class FakeNode:
    """Stands for `NodeClient`. `obey` decides who ends at which signal."""

    def __init__(self, *processes: ev.Process, obey: Callable[[int, str], bool] = lambda _pid, _name: True) -> None:
        self.processes = {item.pid: item for item in processes}
        self.obey = obey
        self.signals: list[tuple[str, list[int]]] = []
        self.asked: list[str] = []
        self.told: list[str] = []
        """For the test's use."""
        self.denied: set[int] = set()
        self.baseline: dict[str, int] = {}
        self.marks: dict[str, set[int]] = {RUN: {item.pid for item in processes}}

    @property
    def client(self) -> NodeClient:
        return cast(NodeClient, self)

    async def request(self, op: str, /, *, timeout_s: float = 30.0, **args: Any) -> dict[str, Any]:
        self.asked.append(op)
        match op:
            case "tree":
                return {"tree": self._tree(self.marks.get(args["run_id"], set())), "gpu_baseline": self.baseline}
            case "marked":
                pids = {pid for run_id in args["run_ids"] for pid in self.marks.get(run_id, set())}
                for item in args["exact"]:
                    found = self.processes.get(item["pid"])
                    if found is not None and found.start_ticks == item["start_ticks"]:
                        pids.add(found.pid)
                return {"tree": self._tree(pids)}
            case "signal":
                return self._signal(args["targets"], args["signal"])
            case "state":
                return {"live": None}
            case _:
                return {}

    def _tree(self, pids: set[int]) -> list[dict[str, Any]]:
        return [msgspec.to_builtins(item) for pid, item in sorted(self.processes.items()) if pid in pids]

    def _signal(self, targets: list[dict[str, int]], name: str) -> dict[str, Any]:
        meant = [item["pid"] for item in targets if self._is(item)]
        sent = [pid for pid in meant if pid not in self.denied]
        self.signals.append((name, sent))
        for pid in sent:
            if self.obey(pid, name):
                del self.processes[pid]
        return {"sent": sent, "gone": [], "denied": [pid for pid in meant if pid in self.denied], "how": "pidfd"}

    def _is(self, item: dict[str, int]) -> bool:
        found = self.processes.get(item["pid"])
        return found is not None and found.start_ticks == item["start_ticks"]


class FakeGpu:
    """One GPU of 80 GiB on a `FakeNode`: each process that lives holds what the test gave it. Figures in GiB."""

    def __init__(self, node: FakeNode, clock: ManualClock, held: dict[int, int]) -> None:
        self.node, self.clock, self.held = node, clock, held
        self.delay_s = 0.0
        self.base = 0
        self.state = DriverState.OK
        self.others: dict[int, int] = {}
        self.own_chain: tuple[int, ...] = ()
        self.uid = 0
        self.looks = 0
        self._died: dict[int, float] = {}

    async def look(self, _wait_s: float) -> Snapshot:
        """Implements `supervise.release.Look`."""
        self.looks += 1
        now = self.clock.now()
        alive = {pid: gib for pid, gib in self.held.items() if pid in self.node.processes}
        for pid in self.held.keys() - alive.keys():
            self._died.setdefault(pid, now)
        late = [self.held[pid] for pid, died in self._died.items() if now < died + self.delay_s]
        uses = {**alive, **self.others}
        used = self.base + sum(uses.values()) + sum(late)
        gpu = Gpu(
            uuid="GPU-0",
            index=0,
            minor=0,
            memory=Memory(total_bytes=80 * GIB, used_bytes=used * GIB),
            uses=tuple(Use(pid=pid, used_bytes=gib * GIB) for pid, gib in uses.items()),
        )
        return Snapshot(
            at=now,
            driver=Driver(state=self.state, why="" if self.state is DriverState.OK else "it does not answer"),
            gpus=() if self.state is not DriverState.OK else (gpu,),
            processes=tuple(self._process(pid) for pid in uses if pid in self.node.processes),
            coverage=Coverage.ALL,
            own_chain=self.own_chain,
            uid=self.uid,
        )

    def _process(self, pid: int) -> HolderProcess:
        item = self.node.processes[pid]
        run_id = next((run for run, pids in self.node.marks.items() if pid in pids), None)
        return HolderProcess(
            pid=pid, start_ticks=item.start_ticks, title=item.title, run_id=run_id, devices=("/dev/nvidia0",), state="S"
        )
