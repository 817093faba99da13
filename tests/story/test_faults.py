"""What goes wrong with an engine, and what the program says of it: exit code and words, one launch each."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.real.processes import Tracker
from tests.story import kit

QUICK = ("--sim-load", "0.3", "--sim-warm", "0.2", "--sim-health-delay", "0.1")

# engine, fault, exit code, words that the ending must have
FAULTS: list[tuple[str, str, int, str]] = [
    ("sglang", "die-at-weights", 1, "SIGKILL"),
    ("sglang", "die-at-graphs", 1, "Error"),
    ("vllm", "die-at-weights", 1, "memory ran out"),  # what it says ends the wait; its exit may come later
    ("llamacpp", "die-at-weights", 1, "exit code 1"),
    ("vllm", "exit-code:3", 1, "exit code 3"),
    ("vllm", "signal:SEGV", 1, "SIGSEGV"),
    ("sglang", "hang-at-weights", 124, "--timeout 12s fired"),
    ("sglang", "503-for-ever", 124, "it went on answering 503"),
    ("sglang", "health-401", 124, "401"),
    ("sglang", "wrong-model", 124, "asks for sim/tiny"),
    ("vllm", "garbage-completion", 1, "empty completion"),
    ("vllm", "completion-500", 1, "500"),
    ("vllm", "unauthorized", 0, "verify.api_key_env"),
]


def _one(folder: Path, engine: str, fault: str, code: int) -> kit.Result:
    place = folder / (engine + fault.replace(":", "-"))
    place.mkdir()
    item = kit.simulated_profile(place, engine, *QUICK, "--sim-fault", fault)
    result = kit.run("--headless", str(item), "--json", "--timeout", "12s" if code == 124 else "90s")
    assert kit.run("stop", str(item)).code == 0
    return result


@pytest.fixture
def results(tracker: Tracker, tmp_path: Path) -> dict[tuple[str, str], kit.Result]:
    """All of them, three at a time."""
    with ThreadPoolExecutor(3) as pool:
        pending = {
            (engine, fault): pool.submit(_one, tmp_path, engine, fault, code) for engine, fault, code, _ in FAULTS
        }
        return {key: future.result() for key, future in pending.items()}


def test_every_fault_ends_as_it_should(results: dict[tuple[str, str], kit.Result]) -> None:
    wrong = []
    for engine, fault, code, words in FAULTS:
        result = results[engine, fault]
        if result.code != code or words not in result.out:
            wrong.append(f"{engine} {fault}: exit {result.code} (not {code}), or lacks {words!r}: {result.out[-1500:]}")
    assert not wrong, "\n\n".join(wrong)
    dead = results["sglang", "die-at-weights"].summary
    assert dead["phase"] == "failed"
    assert (dead["finding"]["category"], dead["finding"]["confidence"]) == ("model_files", "sure")
    assert "SafetensorError" in dead["finding"]["line"] and dead["finding"]["advice"]
    eagle = results["sglang", "die-at-graphs"].summary["finding"]
    assert "EAGLEWorkerV2" in eagle["cause"] and "first exception in `__init__` of EAGLEWorkerV2" in eagle["advice"]
    served = results["vllm", "unauthorized"].summary
    assert "not verified" in str(served["evidence"])
    assert results["vllm", "garbage-completion"].summary["phase"] == "healthy"


def test_orphans_are_found_by_the_next_launch_and_by_stop(tracker: Tracker, tmp_path: Path) -> None:
    """Workers in sessions of their own outlive their API server; they are ours by the run id that they carry."""
    item = kit.simulated_profile(tmp_path, "vllm", *QUICK, "--sim-fault", "setsid-workers")
    assert kit.run("--headless", str(item), "--json").code == 0
    stopped = kit.run("stop", str(item), "--json")
    assert stopped.code == 0, stopped.out
    assert "processes are gone" in stopped.summary["reason"]


def test_a_server_that_ignores_term_is_killed_at_the_grace(tracker: Tracker, tmp_path: Path) -> None:
    item = kit.simulated_profile(tmp_path, "vllm", *QUICK, "--sim-fault", "ignore-term", more='[stop]\ngrace = "1s"')
    assert kit.run("--headless", str(item), "--json").code == 0
    stopped = kit.run("stop", str(item), "--json")
    assert stopped.code == 0, stopped.out
    assert "by KILL" in stopped.summary["reason"]
