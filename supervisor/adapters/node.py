"""The operator's side of the node program: starts it over a link, asks it, hears its notices.

Nothing is decided here. A reply's error becomes `NodeRequestError`; a program or link that ends becomes
`UnreachableError` for whoever waits.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from supervisor.adapters import program
from supervisor.adapters.base import ByteProcess, ByteStream, Clock, Link
from supervisor.core.flow import LEAST_BYTES, FlowWindow
from supervisor.errors import (
    DialRefusedError,
    DialSilentError,
    LinkError,
    NodeProgramError,
    NodeRequestError,
    UnreachableError,
)

BANNER_BYTES = 64 * 1024
LAST_WORDS_S = 1.0
PROTOCOL = 1
PYTHONS = ("python3", "/usr/bin/python3")


class Hello(Struct, frozen=True, kw_only=True):
    """What the node program says of itself and its machine."""

    protocol: int
    python: str
    boot_id: str
    uid: int
    user: str
    home: str
    hostname: str
    machine: str
    state_dir: str
    linux: bool
    pidfd: bool
    path: str
    now: float
    clock_offset_s: float = 0.0
    """The node's clock minus the operator's, in seconds."""


class Frame(Struct, frozen=True, kw_only=True):
    """A piece of a followed log. `data` is empty in heartbeats."""

    dev: int
    ino: int
    offset: int
    size: int
    data: bytes = b""
    rotated: bool = False
    missing: bool = False


class _Reader:
    """Lines and exact byte counts from a `ByteProcess`."""

    def __init__(self, process: ByteProcess) -> None:
        self._process = process
        self._buffer = bytearray()

    async def line(self, limit: int = 16 * 1024 * 1024) -> bytes:
        """One line without its newline. Raises `EOFError` at the end, `ValueError` for a line above the limit."""
        start = 0
        while (end := self._buffer.find(b"\n", start)) == -1:
            if len(self._buffer) > limit:
                raise ValueError("a line without end")
            start = len(self._buffer)
            await self._more()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    async def exactly(self, count: int) -> bytes:
        """`count` bytes. Raises `EOFError` at the end."""
        while len(self._buffer) < count:
            await self._more()
        with memoryview(self._buffer) as view:
            data = bytes(view[:count])
        del self._buffer[:count]
        return data

    async def some(self, max_bytes: int) -> bytes:
        """What is at hand, at least one byte, b"" at the end."""
        if self._buffer:
            data = bytes(self._buffer[:max_bytes])
            del self._buffer[:max_bytes]
            return data
        return await self._process.read(max_bytes)

    def rest(self) -> bytes:
        """What was read and belongs to no line yet."""
        return bytes(self._buffer)

    async def _more(self) -> None:
        data = await self._process.read(65536)
        if not data:
            raise EOFError
        self._buffer += data


async def _start(
    link: Link, python: str, args: dict[str, Any], *, window_bytes: int | None = None
) -> tuple[ByteProcess, _Reader, bytes]:
    """Run the program in one mode; returns after its marker. Raises `NodeProgramError` with what it said instead."""
    nonce = secrets.token_hex(8)
    orders = program.stdin_of(python, {**args, "nonce": nonce})
    process = await link.execute(program.EXEC, window_bytes=window_bytes)
    reader = _Reader(process)
    banner = bytearray()
    marker = f"ISUP1 {nonce}".encode()
    try:
        await process.write(orders)
        while not (line := await reader.line(BANNER_BYTES)).endswith(marker):
            banner += line + b"\n"
            if len(banner) > BANNER_BYTES:
                raise ValueError
        banner += line.removesuffix(marker)  # a banner that does not end with a newline
    except ValueError as error:
        await process.close()
        raise NodeProgramError(f"{link.name} says more than 64 KiB before our program begins") from error
    except (EOFError, ConnectionError) as error:
        banner += reader.rest()
        raise await _last_words(link, python, process, bytes(banner)) from error
    except BaseException:
        await process.close()
        raise
    return process, reader, bytes(banner)


async def _last_words(link: Link, python: str, process: ByteProcess, banner: bytes) -> LinkError:
    """Why the program did not begin: the link is gone, or what the interpreter said."""
    lost = asyncio.ensure_future(link.wait_closed())
    ended = asyncio.ensure_future(process.wait())
    try:
        # An interpreter that is missing ends with a status; a link that is gone never tells one.
        await asyncio.wait((lost, ended), timeout=LAST_WORDS_S, return_when=asyncio.FIRST_COMPLETED)
        status = ended.result() if ended.done() and not ended.exception() else None
        said = " ".join((process.stderr_text() + banner.decode("utf-8", "replace")).split())[-300:]
        if status is None and not said and not lost.done():
            await asyncio.wait((lost,), timeout=LAST_WORDS_S)
        if lost.done():
            return UnreachableError(f"the connection to {link.name} is gone: {lost.result()}")
        return NodeProgramError(f"{python}: {said or f'ended with status {status} and no word'}")
    finally:
        lost.cancel()
        ended.cancel()
        await asyncio.gather(lost, ended, return_exceptions=True)
        await process.close()


class NodeClient:
    """One serving node program. Made by `start`."""

    nvml_source: str | None = None
    """What goes to the node instead of the installed nvidia-ml-py, packed as `nvml_source.py` packs that. None, which
    it is for every real node: nothing instead."""

    def __init__(
        self, process: ByteProcess, reader: _Reader, hello: Hello, python: str, banner: bytes, rtt_s: float = 0.0
    ) -> None:
        self.hello = hello
        self.rtt_s = rtt_s
        """One round trip, as it was before anything else was on the road."""
        self.python = python
        self.banner = banner
        self._process = process
        self._reader = reader
        self._replies: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._notices: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._next_id = 0
        self._ended = False
        self._task = asyncio.create_task(self._receive())

    def __repr__(self) -> str:
        return f"<NodeClient {self.hello.hostname}, Python {self.hello.python}, {len(self._replies)} open requests>"

    @classmethod
    async def start(
        cls,
        link: Link,
        *,
        clock: Clock,
        python: str | None = None,
        command_python: str | None = None,
        state_dir: str | None = None,
        timeout_s: float = 20.0,
    ) -> NodeClient:
        """Start the program with the first interpreter that is fit: `python` alone if given, else the usual ones.

        Raises `NodeProgramError` naming what each said, `UnreachableError` when the link dies.
        """
        candidates: Sequence[str] = (python,) if python else (*PYTHONS, *((command_python,) if command_python else ()))
        said = []
        for candidate in candidates:
            try:
                async with asyncio.timeout(timeout_s):
                    return await cls._start_with(link, clock, candidate, state_dir)
            except NodeProgramError as error:
                said.append(str(error))
            except TimeoutError:
                said.append(f"{candidate}: no word within {timeout_s:g} s")
        tried = "; ".join(said)
        raise NodeProgramError(
            f"no Python of 3.8 or newer runs our program on {link.name} ({tried}): give one as `node.python`"
        )

    @classmethod
    async def _start_with(cls, link: Link, clock: Clock, python: str, state_dir: str | None) -> NodeClient:
        process, reader, banner = await _start(link, python, {"mode": "serve", "state_dir": state_dir})
        try:
            hello = msgspec.json.decode(await reader.line(), type=Hello)
            arrived = clock.now()
        except (EOFError, ValueError, msgspec.DecodeError) as error:
            await process.close()
            raise NodeProgramError(f"{python}: its first words are not ours ({error})") from error
        if hello.protocol != PROTOCOL:
            await process.close()
            raise NodeProgramError(f"{python}: it speaks protocol {hello.protocol}, not {PROTOCOL}")
        trip = await link.round_trip_s()
        offset_s = hello.now - (arrived - (trip or 0.0) / 2)
        hello = msgspec.structs.replace(hello, clock_offset_s=offset_s)
        return cls(process, reader, hello, python, banner, trip or 0.0)

    # ------------------------------------------------------------------------------- talking

    async def request(self, op: str, /, *, timeout_s: float = 30.0, **args: object) -> dict[str, Any]:
        """One request. Raises `NodeRequestError` with its code, `UnreachableError` when the program has ended."""
        if self._ended:
            raise UnreachableError("the node program has ended")
        self._next_id += 1
        number = self._next_id
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._replies[number] = future
        try:
            async with asyncio.timeout(timeout_s):
                await self._process.write(json.dumps({**args, "id": number, "op": op}).encode() + b"\n")
                reply = await future
        except TimeoutError as error:
            raise UnreachableError(f"no reply to {op} from the node within {timeout_s:g} s") from error
        except ConnectionError as error:
            raise UnreachableError(f"the node program is gone: {error}") from error
        finally:
            self._replies.pop(number, None)
        problem = reply.get("error")
        if problem is not None:
            raise NodeRequestError(op, problem["code"], problem["text"], problem.get("detail"))
        ok: dict[str, Any] = reply["ok"]
        return ok

    async def notices(self) -> AsyncIterator[dict[str, Any]]:
        """What the node tells unasked, until the program ends."""
        while (notice := await self._notices.get()) is not None:
            yield notice
        self._notices.put_nowait(None)  # whoever asks again hears of the end again

    async def _receive(self) -> None:
        try:
            while True:
                document = json.loads(await self._reader.line())
                if not isinstance(document, dict):
                    break
                if "notice" in document:
                    self._notices.put_nowait(document)
                elif isinstance(number := document.get("id"), int):
                    future = self._replies.get(number)
                    if future is not None and not future.done():
                        future.set_result(document)
        except (EOFError, ConnectionError, ValueError):
            pass
        finally:
            self._end()

    def _end(self) -> None:
        self._ended = True
        self._notices.put_nowait(None)
        for future in self._replies.values():
            if not future.done():
                future.set_exception(UnreachableError("the connection to the node program ended"))

    async def close(self) -> None:
        """End the program; what is detached on the node goes on."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._process.close()


