"""A health URL, taken apart and checked. Pure."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import quote, urlsplit

from msgspec import Struct

WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""A server that listens on every address is looked at on the loopback of that family."""
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
"""One part of a host name. The underscore is no part of one by the book, and many inner networks have it."""


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
        if self.host == "localhost" or self.host.endswith(".localhost") or self.host in WILDCARDS:
            return True
        try:
            address = ipaddress.ip_address(self.host)
        except ValueError:
            return False
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        return (mapped or address).is_loopback

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
    host = _host(parts.hostname, parts.netloc, text)
    path = quote((parts.path or "/") + (f"?{parts.query}" if parts.query else ""), safe=_AS_WRITTEN)
    return Url(parts.scheme, host, port or (443 if parts.scheme == "https" else 80), path)


_AS_WRITTEN = "%/:?#[]@!$&'()*+,;=~"


def _host(host: str, netloc: str, text: str) -> str:
    """The host in ASCII. Raises `UrlError` for what no resolver could be asked for.

    What is let through here must never fail in the libraries below as anything but "does not resolve": a name that
    they refuse to encode would end the wait with a traceback.
    """
    if netloc.startswith("[") or ":" in host:
        if not re.fullmatch(r"\[[^\]]*\](?::\d*)?", netloc, re.ASCII):
            raise UrlError(f"what stands after the address in brackets is no port: {text!r}")
        try:
            address = ipaddress.IPv6Address(host)
        except ValueError as error:
            raise UrlError(f"no IPv6 address stands in the brackets: {text!r}") from error
        if address.scope_id is not None:
            raise UrlError(f"an address with a zone (%{address.scope_id}) cannot be looked at: {text!r}")
        return str(address)
    try:
        name = host.removesuffix(".").encode("ascii" if host.isascii() else "idna").decode("ascii")
    except UnicodeError as error:
        raise UrlError(f"{host!r} is no host name: {text!r}") from error
    labels = name.split(".")
    if re.fullmatch(r"\d+|0x[0-9a-f]*", labels[-1]):
        try:
            return str(ipaddress.IPv4Address(name))
        except ValueError as error:
            raise UrlError(f"{host!r} is no IPv4 address (four numbers from 0 to 255): {text!r}") from error
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise UrlError(f"{host!r} is no host name (letters, digits, hyphens, dots): {text!r}")
    return name


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
