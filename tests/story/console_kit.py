"""The real console in a real terminal, for the stories: what stands on its screen, read as a user reads it.

Only what lasts is looked for: marks, names, numbers. Where a thing stands and how it is worded may change, and no story
may break by it.
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import psutil

from tests.conftest import MakeTmux
from tests.real import processes
from tests.real.sshd import Sshd
from tests.real.tmux import Tmux
from tests.story import kit

T = TypeVar("T")

PATIENCE_S = 60.0
"""For what takes a second or two: two cores, and other tests beside this one."""
USUAL, SMALL, LARGE = (120, 40), (80, 24), (200, 60)

_STEP = re.compile(r"([✔●–○▲✘■]) (preflight|launching|loading|503|200|serving|degraded|stopping|stopped)")
_AHEAD = "○–"
"""Marks of what was not entered: it is still to come, or was skipped."""
_LOG_TOP = re.compile(r"^╭─+ ?log\b")
_LOG_ROW = re.compile(r"^\s*(\d+)  (.*)$")
_SCROLLBAR = " ▁▂▃▄▅▆▇█"
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def environment(folder: Path, sshd: Sshd | None = None) -> dict[str, str]:
    """What a console is started with: this checkout's program, and nothing of the user's own settings."""
    found = {"PYTHONPATH": str(kit.CHECKOUT), "XDG_CONFIG_HOME": str(folder / "config")}
    found["XDG_CACHE_HOME"] = str(folder / "cache")
    if sshd is not None:
        found["SUPERVISOR_SSH_CONFIG"] = str(sshd.ssh_config)
    return found


class Console:
    """One console. Keys go in, the screen comes out."""

    def __init__(self, terminal: Tmux) -> None:
        self.terminal = terminal

    def __repr__(self) -> str:
        return f"<Console {self.terminal.pid}>"

    # ------------------------------------------------------------------------------- hands

    def press(self, *keys: str) -> None:
        """Keys by tmux's names."""
        self.terminal.send_keys(*keys)

    def type(self, text: str) -> None:
        """Text into an input."""
        self.terminal.type_text(text)

    def resize(self, size: tuple[int, int]) -> None:
        """Another size of the terminal; over when the keys stand at its new foot."""

        def fills(screen: str) -> bool:
            foot = screen.splitlines()[size[1] - 1 :]
            return any(" help" in row and " quit" in row for row in foot)

        self.terminal.resize(*size)
        self.until_holds(fills, f"the keys at the foot of {size[0]}x{size[1]}")

    @property
    def farewell(self) -> str:
        """What stands on the terminal after the console has gone, as if it were not wrapped."""
        return self.terminal.capture(history=True).replace("\n", "")

    # ------------------------------------------------------------------------------- eyes

    @property
    def screen(self) -> str:
        """What stands there now."""
        return self.terminal.capture()

    def until_holds(self, holds: Callable[[str], T | None], what: str, timeout_s: float = PATIENCE_S) -> str:
        """The first screen for which `holds` says something true."""
        self.found(holds, what, timeout_s)
        return self._last

    def found(self, look: Callable[[str], T | None], what: str, timeout_s: float = PATIENCE_S) -> T:
        """What `look` finds on the first screen on which it finds something."""
        self._last = ""

        def at_it() -> T | None:
            self._last = self.screen
            return look(self._last)

        try:
            return processes.poll(at_it, timeout_s, what)
        except AssertionError as error:
            raise AssertionError(f"{error}; the screen shows:\n{self._last}") from None

    def until(self, *texts: str | re.Pattern[str], timeout_s: float = PATIENCE_S) -> str:
        """The first screen that has all of them."""
        return self.until_holds(lambda screen: all(_has(screen, text) for text in texts), f"{texts}", timeout_s)

    def until_gone(self, *texts: str | re.Pattern[str], timeout_s: float = PATIENCE_S) -> str:
        """The first screen that has none of them."""
        return self.until_holds(
            lambda screen: not any(_has(screen, text) for text in texts), f"a screen without {texts}", timeout_s
        )

    def until_phase(self, name: str, timeout_s: float = PATIENCE_S) -> str:
        """The first screen whose strip stands there."""
        return self.until_holds(lambda screen: phase(screen) == name, f"the phase {name}", timeout_s)

    def still_rows(self, *, after: int, timeout_s: float = PATIENCE_S) -> dict[int, str]:
        """The rows of the log as soon as they have come to rest and go beyond this line: a page may glide in."""
        before: dict[int, str] = {}

        def look() -> dict[int, str] | None:
            nonlocal before
            rows, last = log_rows(self.screen), before
            before = rows
            return rows if rows == last and max(rows, default=0) > after else None

        return processes.poll(look, timeout_s, f"rows after {after}", pause_s=0.08)

    def until_quit(self, timeout_s: float = PATIENCE_S) -> int:
        """The console's exit status, minus a signal's number."""
        return self.terminal.wait_exit(timeout_s)


