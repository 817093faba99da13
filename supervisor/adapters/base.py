"""The narrow ports between the supervisor and the world. Protocols only, no behaviour.

A fake of each stands in `supervisor/testing.py`. Whatever lies beneath (asyncssh, a subprocess, a socket)
maps its own exceptions to `supervisor.errors` at this border.
"""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Time as the whole program sees it: seconds since the epoch that never jump (see `adapters.clock`)."""

    def now(self) -> float:
        """Seconds since the epoch, UTC, monotonic within this process."""

    async def sleep(self, wait_s: float) -> None:
        """Sleep for `wait_s` seconds."""


class ByteStream(Protocol):
    """One connection to a TCP port, as the node sees it."""

    async def read(self, max_bytes: int) -> bytes:
        """At least one byte, or b"" at the end. Raises `ConnectionError` when it breaks."""

    async def write(self, data: bytes) -> None:
        """Write all of `data`, waiting for room. Raises `ConnectionError` when it breaks."""

    def readable(self) -> bool:
        """True when something (or the end) waits to be read: an idle connection that says True is dead."""

    async def close(self) -> None:
        """Close at once; never raises."""


class ByteProcess(Protocol):
    """One program that runs on the node, its stdin and stdout as bytes; stderr is kept, 64 KiB at most."""

    async def read(self, max_bytes: int) -> bytes:
        """At least one byte of stdout, or b"" at its end. Reading slowly slows the program, never memory."""

    def allow(self, window_bytes: int) -> None:
        """Let this much be in flight from now on, where that can be changed."""

    async def write(self, data: bytes) -> None:
        """Write all of `data` to stdin, waiting for room. Raises `ConnectionError` when it is gone."""

    def stderr_text(self) -> str:
        """What stderr has said so far, decoded with replacement; the first 64 KiB."""

    async def close(self) -> None:
        """Close stdin and forget the program, which ends by itself at end-of-file. Never raises."""

    async def wait(self) -> int | None:
        """The exit status once it has ended; None where that cannot be known (signal, lost link)."""


class Link(Protocol):
    """Our connection to one node. One object is one connection: after `closed` a new one is made."""

    @property
    def name(self) -> str:
        """What the user calls the node, for messages."""

    async def connect(self) -> None:
        """Connect and log in. Raises a `LinkError`; only `retriable` ones are worth another attempt."""

    async def execute(self, command: str, *, window_bytes: int | None = None) -> ByteProcess:
        """Run a constant command string through the login shell. `window_bytes` bounds what is in flight.

        Raises `UnreachableError` when the connection is gone.
        """

    async def dial(self, host: str, port: int, *, timeout_s: float) -> ByteStream:
        """Connect to `host:port` as the node sees it, with no port opened here.

        Raises `DialRefusedError`, `DialForbiddenError`, `DialSilentError`, or `UnreachableError` when the
        connection itself is gone.
        """

    async def wait_closed(self) -> str:
        """Return why, once the connection is gone."""

    async def round_trip_s(self) -> float | None:
        """Seconds of one round trip, None when it cannot be told."""

    async def close(self) -> None:
        """Close at once; never raises. What runs on the node and is detached is not touched."""
