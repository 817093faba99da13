"""Watches one run, one port and the GPUs, and tells changes. Decides nothing: that is the operator's side's.

`RunWatch` is driven by the serve loop (descriptors to select on, and a tick); `PortWatch` and `GpuWatch` have threads
of their own: a connect to an address that swallows packets, or a driver that hangs, would hold everything else up.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from typing import Any, Callable, Dict, List, Optional

from . import proc, records, signals, sockets

Json = Dict[str, Any]
Tell = Callable[..., None]

TREE_EVERY_S = 1.0
LEFT_EVERY_S = 0.2
THOROUGH_EVERY_S = 10.0
ROOT_EVERY_S = 0.1
ASK_AGAIN_S = 5.0
OPEN_EVERY_S = 0.5
RSS_STEP_BYTES = 64 * 1024 * 1024
WORK_EVERY_S = 5.0
"""How often it is told what the tree has worked: CPU time, bytes read. A silent load is told from a hang by it."""


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
        self.run: Json = described["run"]
        self._here = self.run.get("boot_id") == proc.boot_id()
        self._ended = False
        self._gone = False
        self._stop_told = False
        self._keeper_told = False
        self._exit: Optional[Json] = None
        self._pending = b""
        self._tree: List[Json] = []
        self._told_tree: Optional[List[Any]] = None
        self._told_rss_bytes = 0
        self._tree_at = self._thorough_at = self._root_at = self._work_at = float("-inf")
        self._lock: Optional[socket.socket] = None
        self._pidfd: Optional[int] = None
        if described["exit"] is None:
            self._attach()

    def _attach(self) -> None:
        # The lock is asked only while this run's own keeper lives: a newer run may hold it by now.
        if self._keeper_lives():
            self._lock = records.connect_lock(self._key)
        root = self.run.get("root")
        if self._lock is not None:
            self._lock.setblocking(False)
        elif root and self._here and proc.alive(root["pid"], root["start_ticks"]):
            try:
                self._pidfd = signals.pidfd_open(root["pid"])
            except OSError:
                self._pidfd = None  # an old kernel: looked at every 100 ms instead

    def _keeper_lives(self) -> bool:
        keeper = self.run.get("keeper")
        return keeper is not None and self._here and proc.alive(keeper["pid"], keeper["start_ticks"])

    def descriptors(self) -> List[int]:
        """What becomes readable at the end."""
        out = []
        if self._lock is not None:
            out.append(self._lock.fileno())
        if self._pidfd is not None:
            out.append(self._pidfd)
        return out

    def ready(self) -> None:
        """A descriptor is readable: the keeper says something, or the end has come."""
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None
        if self._lock is not None:
            self._read_lock()
        if not self._ended:
            self._look_for_end()

    def _read_lock(self) -> None:
        assert self._lock is not None
        try:
            data = self._lock.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        lines = (self._pending + data).split(b"\n")
        self._pending = lines.pop()
        for line in lines:
            told = json.loads(line.decode("utf-8"))
            if "exit" in told:
                self._exit = told["exit"]
            elif "dead" in told:
                self._tell("child_ended", dead=told["dead"])
            elif told.get("run_id") == self.run["run_id"]:
                self.run = told
        if not data:
            self.close()

    def close(self) -> None:
        """Stop listening for the end."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None

    # ------------------------------------------------------------------------------- what is due

    def next_tick_s(self) -> float:
        """Seconds until `tick` has something to do."""
        if self._gone:
            return 3600.0
        due = self._tree_at + (LEFT_EVERY_S if self._ended else TREE_EVERY_S)
        if not self._ended and self._lock is None:
            due = min(due, self._root_at + ROOT_EVERY_S)
        return max(0.0, due - time.monotonic())

    def tick(self) -> None:
        """Look at what is due."""
        if self._gone:
            return
        now = time.monotonic()
        tree_due = now - self._tree_at >= (LEFT_EVERY_S if self._ended else TREE_EVERY_S)
        if not self._ended and (tree_due or (self._lock is None and now - self._root_at >= ROOT_EVERY_S)):
            self._root_at = now
            self._look_for_end()
        if tree_due:
            self._tree_at = now
            self._look_for_stop()
            self._look_at_tree(now)

    def _look_for_stop(self) -> None:
        if self._stop_told:
            return
        stop = records.read(os.path.join(self._folder, "stop.json"))
        if stop is not None:
            self._stop_told = True
            self._tell("stop", stop=stop)

    def _look_for_end(self) -> None:
        ended = self._exit or records.read(os.path.join(self._folder, "exit.json"))
        if ended is None:
            if self._lock is not None or self._keeper_lives():
                return
            if not self._keeper_told:
                self._keeper_told = True
                self._tell("keeper_gone")  # killed: the root may live on, and nobody will know its exit code
                self._attach()
            if self._lives_without_keeper():
                return
            ended = {"code": None, "signal": None, "unknown": True, "at": time.time(), "log_size": None, "left": []}
        self._ended = True
        self.close()
        self._look_for_stop()
        self._tree_at = float("-inf")  # what is left is told at once
        size = ended.get("log_size")
        self._tell(
            "exit",
            exit=ended,
            stop=records.read(os.path.join(self._folder, "stop.json")),
            log_size=size if size is not None else records.log_size(self.run),
            left=ended.get("left") or [],
        )

    def _lives_without_keeper(self) -> bool:
        root = self.run.get("root")
        if not self._here:
            return False
        if root and proc.alive(root["pid"], root["start_ticks"]):
            return True
        if root and not self.run.get("detaches"):
            return False
        if any(proc.alive(item["pid"], item["start_ticks"]) for item in self._tree):
            return True
        self.run["root"] = proc.oldest(proc.marked(self.run["run_id"])) or root
        return self.run["root"] is not root

    def _look_at_tree(self, now: float) -> None:
        known = [item for item in self._tree if self._here and proc.alive(item["pid"], item["start_ticks"])]
        thorough = now - self._thorough_at >= THOROUGH_EVERY_S or (self._ended and not known)
        if thorough:
            self._thorough_at = now
        run = self.run
        tree = proc.tree(run["run_id"], run.get("root"), run.get("keeper"), thorough=thorough) if self._here else []
        seen = {item["pid"] for item in tree}
        tree += [item for item in known if item["pid"] not in seen]
        self._tree = tree
        # Whether one stands still (SIGSTOP, a debugger) is told too: nothing else of it changes then.
        identities = [(item["pid"], item["start_ticks"], item["title"], item["state"] in "Tt") for item in tree]
        rss_bytes = sum(item["rss_bytes"] for item in tree)
        if identities != self._told_tree or abs(rss_bytes - self._told_rss_bytes) >= RSS_STEP_BYTES:
            self._told_tree, self._told_rss_bytes = identities, rss_bytes
            self._tell("tree", tree=tree)
        if tree and not self._ended and now - self._work_at >= WORK_EVERY_S:
            self._work_at = now
            cpu_s = round(sum(item["cpu_s"] for item in tree), 2)
            self._tell("work", cpu_s=cpu_s, read_bytes=sum(proc.read_bytes(item["pid"]) for item in tree))
        if self._ended and not tree:
            self._gone = True
            self._tell("tree_gone")


