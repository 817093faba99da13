"""Network and protocol failures of an ssh connection in plain words. Pure: no asyncssh, no I/O."""

from __future__ import annotations

import errno
import re
import socket

from supervisor.core.lines import sanitise

_ROUTES = {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN}
# What sshd says in place of its version when it is only busy, or sulks for a while: worth another try.
_BUSY = re.compile(r"maxstartups|not allowed at this time|too many|busy|try again", re.IGNORECASE)


def plain(text: str, limit: int = 300) -> str:
    """Remote text on one line that is safe to show."""
    line = " / ".join(part.strip() for part in sanitise(text).splitlines() if part.strip())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def network_text(error: OSError, host: str, port: int) -> str:
    """Why there is no TCP connection to `host:port`, or not any more. asyncio's texts have the address."""
    reason = error.strerror or str(error) or type(error).__name__
    if isinstance(error, socket.gaierror):
        return f"the name {host} does not resolve ({reason})"
    if error.errno in _ROUTES:
        return f"there is no way to {host} port {port}: {reason}"
    if isinstance(error, ConnectionRefusedError):
        return f"{host} port {port} refuses the connection, nothing listens there: {reason}"
    if isinstance(error, TimeoutError):
        return f"no answer from {host} port {port}: {reason}"
    return f"no connection to {host} port {port}: {reason}"


def lost_text(error: Exception | None, keepalive_s: float, keepalive_count: int) -> str:
    """Why a connection that stood is gone."""
    if error is None:
        return "the node ended the connection"
    if isinstance(error, ConnectionResetError):
        return "connection reset by peer"
    if isinstance(error, BrokenPipeError):
        return "the connection broke while something was sent"
    if isinstance(error, OSError):
        return f"the connection broke: {error.strerror or error}"
    text = plain(str(error)) or type(error).__name__
    if "keepalive" in text:
        return f"no answer to {keepalive_count} keepalives in {keepalive_s * (keepalive_count + 1):g} s"
    if text == "Connection lost":
        return "the other side closed the connection"
    return text


def is_ssh_greeting(first_bytes: bytes) -> bool:
    """True once a line of the server begins as an SSH version does (other lines may come before it)."""
    return first_bytes.startswith(b"SSH-") or b"\nSSH-" in first_bytes


def foreign_text(first_bytes: bytes) -> tuple[str, bool]:
    """What a server said that did not speak SSH, and whether that was only "come back later"."""
    said = plain(first_bytes.decode("utf-8", "replace"), 120)
    if _BUSY.search(said):
        return f"the SSH server turns connections away for now: {said!r}", True
    return f"does not speak SSH there: it said {said!r}", False
