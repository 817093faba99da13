"""Who listens on a port, asked of a real node program about real sockets."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from supervisor.node import sockets
from tests.node.conftest import PYTHON, Json, Node, until_async

pytestmark = pytest.mark.asyncio

_SERVE = """
import socket, sys, time
family, address, port, reuse = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
server = socket.socket(family)
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
if reuse:
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
if family == socket.AF_INET6:
    server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
server.bind((address, port))
server.listen()
print(server.getsockname()[1], flush=True)
time.sleep(600)
"""


def _words(address: str, port: int, reuse: bool = False) -> list[str]:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return [PYTHON, "-I", "-S", "-c", _SERVE, str(int(family)), address, str(port), str(int(reuse))]


@contextmanager
def other_server(address: str, port: int = 0, reuse: bool = False, **more: Any) -> Iterator[tuple[int, int]]:
    """A listener that is nobody's run: its port and pid."""
    process = subprocess.Popen(_words(address, port, reuse), stdout=subprocess.PIPE, **more)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline()), process.pid
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def _ask(node: Node, port: int, run: Json | None) -> list[Json]:
    who = {"key": node.key, "run_id": run["run_id"]} if run else None
    listeners: list[Json] = (await node.client.request("listeners", port=port, run=who))["listeners"]
    return listeners


async def _our_server(node: Node, address: str, port: int, reuse: bool = False) -> Json:
    run = await node.launch(_words(address, port, reuse))

    async def listens() -> bool:
        return any(item["pid"] == run["root"]["pid"] for item in await _ask(node, port, run))

    await until_async(listens)
    return run


async def test_nobody(node: Node) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        assert await _ask(node, sock.getsockname()[1], None) == []  # bound is not listening


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1", "::"])
async def test_ours(node: Node, address: str) -> None:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as sock:
        sock.bind((address, 0))
        port = sock.getsockname()[1]
    run = await _our_server(node, address, port)
    (item,) = await _ask(node, port, run)
    assert (item["owner"], item["address"], item["port"], item["uid"]) == ("ours", address, port, os.getuid())
    assert {"pid": item["pid"], "start_ticks": item["start_ticks"]} == run["root"] and item["inode"] > 0
    (item,) = await _ask(node, port, None)
    assert item["owner"] == "other"  # without a run nothing is ours


async def test_other(node: Node) -> None:
    run = await node.launch(["/bin/sleep", "600"])
    with other_server("127.0.0.1") as (port, pid):
        (item,) = await _ask(node, port, run)
        assert (item["owner"], item["pid"]) == ("other", pid) and "-c" in item["title"]


async def test_every_listener_of_a_shared_port_is_told(node: Node) -> None:
    with other_server("0.0.0.0", reuse=True) as (port, pid):
        run = await _our_server(node, "0.0.0.0", port, reuse=True)
        owners = {item["pid"]: item["owner"] for item in await _ask(node, port, run)}
        assert owners == {pid: "other", run["root"]["pid"]: "ours"}
        with other_server("::1", port, reuse=True) as (_, third):
            owners = {item["pid"]: item["owner"] for item in await _ask(node, port, run)}
            assert owners == {pid: "other", run["root"]["pid"]: "ours", third: "other"}


async def test_a_port_that_changes_hands_is_seen(node: Node) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    run = await _our_server(node, "127.0.0.1", port)
    await node.client.request("signal", targets=[run["root"]], signal="KILL")

    async def free() -> bool:
        return not await _ask(node, port, run)

    await until_async(free)
    with other_server("127.0.0.1", port) as (_, pid):
        (item,) = await _ask(node, port, run)
        assert (item["owner"], item["pid"]) == ("other", pid)


async def test_a_worker_that_holds_the_socket_counts_as_ours(node: Node) -> None:
    code = _SERVE.replace(
        "time.sleep(600)",
        "import os\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(600)\nos._exit(0)",
    )
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    run = await node.launch([PYTHON, "-I", "-S", "-c", code, str(int(socket.AF_INET)), "127.0.0.1", str(port), "0"])
    await node.ended(run["run_id"])
    (item,) = await _ask(node, port, run)
    assert item["owner"] == "ours" and item["pid"] != run["root"]["pid"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can start another user's process")
async def test_another_users_listener_shows_its_uid_alone(node: Node) -> None:
    del node  # it runs as root, which sees everything: an unprivileged look is made instead
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = (
            f"import os, sys, json; sys.path.insert(0, {os.getcwd()!r})\n"
            "from supervisor.node import sockets\n"
            "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
            f"print(json.dumps(sockets.Owners().classify({port}, set, None)))"
        )
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
        said, _ = await process.communicate()
    (item,) = json.loads(said)
    assert (item["owner"], item["pid"], item["uid"], item["title"]) == ("other", None, 0, "")


async def test_netlink_and_the_file_say_the_same() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.socket(socket.AF_INET6) as six:
            six.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            six.bind(("::1", port))
            six.listen()
            told = sockets.by_netlink(port)
            assert sorted(told, key=lambda item: str(item["address"])) == sorted(
                sockets.by_file(port), key=lambda item: str(item["address"])
            )
            assert [(item["address"], item["inode"]) for item in told] == [
                ("127.0.0.1", os.fstat(server.fileno()).st_ino),
                ("::1", os.fstat(six.fileno()).st_ino),
            ]


async def test_asking_often_is_cheap(node: Node) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    run = await _our_server(node, "127.0.0.1", port)
    pid = node.client._process._process.pid  # type: ignore[attr-defined]
    await _ask(node, port, run)
    before = _cpu_s(pid)
    for _ in range(100):
        await _ask(node, port, run)
    assert (_cpu_s(pid) - before) / 100 < 0.005, "5 ms a look at 13 Hz are 6.5 % of a core"


def _cpu_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def test_a_socket_that_connected_to_itself_is_not_open(monkeypatch: pytest.MonkeyPatch) -> None:
    # What the kernel does by chance in the ephemeral range, on purpose: the source port is the port asked for.
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    real = socket.create_connection

    def bound(address: tuple[str, int], timeout: float) -> socket.socket:
        return real(address, timeout=timeout, source_address=address)

    monkeypatch.setattr(socket, "create_connection", bound)
    begin = time.monotonic()
    assert sockets.accepts("127.0.0.1", port) is None
    assert sockets.accepts("127.0.0.1", port) is None  # and the port was free again at once
    assert time.monotonic() - begin < 1
    with socket.socket() as server:
        server.bind(("127.0.0.1", port))