class PortWatch:
    """Tells when something starts or stops to listen. A local connect every 100 ms, and none while it listens."""

    def __init__(self, host: str, port: int, interval_s: float, tell: Tell) -> None:
        self._host, self._port, self._interval_s, self._tell = host, port, interval_s, tell
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def start(self) -> None:
        """Look at once, and from then on."""
        self._thread.start()

    def stop(self) -> None:
        """Say nothing more."""
        self._stopped.set()

    def _work(self) -> None:
        told: Optional[bool] = None
        address: Optional[str] = None
        in_table = False
        while not self._stopped.is_set():
            found: Optional[str]
            if address is not None and in_table:
                # The server sees nothing of this. What has gone from the table is asked once more before it is told.
                found = sockets.visible(self._host, self._port) or sockets.accepts(self._host, self._port)
            else:
                found = sockets.accepts(self._host, self._port)
            if self._stopped.is_set():
                return
            in_table = found is not None and sockets.visible(self._host, self._port) is not None
            address = found
            if (found is not None) is not told:
                told = found is not None
                try:
                    self._tell("port", open=told, address=found)
                except OSError:
                    return  # the operator is gone
            self._stopped.wait(self._interval_s if not told else OPEN_EVERY_S if in_table else ASK_AGAIN_S)


class GpuWatch:
    """Tells a look at the GPUs in every interval. `processes` is left out of a look in which none of them changed."""

    def __init__(self, look: Callable[[], Json], interval_s: float, tell: Tell) -> None:
        self._look, self._interval_s, self._tell = look, interval_s, tell
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def start(self) -> None:
        """Look at once, and from then on."""
        self._thread.start()

    def stop(self) -> None:
        """Say nothing more."""
        self._stopped.set()

    def _work(self) -> None:
        told: Optional[List[Json]] = None
        due = time.monotonic()
        while not self._stopped.is_set():
            snapshot = self._look()
            if self._stopped.is_set():
                return
            if snapshot["processes"] == told:
                snapshot["processes"] = None
            else:
                told = snapshot["processes"]
            try:
                self._tell("gpu", snapshot=snapshot)
            except OSError:
                return  # the operator is gone
            # At fixed times, and never a burst to make up for a look that took long.
            due = max(due + self._interval_s, time.monotonic())
            self._stopped.wait(due - time.monotonic())
