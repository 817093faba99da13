"""Whose child a process is, and whether the server that it was made for still lives. Pure.

`ppid == 1` is not the test: what an engine leaves behind is adopted by the nearest subreaper or stays with the shell
that launched it, and in a container pid 1 may be the server itself. The test is whether something that can have
created it still lives. Where that cannot be told, it lives.
"""

from __future__ import annotations

from msgspec import Struct

from supervisor.core.gpu import Coverage, HolderProcess, Snapshot
from supervisor.core.known import Known

LOADING_S = 7200.0
"""A server that listens on no port for longer than this after its start is not loading any more."""


class Lineage(Struct, frozen=True, kw_only=True):
    """Where a process comes from."""

    chain: tuple[HolderProcess, ...]
    """The process, its parent, …, up to the last one that can have created what is below it."""
    adopter: HolderProcess | None
    """What is above the chain: an init, a session manager, a shell. None where nobody can be seen there."""
    engine: str | None
    """The engine that any of the chain belongs to."""
    orphaned: bool
    """No server that it could belong to is alive."""
    why: str
    """In a sentence, what says so; or what says that it belongs to something that lives."""

    @property
    def top(self) -> HolderProcess:
        """The last of the chain."""
        return self.chain[-1]


class Lineages:
    """The lineages in one snapshot."""

    def __init__(self, snapshot: Snapshot, known: Known) -> None:
        self._snapshot = snapshot
        self._known = known
        self._by_pid = {process.pid: process for process in snapshot.processes}
        self._found: dict[int, Lineage] = {}
        self._ports: dict[int, set[int]] | None = None
        self._chains: dict[int, tuple[tuple[HolderProcess, ...], HolderProcess | None]] = {}

    def above(self, process: HolderProcess) -> tuple[HolderProcess, ...]:
        """Its ancestors, nearest first."""
        out: list[HolderProcess] = []
        seen = {process.pid}
        parent = self._by_pid.get(process.ppid)
        while parent is not None and parent.pid not in seen:
            out.append(parent)
            seen.add(parent.pid)
            parent = self._by_pid.get(parent.ppid)
        return tuple(out)

    def of(self, process: HolderProcess) -> Lineage:
        """Where this process of the snapshot comes from."""
        found = self._found.get(process.pid)
        if found is None:
            found = self._found[process.pid] = self._look(process)
        return found

    def _look(self, process: HolderProcess) -> Lineage:
        chain, adopter = self._chain(process)
        engine = next((title for item in chain if (title := self._known.engine_of(item)) is not None), None)
        orphaned, why = self._orphaned(chain, adopter, engine)
        return Lineage(chain=chain, adopter=adopter, engine=engine, orphaned=orphaned, why=why)

    def _chain(self, process: HolderProcess) -> tuple[tuple[HolderProcess, ...], HolderProcess | None]:
        found = self._chains.get(process.pid)
        if found is None:
            found = self._chains[process.pid] = self._climb(process)
        return found

    def _climb(self, process: HolderProcess) -> tuple[tuple[HolderProcess, ...], HolderProcess | None]:
        chain = [process]
        for parent in self.above(process):
            if self._known.is_adopter(parent) and self._known.engine_of(parent) is None:
                return tuple(chain), parent
            chain.append(parent)
        return tuple(chain), None

    def _orphaned(
        self, chain: tuple[HolderProcess, ...], adopter: HolderProcess | None, engine: str | None
    ) -> tuple[bool, str]:
        top = chain[-1]
        whose = "its" if len(chain) == 1 else f"the parent of pid {top.pid}"
        if adopter is None and top.ppid != 1:
            return False, _living(chain, top)
        if adopter is None and self._snapshot.container:
            return False, "Its parent is pid 1 of the container, which cannot be seen and may have created it."
        said = f"pid {top.ppid}" if adopter is None else f"pid {adopter.pid}, {_short(adopter)}"
        parent = f"{whose} parent is {said}" if len(chain) == 1 else f"{whose} is {said}"
        if self._known.is_worker(top):
            elsewhere = self._leader_elsewhere(top, chain)
            if elsewhere:
                return False, elsewhere
            return True, f"Something created it, but {parent}, which creates no such process: its creator is gone."
        if engine is None:
            return False, _living(chain, top)
        return self._root(top, chain, parent)

    def _root(self, top: HolderProcess, chain: tuple[HolderProcess, ...], parent: str) -> tuple[bool, str]:
        """A server's own process, started by whoever adopted it or by somebody who has gone."""
        ports = sorted(self._ports_below().get(top.pid, ()))
        if ports:
            return False, f"The server, pid {top.pid}, listens on port {', '.join(map(str, ports))}."
        age_s = self._snapshot.at - top.started_at
        # Ports are looked for where a device file is open, so only there their absence says something.
        readable = bool(top.devices) and self._snapshot.coverage in (Coverage.ALL, Coverage.OWN)
        if top.tty or top.leader_alive is not False or age_s <= LOADING_S or not readable:
            return False, _living(chain, top)
        return True, (
            f"The server, pid {top.pid}, listens on no port {spell_age(age_s)} after its start, has no terminal, the "
            f"leader of its session is gone, and {parent}."
        )

    def _ports_below(self) -> dict[int, set[int]]:
        """pid → the ports that it or anything below it listens on."""
        if self._ports is None:
            self._ports = {}
            for process in self._snapshot.processes:
                for item in self._chain(process)[0] if process.ports else ():
                    self._ports.setdefault(item.pid, set()).update(process.ports)
        return self._ports

    def _leader_elsewhere(self, top: HolderProcess, chain: tuple[HolderProcess, ...]) -> str:
        """Why a server that did not stay its parent may still live: the leader of its session or group."""
        for number, what in ((top.sid, "session"), (top.pgid, "process group")):
            leader = self._by_pid.get(number)
            if leader is None or leader in chain or leader.state in ("Z", "X"):
                continue
            if not self._known.is_adopter(leader) and not self._known.is_worker(leader):
                return f"The leader of its {what} lives: pid {leader.pid}, {_short(leader)}."
        if top.leader_alive and top.sid not in self._by_pid and top.sid != top.pid:
            return f"The leader of its session, pid {top.sid}, lives, and what it is cannot be seen."
        return ""


def _living(chain: tuple[HolderProcess, ...], top: HolderProcess) -> str:
    if len(chain) == 1:
        return ""
    return f"It belongs to pid {top.pid}, {_short(top)}, which lives."


def _short(process: HolderProcess) -> str:
    return (process.title or process.comm or "without a name")[:60]


def spell_age(age_s: float) -> str:
    """For people: "12 s", "40 min", "25 h", "3 days"."""
    if age_s < 90:
        return f"{max(0.0, age_s):.0f} s"
    if age_s < 5400:
        return f"{age_s / 60:.0f} min"
    if age_s < 172_800:
        return f"{age_s / 3600:.0f} h"
    return f"{age_s / 86400:.0f} days"
