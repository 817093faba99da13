"""Ends that lie: exit status 0 on death, a SIGKILL that is no OOM killer, and one that is."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from supervisor.adapters.clock import SystemClock
from supervisor.adapters.local import LocalLink
from supervisor.core import events as ev
from supervisor.node import oom
from supervisor.profile import load
from supervisor.supervise.session import Session
from supervisor.wiring import plan_of
from tests.node.test_oom import memory_cgroup  # noqa: F401 - a fixture
from tests.real.ports import free_port
from tests.real.processes import Tracker
from tests.story import kit, watching

QUICK = ("--sim-load", "0.5", "--sim-warm", "0.2", "--sim-health-delay", "0", "--tp", "2")


@asynccontextmanager
async def events_of(item: kit.Profile) -> AsyncIterator[AsyncIterator[ev.AnyEvent]]:
    """The events of a session that launches the profile; the server is stopped at the end."""
    session = Session(plan_of(load(item.path), str(item)), LocalLink, clock=SystemClock(), by="test")
    async with watching.events_of(session) as reader:
        yield reader


async def _finding(item: kit.Profile) -> tuple[ev.Finding, list[str]]:
    """The finding of its failure, and the phases before."""
    phases: list[str] = []
    async with events_of(item) as events:
        async for event in events:
            if isinstance(event, ev.PhaseChanged):
                phases.append(event.to.value)
            if isinstance(event, ev.Finding):
                return event, phases
    raise AssertionError("the stream has ended")


@pytest.mark.asyncio
async def test_exit_status_0_unasked_is_a_failure_and_names_what_died(tmp_path: Path, tracker: Tracker) -> None:
    item = kit.simulated_profile(tmp_path, "vllm", *QUICK, "--sim-fault", "exit-0-on-death:2")
    finding, phases = await _finding(item)
    assert phases[-1] == "failed" and "serving" in phases
    assert finding.category == "killed" and "SIGKILL" in finding.cause
    assert "EngineCore" in finding.cause or "Worker" in finding.cause, finding


def test_health_over_an_engine_that_generates_nothing_is_told_as_a_hang(tmp_path: Path, tracker: Tracker) -> None:
    flags = (*QUICK, "--sim-fault", "hang-completion")
    item = kit.simulated_profile(tmp_path, "vllm", *flags, more='[verify]\ntimeout = "2s"')
    result = kit.run("--headless", str(item), "--json", "--timeout", "40s")
    assert kit.run("stop", str(item)).code == 0
    assert (result.code, result.summary["phase"]) == (1, "healthy"), result.out + result.err
    assert result.summary["finding"]["category"] == "hang"


def _run(folder: Path, program: str, *words: str) -> dict[str, Any]:
    command = [sys.executable, "-c", program, *words]
    item = kit.profile(folder, command, port=free_port(), engine="sglang")
    result = kit.run("--headless", str(item), "--json", "--timeout", "30s")
    assert result.code == 1, result.out + result.err
    finding: dict[str, Any] = result.summary["finding"]
    return finding


OWN = """
import os, time
time.sleep(0.6)
print("Received sigquit from a child process. It usually means the child failed.", flush=True)
os.kill(os.getpid(), 9)
"""
EATS = """
import os, sys, time
time.sleep(0.6)
open(sys.argv[1], "w").write(str(os.getpid()))
print("Load weight begin. avail mem=70.00 GB", flush=True)
held = [bytearray(1 << 20) for _ in range(512)]
"""


@pytest.fixture
def looked(tracker: Tracker) -> Iterator[None]:
    """Only where the kernel's log can be read is anything told of it."""
    if not oom.KernelLog("/dev/kmsg").readable or os.readlink("/proc/self/ns/pid") != "pid:[4026531836]":
        pytest.skip("the kernel's log cannot be read here")
    yield


def test_a_kill_of_its_own_is_not_called_the_oom_killer(tmp_path: Path, looked: None) -> None:
    finding = _run(tmp_path, OWN)
    assert "OOM killer ended" not in finding["cause"]
    assert any("OOM killer" in text for text in finding["ruled_out"]), finding


def test_a_kill_of_the_kernel_is_told_with_its_record(tmp_path: Path, looked: None, memory_cgroup: Path) -> None:  # noqa: F811
    finding = _run(tmp_path, EATS, str(memory_cgroup / "cgroup.procs"))
    assert finding["confidence"] == "sure" and "OOM killer" in finding["cause"], json.dumps(finding, indent=1)
    assert "Killed process" in finding["cause"]
    assert not any("OOM killer" in text for text in finding["ruled_out"])
