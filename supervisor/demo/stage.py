"""Where a demonstration takes place: a folder, a loopback SSH node, simulated GPUs, what yesterday left, and a plan.

Nothing of it outlives it, whatever ends it: what it started looks after a lock that dies with this process, and a guard
removes the folder. Nothing of the user's (home, ssh, configuration, caches) is read or written by it.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import socket
import sys
from pathlib import Path
from typing import Self

from msgspec import Struct

from supervisor import resources
from supervisor.adapters.base import Clock, Link
from supervisor.adapters.ssh import SshLink
from supervisor.demo import faults
from supervisor.demo import guard as guard_program
from supervisor.demo.gpus import CARD_GIB, COUNT, SimulatedGpus
from supervisor.demo.loopback import LoopbackNode, make_folder
from supervisor.demo.yesterday import LeftOver
from supervisor.engines import loader
from supervisor.errors import UsageError
from supervisor.supervise.plan import Plan, VerifyPlan
from supervisor.supervise.session import Session

REAL_ENGINE = "llama.cpp"
REAL_PROGRAM = "llama-server"
MODEL = "simulated/547b-int4"
WEIGHTS_GIB, KV_GIB = 33.5, 21.6
"""A rank, beside what yesterday left on GPU 7, fits its GPU."""
CLIENTS = 32
GUARD_WAIT_S = 25.0


class Timeline(Struct, frozen=True, kw_only=True):
    """How long each part of the simulated start takes, in seconds."""

    load_s: float
    warm_s: float
    health_s: float
    """A healthy health answer takes this long, as SGLang's does."""
    fall_s: float
    """The memory of what has ended is free after this."""


SHOWN = Timeline(load_s=44.0, warm_s=7.0, health_s=1.0, fall_s=2.0)
FAST = Timeline(load_s=5.0, warm_s=1.5, health_s=0.3, fall_s=0.8)


class Play(Struct, frozen=True, kw_only=True):
    """What is shown."""

    engine: str = "sglang"
    fault: str = ""
    model: str = ""
    """Of a real engine: the file."""
    timeline: Timeline = SHOWN

    @property
    def real(self) -> bool:
        """Whether the engine is a real one; then no GPU is simulated."""
        return self.engine == REAL_ENGINE

    @property
    def title(self) -> str:
        """Where a profile's name would be."""
        return "demo" if self.real else "demo (simulated)"

    @property
    def what(self) -> str:
        """In words."""
        return "a real llama-server" if self.real else "a SIMULATED engine on SIMULATED GPUs"


def checked(play: Play) -> Play:
    """The same. Raises `UsageError` for an engine or a fault that is not known."""
    kinds = simulated_engines()
    if not play.real and play.engine not in kinds:
        known = ", ".join((*kinds, REAL_ENGINE))
        raise UsageError(f"--engine: {play.engine!r} cannot be simulated (known: {known})")
    if play.real and play.fault:
        raise UsageError("--fault belongs to a simulated engine")
    if play.fault and (why := faults.problem(play.fault)):
        raise UsageError(f"--fault: {why}")
    return play


def simulated_engines() -> tuple[str, ...]:
    """The engines that can be simulated."""
    return tuple(name for name in loader.names() if name in resources.simulated_kinds())


