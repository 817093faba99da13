"""A pid namespace of its own: there a test may choose the next pid, and all that is left ends with it. Needs root."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

NEXT_PID = Path("/proc/sys/kernel/ns_last_pid")


def inside(command: Sequence[str]) -> list[str]:
    """The words that run a command in one. Its shell is pid 1 there, so the command is a process like any other."""
    return [
        "unshare",
        "--pid",
        "--fork",
        "--mount-proc",
        "--kill-child",
        "/bin/sh",
        "-c",
        '"$0" "$@"; exit $?',
        *command,
    ]


@cache
def missing() -> str | None:
    """Why there is none, None when there is. Makes one to know: containers forbid it."""
    if os.geteuid() != 0:
        return "not root"
    if shutil.which("unshare") is None:
        return "no unshare (Debian: util-linux)"
    done = subprocess.run(inside(["/bin/sh", "-c", f"echo 300 > {NEXT_PID}"]), capture_output=True, text=True)
    return None if done.returncode == 0 else f"not allowed here: {done.stderr.strip()[-200:]}"
