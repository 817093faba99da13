"""Each real part proved, with the faults that other tests provoke with it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import asyncssh
import psutil
import pytest

from tests.conftest import MakeSshd, MakeTmux
from tests.real import llama as models
from tests.real import parts, processes, vllm
from tests.real.llama import LlamaServer
from tests.real.netns import NetworkNamespace
from tests.real.ports import free_port
from tests.real.processes import Tracker
from tests.real.sshd import ALIAS, Sshd


def connect(server: Sshd, **options: object) -> contextlib.AbstractAsyncContextManager[asyncssh.SSHClientConnection]:
    """As a user's own configuration would have it."""
    return asyncssh.connect(ALIAS, config=[str(server.ssh_config)], **options)


# ------------------------------------------------------------------------------------------------ sshd


@pytest.mark.asyncio
async def test_a_session_has_the_empty_home_and_the_mark(tracker: Tracker, make_sshd: MakeSshd, tmp_path: Path) -> None:
    server = make_sshd(home=tmp_path / "node-home")
    async with connect(server) as connection:
        result = await connection.run("echo $HOME; echo $SUPERVISOR_TEST_MARK; id -un", check=True)
        assert str(result.stdout).split() == [str(tmp_path / "node-home"), tracker.mark, server.user]
        assert len(server.session_pids()) >= 1
        assert server.pid not in server.session_pids()
    assert "Accepted publickey" in server.log_text()


def test_the_real_client_finds_the_alias(sshd: Sshd) -> None:
    result = subprocess.run(sshd.ssh_command("echo", "hello"), capture_output=True, text=True, timeout=20, check=False)
    assert (result.returncode, result.stdout) == (0, "hello\n"), result.stderr


@pytest.mark.asyncio
async def test_an_option_is_obeyed(make_sshd: MakeSshd) -> None:
    server = make_sshd(allowtcpforwarding="no", LogLevel="QUIET")
    async with connect(server) as connection:
        with pytest.raises(asyncssh.ChannelOpenError) as caught:
            await connection.open_connection("127.0.0.1", server.port)
        assert caught.value.code == asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED
    assert "Accepted" not in server.log_text()


@pytest.mark.asyncio
async def test_a_forced_command_stands_in_for_a_strange_login_shell(make_sshd: MakeSshd) -> None:
    server = make_sshd(ForceCommand='echo banner; exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"')
    async with connect(server) as connection:
        assert (await connection.run("echo asked", check=True)).stdout == "banner\nasked\n"


@pytest.mark.asyncio
async def test_sessions_outlive_their_listener_until_stop(make_sshd: MakeSshd) -> None:
    server = make_sshd()
    async with connect(server) as connection:
        server.stop_listener()
        assert (await connection.run("echo still", check=True)).stdout == "still\n"
        server.start()
        assert (await connection.run("echo still", check=True)).stdout == "still\n"
        server.stop()
        await asyncio.wait_for(connection.wait_closed(), 5)


@pytest.mark.asyncio
async def test_sessions_break_and_the_listener_comes_back(make_sshd: MakeSshd) -> None:
    server = make_sshd()
    async with connect(server) as connection:
        server.kill_sessions()
        await asyncio.wait_for(connection.wait_closed(), 5)
    server.stop()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(server.address, server.port)
    server.start()
    async with connect(server) as connection:
        assert (await connection.run("echo again", check=True)).stdout == "again\n"


@pytest.mark.asyncio
async def test_a_frozen_session_is_silent_until_it_thaws(make_sshd: MakeSshd) -> None:
    server = make_sshd()
    async with connect(server) as connection:
        server.freeze_sessions()
        reply = asyncio.create_task(connection.run("echo late", check=True))
        done, _ = await asyncio.wait([reply], timeout=0.3)
        assert not done
        server.thaw_sessions()
        assert (await asyncio.wait_for(reply, 5)).stdout == "late\n"


@pytest.mark.asyncio
async def test_stop_ends_a_frozen_session_too(make_sshd: MakeSshd) -> None:
    server = make_sshd()
    async with connect(server):
        sessions = server.sessions()
        assert sessions
        server.freeze_sessions()
        server.stop()
        assert not [session for session in sessions if processes.alive(session)]


# ------------------------------------------------------------------------------------------------ llama-server


