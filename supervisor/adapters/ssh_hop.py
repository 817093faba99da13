"""One hop of an ssh connection while it comes about: the answers to the ssh library's questions, and the facts.

It decides which host key and which keys are offered, and says no to every prompt. It connects to nothing and imports
no asyncssh: `ssh.py` adds what only the library can do (reading keys, asking the agent).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from supervisor.adapters import ssh_config, ssh_known_hosts, ssh_login, ssh_texts
from supervisor.adapters.ssh_known_hosts import KnownKey, Presented
from supervisor.adapters.ssh_login import KeyState, LoginFacts
from supervisor.adapters.ssh_plan import Plan
from supervisor.adapters.ssh_proxy import ProxyProcess

_FIRST_BYTES = 512


class KeyPair(Protocol):
    """A key to log in with, as asyncssh has it."""

    algorithm: bytes
    key_public_data: bytes


class HostKey(Protocol):
    """A host key, as asyncssh has it."""

    @property
    def public_data(self) -> bytes: ...

    def get_algorithm(self) -> str: ...

    def get_fingerprint(self) -> str: ...


class Hop:
    """What is known of one hop. The methods in the middle part are called by the library."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.conn: Any = None
        self.proxy: ProxyProcess | None = None
        self.first_bytes = b""
        self.presented: Presented | None = None
        self.login = LoginFacts(key_files=plan.key_files)
        self.logging_in = False
        self._presented_blob = b""
        self._keys: list[tuple[str, KeyPair]] | None = None

    # What only the library can do

    async def agent_keys(self) -> list[tuple[str, KeyPair]]:
        """The agent's keys with their names; writes `login.agent`."""
        raise NotImplementedError

    async def file_keys(self, path: Path) -> Sequence[KeyPair]:
        """The keys of one file that needs no passphrase. Raises `ValueError` or `OSError`."""
        raise NotImplementedError

    def public_keys(self, keys: Sequence[KnownKey]) -> list[Any]:
        """The library's form of known keys."""
        raise NotImplementedError

    # What the library asks

    def connection_made(self, conn: Any) -> None:
        self.conn = conn
        forward = conn.data_received

        # asyncssh drops what stands before the version, which is all that a server of another kind says.
        def listen_in(data: bytes, datatype: int | None = None) -> None:
            self.first_bytes += data[: _FIRST_BYTES - len(self.first_bytes)]
            if ssh_texts.is_ssh_greeting(self.first_bytes) or len(self.first_bytes) >= _FIRST_BYTES:
                vars(conn).pop("data_received", None)
            forward(data, datatype)

        vars(conn)["data_received"] = listen_in

    def trusted(self, host: str, addr: str, port: int | None) -> tuple[list[Any], list[Any], list[Any]]:
        """Host keys, certificate authorities and revoked keys. A name is never trusted for its address alone."""
        known = ssh_known_hosts.look_up(self.plan.known_files, host, port or 22)
        if self.plan.pin:
            return [], [], []
        revoked = {key.blob for key in known.marked("revoked")}
        authorities = self.public_keys(known.marked("cert-authority"))
        plain = self.public_keys([key for key in known.marked("") if key.blob not in revoked])
        # A revoked key must come to `validate_host_public_key` to be named; only certificates need the list.
        return plain, authorities, self.public_keys(known.marked("revoked")) if authorities else []

    def validate_host_public_key(self, host: str, addr: str, port: int, key: HostKey) -> bool:
        """Asked for keys that `trusted` does not have: only the pin can still accept one."""
        self._presented_blob = key.public_data
        self.presented = Presented(self.plan.key_name, port, key.get_algorithm(), key.get_fingerprint())
        revoked = {known.blob for known in self.plan.known().marked("revoked")}
        return self.plan.pin == self.presented.fingerprint and key.public_data not in revoked

    def auth_banner_received(self, msg: str, lang: str) -> None:
        self.login.banner = ssh_texts.plain(self.login.banner + "\n" + msg)

    def begin_auth(self, username: str) -> None:
        self.logging_in = True

    def auth_completed(self) -> None:
        self.logging_in = False

    async def public_key_auth_requested(self) -> Any:
        if self._keys is None:
            self._keys = await self._find_keys()
        if not self._keys:
            self.login.keys_exhausted = True
            return None
        what, pair = self._keys.pop(0)
        algorithm = pair.algorithm.decode("ascii", "replace")
        self.login.tried.append(ssh_login.key_name(what, algorithm, pair.key_public_data))
        return pair

    def password_auth_requested(self) -> None:
        self.login.other_methods.append("password")

    def kbdint_auth_requested(self) -> None:
        self.login.other_methods.append("keyboard-interactive")

    async def _find_keys(self) -> list[tuple[str, KeyPair]]:
        """In ssh's order: the agent's keys that the configuration names, its other keys, key files."""
        agent_keys = await self.agent_keys()
        self.login.agent_blobs = {pair.key_public_data for _, pair in agent_keys}
        named = {key.blob for key in self.plan.key_files}
        first = [one for one in agent_keys if one[1].key_public_data in named]
        others = [] if self.plan.identities_only else [one for one in agent_keys if one not in first]
        files: list[tuple[str, KeyPair]] = []
        for key in self.plan.key_files:
            if key.state is KeyState.PLAIN and key.blob not in self.login.agent_blobs:
                try:
                    files += [(f"file {key.path}", pair) for pair in await self.file_keys(key.path)]
                except (ValueError, OSError) as error:
                    key.note = str(error)
        return first + others + files

    # What is told of it

    def host_key_text(self, reason: str, seen: Sequence[Presented], config_file: Path | None) -> str:
        """Why the host key is not accepted, and what to do. `seen`: all that were shown to a pin."""
        plan, known = self.plan, self.plan.known()
        if self.presented is None:
            return ssh_known_hosts.certificate_text(f"{plan.key_name}, port {plan.port}", reason)
        if hit := [key for key in known.marked("revoked") if key.blob == self._presented_blob]:
            return ssh_known_hosts.revoked_text(self.presented, hit)
        if plan.pin:
            return ssh_known_hosts.pin_text(seen, plan.pin)
        if others := [key for key in known.exact if not key.marker]:
            return ssh_known_hosts.changed_text(self.presented, others)
        named = str(config_file) if config_file else os.environ.get(ssh_config.CONFIG_VARIABLE)
        command = plan.target.ssh_command(named or None)
        return ssh_known_hosts.unknown_text(self.presented, ssh_command=command, pin_allowed=plan.is_node)

    def timeout_text(self) -> str:
        """How far it came in the time that it had."""
        plan, within = self.plan, f"within {self.plan.timeout_s:g} s"
        if self.conn is None:
            return f"no connection to {plan.host} port {plan.port} {within}"
        if not self.first_bytes:
            return f"{plan.host} port {plan.port} took the connection, but no SSH server answered {within}"
        if self.logging_in:
            tried = f"; the last key was {self.login.tried[-1]}" if self.login.tried else ""
            return f"{plan.where}: the login was not done {within}{tried}"
        return f"{plan.where}: the key exchange was not done {within}"

    async def proxy_text(self, wait_s: float) -> tuple[str, int | None]:
        """What the ProxyCommand said at its end, as a line of its own, and its exit code."""
        if self.proxy is None:
            return "", None
        code = await self.proxy.exit_code(wait_s)
        ended = f" ended with {code}" if code is not None else ""
        said = ssh_texts.plain(self.proxy.stderr_text())
        return f"\nProxyCommand `{self.proxy.command}`{ended}{': ' + said if said else ''}", code
