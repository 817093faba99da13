"""The local link: processes and connections of this machine behind the same port as those of a node."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from supervisor.adapters.clock import SystemClock
from supervisor.adapters.local import LocalLink
from supervisor.errors import DialRefusedError, DialSilentError
from tests.real.serving import server_of

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def link() -> AsyncIterator[LocalLink]:
    """This machine, as a node."""
    local = LocalLink()
    await local.connect()
    yield local
    await local.close()


async def test_bytes_both_ways_and_the_status(link: LocalLink) -> None:
    process = await link.execute("cat; echo words >&2; exit 7")
    await process.write(b"one\x00two\xff")
    assert await process.read(100) == b"one\x00two\xff"
    process._process.stdin.close()  # type: ignore[attr-defined]
    assert await process.read(100) == b""
    assert await process.wait() == 7
    assert process.stderr_text() == "words\n"
    await process.close()
    await process.close()


async def test_two_may_close_it_at_once_while_a_third_reads(link: LocalLink) -> None:
    """A lost link is closed by whoever attends the run, and by whoever ends the program just then."""
    process = await link.execute("cat; sleep 0.1; echo last words")
    read = asyncio.create_task(process.read(100))
    await asyncio.sleep(0)
    done = await asyncio.gather(process.close(), process.close(), return_exceptions=True)
    assert list(done) == [None, None]
    assert await read in (b"last words\n", b"")
    assert await process.wait() == 0


async def test_a_signal_is_no_status(link: LocalLink) -> None:
    process = await link.execute("kill -9 $$")
    assert await process.wait() is None
    await process.close()


async def test_stderr_is_kept_up_to_a_limit_and_read_beyond_it(link: LocalLink) -> None:
    process = await link.execute("head -c 1000000 /dev/zero | tr '\\0' x >&2; echo done")
    assert await process.read(100) == b"done\n"  # so the rest of stderr did not hold it up
    assert await process.wait() == 0
    assert len(process.stderr_text()) == 64 * 1024
    await process.close()


async def test_writing_to_one_that_has_ended(link: LocalLink) -> None:
    process = await link.execute("exit 0")
    assert await process.wait() == 0
    with pytest.raises(ConnectionError):
        for _ in range(100):
            await process.write(b"x" * 100_000)
    await process.close()


async def test_it_has_a_session_of_its_own(link: LocalLink) -> None:
    process = await link.execute("exec cat")
    pid = process._process.pid  # type: ignore[attr-defined]
    assert os.getsid(pid) == pid  # a ^C in the operator's terminal does not reach it
    begin = time.monotonic()
    await process.close()
    assert not os.path.exists(f"/proc/{pid}") and time.monotonic() - begin < 1


@pytest.mark.parametrize("command", ["sleep 60", "sleep 60 & sleep 60", "trap '' HUP TERM; cat /dev/zero; sleep 60"])
async def test_one_that_ignores_the_end_of_its_stdin_is_ended(link: LocalLink, command: str) -> None:
    process = await link.execute(command)
    pid = process._process.pid  # type: ignore[attr-defined]
    begin = time.monotonic()
    await process.close()
    assert not os.path.exists(f"/proc/{pid}") and time.monotonic() - begin < 6


async def test_a_slow_reader_slows_the_program_and_keeps_memory(link: LocalLink) -> None:
    process = await link.execute("cat /dev/zero", window_bytes=65536)
    await process.read(1)
    await asyncio.sleep(0.2)
    buffered = len(process._process.stdout._buffer)  # type: ignore[attr-defined]
    assert buffered <= 4 * 65536
    await process.close()


async def test_dial(link: LocalLink) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read(100)).upper())
        writer.close()

    async with server_of(echo) as port:
        stream = await link.dial("127.0.0.1", port, timeout_s=5)
        assert not stream.readable()
        await stream.write(b"abc")
        assert await stream.read(100) == b"ABC" and await stream.read(100) == b""
        assert stream.readable()
        await stream.close()
    with pytest.raises(DialRefusedError, match=str(port)):
        await link.dial("127.0.0.1", port, timeout_s=5)


async def test_dial_to_one_that_is_silent(link: LocalLink) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        port = server.getsockname()[1]
        fill = [socket.socket() for _ in range(4)]
        for sock in fill:
            sock.setblocking(False)
            sock.connect_ex(("127.0.0.1", port))
        with pytest.raises(DialSilentError):
            await link.dial("127.0.0.1", port, timeout_s=0.2)
        for sock in fill:
            sock.close()


async def test_the_link_ends_when_it_is_closed(link: LocalLink) -> None:
    waiting = asyncio.create_task(link.wait_closed())
    await asyncio.sleep(0)
    assert not waiting.done() and await link.round_trip_s() == 0.0 and link.name == "local"
    await link.close()
    await link.close()
    assert await waiting


async def test_the_clock_goes_on_whatever_the_wall_clock_does(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SystemClock()
    assert abs(clock.now() - time.time()) < 1
    before = clock.now()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    begin = time.monotonic()
    await clock.sleep(0.05)
    await clock.sleep(-1)
    assert 0.04 < clock.now() - before <= time.monotonic() - begin + 0.05
