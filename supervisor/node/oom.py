"""What the kernel says that it killed for memory since a run began: its log, and the counters of the run's cgroups.

Neither need be readable. What could not be looked at is told as that, and never as "nobody was killed".
"""

from __future__ import annotations

import os
import re
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, Iterable, List, Optional, Set, Tuple

from . import cgroup

Json = Dict[str, Any]

LATELY_S = 15.0
"""The least room that was seen in this time is told: what is killed gives its memory back at once."""
MAX_KILLS = 20
_MAX_RECORDS = 100_000
_LINE_LATE_S = 0.03
_INITIAL_PID_NAMESPACE = "pid:[4026531836]"

# Linux 2.6.32 to 4.x: "Killed process 4711, UID 0, (python) total-vm:…" or "Killed process 4711 (python) total-vm:…";
# from 5.0 on with "Out of memory: " or "Memory cgroup out of memory: " before it. "Kill process … or sacrifice child"
# names who was chosen, and a child of his may be who is killed: that line is not looked at.
_KILLED = re.compile(r"\bKilled process (\d+)(?:, UID \d+,)? \((.*)\),? (?:total-vm|vsz|anon-rss)[:\s]")
_SUMMARY = re.compile(r"\boom-kill:constraint=(\w+),")
_FIELD = re.compile(r"\b(oom_memcg|task_memcg|task|pid)=([^,]*)")


class Kill:
    """One process that the kernel's log says it killed for memory."""

    def __init__(self, pid: int, name: str, text: str) -> None:
        self.pid = pid
        self.name = name
        self.text = text
        self.memcg: Optional[str] = None
        """The cgroup of the process, where the log tells it."""


def parse(lines: Iterable[str]) -> List[Kill]:
    """Every kill for memory in lines of the kernel's log, oldest first, whichever version of Linux wrote them."""
    out: List[Kill] = []
    memcgs: Dict[int, str] = {}
    for line in lines:
        text = _message(line)
        if "oom-kill:" in text and _SUMMARY.search(text):
            fields = dict(_FIELD.findall(text))
            if fields.get("pid", "").isdigit() and "task_memcg" in fields:
                memcgs[int(fields["pid"])] = fields["task_memcg"]
            continue
        found = _KILLED.search(text) if "Killed process" in text else None
        if found:
            kill = Kill(int(found.group(1)), found.group(2), text[:300])
            kill.memcg = memcgs.pop(kill.pid, None)
            out.append(kill)
    return out


def _message(line: str) -> str:
    """The words of a record of /dev/kmsg ("3,529,13044,-;words") or of a line as dmesg and journals show it."""
    head, mark, rest = line.partition(";")
    return (rest if mark and re.match(r"^\d+,\d+,\d+,", head) else line).strip()


class KernelLog:
    """What is written to /dev/kmsg from now on, where it may be read."""

    def __init__(self, path: str) -> None:
        self._file = -1
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._file, 0, os.SEEK_END)
        except OSError:
            pass  # no permission (kernel.dmesg_restrict), or a container

    @property
    def readable(self) -> bool:
        """Whether anybody may look."""
        return self._file >= 0

    def read(self) -> List[str]:
        """The records that came since the last time, and of a record its first line."""
        out: List[str] = []
        while self.readable and len(out) < _MAX_RECORDS:
            try:
                record = os.read(self._file, 8192)
            except BrokenPipeError:
                continue  # records were overwritten before we came: it goes on with the oldest
            except OSError:
                break
            if not record:
                break
            # One read gives one record; a file that stands for the device in a test gives many.
            out += [line for line in record.decode("utf-8", "replace").split("\n") if line and line[0] != " "]
        return out


