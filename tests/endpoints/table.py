"""The endpoint table: how an endpoint behaves, by which rule it is read, and how a wait for it must end. Data only."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from supervisor.core.engine import BodyRule, Engine, Health
from supervisor.engines import loader
from tests.endpoints import servers as s
from tests.endpoints.servers import OK, Behaviour, Server, document, reply

GENERIC = loader.load(loader.GENERIC)
LLAMA = loader.load("llamacpp")
BODY = Engine(
    name="body",
    title="an engine that says in its body what it is",
    health=Health(body=BodyRule(field="status", ready=("healthy",), not_yet=("unhealthy", "notready"))),
)
MODELS = Engine(name="models", title="an engine that lists its models", models_path="/v1/models")
IMPATIENT = Engine(name="impatient", title="an engine whose handler has 0.3 s", health=Health(timeout_s=0.3))

NEVER_S = 1.5
READY_S = 20.0

Check = Callable[[Server], str]
"""What is wrong with what the server saw, "" when nothing is."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One endpoint behaviour and its verdict."""

    name: str
    behave: Behaviour
    ready: bool
    words: tuple[str, ...]
    """What the ending must say: its reason, its evidence."""
    engine: Engine = GENERIC
    host: str = "127.0.0.1"
    url: str = "http://127.0.0.1:{port}/health"
    tls: str = ""
    """The certificate that the server shows: `trusted` or `unknown`."""
    closed_for_s: float = 0.0
    never_s: float = NEVER_S
    """How long a row that never comes is waited for."""
    answers: tuple[str, ...] = ()
    """Kinds of answers that must have been counted."""
    models: tuple[str, ...] = ()
    check: Check = lambda _server: ""

    @property
    def timeout_s(self) -> float:
        return READY_S if self.ready else self.never_s


def ready(name: str, behave: Behaviour, *words: str, **more: object) -> Row:
    return Row(name=name, behave=behave, ready=True, words=words or ("200",), **more)  # type: ignore[arg-type]


def never(name: str, behave: Behaviour, *words: str, **more: object) -> Row:
    return Row(name=name, behave=behave, ready=False, words=words, **more)  # type: ignore[arg-type]


def _one_request(server: Server) -> str:
    return "" if server.connections == 1 else f"{server.connections} connections, and one look may be in flight"


def _not_followed(server: Server) -> str:
    return "the redirect was followed" if "/ok" in server.paths else ""


def _little_read(server: Server) -> str:
    # What lies in the kernel's buffers of both sides was sent too, and read by nobody.
    return "" if server.sent_bytes < 32 * s.MEBIBYTE else f"{server.sent_bytes} bytes were taken of a body"


def _kept_pace(server: Server) -> str:
    return "" if server.connections >= 3 else f"{server.connections} looks in more than 0.5 s"


def _only_get(server: Server) -> str:
    return "" if server.methods == {"GET"} else f"asked with {server.methods}"


_FLOOD = b"".join(b"X-Pad-%04d: %s\r\n" % (number, b"y" * 200) for number in range(1000))
_MODEL_LIST = document(200, {"object": "list", "data": [{"id": "org/other-model"}]})
_LOADING = document(503, {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}})
_GZIP = b"\x1f\x8b\x08\x00 this is no gzip stream"

