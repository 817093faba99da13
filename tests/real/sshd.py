"""A real OpenSSH server on a port of its own: throw-away keys, an ssh_config with the alias `node`, any option.

    with Sshd(tmp_path, AllowTcpForwarding="no") as server:
        await asyncssh.connect("node", config=[server.ssh_config])
        server.freeze_sessions()

Its sessions have HOME (an empty folder, or the one given) and the test's mark in their environment, and nothing else of
ours. HOME matters twice: state folders land in it, and the user's own shell start-up files would cost 100 ms an exec.
Only processes that it started are ever signalled.
"""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import psutil

from tests.real import processes
from tests.real.ports import free_port

ALIAS = "node"


def binary() -> str | None:
    """sshd's full path: it re-executes itself, so a bare name does not do."""
    return shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin:/sbin")


def missing() -> str | None:
    """Why no sshd can be run here, None when it can."""
    if binary() is None:
        return "no sshd (Debian: openssh-server)"
    if shutil.which("ssh-keygen") is None:
        return "no ssh-keygen (Debian: openssh-client)"
    return None


class Sshd:
    """One server, from `start` to `stop`. Can be started again on the same port with the same keys."""

    def __init__(
        self,
        directory: Path,
        *,
        home: Path | None = None,
        environment: Mapping[str, str] | None = None,
        address: str = "127.0.0.1",
        port: int | None = None,
        prefix: Sequence[str] = (),
        **options: str | None,
    ) -> None:
        """`options` are keywords of sshd_config; None leaves one of ours out. `prefix` runs it elsewhere, as in a
        network namespace; `address` is then that place's."""
        self.directory = directory
        self.home = home or directory / "home"
        self.address = address
        self.port = port or (free_port(address) if not prefix else 22022)
        self.user = getpass.getuser()
        self.log = directory / "sshd.log"
        self.client_key = directory / "client_ed25519"
        self.host_key = directory / "host_ed25519"
        self.known_hosts = directory / "known_hosts"
        self.ssh_config = directory / "ssh_config"
        self._config = directory / "sshd_config"
        self._pid_file = directory / "sshd.pid"
        self._prefix = tuple(prefix)
        self._process: subprocess.Popen[bytes] | None = None
        self._orphans: list[psutil.Process] = []  # sessions of a listener that is gone
        self._environment = {"HOME": str(self.home), **(environment or {})}
        if processes.MARK in os.environ:
            self._environment.setdefault(processes.MARK, os.environ[processes.MARK])
        directory.mkdir(parents=True, exist_ok=True)
        self.home.mkdir(parents=True, exist_ok=True)
        self._write_keys()
        self._write_config(options)

    # ------------------------------------------------------------------------------------------------ life

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Returns when it listens."""
        assert self._process is None, "it runs already"
        path = binary()
        assert path is not None, missing()
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # without systemd nobody makes it, and sshd refuses
        check = subprocess.run([path, "-t", "-f", self._config], capture_output=True, text=True, check=False)
        assert check.returncode == 0, check.stderr
        self._pid_file.unlink(missing_ok=True)
        self._process = subprocess.Popen(
            [*self._prefix, path, "-D", "-f", str(self._config), "-E", str(self.log)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        # The pid file is written after listen(), whatever LogLevel says.
        processes.poll(self._listens, 10, f"sshd on port {self.port}; its log:\n{self.log_text()}")

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"sshd ended at once:\n{self.log_text()}"
        return self._pid_file.exists()

    def stop(self) -> None:
        """Ends the listener and every session. What a session detached lives on, as it would on a node."""
        self.kill_sessions()
        if self._process is not None:
            self.stop_listener()

    def stop_listener(self) -> None:
        """New connections are refused from now on, the sessions live: what restarting sshd on a node looks like."""
        assert self._process is not None, "not started"
        self._orphans = self.sessions()
        self._process.terminate()
        self._process.wait(10)
        self._process = None

    # ------------------------------------------------------------------------------------------------ what is there

    @property
    def pid(self) -> int:
        """The listener."""
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def url(self) -> str:
        return f"ssh://{self.user}@{self.address}:{self.port}"

    def sessions(self) -> list[psutil.Process]:
        """The sshd processes that serve connections, of this server alone.

        Right after a login one may fork once more, to serve with the user's rights: one look may come too early for it.
        """
        listener = [psutil.Process(self._process.pid)] if self._process is not None else []
        below = [child for parent in (*listener, *self._orphans) for child in processes.descendants(parent)]
        # "sshd" up to OpenSSH 9.7, "sshd-session" and "sshd-auth" from 9.8 on
        found = {*self._orphans, *(child for child in below if processes.name(child).startswith("sshd"))}
        return [session for session in found if processes.alive(session)]

    def session_pids(self) -> list[int]:
        return [session.pid for session in self.sessions()]

    def log_text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def ssh_command(self, *words: str) -> list[str]:
        """The real client: `ssh node WORDS`."""
        return ["ssh", "-F", str(self.ssh_config), ALIAS, *words]

    # ------------------------------------------------------------------------------------------------ faults

    def kill_sessions(self) -> None:
        """Every connection breaks at once; the listener lives."""
        sessions = self.freeze_sessions()
        for session in sessions:
            processes.send(session, signal.SIGKILL)
        assert not processes.wait_gone(sessions, 5)

    def freeze_sessions(self) -> list[psutil.Process]:
        """Every connection goes silent without breaking, as when a cable is pulled. `thaw_sessions` ends it."""
        frozen: list[psutil.Process] = []
        while fresh := [session for session in self.sessions() if session not in frozen]:
            for session in fresh:  # one of them may have forked before it stopped: look again
                processes.send(session, signal.SIGSTOP)
            frozen += fresh
        return frozen

    def thaw_sessions(self) -> None:
        for session in self.sessions():
            processes.send(session, signal.SIGCONT)

    # ------------------------------------------------------------------------------------------------ files

    def _write_keys(self) -> None:
        for key in (self.host_key, self.client_key):
            if not key.exists():
                subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", key], check=True)
        (self.directory / "authorized_keys").write_bytes(self.client_key.with_suffix(".pub").read_bytes())
        kind, blob = self.host_key.with_suffix(".pub").read_text().split()[:2]
        self.known_hosts.write_text(f"[{self.address}]:{self.port} {kind} {blob}\n")
        self.ssh_config.write_text(
            f"Host {ALIAS}\n"
            f"  HostName {self.address}\n  Port {self.port}\n  User {self.user}\n"
            f'  IdentityFile "{self.client_key}"\n  IdentitiesOnly yes\n'
            f'  UserKnownHostsFile "{self.known_hosts}"\n  GlobalKnownHostsFile /dev/null\n'
            "  StrictHostKeyChecking yes\n  BatchMode yes\n"
        )

    def _write_config(self, options: Mapping[str, str | None]) -> None:
        ours: dict[str, str | None] = {
            "Port": str(self.port),
            "ListenAddress": self.address,
            "HostKey": f'"{self.host_key}"',
            "PidFile": f'"{self._pid_file}"',
            "AuthorizedKeysFile": f'"{self.directory / "authorized_keys"}"',
            "PermitRootLogin": "prohibit-password",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "UsePAM": "no",
            "StrictModes": "no",  # it refuses every key below /tmp
            "UseDNS": "no",
            "MaxStartups": "100",
            "LogLevel": "VERBOSE",
            "Subsystem": "sftp internal-sftp",
            # One line: sshd takes the first SetEnv and ignores the others.
            "SetEnv": " ".join(f'"{key}={value}"' for key, value in self._environment.items()),
        }
        spelt = {key.lower(): key for key in ours}
        ours.update({spelt.get(key.lower(), key): value for key, value in options.items()})
        self._config.write_text("".join(f"{key} {value}\n" for key, value in ours.items() if value is not None))
