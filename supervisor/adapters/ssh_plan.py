"""What one hop of an ssh connection is to be: address, keys, trust, jump hosts, from the user's configuration.

The values are asyncssh's reading of the files (handed in, asyncssh itself is not imported here); what it does not
read, or reads in another way than ssh, is added. Reads files, connects to nothing, writes nothing.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from supervisor.adapters import ssh_config, ssh_known_hosts, ssh_login
from supervisor.adapters.ssh_config import Setting, Target
from supervisor.adapters.ssh_known_hosts import KnownKeys
from supervisor.adapters.ssh_login import KeyFile

# ssh's own order, with the signatures of each key type. What is known of a host comes first.
_SIGNATURES = {
    "ssh-ed25519": ["ssh-ed25519"],
    "ecdsa-sha2-nistp256": ["ecdsa-sha2-nistp256"],
    "ecdsa-sha2-nistp384": ["ecdsa-sha2-nistp384"],
    "ecdsa-sha2-nistp521": ["ecdsa-sha2-nistp521"],
    "ssh-rsa": ["rsa-sha2-512", "rsa-sha2-256"],
}


class ReadConfig(Protocol):
    """asyncssh's reading: option names as it writes them."""

    def get(self, option: str, default: object = None) -> Any: ...


class ReadOptions(Protocol):
    """What asyncssh made of target and configuration together."""

    config: Any
    host: str
    port: int
    username: str
    connect_timeout: float | None


@dataclass
class Plan:
    """One hop as the configuration wants it. `who` is how messages call it."""

    who: str
    target: Target
    is_node: bool
    host: str
    port: int
    user: str
    key_name: str
    timeout_s: float
    known_files: list[Path]
    pin: str | None = None
    key_files: list[KeyFile] = field(default_factory=list)
    certificates: list[str] = field(default_factory=list)
    agent_path: str | None = None
    identities_only: bool = False
    jumps: list[Target] = field(default_factory=list)
    proxy_command: str | None = None
    host_key_algorithms: str | None = None
    unread: list[Setting] = field(default_factory=list)
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def where(self) -> str:
        """user@host:port, as it really is."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.user}@{host}:{self.port}"

    def known(self) -> KnownKeys:
        """What known_hosts has of it now."""
        return ssh_known_hosts.look_up(self.known_files, self.key_name, self.port)


def make_plan(
    target: Target,
    read: ReadOptions,
    files: Sequence[Path],
    *,
    who: str,
    pin: str | None,
    is_node: bool,
    known_hosts: Path | None,
    connect_timeout_s: float,
    supported: Collection[str],
) -> Plan:
    """Raises `UsageError` for a ProxyJump that cannot be read."""
    config: ReadConfig = read.config
    settings = ssh_config.read_settings(files, target)
    key_name = str(config.get("HostKeyAlias") or read.host)
    tokens = _tokens(target, read, key_name)
    certificates = [str(ssh_config.expand_path(text, tokens)) for text in _texts(config, "CertificateFile")]
    identities = None if config.get("IdentityFile") is None else _texts(config, "IdentityFile")
    jump, command = _way(config, settings)
    return Plan(
        who=who,
        target=target,
        is_node=is_node,
        host=read.host,
        port=read.port,
        user=read.username,
        key_name=key_name,
        timeout_s=float(read.connect_timeout or connect_timeout_s),
        known_files=[known_hosts] if known_hosts else _known_files(config, tokens),
        pin=pin,
        key_files=ssh_login.find_key_files(identities, tokens),
        certificates=[path for path in certificates if os.access(path, os.R_OK)],
        agent_path=_agent_path(config),
        identities_only=bool(config.get("IdentitiesOnly")),
        jumps=[ssh_config.parse_jump(part.strip()) for part in jump.split(",")] if jump else [],
        proxy_command=command,
        host_key_algorithms=config.get("HostKeyAlgorithms"),
        # Without asyncssh's list nothing can be told, so nothing is named.
        unread=ssh_config.unread_options(settings, supported) if supported else [],
    )


def host_key_algorithms(plan: Plan, unwanted_types: Collection[str]) -> Any:
    """What is known comes first, then the rest, so that a key that is not known is shown and can be named."""
    if plan.host_key_algorithms and not unwanted_types:
        return ()  # HostKeyAlgorithms of the configuration, read by asyncssh
    known = plan.known()
    known_types = [] if plan.pin else [key.key_type for key in known.marked("") if key.key_type in _SIGNATURES]
    types = [one for one in dict.fromkeys([*known_types, *_SIGNATURES]) if one not in unwanted_types]
    plain = [name for one in types for name in _SIGNATURES[one]]
    if known.marked("cert-authority") and not plan.pin:
        return [f"{name}-cert-v01@openssh.com" for name in plain] + plain
    return plain


def _way(config: ReadConfig, settings: Sequence[Setting]) -> tuple[str | None, str | None]:
    """ProxyJump or ProxyCommand. In ssh the one that stands first counts, in asyncssh always the jump."""
    jump, command = config.get("ProxyJump"), config.get("ProxyCommand")
    first = ssh_config.first_of(settings, "ProxyJump", "ProxyCommand")
    if jump and command and first is not None and first.option.lower() == "proxycommand":
        jump = None
    if jump:
        return str(jump), None
    # asyncssh leaves the equals sign of "ProxyCommand=…" in the value.
    return None, str(command).lstrip("= ") if command else None


def _texts(config: ReadConfig, option: str) -> list[str]:
    value = config.get(option)
    return [str(text) for text in value] if isinstance(value, list | tuple) else []


def _tokens(target: Target, read: ReadOptions, key_name: str) -> dict[str, str]:
    return {
        "d": str(Path.home()),
        "h": read.host,
        "i": str(os.getuid()),
        "k": key_name,
        "l": socket.gethostname(),
        "n": target.host,
        "p": str(read.port),
        "r": read.username,
        "u": ssh_config.local_user(),
    }


def _known_files(config: ReadConfig, tokens: Mapping[str, str]) -> list[Path]:
    user, system = config.get("UserKnownHostsFile"), config.get("GlobalKnownHostsFile")
    names = list(ssh_known_hosts.DEFAULT_FILES if user is None else user)
    names += ssh_known_hosts.DEFAULT_GLOBAL_FILES if system is None else system
    return [ssh_config.expand_path(str(name), tokens) for name in names]


def _agent_path(config: ReadConfig) -> str | None:
    own = config.get("IdentityAgent", ())
    if own is None:
        return None  # IdentityAgent none
    if own in ((), "SSH_AUTH_SOCK"):
        return os.environ.get("SSH_AUTH_SOCK") or None
    if str(own).startswith("$"):
        return os.environ.get(str(own)[1:].strip("{}")) or None
    return str(Path(str(own)).expanduser())
