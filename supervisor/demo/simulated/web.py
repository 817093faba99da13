"""The HTTP side: which path answers what in which phase. A thread a connection; a client that hangs up is no event.

Every answer is one write and one access line, with the header `Server: simulated-ENGINE`.
"""

from __future__ import annotations

import json
import select
import socket
import socketserver
import sys
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any

from . import answers, metrics
from .options import Options, served_model
from .state import State
from .voice import Voice
from .workers import Crew

_LONG_S = 3600.0
_MAX_BODY_BYTES = 16 * 1024 * 1024
_COMPLETIONS = {
    "/v1/completions": ("completion", ("sglang", "vllm", "llamacpp")),
    "/v1/chat/completions": ("chat", ("sglang", "vllm", "llamacpp")),
    "/completions": ("completion", ("llamacpp",)),
    "/chat/completions": ("chat", ("llamacpp",)),
    "/generate": ("generate", ("sglang",)),
    "/completion": ("native", ("llamacpp",)),
}
_HEALTH = {
    "sglang": ("/health", "/health_generate", "/ready", "/ping"),
    "vllm": ("/health", "/ping"),
    "llamacpp": ("/health", "/v1/health"),
}
# What answers without a key: all that is not listed by vLLM under /v1, these by the others.
_OPEN = {
    "sglang": ("/health", "/health_generate", "/ready", "/ping", "/metrics"),
    "llamacpp": ("/health", "/v1/health", "/models", "/v1/models"),
}
_LOADING = {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}


class Gone(Exception):
    """The client hung up, or we are ending: nothing more to say to it."""


