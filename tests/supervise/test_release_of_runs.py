"""`stopped` comes with the proof, and no launch before it: real commands and sessions, and a slow driver."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from supervisor import building
from supervisor.adapters.clock import SystemClock
from supervisor.core.events import Outcome, Phase
from supervisor.core.wait import Decision
from supervisor.headless import jsonl
from supervisor.supervise import session as session_module
from supervisor.supervise.session import Session
from supervisor.supervise.stop import stop_run
from tests.main_job.kit import Site, site_with_gpu
from tests.node.conftest import until
from tests.real.nvml import GIB, StubNvml
from tests.real.processes import Tracker
from tests.scale import FULL

SLOW_S = 8.0 if FULL else 2.0


@pytest.fixture
def here(nvml_stub: StubNvml, tmp_path: Path, tracker: Tracker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A profile on a node with one GPU."""
    with site_with_gpu(tmp_path, tracker, nvml_stub, monkeypatch) as made:
        yield made


def hold(here: Site, stub: StubNvml, gib: int = 40) -> None:
    """The run's root holds memory from now on."""
    stub.claim(stub.gpus[0], here.identity()[0], gib * GIB)


def ended_at(here: Site, number: int = 0) -> float:
    """When the root of the first run was gone, by its keeper."""
    path = sorted(here.state_dir.glob("**/runs/*/exit.json"))[number]
    return float(json.loads(path.read_text())["at"])


# ------------------------------------------------------------------------------------------- commands


def test_a_restart_launches_nothing_before_the_memory_is_free(here: Site, nvml_stub: StubNvml) -> None:
    """The memory falls seconds after the process is gone (SGLang's next server dies of that)."""
    here.serve()
    hold(here, nvml_stub)
    nvml_stub.release_delay_ms = int(SLOW_S * 1000)
    nvml_stub.write()
    restarted = here.start("restart", str(here.file), "--json", "--timeout", "60s")
    assert restarted.exit_code(60) == 0, restarted.said
    _first, second = here.records()
    assert second["started_at"] - ended_at(here) >= SLOW_S
    assert "released: GPU 0, 40.0 GiB freed in" in restarted.out
    assert here.servers_ever() == 2


def test_a_stop_tells_the_proof_and_carries_it_in_its_evidence(here: Site, nvml_stub: StubNvml) -> None:
    here.serve()
    hold(here, nvml_stub)
    stopped = here.start("stop", str(here.file), "--json")
    assert stopped.exit_code() == 0, stopped.said
    (evidence,) = stopped.summary()["evidence"]
    assert evidence["kind"] == "release" and evidence["text"].startswith("proved (40.0 GiB freed on GPU 0 in ")
    assert "40.0 GiB on GPU 0" in next(line for line in stopped.out.splitlines() if "will stop pid" in line)


@pytest.mark.asyncio
async def test_the_stream_has_the_gpus_and_whose_memory_it_is(here: Site, nvml_stub: StubNvml) -> None:
    async with serving(here) as session:
        hold(here, nvml_stub)
        await knows_what_is_held(session)
        hub = session.desk.hub
        await until(lambda: hub.view.gpu is not None and hub.view.gpu.ours_bytes == 40 << 30)
        assert hub.view.gpu is not None and hub.view.gpu.gpus[0].uuid == nvml_stub.gpus[0].uuid
        await until(lambda: hub.view.holders is not None and bool(hub.view.holders.holders))
        assert hub.view.holders is not None
        (holder,) = hub.view.holders.holders
        assert holder.class_ == "ours-live" and holder.held == {nvml_stub.gpus[0].uuid: 40 << 30}
        assert holder.run_id == here.records()[-1]["run_id"]
        for event in (hub.view.gpu, hub.view.holders):  # samples: with --events all alone
            assert jsonl.wanted(event, everything=True) and not jsonl.wanted(event, everything=False)
        summary = session.desk.tally.summary(Decision(outcome=Outcome.REACHED, exit_code=0, reason="r"), 0.0)
        text = {item.kind: item.text for item in summary.evidence}
        assert "40.0 GiB of it by this run" in text["memory"]


def test_a_stop_on_a_node_without_a_gpu(here: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "no-devices").mkdir()
    monkeypatch.delenv("NVML_LIBRARY")
    monkeypatch.setenv("INFERENCE_SUPERVISOR_DEV", str(tmp_path / "no-devices"))
    here.serve()
    stopped = here.start("stop", str(here.file), "--json")
    assert stopped.exit_code() == 0, stopped.said
    assert [item["text"] for item in stopped.summary()["evidence"]] == ["no gpu"]


def test_a_stop_whose_gpu_is_lost_exits_1(here: Site, nvml_stub: StubNvml) -> None:
    here.serve()
    hold(here, nvml_stub)
    stopped = here.start("stop", str(here.file), "--json")

    def plan_shown() -> bool:
        return "will stop pid" in stopped.out

    asyncio.run(until(plan_shown))
    nvml_stub.gpus[0].lost = 1
    nvml_stub.write()
    assert stopped.exit_code() == 1, stopped.said
    summary = stopped.summary()
    assert summary["phase"] == "stopped" and summary["evidence"][0]["text"].startswith("unproved (GPU 0 is lost")


