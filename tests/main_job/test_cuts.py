"""The link is cut in every phase, in four ways, under a heavy log: the server lives, the wait goes on, no byte is lost.

A real sshd behind a relay of ours. Two readers of the log stand under each cut: the attendance of a session, and one
that does what `supervisor logs -f` does.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import re
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from supervisor.adapters.clock import SystemClock
from supervisor.adapters.node import Frame
from supervisor.adapters.ssh import SshLink
from supervisor.core import events as ev
from supervisor.core.events import LinkState, Phase
from supervisor.core.wait import Limits
from supervisor.errors import UnreachableError
from supervisor.headless.run import Options, wait
from supervisor.profile import load
from supervisor.supervise import attend
from supervisor.supervise.connection import Connection
from supervisor.supervise.follow import Position, frames
from supervisor.supervise.session import Session
from supervisor.wiring import plan_of
from tests.conftest import MakeSshd
from tests.main_job.kit import PATIENCE_S, Relay, Site
from tests.real.processes import Tracker
from tests.real.sshd import Sshd
from tests.scale import scaled

T = TypeVar("T")

GATED_ENGINE = Path(__file__).with_name("gated_engine.py")
LOG_BYTES_PER_S = 5_000_000
KEEPALIVE_S, KEEPALIVE_COUNT = 0.3, 2
MOVED_BYTES = 128 * 1024
"""How far both readers must have come after a cut before it counts as survived."""


class Reader:
    """Checks what is read from a log: every frame begins where the last one ended."""

    def __init__(self) -> None:
        self.offset = 0
        self.digest = hashlib.sha256()
        self.broken_at: list[int] = []

    def take(self, frame: Frame) -> None:
        assert not frame.missing and not frame.rotated
        if frame.data:
            assert frame.offset == self.offset, "a gap or a repeat"
            self.digest.update(frame.data)
            self.offset += len(frame.data)

    def broken(self) -> None:
        """The link was lost here."""
        self.broken_at.append(self.offset)


class GatedSite(Site):
    """A place whose server is the gated engine."""

    def command(self, *flags: str) -> list[str]:
        (self.folder / "gates").mkdir(exist_ok=True)
        program = [sys.executable, str(GATED_ENGINE), self.engine, "--gate", str(self.folder / "gates")]
        own = ["--model-path", "some/model", "--port", str(self.port), "--sim-load", "0.1", "--sim-warm", "0.1"]
        return [*program, *own, "--sim-health-delay", "0", *flags]

    def open_gates(self, *phases: str) -> None:
        """Let the engine leave these phases."""
        for phase in phases:
            (self.folder / "gates" / phase).touch()


class Stage:
    """A session and a reader of their own over one relay."""

    def __init__(self, here: Site, server: Sshd, relay: Relay) -> None:
        self.here, self.server, self.relay = here, server, relay
        self.attended, self.followed = Reader(), Reader()
        self.cut_at = 0.0
        self._config = _ssh_config(here.folder, server, relay.port)
        self.plan = plan_of(load(here.file), str(here.file))
        self.session = Session(self.plan, self.make_link, clock=SystemClock(), by="cutter")
        self.out = io.StringIO()

    def make_link(self) -> SshLink:
        return SshLink("node", keepalive_s=KEEPALIVE_S, keepalive_count=KEEPALIVE_COUNT, config_files=[self._config])

    async def wait(self) -> int:
        """A headless wait until serving. The session runs beside it: it is to live on when the wait is over."""
        clock = self.session.desk.clock
        options = Options(until=Phase.SERVING, limits=Limits(timeout_s=300.0))
        return await wait(self.session.desk, _for_ever, options, began_at=clock.now(), out=self.out, err=self.out)

    async def follow(self) -> None:
        """What `logs -f` does, from the log's first byte, for ever."""
        position = Position(path=str(self.here.log), offset=0)
        connection = Connection(self.make_link, clock=SystemClock(), on_link=_unheard, python=self.plan.python)
        try:
            while True:
                await connection.open()
                try:
                    async for frame in frames(connection, position):
                        self.followed.take(frame)
                except UnreachableError as error:
                    self.followed.broken()
                    connection.lost(str(error))
                    await connection.close()
        finally:
            await connection.close()

    async def until(self, look: Callable[[], bool], what: str) -> None:
        """Look until it is so: what is looked at is told by nobody."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not look():  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        except TimeoutError:
            view = self.session.desk.hub.view
            text = f"{view.phase}, {view.link}, {self.attended.offset} and {self.followed.offset} bytes read"
            raise AssertionError(f"not seen: {what} ({text})\n{self.out.getvalue()}\n{view.warnings}") from None

    async def answered_since_the_cut(self) -> None:
        """The server was asked again over the new connection, and it is healthy."""

        def look() -> bool:
            health = self.session.desk.hub.view.health
            return health is not None and health.at > self.cut_at and health.verdict is ev.Verdict.READY

        await self.until(look, "a healthy answer after the last cut")

    async def cut(self, kind: str) -> None:
        """One cut of all connections, and the recovery of both readers."""
        before = (len(self.attended.broken_at), len(self.followed.broken_at))
        identity = self.here.identity()
        self.cut_at = self.session.desk.clock.now()
        await getattr(self, f"_{kind}")()
        await self.until(
            lambda: len(self.attended.broken_at) > before[0] and len(self.followed.broken_at) > before[1],
            f"the loss of both links after {kind}",
        )
        attended, followed = self.attended.offset, self.followed.offset
        await self.until(
            lambda: self.attended.offset > attended + MOVED_BYTES and self.followed.offset > followed + MOVED_BYTES,
            f"both readers going on after {kind}",
        )
        self.server.thaw_sessions()
        assert self.here.identity() == identity, "it is not the same server any more"

    async def _close(self) -> None:
        self.relay.close()

    async def _reset(self) -> None:
        self.relay.reset()

    async def _drop(self) -> None:
        self.relay.drop()

    async def _freeze(self) -> None:
        self.server.freeze_sessions()

    async def end(self) -> str:
        """Stop the server, read its log to the end in both readers; the file's SHA-256."""
        stopped = await self.session.stop()
        assert stopped is not None and stopped.gone
        size = self.here.log.stat().st_size
        while (read := self.attended.offset + self.followed.offset) < 2 * size:
            # However much is to be caught up with: it is enough that they go on.
            await self.until(lambda: self.attended.offset + self.followed.offset > read, f"the last of {size} bytes")
        return hashlib.sha256(self.here.log.read_bytes()).hexdigest()


