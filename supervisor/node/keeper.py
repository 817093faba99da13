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
import time
from typing import Any, Dict, List, Optional

from . import proc, records, witness
from .redact import redact_argv

_PR_SET_CHILD_SUBREAPER = 36
_ASK_AGAIN_S = 5.0
_LATE_TRIES = 120

# The server must never lose its keeper to a signal that was meant for somebody else. SIGQUIT and the user signals are
# here because engines send them to their parent (SGLang's ranks do when they fail), and an orphan's parent is us.
_NOT_OURS = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
)

Json = Dict[str, Any]


def run(orders: Json) -> None:
    """Carry out one launch, and stay until nothing of it is left."""
    report = 1  # whoever ordered the launch reads it; written to bare, so that its end cannot hurt us
    for number in _NOT_OURS:
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
    for descriptor in (0, 1, 2):
        os.dup2(keeper.null, descriptor)
    keeper.keep()


def _say(report: int, document: Json) -> None:
    try:
        view = memoryview((json.dumps(document) + "\n").encode())
        while view:
            view = view[os.write(report, view) :]
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
        self._exit: Optional[Json] = None
        self._unwritten = False
        self._witness = witness.Witness(_signal_name, self._tell_all)

    # ------------------------------------------------------------------------------- start

    def start(self) -> Json:
        """Write the record, open the log, start the server, write the record again."""
        try:
            records.make_private(self._folder)
            self._run = self._record()
            self._write_run()
        except OSError as error:
            self._abandon()
            text = "%s cannot be written: %s" % (self._folder, error.strerror)
            raise records.Refusal("state_dir", text, errno=error.errno) from error
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
        self._witness.begin(self._run)
        try:
            self._write_run()
        except OSError:
            self._unwritten = True  # the disk is full: the server runs all the same, and we tell of it on the lock
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
        # vLLM and SGLang name their workers by setproctitle, which writes over the environment in /proc, our mark too,
        # unless this is set.
        env.setdefault("SPT_NOENV", "1")
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
        try:
            if not self.orders.get("log") and log.get("path"):
                os.unlink(log["path"])
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
        selector.register(self._witness, selectors.EVENT_READ)
        while True:
            empty = self._reap()
            if self._lock is not None and (empty or self._ended()):
                # At once, before anything is waited for: this is the death notice.
                selector.unregister(self._lock)
                selector.unregister(self._witness)
                self._tell_end()
            if self._unwritten:
                self._write_late()
            if empty:
                break
            if self._exit is None:
                self._witness.look()
            for key, _ in selector.select(_ASK_AGAIN_S if self._exit is not None else self._witness.pause_s()):
                if key.fileobj is self._lock:
                    self._greet()
                elif key.fileobj is self._witness:
                    self._witness.ended()
                else:
                    _drain(wake_read)
        for _ in range(_LATE_TRIES):
            if not self._unwritten:
                break
            time.sleep(_ASK_AGAIN_S)
            self._write_late()

    def _write_late(self) -> None:
        """The disk had no room for the record of a server that runs: try once more."""
        try:
            self._write_run()
            if self._exit is not None:
                records.write(os.path.join(self._folder, "exit.json"), self._exit)
        except OSError:
            return
        self._unwritten = False

    def _greet(self) -> bool:
        """Answer one that has connected. False where nobody waits."""
        assert self._lock is not None
        try:
            sock, _ = self._lock.accept()
        except OSError:
            return False
        if records.peer_uid(sock) not in (os.getuid(), 0):
            sock.close()
            return True
        sock.setblocking(False)
        try:
            sock.sendall((json.dumps(self._run) + "\n").encode())
        except OSError:
            sock.close()
            return True
        # Kept open until the end of the run: its end-of-file is the death notice. Dead ones are few and small.
        self._watchers.append(sock)
        if len(self._watchers) > 256:
            self._watchers.pop(0).close()
        return True

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
                self._root.returncode = 0  # reaped here: subprocess must not wait for it once more
                if not self.orders.get("detaches"):
                    self._write_end()
            elif self._exit is None:
                self._witness.reaped(pid, status)

    def _ended(self) -> bool:
        return self._root_status is not None and not self.orders.get("detaches")

    def _tell_end(self) -> None:
        if self.orders.get("detaches"):
            self._write_end()
        while self._greet():
            pass  # whoever connected in this moment learns of the run too, not only of its end
        self._tell_all({"exit": self._exit})
        for sock in self._watchers:
            sock.close()
        self._watchers = []
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _tell_all(self, document: Json) -> None:
        notice = (json.dumps(document) + "\n").encode()
        for sock in self._watchers:
            try:
                sock.sendall(notice)
            except OSError:
                pass  # one that reads nothing still gets the end-of-file, and exit.json has it all

    def _write_end(self) -> None:
        """exit.json, once. A detaching command ends with its tree: the code that we saw is its start script's."""
        status = self._root_status if self._root_status is not None else 0
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        code = None if number is not None else os.WEXITSTATUS(status)
        detaches = bool(self.orders.get("detaches"))
        stop = records.read(os.path.join(self._folder, "stop.json"))
        at = time.time()
        left = proc.tree(self._run["run_id"], None, self._run["keeper"], thorough=False)
        self._exit = {
            "code": None if detaches else code,
            "signal": _signal_name(number) if number is not None and not detaches else None,
            "root_code": code,
            "at": at,
            "log_size": records.log_size(self._run),
            "left": left,
            "stopped_by": stop.get("by") if stop else None,
        }
        self._exit.update(self._witness.told(at, left))
        try:
            # Not synced: it is the death notice, and after a crash of the machine the boot id tells the same.
            records.write(os.path.join(self._folder, "exit.json"), self._exit, sync=False)
        except OSError:
            self._unwritten = True


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
        _say(1, {"failed": {"code": "keeper", "text": "%s: %s" % (type(error).__name__, error)}})