# ------------------------------------------------------------------------------------------- sessions


@asynccontextmanager
async def serving(here: Site) -> AsyncIterator[Session]:
    """A session whose server serves."""
    loaded = building.load_profile(str(here.file), None)
    session, _ = building.make_session(loaded, str(here.file), SystemClock())
    task = asyncio.create_task(session.run())
    try:
        await until(lambda: session.desk.phase is Phase.SERVING, 20)
        yield session
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def evidence_of(session: Session) -> str:
    """What `stopped` was entered on."""
    change = session.desk.hub.view.changes[-1]
    assert change.to is Phase.STOPPED
    return change.evidence[0].text


async def knows_what_is_held(session: Session) -> None:
    def look() -> bool:
        attendance = session.attendance
        assert attendance is not None
        claim = attendance.holding.claim
        return claim is not None and any(held.ours_bytes for held in claim.spaces)

    await until(look)


@pytest.mark.asyncio
async def test_our_own_stop_enters_stopped_with_the_proof_and_not_before(here: Site, nvml_stub: StubNvml) -> None:
    nvml_stub.release_delay_ms = 1500
    nvml_stub.write()
    async with serving(here) as session:
        hold(here, nvml_stub)
        stopped = await session.stop()
        assert stopped is not None and stopped.released
        assert session.desk.hub.view.since - ended_at(here) >= 1.5
        assert "release: proved (40.0 GiB freed on GPU 0" in evidence_of(session)


@pytest.mark.asyncio
async def test_what_somebody_else_stops_is_proved_too(here: Site, nvml_stub: StubNvml) -> None:
    nvml_stub.release_delay_ms = 1500
    nvml_stub.write()
    async with serving(here) as session:
        hold(here, nvml_stub)
        await knows_what_is_held(session)
        record = here.records()[-1]
        await session._connection.client.request(
            "write_stop", key=here.key, run_id=record["run_id"], by="another@there"
        )
        here.process_of("root").terminate()
        await until(lambda: session.desk.phase is Phase.STOPPED, 20)
        assert session.desk.hub.view.since - ended_at(here) >= 1.5
        assert "release: proved (40.0 GiB freed on GPU 0" in evidence_of(session)


@pytest.mark.asyncio
async def test_nothing_that_a_session_tells_waits_for_a_driver_that_hangs(here: Site, nvml_stub: StubNvml) -> None:
    nvml_stub.hang("*")
    nvml_stub.write()
    try:
        async with serving(here) as session:
            await until(
                lambda: nvml_stub.calls("nvmlInitWithFlags")
            )  # it does hang, and the server serves all the same
            here.process_of("root").kill()
            await until(lambda: session.desk.phase is Phase.FAILED, 5)
            assert session.attendance is not None and session.attendance.holding.claim is None
    finally:
        nvml_stub.heal()
        nvml_stub.write()


@pytest.mark.asyncio
async def test_a_restart_without_a_proof_launches_nothing(
    here: Site, nvml_stub: StubNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "stop_run", partial(stop_run, release_wait_s=1.0))
    async with serving(here) as session:
        hold(here, nvml_stub)
        nvml_stub.release_delay_ms = 3_600_000
        nvml_stub.write()
        stopped = await session.restart()
        assert stopped is not None and stopped.gone and not stopped.may_launch
        assert "release: unproved (GPU 0 still uses 40.4 GiB that no process accounts for" in evidence_of(session)
        await asyncio.sleep(0)
        assert any("launches nothing" in item.text for item in session.desk.hub.view.warnings)
        assert len(here.records()) == 1 and here.servers_ever() == 1
        # Freed at last: the same order again finds that, by what was seen before the first stop.
        nvml_stub.release_delay_ms = 0
        nvml_stub.write()
        again = await session.restart()
        assert again is not None and again.may_launch and again.release.startswith("proved (40.0 GiB freed")
        await until(lambda: session.desk.phase is Phase.SERVING, 20)
        assert len(here.records()) == 2
        nvml_stub.release_delay_ms = 0


@pytest.mark.asyncio
async def test_a_server_that_died_by_itself_is_restarted_after_its_memory_is_free(
    here: Site, nvml_stub: StubNvml
) -> None:
    nvml_stub.release_delay_ms = int(SLOW_S * 1000)
    nvml_stub.write()
    async with serving(here) as session:
        hold(here, nvml_stub)
        await knows_what_is_held(session)
        here.process_of("root").kill()
        await until(lambda: session.desk.phase is Phase.FAILED, 20)
        restarted = await session.restart()
        assert restarted is not None and restarted.may_launch
        await until(lambda: session.desk.phase is Phase.SERVING, 20)
        _first, second = here.records()
        assert second["started_at"] - ended_at(here) >= SLOW_S
