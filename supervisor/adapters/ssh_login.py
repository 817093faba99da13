"""Which keys there are to log in with, and the sentences about a login that was refused.

Looks at key files and builds texts. It never asks for a passphrase, never opens the agent (see `ssh.py`),
never imports asyncssh.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from supervisor.adapters.ssh_config import Setting, expand_path
from supervisor.adapters.ssh_known_hosts import fingerprint

DEFAULT_KEY_NAMES = ("id_rsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk", "id_ed448")
_OPENSSH_MAGIC = b"openssh-key-v1\0"
_MAX_KEY_FILE_BYTES = 1 << 20


class KeyState(Enum):
    """What can be done with a key file."""

    PLAIN = "plain"
    ENCRYPTED = "encrypted"
    PUBLIC = "public part only"
    MISSING = "missing"
    UNREADABLE = "unreadable"
    MALFORMED = "not a private key"


@dataclass
class KeyFile:
    """One IdentityFile. `blob` is its public key where that can be told; `note` says why it is of no use."""

    path: Path
    state: KeyState
    configured: bool
    blob: bytes | None = None
    note: str = ""


@dataclass
class LoginFacts:
    """What happened while we logged in, for the text."""

    tried: list[str] = field(default_factory=list)
    key_files: list[KeyFile] = field(default_factory=list)
    agent: str = ""
    agent_blobs: set[bytes] = field(default_factory=set)
    other_methods: list[str] = field(default_factory=list)
    keys_exhausted: bool = False
    banner: str = ""


def find_key_files(identity_files: Sequence[str] | None, tokens: Mapping[str, str]) -> list[KeyFile]:
    """The files of IdentityFile, or ssh's own defaults (`None`), of which only those that exist count."""
    if identity_files is not None:
        return [look_at(expand_path(text, tokens), configured=True) for text in identity_files]
    found = [look_at(Path("~/.ssh", name).expanduser(), configured=False) for name in DEFAULT_KEY_NAMES]
    return [key for key in found if key.state is not KeyState.MISSING]


def look_at(path: Path, *, configured: bool) -> KeyFile:
    """What `path` is, without a passphrase."""
    key = KeyFile(path, KeyState.MISSING, configured, _public_blob(Path(f"{path}.pub")))
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_KEY_FILE_BYTES)
    except FileNotFoundError:
        if key.blob is not None:
            key.state = KeyState.PUBLIC  # the private part may be in the agent: `ssh` works with that too
        return key
    except OSError as error:
        key.state, key.note = KeyState.UNREADABLE, error.strerror or str(error)
        return key
    if b"PRIVATE KEY" not in data:
        own = _public_blob(path)
        key.state = KeyState.PUBLIC if own is not None else KeyState.MALFORMED
        key.blob = own or key.blob
        return key
    encrypted, blob = _openssh_header(data)
    pem_encrypted = b"BEGIN ENCRYPTED PRIVATE KEY" in data or b"Proc-Type: 4,ENCRYPTED" in data
    key.state = KeyState.ENCRYPTED if encrypted or pem_encrypted else KeyState.PLAIN
    key.blob = blob or key.blob
    return key


def _public_blob(path: Path) -> bytes | None:
    try:
        words = path.read_text(errors="replace")[:_MAX_KEY_FILE_BYTES].split()
        return base64.b64decode(words[1], validate=True) if len(words) > 1 else None
    except (OSError, binascii.Error, ValueError):
        return None


def _openssh_header(data: bytes) -> tuple[bool, bytes | None]:
    """Whether an OpenSSH private key is encrypted, and its public key, which stands there in the clear."""
    begin, end = b"-----BEGIN OPENSSH PRIVATE KEY-----", b"-----END"
    if begin not in data:
        return False, None
    body = data.split(begin, 1)[1].split(end, 1)[0]
    try:
        raw = base64.b64decode(b"".join(body.split()), validate=True)
        if not raw.startswith(_OPENSSH_MAGIC):
            return False, None
        cipher, rest = _string(raw[len(_OPENSSH_MAGIC) :])
        _, rest = _string(rest)
        _, rest = _string(rest)
        blob, _ = _string(rest[4:])
    except (binascii.Error, ValueError, struct.error):
        return False, None
    return cipher != b"none", blob


def _string(raw: bytes) -> tuple[bytes, bytes]:
    (length,) = struct.unpack_from(">I", raw)
    return raw[4 : 4 + length], raw[4 + length :]


def key_name(what: str, algorithm: str, blob: bytes) -> str:
    """One key for a list: where it comes from, its type, its fingerprint."""
    return f"{what} ({algorithm} {fingerprint(blob)})"


def refused_text(facts: LoginFacts, *, why: str = "") -> str:
    """The whole story of a refused login, one matter a line, without "who and where"."""
    lines = [f"the login was refused{': ' + why if why else ''}"]
    lines.append("keys tried: " + ("; ".join(facts.tried) if facts.tried else "none"))
    lines += [line for key in facts.key_files if (line := _file_line(key, facts.agent_blobs))]
    if facts.agent:
        lines.append(facts.agent)
    if facts.tried and facts.other_methods and not facts.keys_exhausted:
        lines.append("a key was accepted, but the node wants a second step, which cannot be done without a prompt")
    if facts.other_methods:
        lines.append(f"the node still offers {', '.join(facts.other_methods)}: never used here, nobody could be asked")
    if facts.banner:
        lines.append("the node says: " + facts.banner)
    return "\n".join(lines)


def _file_line(key: KeyFile, agent_blobs: set[bytes]) -> str:
    in_agent = key.blob is not None and key.blob in agent_blobs
    shown = f" ({fingerprint(key.blob)})" if key.blob is not None else ""
    if key.state is KeyState.ENCRYPTED and not in_agent:
        return f"{key.path}{shown} is encrypted and not in the agent: run `ssh-add {key.path}`"
    if key.state is KeyState.PUBLIC and not in_agent:
        return f"{key.path}{shown}: only the public part is here, and the agent does not have the other"
    if key.state in (KeyState.MISSING, KeyState.UNREADABLE, KeyState.MALFORMED) or (key.note and not in_agent):
        note = f" ({key.note})" if key.note else ""
        state = "cannot be used" if key.state is KeyState.PLAIN else f"is {key.state.value}"
        return f"{key.path} {state}{note}"
    return ""


def unread_text(unread: Sequence[Setting]) -> str:
    """Names the options that were not honoured, as a line of its own; "" when there are none."""
    if not unread:
        return ""
    return "\nnot read here, of your ssh configuration: " + ", ".join(str(setting) for setting in unread)
