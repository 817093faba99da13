"""The demonstration as a whole: real SSH, node program, keeper and processes; short times."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from supervisor.adapters.clock import SystemClock
from supervisor.core import events as ev
from supervisor.core.events import Phase
from supervisor.core.gpu_events import GpuEvent, Holders
from supervisor.core.holder import HolderClass
from supervisor.demo import faults, guard
from supervisor.demo.simulated.gpus import start_ticks
from supervisor.demo.simulated.options import FAULTS
from supervisor.demo.stage import Play, Stage, Timeline, checked
from supervisor.demo.yesterday import GIB, GPU, KEY
from supervisor.errors import UsageError
from supervisor.supervise.session import Session
from tests.conftest import MakeTmux
from tests.real.processes import poll

SHORT = Timeline(load_s=1.2, warm_s=0.3, health_s=0.05, fall_s=0.3)
PATIENCE_S = 30.0
SUPERVISOR = [sys.executable, "-m", "supervisor.cli"]
ONE_GIB = 1 << 30


def processes_of(folder: Path) -> list[str]:
    """Who has the folder in its command line or environment, or is in it: all that a demonstration starts has."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            words = [*process.cmdline(), *process.environ().values(), process.cwd()]
            words += [file.path for file in process.open_files()]
        except psutil.Error:
            continue
        if any(str(folder) in word for word in words):
            found.append(f"{process.pid} {' '.join(process.cmdline())[:120]}")
    return found


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's home, in which nothing may change; and a place of our own for the demonstration's folder."""
    folder = tmp_path / "home"
    folder.mkdir()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    for name in ("CONFIG", "STATE", "CACHE", "DATA"):
        monkeypatch.delenv(f"XDG_{name}_HOME", raising=False)
    return folder


class Seen:
    """The stream of a session, kept."""

    def __init__(self, session: Session) -> None:
        self.events: list[ev.AnyEvent] = []
        self._more = asyncio.Condition()
        self._subscription = session.desk.hub.subscribe(lines=False)

    async def drain(self) -> None:
        async for batch in self._subscription.batches():
            async with self._more:
                self.events += batch
                self._more.notify_all()

    async def until(self, true: Callable[[ev.AnyEvent], bool]) -> ev.AnyEvent:
        """The first event, seen or to come, of which it is true."""
        async with asyncio.timeout(PATIENCE_S), self._more:
            while not (found := [event for event in self.events if true(event)]):
                await self._more.wait()
        return found[0]

    def of(self, kind: type[GpuEvent]) -> list[GpuEvent]:
        return [event for event in self.events if isinstance(event, kind)]


@asynccontextmanager
async def shown(play: Play) -> AsyncIterator[tuple[Stage, Session, Seen]]:
    async with Stage(play) as stage:
        session = stage.session(SystemClock(), stays=True)
        seen = Seen(session)
        tasks = [asyncio.create_task(session.run()), asyncio.create_task(seen.drain())]
        try:
            yield stage, session, seen
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.asyncio
async def test_from_launch_to_serving_to_a_proved_end(home: Path) -> None:
    async with shown(Play(timeline=SHORT)) as (stage, session, seen):
        assert stage.left_over is not None
        zombie = psutil.Process(stage.left_over.pid)
        busy = asyncio.create_task(
            seen.until(lambda event: isinstance(event, ev.Metrics) and bool(event.generated_tokens_s))
        )
        await seen.until(lambda event: isinstance(event, ev.PhaseChanged) and event.to is Phase.SERVING)
        phases = [event.to for event in seen.events if isinstance(event, ev.PhaseChanged)]
        wanted = [Phase.LAUNCHING, Phase.LOADING, Phase.WARMING, Phase.HEALTHY, Phase.SERVING]
        assert [phase for phase in phases if phase in wanted] == wanted
        await _holders_are_told(seen, stage)
        await _memory_grew(seen)

        assert len(list((stage.folder / "history").rglob("demo-*.json"))) == 1, "a restart will know what it took"

        found = await session.left_overs()
        assert [item.pid for item in found.zombies] == [zombie.pid]
        cleared = await session.clear(found.zombies, found.holders)
        assert cleared.released and f"{GIB} GiB freed" in cleared.text, cleared.text
        assert not zombie.is_running() or zombie.status() == psutil.STATUS_ZOMBIE
        assert session.desk.phase is Phase.SERVING

        metrics = await busy
        assert isinstance(metrics, ev.Metrics)
        assert metrics.running and metrics.generated_tokens_s and metrics.queued is not None and not metrics.why

        stopped = await session.stop()
        assert stopped is not None and stopped.released and stopped.release.startswith("proved"), stopped
        assert "on 8 GPUs" in stopped.release
    assert not stage.folder.exists() and not processes_of(stage.folder)
    assert not list(home.rglob("*")), "it touched what is the user's"


async def _holders_are_told(seen: Seen, stage: Stage) -> None:
    told = await seen.until(lambda event: isinstance(event, Holders) and len(event.holders) == 9)
    assert isinstance(told, Holders) and stage.left_over is not None
    classes = {item.pid: item.class_ for item in told.holders}
    (left,) = [item for item in told.holders if item.zombie]
    assert left.class_ is HolderClass.OURS_ORPHAN and left.pid == stage.left_over.pid and left.preselected
    assert left.key == KEY and "ended 22 h ago" in " ".join(left.evidence)
    assert list(left.held.values()) == [int(GIB * ONE_GIB)]
    assert sorted(classes.values()) == [*([HolderClass.OURS_LIVE] * 8), HolderClass.OURS_ORPHAN]
    titles = sorted(item.title for item in told.holders if item.class_ is HolderClass.OURS_LIVE)
    assert titles == [f"sglang::scheduler_TP{rank}" for rank in range(8)]


async def _memory_grew(seen: Seen) -> None:
    await seen.until(lambda event: isinstance(event, GpuEvent) and (event.ours_bytes or 0) > 8 * 58 * ONE_GIB)
    looks = seen.of(GpuEvent)
    assert looks and all(look.driver.simulated for look in looks)
    used = [[gpu.memory.used_bytes or 0 for gpu in look.gpus] for look in looks]
    assert all(len(amounts) == 8 for amounts in used)
    total = [sum(amounts) for amounts in used]
    assert total == sorted(total) and total[-1] > total[0] + 8 * 20 * ONE_GIB
    extra = used[-1][GPU] - used[-1][0]
    assert 33 * ONE_GIB < extra < 35 * ONE_GIB, "what yesterday left stands beside this run's rank"


def started(*words: str, **more: str) -> subprocess.Popen[str]:
    environment = {**os.environ, **more, "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [*SUPERVISOR, "demo", "--fast", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        env=environment,
    )


def test_a_fault_ends_with_a_finding(home: Path) -> None:
    with started("--json", "--events", "all", "--fault", "die-at-weights") as process:
        out, err = process.communicate(timeout=60)
    lines = [json.loads(line) for line in out.splitlines()]
    assert process.returncode == 1, err
    finding = lines[-1]["finding"]
    assert lines[-1]["kind"] == "summary" and lines[-1]["verdict"] == "failed"
    assert finding["category"] == "model_files" and "SafetensorError" in finding["line"] and finding["line_no"]
    assert [line for line in lines if line["kind"] == "gpu"][-1]["driver"]["simulated"] is True
    assert "SIMULATED" in err and "proved" in err
    temporary = Path(os.environ["TMPDIR"])
    assert not list(temporary.iterdir()) and not processes_of(temporary)
    assert not list(home.rglob("*"))


@pytest.mark.parametrize(
    ("fault", "category", "words"),
    [
        ("die-at-graphs", "engine_bug", "first exception in `__init__` of EAGLEWorkerV2"),
        ("gpu-lost", "hardware", "XID 79"),
    ],
)
def test_a_fault_is_named_by_its_cause(home: Path, fault: str, category: str, words: str) -> None:
    with started("--json", "--fault", fault) as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    finding = json.loads(out.splitlines()[-1])["finding"]
    assert finding["category"] == category and words in finding["cause"] + finding["advice"], finding


def test_nothing_outlives_a_demonstration_that_is_killed(home: Path) -> None:
    temporary = Path(os.environ["TMPDIR"])
    with started("--json", "--engine", "vllm") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line).get("to") == "loading":
                break
        poll(lambda: "VLLM::Worker_TP7" in str(processes_of(temporary)), PATIENCE_S, "the engine's workers")
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
    poll(lambda: not list(temporary.iterdir()), PATIENCE_S, "the end of its folder")
    poll(lambda: not processes_of(temporary), PATIENCE_S, "the end of its processes")


def test_on_a_terminal_it_is_the_console_and_a_hangup_leaves_nothing(home: Path, make_tmux: MakeTmux) -> None:
    temporary = Path(os.environ["TMPDIR"])
    here = {name: os.environ[name] for name in ("HOME", "TMPDIR")}
    terminal = make_tmux([*SUPERVISOR, "demo", "--fast"], width=120, height=40, environment=here)
    screen = terminal.wait_for("ZOMBIE", PATIENCE_S)
    assert "SIMULATED" in screen and "SIM PRO 6000" in screen and "loading" in screen
    os.kill(terminal.pid, signal.SIGHUP)
    assert terminal.wait_exit(PATIENCE_S) == -signal.SIGHUP
    poll(lambda: not list(temporary.iterdir()), PATIENCE_S, "the end of its folder")
    poll(lambda: not processes_of(temporary / "supervisor-demo"), PATIENCE_S, "the end of its processes")
    assert not list(home.rglob("*"))


def test_faults_are_told_by_name() -> None:
    for name, (kind, default, _text) in FAULTS.items():
        assert faults.problem(f"{name}:1" if kind and default is None else name) == ""
        assert f"  {name}" in faults.listed()
    for text, why in (
        ("die-at-graph", "did you mean die-at-graphs?"),
        ("signal", "needs a value"),
        ("die-at-graphs:3", "takes no value"),
    ):
        with pytest.raises(UsageError, match=why.replace("?", r"\?")):
            checked(Play(fault=text))
    with pytest.raises(UsageError, match="cannot be simulated"):
        checked(Play(engine="trtllm"))
    with pytest.raises(UsageError, match="belongs to a simulated"):
        checked(Play(engine="llama.cpp", fault="gpu-lost"))


def test_the_guard_ends_what_a_run_left_and_nobody_else(tmp_path: Path) -> None:
    folder = tmp_path / "supervisor-demo-x"
    with subprocess.Popen(["sleep", "60"]) as ours, subprocess.Popen(["sleep", "60"]) as other:
        for run_id, process, shift in (("one", ours, 0), ("two", other, 1)):
            run = folder / "state" / "machine" / "demo" / "runs" / run_id
            run.mkdir(parents=True)
            root = {"pid": process.pid, "start_ticks": start_ticks(process.pid) + shift}
            (run / "run.json").write_text(json.dumps({"root": root, "keeper": None}))
        guarding = [sys.executable, "-I", "-S", guard.__file__, str(folder)]
        subprocess.run(guarding, stdin=subprocess.DEVNULL, timeout=60, check=True)
        assert ours.wait(0) == -signal.SIGTERM and not folder.exists()
        assert other.poll() is None, "another process that has the pid by now"
        other.kill()
