"""What looking at GPUs costs the node: the node program's GPU watch beside nvitop, gpustat and a bare pynvml loop.

    .venv/bin/python scripts/bench/gpus.py [--runs 1] [--seconds 30] [--peers FOLDER] [--json FILE]

8 GPUs at 1 Hz on a C stub of NVML (tests/real/nvml_stub.c) and 600 dummy processes, of which 1 or 75 a GPU are on one,
each with the device file of its GPU open. All viewers look at once, so that a noisy moment meets all of them: ours
(`gpu_begin`; serving program and NVML child are summed and told apart), and in tmux windows `nvitop -m full`,
`nvitop`, `gpustat -i 1` and the loop. CPU is read from /proc over --seconds, RSS at their end.
The stub answers in microseconds: what a driver itself takes is in none of the figures. The peers draw a screen, ours
scans descriptors and writes each snapshot into a pipe. They are installed into a temporary folder (or FOLDER, which is
kept for the next run); one that cannot be had is left out by name.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT))

import peers  # noqa: E402 - beside this file
import psutil  # noqa: E402

from supervisor.adapters import gpu  # noqa: E402 - the checkout's own parts, found above
from supervisor.adapters.clock import SystemClock  # noqa: E402
from supervisor.adapters.local import LocalLink  # noqa: E402
from supervisor.adapters.node import NodeClient  # noqa: E402
from supervisor.core.gpu import DriverState, Snapshot  # noqa: E402
from tests.real import nvml  # noqa: E402
from tests.real.tmux import Tmux  # noqa: E402
from tests.real.tmux import missing as no_tmux  # noqa: E402

GPUS = 8
DUMMIES = 600
LOADS = (1, 75)
"""Processes on each GPU."""
WARM_S = 8.0
"""Before the figures count: imports, first screens, the first scan of the descriptors."""
OURS, SERVE, CHILD = "ours, both processes", "  the serving program", "  its NVML child"

LOOP = """
import time
import pynvml as n
n.nvmlInit()
handles = [n.nvmlDeviceGetHandleByIndex(i) for i in range(n.nvmlDeviceGetCount())]
due = time.monotonic()
while True:
    for handle in handles:
        used = n.nvmlDeviceGetMemoryInfo(handle, version=n.nvmlMemory_v2).used >> 20
        busy = n.nvmlDeviceGetUtilizationRates(handle).gpu
        print(used, "MiB", busy, len(n.nvmlDeviceGetComputeRunningProcesses(handle)), flush=True)
    due += 1
    time.sleep(max(0, due - time.monotonic()))
"""


class Cost(NamedTuple):
    """Of one viewer, or of a part of it."""

    cpu_percent: float
    rss_bytes: int
    calls_per_s: float
    """Calls into NVML, which on a real driver cost what they do not cost here."""


class Watched:
    """Processes whose cost is measured together."""

    def __init__(self, stub: nvml.StubNvml, *pids: int) -> None:
        self.members = [psutil.Process(pid) for pid in pids]
        self._stub = stub
        self._cpu_s, self._calls, self._at = 0.0, 0, 0.0

    def begin(self) -> None:
        """From now on."""
        self._cpu_s, self._calls, self._at = *self._spent(), time.monotonic()

    def cost(self) -> Cost:
        """Until now. Raises `psutil.NoSuchProcess` for one that did not last."""
        (cpu_s, calls), seconds = self._spent(), time.monotonic() - self._at
        rss_bytes = sum(item.memory_info().rss for item in self.members)
        return Cost(100 * (cpu_s - self._cpu_s) / seconds, rss_bytes, (calls - self._calls) / seconds)

    def _spent(self) -> tuple[float, int]:
        tallies = self._stub.tallies()
        calls = sum(sum(tallies.get(item.pid, {}).values()) for item in self.members)
        return sum(times.user + times.system for times in (item.cpu_times() for item in self.members)), calls


# ------------------------------------------------------------------------------------------------ what is looked at


@contextmanager
def dummies(stub: nvml.StubNvml, per_gpu: int) -> Iterator[None]:
    """600 sleeps; `per_gpu` of them on each GPU, with its device file as their standard input."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        stub.forget()
        for number in range(DUMMIES):
            gpu = stub.gpus[number % GPUS] if number < per_gpu * GPUS else None
            with (stub.device(gpu) if gpu is not None else Path(os.devnull)).open("rb") as source:
                started.append(subprocess.Popen(["sleep", "1800"], stdin=source))
            if gpu is not None:
                # Not tied to the process: the stub would look into /proc for every row, at the viewer's expense.
                stub.proc(gpu, started[-1].pid, nvml.GIB, sm=10, tied=False)
        stub.write()
        yield
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()


