"""Follows a log on the node byte by byte across lost connections: no gap, no repeat."""

from __future__ import annotations

from collections.abc import AsyncIterator

from msgspec import Struct

from supervisor.adapters.node import Frame, open_tail
from supervisor.core import events as ev
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
        rtt_s=connection.client.rtt_s,
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


class Begins(Struct, frozen=True, kw_only=True):
    """Where a log is read from, in its file: that may be after where the run began (a takeover of a long log)."""

    offset: int
    line_no: int
    run_offset: int
    run_line: int


class Blocks:
    """Frames of one run's log as blocks that know their place.

    Args:
        after: where the log of the run before was read to; the same file goes on, another one is `fresh`.
    """

    def __init__(self, begins: Begins, *, after: Position | None = None) -> None:
        self._begins = begins
        self._line_no = begins.line_no
        self._after = after
        self._any = False

    def take(self, at: float, frame: Frame) -> ev.LogBlock | None:
        """The block of one frame, None for a heartbeat."""
        fresh = False
        if frame.rotated:
            self._begins = Begins(offset=0, line_no=1, run_offset=0, run_line=1)
            self._line_no, fresh = 1, True
        elif not frame.data:
            return None
        if not self._any:
            after = self._after
            same = after is not None and (after.dev, after.ino) == (frame.dev, frame.ino)
            fresh = fresh or after is None or not same or frame.offset < after.offset
            self._any = True
        lines = frame.data.count(b"\n")
        block = ev.LogBlock(
            at=at,
            data=frame.data,
            offset=frame.offset,
            line_no=self._line_no,
            lines=lines,
            fresh=fresh,
            run_offset=self._begins.run_offset,
            run_line=self._begins.run_line,
        )
        self._line_no += lines
        return block
