"""Asks nodes which runs of ours live there, for a screen that lists them: every node once, all at once.

Nothing is launched, taken over or changed. A node that cannot be reached says so in its own answer and costs the others
nothing. The one look at a run's health is a look: what it shows is an answer, never "serving".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from supervisor.adapters.base import Clock, Link
from supervisor.adapters.http import Http
from supervisor.adapters.node import NodeClient
from supervisor.core import url as urls
from supervisor.core.events import Answer, Owner, Verdict
from supervisor.core.judge import Listener
from supervisor.core.lines import sanitise
from supervisor.engines import loader
from supervisor.errors import LinkError, SupervisorError
from supervisor.supervise.connection import Connection
from supervisor.supervise.probe import Prober, listeners_on

NODE_LIMIT_S = 20.0
"""From the first packet to the list of runs: a console's user has given up on a node by then."""
LOOK_LIMIT_S = 25.0
"""Some engines generate a token for a health answer, and may take 20 s for it."""
AT_ONCE = 16
"""Nodes asked at the same time: each is a handshake, and the loop has keys to answer."""


class Asked(Struct, frozen=True, kw_only=True):
    """A node to ask, and where its records are (several where profiles disagree). `host` tells it from the others."""

    host: str
    make_link: Callable[[], Link]
    python: str | None = None
    command_python: str | None = None
    state_dirs: tuple[str | None, ...] = (None,)


class LiveRun(Struct, frozen=True, kw_only=True):
    """A run that lives, by the node's records."""

    host: str
    key: str
    run_id: str
    started_at: float
    """The operator's clock."""
    by: str = ""
    engine: str = ""
    port: int | None = None
    url: str = ""
    state_dir: str | None = None
    answer: Answer | None = None
    """What the one look at its health came to; None before it, or where it could not be looked at."""


class Told(Struct, frozen=True, kw_only=True):
    """What is known of one node. `done`: nothing more comes of it."""

    host: str
    runs: tuple[LiveRun, ...] = ()
    why: str = ""
    """Why it could not be asked; empty where it could."""
    reached: bool = False
    done: bool = False


async def ask(nodes: Sequence[Asked], *, clock: Clock, on_told: Callable[[Told], None]) -> None:
    """Ask every node; `on_told` hears the list of runs first, and again after each look. Never raises for a node."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one(node: Asked) -> None:
        async with places:
            await _Asking(node, clock, on_told).run()

    await asyncio.gather(*(one(node) for node in nodes))


class _Asking:
    """One node being asked."""

    def __init__(self, node: Asked, clock: Clock, on_told: Callable[[Told], None]) -> None:
        self._node = node
        self._clock = clock
        self._on_told = on_told
        self._told = Told(host=node.host)

    async def run(self) -> None:
        node = self._node
        connection = Connection(
            node.make_link,
            clock=self._clock,
            on_link=lambda _state, _why: None,
            python=node.python,
            command_python=node.command_python,
            state_dir=node.state_dirs[0],
        )
        clients: list[NodeClient] = []
        try:
            async with asyncio.timeout(NODE_LIMIT_S):
                await connection.connect_once()
                for state_dir in node.state_dirs[1:]:
                    clients.append(await self._client(connection, state_dir))
                await self._list([connection.client, *clients])
            await self._look_at_all(connection)
        except SupervisorError as error:
            self._tell(why=_line(str(error)))
        except TimeoutError:
            self._tell(why=f"no answer within {NODE_LIMIT_S:.0f} s")
        except Exception as error:  # one node's oddity must not take the list of all the others away
            self._tell(why=_line(f"{type(error).__name__}: {error}"))
        finally:
            for client in clients:
                await client.close()
            await connection.close()
            self._tell(done=True)

    async def _client(self, connection: Connection, state_dir: str | None) -> NodeClient:
        """A second program over the same connection, for records that a profile keeps elsewhere."""
        return await NodeClient.start(
            connection.link,
            clock=self._clock,
            python=self._node.python,
            command_python=self._node.command_python,
            state_dir=state_dir,
        )

    async def _list(self, clients: Sequence[NodeClient]) -> None:
        found: list[LiveRun] = []
        for client, state_dir in zip(clients, self._node.state_dirs, strict=True):
            for item in (await client.request("runs"))["runs"]:
                if item["live"]:
                    found.append(_run_of(item, self._node.host, state_dir, client.hello.clock_offset_s))
        found.sort(key=lambda run: (run.key, run.run_id))
        self._tell(runs=tuple(found), reached=True)

    async def _look_at_all(self, connection: Connection) -> None:
        http = Http(connection.dial)
        try:
            async with asyncio.timeout(LOOK_LIMIT_S):
                for position, run in enumerate(self._told.runs):
                    answer = await self._look(run, connection, http)
                    runs = list(self._told.runs)
                    runs[position] = msgspec.structs.replace(run, answer=answer)
                    self._tell(runs=tuple(runs))
        except TimeoutError:
            pass  # what was not looked at has no answer, and the list says so
        finally:
            await http.close()

    async def _look(self, run: LiveRun, connection: Connection, http: Http) -> Answer | None:
        try:
            return await _look(run, connection, http)
        except LinkError:
            raise
        except SupervisorError:
            return None  # of this one run nothing more can be told

    def _tell(self, **changes: Any) -> None:
        self._told = msgspec.structs.replace(self._told, **changes)
        self._on_told(self._told)


async def _look(run: LiveRun, connection: Connection, http: Http) -> Answer | None:
    """One look at a run's health by its engine's rule; None where its records do not say where and by which rule."""
    try:
        url, engine = urls.parse(run.url), loader.load(run.engine)
    except (urls.UrlError, KeyError):
        return None

    async def listeners(port: int) -> Sequence[Listener]:
        return await listeners_on(connection.client, port, key=run.key, run_id=run.run_id)

    if not await listeners(url.port):  # asked on the node: a refused request would leave a line in its sshd's log
        why = f"nothing listens on {url.host_header} (looked at on the node)"
        return Answer(verdict=Verdict.REFUSED, why=why, address=url.host_header, cause="refused", owner=Owner.UNKNOWN)
    return await Prober(http, url, engine, listeners=listeners).look()


def _run_of(item: dict[str, Any], host: str, state_dir: str | None, offset_s: float) -> LiveRun:
    port = item.get("port")
    return LiveRun(
        host=host,
        key=_line(str(item["key"])),
        run_id=_line(str(item["run_id"])),
        started_at=float(item["started_at"] or 0.0) - offset_s,
        by=_line(str(item.get("by") or "")),
        engine=str(item.get("engine") or ""),
        port=port if isinstance(port, int) else None,
        url=str(item.get("url") or ""),
        state_dir=state_dir,
    )


def _line(text: str) -> str:
    """A node's words on one line, safe to show."""
    return sanitise(" ".join(text.split()))