class Stage:
    """An async context manager: all of it exists inside, and nothing of it afterwards."""

    def __init__(self, play: Play) -> None:
        self.play = checked(play)
        self.folder = make_folder()
        self.gpus = None if play.real else SimulatedGpus(self.folder / "gpus")
        self.nvml_source = self.gpus.nvml_source(fall_s=play.timeline.fall_s) if self.gpus is not None else None
        self.node = LoopbackNode(self.folder, self.gpus.environment if self.gpus is not None else {})
        self._lock = self.folder / "alive"
        self._lock_fd = -1
        self._guard: asyncio.subprocess.Process | None = None
        self.left_over: LeftOver | None = None
        try:
            self.plan = self._plan()
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    async def __aenter__(self) -> Self:
        try:
            self._lock_fd = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._guard = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-I", "-S", str(guard_program.__file__), str(self.folder)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
            if self.gpus is not None:
                self.left_over = LeftOver(self.gpus, self.folder / "state", self._lock)
                await self.left_over.start()
            await self.node.start()
            self._link_programs()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Whatever was launched and lives is ended by the guard; `run_stop` before is the way that shows."""
        try:
            await self.node.stop()
            if self.left_over is not None:
                await self.left_over.close()
        finally:
            if self._lock_fd >= 0:
                os.close(self._lock_fd)  # from here on nothing that is left goes on
            await self._end_guard()
            shutil.rmtree(self.folder, ignore_errors=True)

    async def _end_guard(self) -> None:
        if self._guard is None or self._guard.stdin is None:
            return
        self._guard.stdin.close()
        try:
            async with asyncio.timeout(GUARD_WAIT_S):
                await self._guard.wait()
        except TimeoutError:
            pass  # it goes on by itself

    # ------------------------------------------------------------------------------- what is run on it

    def make_link(self) -> Link:
        """A new link to the node."""
        return SshLink(self.node.target, config_files=[self.node.config_file], known_hosts=self.node.known_hosts)

    def session(self, clock: Clock, *, stays: bool) -> Session:
        """A session that launches. It remembers what its launches took here, and not in the user's own records."""
        return Session(
            self.plan,
            self.make_link,
            clock=clock,
            by="demo",
            stays=stays,
            nvml_source=self.nvml_source,
            history=self.folder / "history",
        )

    def _plan(self) -> Plan:
        play, port = self.play, _free_port()
        if play.real:
            name, argv = "llamacpp", self._real_command(port)
        else:
            name, argv = play.engine, self._simulated_command(port)
        return Plan(
            key=f"demo-{os.getpid()}",
            name="demo",
            engine=loader.load(name),
            words=tuple([["lit", word]] for word in argv),
            env={},
            cwd=[["home"]],
            verify=VerifyPlan(timeout_s=30.0),
            grace_s=10.0,
            python=sys.executable,
            state_dir=str(self.folder / "state"),
        )

    def _simulated_command(self, port: int) -> list[str]:
        play, gpus = self.play, self.gpus
        assert gpus is not None
        argv = ["./python3", resources.simulated_engine().name, play.engine, "--model-path", MODEL]
        argv += ["--port", str(port), "--tp", str(COUNT), "--enable-metrics"]
        argv += ["--sim-load", f"{play.timeline.load_s:g}", "--sim-warm", f"{play.timeline.warm_s:g}"]
        argv += ["--sim-health-delay", f"{play.timeline.health_s:g}", "--sim-traffic", str(CLIENTS)]
        argv += ["--sim-card", f"{CARD_GIB:.2f}", "--sim-weights", f"{WEIGHTS_GIB:g}", "--sim-kv", f"{KV_GIB:g}"]
        argv += ["--sim-gpus", str(gpus.folder), "--sim-while", str(self._lock)]
        return [*argv, "--sim-fault", play.fault] if play.fault else argv

    def _link_programs(self) -> None:
        """In the node's home, so that what is shown of the command is not all paths."""
        engine = resources.simulated_engine()
        (self.node.home / "python3").symlink_to(sys.executable)
        for path in (engine, engine.parent / "simulated"):
            (self.node.home / path.name).symlink_to(path)

    def _real_command(self, port: int) -> list[str]:
        program = shutil.which(REAL_PROGRAM)
        if program is None:
            raise UsageError(f"--engine {REAL_ENGINE}: there is no {REAL_PROGRAM} in PATH")
        if not self.play.model:
            raise UsageError(f"--engine {REAL_ENGINE} needs --model FILE (a .gguf)")
        model = str(Path(self.play.model).resolve())
        return [program, "-m", model, "--host", "127.0.0.1", "--port", str(port), "-c", "512"]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
