"""HTTP to an address as the node sees it: httpx over any byte stream, with no port opened here.

One look at a time, each on a connection of its own: a kept connection would go on talking to a process that has lost
the port. The verdict is not made here; this module says what came back, or why nothing did.
Source of the approach: httpcore's `AsyncNetworkBackend`, which takes a stream from anywhere.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

import httpcore
import httpx
from msgspec import Struct

from supervisor.adapters.base import ByteStream
from supervisor.core.events import Verdict
from supervisor.core.judge import Reply
from supervisor.core.url import Url
from supervisor.errors import DialForbiddenError, DialRefusedError, DialSilentError, LinkError

_T = TypeVar("_T")

MAX_BODY_BYTES = 64 * 1024
MAX_HEAD_KIB = 100
"""httpcore's own limit of a header block."""
CONNECT_TIMEOUT_S = 5.0
BODY_GRACE_S = 0.05
"""How long a body whose length is not told may take to be counted; the verdict never waits for more."""

Dial = Callable[[str, int, float], Awaitable[ByteStream]]
"""(host, port, timeout in seconds) → stream; raises a `DialError`, or a `LinkError` when the link is gone."""


class NoReply(Struct, frozen=True, kw_only=True):
    """Nothing that is HTTP came back: refused, silent or broken, and why."""

    verdict: Verdict
    why: str
    ms: float
    address: str
    cause: str


class Http:
    """Requests through one dial.

    Args:
        dial: makes the connections.
        proxy: URL of a proxy of the environment, for addresses that are neither loopback nor on a node.
    """

    def __init__(self, dial: Dial, *, proxy: str | None = None) -> None:
        if proxy is None:
            transport: httpx.AsyncBaseTransport = _Transport(dial)
        else:
            transport = httpx.AsyncHTTPTransport(proxy=proxy)
        # httpx gives every read 5 s unless told otherwise: a handler that takes longer would never be seen ready,
        # and each look that gave up would leave a request behind in the engine. Each look has its own limit.
        limits = httpx.Timeout(None, connect=CONNECT_TIMEOUT_S)
        self._client = httpx.AsyncClient(transport=transport, trust_env=False, follow_redirects=False, timeout=limits)

    async def close(self) -> None:
        """Close whatever is open."""
        await self._client.aclose()

    async def look(
        self,
        url: Url,
        host: str,
        *,
        timeout_s: float,
        needs_body: Callable[[int], bool] = lambda _status: False,
        headers: Mapping[str, str] | None = None,
        method: str = "GET",
        json: object = None,
        max_bytes: int = MAX_BODY_BYTES,
    ) -> Reply | NoReply:
        """One request to `host` (an address of `url.host`), answered at the header block.

        The body is read (to `max_bytes`) only where `needs_body(status)`; else its length is told by its header, or
        counted if it comes at once. Raises `LinkError` when the link is gone: that is no answer of the server.
        """
        address = f"{f'[{host}]' if ':' in host else host}:{url.port}"
        request = self._client.build_request(
            method,
            url.with_host(host),
            headers={
                "Host": url.host_header,
                "Accept-Encoding": "identity",
                "Connection": "close",
                **(headers or {}),
            },
            json=json,
            # The certificate is made out to the name that the user wrote, not to the address that was tried.
            extensions={"sni_hostname": url.host},
        )
        began = time.perf_counter()
        try:
            async with asyncio.timeout(timeout_s):
                response = await self._client.send(request, stream=True)
            ms = (time.perf_counter() - began) * 1000
        except TimeoutError:
            why = f"connected to {address}, and no answer within {timeout_s:g} s"
            return NoReply(verdict=Verdict.SILENT, why=why, ms=timeout_s * 1000, address=address, cause="no answer")
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            return _no_reply(error, address, (time.perf_counter() - began) * 1000)
        try:
            return await self._reply(
                response, ms, address, needs_body(response.status_code), began + timeout_s, max_bytes
            )
        finally:
            await _close_quietly(response)

    async def _reply(
        self, response: httpx.Response, ms: float, address: str, wanted: bool, until: float, max_bytes: int
    ) -> Reply:
        length = _content_length(response.headers)
        body, complete = b"", False
        if wanted:
            body, complete = await _read(response, max_bytes, max(0.0, until - time.perf_counter()))
        elif length is None:
            body, complete = await _read(response, MAX_BODY_BYTES, BODY_GRACE_S)
        return Reply(
            status=response.status_code,
            ms=ms,
            address=address,
            location=response.headers.get("location", "")[:200],
            content_length=length,
            body=body,
            body_complete=complete,
            server=response.headers.get("server", "")[:80],
        )


