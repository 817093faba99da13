"""The manual clock: a test that uses it must be able to trust it."""

from __future__ import annotations

import asyncio

import pytest

from supervisor.adapters.base import Clock
from supervisor.testing import ManualClock, settle


async def _pace(clock: Clock, wait_s: float, seen: list[float]) -> None:
    while True:
        await clock.sleep(wait_s)
        seen.append(clock.now())


@pytest.mark.asyncio
async def test_sleepers_wake_at_their_own_time_and_as_often_as_they_would_have() -> None:
    clock = ManualClock(100.0)
    fast: list[float] = []
    slow: list[float] = []
    tasks = [asyncio.create_task(_pace(clock, 1.0, fast)), asyncio.create_task(_pace(clock, 2.5, slow))]
    await clock.advance(5.0)
    assert (fast, slow) == ([101.0, 102.0, 103.0, 104.0, 105.0], [102.5, 105.0])
    assert clock.sleepers == 2
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert clock.sleepers == 0
    await clock.advance(10.0)
    assert (clock.now(), len(fast)) == (115.0, 5)


@pytest.mark.asyncio
async def test_nothing_wakes_before_its_time() -> None:
    clock = ManualClock()
    task = asyncio.create_task(clock.sleep(600))
    await clock.advance(599.999)
    assert not task.done()
    await clock.advance(0.001)
    await task


@pytest.mark.asyncio
async def test_no_time_is_no_wait_and_no_time_goes_back() -> None:
    clock = ManualClock(5.0)
    await clock.sleep(0)
    await clock.sleep(-1)
    await settle()
    with pytest.raises(ValueError, match="back"):
        await clock.advance(-1)
    assert clock.now() == 5.0
