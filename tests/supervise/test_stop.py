"""The order of a stop, and what it says: on a node of Python objects, with a clock that the test moves."""

from __future__ import annotations

import asyncio

import pytest

from supervisor.core import events as ev
from supervisor.core.gpu import GIB, DriverState, Snapshot
from supervisor.errors import NodeRequestError
from supervisor.supervise import release as release_module
from supervisor.supervise.release import Look
from supervisor.supervise.stop import Stopped, stop_run
from supervisor.testing import ManualClock
from tests.supervise.fakes import RUN, FakeGpu, FakeNode

pytestmark = pytest.mark.asyncio

ROOT = ev.Process(pid=100, start_ticks=1, ppid=50, title="python -m server", state="S")
WORKER = ev.Process(pid=101, start_ticks=2, ppid=100, title="VLLM::Worker_TP0", state="S")


async def stop(
    node: FakeNode, gpu: FakeGpu, clock: ManualClock, *, for_s: float = 200.0, look: Look | None = None
) -> Stopped:
    """A stop to its end, the clock moved along with it."""
    task = asyncio.create_task(
        stop_run(
            node.client, clock=clock, key="k", run_id=RUN, root=ROOT, by="me", grace_s=30.0,
            tell=node.told.append, look=look or gpu.look,
        )
    )  # fmt: skip
    end = clock.now() + for_s
    while not task.done() and clock.now() < end:
        await clock.advance(0.05)
    return await asyncio.wait_for(task, 1)


def names(node: FakeNode) -> list[str]:
    return [name for name, _ in node.signals]


async def test_term_to_the_root_alone_then_to_the_rest_and_nobody_is_killed() -> None:
    clock = ManualClock()
    node = FakeNode(ROOT, WORKER)
    stopped = await stop(node, FakeGpu(node, clock, {100: 1, 101: 70}), clock)
    assert node.signals == [("TERM", [100]), ("TERM", [101])]
    assert stopped.released and stopped.killed == 0
    assert stopped.text.startswith("all 2 processes are gone after 0.1 s (signals by pidfd); released: GPU 0, 71.0 GiB")
    assert node.told[1] == "will stop pid 101 (uid 0, up 0 s, 70.0 GiB on GPU 0): VLLM::Worker_TP0"
    assert node.asked.index("write_stop") < node.asked.index("signal")


async def test_a_root_that_drains_is_asked_once() -> None:
    """A second TERM makes servers drop what they drain: at half the grace the rest gets it, the root does not."""
    clock = ManualClock()
    node = FakeNode(ROOT, WORKER, obey=lambda _pid, name: name == "KILL")
    stopped = await stop(node, FakeGpu(node, clock, {101: 70}), clock)
    assert node.signals == [("TERM", [100]), ("TERM", [101]), ("KILL", [100, 101])]
    assert stopped.killed == 2 and ", 2 by KILL)" in stopped.text


async def test_what_appears_after_kill_is_killed_too() -> None:
    clock = ManualClock()
    node = FakeNode(ROOT, WORKER)
    late = ev.Process(pid=200, start_ticks=9, ppid=1, title="late")

    def obey(pid: int, name: str) -> bool:
        if name == "KILL" and pid == 101 and 200 not in node.processes:
            node.processes[200] = late
            node.marks[RUN].add(200)
        return name == "KILL"

    node.obey = obey
    stopped = await stop(node, FakeGpu(node, clock, {101: 70}), clock)
    assert names(node)[-2:] == ["KILL", "KILL"] and node.signals[-1] == ("KILL", [200])
    assert stopped.released and stopped.killed == 3


@pytest.mark.parametrize(
    ("state", "denied", "words"),
    [
        ("D", False, "in state D, it waits in the kernel and no signal reaches it: reset the GPU or reboot the node"),
        ("S", True, "it belongs to uid 1000 and not to us; as root: kill -KILL 101"),
        ("Z", False, "its main thread has ended and others live"),
        ("R", False, "KILL was sent and it is still there (state R), its parent is pid 1 now"),
    ],
)
async def test_who_is_left_and_why(state: str, denied: bool, words: str) -> None:
    clock = ManualClock()
    worker = ev.Process(pid=101, start_ticks=2, ppid=100, uid=1000, title="VLLM::Worker_TP0", state=state)
    node = FakeNode(ROOT, worker)

    def obey(pid: int, _name: str) -> bool:
        if pid == 100:
            node.processes[101] = ev.Process(pid=101, start_ticks=2, ppid=1, uid=1000, title=worker.title, state=state)
        return pid == 100

    node.obey = obey
    node.denied = {101} if denied else set()
    stopped = await stop(node, FakeGpu(node, clock, {101: 70}), clock)
    assert not stopped.gone and not stopped.may_launch and [item.pid for item in stopped.left] == [101]
    assert "pid 101 VLLM::Worker_TP0 with 70.0 GiB on GPU 0: " in stopped.text and words in stopped.text
    assert stopped.release == "unproved (1 process is still there)"


