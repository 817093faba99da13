"""The keeper: starts the server, owns its process tree, and writes down how it ended. Outlives every connection.

It claims the run's lock before it starts anything, so of two that start at once one loses. It logs nothing, opens no
port, and never signals the server.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from typing import Any, Dict, List, Optional

from . import proc, records
from .redact import redact_argv

_PR_SET_CHILD_SUBREAPER = 36

Json = Dict[str, Any]


def run(orders: Json) -> None:
    """Carry out one launch, and stay until nothing of it is left."""
    report = os.fdopen(os.dup(1), "w")
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        # Handlers, not SIG_IGN: what is ignored would stay ignored in the server.
        signal.signal(number, lambda _number, _frame: None)
    lock = _claim(orders["key"])
    if lock is None:
        _say(report, {"lost": True})
        return
    keeper = _Keeper(orders, lock)
    try:
        document = keeper.start()
    except records.Refusal as refusal:
        _say(report, {"failed": {"code": refusal.code, "text": str(refusal), "detail": refusal.detail}})
        return
    _say(report, {"started": document})
    report.close()
    for descriptor in (0, 1, 2):
        os.dup2(keeper.null, descriptor)
    keeper.keep()


def _say(report: Any, document: Json) -> None:
    try:
        report.write(json.dumps(document) + "\n")
        report.flush()
    except OSError:
        pass  # whoever ordered the launch is gone; the run goes on, and the records tell of it


def _claim(key: str) -> Optional[socket.socket]:
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        lock.bind(records.lock_name(key))
    except OSError as error:
        lock.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise
    lock.listen(64)
    lock.setblocking(False)
    return lock


class _Keeper:
    def __init__(self, orders: Json, lock: socket.socket) -> None:
        self.orders = orders
        self.null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self._lock: Optional[socket.socket] = lock
        self._watchers: List[socket.socket] = []
        self._folder = records.run_dir(orders["base"], orders["key"], orders["run_id"])
        self._run: Json = {}
        self._root: Optional[subprocess.Popen[bytes]] = None
        self._root_status: Optional[int] = None

    # ------------------------------------------------------------------------------- start

    def start(self) -> Json:
        """Write the record, open the log, start the server, write the record again."""
        records.make_private(self._folder)
        self._run = self._record()
        self._write_run()
        descriptor = self._open_log()
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        try:
            self._root = self._spawn(descriptor)
        except records.Refusal:
            self._abandon()
            raise
        finally:
            os.close(descriptor)
        found = proc.stat(self._root.pid)
        ticks = found["start_ticks"] if found is not None else 0
        self._run["root"] = {"pid": self._root.pid, "start_ticks": ticks}
        self._write_run()
        return self._run

    def _record(self) -> Json:
        orders = self.orders
        mine = proc.stat(os.getpid())
        assert mine is not None
        record = {
            "protocol": records.PROTOCOL,
            "run_id": orders["run_id"],
            "key": orders["key"],
            "fingerprint": orders["fingerprint"],
            "argv": redact_argv(orders["argv"]),
            "cwd": orders["cwd"],
            "env": orders.get("env_hashes") or {},
            "log": None,
            "root": None,
            "keeper": {"pid": os.getpid(), "start_ticks": mine["start_ticks"]},
            "boot_id": proc.boot_id(),
            "uid": os.getuid(),
            "started_at": time.time(),
            "by": orders.get("by") or "",
            "detaches": bool(orders.get("detaches")),
        }
        record.update(orders.get("extra") or {})
        return record

    def _write_run(self) -> None:
        records.write(os.path.join(self._folder, "run.json"), self._run)

    def _open_log(self) -> int:
        path = self.orders.get("log") or os.path.join(self._folder, "server.log")
        try:
            # No O_TRUNC, ever: an earlier run's log in the same file stays.
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            self._abandon()
            raise records.Refusal("log_open", "the log %s cannot be opened: %s" % (path, error.strerror)) from error
        info = os.fstat(descriptor)
        self._run["log"] = {"path": path, "dev": info.st_dev, "ino": info.st_ino, "offset": info.st_size}
        link = os.path.join(self._folder, "log")
        try:
            os.symlink(path, link)
        except OSError:
            pass  # the link is a convenience for people; the record has the path
        return descriptor

    def _spawn(self, log: int) -> "subprocess.Popen[bytes]":
        orders = self.orders
        env = dict(orders.get("base_env") or os.environ)
        env.update(orders.get("env") or {})
        env[proc.MARKER] = orders["run_id"]
        try:
            return subprocess.Popen(
                orders["argv"],
                stdin=self.null,
                stdout=log,
                stderr=log,
                cwd=orders["cwd"],
                env=env,
                close_fds=True,
                start_new_session=True,
            )
        except OSError as error:
            text = "%s cannot be run: %s" % (error.filename or orders["argv"][0], error.strerror)
            raise records.Refusal("exec", text, errno=error.errno) from error

    def _abandon(self) -> None:
        """Nothing was started: the record must not look like a run."""
        for name in ("run.json", "log"):
            try:
                os.unlink(os.path.join(self._folder, name))
            except OSError:
                pass
        log = self._run.get("log") or {}
        if not self.orders.get("log") and log.get("path"):
            os.unlink(log["path"])
        try:
            os.rmdir(self._folder)
        except OSError:
            pass

    # ------------------------------------------------------------------------------- keep

    def keep(self) -> None:
        """Answer on the lock, reap, write the end down, and stay until nothing of the run is left."""
        assert self._lock is not None
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        selector = selectors.DefaultSelector()
        selector.register(wake_read, selectors.EVENT_READ)
        selector.register(self._lock, selectors.EVENT_READ)
        while not self._reap():
            for key, _ in selector.select(timeout=5.0):
                if key.fileobj is self._lock:
                    self._greet()
                else:
                    _drain(wake_read)
            if self._ended() and self._lock is not None:
                selector.unregister(self._lock)
                self._tell_end()
        if self._lock is not None:
            self._tell_end()

    def _greet(self) -> None:
        assert self._lock is not None
        try:
            sock, _ = self._lock.accept()
        except OSError:
            return
        if records.peer_uid(sock) not in (os.getuid(), 0):
            sock.close()
            return
        try:
            sock.sendall((json.dumps(self._run) + "\n").encode())
        except OSError:
            sock.close()
            return
        # Kept open until the end of the run: its end-of-file is the death notice. Dead ones are few and small.
        self._watchers.append(sock)
        if len(self._watchers) > 256:
            self._watchers.pop(0).close()

    def _reap(self) -> bool:
        """Collect whatever ended. True when no process of the run is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            if self._root is not None and pid == self._root.pid:
                self._root_status = status
                self._root.returncode = 0  # reaped here: subprocess must not wait for it again
                if not self.orders.get("detaches"):
                    self._write_end()

    def _ended(self) -> bool:
        return self._root_status is not None and not self.orders.get("detaches")

    def _tell_end(self) -> None:
        if self.orders.get("detaches"):
            self._write_end()
        for sock in self._watchers:
            sock.close()
        self._watchers = []
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _write_end(self) -> None:
        path = os.path.join(self._folder, "exit.json")
        if os.path.exists(path):
            return
        status = self._root_status if self._root_status is not None else 0
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        left = proc.tree(self._run["run_id"], None, self._run["keeper"], thorough=False)
        stop = records.read(os.path.join(self._folder, "stop.json"))
        records.write(
            path,
            {
                "code": None if number is not None else os.WEXITSTATUS(status),
                "signal": _signal_name(number) if number is not None else None,
                "at": time.time(),
                "log_size": records.log_size(self._run),
                "left": left,
                "stopped_by": stop.get("by") if stop else None,
            },
        )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "SIG%d" % number


def _drain(descriptor: int) -> None:
    try:
        while os.read(descriptor, 4096):
            pass
    except BlockingIOError:
        pass


def main(orders: Json) -> None:
    """Entry point of the keeper's own interpreter."""
    try:
        run(orders)
    except Exception as error:  # whatever it is, whoever ordered the launch must hear of it
        sys.stdout.write(
            json.dumps({"failed": {"code": "keeper", "text": "%s: %s" % (type(error).__name__, error)}}) + "\n"
        )
        sys.stdout.flush()
        raise
