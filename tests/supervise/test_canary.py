"""An API server that answers 200 over a frozen engine is told as degraded, with who stands still; and comes back."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from supervisor.adapters.clock import SystemClock
from supervisor.adapters.local import LocalLink
from supervisor.core import events as ev
from supervisor.core.events import Metrics, Phase
from supervisor.core.url import parse
from supervisor.engines import loader
from supervisor.profile import load
from supervisor.supervise import canary
from supervisor.supervise.canary import Canary
from supervisor.supervise.desk import Desk
from supervisor.supervise.plan import VerifyPlan
from supervisor.supervise.session import Session
from supervisor.supervise.verify import Verdict, Verifier
from supervisor.testing import ManualClock
from supervisor.wiring import plan_of
from tests.node.conftest import until
from tests.real.processes import Tracker
from tests.story import kit, watching

QUICK = ("--sim-load", "0.1", "--sim-warm", "0", "--sim-speed", "4", "--tp", "2")


class Watched:
    """A session that attends a run, and its events."""

    def __init__(self, session: Session, events: AsyncIterator[ev.AnyEvent]) -> None:
        self.session, self.events = session, events
        self.seen: list[ev.AnyEvent] = []

    async def until_phase(self, phase: Phase) -> ev.PhaseChanged:
        async for event in self.events:
            self.seen.append(event)
            if isinstance(event, ev.PhaseChanged) and event.to is phase:
                return event
        raise AssertionError("the stream has ended")

    async def until_finding(self) -> ev.Finding:
        async for event in self.events:
            self.seen.append(event)
            if isinstance(event, ev.Finding):
                return event
        raise AssertionError("the stream has ended")

    def pid_of(self, title: str) -> int:
        attendance = self.session.attendance
        assert attendance is not None
        return next((item.pid for item in attendance.tree if item.title.startswith(title)), 0)


@asynccontextmanager
async def watched(item: kit.Profile) -> AsyncIterator[Watched]:
    plan = plan_of(load(item.path), str(item))
    health = msgspec.structs.replace(plan.engine.health, serving_interval_s=0.3)
    plan = msgspec.structs.replace(plan, engine=msgspec.structs.replace(plan.engine, health=health))
    session = Session(plan, LocalLink, clock=SystemClock(), by="test")
    async with watching.events_of(session, timeout_s=150) as reader:
        yield Watched(session, reader)


@pytest.mark.asyncio
async def test_a_frozen_core_behind_a_healthy_api_is_degraded_with_its_evidence_and_serves_again(
    tmp_path: Path, tracker: Tracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(canary, "STOPPED_TIMEOUT_S", 1.0)
    monkeypatch.setattr(canary, "AGAIN_EVERY_S", 0.5)
    async with watched(kit.simulated_profile(tmp_path, "vllm", *QUICK)) as run:
        await run.until_phase(Phase.SERVING)
        core = await until(lambda: run.pid_of("VLLM::EngineCore"))
        os.kill(core, signal.SIGSTOP)
        degraded = await run.until_phase(Phase.DEGRADED)
        assert f"process {core} VLLM::EngineCore stands still (state T)" in degraded.evidence[0].text
        finding = await run.until_finding()
        assert (finding.category, finding.detail) == ("hang", "frozen engine")
        assert f"kill -CONT {core}" in finding.advice
        health = run.session.desk.hub.view.health
        assert health is not None and health.status == 200, "health went on lying"
        os.kill(core, signal.SIGCONT)
        again = await run.until_phase(Phase.SERVING)
        assert "generates again" in again.evidence[0].text


@pytest.mark.asyncio
async def test_a_hung_core_that_nobody_stopped_is_found_by_asking_now_and_then(
    tmp_path: Path, tracker: Tracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole tree runs, and health is 200: only the generation that does not come tells of it."""
    monkeypatch.setattr(canary, "EVERY_S", 0.5)
    monkeypatch.setattr(canary, "TIMEOUT_S", 1.0)
    async with watched(kit.simulated_profile(tmp_path, "vllm", *QUICK, "--sim-fault", "hang-core-after:1")) as run:
        await run.until_phase(Phase.SERVING)
        degraded = await run.until_phase(Phase.DEGRADED)
        assert "no generation comes: POST /v1/completions" in degraded.evidence[0].text
        assert "stands still" not in degraded.evidence[0].text
        assert (await run.until_finding()).category == "hang"