class Record:
    """Looked at when a run begins, now and then while it lives, and at its end.

    Made in the process that starts the run, before it does: both are in the same cgroup.
    """

    def __init__(self, pid: int, *, kmsg: str = "/dev/kmsg", proc_folder: str = "/proc") -> None:
        self._proc_folder = proc_folder
        self._log = KernelLog(kmsg)
        self._kills: List[Kill] = []
        self._cgroups = cgroup.cgroups_of(pid, proc_folder)
        self._before = [cgroup.counts(item) for item in self._cgroups]
        self._rooms: Deque[Tuple[float, int, int]] = deque(maxlen=64)
        self._moved = False

    def sample(self, root: Optional[int] = None) -> None:
        """Note how much memory there is, and whether the root is still in the cgroup that we know."""
        found = [cgroup.host_room(self._proc_folder), *map(cgroup.room, self._cgroups)]
        rooms = [item for item in found if item is not None]
        if rooms:
            free_bytes, total_bytes = min(rooms)
            self._rooms.append((time.monotonic(), free_bytes, total_bytes))
        if root is not None and self._cgroups:
            now = cgroup.cgroups_of(root, self._proc_folder)
            self._moved = self._moved or bool(now and now[0] != self._cgroups[0])
        self._take(self._log.read())  # as it comes: the kernel's buffer is small, and a run may last for weeks

    def _take(self, lines: List[str]) -> None:
        self._kills = (self._kills + parse(lines))[-MAX_KILLS:]

    def tell(self, ours: Set[int], is_ours: Callable[[int], bool]) -> Json:
        """All of it, for exit.json.

        Args:
            ours: pids that ever were the run's.
            is_ours: whether a process that lives now is the run's, or only watches it.
        """
        self._take(self._log.read())
        counted = self._counted()
        grown = sum(after for _, after in counted)
        if grown and self._log.readable and not self._kills:
            time.sleep(_LINE_LATE_S)  # the counter comes before the signal, the line a moment after it
            self._take(self._log.read())
        own = self._cgroups[0].name if self._cgroups else None
        alone = bool(self._cgroups) and not self._moved and own != "/" and self._alone(is_ours)
        kills = [self._kill(item, ours, own if alone else None) for item in self._kills]
        known = sum(1 for item in kills if item["ours"])
        for index, (item, after) in enumerate(counted):
            own_one = index == 0
            if after > (known if own_one else 0) and not (not own_one and (kills or counted[0][1])):
                kills.append({"text": _counter_words(item, after), "pid": None, "ours": own_one and alone})
        out: Json = {"kills": kills[-MAX_KILLS:], "looked_at": self._log.readable or self._counts()}
        lately = [item for item in self._rooms if time.monotonic() - item[0] <= LATELY_S]
        if lately:
            _, out["free_bytes"], out["total_bytes"] = min(lately, key=lambda item: item[1])
        return out

    def _counts(self) -> bool:
        """Whether the run's own cgroup counts kills, then and now. One that it has left says nothing of it."""
        return bool(
            self._cgroups
            and not self._moved
            and self._before[0] is not None
            and cgroup.counts(self._cgroups[0]) is not None
        )

    def _counted(self) -> List[Tuple[cgroup.Cgroup, int]]:
        """How many more were killed in each cgroup since the beginning; version 2 counts those below too."""
        out = []
        for item, before in zip(self._cgroups, self._before):
            now = cgroup.counts(item)
            if now is not None and before is not None:
                out.append((item, max(0, now["oom_kill"] - before["oom_kill"])))
        return out

    def _alone(self, is_ours: Callable[[int], bool]) -> bool:
        return all(is_ours(pid) for pid in cgroup.members(self._cgroups[0]))

    def _kill(self, kill: Kill, ours: Set[int], own: Optional[str]) -> Json:
        # The kernel's log names processes by the numbers of the first pid namespace: in a container they are not ours.
        same_pids = _pid_namespace(self._proc_folder) == _INITIAL_PID_NAMESPACE
        by_pid = same_pids and kill.pid in ours
        by_cgroup = own is not None and kill.memcg is not None and (kill.memcg + "/").startswith(own + "/")
        return {"text": kill.text, "pid": kill.pid if same_pids else None, "ours": by_pid or by_cgroup}


def _pid_namespace(proc_folder: str) -> str:
    try:
        return os.readlink(os.path.join(proc_folder, "self", "ns", "pid"))
    except OSError:
        return ""


def _counter_words(item: cgroup.Cgroup, more: int) -> str:
    what = "1 process" if more == 1 else "%d processes" % more
    file = "memory.events" if item.version == 2 else "memory.oom_control"
    return "the kernel killed %s of the cgroup %s for memory (oom_kill in %s)" % (what, item.name, file)
