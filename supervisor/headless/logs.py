"""The logs command: the run's log on standard output, followed on demand across lost connections.

Into a file or a pipe the bytes go as they are; on a terminal they go line by line, safe and masked, since log bytes
must never drive a terminal.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable

from supervisor.adapters.base import Clock, Link
from supervisor.core.events import LinkState
from supervisor.core.lines import LineSplitter
from supervisor.errors import RefusedError, UnreachableError
from supervisor.supervise.connection import Connection
from supervisor.supervise.follow import Position, frames
from supervisor.supervise.plan import Plan


class _Sink:
    """Where the bytes go."""

    def __init__(self, mask: Callable[[str], str]) -> None:
        self._terminal = sys.stdout.isatty()
        self._splitter = LineSplitter()
        self._mask = mask

    def write(self, data: bytes) -> None:
        if not self._terminal:
            view = memoryview(data)
            while view:
                view = view[os.write(1, view) :]
            return
        for line in self._splitter.feed(data):
            if not line.living:
                print(self._mask(line.text), flush=True)

    def end(self) -> None:
        if self._terminal:
            for line in self._splitter.end():
                print(self._mask(line.text), flush=True)


async def run_logs(
    plan: Plan, make_link: Callable[[], Link], *, clock: Clock, follow: bool, mask: Callable[[str], str]
) -> int:
    """Exit code 0, or 130 for an interrupt. Raises `RefusedError` where there is no run."""

    def on_link(state: LinkState, why: str) -> None:
        if state is not LinkState.UP:
            print(f"link {state.value}: {why}", file=sys.stderr, flush=True)

    connection = Connection(make_link, clock=clock, on_link=on_link, python=plan.python, state_dir=plan.state_dir)
    sink = _Sink(mask)
    position: Position | None = None
    try:
        while True:
            await connection.open()
            try:
                position = position or await _position(connection, plan)
                await _copy(connection, position, sink, follow=follow)
                return 0
            except UnreachableError as error:
                connection.lost(str(error))
                await connection.close()
    except asyncio.CancelledError:
        return 130
    finally:
        sink.end()
        await connection.close()


async def _position(connection: Connection, plan: Plan) -> Position:
    state = await connection.client.request("state", key=plan.key)
    found = state["live"] or state["last"]
    if found is None:
        raise RefusedError(f"there is no run of {plan.name} on the node, so there is no log")
    record = found["run"]
    log = record.get("log_from") or record.get("log")
    if not log:
        raise RefusedError(f"run {record['run_id']} has no log yet")
    return Position(path=log["path"], offset=int(log["offset"]), dev=log.get("dev"), ino=log.get("ino"))


async def _copy(connection: Connection, position: Position, sink: _Sink, *, follow: bool) -> None:
    """Until the link breaks; without `follow` until the size that the file had first."""
    end: int | None = None
    async for frame in frames(connection, position):
        if frame.missing:
            raise RefusedError(f"the log {position.path} is gone")
        if frame.data:
            sink.write(frame.data)
        end = frame.size if end is None else end
        if not follow and position.offset >= end:
            return
