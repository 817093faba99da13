"""A loopback SSH node of our own for the demonstration: the real SSH protocol, throw-away keys, this machine.

Nothing of the user's ssh set-up is read or written. Commands run as this user, with a home folder of their own that
goes with the demonstration. It listens on 127.0.0.1 alone, and lets in only the key that was made for it.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import asyncssh

ENDING_WAIT_S = 3.0


class _Server(asyncssh.SSHServer):
    """Lets the one key in, and connections to this machine's loopback through."""

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
        return dest_host in ("127.0.0.1", "::1", "localhost")


class LoopbackNode:
    """The node. `folder` holds keys, ssh configuration and the node's home; whoever made it removes it.

    `env` is added to the environment of every command on it.
    """

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self.folder = folder
        self._env = env
        self.home = folder / "home"
        self.port = 0
        self._acceptor: asyncssh.SSHAcceptor | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def target(self) -> str:
        """What a profile's `node.host` would be."""
        return f"ssh://demo@127.0.0.1:{self.port}"

    @property
    def config_file(self) -> Path:
        """An ssh configuration that names the throw-away key and nothing else."""
        return self.folder / "ssh_config"

    @property
    def known_hosts(self) -> Path:
        """The node's host key, as ssh writes it."""
        return self.folder / "known_hosts"

    async def start(self) -> None:
        """Make the keys and listen."""
        self.home.mkdir(mode=0o700)
        host_key = asyncssh.generate_private_key("ssh-ed25519")
        user_key = asyncssh.generate_private_key("ssh-ed25519")
        identity = self.folder / "id_demo"
        identity.touch(mode=0o600)
        user_key.write_private_key(identity)
        authorized = self.folder / "authorized_keys"
        user_key.write_public_key(authorized)
        self._acceptor = await asyncssh.listen(
            "127.0.0.1",
            0,
            server_factory=_Server,
            server_host_keys=[host_key],
            authorized_client_keys=str(authorized),
            process_factory=self._handle,
            encoding=None,
        )
        self.port = self._acceptor.get_port()
        public = host_key.export_public_key().decode().strip()
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {' '.join(public.split()[:2])}\n")
        self.config_file.write_text(f"Host *\n  IdentityFile {identity}\n  IdentitiesOnly yes\n")

    def _handle(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        task = asyncio.create_task(self._run(process))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        command = process.command
        if command is None:
            process.stderr.write(b"this node runs commands only\n")
            process.exit(1)
            return
        child = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self.home,
            env={**os.environ, "HOME": str(self.home), "XDG_STATE_HOME": str(self.home / "state"), **self._env},
            start_new_session=True,
        )
        await process.redirect(stdin=child.stdin, stdout=child.stdout, stderr=child.stderr)
        process.exit(await child.wait())
        await process.wait_closed()  # else asyncssh leaves its own clean-up undone, and Python says so at the end

    async def stop(self) -> None:
        """Close the node's door. What was launched on it goes on until it is stopped by its run."""
        if self._acceptor is not None:
            self._acceptor.close()
            await self._acceptor.wait_closed()
        if self._tasks:
            # The client has closed their stdin, on which every program of ours ends by itself.
            await asyncio.wait(tuple(self._tasks), timeout=ENDING_WAIT_S)
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def make_folder() -> Path:
    """A private folder for one demonstration."""
    return Path(tempfile.mkdtemp(prefix="supervisor-demo-"))
