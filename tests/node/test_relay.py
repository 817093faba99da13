"""The relay: bytes both ways, exactly, and errors as a direct connection would tell them."""

from __future__ import annotations

import asyncio
import random
import socket

import pytest

from supervisor.adapters.base import ByteStream
from supervisor.adapters.local import LocalLink
from supervisor.adapters.node import open_relay
from supervisor.errors import DialRefusedError, DialSilentError
from tests.node.conftest import PYTHON, until
from tests.real.serving import server_of

pytestmark = pytest.mark.asyncio


async def _read_all(stream: ByteStream, count: int) -> bytes:
    data = b""
    async with asyncio.timeout(20):
        while len(data) < count:
            more = await stream.read(65536)
            if not more:
                break
            data += more
    return data


async def test_an_echo_of_much_more_than_any_buffer(link: LocalLink) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(10_000):
            writer.write(data)
            await writer.drain()
        writer.close()

    whole = random.Random(1).randbytes(5_000_000)
    async with server_of(echo) as port:
        stream = await open_relay(link, python=PYTHON, host="127.0.0.1", port=port, timeout_s=5)
        writing = asyncio.create_task(stream.write(whole))
        assert await _read_all(stream, len(whole)) == whole
        await writing
        await stream.close()


async def test_neither_side_that_only_writes_blocks_the_other(link: LocalLink) -> None:
    # The server sends megabytes before it reads a byte, and so do we: a relay that carries one way at a time hangs.
    async def pushy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"d" * 3_000_000)
        await writer.drain()
        writer.write(b"%d\n" % len(await reader.readexactly(3_000_000)))
        await writer.drain()
        writer.close()

    async with server_of(pushy) as port:
        stream = await open_relay(link, python=PYTHON, host="127.0.0.1", port=port, timeout_s=5)
        writing = asyncio.create_task(stream.write(b"u" * 3_000_000))
        assert await _read_all(stream, 3_000_008) == b"d" * 3_000_000 + b"3000000\n"
        await writing
        await stream.close()


async def test_the_servers_end_is_ours(link: LocalLink) -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"bye")
        writer.close()

    async with server_of(greet) as port:
        stream = await open_relay(link, python=PYTHON, host="127.0.0.1", port=port, timeout_s=5)
        assert await _read_all(stream, 100) == b"bye"
        assert await stream.read(10) == b""
        await stream.close()


async def test_our_end_reaches_the_server_and_its_answer_still_comes(link: LocalLink) -> None:
    async def after_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said = await reader.read()  # to the end of the client's side
        writer.write(b"got " + said)
        writer.close()

    async with server_of(after_end) as port:
        stream = await open_relay(link, python=PYTHON, host="127.0.0.1", port=port, timeout_s=5)
        await stream.write(b"all")
        process = stream._process._process  # type: ignore[attr-defined]
        process.stdin.close()
        assert await _read_all(stream, 7) == b"got all"
        await stream.close()


async def test_nothing_stays_when_we_go_though_the_server_is_silent(link: LocalLink) -> None:
    ended, release = asyncio.Event(), asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        ended.set()
        await release.wait()  # it keeps its side open, as a server does that is busy with the request
        writer.close()

    async with server_of(silent) as port:
        stream = await open_relay(link, python=PYTHON, host="127.0.0.1", port=port, timeout_s=5)
        process = stream._process._process  # type: ignore[attr-defined]
        # As when a connection is lost: both ends of its pipes are closed, and nobody is left to end it.
        process._transport.get_pipe_transport(0).close()
        process._transport.get_pipe_transport(1).close()
        await asyncio.wait_for(ended.wait(), 5)
        await until(lambda: process.returncode is not None, 5)
        assert process.returncode == 0
        release.set()
        await stream.close()


async def test_refused_and_no_such_place(link: LocalLink) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        with pytest.raises(DialRefusedError, match=r"refused"):
            await open_relay(link, python=PYTHON, host="127.0.0.1", port=sock.getsockname()[1], timeout_s=5)
    with pytest.raises(DialRefusedError, match=r"no\.such\.host\.invalid"):
        await open_relay(link, python=PYTHON, host="no.such.host.invalid", port=1, timeout_s=5)


async def test_silence(link: LocalLink) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        port = server.getsockname()[1]
        fill = [socket.socket() for _ in range(4)]
        for sock in fill:
            sock.setblocking(False)
            sock.connect_ex(("127.0.0.1", port))
        with pytest.raises(DialSilentError):
            await open_relay(link, python=PYTHON, host="127.0.0.1", port=port, timeout_s=0.3)
        for sock in fill:
            sock.close()
