"""Follows a log on the node byte by byte across lost connections: no gap, no repeat."""

from __future__ import annotations

from collections.abc import AsyncIterator

from msgspec import Struct

from supervisor.adapters.node import Frame, open_tail
from supervisor.supervise.connection import Connection


class Position(Struct):
    """Where a reader stands in a log: device, inode, offset. Survives the connection."""

    path: str
    offset: int
    dev: int | None = None
    ino: int | None = None


async def frames(connection: Connection, position: Position) -> AsyncIterator[Frame]:
    """Frames from where `position` stands, which is moved along. Raises `UnreachableError` when the channel ends."""
    tail = await open_tail(
        connection.link,
        python=connection.client.python,
        path=position.path,
        offset=position.offset,
        dev=position.dev,
        ino=position.ino,
    )
    try:
        while True:
            frame = await tail.frame()
            if not frame.missing:
                position.dev, position.ino = frame.dev, frame.ino
                position.offset = frame.offset + len(frame.data)
            yield frame
    finally:
        await tail.close()