async def _read(response: httpx.Response, max_bytes: int, wait_s: float) -> tuple[bytes, bool]:
    """At most `max_bytes` of the raw body within `wait_s`, and whether that was all. Never raises on a bad body."""
    body = bytearray()
    try:
        async with asyncio.timeout(wait_s):
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) >= max_bytes:
                    return bytes(body[:max_bytes]), False
    except (TimeoutError, httpx.HTTPError, OSError):
        return bytes(body), False
    return bytes(body), True


async def _close_quietly(response: httpx.Response) -> None:
    try:
        await response.aclose()
    except (httpx.HTTPError, OSError, LinkError):
        pass  # the answer was had; how the connection ends is no news


def _content_length(headers: httpx.Headers) -> int | None:
    text = headers.get("content-length", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def environment_proxy(url: Url) -> str | None:
    """The proxy that the environment asks for, None for loopback addresses and where `no_proxy` excludes it."""
    if url.is_loopback:
        return None
    import urllib.request  # late: it costs as much as all of ours, and loopback addresses never need it

    if urllib.request.proxy_bypass(url.host):
        return None
    return urllib.request.getproxies().get(url.scheme)


# ------------------------------------------------------------------------------------------- what went wrong


def _no_reply(error: BaseException, address: str, ms: float) -> NoReply:
    """Map what lies beneath to refused, silent or broken. A lost link is raised on: it is no answer."""
    for cause in _causes(error):
        match cause:
            case LinkError():
                raise cause
            case DialRefusedError() | ConnectionRefusedError():
                return _none(Verdict.REFUSED, f"nothing listens on {address}", ms, address, "refused")
            case DialSilentError():
                why = f"no connection to {address} within {CONNECT_TIMEOUT_S:g} s"
                return _none(Verdict.SILENT, why, ms, address, "no connection")
            case DialForbiddenError():
                raise cause
            case socket.gaierror():
                why = f"the name does not resolve: {address} ({cause.strerror or cause})"
                return _none(Verdict.BROKEN, why, ms, address, "name does not resolve")
            case ssl.SSLCertVerificationError():
                why = f"the certificate of {address} is not trusted: {cause.verify_message}"
                return _none(Verdict.BROKEN, why, ms, address, "certificate")
            case ssl.SSLError():
                why = f"no TLS on {address} ({cause.reason or cause}): plain HTTP there, or another protocol?"
                return _none(Verdict.BROKEN, why, ms, address, "no TLS")
            case _:
                pass
    if isinstance(error, httpx.TimeoutException):
        return _none(Verdict.SILENT, f"no answer from {address}", ms, address, "no answer")
    if isinstance(error, httpx.RemoteProtocolError):
        why, cause_word = _protocol(str(error), address)
        return _none(Verdict.BROKEN, why, ms, address, cause_word)
    detail = str(error) or type(error).__name__
    return _none(Verdict.BROKEN, f"the connection to {address} broke: {detail[:160]}", ms, address, "broken")


def _protocol(text: str, address: str) -> tuple[str, str]:
    """What the HTTP library objects to, in words, and the word that groups it."""
    if "without sending" in text or "disconnected" in text:
        why = f"{address} closed the connection without an answer: TLS on this port, or another protocol?"
        return why, "closed without an answer"
    if "buffer too long" in text:
        return f"{address} sends more than {MAX_HEAD_KIB} KiB of headers", "too many headers"
    if "_SWITCH_" in text:
        return f"{address} answers 101: it goes over to another protocol, which nobody asked for", "status 101"
    if "\\x15\\x03" in text:  # an alert: how TLS answers what is no TLS
        return f"{address} speaks TLS: give the URL with https://", "TLS"
    return f"what {address} sends is not HTTP ({text[:120]}): TLS on this port, or another protocol?", "not HTTP"


def _none(verdict: Verdict, why: str, ms: float, address: str, cause: str) -> NoReply:
    return NoReply(verdict=verdict, why=why, ms=ms, address=address, cause=cause)


def _causes(error: BaseException | None) -> Iterable[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        inner = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__cause__
        error = inner or error.__context__


# ------------------------------------------------------------------------------------------- httpcore's port


class _FirstBytes:
    """Tells within five bytes that what comes is no HTTP.

    The library waits for a whole header block before it judges, so a server that greets and then listens (SSH, a
    database) would look like one that says nothing.
    """

    def __init__(self) -> None:
        self._head = b""

    def see(self, data: bytes) -> bytes:
        """`data` itself. Raises `RemoteProtocolError` that shows what came."""
        if len(self._head) < len(_HTTP):
            self._head += data[: len(_HTTP) - len(self._head)]
            if not _HTTP.startswith(self._head):
                raise httpcore.RemoteProtocolError(f"it begins with {data[:40]!r}")
        return data


_HTTP = b"HTTP/"


class _Stream(httpcore.AsyncNetworkStream):
    """A `ByteStream` as httpcore wants it."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._first: _FirstBytes | None = _FirstBytes()

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            async with asyncio.timeout(timeout):
                data = await self._stream.read(max_bytes)
        except TimeoutError as error:
            raise httpcore.ReadTimeout from error
        except OSError as error:
            raise httpcore.ReadError(str(error)) from error
        return data if self._first is None else self._first.see(data)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        try:
            async with asyncio.timeout(timeout):
                await self._stream.write(buffer)
        except TimeoutError as error:
            raise httpcore.WriteTimeout from error
        except OSError as error:
            raise httpcore.WriteError(str(error)) from error

    async def aclose(self) -> None:
        await self._stream.close()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.AsyncNetworkStream:
        self._first = None  # from here on it is TLS that comes
        tls = _TlsStream(self, ssl_context, server_hostname)
        try:
            await tls.handshake(timeout)
        except BaseException:
            await self.aclose()  # httpcore forgets a stream whose TLS did not come about
            raise
        return tls

    def get_extra_info(self, info: str) -> Any:
        return self._stream.readable() if info == "is_readable" else None


class _TlsStream(httpcore.AsyncNetworkStream):
    """TLS over a stream that is no socket, by the standard library's memory buffers."""

    def __init__(self, inner: _Stream, context: ssl.SSLContext, hostname: str | None) -> None:
        self._inner = inner
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=hostname)
        self._first = _FirstBytes()

    async def handshake(self, wait_s: float | None) -> None:
        try:
            await self._pump(self._tls.do_handshake, wait_s)
        except ssl.SSLError as error:
            raise httpcore.ConnectError(str(error)) from error

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            data = await self._pump(lambda: self._tls.read(max_bytes), timeout)
        except ssl.SSLZeroReturnError:
            return b""
        except ssl.SSLError as error:
            raise httpcore.ReadError(str(error)) from error
        return self._first.see(data)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._pump(lambda: self._tls.write(buffer), timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    def get_extra_info(self, info: str) -> Any:
        return self._tls if info == "ssl_object" else self._inner.get_extra_info(info)

    async def _pump(self, step: Callable[[], _T], wait_s: float | None) -> _T:
        while True:
            try:
                result = step()
            except ssl.SSLWantReadError:
                await self._flush(wait_s)
                data = await self._inner.read(16384, wait_s)
                if not data:
                    self._incoming.write_eof()
                else:
                    self._incoming.write(data)
                continue
            await self._flush(wait_s)
            return result

    async def _flush(self, wait_s: float | None) -> None:
        if data := self._outgoing.read():
            await self._inner.write(data, wait_s)


class _Backend(httpcore.AsyncNetworkBackend):
    """httpcore's way to connect, answered by our dial."""

    def __init__(self, dial: Dial) -> None:
        self._dial = dial

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            return _Stream(await self._dial(host, port, CONNECT_TIMEOUT_S))
        except (DialRefusedError, DialSilentError, DialForbiddenError, LinkError, OSError) as error:
            raise httpcore.ConnectError(str(error)) from error

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class _Transport(httpx.AsyncHTTPTransport):
    """httpx's transport with its pool replaced: httpx has no public way to give it a network backend."""

    def __init__(self, dial: Dial) -> None:
        super().__init__(verify=False, trust_env=False)  # these are the settings of the pool that is replaced here
        self._backend = _Backend(dial)
        self._pool = httpcore.AsyncConnectionPool(max_keepalive_connections=0, network_backend=self._backend)
        self._trusts_certificates = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.scheme == "https" and not self._trusts_certificates:
            # To read the authorities takes 50 ms: httpcore would do it for every look, we do it for the first one.
            self._trusts_certificates = True
            self._pool = httpcore.AsyncConnectionPool(
                ssl_context=httpcore.default_ssl_context(), max_keepalive_connections=0, network_backend=self._backend
            )
        return await super().handle_async_request(request)
