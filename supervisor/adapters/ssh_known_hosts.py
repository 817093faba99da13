"""Which keys known_hosts files hold for a host, and the sentences about a host key that is not accepted.

Reads files and builds texts, nothing else: no asyncssh, no decision to trust (see `ssh.py`), no writing.
asyncssh's own reader gives up on a whole file for one broken line, accepts a name by its address alone
and tells neither file nor line; ssh does none of that, so neither do we.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

DEFAULT_FILES = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
DEFAULT_GLOBAL_FILES = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")


@dataclass(frozen=True)
class KnownKey:
    """One key of one line; `marker` is "", "cert-authority" or "revoked"."""

    file: Path
    line: int
    marker: str
    key_type: str
    blob: bytes

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.blob)

    @property
    def openssh_text(self) -> str:
        return f"{self.key_type} {base64.b64encode(self.blob).decode()}"


@dataclass(frozen=True)
class KnownKeys:
    """What is known of a host. `fallback`: keys of its name without the port, which ssh accepts too."""

    exact: list[KnownKey] = field(default_factory=list)
    fallback: list[KnownKey] = field(default_factory=list)

    def marked(self, marker: str) -> list[KnownKey]:
        exact = [key for key in self.exact if key.marker == marker]
        # A revocation always counts; anything else under the bare name only where the port has nothing.
        use_fallback = marker == "revoked" or not [key for key in self.exact if key.marker != "revoked"]
        return exact + ([key for key in self.fallback if key.marker == marker] if use_fallback else [])


@dataclass(frozen=True)
class Presented:
    """The host key that was shown to us, and where."""

    host: str
    port: int
    key_type: str
    fingerprint: str

    def __str__(self) -> str:
        return f"host {self.host}, port {self.port}, key {self.key_type} {self.fingerprint}"

    @property
    def known_as(self) -> str:
        return host_entry(self.host, self.port)


def fingerprint(blob: bytes) -> str:
    """As `ssh-keygen -lf` prints it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def host_entry(host: str, port: int) -> str:
    """The name that stands in a known_hosts file."""
    return host if port == 22 else f"[{host}]:{port}"


def look_up(files: Sequence[Path], host: str, port: int) -> KnownKeys:
    """The keys of `host`; files that are missing and lines that cannot be read are passed over, as in ssh."""
    entry = host_entry(host.lower(), port)
    exact, fallback = [], []
    for file in files:
        for names, key in _read(file):
            if _names_match(names, entry):
                exact.append(key)
            elif port != 22 and _names_match(names, host.lower()):
                fallback.append(key)
    return KnownKeys(exact, fallback)


def _read(file: Path) -> Iterator[tuple[str, KnownKey]]:
    try:
        text = file.read_text(errors="replace")
    except OSError:
        return
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        marker = words.pop(0)[1:] if words[0].startswith("@") else ""
        if len(words) < 3 or marker not in ("", "cert-authority", "revoked"):
            continue
        try:
            blob = base64.b64decode(words[2], validate=True)
        except (binascii.Error, ValueError):
            continue
        yield words[0], KnownKey(file, number, marker, words[1], blob)


def _names_match(names: str, entry: str) -> bool:
    if names.startswith("|1|"):
        return _hash_matches(names, entry)
    matched = False
    for pattern in names.lower().split(","):
        if fnmatchcase(entry, pattern.removeprefix("!").replace("[", "[[]")):
            if pattern.startswith("!"):
                return False
            matched = True
    return matched


def _hash_matches(names: str, entry: str) -> bool:
    try:
        salt, expected = (base64.b64decode(part, validate=True) for part in names[3:].split("|"))
    except (binascii.Error, ValueError):
        return False
    return hmac.compare_digest(hmac.new(salt, entry.encode(), hashlib.sha1).digest(), expected)


def unknown_text(shown: Presented, *, ssh_command: str, pin_allowed: bool) -> str:
    """Nothing is known of this host."""
    ways = [f"run `{ssh_command}` once and compare the fingerprint before you answer yes"]
    if pin_allowed:
        ways.append(f'write host_key = "{shown.fingerprint}" under [node] of the profile, if you know that it is right')
    return f"the host key is not known: {shown}\nEither " + ", or ".join(ways) + "."


def changed_text(shown: Presented, known: Sequence[KnownKey]) -> str:
    """Other keys are known of this host: of the same type (changed), or of other types alone."""
    same_type = [key for key in known if key.key_type == shown.key_type]
    lines = []
    if same_type:
        lines.append(f"THE HOST KEY HAS CHANGED: {shown}")
    else:
        lines.append(f"the host shows a key of a type that is not known of it: {shown}")
    for key in same_type or known:
        lines.append(f"{key.file}:{key.line} has {key.key_type} {key.fingerprint}")
    forget = shlex.join(["ssh-keygen", "-f", str((same_type or known)[0].file), "-R", shown.known_as])
    lines.append(
        "Somebody may be listening in, or the machine was installed anew. Ask who runs it what its fingerprint is. "
        f"Only after that: `{forget}`"
    )
    return "\n".join(lines)


def revoked_text(shown: Presented, known: Sequence[KnownKey]) -> str:
    """The key is marked @revoked."""
    where = ", ".join(f"{key.file}:{key.line}" for key in known)
    return f"the host key is marked as revoked in {where}: {shown}\nNobody should log in there. Ask who runs it."


def pin_text(seen: Sequence[Presented], pin: str) -> str:
    """The profile's host_key is none of the keys that the host has."""
    shown = "; ".join(str(one) for one in seen)
    return (
        f"the host key is not the one that the profile asks for.\nShown: {shown}\nhost_key = {pin}\n"
        "Somebody may be listening in, or the machine was installed anew. Ask who runs it before you change host_key."
    )


def certificate_text(where: str, why: str) -> str:
    """A host certificate that is not accepted."""
    return f"the host's certificate is not accepted ({why}): host {where}"
