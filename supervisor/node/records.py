"""The run's records on the node: where they lie, how they are written (atomically) and read.

${XDG_STATE_HOME:-~/.local/state}/inference-supervisor/<machine id>/<key>/runs/<run id>/ with run.json, exit.json,
stop.json and a link `log` to where the log is. Folders 0700, files 0600.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import socket
import struct
import time
from typing import Any, Dict, List, Mapping, Optional, Sequence

from . import proc
from .redact import secret_words

PROTOCOL = 1
RUNS_LOOKED_AT = 50
CLAIM_WAIT_S = 3.0
_KEY = re.compile(r"^[A-Za-z0-9._-]{1,64}$")
_RUN_ID = re.compile(r"^[A-Za-z0-9-]{1,64}$")

Json = Dict[str, Any]


class Refusal(Exception):
    """A request that cannot be done: a stable code, a sentence, and figures."""

    def __init__(self, code: str, text: str, **detail: Any) -> None:
        Exception.__init__(self, text)
        self.code = code
        self.detail = detail


def machine_id() -> str:
    """Eight hex digits that tell this machine from another that shares the home directory."""
    text = ""
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            with open(path) as file:
                text = file.read().strip()
        except OSError:
            continue
        if text:
            break
    return hashlib.sha256((text or socket.gethostname()).encode()).hexdigest()[:8]


def base_dir(override: Optional[str]) -> str:
    """The folder of this machine's records."""
    if override:
        root = os.path.expanduser(override)
    else:
        state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
        root = os.path.join(state, "inference-supervisor")
    return os.path.join(root, machine_id())


def key_dir(base: str, key: str) -> str:
    """The folder of one profile's runs. A key that could leave the folder is refused."""
    if not _KEY.match(key) or key in (".", ".."):
        raise Refusal("key", "not a usable key: %r" % key)
    return os.path.join(base, key)


def run_dir(base: str, key: str, run_id: str) -> str:
    """The folder of one run."""
    if not _RUN_ID.match(run_id):
        raise Refusal("run_id", "not a usable run id: %r" % run_id)
    return os.path.join(key_dir(base, key), "runs", run_id)


def make_private(path: str) -> None:
    """Make a folder and its parents; those that we make are 0700 (`os.makedirs` gives that to the last one alone)."""
    parent = os.path.dirname(path)
    if parent and parent != path and not os.path.isdir(parent):
        make_private(parent)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise


def write(path: str, document: Mapping[str, Any], *, sync: bool = True) -> None:
    """Write JSON so that a reader sees the old file or the new one, whatever dies when."""
    temporary = "%s.%d-%s.tmp" % (path, os.getpid(), os.urandom(4).hex())
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(document, file, sort_keys=True)
        file.flush()
        if sync:
            os.fsync(file.fileno())
    os.replace(temporary, path)


def read(path: str) -> Optional[Json]:
    """A record, None where there is none. A record that is no JSON is none (only a foreign hand makes one)."""
    try:
        with open(path) as file:
            document = json.load(file)
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None


# ------------------------------------------------------------------------------------------- the lock


def lock_name(key: str) -> str:
    """The abstract Unix socket that the keeper of a live run holds."""
    return "\0inference-supervisor/%d/%s" % (os.getuid(), key)


def connect_lock(key: str, wait_s: float = 1.0) -> Optional[socket.socket]:
    """A connection to the keeper of this key, None when no keeper lives. Its end-of-file is the death notice."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    sock.settimeout(wait_s)
    try:
        sock.connect(lock_name(key))
    except OSError:
        sock.close()
        return None
    if peer_uid(sock) not in (os.getuid(), 0):
        sock.close()  # the name is anybody's to bind: only our own keeper's word counts
        raise Refusal("foreign_lock", "another user holds the name of this run's lock: choose another profile name")
    return sock


def peer_uid(sock: socket.socket) -> int:
    """The user at the other end of a Unix socket."""
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", raw)[1])


def ask_keeper(key: str, wait_s: float) -> Optional[Json]:
    """The run.json that a living keeper tells, None when there is no keeper or it says nothing in time."""
    sock = connect_lock(key)
    if sock is None:
        return None
    data = b""
    end = time.monotonic() + wait_s
    try:
        while not data.endswith(b"\n"):
            sock.settimeout(max(0.01, end - time.monotonic()))
            chunk = sock.recv(65536)
            if not chunk:
                return None
            data += chunk
        document = json.loads(data.decode("utf-8"))
    except (OSError, ValueError):
        return None
    finally:
        sock.close()
    return document if isinstance(document, dict) else None


# ------------------------------------------------------------------------------------------- what runs


def describe_run(folder: str) -> Optional[Json]:
    """One run with everything that is known of it, None where the folder has no run.json."""
    run = read(os.path.join(folder, "run.json"))
    if run is None:
        return None
    here = run.get("boot_id") == proc.boot_id()
    ended = read(os.path.join(folder, "exit.json"))
    nobody = ended is None and here and not _alive(run.get("keeper")) and not _alive(run.get("root"))
    if nobody and (run.get("detaches") or not run.get("root")):
        # The keeper was killed before it could record the server, or the server outlives its start script: both are
        # found by the run's id that they carry.
        run["root"] = proc.oldest(proc.marked(run["run_id"])) or run.get("root")
    return {
        "run": run,
        "exit": ended,
        "stop": read(os.path.join(folder, "stop.json")),
        "keeper_alive": here and _alive(run.get("keeper")),
        "root_alive": here and _alive(run.get("root")),
        "log_size": log_size(run),
        "dir": folder,
    }


def _alive(identity: Optional[Json]) -> bool:
    return bool(identity) and proc.alive(int(identity["pid"]), int(identity["start_ticks"]))  # type: ignore[index]


def log_size(run: Json) -> Optional[int]:
    """The size of the run's log now, None where it cannot be told."""
    try:
        return os.stat((run.get("log") or {}).get("path") or "").st_size
    except OSError:
        return None