@pytest.mark.parametrize("recorded", [True, False])
async def test_the_baseline_that_the_launch_wrote_down_is_the_measure(recorded: bool) -> None:
    """Five gigabytes were used before it began, by nobody that can be named: only the record knows that."""
    clock = ManualClock()
    node = FakeNode(ROOT, WORKER)
    gpu = FakeGpu(node, clock, {101: 70})
    gpu.base = 5
    node.baseline = {"GPU-0": 5 * GIB} if recorded else {}
    assert (await stop(node, gpu, clock)).released is recorded


async def test_it_waits_a_hundred_seconds_for_the_memory_and_says_so() -> None:
    clock = ManualClock()
    node = FakeNode(ROOT, WORKER)
    gpu = FakeGpu(node, clock, {101: 70})
    gpu.delay_s = 1000
    began = clock.now()
    stopped = await stop(node, gpu, clock)
    assert 100 <= clock.now() - began < 103
    assert stopped.gone and not stopped.released and not stopped.may_launch
    assert stopped.release.startswith("unproved (GPU 0 still uses 70.0 GiB that no process accounts for")
    waiting = [line for line in node.told if "waiting for the GPUs" in line]
    assert 5 <= len(waiting) <= 8


async def test_a_driver_that_is_silent_before_the_stop_does_not_hold_it_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_module, "BEFORE_WAIT_S", 0.01)
    clock = ManualClock()
    node = FakeNode(ROOT, WORKER)
    gpu = FakeGpu(node, clock, {101: 70})
    answers = asyncio.Event()

    async def look(wait_s: float) -> Snapshot:
        if not node.signals:
            await answers.wait()
        return await gpu.look(wait_s)

    stopped = await stop(node, gpu, clock, look=look)
    assert node.signals and stopped.gone
    assert node.told[0] == "the GPUs' driver has not answered yet; the stop waits 0 s for it at most"
    # Never seen: proved all the same, since nothing without an owner is left on any GPU.
    assert "what was held was not seen: the driver gave no answer before the stop" in stopped.release


async def test_an_answer_that_comes_during_the_stop_is_one_of_a_living_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_module, "BEFORE_WAIT_S", 0.01)
    clock = ManualClock()
    node = FakeNode(ROOT, WORKER, obey=lambda _pid, name: name == "KILL")
    gpu = FakeGpu(node, clock, {101: 70})

    async def look(wait_s: float) -> Snapshot:
        if not node.signals:
            await clock.sleep(5)
        return await gpu.look(wait_s)

    task = asyncio.create_task(stop(node, gpu, clock, look=look))
    await asyncio.sleep(0.05)
    stopped = await task
    assert "70.0 GiB freed" in stopped.release


async def test_a_driver_that_never_answers_is_told_and_forbids_a_launch() -> None:
    clock = ManualClock()
    node = FakeNode(ROOT, WORKER)
    gpu = FakeGpu(node, clock, {})
    gpu.state = DriverState.STUCK

    async def look(_wait_s: float) -> Snapshot:
        raise NodeRequestError("gpu_look", "os", "no more processes")

    stopped = await stop(node, gpu, clock, for_s=300)
    assert stopped.release == "no gpu", "it had no device file open, which is seen without the driver"
    node = FakeNode(ROOT, WORKER)
    stopped = await stop(node, gpu, clock, for_s=300, look=look)
    assert stopped.gone and not stopped.may_launch and "no more processes" in stopped.release


async def test_a_look_that_takes_long_is_told_while_it_takes() -> None:
    clock = ManualClock()
    node = FakeNode(ROOT, WORKER)
    gpu = FakeGpu(node, clock, {101: 70})

    async def look(wait_s: float) -> Snapshot:
        if not node.processes:
            await clock.sleep(40)
        return await gpu.look(wait_s)

    stopped = await stop(node, gpu, clock, look=look)
    waiting = [line for line in node.told if "waiting for the GPUs: their driver has not answered yet" in line]
    assert len(waiting) == 3, "in forty seconds: after two, then every fifteen"
    assert stopped.released


async def test_a_gpu_that_it_comes_to_during_the_stop_is_looked_at() -> None:
    clock = ManualClock()
    node = FakeNode(ROOT, WORKER, obey=lambda _pid, name: name == "KILL")
    gpu = FakeGpu(node, clock, {101: 10})

    async def look(wait_s: float) -> Snapshot:
        if node.signals:
            gpu.held = {101: 70}
        return await gpu.look(wait_s)

    stopped = await stop(node, gpu, clock, look=look)
    assert "70.0 GiB freed" in stopped.release
    assert gpu.looks < 30, "every two seconds, not at each listing"


async def test_nothing_to_stop_and_nothing_known_of_it_forbids_no_launch() -> None:
    """What nobody saw, and what is long gone, must not keep the next run away: preflight looks at the memory."""
    clock = ManualClock()
    node = FakeNode()
    gpu = FakeGpu(node, clock, {})
    node.marks = {}
    stopped = await stop(node, gpu, clock)
    assert stopped.idle and stopped.released and node.signals == [("TERM", [])]
    foreign = FakeGpu(node, clock, {})
    foreign.delay_s = 1000
    foreign.held = {7: 30}  # nobody's memory
    began = clock.now()
    stopped = await stop(node, foreign, clock)
    assert stopped.idle and not stopped.released and stopped.may_launch
    assert clock.now() - began < 20, "not a hundred seconds for what may have been free long since"
