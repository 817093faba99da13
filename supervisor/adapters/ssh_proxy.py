"""A ProxyCommand as a child process on one end of a socket pair; the other end is for the ssh connection.

asyncssh can run one by itself, but without a shell, and it reads the command's stderr as if it were the
server. Here the command runs as ssh runs it, and its stderr is kept for the error text. It knows no ssh.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket

_MAX_STDERR_BYTES = 8 * 1024
_GRACE_S = 1.0


class ProxyProcess:
    """One running ProxyCommand. `socket` is ours until it is handed on."""

    def __init__(self, command: str) -> None:
        self.command = command
        self._stderr = bytearray()
        self._process: asyncio.subprocess.Process | None = None
        self._stderr_fd: int | None = None

    async def start(self) -> socket.socket:
        """Start it and return the connected socket. Raises `OSError`."""
        ours, theirs = socket.socketpair()
        read_fd, write_fd = os.pipe()
        try:
            # A session of its own has no terminal, so an ssh in it cannot ask for anything; nor by a window.
            self._process = await asyncio.create_subprocess_exec(
                os.environ.get("SHELL") or "/bin/sh",
                "-c",
                f"exec {self.command}",
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=write_fd,
                start_new_session=True,
                env={**os.environ, "SSH_ASKPASS_REQUIRE": "never"},
            )
        except BaseException:
            os.close(read_fd)
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(write_fd)
        ours.setblocking(False)
        os.set_blocking(read_fd, False)
        self._stderr_fd = read_fd
        asyncio.get_running_loop().add_reader(read_fd, self._read_stderr)
        return ours

    def _read_stderr(self) -> None:
        if self._stderr_fd is None:
            return
        try:
            data = os.read(self._stderr_fd, 4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._stderr += data[: _MAX_STDERR_BYTES - len(self._stderr)]
        else:
            self._forget_stderr()

    def _forget_stderr(self) -> None:
        if self._stderr_fd is not None:
            asyncio.get_running_loop().remove_reader(self._stderr_fd)
            os.close(self._stderr_fd)
            self._stderr_fd = None

    async def exit_code(self, wait_s: float) -> int | None:
        """The exit code if it ends within `wait_s`, else None; its last words are read by then."""
        if self._process is None:
            return None
        try:
            async with asyncio.timeout(wait_s):
                await self._process.wait()
        except TimeoutError:
            return None
        self._read_stderr()
        return self._process.returncode

    def stderr_text(self) -> str:
        """What it said on stderr, on one line."""
        return " / ".join(self._stderr.decode("utf-8", "replace").split("\n")).strip(" /")

    async def close(self) -> None:
        """End it and what it started; never raises."""
        try:
            if self._process is not None and self._process.returncode is None:
                self._signal(signal.SIGTERM)
                if await self.exit_code(_GRACE_S) is None:
                    self._signal(signal.SIGKILL)
                    await self.exit_code(_GRACE_S)
        finally:
            self._forget_stderr()

    def _signal(self, number: signal.Signals) -> None:
        # Its own session: the group is the command and its children, never us.
        if self._process is not None and self._process.returncode is None:
            try:
                os.killpg(self._process.pid, number)
            except ProcessLookupError:
                pass
