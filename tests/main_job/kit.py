"""What the tests of this folder share: a place with its own records and log, real commands on it, a relay to cut.

How many servers a profile ever had is counted in its log, to which every start appends the engine's first line: that
is an oracle which shares nothing with the product's records.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import psutil
import pytest

from supervisor import resources
from tests.real import processes
from tests.real.nvml import MIB, StubNvml
from tests.real.ports import free_port
from tests.real.processes import Tracker

RUN_MARKER = "INFERENCE_SUPERVISOR_RUN"
PATIENCE_S = 30.0
QUICK = ("--sim-load", "0.3", "--sim-warm", "0.3", "--sim-health-delay", "0", "--sim-speed", "4")
"""A whole start in a fifth of a second."""
LOADS = ("--sim-load", "600", "--sim-health-delay", "0")
WARMS = ("--sim-load", "0", "--sim-health-delay", "0", "--sim-fault", "503-for-ever")


class Command:
    """One real `supervisor …`. Its output goes to files, so that nothing has to be read while it runs."""

    def __init__(self, site: Site, words: tuple[str, ...], env: Mapping[str, str]) -> None:
        name = secrets.token_hex(4)
        self._out, self._err = site.folder / f"{name}.out", site.folder / f"{name}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "supervisor.cli", *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=site.folder,
                env={**os.environ, "HOME": str(site.home), **env},
            )

    @property
    def out(self) -> str:
        return self._out.read_text(encoding="utf-8")

    @property
    def err(self) -> str:
        return self._err.read_text(encoding="utf-8")

    @property
    def said(self) -> str:
        """All of it, for a message or a search."""
        return f"{self.out}\n{self.err}"

    def exit_code(self, timeout_s: float = PATIENCE_S) -> int:
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end:\n{self.said}") from None

    def events(self) -> list[dict[str, Any]]:
        """What it has told with --json; a line that is being written is left out."""
        return [json.loads(line) for line in self.out.splitlines(keepends=True) if line.endswith("\n")]

    def summary(self) -> dict[str, Any]:
        last = self.events()[-1]
        assert last["kind"] == "summary", self.said
        return last

    def until_phase(self, phase: str) -> None:
        """With --json: returns once it has told that phase."""

        def look() -> bool:
            assert self.process.poll() is None, f"it ended before {phase}:\n{self.said}"
            return any(event["kind"] == "phase" and event["to"] == phase for event in self.events())

        processes.poll(look, PATIENCE_S, f"the phase {phase}:\n{self.said}")

    def told_at(self, phase: str) -> float:
        """With --json: when it told that phase, in seconds since 1970."""
        at = next(event["at"] for event in self.events() if event["kind"] == "phase" and event["to"] == phase)
        return datetime.fromisoformat(at).timestamp()

    def kill(self) -> None:
        """As a crash of the operator's machine would."""
        self.process.kill()
        self.process.wait(10)


