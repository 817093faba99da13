"""The load as it is told: estimates between the lines of the log, memory for a bar, a silence and what it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from supervisor.core import events as ev
from supervisor.core.eta import Mark, Past
from supervisor.core.gpu import Driver, DriverState, Gpu, Use
from supervisor.core.gpu_events import GpuEvent
from supervisor.core.history import History, RunRecord
from supervisor.core.wait import Limits, Waiter
from supervisor.engines import loader
from supervisor.supervise.begin import Run
from supervisor.supervise.desk import Desk
from supervisor.supervise.follow import Begins, Position
from supervisor.supervise.history import HistoryFile
from supervisor.supervise.plan import Plan
from supervisor.supervise.progressing import LoadWatch
from supervisor.testing import ManualClock

pytestmark = pytest.mark.asyncio

GIB = 1 << 30
ROOT = ev.Process(pid=7, start_ticks=1, title="python3 -m vllm", rss_bytes=GIB)


class Load:
    """A launched run that is loading, and all that is told of it."""

    def __init__(self, *, folder: Path | None = None, engine: str = "vllm", **run: Any) -> None:
        self.clock = ManualClock()
        self.began = self.clock.now()
        self.desk = Desk(clock=self.clock, verify=False, on_phase=self._on_phase)
        plan = Plan(key="k", name="k", engine=loader.load(engine), words=(), env={}, cwd=[])
        settled: Any = None  # nothing of the command is looked at
        self.run = Run(
            run_id="r", settled=settled, position=Position(path="/log", offset=0), root=ROOT, began_at=self.began,
            begins=Begins(offset=0, line_no=1, run_offset=0, run_line=1),
            **{"launched": True, "fingerprint": "f", **run},
        )  # fmt: skip
        self.watch = LoadWatch(plan, self.run, self.desk, node="gpu1", folder=folder)
        self.watch.connected()
        self.watch.tree((ROOT,))
        self.offset, self.seen = 0, 0
        self.told: list[ev.AnyEvent] = []
        tell = self.desk.tell

        def heard(event: ev.AnyEvent) -> None:
            self.told.append(event)
            tell(event)

        self.desk.tell = heard  # type: ignore[method-assign]
        self.desk.note(ev.RunBegan(at=self.began, run_id="r", why="test"))
        self.desk.note(ev.Launched(at=self.began, text="started"))
        self.desk.note(ev.ProcessSeen(at=self.began, root=ROOT))

    def _on_phase(self, change: ev.PhaseChanged) -> None:
        if hasattr(self, "watch"):
            self.watch.phase_changed(change)

    async def at(self, seconds: float) -> Load:
        await self.clock.advance(self.began + seconds - self.clock.now())
        return self

    def say(self, *lines: str) -> list[bool]:
        data = "".join(f"{line}\n" for line in lines).encode()
        block = ev.LogBlock(at=self.clock.now(), data=data, offset=self.offset, line_no=self.seen + 1, lines=len(lines))
        self.offset, self.seen = self.offset + len(data), self.seen + len(lines)
        return list(self.watch.take(block))

    def shard(self, done: int, total: int = 10) -> None:
        percent = done * 100 // total
        self.say(f"Loading safetensors checkpoint shards: {percent}% Completed | {done}/{total} [00:01<00:01, 1.0it/s]")

    def gpus(self, held_bytes: int | None, percent: int = 0) -> None:
        gpu = Gpu(uuid="u", index=0, gpu_percent=percent, uses=(Use(pid=7, used_bytes=held_bytes),))
        driver = Driver(state=DriverState.OK)
        self.desk.tell(GpuEvent(at=self.clock.now(), host="gpu1", driver=driver, gpus=(gpu,), ours_bytes=held_bytes))

    def look(self) -> None:
        self.watch.look(self.clock.now())

    @property
    def progress(self) -> list[ev.Progress]:
        return [event for event in self.told if isinstance(event, ev.Progress)]

    @property
    def warnings(self) -> list[str]:
        return [event.text for event in self.told if isinstance(event, ev.Warning_)]


async def test_a_bar_is_told_with_what_is_left() -> None:
    load = Load()
    for done in range(6):
        (await load.at(10 + 3 * done)).shard(done)
    last = load.progress[-1]
    assert (last.stage, last.done, last.total, last.rests_on) == ("weights", 5, 10, "log bar")
    assert last.eta_s is not None and 15.0 < last.eta_s < 120.0
    assert load.progress[0].eta_s is None, "nothing supported one"


async def test_an_estimate_that_goes_by_the_clock_is_not_told_again() -> None:
    load = Load()
    for done in range(9):
        (await load.at(10 + 3 * done)).shard(done)
    count = len(load.progress)
    for second in (35, 36, 37):
        (await load.at(second)).look()
    assert len(load.progress) == count


async def test_memory_fills_the_bar_that_the_log_has_not() -> None:
    load = Load(weights_bytes=100 * GIB)
    (await load.at(10)).say("INFO 04-08 03:48:33 [gpu_model_runner.py:1258] Starting to load model m...")
    assert load.progress[-1].fraction is None
    for second in range(60):
        await load.at(11 + second)
        load.gpus(second * GIB)
        load.look()
    last = load.progress[-1]
    assert last.fraction is not None and 0.5 < last.fraction < 0.6 and last.rests_on == "memory"
    assert last.eta_s is not None and 40.0 < last.eta_s < 200.0
    assert len(load.progress) < 62, "by steps, not with every look"


async def test_a_launch_is_remembered_when_it_comes_up_and_the_next_one_knows_it(tmp_path: Path) -> None:
    first = Load(folder=tmp_path, weights_bytes=5 * GIB)
    (await first.at(10)).shard(0)
    (await first.at(40)).shard(10)
    await first.at(60)
    answer = ev.Answer(verdict=ev.Verdict.READY, why="200", status=200, bytes=0, owner=ev.Owner.OURS)
    first.desk.note(ev.Answered(at=first.clock.now(), answer=answer))
    assert first.desk.phase is ev.Phase.SERVING
    kept = HistoryFile(tmp_path, "gpu1", "k").read()
    assert [(run.run_id, run.fingerprint, run.weights_bytes, run.past.total_s) for run in kept.runs] == [
        ("r", "f", 5 * GIB, 60.0)
    ]

    second = Load(folder=tmp_path)
    (await second.at(1)).look()
    assert (second.progress[-1].stage, second.progress[-1].rests_on) == ("start", "history")
    assert second.progress[-1].eta_s == 59.0
    (await second.at(10)).shard(0)
    assert second.progress[-1].eta_s is not None and abs(second.progress[-1].eta_s - 50.0) < 2.0


async def test_what_was_not_seen_from_its_launch_is_not_remembered(tmp_path: Path) -> None:
    for broken in (False, True):
        load = Load(folder=tmp_path, launched=broken)
        if broken:
            load.watch.connected()  # the link was lost meanwhile: nobody knows when the lines were written
        (await load.at(10)).shard(10)
        answer = ev.Answer(verdict=ev.Verdict.READY, why="200", status=200, owner=ev.Owner.OURS)
        load.desk.note(ev.Answered(at=load.clock.now(), answer=answer))
        assert HistoryFile(tmp_path, "gpu1", "k").read() == History()


async def test_a_run_that_is_taken_over_does_not_take_its_old_lines_for_new(tmp_path: Path) -> None:
    curve = tuple((10.0 * step, step / 10) for step in range(11))
    past = Past(marks=(Mark(stage="weights", at_s=10.0, curve=curve),), total_s=130.0)
    HistoryFile(tmp_path, "gpu1", "k").add(RunRecord(run_id="old", at=1.0, fingerprint="f", past=past))
    load = Load(folder=tmp_path, launched=False)
    for done in range(6):
        load.shard(done)
    assert load.progress[-1].eta_s is not None and abs(load.progress[-1].eta_s - 70.0) < 6.0


async def test_a_silent_compilation_is_work_and_keeps_a_stall_away() -> None:
    load = Load()
    ninja = [ev.Process(pid=100 + n, start_ticks=1, title="/usr/bin/cicc --c++17") for n in range(16)]
    load.watch.tree((ROOT, *ninja))
    load.say("INFO flashinfer.jit: Loading JIT ops: norm")
    waiter = Waiter(until=ev.Phase.HEALTHY, limits=Limits(timeout_s=9999, stall_s=120.0), began_at=load.began)
    stalled, fed = None, 0
    for second in range(0, 900, 5):
        await load.at(second)
        load.watch.worked({"cpu_s": 15.0 * second, "read_bytes": 0})
        load.look()
        for event in load.told[fed:]:
            waiter.feed(event)
        fed = len(load.told)
        stalled = stalled or waiter.tick(load.clock.now())
    assert stalled is None
    assert load.progress[-1].signs.endswith("children: 16 cicc busy")
    assert load.progress[-1].still_s > 600
    assert load.warnings == []


async def test_gpus_that_spin_are_told_as_a_suspicion_once_and_again_when_it_has_doubled() -> None:
    load = Load()
    load.shard(10)
    for second in range(0, 900, 5):
        await load.at(second)
        load.gpus(40 * GIB, percent=100)
        load.watch.worked({"cpu_s": 8.0 * second, "read_bytes": 0})
        load.look()
    assert [text.partition(" with GPUs at 100 %")[0] for text in load.warnings] == [
        "silent for 3:00",
        "silent for 6:00",
        "silent for 12:00",
    ]
    assert all("looks like a hang" in text for text in load.warnings)
    assert not [event for event in load.progress if event.signs], "spinning is no sign of work"


async def test_nothing_that_moves_is_told_too() -> None:
    load = Load()
    load.shard(3)
    for second in range(0, 300, 5):
        await load.at(second)
        load.gpus(40 * GIB)
        load.watch.worked({"cpu_s": 50.0, "read_bytes": 7})
        load.look()
    assert load.warnings == ["nothing moves: CPU 0 %, memory flat, log silent for 3:00"]


async def test_a_ready_line_is_told_to_whoever_looks_at_health() -> None:
    load = Load()
    assert load.say("noise", "Loading weights took 3 seconds", "INFO:     Application startup complete.") == [
        False,
        True,
    ]


async def test_lines_of_a_server_that_serves_are_no_stages() -> None:
    load = Load()
    answer = ev.Answer(verdict=ev.Verdict.READY, why="200", status=200, owner=ev.Owner.OURS)
    load.desk.note(ev.Answered(at=load.clock.now(), answer=answer))
    count = len(load.progress)
    assert load.say("INFO 1 [x.py:1] Starting to load model m...") == []
    assert len(load.progress) == count
