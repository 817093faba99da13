"""The child processes: real ones, with the titles of the engine's own, that do nothing but live, echo and die.

The scheduler (or engine core) echoes a token, so that a frozen or killed one is felt by whoever asks for a generation.
Forked from the main thread before any other thread starts, since PR_SET_PDEATHSIG follows the thread that forked.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import NoReturn

from . import ending, output
from .gpus import GIB, Gpus, open_devices
from .options import Options

_PR_SET_PDEATHSIG = 1


def set_title(title: str) -> None:
    """Shows `title` in /proc/self/comm and cmdline, as setproctitle does: argv is overwritten where it stands."""
    try:
        set_comm(title)
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rsplit(b")", 1)[1].split()
        start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end are fields 48 and 49; [0] is field 3
        room = end - start
        if start and room > 1:
            ctypes.memmove(start, title.encode()[: room - 1].ljust(room, b"\0"), room)
    except (OSError, ValueError, IndexError):
        pass  # no /proc, or one that hides it: the process only looks like Python


def set_comm(name: str) -> None:
    """The short name alone, as a launcher script such as `vllm` shows it."""
    try:
        with open("/proc/self/comm", "wb") as file:
            file.write(name.encode()[:15])
    except OSError:
        pass


class Child:
    """A process of ours and what the logs call it."""

    def __init__(self, pid: int, title: str) -> None:
        self.pid = pid
        self.title = title


class Crew:
    """The children of one engine. `ask` is a round trip through the one that would generate."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self.gpus = Gpus(options.gpus)
        self._channel: socket.socket | None = None
        self._asking = threading.Lock()
        self._number = 0
        self.direct: list[Child] = []  # our own children
        self.ranks: list[Child] = []  # the workers, in order of their rank; vLLM's are children of its core
        if options.engine == "sglang":
            self._spawn_sglang()
        elif options.engine == "vllm":
            self._spawn_vllm()
        elif options.gpus:
            open_devices(options.gpus, 0)

    def _spawn_sglang(self) -> None:
        ours, theirs = socket.socketpair()
        for rank in range(self._options.workers):
            title = "sglang::scheduler" + (f"_TP{rank}" if self._options.workers > 1 else "")
            child = Child(_fork(self._options, title, theirs if rank == 0 else None, ours, gpu=rank), title)
            self.ranks.append(child)
        detokenizer = Child(_fork(self._options, "sglang::detokenizer", None, ours), "sglang::detokenizer")
        self.direct = [*self.ranks, detokenizer]
        theirs.close()
        self._channel = ours

    def _spawn_vllm(self) -> None:
        ours, theirs = socket.socketpair()
        core = Child(
            _fork(self._options, "VLLM::EngineCore", theirs, ours, workers=self._options.workers), "EngineCore"
        )
        theirs.close()
        self.direct = [core]
        told = b""
        while len(told) < 4 * self._options.workers:
            piece = ours.recv(4096)
            if not piece:
                break
            told += piece
        for rank, (pid,) in enumerate(struct.iter_unpack("=i", told)):
            self.ranks.append(Child(pid, _worker_title(rank, self._options.workers)))
        self._channel = ours

    def hold(self, gb: float, percent: int) -> None:
        """Each rank (without ranks: we ourselves) holds so much of its GPU; no two are quite alike."""
        pids = [rank.pid for rank in self.ranks] or [os.getpid()]
        spread = [max(0.0, gb - 0.04 * (gpu * 3 % 8)) if gpu else gb for gpu in range(len(pids))]
        self.gpus.write([(pid, gpu, int(spread[gpu] * GIB), percent) for gpu, pid in enumerate(pids)])

    def ask(self, timeout_s: float, give_up: Callable[[], bool]) -> bool:
        """Whether the engine's core answered in time. A dead one is silent, as it is for a real front end."""
        if self._channel is None:
            return True
        until = time.monotonic() + timeout_s
        while not self._asking.acquire(timeout=0.25):
            if time.monotonic() > until or give_up():
                return False
        try:
            return self._round_trip(self._channel, until, give_up)
        finally:
            self._asking.release()

    def _round_trip(self, channel: socket.socket, until: float, give_up: Callable[[], bool]) -> bool:
        self._number = (self._number + 1) % 2**31
        word = struct.pack("=i", self._number)
        heard = b""
        channel.settimeout(0.25)
        try:
            channel.sendall(word)
        except OSError:
            heard = b""
        while time.monotonic() < until and not give_up():
            try:
                piece = channel.recv(4096)
            except (socket.timeout, BlockingIOError):  # before 3.10 another class than TimeoutError
                continue
            except OSError:
                piece = b""
            if not piece:
                time.sleep(0.05)
                continue
            heard += piece
            # Answers to questions that were given up may stand before ours.
            if heard[-4:] == word:
                return True
        return False

    def reap(self) -> list[tuple[Child, int]]:
        """The own children that ended since the last look, each with its exit code, negative for a signal."""
        ended = []
        for child in list(self.direct):
            try:
                pid, status = os.waitpid(child.pid, os.WNOHANG)
            except ChildProcessError:
                pid, status = child.pid, 0
            if pid:
                self.direct.remove(child)
                code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
                ended.append((child, code))
        return ended

    def end(self, grace_s: float) -> None:
        """TERM to our own children, KILL to all that is left after the grace; returns when they are gone."""
        self._signal(self.direct, signal.SIGTERM)
        until = time.monotonic() + grace_s
        while self.direct and time.monotonic() < until:
            self.reap()
            time.sleep(0.005)
        self.kill()

    def kill(self) -> None:
        """SIGKILL to all of them."""
        if self._options.engine == "vllm" and not self.direct:
            return  # its workers went with their core; their pids may belong to others by now
        self._signal([*self.direct, *(rank for rank in self.ranks if rank not in self.direct)], signal.SIGKILL)
        while self.direct:
            self.reap()
            time.sleep(0.002)

    def _signal(self, children: list[Child], number: int) -> None:
        for child in children:
            if self._options.engine == "sglang" and child not in self.direct:
                continue  # reaped already: the pid may belong to another by now
            try:
                os.kill(child.pid, number)
            except OSError:
                pass


