"""What yesterday's run left on a GPU is cleared from the real console, with the proof on its screen."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import MakeTmux
from tests.headless.test_zombies import end, hold, orphan
from tests.main_job.kit import Site, site_with_gpu
from tests.real import processes
from tests.real.nvml import StubNvml
from tests.real.processes import Tracker

PATIENCE_S = 40.0


@pytest.fixture
def here(nvml_stub: StubNvml, tmp_path: Path, tracker: Tracker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A node with one GPU, and a profile on it."""
    with site_with_gpu(tmp_path, tracker, nvml_stub, monkeypatch) as made:
        yield made


@pytest.fixture
def bystander(here: Site, nvml_stub: StubNvml) -> Iterator[subprocess.Popen[bytes]]:
    """A process of our user that holds memory of the same GPU, and is none of ours."""
    process = hold(nvml_stub)
    yield process
    end(process)


def test_our_left_over_is_cleared_with_proof_and_nobody_else(
    here: Site, nvml_stub: StubNvml, bystander: subprocess.Popen[bytes], make_tmux: MakeTmux, tmp_path: Path
) -> None:
    worker = orphan(here, nvml_stub)
    env = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "HOME": str(here.home), **nvml_stub.environment()}
    command = [sys.executable, "-m", "supervisor.cli", str(here.file), "--no-launch"]
    screen = make_tmux(command, width=120, height=40, environment=env, cwd=tmp_path)
    screen.wait_for(re.compile(r"link ●[\s\S]*ended"), PATIENCE_S)
    screen.send_keys("z")
    screen.wait_for(re.compile(rf"\[x\] +{worker.pid}  ours-orphan +71\.0 GiB"), PATIENCE_S)
    screen.wait_for(re.compile(rf"\[ \] +{bystander.pid} "), PATIENCE_S)
    screen.wait_for(re.compile(r"To be ended: 1 process \(pids? \d+\) with 71\.0 GiB on GPU 0"), PATIENCE_S)
    screen.send_keys("y")
    told = screen.wait_for("✔ done", PATIENCE_S)
    assert str(worker.pid) in told and "memory released" in told
    assert not processes.alive(worker) and bystander.poll() is None
    screen.send_keys("Enter")
    screen.wait_for(re.compile(r"\A(?![\s\S]*close \(enter\))"), PATIENCE_S)
    screen.send_keys("z")
    screen.wait_for(re.compile(r"no left-over holders[\s\S]*Nothing is marked"), PATIENCE_S)
    screen.send_keys("n")
    screen.wait_for(re.compile(r"\A(?![\s\S]*Nothing is marked)"), PATIENCE_S)
    screen.send_keys("q")
    assert screen.wait_exit(PATIENCE_S) == 0
