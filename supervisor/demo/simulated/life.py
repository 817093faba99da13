"""The life of a simulated engine: it comes up, serves, and ends as asked, as a fault wants it, or as a child dies.

All of it happens in the main thread, which does nothing but wait for the next point in time, a signal or a child's end;
the handlers of web.py run beside it and read the phase. What is said is written by the voices.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
import threading
import time
from typing import NoReturn

from . import ending, output
from . import options as command_line
from .options import Options
from .state import State
from .traffic import Traffic
from .voice import Script, Voice
from .voice_llamacpp import LlamacppVoice
from .voice_sglang import SglangVoice
from .voice_vllm import VllmVoice
from .web import Server, Site
from .workers import Crew, set_comm

_VOICES = {"sglang": SglangVoice, "vllm": VllmVoice, "llamacpp": LlamacppVoice}
_COMM = {"vllm": "vllm", "llamacpp": "llama-server"}
_DRAIN_S = 60.0
_TICK_S = 10.0


class Asked(Exception):
    """SIGTERM or SIGINT came."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class ChildDied(Exception):
    """A child of ours ended unasked."""

    def __init__(self, title: str, pid: int, code: int) -> None:
        super().__init__(title, pid, code)
        self.title, self.pid, self.code = title, pid, code


class Fate(Exception):
    """A fault strikes. `stage` is where, empty for a silent end."""

    def __init__(self, stage: str) -> None:
        super().__init__(stage)
        self.stage = stage


class PortTaken(Exception):
    """The port cannot be bound."""


