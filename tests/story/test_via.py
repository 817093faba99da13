"""`--url URL --via HOST`: as the node sees it, through SSH, with no port opened here and no line in the node's log."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.conftest import MakeSshd
from tests.real.ports import free_port
from tests.real.processes import Tracker
from tests.story import kit


def test_an_endpoint_as_the_node_sees_it(tracker: Tracker, make_sshd: MakeSshd) -> None:
    sshd = make_sshd(LogLevel="VERBOSE")
    env = {"SUPERVISOR_SSH_CONFIG": str(sshd.ssh_config)}
    port = free_port()
    command = kit.simulated("sglang", port, "--sim-load", "3", "--sim-warm", "0.5", "--sim-health-delay", "0.1")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        url = f"http://localhost:{port}/health"
        result = kit.run("--headless", "--url", url, "--via", "node", "--json", "--timeout", "30s", env=env)
        server.terminate()
    assert result.code == 0, result.out + result.err
    assert result.phases() == ["loading", "warming", "healthy"]
    refused = result.summary["answers"]["refused"]
    assert refused >= 10, "the port was looked at while nothing listened"
    log = sshd.log_text()
    assert "connect_to" not in log and "failed" not in log.lower(), log


def test_an_unknown_host_key_ends_at_once(tracker: Tracker, make_sshd: MakeSshd, tmp_path: Path) -> None:
    sshd = make_sshd()
    config = tmp_path / "config"
    text = sshd.ssh_config.read_text()
    config.write_text(text.replace(str(sshd.known_hosts), str(tmp_path / "empty_known_hosts")))
    env = {"SUPERVISOR_SSH_CONFIG": str(config)}
    result = kit.run("--headless", "--url", "http://localhost:1/", "--via", "node", "--json", env=env)
    assert result.code == 3, result.out + result.err
    assert "SHA256:" in result.summary["reason"] and "host_key" in result.summary["reason"]


def test_a_node_that_is_not_there(tracker: Tracker) -> None:
    target = f"ssh://nobody@127.0.0.1:{free_port()}"
    words = ("--headless", "--url", "http://localhost:1/", "--via", target, "--link-timeout", "1s", "--json")
    result = kit.run(*words, env={"SUPERVISOR_SSH_CONFIG": "none"})
    assert result.code == 3, result.out + result.err
    assert "--link-timeout" in result.summary["reason"]
