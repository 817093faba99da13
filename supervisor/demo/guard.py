"""Removes what a demonstration leaves, whatever that dies of: it waits for the end of its stdin, and that always comes.

    python -I -S guard.py FOLDER

What was launched by a run in FOLDER is ended (by pid and start time together), then the folder goes. It has a session
of its own, so that nothing that ends the demonstration's terminal ends it too. Standard library only.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

TERM_AFTER_S = 1.5
"""A simulated engine notices by itself that its demonstration is over; a real one has to be told."""
KILL_AFTER_S = 5.0
GIVE_UP_AFTER_S = 20.0
AGAIN_S = 0.2


def main(folder: Path) -> None:
    """Waits, ends, removes."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 4096):
        pass
    began = time.monotonic()
    while (waited_s := time.monotonic() - began) < GIVE_UP_AFTER_S:
        roots, keepers = living(folder)
        if not roots and not keepers:
            break
        for pid in roots:
            if waited_s >= TERM_AFTER_S:
                _signal(pid, signal.SIGKILL if waited_s >= KILL_AFTER_S else signal.SIGTERM)
        time.sleep(AGAIN_S)
    while folder.exists() and time.monotonic() - began < GIVE_UP_AFTER_S:
        shutil.rmtree(folder, ignore_errors=True)  # a program that is about to end may still write into it
        time.sleep(0.05)


def living(folder: Path) -> tuple[list[int], list[int]]:
    """The roots of the runs that are recorded here and live, and the keepers."""
    roots, keepers = [], []
    for path in folder.glob("state/*/*/runs/*/run.json"):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        roots += _alive(record.get("root"))
        keepers += _alive(record.get("keeper"))
    return roots, keepers


def _alive(identity: dict[str, int] | None) -> list[int]:
    """Its pid while this very process lives."""
    if not identity:
        return []
    try:
        fields = Path(f"/proc/{identity['pid']}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
    return [identity["pid"]] if fields[0] not in "ZX" and int(fields[19]) == identity["start_ticks"] else []


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        pass  # it has just ended


if __name__ == "__main__":
    main(Path(sys.argv[1]))
