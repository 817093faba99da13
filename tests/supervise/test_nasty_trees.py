"""Stops of servers that will not go, through the real node program and the real keeper: nobody of theirs survives, no
bystander gets a signal, and every release is proved against a driver whose memory falls later than the processes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from supervisor.adapters import gpu
from supervisor.adapters.clock import SystemClock
from supervisor.adapters.local import LocalLink
from supervisor.adapters.node import NodeClient
from supervisor.core.gpu import GIB
from supervisor.core.holders import HolderClass, classify
from supervisor.engines import loader
from supervisor.supervise.clear import clear
from supervisor.supervise.stop import Stopped, stop_run
from tests.node.conftest import PYTHON, Node, until
from tests.real.nasty_tree import KINDS
from tests.real.nvml import StubNvml
from tests.scale import scaled
from tests.supervise.trees import Grove, Launched, kill

pytestmark = pytest.mark.asyncio

GRACE_S = 0.4
SIDE_BY_SIDE = 4
RELEASE_DELAY_MS = 300


@pytest_asyncio.fixture
async def grove(nvml_stub: StubNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Grove]:
    """A node program that sees a stub's GPUs."""
    for _ in range(SIDE_BY_SIDE):
        nvml_stub.gpu(base_bytes=400 << 20)
    nvml_stub.release_delay_ms = RELEASE_DELAY_MS
    nvml_stub.write()
    for name, value in nvml_stub.environment().items():
        monkeypatch.setenv(name, value)
    link = LocalLink()
    await link.connect()
    client = await NodeClient.start(link, clock=SystemClock(), python=PYTHON, state_dir=str(tmp_path / "state"))
    made = Grove(Node(link, client, tmp_path / "state"), nvml_stub, tmp_path)
    try:
        yield made
    finally:
        made.end()
        made.node.end_everything()
        await client.close()
        await link.close()


async def _stop(grove: Grove, tree: Launched, told: list[str] | None = None) -> Stopped:
    return await stop_run(
        grove.node.client,
        clock=SystemClock(),
        key=tree.key,
        run_id=tree.run_id,
        root=tree.root,
        by="test",
        grace_s=GRACE_S,
        tell=(told if told is not None else []).append,
        release_wait_s=20,
    )


async def test_nobody_survives_no_bystander_is_touched_every_release_is_proved(grove: Grove) -> None:
    kinds = list(KINDS)
    places: asyncio.Queue[int] = asyncio.Queue()
    for number in range(SIDE_BY_SIDE):
        places.put_nowait(number)

    async def one(number: int) -> None:
        kind = kinds[number % len(kinds)]
        name = f"{kind}-{number}"
        place = await places.get()
        try:
            told: list[str] = []
            tree = await grove.plant(kind, name, place)
            holding = {pid for pid, _ in grove.members(name)}
            held = len(holding)
            stopped = await _stop(grove, tree, told)
            assert not grove.alive(name), (name, stopped)
            assert grove.signals_of(name) == [], name
            assert stopped.gone and stopped.released, (name, stopped)
            assert f"{held * 1.0:.1f} GiB freed" in stopped.text, (name, held, stopped.text)
            # What the plan showed, before anything was touched: who, and what each holds.
            shown = [int(found.group(1)) for line in told if (found := re.match(r"will stop pid (\d+) ", line))]
            assert holding <= set(shown) and sum("1.0 GiB on GPU" in line for line in told) >= held, told
        finally:
            grove.fell(name)
            places.put_nowait(place)

    await asyncio.gather(*(one(number) for number in range(max(len(kinds), scaled(200)))))


async def test_a_tree_whose_keeper_was_killed_too(grove: Grove) -> None:
    """Orphans then go to whoever adopts them: the mark, and what was listed before, still lead to them."""
    for kind in ("setsid_grandchild", "daemon", "double_fork"):
        tree = await grove.plant(kind, kind, 0)
        kill((tree.keeper["pid"], tree.keeper["start_ticks"]))
        stopped = await _stop(grove, tree)
        assert stopped.gone and stopped.released and not grove.alive(kind), (kind, stopped)
        assert grove.signals_of(kind) == []
        grove.fell(kind)


