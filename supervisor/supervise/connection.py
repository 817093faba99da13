"""Keeps one connection to the node at a time: link and node program, made anew when they break.

It tells every change as a fact, retries only what is worth it (`LinkError.retriable`), and never gives up by itself:
how long a lost link is borne is a limit of whoever waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from supervisor.adapters.base import ByteStream, Clock, Link
from supervisor.adapters.node import NodeClient, open_relay
from supervisor.core.events import LinkState
from supervisor.errors import DialForbiddenError, LinkError, UnreachableError

BACKOFF_S = (0.2, 0.5, 1.0, 2.0, 3.0)

OnLink = Callable[[LinkState, str], None]


class Connection:
    """Link and client of the moment.

    Args:
        make_link: makes a new, unconnected link.
        on_link: told of every change of the link's state, with why.
        nvml_source: goes to the node instead of nvidia-ml-py; for a node whose GPUs are simulated, and for no other.
    """

    def __init__(
        self,
        make_link: Callable[[], Link],
        *,
        clock: Clock,
        on_link: OnLink,
        python: str | None = None,
        command_python: str | None = None,
        state_dir: str | None = None,
        nvml_source: str | None = None,
    ) -> None:
        self._make_link = make_link
        self._clock = clock
        self._on_link = on_link
        self._python = python
        self._command_python = command_python
        self._state_dir = state_dir
        self._nvml_source = nvml_source
        self._link: Link | None = None
        self._client: NodeClient | None = None
        self._relays = False

    @property
    def link(self) -> Link:
        """The link that is up. Raises `UnreachableError` between connections."""
        if self._link is None:
            raise UnreachableError("the link is down")
        return self._link

    @property
    def client(self) -> NodeClient:
        """The node program's client. Raises `UnreachableError` between connections."""
        if self._client is None:
            raise UnreachableError("the link is down")
        return self._client

    async def open(self) -> None:
        """Connect, however many attempts it takes. Raises the `LinkError`s that no other attempt would mend."""
        attempt = 0
        while True:
            try:
                await self.connect_once()
                return
            except LinkError as error:
                await self.close()
                if not error.retriable:
                    raise
                pause_s = BACKOFF_S[min(attempt, len(BACKOFF_S) - 1)]
                self._on_link(LinkState.LOST, str(error))
                await self._clock.sleep(pause_s)
                attempt += 1

    async def connect_once(self) -> None:
        """One attempt. Raises the `LinkError` that it fails by."""
        link = self._make_link()
        self._link = link
        await link.connect()
        self._client = await NodeClient.start(
            link,
            clock=self._clock,
            python=self._python,
            command_python=self._command_python,
            state_dir=self._state_dir,
        )
        self._client.nvml_source = self._nvml_source
        hello = self._client.hello
        self._on_link(LinkState.UP, f"{link.name} ({hello.hostname}), Python {hello.python}, uid {hello.uid}")

    async def wait_lost(self) -> None:
        """Return never: raises `UnreachableError` with why, once the link is gone."""
        raise UnreachableError(await self.link.wait_closed())

    async def dial(self, host: str, port: int, timeout_s: float) -> ByteStream:
        """A connection as the node sees it; through the relay where sshd forbids forwarding."""
        if not self._relays:
            try:
                return await self.link.dial(host, port, timeout_s=timeout_s)
            except DialForbiddenError:
                self._relays = True  # asked once: each refusal would leave a line in the node's log
        return await open_relay(self.link, python=self.client.python, host=host, port=port, timeout_s=timeout_s)

    def lost(self, why: str) -> None:
        """Tell that the connection broke."""
        self._on_link(LinkState.LOST, why)

    async def close(self) -> None:
        """Close both; what runs on the node and is detached goes on."""
        client, self._client = self._client, None
        link, self._link = self._link, None
        if client is not None:
            await client.close()
        if link is not None:
            await link.close()


async def first_of(*work: asyncio.Task[None]) -> None:
    """Wait until one of the tasks ends or fails; cancel the others; raise what failed first."""
    try:
        done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)
    for task in work:
        if task in done and (error := task.exception()) is not None:
            raise error