class Site:
    """One profile on this machine, with records, log, port and home of its own."""

    def __init__(self, folder: Path, tracker: Tracker, *flags: str, engine: str = "sglang") -> None:
        self.folder = folder
        self.tracker = tracker
        self.key = f"t{secrets.token_hex(6)}"
        self.port = free_port()
        self.log = folder / f"{self.key}.log"
        self.home = folder / "home"
        self.state_dir = folder / "state"
        self.file = folder / f"{self.key}.toml"
        self.engine = engine
        self._commands: list[Command] = []
        self.home.mkdir(parents=True, exist_ok=True)
        self.write(*flags)

    def command(self, *flags: str) -> list[str]:
        """The server's command line."""
        program = [sys.executable, "-I", str(resources.simulated_engine()), self.engine]
        return [*program, "--model-path", "some/model", "--port", str(self.port), *flags]

    def write(self, *flags: str, env: Mapping[str, str] | None = None, more: str = "") -> None:
        """The profile, anew. `more` is TOML that follows."""
        lines = [
            f"name = {json.dumps(self.key)}",
            f"engine = {json.dumps(self.engine)}",
            "[node]",
            'host = "local"',
            f"state_dir = {json.dumps(str(self.state_dir))}",
            f"python = {json.dumps(sys.executable)}",
            "[launch]",
            f"command = {json.dumps(self.command(*flags))}",
            f"log = {json.dumps(str(self.log))}",
            *(f"env.{name} = {json.dumps(value)}" for name, value in (env or {}).items()),
            "[stop]",
            'grace = "5s"',
            more,
        ]
        self.file.write_text("\n".join(lines) + "\n", encoding="utf-8")

    # ------------------------------------------------------------------------------- commands

    def start(self, *words: str, env: Mapping[str, str] | None = None) -> Command:
        command = Command(self, words, env or {})
        self._commands.append(command)
        return command

    def headless(self, *words: str, env: Mapping[str, str] | None = None) -> Command:
        """`supervisor --headless PROFILE --json`, started."""
        return self.start("--headless", str(self.file), "--json", "--timeout", "25s", *words, env=env)

    def launch_and_leave(self, file: Path) -> None:
        """A launch of this profile, and nobody who waits for it any more as soon as it loads."""
        waits = self.start("--headless", str(file), "--json")
        waits.until_phase("loading")
        waits.kill()

    def serve(self, *words: str) -> Command:
        """The same, to its successful end."""
        command = self.headless(*words)
        assert command.exit_code() == 0, command.said
        return command

    # ------------------------------------------------------------------------------- what is there

    def servers_ever(self) -> int:
        """How many servers were ever started for this profile."""
        return self.log.read_bytes().count(b"*** SIMULATED ENGINE") if self.log.exists() else 0

    def marked(self) -> list[psutil.Process]:
        """Every living process of a run that this test started."""
        found = []
        for process in self.tracker.alive():
            try:
                if RUN_MARKER in process.environ():
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def runs_alive(self) -> set[str]:
        """The ids of the runs of which a process lives."""
        found = set()
        for process in self.marked():
            try:
                found.add(process.environ()[RUN_MARKER])
            except psutil.Error:
                continue
        return found

    def records(self) -> list[dict[str, Any]]:
        """Every run.json, oldest first."""
        return [json.loads(path.read_text()) for path in sorted(self.state_dir.glob("**/runs/*/run.json"))]

    def process_of(self, who: str) -> psutil.Process:
        """`root` or `keeper` of the newest run."""
        return psutil.Process(self.records()[-1][who]["pid"])

    def identity(self) -> tuple[int, int]:
        """Pid and start ticks of the newest run's root, from /proc."""
        pid = self.process_of("root").pid
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return pid, int(after_name[19])

    def lock_is_held(self) -> bool:
        """Whether a keeper holds the abstract socket of this profile."""
        wanted = f"@inference-supervisor/{os.getuid()}/{self.key}"
        return any(line.rstrip().endswith(wanted) for line in Path("/proc/net/unix").read_text().splitlines())

    def end(self) -> None:
        """Whatever the test started and still lives: supervisors first, then servers, by pid."""
        for command in self._commands:
            if command.process.poll() is None:
                command.kill()
        left = self.marked()
        for process in left:
            processes.send(process, signal.SIGKILL)
        processes.wait_gone(left, 5)
        processes.wait_gone(self.tracker.alive(), 5)


@contextmanager
def tracked() -> Iterator[Tracker]:
    """The tracker of a place that several tests of a module share; see tests/conftest.py for one test's own."""
    with pytest.MonkeyPatch.context() as patch:
        tracker = Tracker(secrets.token_hex(8))
        patch.setenv(processes.MARK, tracker.mark)
        yield tracker
    tracker.assert_none_left()


@contextmanager
def site(folder: Path, tracker: Tracker, *flags: str, engine: str = "sglang") -> Iterator[Site]:
    """A place that is clean again afterwards."""
    made = Site(folder, tracker, *flags, engine=engine)
    try:
        yield made
    finally:
        made.end()


@contextmanager
def site_with_gpu(folder: Path, tracker: Tracker, stub: StubNvml, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A place on a node with one GPU, whose server is up in a fifth of a second."""
    stub.gpu(base_bytes=400 * MIB)
    stub.write()
    for name, value in stub.environment().items():
        monkeypatch.setenv(name, value)
    with site(folder, tracker, *QUICK) as made:
        yield made


# ------------------------------------------------------------------------------------------- the relay


class Relay:
    """A TCP relay on loopback between a client and one port; breaks its connections as asked, in four ways."""

    def __init__(self, port: int) -> None:
        self._to_port = port
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._passes = asyncio.Event()
        self._passes.set()
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.reset()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._to_port)
        self._writers += [writer, far_writer]
        passes = self._passes
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.create_task(self._pump(source, sink, passes))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, passes: asyncio.Event) -> None:
        try:
            while data := await source.read(65536):
                await passes.wait()  # a connection that was dropped stays so: nothing of it ever arrives
                sink.write(data)
                await sink.drain()
        except OSError:
            pass
        finally:
            sink.close()

    def close(self) -> None:
        """FIN both ways."""
        for writer in self._writers:
            writer.close()
        self._writers = []

    def reset(self) -> None:
        """RST both ways."""
        for writer in self._writers:
            sock = writer.get_extra_info("socket")
            if sock is not None and not writer.is_closing():
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
        self._writers = []

    def drop(self) -> None:
        """Nothing of the present connections passes any more, and nobody is told. New ones pass."""
        self._passes.clear()
        self._passes = asyncio.Event()
        self._passes.set()