def _worker_title(rank: int, workers: int) -> str:
    return "VLLM::Worker" + (f"_TP{rank}" if workers > 1 else "")


def _fork(
    options: Options,
    title: str,
    channel: socket.socket | None,
    not_mine: socket.socket | None,
    workers: int = 0,
    gpu: int | None = None,
) -> int:
    """Forks a child that lives until its channel or its parent is gone. The pid; never returns in the child."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        if not_mine is not None:
            not_mine.close()
        _settle(options, title, parent)
        if options.gpus and gpu is not None:
            open_devices(options.gpus, gpu)
        if workers:
            _be_core(options, channel, workers)
        else:
            _be_worker(options, channel)
    finally:
        os._exit(1)


def _settle(options: Options, title: str, parent: int) -> None:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C reaches the whole group; the parent ends us in its own way
    signal.signal(signal.SIGTERM, signal.SIG_IGN if options.has("ignore-term") else signal.SIG_DFL)
    orphan = options.has("orphan-workers")
    if orphan or options.has("setsid-workers"):
        os.setsid()
    if orphan:
        signal.alarm(options.orphan_life_s)  # nobody else ends an orphan; a forgotten test must not leave one for ever
    else:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(0)  # it died before we asked to be told
    set_title(title)


def _be_worker(options: Options, channel: socket.socket | None) -> NoReturn:
    if channel is not None:
        _echo(channel)
        if not options.has("orphan-workers"):
            os._exit(0)
    if options.engine == "vllm" and not options.has("ignore-term"):
        signal.signal(signal.SIGTERM, lambda _number, _frame: os._exit(0))
    _live_on(options)


def _live_on(options: Options) -> NoReturn:
    """Until a signal; an orphan of a demonstration until that is over."""
    if options.while_file and options.has("orphan-workers"):
        ending.wait_until_over(options.while_file)
        os._exit(0)
    while True:
        signal.pause()


def _echo(channel: socket.socket) -> None:
    """Answers until the other end is gone."""
    try:
        while True:
            data = channel.recv(4096)
            if not data:
                return
            channel.sendall(data)
    except OSError:
        return


def _be_core(options: Options, channel: socket.socket | None, workers: int) -> NoReturn:
    """vLLM's EngineCore: parent of the workers. It does not outlive one of them."""
    assert channel is not None
    pids = {rank: _fork(options, _worker_title(rank, workers), None, channel, gpu=rank) for rank in range(workers)}

    def end(code: int) -> NoReturn:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for pid in pids.values():
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except OSError:
                pass
        os._exit(code)

    def on_worker_end(_number: int, _frame: object) -> None:
        for rank, pid in list(pids.items()):
            gone, status = os.waitpid(pid, os.WNOHANG)
            if not gone:
                continue
            del pids[rank]  # reaped: from here on its pid may be another's
            if status:  # one that was asked to end, with the whole group, leaves with 0
                code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
                stamp = time.strftime("%m-%d %H:%M:%S")
                output.line(
                    f"(EngineCore pid={os.getpid()}) ERROR {stamp} [multiproc_executor.py:278] Worker proc "
                    f"VllmWorker-{rank} died unexpectedly (exit code: {code}), shutting down executor."
                )
                end(1)

    def on_term(_number: int, _frame: object) -> None:
        stamp = time.strftime("%m-%d %H:%M:%S")
        output.line(
            f"(EngineCore pid={os.getpid()}) INFO {stamp} [core.py:1454] [shutdown] EngineCore: trigger received "
            "signal=SIGTERM"
        )
        end(0)

    if options.has("orphan-workers"):
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the dead of an orphan
    else:
        signal.signal(signal.SIGCHLD, on_worker_end)
    if not options.has("ignore-term"):
        signal.signal(signal.SIGTERM, on_term)
    channel.sendall(struct.pack(f"={workers}i", *pids.values()))
    _echo(channel)
    if not options.has("orphan-workers"):
        end(0)
    _live_on(options)
