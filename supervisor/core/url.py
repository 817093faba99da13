"""A health URL, taken apart and checked. Pure."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from msgspec import Struct

WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""A server that listens on every address is looked at on the loopback of that family."""


class UrlError(ValueError):
    """The URL cannot be meant; the text says what is wrong with it."""


class Url(Struct, frozen=True):
    """scheme, host, port and path (with its query) of a URL that is to be looked at."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def host_header(self) -> str:
        """The Host header: what the user wrote, not the address that was tried."""
        return f"{_bracketed(self.host)}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether the host is this machine by name or address."""
        if self.host == "localhost" or self.host.endswith(".localhost"):
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def addresses(self) -> tuple[str, ...]:
        """Hosts to try in this order: `localhost` means 127.0.0.1 and ::1, a wildcard its loopback."""
        if self.host == "localhost":
            return ("127.0.0.1", "::1")
        return (WILDCARDS.get(self.host, self.host),)

    def with_host(self, host: str) -> str:
        """The URL with another host, as text."""
        return f"{self.scheme}://{_bracketed(host)}:{self.port}{self.path}"

    def with_path(self, path: str) -> Url:
        """Another path on the same server."""
        return Url(self.scheme, self.host, self.port, path)

    def __str__(self) -> str:
        return self.with_host(self.host)


def parse(text: str) -> Url:
    """A `Url` from what the user wrote. Raises `UrlError` that names what is wrong."""
    if any(ord(char) <= 32 or ord(char) == 127 for char in text):
        raise UrlError(f"a URL has no blanks or control characters: {text!r}")
    if "://" not in text:
        raise UrlError(f"a URL begins with http:// or https://: {text!r} (http://{text} ?)")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise UrlError(f"{text!r}: {error}") from error
    if parts.scheme not in ("http", "https"):
        raise UrlError(f"only http and https can be looked at, not {parts.scheme!r}: {text!r}")
    if parts.username is not None or parts.password is not None:
        raise UrlError("a URL must not carry a user or a password: it would stand in logs and process lists")
    if not parts.hostname:
        raise UrlError(f"the URL names no host: {text!r}")
    if port == 0:
        raise UrlError(f"port 0 is no port that can be looked at: {text!r}")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Url(parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80), path)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
