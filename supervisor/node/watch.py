"""Watches one run and one port, and tells changes. Driven by the serve loop: sockets to select on, and a tick."""

from __future__ import annotations

import json
import os
import socket
import time
from typing import Any, Callable, Dict, List, Optional

from . import proc, records, signals, sockets

Json = Dict[str, Any]
Tell = Callable[..., None]

TREE_EVERY_S = 1.0
THOROUGH_EVERY_S = 10.0
ROOT_EVERY_S = 0.1
ASK_AGAIN_S = 5.0


class RunWatch:
    """The death notice, the tree and stop.json of one run.

    `descriptors()` are to be selected on; `ready()` and `tick()` do the rest. Notices go to `tell(kind, **fields)`.
    """

    def __init__(self, base: str, key: str, run_id: str, tell: Tell) -> None:
        self._folder = records.run_dir(base, key, run_id)
        self._key = key
        self._tell = tell
        described = records.describe_run(self._folder)
        if described is None:
            raise records.Refusal("no_run", "there is no run %s of %s on this node" % (run_id, key))
        self.run = described["run"]
        self._ended = False
        self._gone = False
        self._stop_told = False
        self._tree: Optional[List[Json]] = None
        self._tree_at = self._thorough_at = self._root_at = 0.0
        self._lock: Optional[socket.socket] = None
        self._pidfd: Optional[int] = None
        if described["exit"] is None:
            self._attach()
        self.tick()

    def _attach(self) -> None:
        root = self.run.get("root")
        self._lock = records.connect_lock(self._key)
        if self._lock is not None:
            self._lock.setblocking(False)
        elif root and proc.alive(root["pid"], root["start_ticks"]):
            try:
                self._pidfd = signals.pidfd_open(root["pid"])
            except OSError:
                self._pidfd = None

    def descriptors(self) -> List[int]:
        """What becomes readable at the end."""
        out = []
        if self._lock is not None:
            out.append(self._lock.fileno())
        if self._pidfd is not None:
            out.append(self._pidfd)
        return out

    def ready(self) -> None:
        """A descriptor is readable: the keeper greets, or the end has come."""
        if self._pidfd is not None:
            self._release()
        if self._lock is not None:
            self._read_lock()
        self.tick(now_root=True)

    def _read_lock(self) -> None:
        assert self._lock is not None
        try:
            data = self._lock.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._release()
            if records.read(os.path.join(self._folder, "exit.json")) is None:
                self._tell("keeper_gone")  # killed: the root may live on, and nobody will know its exit code
                self._attach()
            return
        try:
            told = json.loads(data.decode("utf-8"))
        except ValueError:
            return
        if told.get("run_id") == self.run["run_id"]:
            self.run = told

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None

    def close(self) -> None:
        """Stop watching."""
        self._release()

    def next_tick_s(self) -> float:
        """Seconds until `tick` has something to do."""
        if self._gone:
            return 3600.0
        now = time.monotonic()
        due = self._tree_at + TREE_EVERY_S
        if not self._ended and self._lock is None:
            due = min(due, self._root_at + ROOT_EVERY_S)
        return max(0.0, due - now)

    def tick(self, now_root: bool = False) -> None:
        """Look at what is due."""
        now = time.monotonic()
        if not self._ended and (now_root or self._lock is None or now - self._tree_at >= TREE_EVERY_S):
            self._root_at = now
            self._look_for_end()
        if not self._gone and (now - self._tree_at >= TREE_EVERY_S or (now_root and self._ended)):
            self._tree_at = now
            self._look_at_tree(now)
        if not self._stop_told:
            stop = records.read(os.path.join(self._folder, "stop.json"))
            if stop is not None:
                self._stop_told = True
                self._tell("stop", stop=stop)

    def _look_for_end(self) -> None:
        ended = records.read(os.path.join(self._folder, "exit.json"))
        root = self.run.get("root")
        if ended is None:
            if self._lock is not None:
                return
            if root and proc.alive(root["pid"], root["start_ticks"]) and self.run.get("boot_id") == proc.boot_id():
                return
            ended = {"code": None, "signal": None, "unknown": True, "at": time.time(), "log_size": None, "left": []}
        self._ended = True
        self._release()
        stop = records.read(os.path.join(self._folder, "stop.json"))
        size = ended.get("log_size")
        self._tell(
            "exit",
            exit=ended,
            stop=stop,
            log_size=size if size is not None else records.log_size(self.run),
            left=ended.get("left") or [],
        )

    def _look_at_tree(self, now: float) -> None:
        thorough = self._ended or now - self._thorough_at >= THOROUGH_EVERY_S
        if thorough:
            self._thorough_at = now
        tree = proc.tree(self.run["run_id"], self.run.get("root"), self.run.get("keeper"), thorough=thorough)
        if not thorough and self._tree:
            known = {item["pid"] for item in tree}
            tree += [
                item for item in self._tree if item["pid"] not in known and proc.alive(item["pid"], item["start_ticks"])
            ]
        seen = [(item["pid"], item["start_ticks"]) for item in tree]
        if self._tree is None or seen != [(item["pid"], item["start_ticks"]) for item in self._tree]:
            self._tell("tree", tree=tree)
        self._tree = tree
        if self._ended and not tree:
            self._gone = True
            self._tell("tree_gone")

    def pids(self) -> set:  # type: ignore[type-arg]
        """The pids of the tree as of the last look, looked at anew where there was none."""
        if not self._tree:
            self._look_at_tree(time.monotonic())
        return {item["pid"] for item in self._tree or []}


class PortWatch:
    """Tells when something starts or stops to listen. A local connect every 100 ms, and none while it listens."""

    def __init__(self, host: str, port: int, interval_s: float, tell: Tell) -> None:
        self._host, self._port, self._interval_s, self._tell = host, port, interval_s, tell
        self._local = sockets.is_local(host)
        self._open: Optional[bool] = None
        self._at = float("-inf")
        self.tick()

    def next_tick_s(self) -> float:
        """Seconds until the next look."""
        pace = ASK_AGAIN_S if self._open and not self._local else self._interval_s
        return max(0.0, self._at + pace - time.monotonic())

    def tick(self) -> None:
        """Look, where it is time."""
        if self.next_tick_s() > 0:
            return
        self._at = time.monotonic()
        # On this machine /proc tells without a connection that a server would see and log.
        if self._local and os.path.exists("/proc/net/tcp"):
            address = sockets.visible(self._host, self._port)
            if address is None and not self._open:
                address = sockets.accepts(self._host, self._port)
        else:
            address = sockets.accepts(self._host, self._port)
        is_open = address is not None
        if is_open is not self._open:
            self._open = is_open
            self._tell("port", open=is_open, address=address)
