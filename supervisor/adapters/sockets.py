"""Plain TCP connections from this machine, as `ByteStream`s. Used for `--url` and for the local node."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any

from supervisor.adapters.base import ByteStream
from supervisor.errors import DialRefusedError, DialSilentError


class SocketStream:
    """A `ByteStream` over one of asyncio's connections."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self, max_bytes: int) -> bytes:
        """At least one byte, or b"" at the end."""
        return await self._reader.read(max_bytes)

    async def write(self, data: bytes) -> None:
        """Write all of `data`, waiting for room."""
        self._writer.write(data)
        await self._writer.drain()

    def readable(self) -> bool:
        """True when the other side has ended or the transport is closing."""
        return self._reader.at_eof() or self._writer.is_closing()

    async def close(self) -> None:
        """Close at once: an answer that nobody reads must not hold the server's side open."""
        self._writer.transport.abort()
        try:
            # Shielded: a wait that is cancelled here would cancel asyncio's own future, and every later close of this
            # stream would end as if its caller had been cancelled.
            await asyncio.shield(self._writer.wait_closed())
        except OSError:
            pass


async def dial(host: str, port: int, timeout_s: float) -> ByteStream:
    """Connect to `host:port` from here. Raises `DialRefusedError`, `DialSilentError`, or `OSError` with its cause."""
    try:
        async with asyncio.timeout(timeout_s):
            sock = await _connected(await _resolved(host, port))
            reader, writer = await asyncio.open_connection(sock=sock)
    except TimeoutError as error:
        raise DialSilentError(f"no connection to {host} port {port} within {timeout_s:g} s") from error
    except ConnectionRefusedError as error:
        raise DialRefusedError(f"nothing listens on {host} port {port}") from error
    return SocketStream(reader, writer)


_Address = tuple[socket.AddressFamily, tuple[Any, ...]]


async def _resolved(host: str, port: int) -> list[_Address]:
    """Every address of the name; an address in figures without a thread."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, address) for family, _, _, _, address in found]


async def _connected(addresses: list[_Address]) -> socket.socket:
    """A socket to the first address that accepts. One that refuses says more than one without a route.

    asyncio's own way raises a plain `OSError` when a name has two addresses and both refuse, which would be told as a
    broken connection.
    """
    failures: list[OSError] = []
    for family, address in addresses:
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, address)
            if not is_to_itself(sock):
                return sock
            # Reset, so that the port is free again at once for the server that is waited for.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            raise ConnectionRefusedError("the kernel connected the socket to itself")
        except OSError as error:
            failures.append(error)
            sock.close()
        except BaseException:
            sock.close()
            raise
    raise next((error for error in failures if isinstance(error, ConnectionRefusedError)), failures[0])


def is_to_itself(sock: socket.socket) -> bool:
    """Whether the other end is this very socket.

    Where nobody listens on a port of the range for outgoing connections, the kernel can give us that port as our own:
    over thousands of looks it will, and the socket then holds the port that the server wants.
    """
    return bool(sock.getsockname()[:2] == sock.getpeername()[:2])