class LogTail:
    """A followed log on a channel of its own."""

    def __init__(self, process: ByteProcess, reader: _Reader, window: FlowWindow | None = None) -> None:
        self._process = process
        self._reader = reader
        self._window = window

    async def frame(self) -> Frame:
        """The next piece. Raises `UnreachableError` when the channel ends."""
        try:
            head = json.loads(await self._reader.line())
            data = await self._reader.exactly(head["len"]) if head["len"] else b""
        except (EOFError, ConnectionError, ValueError) as error:
            raise UnreachableError("the log's channel ended") from error
        if self._window is not None:
            behind = head["size"] > head["offset"] + head["len"]
            if self._window.took(asyncio.get_running_loop().time(), len(data), behind=behind):
                self._process.allow(self._window.bytes)
        return Frame(
            dev=head["dev"],
            ino=head["ino"],
            offset=head["offset"],
            size=head["size"],
            data=data,
            rotated=bool(head.get("rotated")),
            missing=bool(head.get("missing")),
        )

    async def close(self) -> None:
        """Stop following."""
        await self._process.close()


async def open_tail(
    link: Link,
    *,
    python: str,
    path: str,
    offset: int,
    dev: int | None = None,
    ino: int | None = None,
    window_bytes: int | None = None,
    rtt_s: float = 0.0,
) -> LogTail:
    """Follow `path` from `offset`; where device and inode are given and differ, from the new file's beginning.

    What may be in flight follows what the link carries (`core/flow.py`), unless `window_bytes` fixes it; `rtt_s`: its
    round trip.
    """
    window = FlowWindow(rtt_s) if window_bytes is None else None
    args = {"mode": "tail", "path": path, "offset": offset, "dev": dev, "ino": ino}
    process, reader, _ = await _start(link, python, args, window_bytes=window_bytes or LEAST_BYTES)
    return LogTail(process, reader, window)


