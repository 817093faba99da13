"""What is known of a run's end beside its log: gathered while it lives, given to the diagnosis when it is over.

It claims only what was seen: how a child ended where the keeper or nobody saw it, the kernel's record where somebody
could look. Decides nothing and asks nothing; `attend.py` tells it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

import msgspec

from supervisor.core import events as ev
from supervisor.core.diagnosis.facts import DeadProcess, EndFacts, OomKill
from supervisor.core.events import Phase
from supervisor.core.gpu import GIB, GpuState
from supervisor.core.gpu_events import GpuEvent
from supervisor.core.lines import sanitise

LATELY_S = 15.0
"""What a GPU held in this time before the end counts: a dead process holds nothing any more."""
NEARLY_FULL = 0.97
MOST_DEAD = 64
TAKEN_DOWN_S = 1.0
"""A root that fails kills what it has started and then ends itself: who was killed so shortly before it did not die
first."""
_TAKES_DOWN = ("SIGKILL", "SIGTERM", "SIGHUP")


class EndWatch:
    """One run's facts.

    Args:
        root: its root process, whose own end is no child's.
    """

    def __init__(self, root: ev.Process | None, *, now: float) -> None:
        self._root = root
        self._served = self._asked_to_stop = False
        self._exit: ev.Exit | None = None
        self._ended_at: float | None = None
        self._silent_s: float | None = None
        self._log_at = now
        self._memory: dict[str, Any] = {}
        self._dead: dict[int, DeadProcess] = {}
        self._living: dict[int, ev.Process] = {}
        self._pids: set[int] = set()
        self._nobody_keeps = False
        self._began_at = now
        self._faults: dict[str, str] = {}
        self._held: set[str] = set()
        self._gpus: deque[tuple[float, dict[str, tuple[int, int]]]] = deque()

    def phase_changed(self, change: ev.PhaseChanged) -> None:
        """It served, if ever it was healthy."""
        self._served = self._served or change.to in (Phase.HEALTHY, Phase.SERVING)

    def log_grew(self, at: float) -> None:
        """Something was written to the log."""
        self._log_at = at

    def stop_wanted(self) -> None:
        """Somebody asked it to stop."""
        self._asked_to_stop = True

    def keeper_gone(self) -> None:
        """From here on nobody sees how a process ends; that it has gone is seen in the table."""
        self._nobody_keeps = True

    def tree(self, at: float, tree: Iterable[ev.Process]) -> None:
        """The processes that live now."""
        living = {item.pid: item for item in tree}
        if self._nobody_keeps and self._exit is None:
            for pid, item in self._living.items():
                gone = pid not in living or living[pid].start_ticks != item.start_ticks
                if gone and not self._is_root(pid):
                    self._died(DeadProcess(at=at, pid=pid, title=item.title))
        self._living = living
        self._pids.update(living)

    def child_ended(self, raw: dict[str, Any], offset_s: float) -> DeadProcess:
        """The keeper saw a child end."""
        dead = _dead(raw, offset_s)
        self._died(dead)
        return dead

    def _died(self, dead: DeadProcess) -> None:
        if len(self._dead) < MOST_DEAD:
            self._dead[dead.pid] = dead

    def _is_root(self, pid: int) -> bool:
        return self._root is not None and self._root.pid == pid

    def ended(self, at: float, told: dict[str, Any], *, wanted: bool, offset_s: float) -> None:
        """The run is over.

        Args:
            told: what its keeper wrote down of it (exit.json); after a keeper's own end that is little.
            offset_s: of the node's clock before ours.
        """
        self._exit = ev.Exit(code=told.get("code"), signal=told.get("signal"))
        self._asked_to_stop = self._asked_to_stop or wanted
        self._ended_at = at if told.get("unknown") else float(told.get("at") or at) - offset_s
        self._silent_s = told.get("silent_s")
        self._memory = told.get("memory") or {}
        for raw in told.get("dead") or ():
            self._died(_dead(raw, offset_s))

    def gpus(self, event: GpuEvent) -> None:
        """A look at the GPUs."""
        if self._exit is not None:
            return  # what they hold now is no fact of the end
        for gpu in event.gpus:
            if any(use.pid in self._pids for use in gpu.uses or ()):
                self._held.add(gpu.uuid)
            if gpu.xid is not None and gpu.xid.bad and gpu.xid.at >= self._began_at:
                self._faults[gpu.uuid] = f"GPU {gpu.index}: XID {gpu.xid.code}, {gpu.xid.text}"
            elif gpu.state is GpuState.LOST:
                why = gpu.why or "the driver does not reach it"
                self._faults.setdefault(gpu.uuid, f"GPU {gpu.index} is lost: {why}")
        used = {
            f"GPU {gpu.index}": (gpu.memory.used_bytes, gpu.memory.total_bytes)
            for gpu in event.gpus
            if gpu.memory.used_bytes is not None and gpu.memory.total_bytes
        }
        self._gpus.append((event.at, used))
        while self._gpus[0][0] < event.at - LATELY_S:
            self._gpus.popleft()

    def facts(self, now: float) -> EndFacts:
        """All of it."""
        memory = self._memory
        silent_s = self._silent_s if self._exit is not None else max(0.0, now - self._log_at)
        kills = tuple(self._kill(item) for item in memory.get("kills") or ())
        dead = [item for item in self._dead.values() if not self._taken_down(item, {kill.pid for kill in kills})]
        return EndFacts(
            exit=self._exit,
            served=self._served,
            asked_to_stop=self._asked_to_stop,
            dead=tuple(sorted(dead, key=lambda item: item.at)),
            oom_kills=kills,
            oom_looked_at=bool(memory.get("looked_at")),
            host_free_bytes=memory.get("free_bytes"),
            host_total_bytes=memory.get("total_bytes"),
            gpus=self._full(self._ended_at if self._ended_at is not None else now),
            gpu_faults=tuple(text for uuid, text in self._faults.items() if not self._held or uuid in self._held),
            silent_s=silent_s,
        )

    def _taken_down(self, dead: DeadProcess, oom_pids: set[int | None]) -> bool:
        if self._ended_at is None or dead.pid in oom_pids or dead.how is None:
            return False
        return dead.how.signal in _TAKES_DOWN and self._ended_at - dead.at < TAKEN_DOWN_S

    def _kill(self, raw: dict[str, Any]) -> OomKill:
        kill = OomKill(text=sanitise(raw["text"]), pid=raw.get("pid"), ours=bool(raw.get("ours")))
        known = kill.pid is not None and (kill.pid in self._pids or self._is_root(kill.pid))
        return msgspec.structs.replace(kill, ours=True) if known else kill

    def _full(self, end: float) -> tuple[str, ...]:
        most: dict[str, tuple[int, int]] = {}
        for at, used in self._gpus:
            if end - LATELY_S <= at:
                for name, figures in used.items():
                    most[name] = max(figures, most.get(name, figures))
        full = {name: figures for name, figures in most.items() if figures[0] >= NEARLY_FULL * figures[1]}
        return tuple(f"{name}: {used / GIB:.1f} of {total / GIB:.1f} GiB" for name, (used, total) in full.items())


def _dead(raw: dict[str, Any], offset_s: float) -> DeadProcess:
    code, signal = raw.get("code"), raw.get("signal")
    how = ev.Exit(code=code, signal=signal) if code is not None or signal is not None else None
    return DeadProcess(at=float(raw["at"]) - offset_s, pid=int(raw["pid"]), title=sanitise(raw["title"]), how=how)
