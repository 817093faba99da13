"""A TCP server in the test's own loop, of which nothing outlives the test.

A connection that is open when its loop ends is found by the garbage collector in another test, which fails by it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def server_of(handler: Handler) -> AsyncIterator[int]:
    """Its port on 127.0.0.1, while it serves."""
    connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections[task] = writer
        await handler(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()
        for task, writer in connections.items():
            task.cancel()
            writer.close()
        await asyncio.gather(*connections, return_exceptions=True)
        await asyncio.gather(*(writer.wait_closed() for writer in connections.values()), return_exceptions=True)