class _RelayStream:
    """A `ByteStream` through the node program's relay. Each is used for one exchange, so none is ever idle."""

    def __init__(self, process: ByteProcess, reader: _Reader) -> None:
        self._process = process
        self._reader = reader

    async def read(self, max_bytes: int) -> bytes:
        return await self._reader.some(max_bytes)

    async def write(self, data: bytes) -> None:
        await self._process.write(data)

    def readable(self) -> bool:
        return False

    async def close(self) -> None:
        await self._process.close()


async def open_relay(link: Link, *, python: str, host: str, port: int, timeout_s: float) -> ByteStream:
    """A connection to `host:port` as the node sees it, for nodes that forbid forwarding. Raises a `DialError`."""
    args = {"mode": "relay", "host": host, "port": port, "timeout_s": timeout_s}
    process, reader, _ = await _start(link, python, args)
    try:
        told = json.loads(await reader.line())
    except (EOFError, ConnectionError, ValueError) as error:
        await process.close()
        raise UnreachableError("the relay ended without a word") from error
    if told.get("ok"):
        return _RelayStream(process, reader)
    await process.close()
    # Without a route it is as with a closed port: nothing can listen there for us.
    kind = DialSilentError if told.get("error") == "silent" else DialRefusedError
    raise kind(f"{host} port {port}: {told.get('text')}")
