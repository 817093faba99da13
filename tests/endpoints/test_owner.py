"""A 200 from a port that is not ours, with a real node program that looks at real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from supervisor.adapters import sockets
from supervisor.adapters.http import Http
from supervisor.core import url as urls
from supervisor.core.events import Owner, Verdict
from supervisor.core.judge import Listener
from supervisor.supervise.probe import Prober
from tests.endpoints.table import MODELS
from tests.node.conftest import Node, link, node, until_async
from tests.real.ports import free_port

__all__ = ["link", "node"]  # fixtures

SCRIPT = str(Path(__file__).with_name("tiny_server.py"))
NOBODY = 65534

Start = Callable[..., int]


def words(port: int, **options: Any) -> list[str]:
    return [sys.executable, "-S", "-E", SCRIPT, json.dumps({"port": port, **options})]


@pytest.fixture
def somebody() -> Iterator[Start]:
    """Starts servers that no run of ours owns; returns their pids. Ended by their handles."""
    started: list[subprocess.Popen[bytes]] = []

    def start(port: int, **options: Any) -> int:
        process = subprocess.Popen(words(port, **options), stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"listening\n"
        return process.pid

    yield start
    for process in started:
        process.kill()
        process.wait(10)
        assert process.stdout is not None
        process.stdout.close()


@pytest_asyncio.fixture
async def http() -> AsyncIterator[Http]:
    made = Http(sockets.dial)
    yield made
    await made.close()


class Eyes:
    """A prober that asks the node who listens, for a run that it launched or for none."""

    def __init__(self, node: Node, http: Http) -> None:
        self.port = free_port()
        self._node = node
        self._http = http
        self._run_id: str | None = None

    async def launch(self, **options: Any) -> int:
        """A run of ours that listens on the port; returns its root's pid."""
        run = await self._node.launch(words(self.port, **options))
        self._run_id = run["run_id"]

        async def listening() -> bool:
            return any(item.owner is Owner.OURS for item in await self.listeners(self.port))

        await until_async(listening)
        return int(run["root"]["pid"])

    async def listeners(self, port: int) -> Sequence[Listener]:
        run = {"key": self._node.key, "run_id": self._run_id} if self._run_id else None
        reply = await self._node.client.request("listeners", port=port, run=run)
        known = Listener.__struct_fields__
        return [
            msgspec.convert(
                {name: value for name, value in item.items() if name in known and value is not None}, Listener
            )
            for item in reply["listeners"]
        ]

    def prober(self, *models: str) -> Prober:
        url = urls.parse(f"http://127.0.0.1:{self.port}/health")
        return Prober(self._http, url, MODELS, listeners=self.listeners, expected_models=models)


@pytest.fixture
def eyes(node: Node, http: Http) -> Eyes:
    return Eyes(node, http)


@pytest.mark.asyncio
async def test_a_200_from_our_own_run_is_ready(eyes: Eyes) -> None:
    pid = await eyes.launch(model="org/m")
    answer = await eyes.prober("m").look()
    assert (answer.verdict, answer.owner, answer.model) == (Verdict.READY, Owner.OURS, "org/m")
    assert f"pid {pid}" in answer.why


@pytest.mark.asyncio
async def test_a_200_from_another_process_is_not(eyes: Eyes, somebody: Start) -> None:
    """Even with the right model: it may be last week's server."""
    pid = somebody(eyes.port, model="m")
    answer = await eyes.prober("m").look()
    assert (answer.verdict, answer.owner, answer.status) == (Verdict.REJECTED, Owner.OTHER, 200)
    assert f"pid {pid}" in answer.why and "not from our server" in answer.why


@pytest.mark.asyncio
@pytest.mark.skipif(os.getuid() != 0, reason="to become another user needs root")
async def test_a_200_from_another_user_is_not(eyes: Eyes, somebody: Start) -> None:
    pid = somebody(eyes.port, model="m", uid=NOBODY)
    answer = await eyes.prober("m").look()
    assert (answer.verdict, answer.owner) == (Verdict.REJECTED, Owner.OTHER)
    assert f"pid {pid}" in answer.why  # root sees it; without, its uid alone is told


@pytest.mark.asyncio
async def test_a_200_from_a_container_proxy_needs_the_model(eyes: Eyes, somebody: Start) -> None:
    """The proxy's pid says nothing of the server behind it."""
    somebody(eyes.port, model="m", comm="docker-proxy")
    for models in ((), ("another",)):
        answer = await eyes.prober(*models).look()
        assert answer.verdict is Verdict.REJECTED, models
    unproved = await eyes.prober().look()
    assert unproved.owner is Owner.UNKNOWN and "owner not visible" in unproved.why
    proved = await eyes.prober("m").look()
    assert (proved.verdict, proved.owner) == (Verdict.READY, Owner.UNKNOWN)
    assert "docker-proxy is a container proxy" in proved.why and "owner not visible" in proved.why


@pytest.mark.asyncio
async def test_two_that_share_the_port_are_not_ours(eyes: Eyes, somebody: Start) -> None:
    """SO_REUSEPORT: the kernel gives each connection to either, so one answer proves nothing about the next."""
    await eyes.launch(model="m")
    pid = somebody(eyes.port, model="m")
    for _ in range(4):
        answer = await eyes.prober("m").look()
        assert (answer.verdict, answer.owner) == (Verdict.REJECTED, Owner.OTHER)
        assert f"pid {pid}" in answer.why


@pytest.mark.asyncio
async def test_a_listener_that_moves_during_the_look_proves_nothing_until_the_next(eyes: Eyes) -> None:
    await eyes.launch(hands_over=True)
    answer = await eyes.prober().look()
    assert (answer.verdict, answer.owner) == (Verdict.REJECTED, Owner.UNKNOWN)
    assert "changed hands" in answer.why
    # The process that has it now belongs to the run as well: its tree is read anew once a second.
    prober = eyes.prober()

    async def ready() -> bool:
        return (await prober.look()).verdict is Verdict.READY

    await until_async(ready)


@pytest.mark.asyncio
async def test_a_port_that_another_takes_after_ours_has_gone_is_not_ready_again(
    eyes: Eyes, somebody: Start, node: Node
) -> None:
    await eyes.launch(model="m")
    assert (await eyes.prober("m").look()).verdict is Verdict.READY
    node.end_everything()
    assert (await eyes.prober("m").look()).verdict is Verdict.REFUSED
    pid = somebody(eyes.port, model="m")
    answer = await eyes.prober("m").look()
    assert answer.verdict is Verdict.REJECTED and f"pid {pid}" in answer.why
