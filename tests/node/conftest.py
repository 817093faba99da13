"""Real node programs over the local link. Whatever a test launches is ended here, by pid, with its whole tree."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from supervisor.adapters.clock import SystemClock
from supervisor.adapters.local import LocalLink
from supervisor.adapters.node import NodeClient
from supervisor.node import proc
from tests.real.processes import PATIENCE

PYTHON = sys.executable

Json = dict[str, Any]


class Node:
    """A node program with records of its own, and the runs that a test launches through it."""

    def __init__(self, link: LocalLink, client: NodeClient, state_dir: Path) -> None:
        self.link = link
        self.client = client
        self.state_dir = state_dir
        self.key = f"t-{os.getpid()}-{secrets.token_hex(6)}"
        """The lock is one for the whole machine, so each test has a key that no other one has."""
        self.run_ids: list[str] = []

    def orders(self, argv: list[str], **more: Any) -> Json:
        """The arguments of a launch."""
        # In the order of their time, as real ones are: of very many, the node looks at the newest.
        run_id = f"20260101-{len(self.run_ids):06d}-{secrets.token_hex(4)}"
        self.run_ids.append(run_id)
        orders = {
            "run_id": run_id,
            "key": self.key,
            "argv": argv,
            "env": {},
            "cwd": "/",
            "log": None,
            "detaches": False,
            "fingerprint": "f" * 64,
            "env_hashes": {},
            "by": "test@here",
            "extra": {"engine": "generic", "port": 1},
        }
        return {**orders, **more}

    async def launch(self, argv: list[str], **more: Any) -> Json:
        """Launch and return the run's record, the first write of its tree included."""
        told = await self.client.request("launch", **self.orders(argv, **more))
        assert told["won"], told
        run: Json = told["run"]
        return run

    async def state(self, **more: Any) -> Json:
        """What the node says of the key."""
        return await self.client.request("state", key=more.get("key", self.key))

    def folder(self, run_id: str) -> Path:
        """The run's folder."""
        return Path(self.client.hello.state_dir) / self.key / "runs" / run_id

    async def ended(self, run_id: str, timeout_s: float = 10.0) -> Json:
        """exit.json, once it stands."""
        path = self.folder(run_id) / "exit.json"
        await until(path.exists, timeout_s)
        document: Json = json.loads(path.read_text())
        return document

    async def lock_is_free(self) -> None:
        """Until no keeper holds the lock."""

        async def free() -> bool:
            return not (await self.state())["locked"]

        await until_async(free)

    def end_everything(self) -> None:
        """KILL to whatever carries one of our run ids, until nothing does, and to the keepers that then remain."""
        end = time.monotonic() + 10
        while time.monotonic() < end:
            pids = {pid for run_id in self.run_ids for pid in proc.marked(run_id)}
            if not pids:
                return
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.02)
        raise AssertionError(f"still there: {pids}")


async def until(condition: Callable[[], Any], timeout_s: float = 10.0) -> Any:
    """Wait until a condition of the outside world holds, and return what it said (`processes.poll`, in a loop)."""
    end = time.monotonic() + timeout_s * PATIENCE
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, "it did not come about in time"
        await asyncio.sleep(0.01)


async def until_async(condition: Callable[[], Awaitable[Any]], timeout_s: float = 10.0) -> Any:
    """The same for a condition that has to be asked for."""
    end = time.monotonic() + timeout_s * PATIENCE
    while True:
        value = await condition()
        if value:
            return value
        assert time.monotonic() < end, "it did not come about in time"
        await asyncio.sleep(0.01)


@pytest_asyncio.fixture
async def link() -> AsyncIterator[LocalLink]:
    """This machine, as a node."""
    local = LocalLink()
    await local.connect()
    yield local
    await local.close()


@pytest_asyncio.fixture
async def node(link: LocalLink, tmp_path: Path) -> AsyncIterator[Node]:
    """A node program that keeps its records in the test's folder."""
    state_dir = tmp_path / "state"
    client = await NodeClient.start(link, clock=SystemClock(), python=PYTHON, state_dir=str(state_dir))
    made = Node(link, client, state_dir)
    try:
        yield made
    finally:
        made.end_everything()
        await client.close()


def find_python(version: str) -> str | None:
    """An interpreter of exactly this version line, None where the machine has none."""
    roots = [Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"]
    candidates = [str(path) for root in roots for path in sorted(root.glob(f"{version}.*/bin/python3"))]
    candidates += [path for path in [shutil.which(f"python{version}")] if path]
    for path in candidates:
        done = subprocess.run([path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True)
        if done.stdout.decode().strip() == version:
            return path
    return None


def need_python(version: str) -> str:
    """The same, or the test is skipped by name."""
    path = find_python(version)
    if path is None:
        pytest.skip(f"no Python {version} on this machine")
    return path