class Life:
    def __init__(self, options: Options) -> None:
        self.options = options
        self.state = State()
        self.crew = Crew(options)  # forks: before any thread
        self._asked = 0
        self._wake = _wake_on_signals(options, self._on_ask)
        self.voice: Voice = _VOICES[options.engine](options, self.crew)
        self._flood = output.Flood(options.log_rate, options.seed)
        self._server: Server | None = None

    def _on_ask(self, number: int, _frame: object) -> None:
        self._asked = self._asked or number

    # --- waiting

    def _pause(self, until: float | None) -> None:
        """Waits for a point of the monotonic clock. Raises what happens meanwhile."""
        while True:
            if self._asked:
                raise Asked(self._asked)
            for child, code in self.crew.reap():
                raise ChildDied(child.title, child.pid, code)
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return
            if select.select([self._wake], [], [], left)[0]:
                self._wake.recv(4096)

    def _play(self, script: Script, seconds: float) -> None:
        began = time.monotonic()
        for when, mark in script:
            self._pause(began + when * seconds)
            self._strike(mark)
        self._pause(began + seconds)

    def _strike(self, mark: str) -> None:
        o = self.options
        if not mark:
            return
        if o.has(f"die-at-{mark}"):
            raise Fate(mark)
        if mark != "weights":
            return
        if o.has("hang-at-weights"):
            self._flood.stop()
            self._pause(None)
        elif o.has("gpu-lost"):
            self.crew.gpus.lose(min(5, o.workers - 1))
            self._pause(time.monotonic() + 2.5 / o.speed)  # nobody notices at once
            o.cause = o.cause or "torch.AcceleratorError: CUDA error: unspecified launch failure"
            raise Fate(mark)
        elif (o.has("exit-code") or o.has("signal")) and not any(name.startswith("die-") for name in o.faults):
            raise Fate("")

    # --- coming up

    def run(self) -> NoReturn:
        o = self.options
        output.line(f"*** SIMULATED ENGINE ({o.engine}): no model, no GPU; for tests and demonstrations ***")
        output.write_bytes(b"".join(output.flood_lines(o.seed + 1, o.log_lines)))
        self._flood.start()
        if o.while_file:
            ending.watch(o.while_file, self._vanish)
        try:
            self._come_up()
            self._serve()
        except Asked as asked:
            self._stop(asked.number)
        except ChildDied as died:
            self._lose(died)
        except Fate as fate:
            self._die(fate.stage)
        except PortTaken:
            self.voice.port_taken()
            self.crew.end(1.0)
            self._exit(1)

    def _come_up(self) -> None:
        o = self.options
        if o.engine == "llamacpp":
            self._bind()
            self._listen()
        elif o.engine == "vllm":
            self._bind()
        self._play(self.voice.loading(), o.load_s / o.speed)
        if o.engine == "vllm":
            self.voice.http_up()
            self.state.phase = "warming"
            if o.warm_s <= 0 and not o.has("503-for-ever"):
                self._flip(listen=True)
                return
            self._listen()
        elif o.engine == "sglang":
            self._bind()
            self.state.phase = "warming"
            self._listen()
            self.voice.http_up()
        self._warm()

    def _warm(self) -> None:
        """The 503 phase, and the moment at which it ends."""
        self.state.phase = "warming"
        self._play(self.voice.warming(), self.options.warm_s / self.options.speed)
        if self.options.has("503-for-ever"):
            self._pause(None)
        self._flip(listen=False)

    def _bind(self) -> None:
        if self.options.has("port-taken-late"):
            raise PortTaken
        try:
            self._server = Server(Site(self.options, self.state, self.voice, self.crew))
        except OSError:
            raise PortTaken from None

    def _listen(self) -> None:
        assert self._server is not None
        try:
            self._server.server_activate()
        except OSError:  # another socket of the same port listens since we bound it
            raise PortTaken from None
        threading.Thread(target=self._server.serve_forever, name="http", daemon=True).start()

    def _flip(self, listen: bool) -> None:
        """From here on a 200 is possible. The time is taken before, so that nobody can have been quicker."""
        monotonic, wall = time.monotonic(), time.time()
        self.state.phase = "up"
        if listen:
            self._listen()
        self.voice.ready()
        if self.options.flip_file:
            half = f"{self.options.flip_file}.{os.getpid()}"
            with open(half, "w", encoding="ascii") as file:
                file.write(f"{monotonic!r} {wall!r}\n")
            os.replace(half, self.options.flip_file)

    def _vanish(self) -> None:
        """The demonstration is over, however it ended: nothing stays."""
        self.crew.kill()
        os._exit(0)

    # --- serving

    def _serve(self) -> NoReturn:
        """Until something ends it."""
        o, began = self.options, time.monotonic()
        timed = [(began + o.after_s(name), name) for name in _TIMED if o.has(name)]
        timed.sort()
        tick = began + _TICK_S / o.speed
        Traffic(o, self.state, self.voice).start()
        while True:
            due = [at for at, _ in timed[:1]]
            self._pause(min([tick, *due]))
            if timed and time.monotonic() >= timed[0][0]:
                self._timed(timed.pop(0)[1])
            if time.monotonic() >= tick:
                self.voice.tick()
                tick += _TICK_S / o.speed

    def _timed(self, fault: str) -> None:
        if fault == "sick-after":
            self.state.phase = "sick"
        elif fault == "hang-core-after":
            self.state.hangs = True
        elif fault == "die-after":
            raise Fate("serving")
        elif fault == "orphan-workers":
            self._kill_self(signal.SIGKILL)
        elif self.options.engine == "vllm":
            self.crew.kill()
            raise ChildDied("EngineCore", os.getpid(), -signal.SIGKILL)
        else:
            self.state.phase = "sick"
            self._pause(time.monotonic() + 2.0 / self.options.speed)
            self._stop(signal.SIGTERM)

    # --- ending

    def _stop(self, number: int) -> NoReturn:
        """Gracefully: SGLang lets what runs finish, the others cut it off."""
        o = self.options
        self.state.phase = "draining"
        self._flood.stop()
        self.voice.stopping(number)
        until = time.monotonic() + (_DRAIN_S if o.engine == "sglang" else 0)
        while self.state.busy and time.monotonic() < until:
            time.sleep(0.02)
        if self._server is not None:
            self._server.socket.close()
        self.crew.end(2.0)
        self.voice.stopped()
        if o.has("sigkill-on-term"):
            self._kill_self(signal.SIGKILL)
        self._exit(0)

    def _lose(self, died: ChildDied) -> NoReturn:
        """A child was lost. SGLang kills its own tree; vLLM answers 503 for a while and ends with status 0."""
        o = self.options
        serving = self.state.phase != "loading"
        self._flood.stop()
        self.voice.child_died(died.title, died.pid, died.code, serving)
        if not serving:
            self.crew.kill()
            self._end_after_loss(1)
        if o.engine == "vllm":
            self.state.phase = "sick"
        until = time.monotonic() + (2.5 if o.engine == "vllm" else 5.0) / o.speed
        while time.monotonic() < until and not self._asked:
            if select.select([self._wake], [], [], max(0.0, until - time.monotonic()))[0]:
                self._wake.recv(4096)
        self.voice.child_death_settled()
        self.crew.kill()
        self._end_after_loss(0)

    def _end_after_loss(self, code: int) -> NoReturn:
        if self.options.engine == "vllm":
            self._exit(code)
        self._kill_self(signal.SIGKILL)

    def _die(self, stage: str) -> NoReturn:
        """By a fault: the words of the stage, then the end that the engine has, or the one that was asked for."""
        o = self.options
        self._flood.stop()
        if stage:
            self.voice.death(stage)
        if o.has("linger"):
            self._linger()
        if o.has("orphan-workers"):
            self._kill_self(signal.SIGKILL)
        self.crew.kill()
        if o.has("exit-code"):
            self._exit(int(str(o.faults["exit-code"])))
        if o.has("signal"):
            self._kill_self(signal.Signals[str(o.faults["signal"])])
        if o.engine == "sglang":
            self._kill_self(signal.SIGKILL)
        if o.engine == "llamacpp" and stage in ("warmup", "serving"):
            self._kill_self(signal.SIGABRT)
        self._exit(1)

    def _linger(self) -> NoReturn:
        """Its children are dead, and it waits for them for ever; only a signal ends it."""
        self.crew.kill()
        while not self._asked:
            if select.select([self._wake], [], [])[0]:
                self._wake.recv(4096)
        self._exit(1)

    def _exit(self, code: int) -> NoReturn:
        self.state.over.set()
        os._exit(code)  # handler threads may sit in a read; nothing of theirs is worth waiting for

    def _kill_self(self, number: signal.Signals) -> NoReturn:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        time.sleep(1)
        os._exit(128 + number)  # a signal that does not kill


_TIMED = ("sick-after", "hang-core-after", "die-after", "orphan-workers", "exit-0-on-death")


def _wake_on_signals(options: Options, on_ask: object) -> socket.socket:
    """A socket that turns readable with each signal: waiting on it misses none, whenever it comes."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    signal.set_wakeup_fd(theirs.detach(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.signal(signal.SIGINT, on_ask)  # type: ignore[arg-type]
    signal.signal(signal.SIGTERM, signal.SIG_IGN if options.has("ignore-term") else on_ask)  # type: ignore[arg-type]
    return ours


def main(argv: list[str]) -> NoReturn:
    options = command_line.parse(argv)
    life = Life(options)
    if options.engine in _COMM:
        set_comm(_COMM[options.engine])
    life.run()
