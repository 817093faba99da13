"""The story that this program was born from: a healthy answer with an EMPTY body, after 1.0 s, must end the wait.

The old loop asked "is there a body?" every 15 s, 40 times, and printed "Timeout waiting for server" over a server that
served. Here: an engine that refuses, answers 503, then 200 with an empty body after 1.0 s; locally, over a real sshd,
and by --url alone.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import MakeSshd
from tests.real.ports import free_port
from tests.real.processes import Tracker, poll
from tests.scale import scaled
from tests.story import kit

TIMES = ("--sim-load", "1.5", "--sim-warm", "0.8", "--sim-health-delay", "1.0")
ANSWER_S = 1.0


@pytest.fixture
def stopped(tracker: Tracker) -> Iterator[list[kit.Profile]]:
    """Profiles whose runs are stopped at the end, by the program itself."""
    profiles: list[kit.Profile] = []
    yield profiles
    for item in profiles:
        assert kit.run("stop", str(item)).code == 0


def _assert_story(result: kit.Result, phases: list[str]) -> None:
    assert result.code == 0, result.out + result.err
    summary = result.summary
    assert summary["verdict"] == "reached"
    assert [name for name in result.phases() if name in phases] == phases
    assert set(summary["answers"]) == {"refused", "503", "200"}, summary
    assert "200 with an empty body" in str(summary["evidence"])
    health = [line for line in result.lines if line["kind"] == "health" and line["verdict"] == "ready"]
    assert health[0]["bytes"] == 0
    assert health[0]["ms"] >= ANSWER_S * 1000


def _late_s(result: kit.Result, flip: Path) -> float:
    """Seconds from "the first 200 was possible" to the exit, without the answer's own second."""
    return result.ended_at - float(flip.read_text().split()[0]) - ANSWER_S


@pytest.mark.parametrize("host", ["local", "ssh"])
def test_an_empty_200_ends_the_wait(host: str, tmp_path: Path, stopped: list[kit.Profile], make_sshd: MakeSshd) -> None:
    env = {}
    if host == "ssh":
        env["SUPERVISOR_SSH_CONFIG"] = str(make_sshd().ssh_config)
    late = []
    for turn in range(scaled(20)):
        flip = tmp_path / f"flip{turn}"
        item = kit.simulated_profile(
            tmp_path, "sglang", *TIMES, "--sim-flip-file", str(flip), host="local" if host == "local" else "node"
        )
        result = kit.run("--headless", str(item), "--json", "--timeout", "30s", env=env)
        assert kit.run("stop", str(item), env=env).code == 0
        _assert_story(result, ["launching", "loading", "warming", "healthy", "serving"])
        late.append(_late_s(result, flip))
    print(f"{host}: first possible 200 to exit, answer's own second taken off: {sorted(late)}")
    assert min(late) < 5.0  # a bound that no load of the machine breaks; the figures are the bench's


def test_an_empty_200_ends_a_wait_for_a_url(tmp_path: Path, tracker: Tracker) -> None:
    for turn in range(scaled(20)):
        port, flip = free_port(), tmp_path / f"flip{turn}"
        command = kit.simulated("sglang", port, *TIMES, "--sim-flip-file", str(flip))
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
            result = kit.run("--headless", "--url", f"http://localhost:{port}/health", "--json", "--timeout", "30s")
            server.terminate()
        _assert_story(result, ["loading", "warming", "healthy"])


def test_the_old_loop_would_have_lied(tmp_path: Path, tracker: Tracker) -> None:
    """The loop of the story, scaled, on the same server: it never sees it. So this test can tell the two apart."""
    port = free_port()
    command = kit.simulated("sglang", port, "--sim-load", "0.1", "--sim-warm", "0.1", "--sim-health-delay", "0.2")
    loop = f'for i in 1 2 3 4; do b=$(curl -s http://127.0.0.1:{port}/health); [ -n "$b" ] && exit 0; sleep 0.3; done'
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        result = kit.run("--headless", "--url", f"http://localhost:{port}/health", "--json", "--timeout", "30s")
        old = subprocess.run(["sh", "-c", loop + "; exit 7"], check=False, timeout=30)
        server.terminate()
    assert result.code == 0
    assert old.returncode == 7


