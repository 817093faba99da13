"""The serving mode: requests as JSON lines on stdin, replies and notices on a private descriptor.

One thread and a selector; what could take long runs in a thread of its own. A request that is wrong gets an error
reply; nothing that a client sends ends the program but the end of its stdin.
"""

from __future__ import annotations

import base64
import json
import os
import selectors
import socket
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from . import driver, holders, launch, preflight, proc, records, signals, sockets, watch
from .records import Refusal

Json = Dict[str, Any]
Handler = Callable[["Server", Json], Json]
READ_BYTES = 65536
LOG_READ_MAX = 1024 * 1024


class Server:
    """State of one connection's serving program."""

    def __init__(self, args: Json, out: int, boot: Callable[[Json], bytes], code: str) -> None:
        self.base = records.base_dir(args.get("state_dir"))
        self.boot = boot
        self.code = code
        self.environments: Dict[str, Optional[Dict[str, str]]] = {}
        self.owners = sockets.Owners()
        self.run_watch: Optional[watch.RunWatch] = None
        self.port_watch: Optional[watch.PortWatch] = None
        self.gpu_watch: Optional[watch.GpuWatch] = None
        self.driver = driver.Driver(boot, code)
        self.looker = holders.Looker(self.base, self.driver)
        self._out = out
        self._write_lock = threading.Lock()
        self._pending = b""
        self._trees: Dict[str, Tuple[float, Set[int]]] = {}

    # ------------------------------------------------------------------------------- talking

    def say(self, document: Json) -> None:
        """One line to the operator."""
        data = (json.dumps(document) + "\n").encode()
        with self._write_lock:
            view = memoryview(data)
            while view:
                view = view[os.write(self._out, view) :]

    def tell(self, notice: str, **fields: Any) -> None:
        """A notice: something that nobody asked for just now."""
        self.say(dict(fields, notice=notice, now=time.time()))

    def hello(self) -> None:
        """The first words: who we are, and what is here."""
        self.tell(
            "hello",
            protocol=records.PROTOCOL,
            python="%d.%d.%d" % sys.version_info[:3],
            boot_id=proc.boot_id(),
            uid=os.getuid(),
            user=preflight.user_name(),
            home=os.path.expanduser("~"),
            hostname=socket.gethostname(),
            machine=records.machine_id(),
            state_dir=self.base,
            linux=sys.platform.startswith("linux"),
            pidfd=signals.have_pidfd(),
            path=os.environ.get("PATH", ""),
        )

    # ------------------------------------------------------------------------------- the loop

    def run(self) -> None:
        """Serve until stdin ends."""
        self.hello()
        while True:
            selector = selectors.DefaultSelector()
            selector.register(0, selectors.EVENT_READ)
            for descriptor in self.run_watch.descriptors() if self.run_watch else []:
                selector.register(descriptor, selectors.EVENT_READ)
            ready = {key.fd for key, _ in selector.select(self._wait_s())}
            selector.close()
            # The end of the run before what is asked: a request may replace the watch.
            if self.run_watch is not None and ready & set(self.run_watch.descriptors()):
                self.run_watch.ready()
            if 0 in ready and not self._read():
                return
            if self.run_watch is not None:
                self.run_watch.tick()

    def _wait_s(self) -> float:
        return min(5.0, self.run_watch.next_tick_s()) if self.run_watch is not None else 5.0

    def _read(self) -> bool:
        data = os.read(0, READ_BYTES)
        if not data:
            return False
        lines = (self._pending + data).split(b"\n")
        self._pending = lines.pop()
        for line in lines:
            if line.strip():
                self._line(line)
        return True

    def _line(self, line: bytes) -> None:
        try:
            request = json.loads(line.decode("utf-8"))
            number, op = request["id"], request["op"]
        except Exception:  # whatever is wrong with a line, the program goes on
            self.say({"id": None, "error": {"code": "bad_request", "text": "not a request", "detail": {}}})
            return
        if isinstance(op, str) and op in _SLOW:
            threading.Thread(target=self._answer, args=(number, op, _SLOW[op], request), daemon=True).start()
        else:
            self._answer(number, op, _QUICK.get(op) if isinstance(op, str) else None, request)

    def _answer(self, number: int, op: str, handler: Optional[Handler], request: Json) -> None:
        error: Optional[Json] = None
        result: Json = {}
        try:
            if handler is None:
                raise Refusal("unknown_op", "no such request: %r" % op)
            result = handler(self, request)
        except Refusal as refusal:
            error = {"code": refusal.code, "text": str(refusal), "detail": refusal.detail}
        except OSError as problem:
            error = {"code": "os", "text": str(problem), "detail": {"op": op, "errno": problem.errno}}
        except Exception as problem:  # a request without a field, or of a wrong type: told, never the end
            error = {"code": "bad_request", "text": "%s: %s" % (type(problem).__name__, problem), "detail": {"op": op}}
        try:
            self.say({"id": number, "error": error} if error is not None else {"id": number, "ok": result})
        except BrokenPipeError:
            pass  # the operator is gone, and the end of stdin says so too

    # ------------------------------------------------------------------------------- shared by requests

    def pids_of(self, key: str, run_id: str) -> Set[int]:
        """The pids of a run's tree, at most a second old."""
        cached = self._trees.get(run_id)
        now = time.monotonic()
        if cached is not None and now - cached[0] < 1.0:
            return cached[1]
        described = records.describe_run(records.run_dir(self.base, key, run_id))
        run = described["run"] if described else {}
        tree = proc.tree(run_id, run.get("root"), run.get("keeper"), thorough=False)
        pids = {item["pid"] for item in tree}
        self._trees = {run_id: (now, pids)}
        return pids


