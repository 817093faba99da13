"""A terminal that goes away while the console draws on it: the console ends, the server does not."""

from __future__ import annotations

import errno
import io
import os
import pty
import select
import signal
import time
from pathlib import Path

from supervisor.tui.terminal import Outlet
from tests.real import processes
from tests.story import kit

PATIENCE_S = 30.0


class Gone(io.StringIO):
    """A terminal that was hung up."""

    tries = 0

    def write(self, text: str) -> int:
        self.tries += 1
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_what_is_written_to_a_terminal_that_has_gone_is_thrown_away_and_told_once() -> None:
    file, told = Gone(), []
    outlet = Outlet(file, lambda: told.append("gone"))
    for _ in range(100):
        outlet.write("picture")
        outlet.flush()
    assert told == ["gone"]
    assert file.tries == 1


def test_a_hung_up_console_ends_with_129_and_its_server_goes_on(tmp_path: Path) -> None:
    profile = kit.simulated_profile(tmp_path, "sglang", "--sim-load", "0.2")
    pid, master = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", XDG_CONFIG_HOME=str(tmp_path), LINES="40", COLUMNS="120")
        os.execv(kit.SUPERVISOR[0], [*kit.SUPERVISOR, str(profile)])
    try:
        _read_until(master, "✔ serving".encode())
        os.close(master)  # what a killed tmux and a lost ssh do
        status = processes.poll(lambda: _ended(pid), PATIENCE_S, "the console's end")
        assert os.waitstatus_to_exitcode(status[0]) == 129
        assert kit.run("status", str(profile)).code == 0, "it serves"
    finally:
        if _ended(pid) is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        kit.run("stop", str(profile))


def _read_until(master: int, wanted: bytes) -> None:
    seen, until = b"", time.monotonic() + PATIENCE_S
    while wanted not in seen:
        ready, _, _ = select.select([master], [], [], until - time.monotonic())
        assert ready, seen[-2000:]
        seen += os.read(master, 65536)


def _ended(pid: int) -> tuple[int] | None:
    try:
        found, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return (0,)  # it was waited for
    return (status,) if found else None