READY = (
    ready("an empty 200", s.says(OK), "200 with an empty body", answers=("200",), check=_only_get),
    ready("a handler of 1.0 s", s.slow(1.0), "200 with an empty body", check=_one_request),
    ready("a handler of 6 s, within the engine's 30 s", s.slow(6.0), "200", check=_one_request),
    ready("the status line byte by byte", s.drips(OK, 0.01), "200 with an empty body", check=_one_request),
    ready("headers that drip, and come to an end", s.drips(reply(200, "X-A: b"), 0.1, at_once=8), check=_one_request),
    ready("405 to HEAD, 200 to GET", s.by_method({"GET": OK}), check=_only_get),
    ready(
        "503, Retry-After 3600, then 200",
        s.flips(0.5, reply(503, "Retry-After: 3600")),
        answers=("503", "200"),
        check=_kept_pace,
    ),
    ready(
        "429, Retry-After 3600, then 200",
        s.flips(0.5, reply(429, "Retry-After: 3600")),
        answers=("429", "200"),
        check=_kept_pace,
    ),
    ready("503 with a date as Retry-After", s.flips(0.3, reply(503, "Retry-After: Fri, 31 Dec 2199 23:59:59 GMT"))),
    ready("200 once and never again", s.says(OK, reply(500)), check=_one_request),
    ready("a body without end, chunked", s.endless(reply(200, "Transfer-Encoding: chunked", length=-1), b"1\r\nx\r\n")),
    ready("a body without end or length", s.endless(reply(200, length=-1), b"x" * 4096), check=_little_read),
    ready("100 MB, told", s.body_of(reply(200, length=100 * s.MEBIBYTE), 100 * s.MEBIBYTE), check=_little_read),
    ready("100 MB, not told", s.body_of(reply(200, length=-1), 100 * s.MEBIBYTE), check=_little_read),
    ready("garbage that says gzip", s.says(reply(200, "Content-Encoding: gzip", body=_GZIP))),
    ready("the same without its length", s.says(reply(200, "Content-Encoding: gzip", length=-1) + _GZIP)),
    ready("Content-Length above the body", s.says(reply(200, body=b"ab", length=4096)), "4096 bytes"),
    ready("Content-Length above the body, held open", s.greets(reply(200, body=b"ab", length=4096))),
    ready("Content-Length below the body", s.says(reply(200, body=b"x" * 9000, length=3))),
    ready("an HTML page that says JSON", s.says(reply(200, "Content-Type: application/json", body=b"<html>"))),
    ready("a 200 whose body says error", s.says(document(200, {"error": "x"})), engine=GENERIC),
    ready("IPv6 only, asked as localhost", s.says(OK), "[::1]", host="::1", url="http://localhost:{port}/health"),
    ready("IPv6 only, asked by its address", s.says(OK), "[::1]", host="::1", url="http://[::1]:{port}/health"),
    ready("the wildcard address", s.says(OK), "127.0.0.1", url="http://0.0.0.0:{port}/health"),
    ready("llama.cpp: 503 with JSON, then 200", s.flips(0.3, _LOADING, document(200, {"status": "ok"})), engine=LLAMA),
    ready("chunked", s.says(reply(200, "Transfer-Encoding: chunked", body=b"2\r\nok\r\n0\r\n\r\n", length=-1))),
    ready("HTTP/1.0", s.says(reply(200, body=b"ok", length=-1, version="1.0"))),
    ready("100 Continue first", s.says(b"HTTP/1.1 100 Continue\r\n\r\n" + OK)),
    ready("103 Early Hints first", s.says(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + OK)),
    ready("header names in lower case", s.says(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"), "2 bytes"),
    ready("no reason phrase", s.says(b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n")),
    ready("lines that end without a carriage return", s.says(b"HTTP/1.1 200 OK\nContent-Length: 0\n\n")),
    ready("bytes above ASCII in a header", s.says(reply(200, "X-Host: caf\xe9"))),
    ready("60 KiB of headers", s.says(reply(200, *(f"X-Pad-{n}: {'y' * 1000}" for n in range(60))))),
    ready("closes after the headers", s.says(reply(200, length=100)), "100 bytes"),
    ready("200 after 3 resets", s.first(3, s.resets, s.says(OK)), answers=("broken", "200")),
    ready("200 after 3 ends without an answer", s.first(3, s.closes, s.says(OK)), answers=("broken", "200")),
    ready("200 after 2 hangs", s.first(2, s.hangs, s.says(OK)), engine=IMPATIENT, answers=("silent", "200")),
    ready("refused, then 503, then 200", s.flips(0.3, reply(503)), closed_for_s=1.0, answers=("refused", "503", "200")),
    ready("refused, then at once 200", s.says(OK), closed_for_s=1.0, answers=("refused", "200")),
    ready("500 while it loads, then 200", s.flips(0.3, reply(500)), answers=("500", "200")),
    ready("404 until its routes stand, then 200", s.flips(0.3, reply(404)), answers=("404", "200")),
    ready("a redirect while it loads, then 200", s.flips(0.3, reply(307, "Location: /wait")), answers=("307", "200")),
    ready("its body says healthy", s.says(document(200, {"status": "healthy"})), 'status "healthy"', engine=BODY),
    ready(
        "its body says unhealthy, then healthy",
        s.flips(0.3, document(200, {"status": "unhealthy"}), document(200, {"status": "healthy"})),
        'status "healthy"',
        engine=BODY,
    ),
    ready(
        "the body that the rule needs comes late",
        s.drips(document(200, {"status": "healthy"}), 0.02, at_once=4),
        'status "healthy"',
        engine=BODY,
    ),
    ready(
        "the right model id",
        s.by_path({"/health": OK, "/v1/models": _MODEL_LIST}),
        "org/other-model",
        engine=MODELS,
        models=("/data/other-model",),
    ),
    ready("no list of models to be had", s.by_path({"/health": OK}), engine=MODELS, models=("/data/other-model",)),
    ready("TLS that is trusted", s.says(OK), tls="trusted", url="https://localhost:{port}/health"),
)

NEVER = (
    never("503 for ever", s.says(reply(503)), "went on answering 503", answers=("503",)),
    never("503 for ever, Retry-After 0", s.says(reply(503, "Retry-After: 0")), "503", answers=("503",)),
    never("503 with JSON for ever", s.says(_LOADING), "503", engine=LLAMA, answers=("503",)),
    never("hangs", s.hangs, "no answer", check=_one_request),
    never("accepts and says nothing", s.accepts_only, "no answer", check=_one_request),
    never("hangs, by an engine with a short limit", s.hangs, "within 0.3 s", engine=IMPATIENT, answers=("silent",)),
    never("503, and then hangs", s.first(2, s.says(reply(503)), s.hangs), "503", "no answer for", never_s=6.0),
    never("resets", s.resets, "broke", "reset", answers=("broken",)),
    never("closes without an answer", s.closes, "closed the connection without an answer", answers=("broken",)),
    never("half a status line", s.says(b"HTTP/1.1 20"), "without an answer", answers=("broken",)),
    never("half a header block", s.says(b"HTTP/1.1 200 OK\r\nContent-Le"), "without an answer", answers=("broken",)),
    never("refused", s.says(OK), "nothing listens", closed_for_s=math.inf, answers=("refused",)),
    never("204", s.says(b"HTTP/1.1 204 No Content\r\n\r\n"), "204", "not accepted", "(200)", answers=("204",)),
    never("201", s.says(reply(201)), "201", "not accepted", answers=("201",)),
    never("206", s.says(reply(206, body=b"part")), "206", "not accepted", answers=("206",)),
    never("401", s.says(reply(401, "WWW-Authenticate: Bearer")), "401", "a key", answers=("401",)),
    never("403", s.says(reply(403)), "403", "a key", answers=("403",)),
    never("404", s.says(reply(404)), "404", "no such path", answers=("404",)),
    never("405 to GET", s.says(reply(405, "Allow: POST")), "405", "does not take GET", answers=("405",)),
    never("302 to a path that is 200", s.follows_nothing, "302", "/ok", "not followed", check=_not_followed),
    never("301 to https", s.says(reply(301, "Location: https://x.invalid/")), "301", "https://x.invalid/", "redirect"),
    never("303", s.says(reply(303, "Location: /ok")), "303", "not followed", check=_not_followed),
    never("307 to itself", s.says(reply(307, "Location: /health")), "307", "not followed", answers=("307",)),
    never("308 without a Location", s.says(reply(308)), "308", "not followed", answers=("308",)),
    never("300 with choices", s.says(reply(300)), "300", "not accepted", answers=("300",)),
    never("429", s.says(reply(429, "Retry-After: 1")), "429", "not accepted", answers=("429",)),
    never("418", s.says(reply(418)), "418", "not accepted", answers=("418",)),
    never("421 from a proxy", s.says(reply(421)), "421", "not accepted", answers=("421",)),
    never("500", s.says(reply(500)), "500", "server error", answers=("500",)),
    never("502", s.says(reply(502)), "502", "server error", answers=("502",)),
    never("504", s.says(reply(504)), "504", "server error", answers=("504",)),
    never("599", s.says(reply(599)), "599", "server error", answers=("599",)),
    never(
        "101 Switching Protocols", s.says(reply("101 Go", "Upgrade: x", length=-1)), "answers 101", answers=("broken",)
    ),
    never("100 Continue and nothing else", s.says(b"HTTP/1.1 100 Continue\r\n\r\n"), "without an answer"),
    never("a bad status line", s.says(b"HTTP/1.1 OK 200\r\n\r\n"), "not HTTP", answers=("broken",)),
    never("a status of two digits", s.says(b"HTTP/1.1 20 OK\r\n\r\n"), "not HTTP", answers=("broken",)),
    never("HTTP/0.9", s.says(b"<html>ok</html>\r\n"), "not HTTP", answers=("broken",)),
    never("SSH", s.greets(b"SSH-2.0-OpenSSH_9.6\r\n"), "not HTTP", "SSH-2.0", answers=("broken",)),
    never("Redis", s.greets(b"-ERR unknown command 'GET'\r\n"), "not HTTP", "-ERR", answers=("broken",)),
    never("HTTP/2 without TLS", s.greets(b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"), "not HTTP"),
    never("bytes without a line", s.endless(b"", b"x" * 4096), "not HTTP", answers=("broken",)),
    never("headers without end", s.endless(b"HTTP/1.1 200 OK\r\n", b"X-Pad: yyyy\r\n", 0.02), "no answer"),
    never("200 KiB of headers", s.says(b"HTTP/1.1 200 OK\r\n" + _FLOOD), "KiB of headers", answers=("broken",)),
    never("a Content-Length that is none", s.says(b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"), "Content-Length"),
    never("a TLS alert on a plain port", s.greets(b"\x15\x03\x01\x00\x02\x02\x46"), "speaks TLS", "https://"),
    never("TLS on a plain port", s.says(OK), "TLS", tls="trusted", answers=("broken",)),
    never("plain HTTP on https", s.complains, "plain HTTP", url="https://127.0.0.1:{port}/health", answers=("broken",)),
    never("no TLS, silent", s.accepts_only, "no answer", url="https://127.0.0.1:{port}/health"),
    never("SSH on https", s.greets(b"SSH-2.0-x\r\n"), "TLS", url="https://127.0.0.1:{port}/", answers=("broken",)),
    never("TLS that nobody knows", s.says(OK), "certificate", tls="unknown", url="https://localhost:{port}/health"),
    never("TLS for another name", s.says(OK), "certificate", tls="trusted", url="https://127.0.0.1:{port}/health"),
    never("a name that does not resolve", s.says(OK), "does not resolve", url="http://no-such-host.invalid:{port}/"),
    never("IPv6 only, asked by IPv4", s.says(OK), "nothing listens", host="::1", answers=("refused",)),
    never("503 by IPv6, nothing by IPv4", s.says(reply(503)), "503", host="::1", url="http://localhost:{port}/"),
    never("its body says unhealthy", s.says(document(200, {"status": "unhealthy"})), '"unhealthy"', engine=BODY),
    never("its body says what no rule knows", s.says(document(200, {"status": "odd"})), '"odd"', engine=BODY),
    never("its body lacks the field", s.says(document(200, {"ok": True})), "nothing readable", engine=BODY),
    never("its body is a list", s.says(document(200, ["healthy"])), "nothing readable", engine=BODY),
    never("its body has a number there", s.says(document(200, {"status": 1})), '"1"', engine=BODY),
    never("its body has a list there", s.says(document(200, {"status": ["healthy"]})), "healthy", engine=BODY),
    never("its body is empty", s.says(OK), "nothing readable", engine=BODY),
    never("its body is no JSON", s.says(reply(200, body=b"healthy")), "nothing readable", engine=BODY),
    never("its body is nested without end", s.says(reply(200, body=b"[" * 60000)), "nothing readable", engine=BODY),
    never("its body is gzip", s.says(reply(200, "Content-Encoding: gzip", body=_GZIP)), "nothing", engine=BODY),
    never(
        "its body has no end", s.endless(reply(200, length=-1), b'{"status": "healthy", ' * 200), "nothing", engine=BODY
    ),
    never("its body stops half way", s.says(reply(200, body=b'{"status": "hea', length=99)), "nothing", engine=BODY),
    never("its body never comes", s.greets(reply(200, length=99)), "no answer", engine=BODY, check=_one_request),
    never("healthy with a 500", s.says(document(500, {"status": "healthy"})), "500", engine=BODY),
    never(
        "another model",
        s.by_path({"/health": OK, "/v1/models": _MODEL_LIST}),
        "org/other-model",
        "my-model",
        engine=MODELS,
        models=("my-model",),
        answers=("200",),
    ),
    never(
        "a list without models",
        s.by_path({"/health": OK, "/v1/models": document(200, {"data": []})}),
        "none",
        "my-model",
        engine=MODELS,
        models=("my-model",),
    ),
)

ROWS = READY + NEVER
