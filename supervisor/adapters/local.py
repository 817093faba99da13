"""The local node: the same road as over SSH (the same program, the same exec string), without SSH."""

from __future__ import annotations

import asyncio
import os
import signal

from supervisor.adapters import sockets
from supervisor.adapters.base import ByteProcess, ByteStream
from supervisor.errors import LinkConfigError

STDERR_BYTES = 64 * 1024
CLOSE_WAIT_S = 2.0


class LocalProcess:
    """A `ByteProcess` of this machine. Its own session: a ^C in the operator's terminal is not for it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._stderr = bytearray()
        self._reader = asyncio.create_task(self._read_stderr())
        self._ending: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()

    async def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(4096):
            self._stderr += data[: max(0, STDERR_BYTES - len(self._stderr))]

    async def read(self, max_bytes: int) -> bytes:
        """At least one byte of stdout, or b"" at its end."""
        assert self._process.stdout is not None
        async with self._turn:  # a stream of asyncio allows one reader, and whoever closes it reads it to its end
            return await self._process.stdout.read(max_bytes)

    def allow(self, window_bytes: int) -> None:
        """The pipe is as large as it is."""

    async def write(self, data: bytes) -> None:
        """Write all of `data` to stdin."""
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        await self._process.stdin.drain()

    def stderr_text(self) -> str:
        """What stderr has said so far."""
        return self._stderr.decode("utf-8", "replace")

    async def wait(self) -> int | None:
        """The exit status; None when a signal ended it."""
        status = await self._process.wait()
        await self._reader
        return status if status >= 0 else None

    async def close(self) -> None:
        """Close stdin, on which it ends by itself; a program that does not is ended. Two may do it."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._end())
        await asyncio.wait({self._ending})

    async def _end(self) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            async with asyncio.timeout(CLOSE_WAIT_S):
                # What it still writes must be read, or it would never come to see the end of its stdin.
                while await self.read(65536):
                    pass
                await self._process.wait()
        except (TimeoutError, OSError):
            await self._kill()
        finally:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
            self._process._transport.close()  # type: ignore[attr-defined]  # else a warning at the loop's end

    async def _kill(self) -> None:
        if self._process.returncode is None:
            # Its group, which is its own session's: a child that holds its pipes would keep `wait` from returning.
            os.killpg(self._process.pid, signal.SIGKILL)
        try:
            async with asyncio.timeout(CLOSE_WAIT_S):
                await self._process.wait()
        except TimeoutError:
            pass  # whoever holds its pipes left its session: it is not ours to end


class LocalLink:
    """Implements `adapters.base.Link` for the machine that we run on."""

    def __init__(self) -> None:
        self._closed: asyncio.Future[str] | None = None

    @property
    def name(self) -> str:
        """What the user calls it."""
        return "local"

    async def connect(self) -> None:
        """Nothing to connect. Only Linux has what the node program needs."""
        if not os.path.isdir("/proc/self"):
            raise LinkConfigError('host = "local" needs Linux (/proc); give a node by SSH instead')
        self._closed = asyncio.get_running_loop().create_future()

    async def execute(self, command: str, *, window_bytes: int | None = None) -> ByteProcess:
        """Run a constant command through /bin/sh. The pipe bounds what is in flight."""
        process = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=window_bytes or 256 * 1024,
            start_new_session=True,
        )
        return LocalProcess(process)

    async def dial(self, host: str, port: int, *, timeout_s: float) -> ByteStream:
        """Connect from here."""
        return await sockets.dial(host, port, timeout_s)

    async def wait_closed(self) -> str:
        """The local node is never lost: this returns only after `close`."""
        assert self._closed is not None
        return await asyncio.shield(self._closed)

    async def round_trip_s(self) -> float | None:
        """No way to go."""
        return 0.0

    async def close(self) -> None:
        """End what waits for the end."""
        if self._closed is not None and not self._closed.done():
            self._closed.set_result("closed")
