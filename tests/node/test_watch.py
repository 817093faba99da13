"""What is told unasked: the end of a run, its tree, its stop, and a port that opens and closes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import statistics
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from supervisor.adapters.clock import SystemClock
from supervisor.adapters.node import NodeClient
from supervisor.errors import NodeRequestError
from supervisor.node import proc
from tests.node.conftest import PYTHON, Json, Node, until

pytestmark = pytest.mark.asyncio

SLEEP = ["/bin/sleep", "600"]


async def next_of(notices: AsyncIterator[Json], *kinds: str, timeout_s: float = 10.0) -> Json:
    """The next notice of one of these kinds; others are passed over."""
    async with asyncio.timeout(timeout_s):
        async for notice in notices:
            if notice["notice"] in kinds:
                return notice
    raise AssertionError("the node program ended")


async def _watch(node: Node, run: Json) -> AsyncIterator[Json]:
    notices = node.client.notices()
    await node.client.request("watch", key=node.key, run_id=run["run_id"])
    return notices


async def test_what_its_processes_have_worked_is_told_every_few_seconds(node: Node) -> None:
    """Of short-lived children nothing is lost: a compilation is thousands of processes that are over in no time."""
    work = "import subprocess, sys\nwhile True:\n    subprocess.run([sys.executable, '-c', 'sum(range(2_000_000))'])"
    run = await node.launch([PYTHON, "-c", work])
    notices = await _watch(node, run)
    first = await next_of(notices, "work")
    second = await next_of(notices, "work")
    assert second["cpu_s"] > first["cpu_s"] + 1.0
    assert second["read_bytes"] > 10_000, "an interpreter reads its modules"


async def test_tree_stop_exit_and_gone_in_order(node: Node) -> None:
    run = await node.launch(["/bin/sh", "-c", "sleep 600 & sleep 0.3; exec sleep 600"])
    notices = await _watch(node, run)
    first = await next_of(notices, "tree")
    assert first["tree"][0]["pid"] == run["root"]["pid"]
    while len(first["tree"]) != 2 or "sleep" not in first["tree"][0]["title"]:
        first = await next_of(notices, "tree")  # told again when it changes
    await node.client.request("write_stop", key=node.key, run_id=run["run_id"], by="me")
    assert (await next_of(notices, "stop"))["stop"]["by"] == "me"
    await node.client.request("signal", targets=[run["root"]], signal="TERM")
    ended = await next_of(notices, "exit")
    assert ended["exit"]["signal"] == "SIGTERM" and ended["stop"]["by"] == "me" and ended["log_size"] == 0
    assert [process["title"] for process in ended["left"]] == ["sleep 600"]
    left = ended["left"][0]
    assert [process["pid"] for process in (await next_of(notices, "tree"))["tree"]] == [left["pid"]]
    await node.client.request(
        "signal", targets=[{"pid": left["pid"], "start_ticks": left["start_ticks"]}], signal="KILL"
    )
    assert (await next_of(notices, "tree", "tree_gone"))["notice"] == "tree"
    await next_of(notices, "tree_gone", timeout_s=2)


@pytest.mark.parametrize("left_over", [False, True])
async def test_the_death_notice_comes_at_once(node: Node, left_over: bool) -> None:
    took = []
    for _ in range(5):
        run = await node.launch(["/bin/sh", "-c", "sleep 600 & exec sleep 600"] if left_over else SLEEP)
        notices = await _watch(node, run)
        await next_of(notices, "tree")
        await asyncio.sleep(0.05)  # so that it dies between two looks
        begin = time.monotonic()
        os.kill(run["root"]["pid"], signal.SIGKILL)
        await next_of(notices, "exit")
        took.append(time.monotonic() - begin)
        node.end_everything()
        await node.lock_is_free()
    assert statistics.median(took) < 0.3, took  # some 10 ms on an idle machine


async def test_a_run_that_has_ended_is_told_at_once(node: Node) -> None:
    run = await node.launch(["/bin/sh", "-c", "exit 4"])
    await node.ended(run["run_id"])
    notices = await _watch(node, run)
    assert (await next_of(notices, "exit", timeout_s=2))["exit"]["code"] == 4
    await next_of(notices, "tree_gone", timeout_s=2)


@pytest.mark.parametrize("keeper_dies", ["before the watch", "during the watch"])
async def test_without_a_keeper_the_end_is_seen_and_unknown(node: Node, keeper_dies: str) -> None:
    run = await node.launch(SLEEP)
    if keeper_dies == "before the watch":
        os.kill(run["keeper"]["pid"], signal.SIGKILL)
        await until(lambda: not proc.alive(run["keeper"]["pid"], run["keeper"]["start_ticks"]))
    notices = await _watch(node, run)
    await next_of(notices, "tree")
    if keeper_dies == "during the watch":
        os.kill(run["keeper"]["pid"], signal.SIGKILL)
        await next_of(notices, "keeper_gone")
    begin = time.monotonic()
    os.kill(run["root"]["pid"], signal.SIGKILL)
    ended = (await next_of(notices, "exit"))["exit"]
    assert (ended["code"], ended["signal"], ended["unknown"]) == (None, None, True)
    assert time.monotonic() - begin < 0.5
    await next_of(notices, "tree_gone", timeout_s=3)


async def test_the_lock_of_a_newer_run_is_not_taken_for_the_old_ones(node: Node) -> None:
    old = await node.launch(SLEEP)
    os.kill(old["keeper"]["pid"], signal.SIGKILL)
    await until(lambda: not proc.alive(old["keeper"]["pid"], old["keeper"]["start_ticks"]))
    await node.launch(SLEEP)
    notices = await _watch(node, old)
    await next_of(notices, "tree")
    os.kill(old["root"]["pid"], signal.SIGKILL)
    assert (await next_of(notices, "exit", timeout_s=2))["exit"]["unknown"]


async def test_two_watchers_both_hear_of_the_end(node: Node) -> None:
    run = await node.launch(SLEEP)
    other = await NodeClient.start(node.link, clock=SystemClock(), python=PYTHON, state_dir=str(node.state_dir))
    try:
        mine = await _watch(node, run)
        theirs = other.notices()
        await other.request("watch", key=node.key, run_id=run["run_id"])
        await asyncio.gather(next_of(mine, "tree"), next_of(theirs, "tree"))
        os.kill(run["root"]["pid"], signal.SIGKILL)
        told = await asyncio.gather(next_of(mine, "exit"), next_of(theirs, "exit"))
        assert [notice["exit"]["signal"] for notice in told] == ["SIGKILL"] * 2
    finally:
        await other.close()


async def test_a_run_that_is_not_there(node: Node) -> None:
    with pytest.raises(NodeRequestError) as caught:
        await node.client.request("watch", key=node.key, run_id="20200101T000000-aaaa")
    assert caught.value.code == "no_run"


# ------------------------------------------------------------------------------------------------ the port


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


async def _port(notices: AsyncIterator[Json]) -> tuple[bool, Any]:
    notice = await next_of(notices, "port", timeout_s=5)
    return notice["open"], notice["address"]


@pytest.mark.parametrize(
    ("host", "family", "bound", "address"),
    [
        ("127.0.0.1", socket.AF_INET, "127.0.0.1", "127.0.0.1"),
        ("localhost", socket.AF_INET, "127.0.0.1", "127.0.0.1"),
        ("localhost", socket.AF_INET6, "::1", "::1"),
        ("0.0.0.0", socket.AF_INET, "0.0.0.0", "127.0.0.1"),
        ("::", socket.AF_INET6, "::", "::1"),
    ],
)
async def test_a_port_that_opens_and_closes(
    node: Node, host: str, family: socket.AddressFamily, bound: str, address: str
) -> None:
    port = _free_port()
    notices = node.client.notices()
    await node.client.request("watch_port", host=host, port=port)
    assert await _port(notices) == (False, None)
    with socket.socket(family) as server:
        if family == socket.AF_INET6:
            server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((bound, port))
        assert not node.client._notices.qsize()  # bound is not open: vLLM binds minutes before it listens
        server.listen()
        begin = time.monotonic()
        assert await _port(notices) == (True, address)
        assert time.monotonic() - begin < 0.5
    assert await _port(notices) == (False, None)


async def test_an_open_port_is_not_connected_to_again_and_again(node: Node) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        notices = node.client.notices()
        await node.client.request("watch_port", host="127.0.0.1", port=server.getsockname()[1], interval_s=0.01)
        assert (await _port(notices))[0]
        await asyncio.sleep(1.2)  # two looks and more
        server.accept()[0].close()
        with pytest.raises(BlockingIOError):
            server.accept()


async def test_a_watch_of_a_port_can_be_ended_and_replaced(node: Node) -> None:
    notices = node.client.notices()
    port, other = _free_port(), _free_port()
    await node.client.request("watch_port", host="127.0.0.1", port=port)
    assert not (await _port(notices))[0]
    with socket.create_server(("127.0.0.1", other)):
        await node.client.request("watch_port", host="127.0.0.1", port=other)
        assert (await _port(notices))[0]
        await node.client.request("unwatch_port")
    await asyncio.sleep(0.7)
    assert not node.client._notices.qsize()


async def test_an_address_that_swallows_packets_holds_nothing_up(node: Node) -> None:
    # A full backlog swallows connections on loopback as a firewall does elsewhere.
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        port = server.getsockname()[1]
        fill = [socket.socket() for _ in range(4)]
        for sock in fill:
            sock.setblocking(False)
            sock.connect_ex(("127.0.0.1", port))
        await node.client.request("watch_port", host="127.0.0.1", port=port)
        worst = 0.0
        for _ in range(20):
            begin = time.monotonic()
            await node.client.request("ping")
            worst = max(worst, time.monotonic() - begin)
        assert worst < 0.3
        for sock in fill:
            sock.close()