async def test_a_tenant_that_allocates_during_the_stop_is_named_and_does_not_block(grove: Grove) -> None:
    tree = await grove.plant("ignores_term", "mine", 0)
    stopping = asyncio.create_task(_stop(grove, tree))
    await until((grove.folder_of(tree) / "stop.json").exists)
    tenant = await grove.plant("ignores_term", "tenant", 0, beside=False)
    stopped = await stopping
    assert stopped.released, stopped
    assert "not ours, new since then: pid" in stopped.text and "3.0 GiB freed" in stopped.text
    assert len(grove.alive("tenant")) == 3
    assert (await _stop(grove, tenant)).released


async def test_the_orphans_of_an_engine_whose_server_was_killed_are_found_and_cleared(grove: Grove) -> None:
    """`kill -9` of the API server: its core and its workers live on, the port is free, and nothing says so."""
    tree = await grove.plant("vllm", "orphans", 0)
    live = await grove.plant("vllm", "live", 0, beside=False)
    kill((tree.root.pid, tree.root.start_ticks))
    await grove.ended(tree)
    snapshot = await gpu.look(grove.node.client)
    holders = classify(snapshot, loader.known_holders())
    of_run = [item for item in holders if item.run_id == tree.run_id and item.pid is not None]
    assert len(of_run) == 3
    assert {item.class_ for item in of_run} == {HolderClass.OURS_ORPHAN}
    assert all(item.preselected and item.held_bytes == GIB for item in of_run)
    assert {item.class_ for item in holders if item.run_id == live.run_id} == {HolderClass.OURS_LIVE}
    chosen = [item for item in holders if item.preselected]
    assert {item.pid for item in chosen} == {item.pid for item in of_run}

    told: list[str] = []
    # One of them is enough to clear the whole run.
    cleared = await clear(
        grove.node.client, clock=SystemClock(), targets=chosen[:1], grace_s=GRACE_S, tell=told.append, spared=holders
    )
    assert cleared.gone and cleared.released, cleared
    assert "3.0 GiB freed" in cleared.text and not grove.alive("orphans")
    assert len([line for line in told if line.startswith("will stop pid")]) == 3
    assert grove.signals_of("orphans") == [] and len(grove.alive("live")) == 4
    assert not [item for item in classify(await gpu.look(grove.node.client), loader.known_holders()) if item.zombie]


async def test_an_orphan_without_any_mark_belongs_to_the_keeper_that_took_it_in(grove: Grove) -> None:
    tree = await grove.plant("nameless", "nameless", 0)
    kill((tree.root.pid, tree.root.start_ticks))
    await grove.ended(tree)
    holders = classify(await gpu.look(grove.node.client), loader.known_holders())
    (orphan,) = [item for item in holders if item.pid in {member.pid for member in grove.alive("nameless")}]
    assert orphan.class_ is HolderClass.OURS_ORPHAN and orphan.run_id == tree.run_id and orphan.preselected
    cleared = await clear(
        grove.node.client, clock=SystemClock(), targets=[orphan], grace_s=GRACE_S, tell=lambda _text: None
    )
    assert cleared.released and not grove.alive("nameless") and grove.signals_of("nameless") == []


async def test_the_orphans_of_a_run_that_no_record_knows(grove: Grove) -> None:
    """Another state folder, or one that was removed: then the mark alone leads to them, by the pids that are named."""
    tree = await grove.plant("setsid_grandchild", "unknown", 0)
    kill((tree.root.pid, tree.root.start_ticks))
    snapshot = await gpu.look(grove.node.client)
    named = [item for item in classify(snapshot, loader.known_holders()) if item.run_id == tree.run_id]
    targets = [msgspec.structs.replace(item, class_=HolderClass.OURS_ORPHAN, key="", killable="yes") for item in named]
    cleared = await clear(
        grove.node.client, clock=SystemClock(), targets=targets[:1], grace_s=GRACE_S, tell=lambda _text: None
    )
    assert cleared.gone and not grove.alive("unknown") and grove.signals_of("unknown") == []


async def test_what_a_launch_recorded_comes_with_the_tree(grove: Grove) -> None:
    extra = {"engine": "generic", "port": 1, "gpu_baseline": {"GPU-1": 5 * GIB}}
    run = await grove.node.launch(["/bin/sleep", "600"], extra=extra)
    found = await grove.node.client.request("tree", key=grove.node.key, run_id=run["run_id"])
    assert found["gpu_baseline"] == {"GPU-1": 5 * GIB} and len(found["tree"]) == 1
