"""A session that attends no run still looks at its node's left-overs, and clears what it is told to, with proof."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.adapters.clock import SystemClock
from supervisor.adapters.local import LocalLink
from supervisor.core import events as ev
from supervisor.errors import UnreachableError
from supervisor.profile import load
from supervisor.supervise.session import Session
from supervisor.tui.order import Order
from supervisor.wiring import plan_of
from tests.headless.test_zombies import end, hold
from tests.main_job.kit import Site, site_with_gpu
from tests.real.nvml import StubNvml
from tests.real.processes import Tracker


@pytest.fixture
def here(nvml_stub: StubNvml, tmp_path: Path, tracker: Tracker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A node with one GPU, and a profile on it of which nothing runs."""
    with site_with_gpu(tmp_path, tracker, nvml_stub, monkeypatch) as made:
        yield made


@pytest.fixture
def holders(here: Site, nvml_stub: StubNvml) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two processes of our user on the GPU, which know nothing of us."""
    started = [hold(nvml_stub) for _ in range(2)]
    yield started
    for process in started:
        end(process)


@pytest.mark.asyncio
async def test_left_overs_are_looked_at_and_cleared_without_a_run(
    here: Site, holders: list[subprocess.Popen[bytes]]
) -> None:
    clock = SystemClock()
    plan = plan_of(load(here.file), str(here.file))
    session = Session(plan, LocalLink, clock=clock, by="test", launch=False, stays=True)
    with pytest.raises(UnreachableError):
        await session.left_overs()
    running = asyncio.create_task(session.run())
    subscription = session.desk.hub.subscribe()
    try:
        async with asyncio.timeout(20):
            async for batch in subscription.batches():
                if any(isinstance(event, ev.Warning_) for event in batch):
                    break  # refused, since nothing runs: the session stands
        found = await session.left_overs()
        assert {item.pid for item in found.holders if item.held} == {process.pid for process in holders}
        view = session.desk.hub.view
        assert view.gpu is not None and view.holders is not None
        assert [item.pid for item in view.holders.holders] == [item.pid for item in found.holders]

        target = next(item for item in found.holders if item.pid == holders[0].pid)
        reaped = asyncio.create_task(asyncio.to_thread(holders[0].wait, 20))
        order = Order("clear", clock.now, gpus=view.gpu)
        cleared = await session.clear([target], found.holders, witness=order)
        assert cleared.released, cleared
        await reaped
        assert holders[1].poll() is None, "nobody else was touched"
        fate = order.fates[(holders[0].pid, target.start_ticks or 0)]
        assert (fate.signal, fate.gone_at is not None) == ("TERM", True)
        assert order.claim is not None
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