def _unheard(_state: LinkState, _why: str) -> None:
    pass


async def _for_ever() -> None:
    await asyncio.Event().wait()


def _ssh_config(folder: Path, server: Sshd, port: int) -> Path:
    """The server's own configuration, by way of the relay."""
    kind, blob = server.host_key.with_suffix(".pub").read_text().split()[:2]
    known = folder / "known_hosts"
    known.write_text(f"[127.0.0.1]:{port} {kind} {blob}\n")
    text = re.sub(r"Port \d+", f"Port {port}", server.ssh_config.read_text())
    config = folder / "ssh_config"
    config.write_text(re.sub(r' UserKnownHostsFile ".*"', f' UserKnownHostsFile "{known}"', text))
    return config


@asynccontextmanager
async def running(work: Callable[[], Coroutine[Any, Any, T]]) -> AsyncIterator[asyncio.Task[T]]:
    """A task that is cancelled at the end; whether it failed is told."""
    task = asyncio.create_task(work())
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def watch_attendance(monkeypatch: pytest.MonkeyPatch, reader: Reader) -> None:
    """Let `reader` see every frame that the attendance reads."""

    async def seen(connection: Connection, position: Position) -> AsyncIterator[Frame]:
        try:
            async for frame in frames(connection, position):
                reader.take(frame)
                yield frame
        finally:
            reader.broken()

    monkeypatch.setattr(attend, "frames", seen)


@pytest.fixture
def here(tmp_path: Path, tracker: Tracker) -> Iterator[GatedSite]:
    made = GatedSite(tmp_path, tracker, "--sim-log-rate", str(LOG_BYTES_PER_S))
    try:
        yield made
    finally:
        made.end()