# ------------------------------------------------------------------------------------------- requests


def _expand(server: Server, request: Json) -> Json:
    env = launch.ready_environment(bool(request.get("login_env")), server.environments)
    return {name: launch.expand(words, env) for name, words in request["texts"].items()}


def _fingerprint(server: Server, request: Json) -> Json:
    return records.fingerprint(server.base, request["argv"], request["cwd"], request["env"])


def _state(server: Server, request: Json) -> Json:
    return records.state(server.base, request["key"])


def _preflight(server: Server, request: Json) -> Json:
    env = launch.ready_environment(bool(request.get("login_env")), server.environments)
    found = preflight.look(request, server.base, dict(env, **(request.get("env") or {})))
    found["path"] = env.get("PATH", "")
    return found


def _launch(server: Server, request: Json) -> Json:
    env = launch.ready_environment(bool(request.get("login_env")), server.environments)
    return launch.launch(request, server.base, env, server.boot, server.code)


def _listeners(server: Server, request: Json) -> Json:
    run = request.get("run")
    run_id = run["run_id"] if run else None

    def ours() -> Set[int]:
        return server.pids_of(run["key"], run["run_id"]) if run else set()

    return {"listeners": server.owners.classify(int(request["port"]), ours, run_id)}


def _watch(server: Server, request: Json) -> Json:
    if server.run_watch is not None:
        server.run_watch.close()
    server.run_watch = None
    # Its first look is made by the loop, so that its notices come after this reply.
    server.run_watch = watch.RunWatch(server.base, request["key"], request["run_id"], server.tell)
    return {}


def _watch_port(server: Server, request: Json) -> Json:
    interval_s = float(request.get("interval_s") or 0.1)
    fresh = watch.PortWatch(str(request["host"]), int(request["port"]), interval_s, server.tell)
    if server.port_watch is not None:
        server.port_watch.stop()
    server.port_watch = fresh
    fresh.start()
    return {}


def _unwatch_port(server: Server, _request: Json) -> Json:
    if server.port_watch is not None:
        server.port_watch.stop()
    server.port_watch = None
    return {}


def _gpu_look(server: Server, request: Json) -> Json:
    if not server.driver.given(request.get("nvml")):
        return {"needs_nvml": True}
    return server.looker.look(wait_s=float(request.get("wait_s") or 0.0), scan=bool(request.get("scan")))


def _gpu_begin(server: Server, request: Json) -> Json:
    if not server.driver.given(request.get("nvml")):
        return {"needs_nvml": True}
    interval_s = max(1.0, float(request.get("interval_s") or 1.0))

    def look() -> Json:
        return server.looker.look(wait_s=interval_s, scan=False)

    _end_gpu_watch(server)
    server.gpu_watch = watch.GpuWatch(look, interval_s, server.tell)
    server.gpu_watch.start()
    return {}


def _gpu_end(server: Server, _request: Json) -> Json:
    """Let the driver go, for who wants to reset a GPU: an open handle would forbid it."""
    _end_gpu_watch(server)
    server.driver.close()
    return {}


def _end_gpu_watch(server: Server) -> None:
    if server.gpu_watch is not None:
        server.gpu_watch.stop()
    server.gpu_watch = None


