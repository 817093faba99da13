"""SIGKILL at any moment around a launch leaves nothing, or a run that is found. The moments are spread by chance."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time
from functools import partial
from typing import Any

import pytest

from supervisor.adapters import program
from supervisor.node import proc
from tests.node.conftest import PYTHON, Node, until, until_async
from tests.scale import scaled

pytestmark = pytest.mark.asyncio

SLEEP = ["/bin/sleep", "600"]
ROUNDS = scaled(100)
MARK = "SUPERVISOR_TEST_KILL"


async def _program(node: Node, mark: str) -> asyncio.subprocess.Process:
    """A node program in a session of its own, past its hello. Its keeper carries the mark too, from the start."""
    process = await asyncio.create_subprocess_exec(
        "/bin/sh",
        "-c",
        program.EXEC,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, MARK: mark},
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(
        program.stdin_of(PYTHON, {"mode": "serve", "state_dir": str(node.state_dir), "nonce": "n"}),
    )
    assert await process.stdout.readline() == b"ISUP1 n\n"
    await process.stdout.readline()
    return process


async def _launch_s(node: Node) -> float:
    """How long a launch takes here and now: the moments are spread over that."""
    begin = time.monotonic()
    await node.launch(SLEEP)
    took_s = time.monotonic() - begin
    node.end_everything()
    await node.lock_is_free()
    return took_s


def _order(process: asyncio.subprocess.Process, orders: dict[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps({"id": 1, "op": "launch", **orders}).encode() + b"\n")


async def _finish(process: asyncio.subprocess.Process) -> None:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.close()
    await process.stdout.read()
    await process.wait()


async def _consistent(node: Node, run_id: str) -> bool:
    """Nothing runs, or exactly one server does, and `state` names it, with its keeper alive and on record."""

    async def settled() -> dict[str, Any] | None:
        state = await node.state()
        lives = proc.marked(run_id)
        if state["live"] is None:
            return None if lives or state["locked"] or _carriers(run_id) else {"live": None}
        root = state["live"]["run"]["root"]
        return state if root and lives == {root["pid"]} and state["live"]["keeper_alive"] else None

    state = await until_async(settled, 5.0)
    return state["live"] is not None


def _carriers(mark: str) -> set[int]:
    """Everything that came from the program with this mark: a keeper that has only begun to start, too."""
    word = f"{MARK}={mark}".encode()
    found = set()
    for pid in proc.pids():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if word in file.read().split(b"\0"):
                    found.add(pid)
        except OSError:
            continue
    return found


def _first_child(pid: int) -> int | None:
    return next(iter(proc.children(pid) or []), None)


@pytest.mark.parametrize("whom", ["node program", "its whole session", "its stdin"])
async def test_the_one_who_ordered_is_killed(node: Node, whom: str) -> None:
    chance = random.Random(whom)
    launch_s = await _launch_s(node)
    found = rounds = 0
    # A kill that always comes before the launch proves nothing, so it goes on until one came after it.
    while rounds < ROUNDS or (not found and rounds < 20 * ROUNDS):
        rounds += 1
        orders = node.orders(SLEEP)
        process = await _program(node, orders["run_id"])
        _order(process, orders)
        await asyncio.sleep(chance.uniform(0, 1.5 * launch_s))  # from the request to well after the answer
        if whom == "node program":
            os.kill(process.pid, signal.SIGKILL)
        elif whom == "its whole session":
            os.killpg(process.pid, signal.SIGKILL)
        await _finish(process)
        found += await _consistent(node, orders["run_id"])
        node.end_everything()
        await node.lock_is_free()
    assert found


async def _consistent_without_keeper(node: Node, run_id: str) -> bool:
    """Nothing runs, or exactly one server does and `state` names it. The lock is free in both cases."""

    async def settled() -> dict[str, Any] | None:
        state = await node.state()
        lives = proc.marked(run_id)
        if state["locked"] or (state["live"] is None) == bool(lives):
            return None
        live = state["live"]
        if live is not None and (lives != {(live["run"]["root"] or {}).get("pid")} or live["keeper_alive"]):
            return None
        return state

    state = await until_async(settled, 5.0)
    return state["live"] is not None


async def test_the_keeper_is_killed(node: Node) -> None:
    chance = random.Random(3)
    launch_s = await _launch_s(node)
    seen: list[bool] = []
    # As many rounds as it takes to see both outcomes: how long a launch takes changes with what else runs here.
    while len(seen) < ROUNDS or (len(set(seen)) < 2 and len(seen) < 20 * ROUNDS):
        orders = node.orders(SLEEP)
        process = await _program(node, orders["run_id"])
        _order(process, orders)
        keeper = await until(partial(_first_child, process.pid))
        await asyncio.sleep(chance.uniform(0, 1.5 * launch_s))
        os.kill(keeper, signal.SIGKILL)
        await _finish(process)
        seen.append(await _consistent_without_keeper(node, orders["run_id"]))
        node.end_everything()
    assert set(seen) == {True, False}


async def test_orders_that_are_cut_short_start_nothing(node: Node) -> None:
    orders = {**node.orders(SLEEP), "mode": "keeper", "base": node.client.hello.state_dir, "base_env": {}}
    whole = program.stdin_of(PYTHON, orders)
    for size in (len(whole) - 1, len(whole) - 100, len(whole) // 2, 1700, 1000, 20, 1, 0):
        process = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            program.EXEC,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        said, _ = await process.communicate(whole[:size])
        assert said == b""
    state = await node.state()
    assert state == {"live": None, "last": None, "locked": False}
    assert not proc.marked(orders["run_id"])