@contextlib.contextmanager
def serving(server: LlamaServer, model: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A started server and its URL; it need not answer yet."""
    port = free_port()
    process = subprocess.Popen(server.command(model, port), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process, f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(10)


def status_of(url: str) -> int | None:
    """The status, None while nothing answers."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except (urllib.error.URLError, ConnectionError):
        return None


def test_llama_server_says_503_then_200_and_generates(tracker: Tracker, llama: LlamaServer) -> None:
    with serving(llama, models.tiny_model()) as (process, url):
        seen: list[int | None] = []

        def look() -> bool:
            status = status_of(url + "/health")
            if status not in seen[-1:]:
                seen.append(status)
            return status == 200

        processes.poll(look, 20, "200", pause_s=0.001)
        assert seen in ([None, 503, 200], [503, 200])  # the first look may come after the listening began
        body = json.dumps({"prompt": "The", "n_predict": 4, "temperature": 0}).encode()
        request = urllib.request.Request(url + "/completion", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=20) as answer:
            assert json.load(answer)["content"]
        process.terminate()  # the wrapper execs: the signal reaches the server itself, which leaves with 0
        assert process.wait(10) == 0


def test_a_model_is_made_once(llama: LlamaServer) -> None:
    first = models.tiny_model()
    made_at_ns = first.stat().st_mtime_ns
    assert models.tiny_model() == first
    assert first.stat().st_mtime_ns == made_at_ns
    assert 200_000 < first.stat().st_size < 400_000


# ------------------------------------------------------------------------------------------------ vLLM


@pytest.mark.heavy_engine
def test_vllm_refuses_until_it_is_ready_and_generates(tracker: Tracker, tmp_path: Path) -> None:
    parts.require_real("vLLM")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    log = tmp_path / "vllm.log"
    environment = {**os.environ, **vllm.ENVIRONMENT}
    with log.open("wb") as out:
        process = subprocess.Popen(vllm.command(port), env=environment, stdout=out, stderr=subprocess.STDOUT)
    try:
        seen: set[int | None] = set()

        def look() -> bool:
            assert process.poll() is None, log.read_text()[-4000:]
            status = status_of(url + "/health")
            seen.add(status)
            return status == 200

        processes.poll(look, 180, f"200 of vLLM; see {log}", pause_s=0.1)
        assert seen == {None, 200}  # no 503 on the way: loading is seen by process and log alone
        body = json.dumps({"model": "tiny", "prompt": "The", "max_tokens": 4}).encode()
        request = urllib.request.Request(url + "/v1/completions", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert json.load(answer)["choices"]
        process.terminate()
        assert process.wait(30) == 0
    finally:
        processes.end(tracker.alive())
        process.wait(10)


# ------------------------------------------------------------------------------------------------ tmux


def test_tmux_shows_text_takes_keys_and_tells_the_end(tracker: Tracker, make_tmux: MakeTmux) -> None:
    script = 'stty size; read -r line; echo "you said $line"; exit 7'
    terminal = make_tmux(["/bin/sh", "-c", script], width=61, height=9)
    terminal.wait_for("9 61")
    assert terminal.exit_status() is None
    terminal.type_text("Enter")
    terminal.send_keys("Enter")
    terminal.wait_for("you said Enter")
    assert terminal.wait_exit() == 7
    assert "you said Enter" in terminal.capture()


def test_tmux_tells_the_screen_when_the_text_does_not_come(make_tmux: MakeTmux) -> None:
    terminal = make_tmux(["/bin/sh", "-c", "printf '\\033[31mred\\033[0m'; exec cat"])
    terminal.wait_for("red")
    assert "\x1b[31mred" in terminal.capture(colours=True)
    with pytest.raises(AssertionError, match=r"'green'; the screen shows:\nred"):
        terminal.wait_for("green", timeout_s=0.1)


def test_tmux_leaves_nothing_even_of_a_deaf_command(tracker: Tracker, make_tmux: MakeTmux) -> None:
    terminal = make_tmux(["/bin/sh", "-c", "trap '' HUP TERM; echo deaf; while :; do read -r _ || :; done"])
    terminal.wait_for("deaf")
    assert tracker.alive()
    terminal.close()
    assert not tracker.alive()


# ------------------------------------------------------------------------------------------------ network namespaces


def test_a_network_can_be_muted_reset_and_restored(network_namespace: NetworkNamespace) -> None:
    network = network_namespace
    with echo_server(network, 7007) as talk:
        assert talk(b"one", timeout_s=5) == b"one"
        network.drop()
        with pytest.raises(TimeoutError):
            talk(b"two", timeout_s=0.3)
        network.restore()
        assert talk(b"", timeout_s=10) == b"two"  # TCP sends it again: the same connection goes on
        network.reset(7007)
        with pytest.raises(ConnectionResetError):
            talk(b"three", timeout_s=5)


def test_a_network_can_be_slowed(network_namespace: NetworkNamespace) -> None:
    payload = b"x" * 60_000
    with echo_server(network_namespace, 7007) as talk:
        network_namespace.slow(200_000)
        began = time.monotonic()
        assert talk(payload, timeout_s=10) == payload
        slow_s = time.monotonic() - began
        assert slow_s > 0.2  # 60 kB at 200 kB/s, less what the bucket lets through at once
        network_namespace.restore()
        began = time.monotonic()
        assert talk(payload, timeout_s=10) == payload
        assert time.monotonic() - began < slow_s / 2


@pytest.mark.asyncio
async def test_sshd_runs_inside_a_network(network_namespace: NetworkNamespace, make_sshd: MakeSshd) -> None:
    server = make_sshd(address=network_namespace.address, prefix=network_namespace.prefix)
    async with connect(server, keepalive_interval=0.2, keepalive_count_max=2) as connection:
        assert network_namespace.gateway in str((await connection.run("echo $SSH_CLIENT", check=True)).stdout)
        network_namespace.drop()
        await asyncio.wait_for(connection.wait_closed(), 5)
        network_namespace.restore()


def test_a_closed_network_leaves_nothing(require_real: object) -> None:
    parts.require_real("network namespaces")
    with NetworkNamespace() as network:
        inside = subprocess.Popen([*network.prefix, "sleep", "60"])
        names = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
        assert network.name in names
    assert inside.wait(5) == -signal.SIGTERM
    for question in (["ip", "-o", "link"], ["ip", "netns", "list"]):
        assert network.name not in subprocess.run(question, capture_output=True, text=True, check=True).stdout


class Talk:
    """One kept connection to an echo server."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def __call__(self, words: bytes, timeout_s: float) -> bytes:
        """What comes back after `words` were sent; with no words, what is still due."""
        self._connection.settimeout(timeout_s)
        self._connection.sendall(words)
        back = self._connection.recv(1 << 20)
        while len(back) < len(words):
            back += self._connection.recv(1 << 20)
        return back


ECHO = """
import socket, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("listening", flush=True)
connection, _ = listener.accept()
while True:
    connection.sendall(connection.recv(1 << 20))
"""


@contextlib.contextmanager
def echo_server(network: NetworkNamespace, port: int) -> Iterator[Talk]:
    words = [*network.prefix, sys.executable, "-c", ECHO, network.address, str(port)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"listening\n"
            with socket.create_connection((network.address, port), timeout=5) as connection:
                yield Talk(connection)
        finally:
            process.kill()


# ------------------------------------------------------------------------------------------------ the helpers


def test_a_survivor_is_told_and_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    tracked = Tracker("a-mark-of-its-own")
    # A daemon as good as any: own session, its parent gone.
    detach = "import subprocess as s; print(s.Popen(['sleep', '60'], start_new_session=True, stdout=s.DEVNULL).pid)"
    environment = {**os.environ, **tracked.environment}
    result = subprocess.run([sys.executable, "-c", detach], env=environment, stdout=subprocess.PIPE, check=True)
    survivor = psutil.Process(int(result.stdout))
    with pytest.raises(AssertionError, match=f"(?s)outlived.*{survivor.pid} sleep 60"):
        tracked.assert_none_left(timeout_s=0.1)
    assert not processes.alive(survivor)
    tracked.assert_none_left(timeout_s=0.1)


def test_a_port_is_free_and_comes_once() -> None:
    ports = [free_port() for _ in range(20)]
    assert len(set(ports)) == 20
    for port in ports:
        with socket.create_server(("127.0.0.1", port)):
            pass


def test_a_missing_part_skips_by_name_or_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(parts.PARTS, "a loom", lambda: "no loom here")
    monkeypatch.delenv("SUPERVISOR_REQUIRE_REAL", raising=False)
    with pytest.raises(pytest.skip.Exception, match="real part missing: a loom: no loom here") as skipped:
        parts.require_real("a loom")
    line = parts.summary([("tests/test_x.py::test_weaves", str(skipped.value)), ("tests/test_y.py::test_z", "other")])
    assert "a loom ✗ (no loom here)" in line
    assert line.endswith("(tests skipped by name: tests/test_x.py::test_weaves)")
    monkeypatch.setenv("SUPERVISOR_REQUIRE_REAL", "1")
    with pytest.raises(pytest.fail.Exception, match="a loom"):
        parts.require_real("a loom")