def _tree(server: Server, request: Json) -> Json:
    described = records.describe_run(records.run_dir(server.base, request["key"], request["run_id"]))
    if described is None:
        raise Refusal("no_run", "there is no run %s on this node" % request["run_id"])
    run = described["run"]
    known = request.get("known") or ()
    # Of another boot: whoever has these pids and start ticks now is a bystander.
    root, keeper = (run.get("root"), run.get("keeper")) if run.get("boot_id") == proc.boot_id() else (None, None)
    tree = proc.tree(run["run_id"], root, keeper, thorough=True, known=known)
    return {"tree": tree, "gpu_baseline": run.get("gpu_baseline") or {}}


def _marked(server: Server, request: Json) -> Json:
    """Like `tree`, for runs that no record need know: by the ids that processes carry, with all below `known`.

    `exact` are identities that are listed while they live, and nothing below them.
    """
    found: Dict[int, Json] = {}
    for run_id in request.get("run_ids") or ():
        for item in proc.tree(str(run_id), None, None, thorough=True, known=request.get("known") or ()):
            found[item["pid"]] = item
    for identity in request.get("exact") or ():
        described = proc.describe(int(identity["pid"]))
        if described is not None and described["start_ticks"] == identity["start_ticks"]:
            found[described["pid"]] = described
    return {"tree": [found[pid] for pid in sorted(found) if pid != server.driver.child_pid]}


def _write_stop(server: Server, request: Json) -> Json:
    folder = records.run_dir(server.base, request["key"], request["run_id"])
    path = os.path.join(folder, "stop.json")
    standing = records.read(path)
    if standing is not None:
        return standing
    if records.read(os.path.join(folder, "exit.json")) is not None:
        return {}  # only what ends after it was stopped: who ends the left-overs of a failure did not stop that run
    document = {"by": request["by"], "at": time.time()}
    records.write(path, document)
    return document


def _signal(_server: Server, request: Json) -> Json:
    return signals.send(request["targets"], request["signal"])


def _log_stat(_server: Server, request: Json) -> Json:
    try:
        info = os.stat(request["path"])
    except OSError:
        return {"missing": True}
    return {"dev": info.st_dev, "ino": info.st_ino, "size": info.st_size}


def _log_read(_server: Server, request: Json) -> Json:
    length = min(int(request["length"]), LOG_READ_MAX)
    with open(request["path"], "rb") as file:
        info = os.fstat(file.fileno())
        if request.get("ino") is not None and (request.get("dev"), request["ino"]) != (info.st_dev, info.st_ino):
            raise Refusal("other_file", "another file stands at %s now" % request["path"])
        file.seek(int(request["offset"]))
        data = file.read(length)
    return {"offset": request["offset"], "data": base64.b64encode(data).decode(), "size": info.st_size}


def _log_lines(_server: Server, request: Json) -> Json:
    left, lines = int(request["until"]), 0
    with open(request["path"], "rb") as file:
        while left > 0:
            chunk = file.read(min(left, 1 << 20))
            if not chunk:
                break
            lines += chunk.count(b"\n")
            left -= len(chunk)
    return {"lines": lines}


def _runs(server: Server, _request: Json) -> Json:
    out: List[Json] = []
    try:
        keys = sorted(os.listdir(server.base))
    except OSError:
        keys = []
    for key in keys:
        if not os.path.isdir(os.path.join(server.base, key)):
            continue
        for item in records.newest(server.base, key)[:10]:
            run = item["run"]
            fields = {name: run.get(name) for name in ("key", "run_id", "started_at", "by", "engine", "port", "url")}
            out.append(dict(fields, live=records.is_live(item), exit=item["exit"]))
    return {"runs": out}


def _ping(_server: Server, _request: Json) -> Json:
    return {"now": time.time()}


_QUICK: Dict[str, Handler] = {
    "fingerprint": _fingerprint,
    "watch": _watch,
    "watch_port": _watch_port,
    "unwatch_port": _unwatch_port,
    "gpu_begin": _gpu_begin,
    "gpu_end": _gpu_end,
    "write_stop": _write_stop,
    "signal": _signal,
    "log_stat": _log_stat,
    "log_read": _log_read,
    "ping": _ping,
}
_SLOW: Dict[str, Handler] = {
    "expand": _expand,
    "state": _state,
    "preflight": _preflight,
    "launch": _launch,
    "listeners": _listeners,
    "tree": _tree,
    "marked": _marked,
    "gpu_look": _gpu_look,
    "log_lines": _log_lines,
    "runs": _runs,
}
