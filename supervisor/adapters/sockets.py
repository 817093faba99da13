"""Plain TCP connections from this machine, as `ByteStream`s. Used for `--url` and for the local node."""

from __future__ import annotations

import asyncio

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
            await self._writer.wait_closed()
        except OSError:
            pass


async def dial(host: str, port: int, timeout_s: float) -> ByteStream:
    """Connect to `host:port` from here. Raises `DialRefusedError`, `DialSilentError`, or `OSError` with its cause."""
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(host, port)
    except TimeoutError as error:
        raise DialSilentError(f"no connection to {host} port {port} within {timeout_s:g} s") from error
    except ConnectionRefusedError as error:
        raise DialRefusedError(f"nothing listens on {host} port {port}") from error
    return SocketStream(reader, writer)