def test_a_takeover_says_so_and_ends_at_once(tmp_path: Path, stopped: list[kit.Profile]) -> None:
    item = kit.simulated_profile(tmp_path, "vllm", "--sim-load", "0.3")
    stopped.append(item)
    assert kit.run("--headless", str(item), "--json").code == 0
    began = time.monotonic()
    second = kit.run("--headless", str(item), "--json")
    assert second.code == 0
    assert "taken over" in str(next(line for line in second.lines if line["kind"] == "phase")["evidence"])
    assert second.phases()[-1] == "serving"
    print(f"takeover of a serving run: {second.ended_at - began:.2f} s")
    status = kit.run("status", str(item), "--json")
    assert status.code == 0
    log = kit.run("logs", str(item))
    assert "SIMULATED" in log.out and "Application startup complete." in log.out


def test_restart_stops_and_launches(tmp_path: Path, stopped: list[kit.Profile]) -> None:
    item = kit.simulated_profile(tmp_path, "vllm", "--sim-load", "0.3")
    stopped.append(item)
    first = kit.run("--headless", str(item), "--json")
    second = kit.run("restart", str(item), "--json")
    assert (first.code, second.code) == (0, 0), second.out + second.err
    runs = [{line["run_id"] for line in result.lines if line["kind"] == "phase"} for result in (first, second)]
    assert len(runs[0] | runs[1]) == 2
    assert kit.run("stop", str(item)).code == 0
    nothing = kit.run("stop", str(item))
    assert nothing.code == 0 and "nothing runs" in nothing.out
    gone = kit.run("status", str(item), "--json")
    assert gone.code == 5 and "stopped by" in gone.summary["reason"]


def test_a_secret_is_nowhere(tmp_path: Path, stopped: list[kit.Profile]) -> None:
    secret = "sk-0123456789-secret"
    item = kit.simulated_profile(
        tmp_path,
        "sglang",
        *("--sim-load", "0.2", "--sim-warm", "0.1", "--sim-health-delay", "0", "--api-key", secret),
        more=f'env = {{ HF_TOKEN = "{secret}-too" }}',
    )
    stopped.append(item)
    record = tmp_path / "record.jsonl"
    result = kit.run("--headless", str(item), "--json", "--events", "all", "--record", str(record))
    assert result.code == 0, result.out  # the command's own key was sent: verification passed
    assert secret not in result.out + result.err + record.read_text()
    for path in tmp_path.rglob("*.json"):
        assert secret not in path.read_text(), path


def test_the_live_server_outlives_an_interrupted_wait(tmp_path: Path, stopped: list[kit.Profile]) -> None:
    item = kit.simulated_profile(tmp_path, "sglang", "--sim-load", "60")
    stopped.append(item)
    command = [*kit.SUPERVISOR, "--headless", str(item), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as wait:
        assert wait.stdout is not None
        for line in wait.stdout:
            if '"to":"loading"' in line:
                break
        wait.terminate()
        rest = wait.stdout.read()
    assert wait.returncode == 143
    assert "left running" in rest
    status = poll(lambda: kit.run("status", str(item), "--json"), 20, "a status")
    assert status.code == 5
    assert status.summary["phase"] == "loading"


def test_stop_and_launch_again_and_again(tmp_path: Path, stopped: list[kit.Profile]) -> None:
    """A stop ends only when the keeper has written it down: else the next launch takes a dead run over."""
    item = kit.simulated_profile(tmp_path, "vllm", "--sim-load", "0.1")
    stopped.append(item)
    for _ in range(scaled(20)):
        result = kit.run("restart", str(item), "--json", "--until", "healthy")
        assert result.code == 0, result.out + result.err


def test_a_url_until_serving_asks_for_a_generation(tmp_path: Path, tracker: Tracker) -> None:
    port = free_port()
    command = kit.simulated("vllm", port, "--sim-load", "0.3")
    url = f"http://localhost:{port}/health"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        words = ("--headless", "--url", url, "--until", "serving", "--json", "--timeout", "30s")
        result = kit.run(*words, "--engine", "vllm")
        refused = kit.run(*words)
        server.terminate()
    assert result.code == 0, result.out + result.err
    assert result.phases()[-2:] == ["healthy", "serving"]
    assert "generated" in str(result.summary["evidence"])
    assert refused.code == 2 and "--engine" in refused.err
