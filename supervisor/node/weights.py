"""How many bytes of weights a model has on this node's disk, and how many of them a GPU gets at least.

Reads folders, sizes and the headers of safetensors files, nothing else. The folder may lie on a network mount that does
not answer, so the caller gives it a limited time.
"""

from __future__ import annotations

import functools
import json
import os
import re
import struct
import threading
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

Json = Dict[str, Any]
MOST_ENTRIES = 5000
MOST_HEADERS = 400
HEADER_MAX = 32 * 1024 * 1024
LIMIT_S = 4.0
_SHARD = re.compile(r"^(.*)-\d{3,6}-of-(\d{3,6})(\.\w+)$")
_HUB_NAME = re.compile(r"^[\w.-]+/[\w.-]+$")
_NOT_WEIGHTS = re.compile(
    r"^(?:consolidated|adapter|optimizer|scheduler|training_args|rng_state|tokenizer|mmproj)", re.IGNORECASE
)
# A number of 32 bits on the disk may become one of 16 in the GPU; all others stay or grow.
_LEAST_SHARE = {"F64": 0.25, "F32": 0.5}


def measure(model: Optional[str], cwd: str, env: Mapping[str, str], limit_s: float = LIMIT_S) -> Json:
    """`{bytes, least_bytes, files, how, why}`; bytes is None, with why, where they cannot be told."""
    if not model:
        return _none("the command names no model that we can read")
    return within(limit_s, lambda: _measure(model, cwd, env), _none("its folder did not answer in time"))


def within(limit_s: float, work: Callable[[], Json], late: Json) -> Json:
    """What `work` returns, or `late` when it takes too long; the thread is then left to the dead mount."""
    out: List[Json] = []

    def run() -> None:
        try:
            out.append(work())
        except Exception as error:  # what lies in the folder is anybody's: it must not end a launch
            out.append(_none("%s: %s" % (type(error).__name__, error)))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(limit_s)
    return out[0] if out else late


def _none(why: str) -> Json:
    return {"bytes": None, "least_bytes": None, "files": 0, "how": "", "why": why}


def _measure(model: str, cwd: str, env: Mapping[str, str]) -> Json:
    path = os.path.join(cwd, os.path.expanduser(model))
    where = "on the disk"
    if not os.path.exists(path):
        found = _in_hub(model, env)
        if found is None:
            return _none("%s is not on this node" % model)
        path, where = found, "in the cache of the hub"
    if os.path.isfile(path):
        return _of_files(os.path.dirname(path), _with_shards(path), where)
    names = []
    with os.scandir(path) as entries:
        for number, entry in enumerate(entries):
            if number >= MOST_ENTRIES:
                return _none("%s has more than %d entries" % (path, MOST_ENTRIES))
            names.append(entry.name)
    return _of_files(path, _chosen(path, names), where)


def _in_hub(model: str, env: Mapping[str, str]) -> Optional[str]:
    """The folder of the snapshot that `main` names in the hub's cache."""
    if not _HUB_NAME.match(model):
        return None
    home = env.get("HF_HOME") or os.path.join(env.get("HOME") or os.path.expanduser("~"), ".cache", "huggingface")
    cache = env.get("HF_HUB_CACHE") or os.path.join(home, "hub")
    folder = os.path.join(cache, "models--" + model.replace("/", "--"))
    try:
        with open(os.path.join(folder, "refs", "main")) as file:
            snapshot = os.path.join(folder, "snapshots", file.read(200).strip())
    except OSError:
        return None
    return snapshot if os.path.isdir(snapshot) else None


def _with_shards(path: str) -> List[str]:
    """The file, and its sisters where it is one of several parts."""
    folder, name = os.path.split(path)
    match = _SHARD.match(name)
    if match is None:
        return [name]
    stem, count, suffix = match.groups()
    pattern = re.compile("^%s-\\d+-of-%s%s$" % (re.escape(stem), count, re.escape(suffix)))
    return sorted(item for item in os.listdir(folder) if pattern.match(item))