def log_silent_s(run: Json, at: float) -> Optional[float]:
    """For how long nothing had been written to the run's log at this time, None where it cannot be told."""
    log = run.get("log_from") or run.get("log") or {}
    try:
        return round(max(0.0, at - max(os.stat(log.get("path") or "").st_mtime, float(run["started_at"]))), 1)
    except OSError:
        return None


def is_live(described: Json) -> bool:
    """Whether a run lives: its root does, or its keeper has not told its end yet."""
    return described["exit"] is None and bool(described["root_alive"] or described["keeper_alive"])


def newest(base: str, key: str) -> List[Json]:
    """The newest runs of a key, newest first."""
    folder = os.path.join(key_dir(base, key), "runs")
    try:
        ids = sorted((name for name in os.listdir(folder) if _RUN_ID.match(name)), reverse=True)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return []
        raise Refusal("state_dir", "%s cannot be read: %s" % (folder, error.strerror)) from error
    found = [describe_run(os.path.join(folder, name)) for name in ids[:RUNS_LOOKED_AT]]
    return [item for item in found if item is not None]


def find_run(base: str, run_id: str) -> Optional[str]:
    """The folder of the run of this id, whichever key it belongs to; None where these records do not know it."""
    if not _RUN_ID.match(run_id):
        return None
    try:
        keys = [name for name in os.listdir(base) if _KEY.match(name)]
    except OSError:
        return None
    folders = (os.path.join(base, key, "runs", run_id) for key in keys)
    return next((folder for folder in folders if os.path.isfile(os.path.join(folder, "run.json"))), None)


def state(base: str, key: str) -> Json:
    """The live run and the run that ended last. May wait for a claim that is being made (3 s at most)."""
    runs = newest(base, key)
    live = next((item for item in runs if is_live(item)), None)
    sock = connect_lock(key)
    locked = sock is not None
    if sock is not None:
        sock.close()
    if locked and (live is None or not live["run"].get("root")):
        # A launch is under way: its keeper answers once the server was started, or not at all.
        told = ask_keeper(key, CLAIM_WAIT_S)
        runs = newest(base, key)
        live = next((item for item in runs if is_live(item)), None)
        locked = told is not None or live is not None
    if live is not None:
        run = live["run"]
        live["tree"] = proc.tree(run["run_id"], run.get("root"), run.get("keeper"), thorough=True)
    last = next((item for item in runs if not is_live(item)), None)
    return {"live": live, "last": last, "locked": locked}


# ------------------------------------------------------------------------------------------- fingerprint


def fingerprint(base: str, argv: Sequence[str], cwd: str, env: Mapping[str, str]) -> Json:
    """SHA-256 over command, folder and environment; secrets go in salted, so that the records give none away."""
    salt = _salt(base)

    def salted(text: str) -> str:
        return hashlib.sha256(salt + text.encode("utf-8", "surrogateescape")).hexdigest()

    secrets = secret_words(argv)
    words = [salted(word) if index in secrets else word for index, word in enumerate(argv)]
    hashes = {name: salted(value) for name, value in env.items()}
    canonical = json.dumps([words, cwd, hashes], sort_keys=True)
    return {"fingerprint": hashlib.sha256(canonical.encode()).hexdigest(), "env": hashes}


def _salt(base: str) -> bytes:
    path = os.path.join(base, "salt")
    make_private(base)
    for _ in range(3):
        try:
            with open(path, "rb") as file:
                data = file.read()
            if len(data) == 16:
                return data
        except OSError:
            pass
        temporary = "%s.%d-%s.tmp" % (path, os.getpid(), os.urandom(4).hex())
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        os.write(descriptor, os.urandom(16))
        os.close(descriptor)
        try:
            os.link(temporary, path)  # the first of two writers wins, and both read the same
        except OSError:
            pass
        os.unlink(temporary)
    raise Refusal("state_dir", "%s cannot be written" % path)
