"""Nasty trees (tests/real/nasty_tree.py) under real keepers, on a stub's GPUs, with bystanders that look like them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import psutil
from msgspec import Struct

from supervisor.core import events as ev
from supervisor.node import proc
from tests.node.conftest import Node, until
from tests.real import nasty_tree
from tests.real.nvml import GIB, StubNvml

PROGRAM = Path(nasty_tree.__file__)


class Grove:
    """Trees and bystanders on one node program, and who of them lives."""

    def __init__(self, node: Node, stub: StubNvml, folder: Path) -> None:
        self.node, self.stub, self.folder = node, stub, folder
        self._bystanders: dict[str, subprocess.Popen[bytes]] = {}

    def words(self, kind: str, name: str, gpu: int) -> list[str]:
        device = str(self.stub.device(self.stub.gpus[gpu]))
        return [sys.executable, "-I", "-S", str(PROGRAM), kind, name, str(self.stub.claims), device, str(GIB)]

    async def plant(self, kind: str, name: str, gpu: int, *, beside: bool = True) -> Launched:
        """Launch a tree, and beside it a process of the very same command line; until all of them hold memory."""
        words = self.words(kind, name, gpu)
        if beside:
            env = {**os.environ, "NASTY_BYSTANDER": str(self.folder / f"{name}.signals")}
            self._bystanders[name] = subprocess.Popen(words, env=env, start_new_session=True)
        key = f"{self.node.key}-{name}"
        run = await self.node.launch(words, key=key)
        await until(lambda: len(self.members(name)) >= nasty_tree.KINDS[kind], 20)
        if beside:
            await until(lambda: self.members(f"bystander-{name}"), 20)
        return Launched(name=name, key=key, run_id=run["run_id"], root=ev.Process(**run["root"]), keeper=run["keeper"])

    def folder_of(self, tree: Launched) -> Path:
        """The run's folder."""
        return Path(self.node.client.hello.state_dir) / tree.key / "runs" / tree.run_id

    async def ended(self, tree: Launched) -> None:
        """Returns once the keeper has written down that the root is gone."""
        await until((self.folder_of(tree) / "exit.json").exists)

    def members(self, name: str) -> list[tuple[int, int]]:
        """Pid and start ticks of every process of a tree that ever held memory, as it wrote them down itself."""
        found = (path.name.split(".") for path in self.stub.claims.glob(f"{name}.*"))
        return [(int(pid), int(ticks)) for _, pid, ticks in found]

    def alive(self, name: str) -> list[psutil.Process]:
        """Those of them that live, by psutil: an oracle that shares nothing with the product."""
        return list(_living(self.members(name)))

    def signals_of(self, name: str) -> list[str]:
        """Every signal that the bystander of this tree ever got, and "dead" if it is."""
        path = self.folder / f"{name}.signals"
        got = path.read_text().split() if path.exists() else []
        return got + ([] if self._bystanders[name].poll() is None else ["dead"])

    def fell(self, name: str) -> None:
        """End a bystander, and forget a tree that is over."""
        process = self._bystanders.pop(name, None)
        if process is not None:
            process.kill()
            process.wait()
        for path in [*self.stub.claims.glob(f"{name}.*"), *self.stub.claims.glob(f"bystander-{name}.*")]:
            path.unlink()

    def end(self) -> None:
        """Everything that is left, by identity."""
        names = {path.name.split(".")[0] for path in self.stub.claims.glob("*.*.*") if path.name[0] != "."}
        for process in [item for name in names for item in self.alive(name)]:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                pass
        for name in list(self._bystanders):
            self.fell(name)


class Launched(Struct, frozen=True, kw_only=True):
    """One launch."""

    name: str
    key: str
    run_id: str
    root: ev.Process
    keeper: dict[str, int]


def _living(members: Iterable[tuple[int, int]]) -> Iterable[psutil.Process]:
    for pid, ticks in members:
        found = proc.stat(pid)
        if found is not None and found["start_ticks"] == ticks and (found["state"] not in "ZX" or found["threads"] > 1):
            try:
                yield psutil.Process(pid)
            except psutil.NoSuchProcess:
                continue


def kill(identity: tuple[int, int]) -> None:
    """SIGKILL to a process that the test started, if it is still that one."""
    for process in _living([identity]):
        process.send_signal(signal.SIGKILL)
