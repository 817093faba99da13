"""What real servers tell of their load, through a whole session on this machine."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from supervisor.adapters.clock import SystemClock
from supervisor.adapters.local import LocalLink
from supervisor.core import events as ev
from supervisor.core.events import Metrics, Phase
from supervisor.profile import load
from supervisor.supervise.session import Session
from supervisor.wiring import plan_of
from tests.real.llama import LlamaServer, tiny_model
from tests.real.ports import free_port
from tests.real.processes import Tracker
from tests.story import kit, watching

QUICK = ("--sim-load", "0.1", "--sim-warm", "0.1", "--sim-health-delay", "0", "--sim-speed", "4")


@asynccontextmanager
async def stream(item: kit.Profile) -> AsyncIterator[AsyncIterator[ev.AnyEvent]]:
    """The events of a session that launches the profile; the server is stopped at the end."""
    session = Session(plan_of(load(item.path), str(item)), LocalLink, clock=SystemClock(), by="test")
    async with watching.events_of(session) as reader:
        yield reader


async def first(events: AsyncIterator[ev.AnyEvent], fits: Callable[[Metrics], bool]) -> tuple[Metrics, list[str]]:
    """The first metrics that fit, and the phases that were entered before."""
    phases: list[str] = []
    async for event in events:
        if isinstance(event, ev.PhaseChanged):
            phases.append(event.to.value)
        if isinstance(event, Metrics) and fits(event):
            return event, phases
    raise AssertionError("the stream has ended")


@pytest.mark.asyncio
async def test_a_busy_server_shows_its_requests_and_a_rate(tmp_path: Path, tracker: Tracker) -> None:
    item = kit.simulated_profile(tmp_path, "sglang", *QUICK, "--enable-metrics", "--sim-traffic", "8")
    async with stream(item) as events:
        told, phases = await first(events, lambda one: bool(one.generated_tokens_s and one.running))
        assert Phase.HEALTHY.value in phases
        assert told.generated_tokens_s is not None and 0 < told.generated_tokens_s < 10_000
        assert told.why == "" and told.queued is not None and told.cache_share is not None


@pytest.mark.asyncio
async def test_a_server_without_its_metrics_says_with_what_they_come(tmp_path: Path, tracker: Tracker) -> None:
    async with stream(kit.simulated_profile(tmp_path, "sglang", *QUICK)) as events:
        told, _ = await first(events, lambda _one: True)
        assert told.why == "launched without --enable-metrics"


@pytest.mark.asyncio
async def test_a_real_llama_server_behind_a_key(
    tmp_path: Path, tracker: Tracker, require_real: Callable[..., None]
) -> None:
    require_real("llama-server")
    port, key = free_port(), "sk-0123456789"
    command = LlamaServer().command(tiny_model(), port, "-c", "256", "-t", "2", "--metrics", "--api-key", key)
    item = kit.profile(tmp_path, command, port=port, engine="llamacpp")
    async with stream(item) as events:
        # Idle: the verification's own generation may run while it is first asked.
        before, _ = await first(events, lambda one: one.generated_tokens_s is not None and one.running == 0)
        assert before.why == ""
        body = json.dumps({"prompt": "one two three", "max_tokens": 16}).encode()
        asked = urllib.request.Request(
            f"http://127.0.0.1:{port}/v1/completions",
            data=body,
            headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
        )
        (await asyncio.to_thread(urllib.request.urlopen, asked)).close()
        after, _ = await first(events, lambda one: bool(one.generated_tokens_s))
        assert after.generated_tokens_s is not None and after.generated_tokens_s > 1
        assert after.prompt_tokens_s