def _desk(phase: Phase) -> tuple[Desk, ManualClock]:
    clock = ManualClock()
    desk = Desk(clock=clock, verify=True, on_phase=lambda _change: None)
    desk.machine.phase = phase
    return desk, clock


def _canary(engine: str, desk: Desk) -> Canary:
    def never(_plan: VerifyPlan) -> Verifier:
        raise AssertionError("nothing is to be asked")

    async def tree() -> list[ev.Process]:
        return []

    return Canary(loader.load(engine), VerifyPlan(), desk, never, tree)


@pytest.mark.asyncio
async def test_it_is_due_once_in_a_while_and_only_while_it_serves() -> None:
    for phase in Phase:
        desk, clock = _desk(phase)
        asks = _canary("vllm", desk)
        assert not asks.due
        await clock.advance(canary.EVERY_S)
        assert asks.due is (phase in (Phase.SERVING, Phase.DEGRADED)), phase


@pytest.mark.asyncio
async def test_an_engine_whose_health_makes_a_token_is_not_asked_for_more() -> None:
    desk, clock = _desk(Phase.SERVING)
    asks = _canary("sglang", desk)
    await clock.advance(10 * canary.EVERY_S)
    assert not asks.due


@pytest.mark.asyncio
async def test_tokens_that_flow_are_proof_enough() -> None:
    desk, clock = _desk(Phase.SERVING)
    asks = _canary("vllm", desk)
    await clock.advance(canary.EVERY_S)
    desk.tell(Metrics(at=clock.now(), running=3, generated_tokens_s=120.0))
    assert not asks.due
    await clock.advance(canary.EVERY_S)
    assert asks.due, "those are old by now"
    desk.tell(Metrics(at=clock.now(), running=3, generated_tokens_s=0.0))
    assert asks.due, "requests run, and no token comes"


@pytest.mark.asyncio
async def test_a_rank_that_died_is_reason_to_ask_at_once_though_tokens_flow() -> None:
    desk, clock = _desk(Phase.SERVING)
    asks = _canary("vllm", desk)
    desk.tell(Metrics(at=clock.now(), running=3, generated_tokens_s=120.0))
    assert not asks.due
    asks.hurry()
    assert asks.due


class Silent(Verifier):
    """Asks in vain for a second, in which anything may happen."""

    def __init__(self, clock: ManualClock, meanwhile: Callable[[], None]) -> None:
        self._manual, self._meanwhile = clock, meanwhile

    async def run(self, *_: object) -> Verdict:
        await self._manual.advance(1.0)
        self._meanwhile()
        return Verdict(passed=False, text="no answer in 1 s", silent=True)


def _in_vain(meanwhile: Callable[[Desk, Canary], None]) -> tuple[Canary, Desk, ManualClock]:
    desk, clock = _desk(Phase.SERVING)

    async def tree() -> list[ev.Process]:
        return []

    asks = Canary(
        loader.load("vllm"), VerifyPlan(), desk, lambda _plan: Silent(clock, lambda: meanwhile(desk, asks)), tree
    )
    return asks, desk, clock


URL = parse("http://127.0.0.1:30000/health")
ANSWER = ev.Answer(verdict=ev.Verdict.READY, why="", address="127.0.0.1:30000", status=200)


@pytest.mark.asyncio
async def test_tokens_from_before_the_silence_explain_nothing() -> None:
    asks, desk, clock = _in_vain(lambda _desk, _asks: None)
    desk.tell(Metrics(at=clock.now(), running=1, generated_tokens_s=120.0))
    asks.hurry()
    await asks.run(URL, ANSWER)
    assert desk.phase is Phase.DEGRADED


@pytest.mark.asyncio
async def test_tokens_while_it_was_asked_may_explain_it_and_it_is_asked_again_soon() -> None:
    """They may be the last ones from before: a minute's peace on their account would be a minute's lie."""
    asks, desk, clock = _in_vain(lambda desk, _asks: desk.tell(Metrics(at=clock.now(), generated_tokens_s=120.0)))
    await clock.advance(canary.EVERY_S)
    await asks.run(URL, ANSWER)
    assert desk.phase is Phase.SERVING and not asks.due
    await clock.advance(canary.AGAIN_EVERY_S)
    assert asks.due, "whatever flows meanwhile"


@pytest.mark.asyncio
async def test_a_death_while_it_is_asked_is_not_forgotten() -> None:
    asks, _desk, clock = _in_vain(lambda _desk, asks: asks.hurry())
    await clock.advance(canary.EVERY_S)
    await asks.run(URL, ANSWER)
    assert asks.due
