"""A signal reaches the process that is meant, or nobody."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from supervisor.errors import NodeRequestError
from supervisor.node import proc, signals
from tests.node.conftest import Json, Node


@pytest.fixture
def sleeper() -> Iterator[Json]:
    """A process that waits to be signalled: its identity."""
    process = subprocess.Popen(["/bin/sleep", "600"])
    found = proc.stat(process.pid)
    assert found is not None
    try:
        yield {"pid": process.pid, "start_ticks": found["start_ticks"], "process": process}
    finally:
        process.kill()
        process.wait()


@pytest.fixture(params=["os", "ctypes", "none"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the standard library's pidfds, with those by ctypes (Python 3.8), and on a kernel without any."""
    how: str = request.param
    if how != "os":
        monkeypatch.delattr(os, "pidfd_open")
        monkeypatch.delattr(signal, "pidfd_send_signal")
    if how == "none":

        class NoSyscall:
            def syscall(self, *_: int) -> int:
                ctypes.set_errno(errno.ENOSYS)
                return -1

        monkeypatch.setattr(signals, "_libc", NoSyscall())
    return how


def _end(target: Json, timeout_s: float) -> int | None:
    try:
        return int(target["process"].wait(timeout_s))
    except subprocess.TimeoutExpired:
        return None


@pytest.mark.parametrize("name", ["TERM", "KILL", "INT"])
def test_the_meant_one_gets_it(sleeper: Json, kernel: str, name: str) -> None:
    told = signals.send([sleeper], name)
    assert told == {
        "sent": [sleeper["pid"]],
        "gone": [],
        "denied": [],
        "how": "identity" if kernel == "none" else "pidfd",
    }
    assert _end(sleeper, 5) == -getattr(signal, "SIG" + name)
    assert signals.have_pidfd() == (kernel != "none")


@pytest.mark.usefixtures("kernel")
def test_another_process_with_that_pid_gets_nothing(sleeper: Json) -> None:
    told = signals.send([{"pid": sleeper["pid"], "start_ticks": sleeper["start_ticks"] - 1}], "KILL")
    assert told["gone"] == [sleeper["pid"]] and told["sent"] == []
    assert _end(sleeper, 0.2) is None


@pytest.mark.usefixtures("kernel")
def test_the_dead_and_the_zombie_are_gone(sleeper: Json) -> None:
    sleeper["process"].send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, sleeper["pid"], os.WEXITED | os.WNOWAIT)  # a zombie: dead, not reaped
    assert signals.send([sleeper], "KILL")["gone"] == [sleeper["pid"]]
    sleeper["process"].wait()
    assert signals.send([sleeper], "KILL")["gone"] == [sleeper["pid"]]


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("pid", [1, 0, -1, "ours"])
def test_never_the_first_process_a_group_or_ourselves(pid: int | str) -> None:
    pid = os.getpid() if isinstance(pid, str) else pid
    found = proc.stat(pid) if pid > 0 else None
    ticks = found["start_ticks"] if found else 0
    assert signals.send([{"pid": pid, "start_ticks": ticks}], "KILL") == {
        "sent": [],
        "gone": [],
        "denied": [pid],
        "how": "pidfd",
    }


@pytest.mark.asyncio
async def test_an_unknown_signal_is_refused_and_nobody_is_hurt(node: Node, sleeper: Json) -> None:
    target = {"pid": sleeper["pid"], "start_ticks": sleeper["start_ticks"]}
    with pytest.raises(NodeRequestError):
        await node.client.request("signal", targets=[target], signal="STOP")
    assert _end(sleeper, 0.1) is None
    told = await node.client.request("signal", targets=[target, {"pid": 1, "start_ticks": 0}], signal="KILL")
    assert told == {"sent": [target["pid"]], "gone": [], "denied": [1], "how": "pidfd"}


THREADS_LIVE = """
import ctypes, os, threading
reader, writer = os.pipe()
threading.Thread(target=lambda: os.read(reader, 1)).start()
print("up", flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""


@pytest.mark.usefixtures("kernel")
def test_a_zombie_whose_threads_live_is_alive_and_can_be_ended() -> None:
    """Its leader has ended and cannot be reaped; all that it holds is held, GPU memory too."""
    process = subprocess.Popen([sys.executable, "-c", THREADS_LIVE], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"up\n"
        found = proc.stat(process.pid)
        while found is not None and found["state"] != "Z":
            found = proc.stat(process.pid)
        assert found is not None
        target = {"pid": process.pid, "start_ticks": found["start_ticks"]}
        assert proc.alive(**target) and proc.describe(process.pid) is not None
        assert signals.send([target], "KILL")["sent"] == [process.pid]
        assert process.wait(5) == -signal.SIGKILL
        assert not proc.alive(**target)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
