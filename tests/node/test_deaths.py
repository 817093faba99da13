"""Which child of a run died first and how: real trees under a real keeper, each killed in its own way."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from supervisor.adapters.clock import SystemClock
from supervisor.adapters.local import LocalLink
from supervisor.adapters.node import NodeClient
from supervisor.node import proc
from tests.node.conftest import Node, need_python, until

pytestmark = pytest.mark.asyncio

PARENT = """
import os, signal, subprocess, sys, time
children = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", name]) for name in sys.argv[2:]]
open(sys.argv[1], "w").write(" ".join(str(child.pid) for child in children) + "\\n")
while True:
    time.sleep(0.01)
    for child in children:
        child.poll()
    if os.path.exists(sys.argv[1] + ".end"):
        os._exit(int(open(sys.argv[1] + ".end").read() or 0))
"""


class Family:
    """A run whose root has children, and ends when it is told."""

    def __init__(self, node: Node, folder: Path) -> None:
        self.node = node
        self.file = folder / "pids"
        self.run: dict[str, Any] = {}
        self.children: list[int] = []

    async def begin(self, *names: str) -> None:
        self.run = await self.node.launch([sys.executable, "-c", PARENT, str(self.file), *names])
        await until(lambda: self.file.exists() and self.file.read_text().endswith("\n"))
        self.children = [int(word) for word in self.file.read_text().split()]
        await self.node.client.request("watch", key=self.node.key, run_id=self.run["run_id"])
        await self.known(len(names))

    async def known(self, count: int) -> None:
        """Until the keeper holds a descriptor of each child: then it cannot miss an end."""
        folder = Path(f"/proc/{self.run['keeper']['pid']}/fd")

        def held() -> bool:
            return sum(os.readlink(path) == "anon_inode:[pidfd]" for path in folder.iterdir()) >= count

        await until(held)

    async def end(self, code: int) -> dict[str, Any]:
        half = Path(f"{self.file}.half")
        half.write_text(str(code))
        half.rename(f"{self.file}.end")
        return await self.node.ended(self.run["run_id"])

    async def notice(self, kind: str) -> dict[str, Any]:
        async with asyncio.timeout(10):
            async for notice in self.node.client.notices():
                if notice["notice"] == kind:
                    return notice
        raise AssertionError("the program ended")


@pytest.fixture
def family(node: Node, tmp_path: Path) -> Family:
    return Family(node, tmp_path)


async def test_a_child_that_is_killed_while_the_root_lives_is_told_at_once_and_written_down(family: Family) -> None:
    await family.begin("rank-0", "rank-1")
    os.kill(family.children[1], signal.SIGKILL)
    told = (await family.notice("child_ended"))["dead"]
    assert (told["pid"], told["signal"], told["code"]) == (family.children[1], "SIGKILL", None)
    assert told["title"].endswith("rank-1")
    assert proc.alive(family.run["root"]["pid"], family.run["root"]["start_ticks"])
    ended = await family.end(3)
    assert (ended["code"], [item["pid"] for item in ended["dead"]]) == (3, [family.children[1]])
    assert ended["dead"][0]["at"] <= ended["at"]


async def test_the_order_and_the_way_of_each_end_are_kept(family: Family) -> None:
    await family.begin("rank-0", "rank-1", "rank-2")
    for child, number in zip(family.children, (signal.SIGSEGV, signal.SIGABRT, signal.SIGTERM), strict=True):
        os.kill(child, number)
        told = (await family.notice("child_ended"))["dead"]
        assert (told["pid"], told["signal"]) == (child, number.name)
    ended = await family.end(0)
    assert [item["signal"] for item in ended["dead"]] == ["SIGSEGV", "SIGABRT", "SIGTERM"]
    assert [item["at"] for item in ended["dead"]] == sorted(item["at"] for item in ended["dead"])


async def test_an_old_interpreter_on_the_node_sees_the_same(link: LocalLink, tmp_path: Path) -> None:
    state_dir = tmp_path / "state"
    old = need_python("3.8")
    client = await NodeClient.start(link, clock=SystemClock(), python=old, state_dir=str(state_dir))
    node = Node(link, client, state_dir)
    try:
        family = Family(node, tmp_path)
        await family.begin("rank-0")
        os.kill(family.children[0], signal.SIGABRT)
        assert (await family.notice("child_ended"))["dead"]["signal"] == "SIGABRT"
        ended = await family.end(2)
        assert (ended["code"], len(ended["dead"]), ended["memory"]["kills"]) == (2, 1, [])
    finally:
        node.end_everything()
        await client.close()


async def test_children_that_only_go_with_their_root_did_not_die_first(family: Family) -> None:
    await family.begin("rank-0")
    os.kill(family.run["root"]["pid"], signal.SIGKILL)
    ended = await family.node.ended(family.run["run_id"])
    assert (ended["signal"], ended["dead"]) == ("SIGKILL", [])
    assert [item["pid"] for item in ended["left"]] == family.children


async def test_the_end_tells_of_memory_and_silence(family: Family) -> None:
    await family.begin("rank-0")
    ended = await family.end(1)
    assert 0 < ended["memory"]["free_bytes"] <= ended["memory"]["total_bytes"]
    assert ended["memory"]["kills"] == []
    assert 0 <= ended["silent_s"] < 60
