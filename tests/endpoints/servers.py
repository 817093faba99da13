"""Endpoints that behave: raw sockets on loopback, one small function a behaviour. No HTTP library stands between.

A behaviour is called once for each connection; when it returns, the connection is closed.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

MEBIBYTE = 1024 * 1024


class Server:
    """One endpoint and what it saw."""

    def __init__(self, behave: Behaviour, sock: socket.socket) -> None:
        self.port = int(sock.getsockname()[1])
        self.paths: list[str] = []
        self.heads: list[str] = []
        self.methods: set[str] = set()
        self.connections = 0
        self.sent_bytes = 0
        self.ready_at: float | None = None
        """When it became ready, where the behaviour has such a moment (monotonic)."""
        self.asked_at = 0.0
        self._behave = behave
        self._tasks: set[asyncio.Task[None]] = set()

    def is_ready(self) -> None:
        """The moment from which the answer is the good one."""
        if self.ready_at is None:
            self.ready_at = time.monotonic()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            await self._behave(Peer(self, reader, writer))
            if writer.can_write_eof():
                writer.write_eof()  # all of it, then the end: a plain close could become a reset
                await reader.read()
            else:
                writer.close()
                await writer.wait_closed()
        except (OSError, EOFError, asyncio.CancelledError):
            pass  # the other side went first, or the test is over
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def stop(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Peer:
    """One connection, as a behaviour sees it."""

    def __init__(self, server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.server = server
        self.number = server.connections
        self._reader = reader
        self._writer = writer

    async def request(self) -> str:
        """Read one request's head; returns its path."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        method, path = head.split()[:2]
        self.server.heads.append(head)
        self.server.methods.add(method)
        self.server.paths.append(path)
        return path

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()
        self.server.sent_bytes += len(data)

    async def anything(self) -> None:
        """Read whatever comes first."""
        await self._reader.read(65536)

    async def until_closed(self) -> None:
        """Say nothing until the other side goes."""
        while await self._reader.read(65536):
            pass

    def reset(self) -> None:
        """RST in place of an end."""
        sock = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


Behaviour = Callable[[Peer], Awaitable[None]]


@asynccontextmanager
async def serving(
    behave: Behaviour, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None, closed_for_s: float = 0.0
) -> AsyncIterator[Server]:
    """An endpoint. With `closed_for_s` its port is taken and refuses for so long; infinite: for ever."""
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setblocking(False)
    if ":" in host:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    sock.bind((host, 0))  # bound and not listening: the kernel refuses
    server = Server(behave, sock)
    opened: list[asyncio.Server] = []

    async def open_it() -> None:
        await asyncio.sleep(min(closed_for_s, 1e6))
        opened.append(await asyncio.start_server(server.accept, sock=sock, ssl=tls))

    opening = asyncio.create_task(open_it())
    try:
        if not closed_for_s:
            await opening
        yield server
    finally:
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        for one in opened:
            one.close()
        await server.stop()
        sock.close()


# ------------------------------------------------------------------------------------------- answers


def reply(
    status: int | str, *headers: str, body: bytes = b"", length: int | None = None, version: str = "1.1"
) -> bytes:
    """One answer. `length` None tells the true length, -1 none at all, another number that number."""
    told = [] if length == -1 else [f"Content-Length: {len(body) if length is None else length}"]
    lines = [f"HTTP/{version} {status}" + ("" if isinstance(status, str) else " Said"), *headers, *told]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def document(status: int, value: object) -> bytes:
    """A JSON answer."""
    return reply(status, "Content-Type: application/json", body=json.dumps(value).encode())


OK = reply(200)


def says(*answers: bytes) -> Behaviour:
    """The answers in turn, the last one for ever."""

    async def behave(peer: Peer) -> None:
        await peer.request()
        last = peer.number >= len(answers)
        if last and len(answers) > 1:
            peer.server.is_ready()
        await peer.send(answers[min(peer.number, len(answers)) - 1])

    return behave


def by_path(answers: dict[str, bytes]) -> Behaviour:
    """An answer for each path, 404 elsewhere."""

    async def behave(peer: Peer) -> None:
        await peer.send(answers.get(await peer.request(), reply(404)))

    return behave


def by_method(answers: dict[str, bytes]) -> Behaviour:
    """An answer for each method, 405 for the others."""

    async def behave(peer: Peer) -> None:
        await peer.request()
        method = next(iter(peer.server.methods))
        await peer.send(answers.get(method, reply(405)))

    return behave


def flips(after_s: float, before: bytes, then: bytes = OK) -> Behaviour:
    """`before` to the first request and for so long after it, then `then`."""

    async def behave(peer: Peer) -> None:
        await peer.request()
        now = time.monotonic()
        if peer.number == 1:
            peer.server.asked_at = now
        if now - peer.server.asked_at < after_s:
            await peer.send(before)
        else:
            if peer.server.ready_at is None:
                peer.server.ready_at = peer.server.asked_at + after_s
            await peer.send(then)

    return behave


def slow(after_s: float, answer: bytes = OK) -> Behaviour:
    """A handler that takes its time."""

    async def behave(peer: Peer) -> None:
        await peer.request()
        await asyncio.sleep(after_s)
        await peer.send(answer)

    return behave


def drips(data: bytes, every_s: float, *, at_once: int = 1) -> Behaviour:
    """A few bytes at a time, each in a packet of its own."""

    async def behave(peer: Peer) -> None:
        await peer.request()
        for start in range(0, len(data), at_once):
            await peer.send(data[start : start + at_once])
            await asyncio.sleep(every_s)

    return behave


def endless(head: bytes, part: bytes, every_s: float = 0.0) -> Behaviour:
    """A head, and then the same part for ever."""

    async def behave(peer: Peer) -> None:
        await peer.request()
        await peer.send(head)
        while True:
            await peer.send(part)
            await asyncio.sleep(every_s)

    return behave


def body_of(head: bytes, size_bytes: int) -> Behaviour:
    """A head and so many bytes."""

    async def behave(peer: Peer) -> None:
        await peer.request()
        await peer.send(head)
        for _ in range(size_bytes // MEBIBYTE):
            await peer.send(b"x" * MEBIBYTE)

    return behave


def greets(data: bytes) -> Behaviour:
    """A protocol whose server speaks first."""

    async def behave(peer: Peer) -> None:
        await peer.send(data)
        await peer.until_closed()

    return behave


async def complains(peer: Peer) -> None:
    """A plain HTTP server that is given what is no HTTP."""
    await peer.anything()
    await peer.send(reply(400))


async def hangs(peer: Peer) -> None:
    """Takes the request and never answers."""
    await peer.request()
    await peer.until_closed()


async def accepts_only(_peer: Peer) -> None:
    """Accepts and never reads nor says anything."""
    await asyncio.Event().wait()


async def resets(peer: Peer) -> None:
    """Resets every connection."""
    await peer.request()
    peer.reset()


async def closes(peer: Peer) -> None:
    """Ends the connection in place of an answer."""
    await peer.request()


async def follows_nothing(peer: Peer) -> None:
    """A redirect to a path that would be 200."""
    if await peer.request() == "/ok":
        await peer.send(OK)
    else:
        await peer.send(reply(302, f"Location: http://127.0.0.1:{peer.server.port}/ok"))


def first(count: int, early: Behaviour, late: Behaviour) -> Behaviour:
    """One behaviour for the first connections, another one for those after them."""

    async def behave(peer: Peer) -> None:
        if peer.number > count:
            peer.server.is_ready()
            await late(peer)
        else:
            await early(peer)

    return behave
