"""What can be known on the node before a launch. Facts only: what is refused is decided on the operator's side."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from typing import Any, Dict, List, Mapping, Optional, Sequence

from . import proc, records, sockets, weights

Json = Dict[str, Any]
GPU_ENV = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")


def look(request: Json, base: str, env: Mapping[str, str]) -> Json:
    """Command, paths, folder, log, port, left-overs, what logind does at logout; and, where `gpu` is asked for, what
    bears on GPUs: the model's weights, shared memory, folders to compile into, the environment."""
    argv = request["argv"]
    found: Json = {
        "command": command(argv[0], request["cwd"], env),
        "missing_paths": missing_paths(argv),
        "cwd": {"path": request["cwd"], "exists": os.path.isdir(request["cwd"])},
        "log": log(request.get("log")),
        "listeners": sockets.Owners().classify(int(request["port"]), set, None) if request.get("port") else [],
        "leftovers": leftovers(base, request["key"]),
        "linger": linger(),
        "state_free_bytes": free_bytes(base),
    }
    if request.get("gpu"):
        found.update(gpu(request["gpu"], request["cwd"], env))
    return found


def gpu(request: Json, cwd: str, env: Mapping[str, str]) -> Json:
    """`model`: path or name of the hub; `env`: names of variables of which only whether they are set is told."""
    told = {name: env[name] for name in GPU_ENV if name in env}
    told.update((name, "") for name in request.get("env") or () if name in env)
    return {
        "gpu_env": told,
        "weights": weights.measure(request.get("model"), cwd, env),
        "shm": weights.shm(),
        "folders": weights.folders(env),
    }


def free_bytes(path: str) -> Optional[int]:
    """Free space where a folder is or will be made."""
    while not os.path.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    try:
        space = os.statvfs(path)
    except OSError:
        return None
    return space.f_bavail * space.f_frsize


def command(word: str, cwd: str, env: Mapping[str, str]) -> Json:
    """Where the command's first word is found, and whether it can be executed."""
    if "/" in word:
        path: Optional[str] = os.path.join(cwd, word)
    else:
        path = shutil.which(word, path=env.get("PATH"))
    usable = path is not None and os.path.isfile(path) and os.access(path, os.X_OK)
    return {"word": word, "path": path, "exists": path is not None and os.path.exists(path), "executable": usable}


def missing_paths(argv: Sequence[str]) -> List[Json]:
    """Absolute paths in the command that do not exist, each with the option that it belongs to ("" for none)."""
    out: List[Json] = []
    for index, word in enumerate(argv):
        option, equals, value = word.partition("=")
        if equals and option.startswith("-"):
            path = value
        else:
            path, option = word, argv[index - 1] if index and argv[index - 1].startswith("-") else ""
        if path.startswith("/") and not os.path.lexists(path):
            out.append({"path": path, "option": option, "index": index})
    return out


def log(path: Optional[str]) -> Optional[Json]:
    """What stands where the log is to be written; None where it lies in the run's own folder."""
    if path is None:
        return None
    folder = os.path.dirname(path) or "/"
    found: Json = {
        "path": path,
        "folder": folder,
        "folder_exists": os.path.isdir(folder),
        "writable": os.access(path if os.path.exists(path) else folder, os.W_OK),
        "foreign_link": False,
        "regular": True,
        "free_bytes": None,
    }
    try:
        info = os.lstat(path)
        found["foreign_link"] = stat.S_ISLNK(info.st_mode) and info.st_uid not in (0, os.getuid())
        target = os.stat(path)
        found["regular"] = stat.S_ISREG(target.st_mode)
    except OSError:
        pass
    found["free_bytes"] = free_bytes(folder) if found["folder_exists"] else None
    return found


def leftovers(base: str, key: str) -> List[Json]:
    """Living processes of this profile's earlier runs, by the run id that they carry; the live run's are not."""
    described = records.newest(base, key)
    ids = {item["run"]["run_id"] for item in described}
    live = {item["run"]["run_id"] for item in described if records.is_live(item)}
    out: List[Json] = []
    for pid in proc.pids():
        run_id = proc.run_of(pid)
        if run_id in ids and run_id not in live:
            process = proc.describe(pid)
            if process is not None:
                process["run_id"] = run_id
                out.append(process)
    return out


def linger() -> Json:
    """Whether logind would kill our processes at logout, and whether lingering prevents it. None: cannot be told."""
    found: Json = {"kill_user_processes": None, "linger": None, "systemd_run": shutil.which("systemd-run") is not None}
    if os.getuid() == 0 or not os.path.isdir("/run/systemd/system"):
        found["kill_user_processes"] = False  # root is excluded by logind's default, and no logind kills nothing
        return found
    try:
        text = subprocess.run(
            ["busctl", "get-property", "org.freedesktop.login1", "/org/freedesktop/login1",
             "org.freedesktop.login1.Manager", "KillUserProcesses"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=3, check=False,
        ).stdout.decode()  # fmt: skip
        if text.startswith("b "):
            found["kill_user_processes"] = "true" in text
    except (OSError, subprocess.SubprocessError):
        pass
    found["linger"] = os.path.exists("/var/lib/systemd/linger/" + user_name())
    return found


def user_name() -> str:
    """Our own user's name, the number where it has none."""
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        return str(os.getuid())