# ------------------------------------------------------------------------------------------------ who looks


class Ours:
    """The node program on this machine, as for a local profile, with its notices read."""

    def __init__(self) -> None:
        self._link = LocalLink()
        self._client: NodeClient | None = None
        self._task: asyncio.Task[None] | None = None
        self._answered = asyncio.Event()
        self.seen: list[Snapshot] = []

    async def start(self, state_dir: Path, python: str) -> None:
        """Returns when the driver has answered."""
        await self._link.connect()
        self._client = await NodeClient.start(
            self._link, clock=SystemClock(), python=python, state_dir=str(state_dir), timeout_s=60
        )
        self._task = asyncio.create_task(self._read(self._client))
        await gpu.begin(self._client, interval_s=1.0)
        async with asyncio.timeout(60):
            await self._answered.wait()

    async def _read(self, client: NodeClient) -> None:
        feed = gpu.GpuFeed()
        async for notice in client.notices():
            if notice["notice"] == "gpu":
                self.seen.append(feed.take(notice))
                if self.seen[-1].driver.state is DriverState.OK:
                    self._answered.set()

    @property
    def pids(self) -> tuple[int, int]:
        """Of the serving program and its NVML child."""
        chain = self.seen[-1].own_chain
        assert psutil.Process(chain[-1]).ppid() == chain[0], chain
        return chain[0], chain[-1]

    async def close(self) -> None:
        """End it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._client is not None:
            await self._client.close()
        await self._link.close()


def viewers(tools: Path) -> dict[str, list[str]]:
    """Name → command, of those that are there."""
    found = {
        "nvitop -m full": [str(tools / "nvitop"), "-m", "full"],
        "nvitop": [str(tools / "nvitop")],
        "gpustat -i 1": [str(tools / "gpustat"), "-i", "1"],
        "bare pynvml loop": [str(tools / "python"), "-c", LOOP],
    }
    return {name: words for name, words in found.items() if Path(words[0]).exists()}


async def measure(stub: nvml.StubNvml, per_gpu: int, options: argparse.Namespace, tools: Path) -> dict[str, Cost]:
    """All of them at once, for the time asked."""
    peer_env = dict(stub.environment(by_name=True))
    own = Ours()
    with dummies(stub, per_gpu), ExitStack() as stack, tempfile.TemporaryDirectory() as state_dir:
        try:
            await own.start(Path(state_dir), options.python)
            terminals = {
                name: stack.enter_context(Tmux(["exec", *words], width=140, height=60, environment=peer_env))
                for name, words in viewers(tools).items()
            }
            await asyncio.sleep(WARM_S)
            serve, child = own.pids
            watched = {OURS: Watched(stub, serve, child), SERVE: Watched(stub, serve), CHILD: Watched(stub, child)}
            watched |= {name: Watched(stub, terminal.pid) for name, terminal in terminals.items()}
            for item in watched.values():
                item.begin()
            first = len(own.seen)
            await asyncio.sleep(options.seconds)
            costs = {name: item.cost() for name, item in watched.items()}
            check(own.seen[first:], per_gpu, options.seconds)
            for name, terminal in terminals.items():
                if not re.search(r"\d ?[MG]i?B", screen := terminal.capture()):
                    raise SystemExit(f"{name} shows no memory:\n{screen}")
        finally:
            await own.close()
    return costs


def check(seen: list[Snapshot], per_gpu: int, seconds: float) -> None:
    """A figure counts only if the work was done: a whole snapshot in every second."""
    if len(seen) < 0.9 * seconds - 1:
        raise SystemExit(f"ours told {len(seen)} snapshots in {seconds:g} s")
    for snapshot in seen:
        uses = [use.pid for item in snapshot.gpus for use in item.uses or ()]
        known = {process.pid for process in snapshot.processes}
        if len(snapshot.gpus) != GPUS or len(uses) != per_gpu * GPUS or not known.issuperset(uses):
            raise SystemExit(f"a snapshot of ours is not whole: {len(snapshot.gpus)} GPUs, {len(uses)} processes")


def versions(tools: Path) -> str:
    """Of all, and the names of those that are not there."""
    told = {name: peers.python_version(tools, name) for name in ("nvidia-ml-py", "nvitop", "gpustat")}
    words = "; ".join(f"{name} {text or 'could not be had: left out'}" for name, text in told.items())
    return f"ours {version('inference-supervisor')} with nvidia-ml-py {version('nvidia-ml-py')}; peers: {words}"


# ------------------------------------------------------------------------------------------------ the table


def table(figures: dict[int, list[dict[str, Cost]]]) -> str:
    """Medians of the runs; the ratio is to ours, above 1 where ours costs less."""
    lines = [" " * 22 + "".join(f"{f'processes on each GPU: {load}':>50}" for load in figures)]
    lines.append(" " * 22 + f"{'CPU %':>10} {'× ours':>9} {'RSS MB':>9} {'× ours':>9} {'calls/s':>9}" * len(figures))
    for name in next(iter(figures.values()))[0]:
        cells = ""
        for runs in figures.values():
            cpu, rss, calls = (statistics.median(values) for values in zip(*(run[name] for run in runs), strict=True))
            own_cpu, own_rss, _ = (statistics.median(v) for v in zip(*(run[OURS] for run in runs), strict=True))
            ratios = (f"{cpu / own_cpu if own_cpu else float('nan'):9.2f}", f"{rss / own_rss:9.2f}")
            cells += f"{cpu:10.2f} {ratios[0]} {rss / 1e6:9.1f} {ratios[1]} {calls:9.1f}"
        lines.append(f"{name:22}{cells}")
    return "\n".join(lines)


def main() -> int:
    """Run and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--python", default=sys.executable, help="the node's interpreter, 3.8 or newer")
    parser.add_argument("--peers", metavar="FOLDER", help="install the peers there and keep them")
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    for problem in (nvml.missing(), no_tmux()):
        if problem is not None:
            raise SystemExit(f"cannot be run here: {problem}")
    figures: dict[int, list[dict[str, Cost]]] = {}
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        tools = peers.python_tools(
            Path(options.peers or name).absolute() / "venv-gpu", "nvidia-ml-py", "nvitop", "gpustat"
        )
        print(versions(tools))
        with nvml.StubNvml(Path(name) / "stub", gpus=GPUS) as stub:
            os.environ.update(stub.environment())  # a local node has our environment
            for turn in range(options.runs):
                for per_gpu in LOADS:
                    figures.setdefault(per_gpu, []).append(asyncio.run(measure(stub, per_gpu, options, tools)))
                    print(f"run {turn + 1} of {options.runs}, {per_gpu} a GPU: done", file=sys.stderr)
    print(f"{GPUS} GPUs, {DUMMIES} processes, 1 Hz, {options.seconds:g} s, {options.runs} runs (medians)")
    print(table(figures))
    if options.json:
        told = {
            load: [{key: cost._asdict() for key, cost in run.items()} for run in runs] for load, runs in figures.items()
        }
        Path(options.json).write_text(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main())
