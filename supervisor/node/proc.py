"""Processes from /proc: identity, children, the tree of a run. Identity is (pid, start ticks), never a bare pid."""

from __future__ import annotations

import os
import re
import time
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Set

from .redact import redact_argv

MARKER = "INFERENCE_SUPERVISOR_RUN"
KEEPER_MARKER = "INFERENCE_SUPERVISOR_KEEPER"
"""In a keeper's own environment: whose orphans it takes in."""
_VARIABLE = re.compile(rb"(?:^|\0)[A-Za-z_][A-Za-z0-9_]*=")
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
DEAD_STATES = "ZXx"
_MANY_THREADS = 16

Process = Dict[str, Any]


def read(path: str) -> bytes:
    """The whole file, b"" where it cannot be read."""
    # Bare descriptors: half the time of `open`, and this is read thousands of times a minute.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    data = b""
    try:
        while True:
            more = os.read(descriptor, 65536)
            data += more
            if not more:
                return data
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def boot_id() -> str:
    """This boot of the machine: a pid of another boot is another process."""
    return read("/proc/sys/kernel/random/boot_id").decode().strip()


def stat(pid: int) -> Optional[Dict[str, Any]]:
    """comm, state, ppid, pgid, sid, tty, CPU time, threads, start_ticks and rss of a process, None when it is gone."""
    try:
        descriptor = os.open("/proc/%d/stat" % pid, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        raw = os.read(descriptor, 4096)  # one line, given in one piece: asking for more would be a call for nothing
    except OSError:
        return None
    finally:
        os.close(descriptor)
    head, _, tail = raw.rpartition(b")")
    fields = tail.split()
    if len(fields) < 22:
        return None
    return {
        "comm": head.partition(b"(")[2].decode("utf-8", "replace"),
        "state": fields[0].decode(),
        "ppid": int(fields[1]),
        "pgid": int(fields[2]),
        "sid": int(fields[3]),
        "tty": fields[4] != b"0",
        # With those of the children that it waited for: of a tree of short-lived compilers nothing is lost.
        "cpu_s": sum(int(field) for field in fields[11:15]) / _TICKS,
        "threads": int(fields[17]),
        "start_ticks": int(fields[19]),
        "rss_bytes": int(fields[21]) * _PAGE,
    }


def dead(found: Dict[str, Any]) -> bool:
    """Whether a process is over, by its stat. A zombie holds nothing, but one whose threads live holds everything."""
    return found["state"] in DEAD_STATES and found["threads"] <= 1


def alive(pid: int, start_ticks: int) -> bool:
    """Whether this very process lives."""
    found = stat(pid)
    return found is not None and found["start_ticks"] == start_ticks and not dead(found)


def leader_lives(sid: int) -> Optional[bool]:
    """Whether the process that leads a session lives.

    None where the session was opened outside this pid namespace, which the kernel shows as 0: that is so for all that
    `docker exec` or a CI runner starts, and a leader that cannot be seen is not one that has gone.
    """
    if sid <= 0:
        return None
    found = stat(sid)
    return found is not None and not dead(found)


def describe(pid: int) -> Optional[Process]:
    """One process as the protocol tells it, None when it is gone or a zombie."""
    found = stat(pid)
    if found is None or dead(found):
        return None
    title = title_of(pid)
    try:
        uid = os.stat("/proc/%d" % pid).st_uid
    except OSError:
        return None
    return {
        "pid": pid,
        "start_ticks": found["start_ticks"],
        "ppid": found["ppid"],
        "uid": uid,
        "title": title[:300] or "[%s]" % found["comm"],
        "state": found["state"],
        "rss_bytes": found["rss_bytes"],
        "cpu_s": round(found["cpu_s"], 2),
        "age_s": max(0.0, round(_uptime() - found["start_ticks"] / _TICKS, 1)),
    }


def title_of(pid: int) -> str:
    """The command line in one line and without secrets, "" for a kernel thread or a zombie."""
    words = read("/proc/%d/cmdline" % pid).rstrip(b"\0").decode("utf-8", "replace").split("\0")
    # `python -c` has a whole program in one word: its newlines would make many lines of one.
    return " ".join(" ".join(redact_argv([word for word in words if word])).split())


def read_bytes(pid: int) -> int:
    """What it has read so far, from files or, where they are mapped, from the disk; 0 where we may not look."""
    found = 0
    for line in read("/proc/%d/io" % pid).splitlines():
        name, _, value = line.partition(b": ")
        if name in (b"rchar", b"read_bytes") and value.isdigit():
            found = max(found, int(value))
    return found


def started_at(start_ticks: int) -> float:
    """When a process started, in seconds since the epoch of this machine's clock."""
    return round(time.time() - _uptime() + start_ticks / _TICKS, 2)


def _uptime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def pids() -> List[int]:
    """Every process that can be seen."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def children(pid: int) -> Optional[List[int]]:
    """Direct children by the kernel's own lists; None where they are missing or dearer than a scan of /proc.

    The kernel keeps one list a thread, and a process that loads a model has hundreds of threads.
    """
    out: List[int] = []
    try:
        tasks = os.listdir("/proc/%d/task" % pid)
    except OSError:
        return out
    if not _HAVE_CHILDREN or len(tasks) > _MANY_THREADS:
        return None
    for task in tasks:
        try:
            with open("/proc/%d/task/%s/children" % (pid, task), "rb") as file:
                out += [int(word) for word in file.read().split()]
        except OSError:
            continue
    return out


_HAVE_CHILDREN = os.path.exists("/proc/self/task/%d/children" % os.getpid())


def descendants(roots: Iterable[int], passed: Callable[[int], bool] = lambda _pid: False) -> Set[int]:
    """The roots and everything below them. What is `passed` over is left out, with all below it."""
    below: Optional[Dict[int, List[int]]] = None
    seen: Set[int] = set()
    over: Set[int] = set()
    todo = list(roots)
    while todo:
        pid = todo.pop()
        if pid in seen:
            continue
        seen.add(pid)
        if passed(pid):
            over.add(pid)
            continue
        found = children(pid) if below is None else None
        if found is None:
            if below is None:
                below = _by_parent()
            found = below.get(pid, [])
        todo += found
    return seen - over


def _by_parent() -> Dict[int, List[int]]:
    below: Dict[int, List[int]] = {}
    for pid in pids():
        found = stat(pid)
        if found is not None:
            below.setdefault(found["ppid"], []).append(pid)
    return below


def run_of(pid: int, marker: str = MARKER) -> Optional[str]:
    """The run id that a process carries in its environment, None without one or where we may not look.

    None too for a process of a session that somebody else opened: whoever copies a server's environment into his shell
    does not make his processes the run's.
    """
    found = _named_in(pid, (marker,)).get(marker)
    return found if found is None or marker != MARKER or _session_fits(pid, found) else None


def _named_in(pid: int, names: Sequence[str]) -> Dict[str, str]:
    """Those variables of a process' environment."""
    out: Dict[str, str] = {}
    for item in read("/proc/%d/environ" % pid).split(b"\0"):
        name, _, value = item.partition(b"=")
        if name.decode("utf-8", "replace") in names:
            out.setdefault(name.decode(), value.decode("utf-8", "replace"))
    return out


def _session_fits(pid: int, run_id: str) -> bool:
    """Whether a process that carries this run id can have come from its launch, by the session that it is in.

    A run begins with a session of its own, and a process leaves its session only for a new one that it leads itself.
    So all that come from the run are in sessions whose leaders came from it.
    """
    found = stat(pid)
    if found is None or found["sid"] in (0, pid):  # 0: the leader is outside of our pid namespace
        return True
    leader = stat(found["sid"])
    if leader is None or dead(leader):
        return True  # nobody else gets this pid while its session has members
    environment = read("/proc/%d/environ" % found["sid"])
    marks = [item for item in environment.split(b"\0") if item.startswith(MARKER.encode() + b"=")]
    if not marks:
        # Without any variable that can be read it may be a title written over them, or another user's.
        return not _VARIABLE.search(environment)
    return marks[0].partition(b"=")[2].decode("utf-8", "replace") == run_id


def marked(run_id: str) -> Set[int]:
    """Every process that carries this run id, wherever it was re-parented to. Reads all of /proc."""
    return {pid for pid in pids() if run_of(pid) == run_id}


def oldest(candidates: Iterable[int]) -> Optional[Process]:
    """Identity of the living process that started first, None where none lives."""
    found = [process for process in map(describe, candidates) if process is not None]
    if not found:
        return None
    first = min(found, key=lambda item: (item["start_ticks"], item["pid"]))
    return {"pid": first["pid"], "start_ticks": first["start_ticks"]}


def tree(
    run_id: str,
    root: Optional[Process],
    keeper: Optional[Process],
    *,
    thorough: bool,
    known: Iterable[Process] = (),
) -> List[Process]:
    """The living processes of a run, the keeper itself excluded.

    `thorough` also finds those that left the tree (double fork while no keeper lived) by the run id that they carry;
    `known` are identities that were listed before: one that left the tree and has no mark is found by them alone.
    Never in it: another run that was launched from within this one, and whatever we ourselves run under.
    """
    starts = []
    for identity in (root, keeper, *known):
        if identity and alive(identity["pid"], identity["start_ticks"]):
            starts.append(identity["pid"])
    if thorough:
        starts += marked(run_id)
    root_pid, keeper_pid = root["pid"] if root else None, keeper["pid"] if keeper else None
    me = os.getpid()

    def passed(pid: int) -> bool:
        # Our own children go with us: the one that is in the driver must not be killed there.
        return pid != root_pid and ((pid == me and pid != keeper_pid) or _of_another_run(pid, run_id))

    found = descendants(starts, passed)
    # Who stops a server from a shell that came from it does not end himself first.
    found -= {me, keeper_pid, *ancestors(me)} - {root_pid}
    out = [process for process in map(describe, sorted(found)) if process is not None]
    return sorted(out, key=lambda item: (item["pid"] != root_pid, item["pid"]))


def _of_another_run(pid: int, run_id: str) -> bool:
    """Whether a process is another run's, or its keeper: launched by somebody from within this run."""
    return any(found != run_id for found in _named_in(pid, (MARKER, KEEPER_MARKER)).values())


def ancestors(pid: int) -> List[int]:
    """All above a process, the nearest first; pid 1 is left out."""
    out: List[int] = []
    found = stat(pid)
    while found is not None and found["ppid"] > 1 and found["ppid"] not in out:
        out.append(found["ppid"])
        found = stat(found["ppid"])
    return out