def assert_cut_inside(data: bytes, readers: Iterable[Reader]) -> None:
    """Some of the cuts fell inside of a line, and some inside of a letter."""
    cuts = [offset for reader in readers for offset in reader.broken_at if 0 < offset < len(data)]
    assert any(data[offset - 1] != ord("\n") for offset in cuts)
    assert any(0x80 <= data[offset] < 0xC0 for offset in cuts)


async def cut_all(stage: Stage, here: GatedSite, phase: Phase) -> None:
    """Every kind of cut in this phase, then the gates open, and everything is as if nothing had been."""
    await stage.until(lambda: stage.session.desk.phase is phase, f"the phase {phase}")
    await stage.until(lambda: min(stage.followed.offset, stage.attended.offset) > 0, "the first bytes of the log")
    identity = here.identity()
    for kind in ("close", "reset", "drop", "freeze"):
        for _ in range(max(2, scaled(20))):
            await stage.cut(kind)
    assert stage.session.desk.phase is phase
    here.open_gates("loading", "warming")
    await stage.answered_since_the_cut()
    await stage.until(lambda: stage.session.desk.phase is Phase.SERVING, "serving")
    assert here.identity() == identity and here.servers_ever() == 1


@pytest.mark.parametrize("phase", [Phase.LOADING, Phase.WARMING, Phase.SERVING], ids=["loading", "503", "serving"])
def test_no_cut_harms_the_server_the_wait_or_the_log(
    phase: Phase, here: GatedSite, make_sshd: MakeSshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {Phase.LOADING: (), Phase.WARMING: ("loading",), Phase.SERVING: ("loading", "warming")}[phase]
    here.open_gates(*before)
    server = make_sshd()

    async def main() -> None:
        async with Relay(server.port) as relay:
            stage = Stage(here, server, relay)
            watch_attendance(monkeypatch, stage.attended)
            async with running(stage.session.run), running(stage.wait) as waiting:
                await stage.until(lambda: stage.session.attendance is not None, "the launch")
                async with running(stage.follow):
                    await cut_all(stage, here, phase)
                    assert await asyncio.wait_for(waiting, PATIENCE_S) == 0, stage.out.getvalue()
                    digest = await stage.end()
                    assert stage.attended.digest.hexdigest() == digest
                    assert stage.followed.digest.hexdigest() == digest
            assert_cut_inside(here.log.read_bytes(), (stage.attended, stage.followed))

    asyncio.run(main())


def test_looks_at_a_closed_port_leave_no_line_in_the_nodes_log(
    here: GatedSite, make_sshd: MakeSshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.write()
    server = make_sshd()
    refusals = max(3, scaled(60))  # each tells of ten looks

    async def main() -> None:
        async with Relay(server.port) as relay:
            stage = Stage(here, server, relay)
            watch_attendance(monkeypatch, stage.attended)
            async with running(stage.session.run), running(stage.wait) as waiting:
                await stage.until(lambda: stage.attended.offset > 0, "the first bytes of the log")
                before = server.log_text()
                assert "Starting session" in before
                subscription = stage.session.desk.hub.subscribe()
                seen = 0
                async for batch in subscription.batches():
                    refused = [event for event in batch if isinstance(event, ev.Health)]
                    assert all(event.verdict is ev.Verdict.REFUSED for event in refused)
                    seen += len(refused)
                    if seen >= refusals:
                        break
                assert server.log_text() == before
                here.open_gates("loading", "warming")
                assert await asyncio.wait_for(waiting, PATIENCE_S) == 0, stage.out.getvalue()
                assert server.log_text() == before, "looking at an open port left a line"
                await stage.session.stop()

    asyncio.run(main())


def test_a_node_that_forbids_forwarding_serves_through_the_relay(here: GatedSite, make_sshd: MakeSshd) -> None:
    here.write()
    here.open_gates("loading", "warming")
    server = make_sshd(AllowTcpForwarding="no")

    async def main() -> None:
        async with Relay(server.port) as relay:
            stage = Stage(here, server, relay)
            async with running(stage.session.run), running(stage.wait) as waiting:
                assert await asyncio.wait_for(waiting, PATIENCE_S) == 0, stage.out.getvalue()
                await stage.session.stop()

    asyncio.run(main())
    complaints = [line for line in server.log_text().splitlines() if "direct-tcpip" in line or "forward" in line]
    assert len(complaints) == 1, "forwarding is asked for once, not at every look"