def _has(screen: str, text: str | re.Pattern[str]) -> bool:
    return text in screen if isinstance(text, str) else text.search(screen) is not None


def start(
    make_tmux: MakeTmux,
    *words: str,
    env: Mapping[str, str],
    size: tuple[int, int] = USUAL,
    cwd: Path | None = None,
) -> Console:
    """`supervisor WORDS` in a terminal of its own."""
    command = [sys.executable, "-m", "supervisor.cli", *words]
    return Console(make_tmux(command, width=size[0], height=size[1], environment=env, cwd=cwd))


# ------------------------------------------------------------------------------------------- reading a screen


def steps(screen: str) -> list[tuple[str, str]]:
    """The phase strip: (mark, name) in the order in which they stand."""
    for row in screen.splitlines():
        found = _STEP.findall(row)
        if len(found) >= 2 and "launching" in row:
            return [(mark, name) for mark, name in found]
    return []


def phase(screen: str) -> str:
    """Where the strip stands; empty while nothing was entered."""
    entered = [name for mark, name in steps(screen) if mark not in _AHEAD]
    return entered[-1] if entered else ""


def log_box(screen: str) -> list[str]:
    """What stands in the log's pane, row by row, without its frame."""
    rows: list[str] = []
    inside = False
    for row in screen.splitlines():
        if _LOG_TOP.match(row):
            inside = True
        elif row.startswith("╰"):
            inside = False
        elif inside and row.startswith("│") and row.endswith("│"):
            rows.append(row[1:-1].rstrip(_SCROLLBAR))
    return rows


def log_rows(screen: str) -> dict[int, str]:
    """The lines in the log's pane by the numbers that stand before them; a narrow screen has no numbers."""
    found = (_LOG_ROW.match(row) for row in log_box(screen))
    return {int(row[1]): row[2] for row in found if row}


def _frame(row: str) -> str:
    """A row's frame alone."""
    found = plain(row)
    return found if found.startswith(("╭", "╰")) else ""


def plain(coloured: str) -> str:
    """A coloured screen as it reads."""
    return _ESCAPES.sub("", coloured)


def highlighted(coloured: str, text: str) -> set[int]:
    """The numbers of the log's lines on which `text` is set apart from what stands around it."""
    apart = re.compile(rf"\x1b\[[0-9;]*m{re.escape(text)}\x1b\[")
    return set(log_rows("\n".join(plain(row) if apart.search(row) else _frame(row) for row in coloured.splitlines())))


def widest(screen: str) -> int:
    """Cells of the longest row."""
    return max(
        sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in row)
        for row in screen.splitlines()
    )


# ------------------------------------------------------------------------------------------- the server's side


def records(item: kit.Profile) -> list[Path]:
    """The folder of every run that the profile ever had, oldest first."""
    return sorted(path.parent for path in item.state_dir.glob(f"*/{item.name}/runs/*/run.json"))


def server_of(item: kit.Profile) -> psutil.Process:
    """The root process of the newest run, by the node's own records: the keeper writes it down once it has started."""

    def look() -> psutil.Process | None:
        found = records(item)
        root = json.loads((found[-1] / "run.json").read_text())["root"] if found else None
        return psutil.Process(root["pid"]) if root else None

    return processes.poll(look, PATIENCE_S, "the server's pid in its run's record")


def tree_of(item: kit.Profile) -> list[psutil.Process]:
    """The root and all below it."""
    root = server_of(item)
    return [root, *processes.descendants(root)]


def log_of(item: kit.Profile) -> list[str]:
    """The lines of the newest run's log, as the file on the node has them."""
    # Not read_text: it would make lines of the carriage returns of a progress bar.
    return (records(item)[-1] / "log").read_bytes().decode("utf-8", "replace").split("\n")[:-1]
