"""A real terminal to run the console in: one tmux server per instance, on a socket of its own.

with Tmux([".venv/bin/supervisor", "demo"], width=100, height=30) as terminal:
    terminal.wait_for("serving")
    terminal.send_keys("q")
    assert terminal.wait_exit() == 0
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import psutil

from tests.real import processes

_numbers = itertools.count(1)

# Set before the window's command is run. remain-on-exit: the last screen, with a traceback on it maybe, can be read
# after the end.
_OPTIONS = (
    ("remain-on-exit", "on"),
    ("status", "off"),
    ("history-limit", "10000"),
    ("default-terminal", "screen-256color"),
)


def missing() -> str | None:
    """Why no tmux can be run here, None when it can."""
    return None if shutil.which("tmux") else "no tmux (Debian: tmux)"


class Tmux:
    """One window with one command in it."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        width: int = 100,
        height: int = 30,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self._socket = f"isup-test-{os.getpid()}-{next(_numbers)}"
        added = [f"-e{key}={value}" for key, value in {"COLORTERM": "truecolor", **(environment or {})}.items()]
        # A size in the environment (xdist's workers have one) would be believed before that of the terminal.
        outer = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith("TMUX") and key not in ("COLUMNS", "LINES")
        }
        # tmux wants a UTF-8 locale and a known terminal of its client, which under CI has neither.
        outer.update(LC_ALL="C.UTF-8", TERM="xterm-256color")
        self._environment = outer
        options = [word for key, value in _OPTIONS for word in ("set", "-g", key, value, ";")]
        self._run(
            *("-f", "/dev/null", "start-server", ";", *options),
            *("new-session", "-d", "-x", str(width), "-y", str(height), "-c", str(cwd or Path.cwd())),
            *added,
            shlex.join(command),
        )
        self._server_pid = int(self._display("#{pid}"))
        self.pid = int(self._display("#{pane_pid}"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the command and the server, and waits until both are gone."""
        mine = [psutil.Process(pid) for pid in (self.pid, self._server_pid) if psutil.pid_exists(pid)]
        mine += [child for process in mine for child in processes.descendants(process) if child not in mine]
        subprocess.run(self._words("kill-server"), env=self._environment, capture_output=True, check=False)
        processes.end(processes.wait_gone(mine, 2), timeout_s=0.5)  # the hangup that the command gets is its cue to go
        (Path(os.environ.get("TMUX_TMPDIR", "/tmp")) / f"tmux-{os.getuid()}" / self._socket).unlink(missing_ok=True)

    # ------------------------------------------------------------------------------------------------ hands

    def send_keys(self, *keys: str) -> None:
        """Keys by tmux's names: "q", "Enter", "C-c", "Up", "M-x"."""
        self._run("send-keys", *keys)

    def type_text(self, text: str) -> None:
        """Text as it stands, never read as a key's name."""
        self._run("send-keys", "-l", "--", text)

    def resize(self, width: int, height: int) -> None:
        self._run("resize-window", "-x", str(width), "-y", str(height))

    # ------------------------------------------------------------------------------------------------ eyes

    def capture(self, *, colours: bool = False, history: bool = False) -> str:
        """What the screen shows; with escape sequences where `colours`, with what scrolled off where `history`."""
        more = (["-e"] if colours else []) + (["-S", "-"] if history else [])
        return self._run("capture-pane", "-p", *more)

    def wait_for(self, text: str | re.Pattern[str], timeout_s: float = 10.0) -> str:
        """The first screen that has `text`, or that the pattern finds. `AssertionError` with the screen else."""
        screen = ""

        def look() -> str | None:
            nonlocal screen
            screen = self.capture()
            found = text in screen if isinstance(text, str) else text.search(screen)
            return screen if found else None

        try:
            return processes.poll(look, timeout_s, f"{text!r}")
        except AssertionError as error:
            raise AssertionError(f"{error}; the screen shows:\n{screen}") from None

    def exit_status(self) -> int | None:
        """The command's exit status, None while it runs."""
        dead, status, signal = self._display("#{pane_dead},#{pane_dead_status},#{pane_dead_signal}").split(",")
        if dead != "1":
            return None
        return int(status) if status else -int(signal) if signal else self._unreaped()

    def _unreaped(self) -> int | None:
        """The exit status of a command that tmux 3.3 never waits for: its end came before that of its terminal."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None  # it was waited for just now
        return os.waitstatus_to_exitcode(int(fields[49])) if fields[0] == "Z" else None

    def wait_exit(self, timeout_s: float = 10.0) -> int:
        """The exit status, minus the signal's number where one ended it."""
        return processes.poll(lambda: _boxed(self.exit_status()), timeout_s, f"its end; {self.capture()}")[0]

    # ------------------------------------------------------------------------------------------------ tmux

    def _display(self, form: str) -> str:
        return self._run("display-message", "-p", form).strip()

    def _words(self, *words: str) -> list[str]:
        return ["tmux", "-u", "-L", self._socket, *words]

    def _run(self, *words: str) -> str:
        result = subprocess.run(self._words(*words), env=self._environment, capture_output=True, text=True, check=False)
        assert result.returncode == 0, f"tmux {shlex.join(words)}: {result.stderr}"
        return result.stdout


def _boxed(status: int | None) -> tuple[int] | None:
    return None if status is None else (status,)  # poll takes 0 for an answer only so
