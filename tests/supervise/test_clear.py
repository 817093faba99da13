"""Left-overs are ended by name or by their run, and nothing else is: refusals, identities, what a run has besides."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from supervisor.core import events as ev
from supervisor.core.holder import Holder, HolderClass
from supervisor.supervise.clear import Cleared, clear
from supervisor.testing import ManualClock
from tests.supervise.fakes import RUN, FakeGpu, FakeNode

pytestmark = pytest.mark.asyncio

WORKERS = [
    ev.Process(pid=pid, start_ticks=pid * 10, ppid=1, title=f"VLLM::Worker_TP{pid - 101}") for pid in (101, 102, 103)
]
STRANGER = ev.Process(pid=500, start_ticks=5000, ppid=400, uid=0, title="python train.py")


def holder(process: ev.Process, class_: HolderClass = HolderClass.OURS_ORPHAN, **more: Any) -> Holder:
    run_id = RUN if class_ is HolderClass.OURS_ORPHAN else None
    fields = {"killable": "yes", "run_id": run_id, "start_ticks": process.start_ticks, **more}
    return Holder(class_=class_, pid=process.pid, title=process.title, **fields)


class Scene:
    """Three orphans of one run, and a stranger, on one GPU."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.node = FakeNode(*WORKERS, STRANGER)
        self.node.marks = {RUN: {101, 102, 103}}
        self.gpu = FakeGpu(self.node, self.clock, {101: 20, 102: 20, 103: 20, 500: 10})
        self.told: list[str] = []

    async def clear(self, *targets: Holder, spared: tuple[Holder, ...] = ()) -> Cleared:
        task = asyncio.create_task(
            clear(
                self.node.client, clock=self.clock, targets=targets, grace_s=5, tell=self.told.append, spared=spared,
                look=self.gpu.look,
            )
        )  # fmt: skip
        for _ in range(4000):
            if task.done():
                break
            await self.clock.advance(0.05)
        return await asyncio.wait_for(task, 1)

    def signalled(self) -> set[int]:
        return {pid for _, pids in self.node.signals for pid in pids}


async def test_one_named_orphan_clears_its_whole_run() -> None:
    scene = Scene()
    cleared = await scene.clear(holder(WORKERS[0]))
    assert cleared.gone and cleared.released and scene.signalled() == {101, 102, 103}
    assert (
        cleared.text.startswith("all 3 processes are gone after ") and "released: GPU 0, 60.0 GiB freed" in cleared.text
    )


async def test_another_named_holder_is_ended_alone() -> None:
    scene = Scene()
    scene.node.marks["another"] = {500}
    child = ev.Process(pid=501, start_ticks=5001, ppid=500, title="its child")
    scene.node.processes[501] = child
    cleared = await scene.clear(holder(STRANGER, HolderClass.FOREIGN_ORPHAN, run_id="another"))
    assert cleared.gone and scene.signalled() == {500} and "10.0 GiB freed" in cleared.text


async def test_kill_at_the_grace_and_who_is_left() -> None:
    scene = Scene()
    scene.node.obey = lambda pid, name: name == "KILL" and pid != 103
    cleared = await scene.clear(holder(WORKERS[0]))
    assert not cleared.gone and [item.pid for item in cleared.left] == [103]
    assert cleared.release == "unproved (1 process is still there)" and "with 20.0 GiB on GPU 0" in cleared.text
    assert scene.node.signals[0] == ("TERM", [101, 102, 103])


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (holder(WORKERS[0], HolderClass.PROTECTED), "is protected, and never touched"),
        (holder(WORKERS[0], HolderClass.OTHER_USER, killable="root", user="eve"), "to eve; as root: kill -TERM"),
        (holder(WORKERS[0], HolderClass.UNINTERRUPTIBLE, killable="no", advice="reboot the node"), "reboot the node"),
        (holder(WORKERS[0], HolderClass.ENGINE_LIVE, start_ticks=7), "belongs to another process by now"),
        (Holder(class_=HolderClass.GHOST_MEMORY, advice="reset the GPU"), "could be ended: reset the GPU"),
        (Holder(class_=HolderClass.PROCESS, pid=1, start_ticks=1, killable="yes"), "pid 1 is never signalled"),
        (Holder(class_=HolderClass.PROCESS, pid=0, start_ticks=1, killable="yes"), "pid 1 is never signalled"),
    ],
)  # fmt: skip
async def test_what_is_never_touched(target: Holder, words: str) -> None:
    scene = Scene()
    scene.gpu.uid = 1000
    cleared = await scene.clear(target)
    assert not cleared.gone and words in cleared.text and cleared.text.startswith("nothing was signalled: ")
    assert "signal" not in scene.node.asked and words in scene.told[0]


async def test_what_we_run_under_is_never_touched_even_where_it_bears_the_runs_id() -> None:
    scene = Scene()
    scene.gpu.own_chain = (102,)
    assert "this supervisor runs under it" in (await scene.clear(holder(WORKERS[1]))).text
    cleared = await scene.clear(holder(WORKERS[0]))
    assert scene.signalled() == {101, 103} and 102 in scene.node.processes
    assert not cleared.released, "it bears the run's id and holds its memory: that is no release"


async def test_a_protected_holder_is_spared_where_its_run_is_cleared() -> None:
    scene = Scene()
    await scene.clear(holder(WORKERS[0]), spared=(holder(WORKERS[2], HolderClass.PROTECTED),))
    assert scene.signalled() == {101, 102}


async def test_a_refusal_beside_what_is_cleared_is_told_and_counts() -> None:
    scene = Scene()
    cleared = await scene.clear(holder(WORKERS[0]), holder(STRANGER, HolderClass.PROTECTED))
    assert scene.signalled() == {101, 102, 103} and not cleared.gone and len(cleared.refused) == 1
    assert cleared.text.endswith("pid 500 python train.py is protected, and never touched")


async def test_one_that_has_gone_meanwhile_is_gone() -> None:
    scene = Scene()
    gone = holder(ev.Process(pid=900, start_ticks=1, title="gone"), HolderClass.FOREIGN_ORPHAN)
    cleared = await scene.clear(gone)
    assert cleared.gone and not scene.signalled() and cleared.text.startswith("nothing of it was left to be ended; ")
