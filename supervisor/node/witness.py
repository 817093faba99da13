"""What the keeper sees beside the end itself: children that die, memory that runs out. Written into exit.json.

It only looks: nothing of the run is touched, and what cannot be looked at is told as that.
"""

from __future__ import annotations

import os
import time
from typing import Any, Callable, Dict, List

from . import deaths, oom, proc, records

Json = Dict[str, Any]

PACE_S = ((5.0, 0.2), (180.0, 1.0), (float("inf"), 5.0))
"""Until which age of the run it is looked how often for new children: most are born at the beginning. An end needs no
look: it tells itself."""


class Witness:
    """Made before the run is started, in the process that starts it.

    Args:
        tell: hears of each child that ended badly, as a document for those who watch the run.
    """

    def __init__(self, name_of: Callable[[int], str], tell: Callable[[Json], None]) -> None:
        self._deaths = deaths.Deaths(name_of)
        self._memory = oom.Record(os.getpid())
        self._tell = tell
        self._run: Json = {}
        self._began = self._looked = time.monotonic()

    def begin(self, run: Json) -> None:
        """The run has its root now."""
        self._run = run

    def fileno(self) -> int:
        """Becomes readable when a child ends; `ended` is to be called then."""
        return self._deaths.fileno()

    def pause_s(self) -> float:
        """Until the next `look` is due, about."""
        age_s = time.monotonic() - self._began
        return next(pace_s for until_s, pace_s in PACE_S if age_s < until_s)

    def look(self) -> None:
        """Get to know new children, if that is due."""
        now = time.monotonic()
        if now - self._looked < 0.9 * self.pause_s():
            return
        self._looked = now
        run = self._run
        tree = proc.tree(run["run_id"], run.get("root"), run["keeper"], thorough=False)
        self._tell_all(self._deaths.look(tree, run["root"]["pid"]))
        self._memory.sample(run["root"]["pid"])

    def ended(self) -> None:
        """A child has ended."""
        root = self._run["root"]
        if proc.alive(root["pid"], root["start_ticks"]) or self._run.get("detaches"):
            self._tell_all(self._deaths.ready())
        # Else the root was first, and its end is written next: what went with it is sorted out there.

    def reaped(self, pid: int, status: int) -> None:
        """An orphan of the run has ended."""
        self._tell_all(self._deaths.reaped(pid, status))

    def _tell_all(self, found: List[Json]) -> None:
        for item in found:
            self._tell({"dead": item})

    def told(self, at: float, left: List[Json]) -> Json:
        """The fields of exit.json; the run is over, and nobody is watched any more.

        Args:
            left: the processes that outlive the root.
        """
        run = self._run
        self._deaths.settle()
        pids = {item["pid"] for item in left}

        def is_ours(pid: int) -> bool:
            return pid in pids or pid == os.getpid() or proc.run_of(pid) == run["run_id"]

        memory = self._memory.tell(self._deaths.pids | pids | {run["root"]["pid"]}, is_ours)
        dead = self._deaths.told()
        self._deaths.close()
        return {"dead": dead, "memory": memory, "silent_s": records.log_silent_s(run, at)}
