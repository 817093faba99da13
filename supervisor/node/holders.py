"""A look at the GPUs: NVML's lists × device files × /proc, as one snapshot (`supervisor/core/gpu.py` has its fields).

Facts only. What a holder is, and what may be done about it, is decided on the operator's side by a pure function.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Dict, Iterable, List, Optional, Set, Tuple

from . import devices, driver, proc, records, sockets
from .ring import Ring

Json = Dict[str, Any]
Key = Tuple[int, int]

SCAN_EVERY_S = 10.0
MAPS_EVERY_S = 60.0
SCAN_LIMIT_S = 10.0
"""How long one look may wait for a whole scan of the descriptors."""
GHOST_BYTES = 512 * 1024 * 1024
GHOST_SHARE = 0.015
_INITIAL_PID_NAMESPACE = "pid:[4026531836]"
_SIGKILL_BIT = 1 << 8


class Looker:
    """Makes the snapshots of one connection. Safe to be used from several threads."""

    def __init__(self, base: str, source: "driver.Driver") -> None:
        self._base = base
        self._driver = source
        self._lock = threading.Lock()
        self._ring: Optional[Ring] = None
        self._known: Dict[Key, Json] = {}
        self._scan: Optional[devices.Scan] = None
        self._scanned_at = float("-inf")
        self._files: Dict[Key, List[str]] = {}
        self._maps: Dict[Key, Tuple[float, List[str]]] = {}
        self._users: Dict[int, str] = {}
        self._keepers: Dict[Key, Optional[str]] = {}
        self._ports: Dict[Key, List[int]] = {}
        self._coverage = "none"
        self._told: Dict[Key, Tuple[Any, Json]] = {}
        self._in_d: Dict[Key, int] = {}
        self._unexplained: Dict[str, int] = {}
        self._counted_at: Optional[float] = None
        self._folders: Dict[str, Optional[str]] = {}
        self._namespace = _namespace("self")

    def look(self, *, wait_s: float, scan: bool) -> Json:
        """One snapshot. `scan`: read every process's descriptors now; else only when the last time is 10 s ago."""
        sample = self._driver.sample(wait_s)
        with self._lock:
            if self._ring is None:
                self._ring = Ring(self._base)
            if sample["driver"]["state"] == "absent":
                return dict(self._frame(sample), processes=[], runs=[], past=[], looks={})
            self._scan_files(scan)
            if sample["sampled_at"] != self._counted_at:  # the same figures told again are no second look
                self._counted_at = sample["sampled_at"]
                self._count_unexplained(sample["gpus"])
            held = _held(sample["gpus"])
            processes = self._processes(held)
            self._ring.see(processes, self._with_files(processes, held))
            past = self._ring.gone({(item["pid"], item["start_ticks"]) for item in processes if _lives(item)})
            runs = self._runs({item["run_id"] for item in processes} | {item["run_id"] for item in past})
            return dict(self._frame(sample), processes=processes, runs=runs, past=past, looks=dict(self._unexplained))

    def _frame(self, sample: Json) -> Json:
        chain = proc.ancestors(os.getpid())
        child = self._driver.child_pid
        return {
            "at": time.time(),
            "sampled_at": sample["sampled_at"],
            "driver": sample["driver"],
            "gpus": sample["gpus"],
            "coverage": self._coverage,
            "uid": os.getuid(),
            "container": self._namespace not in (None, _INITIAL_PID_NAMESPACE),
            "own_chain": [os.getpid(), *chain, *([child] if child is not None else [])],
        }

    # ------------------------------------------------------------------------------- device files

    def _scan_files(self, now: bool) -> None:
        """Have the device files of all processes: whole if it must be now, else a slice of it in each look."""
        if now or (self._scan is None and time.monotonic() - self._scanned_at >= SCAN_EVERY_S):
            self._scan = devices.Scan({row["inode"]: row["port"] for row in sockets.listening(None)})
        if now and self._scan is not None:
            self._scan.finish(SCAN_LIMIT_S)
        elif self._scan is not None:
            self._scan.step()
        scan = self._scan
        if scan is None or not (scan.done or now):
            return
        self._scan, self._scanned_at, self._coverage = None, time.monotonic(), scan.coverage
        self._files, self._ports = {}, {}
        for pid in scan.found.keys() | scan.ports.keys():
            found = proc.stat(pid)
            if found is None:
                continue
            key = (pid, found["start_ticks"])
            if pid in scan.found:
                self._files[key] = scan.found[pid]
            if pid in scan.ports:
                self._ports[key] = scan.ports[pid]
        self._told = {}  # what is told of a process rests on this scan
        for (pid, _), fixed in self._known.items():
            fixed["title"] = proc.title_of(pid)[:300] or fixed["title"]  # a worker names itself after it was forked

    def _files_of(self, key: Key) -> Optional[List[str]]:
        """Device files of one process, looked at now where the last scan had none; None where we may not look."""
        files = self._files.get(key)
        if files is not None:
            return files
        looked = devices.opened(key[0])
        if looked is None:
            return None
        self._files[key] = files = looked[0] or self._mapped(key)
        return files

    def _mapped(self, key: Key) -> List[str]:
        """What it has mapped, read once a minute: a list of mappings is long."""
        now = time.monotonic()
        known = self._maps.get(key)
        if known is None or now - known[0] > MAPS_EVERY_S:
            self._maps[key] = known = (now, devices.mapped(key[0]))
        return known[1]

    @staticmethod
    def _with_files(
        processes: Iterable[Json], held: Dict[int, Dict[str, Optional[int]]]
    ) -> Dict[int, Dict[str, Optional[int]]]:
        """Holders in the widest sense: in a list, or with a GPU's own device file open."""
        out: Dict[int, Dict[str, Optional[int]]] = dict(held)
        for process in processes:
            if process["devices"] and process["pid"] not in out:
                out[process["pid"]] = {}
        return out

    # ------------------------------------------------------------------------------- processes

    def _processes(self, held: Dict[int, Dict[str, Optional[int]]]) -> List[Json]:
        """Every process on a GPU or with a device file open, the leader of its session, and all above these."""
        stats: Dict[int, Json] = {}
        wanted = set(held) | {pid for pid, _ in self._files if self._files[(pid, _)]}
        for pid in wanted:
            found = proc.stat(pid)
            if found is not None:
                stats[pid] = found
        holders = set(stats)
        for pid in holders:
            for above in (stats[pid]["ppid"], stats[pid]["sid"]):
                while above > 0 and above not in stats:
                    found = proc.stat(above)
                    if found is None:
                        break
                    stats[above] = found
                    above = found["ppid"]
        alive_leaders: Dict[int, Optional[bool]] = {}
        keys = {(pid, found["start_ticks"]) for pid, found in stats.items()}
        self._known = {key: fixed for key, fixed in self._known.items() if key in keys}
        self._maps = {key: known for key, known in self._maps.items() if key in keys}
        self._keepers = {key: known for key, known in self._keepers.items() if key in keys}
        self._in_d = {
            (pid, found["start_ticks"]): self._in_d.get((pid, found["start_ticks"]), 0) + 1
            for pid, found in stats.items()
            if found["state"] == "D"
        }
        before, self._told = self._told, {}
        for pid in sorted(stats):
            self._describe(pid, stats[pid], pid in holders, alive_leaders, before)
        out = [described for _, described in self._told.values()]
        self._inherit_runs(out, {id(described) for _, described in before.values()})
        return out

    def _inherit_runs(self, processes: List[Json], known: Set[int]) -> None:
        """A process without the mark belongs to the run of what is above it, or of the keeper that took it in.

        `known`: ids of the items that stood so in the last look.
        """
        by_pid = {item["pid"]: item for item in processes}
        for item in processes:
            if id(item) in known:
                continue
            above = by_pid.get(item["ppid"])
            while item["run_id"] is None and above is not None and self._keeps(item) is None:
                item["run_id"] = above["run_id"] or self._keeps(above)
                above = by_pid.get(above["ppid"])
            # For good: it may be taken in by somebody else later.
            self._known[(item["pid"], item["start_ticks"])]["run_id"] = item["run_id"]

    def _keeps(self, process: Json) -> Optional[str]:
        """The run that a process is the keeper of, None for any other process."""
        key = (process["pid"], process["start_ticks"])
        if key not in self._keepers:
            self._keepers[key] = proc.run_of(process["pid"], proc.KEEPER_MARKER)
        return self._keepers[key]

    def _describe(
        self,
        pid: int,
        found: Json,
        holder: bool,
        leaders: Dict[int, Optional[bool]],
        before: Dict[Key, Tuple[Any, Json]],
    ) -> None:
        """Note one process in `_told`: as it stood there before, where nothing of it has changed."""
        key = (pid, found["start_ticks"])
        sid = found["sid"]
        if sid not in leaders:
            leaders[sid] = proc.leader_lives(sid)
        looks = self._in_d.get(key, 0)
        state = (
            found["ppid"],
            found["pgid"],
            found["state"],
            found["comm"],
            found["threads"],
            leaders[sid],
            looks,
            holder,
        )
        last = before.get(key)
        if last is not None and last[0] == state and not looks:
            self._told[key] = last
            return
        fixed = self._known.get(key) or self._fixed(pid, found)
        if fixed is None:
            return
        self._known[key] = fixed
        described = dict(
            fixed,
            ppid=found["ppid"],
            pgid=found["pgid"],
            sid=sid,
            state=found["state"],
            comm=found["comm"],
            tty=found["tty"],
            threads=found["threads"] - (1 if found["state"] in proc.DEAD_STATES else 0),
            devices=self._files_of(key) if holder else [],
            kill_pending=bool(looks) and _kill_pending(pid),
            uninterruptible_looks=looks,
            ports=self._ports.get(key, []),
            leader_alive=leaders[sid],
        )
        self._told[key] = (state, described)

    def _fixed(self, pid: int, found: Json) -> Optional[Json]:
        """What does not change, and its title, which is read anew with each scan of the descriptors."""
        try:
            uid = os.stat("/proc/%d" % pid).st_uid
        except OSError:
            return None
        namespace = _namespace(str(pid))
        return {
            "pid": pid,
            "start_ticks": found["start_ticks"],
            "started_at": proc.started_at(found["start_ticks"]),
            "uid": uid,
            "user": self._user(uid),
            "title": proc.title_of(pid)[:300],
            "run_id": proc.run_of(pid),
            "same_namespace": None if namespace is None else namespace == self._namespace,
        }

    def _user(self, uid: int) -> str:
        if uid not in self._users:
            self._users[uid] = _user_name(uid)
        return self._users[uid]

    # ------------------------------------------------------------------------------- runs, ghosts

    def _runs(self, run_ids: Set[Optional[str]]) -> List[Json]:
        out = []
        for run_id in sorted(item for item in run_ids if item):
            folder = self._folder_of(run_id)
            described = records.describe_run(folder) if folder is not None else None
            if described is None:
                continue
            ended = described["exit"]
            out.append(
                {
                    "run_id": run_id,
                    "key": described["run"].get("key") or "",
                    "live": records.is_live(described),
                    "ended_at": ended.get("at") if ended else None,
                }
            )
        return out

    def _folder_of(self, run_id: str) -> Optional[str]:
        """The folder of a run, whichever profile's it is; None where our records do not know it."""
        if run_id not in self._folders:
            self._folders[run_id] = records.find_run(self._base, run_id)
        return self._folders[run_id]

    def _count_unexplained(self, gpus: Iterable[Json]) -> None:
        """Looks in a row, per GPU, in which more is used than its processes and a driver's small change explain."""
        counts: Dict[str, int] = {}
        for gpu in gpus:
            memory, uses = gpu.get("memory") or {}, gpu.get("uses")
            used, total = memory.get("used_bytes"), memory.get("total_bytes")
            if used is None or uses is None or any(use.get("used_bytes") is None for use in uses):
                continue
            unexplained = used - sum(use["used_bytes"] for use in uses)
            if unexplained > max(GHOST_BYTES, GHOST_SHARE * (total or 0)):
                counts[gpu["uuid"]] = self._unexplained.get(gpu["uuid"], 0) + 1
        self._unexplained = counts


def _held(gpus: Iterable[Json]) -> Dict[int, Dict[str, Optional[int]]]:
    """pid → GPU's UUID → bytes, from NVML's lists."""
    out: Dict[int, Dict[str, Optional[int]]] = {}
    for gpu in gpus:
        for use in gpu.get("uses") or ():
            out.setdefault(use["pid"], {})[gpu["uuid"]] = use.get("used_bytes")
    return out


def _lives(process: Json) -> bool:
    return process["state"] not in proc.DEAD_STATES


def _namespace(pid: str) -> Optional[str]:
    try:
        return os.readlink("/proc/%s/ns/pid" % pid)
    except OSError:
        return None


def _kill_pending(pid: int) -> bool:
    """Whether SIGKILL was sent and not carried out yet (the process is in the kernel, and does not come out)."""
    for line in proc.read("/proc/%d/status" % pid).splitlines():
        name, _, value = line.partition(b":")
        if name in (b"SigPnd", b"ShdPnd") and int(value, 16) & _SIGKILL_BIT:
            return True
    return False


def _user_name(uid: int) -> str:
    try:
        import pwd

        return pwd.getpwuid(uid).pw_name
    except (ImportError, KeyError):
        return str(uid)