class Site:
    """What all connections share."""

    def __init__(self, options: Options, state: State, voice: Voice, crew: Crew) -> None:
        self.options = options
        self.state = state
        self.voice = voice
        self.crew = crew


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Binds when made; listens at `server_activate`, since vLLM does the one long before the other."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, site: Site) -> None:
        self.site = site
        if ":" in site.options.host:
            self.address_family = socket.AF_INET6
        super().__init__((site.options.host, site.options.port), Handler, bind_and_activate=False)
        try:
            self.server_bind()
        except OSError:
            self.server_close()
            raise

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], (OSError, Gone)):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 5  # an idle connection is closed after it, as uvicorn and llama-server do
    server: Server

    def setup(self) -> None:
        super().setup()
        self.site = self.server.site
        self.options = self.site.options

    def version_string(self) -> str:
        return f"simulated-{self.options.engine}"

    def log_message(self, format: str, *args: Any) -> None:
        """Silent: the access line is written by `_access` in the engine's own form."""

    def do_GET(self) -> None:
        try:
            self._get(self.path.split("?", 1)[0])
        except Gone:
            self.close_connection = True

    do_HEAD = do_GET

    def do_POST(self) -> None:
        self.site.state.enter()
        try:
            self._post(self.path.split("?", 1)[0], self._body())
        except Gone:
            self.close_connection = True
        finally:
            self.site.state.leave()

    # --- answering

    def _access(self, status: int) -> None:
        host, port = self.client_address[:2]
        self.site.voice.access(f"{host}:{port}", self.command, self.path, status, HTTPStatus(status).phrase)

    def _reply(self, status: int, body: bytes = b"", kind: str = "application/json", silent: bool = False) -> None:
        if not silent:
            self._access(status)
        head = [
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
            f"date: {self.date_time_string()}",
            f"server: {self.version_string()}",
            f"content-length: {len(body)}",
        ]
        if body:
            head.append(f"content-type: {kind}")
        if self.close_connection:
            head.append("connection: close")
        data = "\r\n".join([*head, "", ""]).encode("latin-1")
        self.wfile.write(data if self.command == "HEAD" else data + body)

    def _json(self, status: int, value: Any, silent: bool = False) -> None:
        self._reply(status, json.dumps(value).encode(), silent=silent)

    def _error(self, status: int, text: str, kind: str) -> None:
        self._json(status, answers.error(self.options.engine, status, text, kind))

    def _missing(self, path: str) -> None:
        if self.options.engine == "llamacpp":
            self._error(404, "File Not Found", "not_found_error")
        else:
            self._json(404, {"detail": "Not Found"})

    # --- waiting

    def _hung_up(self) -> bool:
        """Whether the client is gone: its end of the connection reads as closed."""
        if self.site.state.over.is_set():
            return True
        poll = select.poll()
        poll.register(self.connection, select.POLLIN)
        try:
            return bool(poll.poll(0)) and self.connection.recv(1, socket.MSG_PEEK) == b""
        except OSError:
            return True

    def _wait(self, seconds: float) -> None:
        """At least `seconds`, unless the client goes first."""
        until = time.monotonic() + seconds
        while True:
            left = until - time.monotonic()
            if left <= 0:
                return
            self.site.state.over.wait(min(left, 0.25))
            if self._hung_up():
                raise Gone

    # --- requests

    def _allowed(self, path: str) -> bool:
        o = self.options
        if not o.api_key:
            return True
        if path in _OPEN.get(o.engine, ()) or (o.engine == "vllm" and not path.startswith("/v1/")):
            return True
        if self.headers.get("Authorization", "") == f"Bearer {o.api_key}":
            return True
        if o.engine == "llamacpp":
            self._error(401, "Invalid API Key", "authentication_error")
        else:
            self._json(401, {"error": "Unauthorized"})
        return False

    def _loading(self) -> bool:
        """llama.cpp answers anything with 503 until it is loaded."""
        if self.options.engine != "llamacpp" or self.site.state.phase not in ("loading", "warming"):
            return False
        self._json(503, _LOADING, silent=True)
        return True

    def _get(self, path: str) -> None:
        if not self._allowed(path) or self._loading():
            return
        o = self.options
        if path in _HEALTH[o.engine]:
            self._health(path)
        elif path in _COMPLETIONS:
            self._json(405, {"detail": "Method Not Allowed"})
        elif path == "/metrics":
            self._metrics()
        elif path == "/v1/models" or (path == "/models" and o.engine == "llamacpp"):
            self._json(200, answers.models(o, int(self.site.state.began)))
        else:
            value = self._page(path)
            if value is None:
                self._missing(path)
            else:
                self._json(200, value)

    def _page(self, path: str) -> Any:
        o = self.options
        model_info = {"model_path": o.model_path, "tokenizer_path": o.model_path, "is_generation": True}
        server_info = {
            **model_info,
            "served_model_name": served_model(o),
            "tp_size": o.tp,
            "version": "0.5.6-simulated",
        }
        slot = {"id": 0, "n_ctx": 8192, "is_processing": self.site.state.running > 0}
        pages: dict[str, dict[str, Any]] = {
            "sglang": {
                "/model_info": model_info,
                "/get_model_info": model_info,
                "/server_info": server_info,
                "/get_server_info": server_info,
            },
            "vllm": {
                "/version": {"version": "0.32.0+simulated"},
                "/load": {"server_load": self.site.state.running},
            },
            "llamacpp": {
                "/props": {
                    "default_generation_settings": {"n_ctx": 8192},
                    "total_slots": 4,
                    "model_path": o.model_path,
                    "build_info": "simulated",
                },
                "/slots": [slot],
            },
        }
        return pages[o.engine].get(path)

    def _metrics(self) -> None:
        o = self.options
        if o.metrics or o.engine == "vllm":
            text = metrics.text(o, self.site.state)
            self._reply(200, text.encode(), "text/plain; version=0.0.4; charset=utf-8")
        elif o.engine == "llamacpp":
            text = "This server does not support metrics endpoint. Start it with `--metrics`"
            self._error(501, text, "not_supported_error")
        else:
            self._missing("/metrics")

    # --- health

    def _health(self, path: str) -> None:
        o, state = self.options, self.site.state
        if self.command == "HEAD" and o.engine != "llamacpp":
            self._json(405, {"detail": "Method Not Allowed"})
            return
        if o.has("hang-health"):
            self._wait(_LONG_S)
        if o.has("health-401"):
            self._json(401, {"error": "Unauthorized"})
            return
        if state.phase == "up":
            self._wait(o.health_delay_s if path in ("/health", "/health_generate") else 0)
        if o.engine == "llamacpp":
            self._health_llamacpp()
        else:
            ready = state.phase == "up" and (not o.has("health-once") or state.first_health())
            self._reply(200 if ready and (path in ("/ready", "/ping") or self._alive()) else 503)

    def _health_llamacpp(self) -> None:
        state = self.site.state
        if state.phase == "up" and not (self.options.has("health-once") and not state.first_health()):
            self._json(200, {"status": "ok"}, silent=True)
        else:
            self._json(503, _LOADING, silent=True)

    def _alive(self) -> bool:
        """SGLang's health asks the scheduler for a token; vLLM's only looks whether its core is dead."""
        if self.options.engine != "sglang":
            return True
        self.site.voice.generation(1, self.site.state.running)
        if self.site.crew.ask(self.options.health_timeout_s, self._hung_up):
            return True
        if self._hung_up():
            raise Gone
        self.site.voice.health_gave_up()
        return False

    # --- generation

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "0")
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            return self._chunked_body()
        if not length.isdigit() or int(length) > _MAX_BODY_BYTES:
            self.close_connection = True
            self._reply(413)
            raise Gone
        return self.rfile.read(int(length))

    def _chunked_body(self) -> bytes:
        body = b""
        while len(body) <= _MAX_BODY_BYTES:
            try:
                size = int(self.rfile.readline(1024).split(b";")[0], 16)
            except ValueError:
                break
            body += self.rfile.read(size)
            self.rfile.readline(1024)
            if not size:
                return body
        self.close_connection = True
        self._reply(400)
        raise Gone

    def _post(self, path: str, body: bytes) -> None:
        o = self.options
        api, engines = _COMPLETIONS.get(path, ("", ()))
        if not self._allowed(path) or self._loading():
            return
        if path in _HEALTH[o.engine] or path in ("/v1/models", "/metrics"):
            self._json(405, {"detail": "Method Not Allowed"})
        elif o.engine not in engines:
            self._missing(path)
        elif o.has("unauthorized"):
            self._json(401, {"error": "Unauthorized"})
        elif o.has("completion-500") or self.site.state.phase == "sick":
            self._error(500, "EngineCore encountered an issue. (simulated)", "InternalServerError")
        else:
            self._complete(api, body)

    def _complete(self, api: str, body: bytes) -> None:
        o = self.options
        try:
            value = json.loads(body or b"null")
            if not isinstance(value, dict):
                raise answers.BadRequest("the body is no JSON object")
            asked = answers.request(api, value)
        except (ValueError, answers.BadRequest) as error:
            self._error(400, str(error), "BadRequestError")
            return
        if o.engine == "vllm" and asked.model not in (None, served_model(o)):
            self._error(404, f"The model `{asked.model}` does not exist.", "NotFoundError")
            return
        says = asked.tokens
        if o.has("garbage-completion"):
            says = []
        elif o.has("gibberish-completion"):
            says = ["!" for _ in says]
        self._generate(asked, says)

    def _generate(self, asked: answers.Request, says: list[str]) -> None:
        state, voice = self.site.state, self.site.voice
        began = time.monotonic()
        voice.generation(asked.prompt_tokens, state.running)
        state.begin()
        try:
            hangs = self.options.has("hang-completion") or state.hangs
            if hangs or not self.site.crew.ask(_LONG_S, self._hung_up):
                self._wait(_LONG_S)
            if asked.stream:
                first_token_s = self._stream(asked, says, began)
            else:
                self._wait(self.options.completion_delay_s)
                first_token_s = time.monotonic() - began
        except BaseException:
            state.abort()
            raise
        # Counted before the last byte is sent: whoever has the answer finds it in /metrics.
        took = time.monotonic() - began
        state.finish(asked.prompt_tokens, len(says), took, first_token_s)
        voice.generated(asked.prompt_tokens, len(says), took)
        if asked.stream:
            for event in answers.last(asked, self.options, says, took):
                self._event(event)
            self.wfile.write(b"0\r\n\r\n")
        else:
            self._json(200, answers.whole(asked, self.options, says, took))

    def _stream(self, asked: answers.Request, says: list[str], began: float) -> float:
        """Server-sent events, one a token; the completion delay is spread over them. Seconds to the first."""
        first_token_s = 0.0
        self._access(200)
        head = (
            f"HTTP/1.1 200 OK\r\nserver: {self.version_string()}\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
            "transfer-encoding: chunked\r\n\r\n"
        )
        self.wfile.write(head.encode())
        for at in range(len(says)):
            self._wait(self.options.completion_delay_s / len(says))
            first_token_s = first_token_s or time.monotonic() - began
            self._event(answers.piece(asked, self.options, says, at))
        return first_token_s

    def _event(self, event: Any) -> None:
        data = b"data: " + (event if isinstance(event, str) else json.dumps(event)).encode() + b"\n\n"
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