def _chosen(folder: str, names: List[str]) -> List[str]:
    """The files that hold the model: those that an index names, else all of one kind; the same weights never twice."""
    for suffix in (".safetensors", ".bin", ".pt", ".pth"):
        indexes = [name for name in names if name.endswith(suffix + ".index.json") and not _NOT_WEIGHTS.match(name)]
        if indexes:
            with open(os.path.join(folder, sorted(indexes)[0]), encoding="utf-8") as file:
                listed = sorted(set(json.load(file).get("weight_map", {}).values()))
            listed = [name for name in listed if name in names]
            if listed:
                return listed
        found = [name for name in names if name.endswith(suffix) and not _NOT_WEIGHTS.match(name)]
        if found:
            return _one_set(folder, found)
    found = [name for name in names if name.endswith(".gguf") and not _NOT_WEIGHTS.match(name)]
    sets = _sets(found)
    return sets[0] if len(sets) == 1 else []  # several quantizations side by side: which one is not for us to say


def _sets(names: List[str]) -> List[List[str]]:
    groups: Dict[Tuple[str, str], List[str]] = {}
    for name in sorted(names):
        match = _SHARD.match(name)
        groups.setdefault((match.group(1), match.group(2)) if match else (name, ""), []).append(name)
    return list(groups.values())


def _one_set(folder: str, names: List[str]) -> List[str]:
    """The biggest set of parts: a folder may hold the same weights in more than one."""
    return max(_sets(names), key=lambda group: sum(os.path.getsize(os.path.join(folder, name)) for name in group))


def _of_files(folder: str, names: List[str], where: str) -> Json:
    if not names:
        return _none("no weights were found in %s" % folder)
    total, least = 0, 0.0
    for number, name in enumerate(names):
        path = os.path.join(folder, name)
        size = os.path.getsize(path)
        total += size
        if name.endswith(".gguf"):
            least += size
        elif name.endswith(".safetensors") and number < MOST_HEADERS:
            least += min(size, _least_of(path))
        else:
            least += size * 0.5  # the kind of its numbers is not told
    how = "%d %s %s" % (len(names), "file" if len(names) == 1 else "files", where)
    return {"bytes": total, "least_bytes": int(least), "files": len(names), "how": how, "why": ""}


def _least_of(path: str) -> float:
    """The bytes of a safetensors file's tensors, those of wide numbers as if they were loaded narrow."""
    with open(path, "rb") as file:
        head = file.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
        if not 0 < length <= HEADER_MAX:
            raise ValueError("%s is no safetensors file" % path)
        header = json.loads(file.read(length).decode("utf-8"))
    least = 0.0
    for name, tensor in header.items():
        if name != "__metadata__":
            begin, end = tensor["data_offsets"]
            least += (end - begin) * _LEAST_SHARE.get(tensor.get("dtype"), 1.0)
    return least


def folders(env: Mapping[str, str], limit_s: float = 2.0) -> List[Json]:
    """Where servers compile into, and whether what lies there may be executed. None: it did not answer, or is not."""
    home = env.get("HOME") or os.path.expanduser("~")
    wanted = [("/tmp", "")] + [(env[name], name) for name in ("TMPDIR", "TRITON_CACHE_DIR") if env.get(name)]
    if not env.get("TRITON_CACHE_DIR"):
        wanted.append((os.path.join(home, ".triton"), ""))
    out: List[Json] = []
    end = time.monotonic() + limit_s
    for path, source in wanted:
        if any(item["path"] == path for item in out):
            continue
        told = within(max(0.1, end - time.monotonic()), functools.partial(_mount, path), {})
        out.append({"path": path, "source": source, "noexec": told.get("noexec"), "free_bytes": told.get("free_bytes")})
    return out


def _mount(path: str) -> Json:
    while not os.path.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    info = os.statvfs(path)
    return {"noexec": bool(info.f_flag & os.ST_NOEXEC), "free_bytes": info.f_bavail * info.f_frsize}


def shm(path: str = "/dev/shm") -> Optional[Json]:
    """Size and free space of the shared memory; None where there is none."""
    try:
        info = os.statvfs(path)
    except OSError:
        return None
    return {"total_bytes": info.f_blocks * info.f_frsize, "free_bytes": info.f_bavail * info.f_frsize}
