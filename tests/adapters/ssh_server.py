"""A real OpenSSH sshd on loopback for one test, with throwaway keys, and a relay that can break connections.

Everything lies in the test's folder; what was started is ended by its pid. Nothing of the user's is read or written.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import shutil
import signal
import socket
import struct
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psutil

SSHD = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def make_key(path: Path, *, key_type: str = "ed25519", passphrase: str = "", comment: str = "test") -> Path:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", key_type, "-N", passphrase, "-C", comment, "-f", str(path)], check=True, timeout=30
    )
    return path


def fingerprint_of(public_key: Path) -> str:
    """As ssh-keygen computes it: an oracle that shares nothing with the product."""
    done = subprocess.run(["ssh-keygen", "-lf", str(public_key)], check=True, capture_output=True, text=True)
    return done.stdout.split()[1]


def hash_names(known_hosts: Path) -> None:
    """As `HashKnownHosts yes` would have written it."""
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(known_hosts)], check=True, capture_output=True)


def certify_host(key: Path, authority: Path, name: str) -> None:
    """Make KEY-cert.pub, a host certificate for `name`."""
    command = ["ssh-keygen", "-q", "-s", str(authority), "-I", "test", "-h", "-n", name, f"{key}.pub"]
    subprocess.run(command, check=True, capture_output=True)


class Sshd:
    """One sshd with its own folder: host keys, the client's key, known_hosts that knows it."""

    def __init__(self, folder: Path, *, extra: str = "", host_key_types: tuple[str, ...] = ("ed25519",)) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "home").mkdir()
        self.port = free_port()
        self.user = getpass.getuser()
        self.host_keys = [make_key(folder / f"host_{one}", key_type=one) for one in host_key_types]
        self.client_key = make_key(folder / "client", comment="client key")
        self.known_hosts = folder / "known_hosts"
        self.authorized_keys = folder / "authorized_keys"
        self.authorized_keys.write_text(self.public(self.client_key))
        self.know(*self.host_keys)
        self._config = folder / "sshd_config"
        lines = [
            f"Port {self.port}\nListenAddress 127.0.0.1\nPidFile none\nAuthorizedKeysFile {self.authorized_keys}",
            "PermitRootLogin prohibit-password\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nUsePAM no",
            "StrictModes no\nUseDNS no\nMaxStartups 100",
            f"SetEnv HOME={folder / 'home'}",
            *(f"HostKey {key}" for key in self.host_keys),
        ]
        self._config.write_text(extra + "\n" + "\n".join(lines) + "\n")  # in sshd_config the first value wins
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def public(key: Path) -> str:
        return Path(f"{key}.pub").read_text()

    def know(self, *keys: Path, name: str | None = None) -> None:
        entry = name or f"[127.0.0.1]:{self.port}"
        self.known_hosts.write_text("".join(f"{entry} {self.public(key)}" for key in keys))

    def config(self, *, alias: str = "node", extra: str = "", key: Path | None = None) -> str:
        return (
            f"Host {alias}\n  HostName 127.0.0.1\n  Port {self.port}\n  User {self.user}\n"
            f"  IdentityFile {key or self.client_key}\n  UserKnownHostsFile {self.known_hosts}\n"
            f"  GlobalKnownHostsFile /dev/null\n{extra}\n"
        )

    async def __aenter__(self) -> Sshd:
        assert SSHD is not None, "openssh-server is needed: apt-get install openssh-server"
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        log = (self.folder / "sshd.log").open("wb")
        self._process = subprocess.Popen(
            [SSHD, "-D", "-e", "-f", str(self._config)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        log.close()
        for _ in range(500):
            assert self._process.poll() is None, (self.folder / "sshd.log").read_text()
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
            except ConnectionRefusedError:
                await asyncio.sleep(0.01)
                continue
            writer.close()
            await writer.wait_closed()
            break
        else:
            raise AssertionError("sshd does not listen: " + self.log())
        while self.sessions():  # noqa: ASYNC110 - the process that served our look above
            await asyncio.sleep(0.01)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process is not None
        for child in self.sessions():
            with suppress(psutil.NoSuchProcess):
                child.send_signal(signal.SIGKILL)
        self._process.kill()
        self._process.wait(10)

    def sessions(self) -> list[psutil.Process]:
        """The processes of sshd that serve connections, and what runs in them."""
        assert self._process is not None
        return psutil.Process(self._process.pid).children(recursive=True)

    def log(self) -> str:
        return (self.folder / "sshd.log").read_text()


@asynccontextmanager
async def agent(folder: Path) -> AsyncIterator[Path]:
    """A real ssh-agent without keys; yields its socket."""
    path = folder / "agent.sock"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL)
    try:
        for _ in range(500):
            if path.exists():
                break
            await asyncio.sleep(0.01)
        yield path
    finally:
        process.terminate()
        process.wait(10)


def add_to_agent(sock: Path, key: Path, passphrase: str = "") -> None:
    """ssh-add, answering a passphrase by SSH_ASKPASS."""
    helper = key.parent / f"askpass-{time.monotonic_ns()}"
    helper.write_text(f"#!/bin/sh\necho '{passphrase}'\n")
    helper.chmod(0o700)
    env = {**os.environ, "SSH_AUTH_SOCK": str(sock), "SSH_ASKPASS": str(helper), "SSH_ASKPASS_REQUIRE": "force"}
    subprocess.run(["ssh-add", "-q", str(key)], env=env, check=True, timeout=30, stdin=subprocess.DEVNULL)


class Relay:
    """A TCP relay on loopback that can reset its connections."""

    def __init__(self, port: int) -> None:
        self._to_port = port
        self._pairs: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    async def __aenter__(self) -> Relay:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.reset()
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._to_port)
        self._pairs += [writer, far_writer]
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.create_task(self._pump(source, sink))
            self._tasks.add(task)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()
        except OSError:
            pass
        finally:
            sink.close()

    def reset(self) -> None:
        """Send RST both ways."""
        for writer in self._pairs:
            sock = writer.get_extra_info("socket")
            if sock is not None and not writer.is_closing():
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
        self._pairs.clear()
