"""Waits for an endpoint as a node sees it: `--url URL --via HOST`. No run, nothing launched.

The node program tells when something listens, so that a long wait leaves nothing in the node's sshd log; requests go
through the link only then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from supervisor.adapters.http import Http
from supervisor.core import events as ev
from supervisor.core.engine import Engine
from supervisor.core.url import Url
from supervisor.errors import UnreachableError
from supervisor.supervise.connection import Connection, first_of
from supervisor.supervise.desk import Desk
from supervisor.supervise.probe import Prober
from supervisor.supervise.watch_url import LOOK_EVERY_S


class ViaWatch:
    """Looks at a URL through a node for ever; whoever runs it ends it."""

    def __init__(self, desk: Desk, make_connection: Callable[[], Connection], url: Url, engine: Engine) -> None:
        self._desk = desk
        self._connection = make_connection()
        self._url = url
        self._engine = engine
        self._open = False

    async def run(self) -> None:
        """Connect, look, and again after a lost link."""
        try:
            while True:
                await self._connection.open()
                try:
                    await self._attend()
                except UnreachableError as error:
                    self._connection.lost(str(error))
                    await self._connection.close()
        finally:
            await self._connection.close()

    async def _attend(self) -> None:
        self._open = False
        await self._connection.client.request(
            "watch_port", host=self._url.host, port=self._url.port, interval_s=LOOK_EVERY_S
        )
        http = Http(self._connection.dial)
        try:
            await first_of(
                asyncio.create_task(self._connection.wait_lost()),
                asyncio.create_task(self._hear()),
                asyncio.create_task(self._look(Prober(http, self._url, self._engine))),
            )
        finally:
            await http.close()

    async def _hear(self) -> None:
        async for notice in self._connection.client.notices():
            if notice["notice"] == "port":
                self._open = bool(notice["open"])
        await asyncio.Event().wait()

    async def _look(self, prober: Prober) -> None:
        clock = self._desk.clock
        while True:
            began = clock.now()
            if self._open:
                answer = await prober.look()
            else:
                why = f"nothing listens on {self._url.host_header} (looked at on the node)"
                answer = ev.Answer(verdict=ev.Verdict.REFUSED, why=why, cause="refused", address=self._url.host_header)
            now = clock.now()
            self._desk.note(ev.Answered(at=now, answer=answer))
            await clock.sleep(LOOK_EVERY_S - (now - began))
