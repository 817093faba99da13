"""Bytes over one channel of an ssh connection, bounded both ways: a `ByteStream`, a `ByteProcess`.

asyncssh calls these classes as its sessions; nothing of asyncssh is imported, so this is tested without it.
Reading slowly pauses the channel: what is buffered here stays below the window, then the far side waits.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

_WRITE_SLICE_BYTES = 32 * 1024
_WRITE_HIGH_WATER_BYTES = 64 * 1024
_MAX_STDERR_BYTES = 64 * 1024


class Channel(Protocol):
    """What is used of asyncssh's channel."""

    def write(self, data: bytes) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...


class ChannelStream:
    """One TCP connection through the node's sshd."""

    def __init__(self, buffer_limit_bytes: int) -> None:
        self._limit_bytes = buffer_limit_bytes
        self._buffer = bytearray()
        self._channel: Channel | None = None
        self._reading_paused = False
        self._ended = False
        self._broken: str | None = None
        self._over = False
        self._closed = False
        self._readable = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()

    # What asyncssh calls

    def connection_made(self, channel: Channel) -> None:
        self._channel = channel
        channel.set_write_buffer_limits(high=_WRITE_HIGH_WATER_BYTES)

    def session_started(self) -> None:
        """Part of asyncssh's interface."""

    def data_received(self, data: bytes, datatype: int | None) -> None:
        self._buffer += data
        self._readable.set()
        if len(self._buffer) >= self._limit_bytes and not self._reading_paused and self._channel is not None:
            self._reading_paused = True
            self._channel.pause_reading()

    def eof_received(self) -> bool:
        self._ended = True
        self._readable.set()
        return True  # only their side has ended: ours stays open for writing

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            self._broken = str(exc) or type(exc).__name__
        elif not self._ended and not self._closed and not self._over:
            self._broken = "the ssh connection was closed"
        self._ended = True
        self._channel = None
        self._readable.set()
        self._writable.set()

    # ByteStream

    async def read(self, max_bytes: int) -> bytes:
        """At least one byte, or b"" at the end. Raises `ConnectionError` when it broke."""
        while not self._buffer:
            if self._broken is not None:
                raise ConnectionError(self._broken)
            if self._ended or self._closed:
                return b""
            self._readable.clear()
            await self._readable.wait()
        if len(self._buffer) <= max_bytes:
            data = bytes(self._buffer)
            self._buffer.clear()
        else:
            with memoryview(self._buffer) as view:
                data = bytes(view[:max_bytes])
            del self._buffer[:max_bytes]
        if self._reading_paused and len(self._buffer) < self._limit_bytes // 2 and self._channel is not None:
            self._reading_paused = False
            self._channel.resume_reading()
        return data

    async def write(self, data: bytes) -> None:
        """Write all of `data`, waiting for room. Raises `ConnectionError` when it broke."""
        view = memoryview(data)
        for start in range(0, len(view), _WRITE_SLICE_BYTES):
            await self._writable.wait()
            if self._channel is None or self._closed:
                raise ConnectionError(self._broken or "the channel is closed")
            # asyncssh's own error here (BrokenPipeError) is a ConnectionError already.
            self._channel.write(bytes(view[start : start + _WRITE_SLICE_BYTES]))
        await self._writable.wait()

    def readable(self) -> bool:
        """True when something, or the end, waits to be read."""
        return bool(self._buffer) or self._ended or self._closed

    async def close(self) -> None:
        """Close at once; never raises."""
        self._shut(gently=False)

    def _shut(self, *, gently: bool) -> None:
        if self._closed:
            return
        self._closed = True
        channel, self._buffer = self._channel, bytearray()
        self._readable.set()
        self._writable.set()
        if channel is not None:
            # Gently: what was written goes out before the end-of-file.
            channel.close() if gently else channel.abort()


class ChannelProcess(ChannelStream):
    """One program on the node."""

    def __init__(self, buffer_limit_bytes: int) -> None:
        super().__init__(buffer_limit_bytes)
        self._stderr = bytearray()
        self._exit_status: int | None = None
        self._exited = asyncio.Event()

    def data_received(self, data: bytes, datatype: int | None) -> None:
        if datatype is None:
            super().data_received(data, datatype)
        else:
            # Never kept from flowing by itself: what is over the cap is dropped, so a chatty program goes on.
            self._stderr += data[: _MAX_STDERR_BYTES - len(self._stderr)]

    def exit_status_received(self, status: int) -> None:
        self._exit_status = status
        # sshd may close the channel of a program that has ended without an end-of-file first: nothing broke.
        self._over = True
        self._exited.set()

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:
        self._over = True
        self._exited.set()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._exited.set()

    def allow(self, window_bytes: int) -> None:
        """Let this much be in flight from now on. A smaller window holds once the larger one was used up."""
        self._limit_bytes = window_bytes
        channel: Any = self._channel
        if hasattr(channel, "_init_recv_window"):  # asyncssh has no public way to change it
            channel._init_recv_window = window_bytes

    def stderr_text(self) -> str:
        """The first 64 KiB of stderr."""
        return self._stderr.decode("utf-8", "replace")

    async def close(self) -> None:
        """Close stdin, after what was written, and forget the program. Never raises."""
        self._shut(gently=True)

    async def wait(self) -> int | None:
        """The exit status once it has ended; None where it cannot be known."""
        await self._exited.wait()
        return self._exit_status
