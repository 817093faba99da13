"""Memory cgroups of a process, both versions: whom the kernel killed in them, and how much memory they leave.

Reads a few small files and nothing else. What is not there is None or left out, never an exception.
"""

from __future__ import annotations

import os
from typing import Dict, List, NamedTuple, Optional, Tuple

from . import proc

Counts = Dict[str, int]

_COUNTED = ("oom", "oom_kill", "oom_group_kill")
_UNLIMITED = 1 << 60  # version 1 writes "no limit" as a number just below 2**63


class Cgroup(NamedTuple):
    """One cgroup: its folder, its name as the kernel's records write it, and of which version it is."""

    folder: str
    name: str
    version: int


def cgroups_of(pid: int, proc_folder: str = "/proc") -> List[Cgroup]:
    """The memory cgroup of a process and all above it that can be seen from here, the nearest first."""
    folder = os.path.join(proc_folder, str(pid))
    mounts = _mounts(proc.read(os.path.join(folder, "mountinfo")).decode("utf-8", "replace"))
    out: List[Cgroup] = []
    for line in proc.read(os.path.join(folder, "cgroup")).decode("utf-8", "replace").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, name = rest.partition(":")
        version = 2 if number == "0" and not controllers else 1
        if version == 1 and "memory" not in controllers.split(","):
            continue
        for mounted, mount, mount_root in mounts:
            if mounted == version:
                out += _upwards(mount, mount_root, name, version)
                break
    return out


def _mounts(text: str) -> List[Tuple[int, str, str]]:
    """Version, mount point and root of every mount that has memory cgroups."""
    out = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        if kind[0] == "cgroup2":
            out.append((2, fields[4], fields[3]))
        elif kind[0] == "cgroup" and "memory" in kind[2].split(","):
            out.append((1, fields[4], fields[3]))
    return out


def _upwards(mount: str, mount_root: str, name: str, version: int) -> List[Cgroup]:
    inside = name
    if mount_root != "/":  # a container without a cgroup namespace: it is named as the host sees it
        inside = name[len(mount_root) :] if name == mount_root or name.startswith(mount_root + "/") else "/"
    parts = [part for part in inside.split("/") if part]
    if ".." in parts:
        parts = []  # outside of our cgroup namespace
    out = []
    for length in range(len(parts), -1, -1):
        folder = os.path.join(mount, *parts[:length])
        if os.path.isdir(folder):
            above = len(parts) - length
            named = name.rstrip("/").rsplit("/", above)[0] if above else name
            out.append(Cgroup(folder, named or "/", version))
    return out


def counts(cgroup: Cgroup) -> Optional[Counts]:
    """How often the kernel ran out of memory in it and killed for that; None where it does not count."""
    file = "memory.events" if cgroup.version == 2 else "memory.oom_control"
    found = _numbers(os.path.join(cgroup.folder, file))
    out = {key: found[key] for key in _COUNTED if key in found}
    return out if "oom_kill" in out else None


def members(cgroup: Cgroup) -> List[int]:
    """The processes that are in it now."""
    words = proc.read(os.path.join(cgroup.folder, "cgroup.procs")).split()
    return [int(word) for word in words if word.isdigit()]


def room(cgroup: Cgroup) -> Optional[Tuple[int, int]]:
    """Bytes that may still be allocated in it, and its limit; None without a limit. File cache counts as free."""
    names = ("memory.max", "memory.current", "inactive_file")
    if cgroup.version == 1:
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    limit = proc.read(os.path.join(cgroup.folder, names[0])).strip()
    used = proc.read(os.path.join(cgroup.folder, names[1])).strip()
    if not (limit.isdigit() and used.isdigit()) or int(limit) >= _UNLIMITED:
        return None
    cached = _numbers(os.path.join(cgroup.folder, "memory.stat")).get(names[2], 0)
    return max(0, int(limit) - int(used) + cached), int(limit)


def host_room(proc_folder: str = "/proc") -> Optional[Tuple[int, int]]:
    """The same of the whole machine."""
    found = _numbers(os.path.join(proc_folder, "meminfo"))
    if "MemAvailable" not in found or "MemTotal" not in found:
        return None
    return found["MemAvailable"] * 1024, found["MemTotal"] * 1024


def _numbers(path: str) -> Dict[str, int]:
    out = {}
    for line in proc.read(path).decode("utf-8", "replace").splitlines():
        words = line.replace(":", " ").split()
        if len(words) >= 2 and words[1].isdigit():
            out[words[0]] = int(words[1])
    return out
