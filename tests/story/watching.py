"""The events of a session within the test's own process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager

from supervisor.core import events as ev
from supervisor.supervise.session import Session


@asynccontextmanager
async def events_of(session: Session, *, timeout_s: float = 60) -> AsyncIterator[AsyncIterator[ev.AnyEvent]]:
    """One by one while the session runs; its server is stopped at the end."""
    subscription = session.desk.hub.subscribe()

    async def events() -> AsyncGenerator[ev.AnyEvent, None]:
        async for batch in subscription.batches():
            for event in batch:
                yield event

    working = asyncio.create_task(session.run())
    try:
        async with asyncio.timeout(timeout_s), aclosing(events()) as reader:
            yield reader
    finally:
        await session.stop()
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
