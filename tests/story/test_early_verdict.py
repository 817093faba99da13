"""A failure that is certain from the log ends the wait at once, though the process lingers; a suspicion does not."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import MakeSshd
from tests.real import lingering
from tests.real.ports import free_port
from tests.real.processes import Tracker
from tests.story import kit

WITHIN_S = 2.0
CRASH = [
    "[TRT-LLM] [RANK 7] [E] Error in event loop: CUDA error: an illegal memory access was encountered",
    "[RANK 7] Executor loop crashed on this rank; hard-killing all 8 ranks",
]


@pytest.fixture
def stopped(tracker: Tracker) -> Iterator[list[kit.Profile]]:
    """Profiles whose runs are stopped at the end, by the program itself."""
    profiles: list[kit.Profile] = []
    yield profiles
    for item in profiles:
        assert kit.run("stop", str(item)).code == 0


def _profile(folder: Path, engine: str, lines: list[str], host: str) -> kit.Profile:
    said = folder / "lines"
    said.write_text("\n".join(lines) + "\n", encoding="utf-8")
    port = free_port()
    command = [sys.executable, "-I", str(Path(lingering.__file__)), str(port), str(folder / "stamp"), str(said)]
    more = f'[ready]\nurl = {json.dumps(f"http://127.0.0.1:{port}/health")}\n[stop]\ngrace = "1s"\n'
    return kit.profile(folder, command, port=port, host=host, engine=engine, more=more)


@pytest.mark.parametrize("host", ["local", "ssh"])
def test_a_crashed_rank_behind_503_for_ever_ends_the_wait_at_its_line(
    host: str, tmp_path: Path, stopped: list[kit.Profile], make_sshd: MakeSshd
) -> None:
    env = {"SUPERVISOR_SSH_CONFIG": str(make_sshd().ssh_config)} if host == "ssh" else {}
    item = _profile(tmp_path, "trtllm", CRASH, "node" if host == "ssh" else "local")
    result = kit.run("--headless", str(item), "--json", "--timeout", "60s", env=env)
    if host == "local":
        stopped.append(item)
    else:
        assert kit.run("stop", str(item), env=env).code == 0
    assert result.code == 1, result.out + result.err
    late_s = result.ended_at - float((tmp_path / "stamp").read_text())
    assert late_s < WITHIN_S, f"{late_s:.2f} s after the line"
    summary = result.summary
    assert (summary["verdict"], summary["phase"]) == ("failed", "failed")
    assert summary["answers"]["503"] > 1
    proof = next(item["text"] for item in summary["evidence"] if item["kind"] == "cannot_come_up")
    assert "(line 2: " in proof and "says line 3: [RANK 7] Executor loop crashed" in proof, proof
    finding = summary["finding"]
    assert (finding["line_no"], finding["category"], finding["confidence"]) == (2, "native_crash", "sure")
    assert "illegal memory access" in finding["line"] and finding["advice"]
    assert "200" not in summary["answers"], "an accepted answer after a certain line is a bug of its rule"


def test_without_a_better_line_the_finding_is_the_one_that_proves_it(
    tmp_path: Path, stopped: list[kit.Profile]
) -> None:
    item = _profile(tmp_path, "trtllm", CRASH[1:], "local")
    stopped.append(item)
    result = kit.run("--headless", str(item), "--json", "--timeout", "60s")
    assert result.code == 1, result.out + result.err
    assert (result.summary["finding"]["line_no"], result.summary["finding"]["line"]) == (2, CRASH[1])


LINGERS = ("--sim-load", "1.5", "--sim-warm", "0.2", "--tp", "2", "--sim-fault", "die-at-graphs,linger")


def test_a_launcher_that_lingers_after_its_core_has_failed_is_no_reason_to_wait(
    tmp_path: Path, stopped: list[kit.Profile]
) -> None:
    item = kit.simulated_profile(tmp_path, "vllm", *LINGERS)
    stopped.append(item)
    result = kit.run("--headless", str(item), "--json", "--timeout", "60s")
    assert result.code == 1, result.out + result.err
    assert sum(item["s"] for item in result.summary["phases"]) < 20, "long before the limit"
    finding = result.summary["finding"]
    assert (finding["category"], finding["detail"]) == ("gpu_arch", "no_kernel_image")
    assert "no kernel image" in finding["line"]


def test_a_parent_that_lingers_over_dead_children_ends_the_wait_at_its_line(
    tmp_path: Path, stopped: list[kit.Profile]
) -> None:
    """The children are dead and the parent waits for ever: what it said of them proves that it cannot come up."""
    item = kit.simulated_profile(tmp_path, "sglang", *LINGERS)
    stopped.append(item)
    result = kit.run("--headless", str(item), "--json", "--timeout", "60s")
    assert result.code == 1, result.out + result.err
    assert result.phases()[-1] == "failed"
    finding = result.summary["finding"]
    assert finding is not None and finding["detail"] == "half_built_object"
    assert finding["line_no"] and "spec_disable_batch_threshold" in finding["line"]


@pytest.mark.parametrize("engine", ["sglang", "vllm", "llamacpp"])
def test_a_good_start_hints_at_nothing(engine: str, tmp_path: Path, stopped: list[kit.Profile]) -> None:
    item = kit.simulated_profile(tmp_path, engine, "--sim-load", "2.5", "--sim-warm", "0.5", "--sim-health-delay", "0")
    stopped.append(item)
    result = kit.run("--headless", str(item), "--json", "--timeout", "60s")
    assert result.code == 0, result.out + result.err
    warnings = [line["text"] for line in result.lines if line["kind"] == "warning"]
    assert not [text for text in warnings if "hints" in text or "goes on" in text], warnings
