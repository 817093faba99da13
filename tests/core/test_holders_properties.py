"""Any snapshot at all: nothing raises, nobody is accused without grounds, nothing foreign is ever pre-selected."""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from supervisor.core import gpu as g
from supervisor.core.holders import Holder, HolderClass, classify
from supervisor.core.known import COMM_MAX, program
from supervisor.engines import loader
from tests.core import snapshots

KNOWN = loader.known_holders()
UUIDS = ("GPU-0", "GPU-1", "MIG-a")
PIDS = st.integers(0, 14)
FIGURES = st.none() | st.sampled_from([0, 1, 300 << 20, 2 * g.GIB, 70 * g.GIB, 200 * g.GIB])
RUNS = ("ended", "lives", "unknown")
TITLES = [
    "", "VLLM::EngineCore", "VLLM::Worker_TP0", "sglang::scheduler_TP1", "python3 -m sglang.launch_server --tp 8",
    "vllm serve m", "ray::IDLE", "/opt/ray/raylet", "/usr/lib/xorg/Xorg", "/usr/bin/nvidia-persistenced", "nvtop",
    "nvidia-cuda-mps-server", "lmcache_server 0.0.0.0 1", "ollama runner --model x", "ollama serve", "-bash",
    "/sbin/init", "/usr/lib/systemd/systemd --user", "python3 train.py", "vim", "\x1b]0;x\x07 \u202e'\"", "   ",
    "python3 -c from multiprocessing.spawn import spawn_main; spawn_main(5)", "(sd-pam)", "python3 -m",
]  # fmt: skip
DEVICES = [
    "/dev/nvidia0",
    "/dev/nvidia1",
    "/dev/nvidiactl",
    "/dev/nvidia-uvm",
    "/dev/nvidia-caps/nvidia-cap1",
    "/dev/dxg",
]


@st.composite
def processes(draw: st.DrawFn) -> g.HolderProcess:
    title = draw(st.sampled_from(TITLES) | st.text(max_size=20))
    first = title.split()[0].rpartition("/")[2] if title.split() else ""
    return g.HolderProcess(
        pid=draw(PIDS),
        start_ticks=draw(st.integers(0, 3)),
        started_at=draw(st.sampled_from([0.0, snapshots.AT - 10, snapshots.AT - 90_000, snapshots.AT + 5])),
        ppid=draw(PIDS),
        pgid=draw(PIDS),
        sid=draw(PIDS),
        uid=draw(st.sampled_from([0, 1000, 1001])),
        user=draw(st.sampled_from(["", "ana"])),
        state=draw(st.sampled_from("SRDZXT")),
        comm=draw(st.sampled_from([first[:COMM_MAX], "pt_main_thread", "nvidia-persiste", "VLLM::EngineCor", ""])),
        title=title,
        tty=draw(st.booleans()),
        threads=draw(st.integers(0, 3)),
        run_id=draw(st.none() | st.sampled_from(RUNS)),
        devices=draw(st.none() | st.lists(st.sampled_from(DEVICES), unique=True, max_size=4).map(tuple)),
        same_namespace=draw(st.none() | st.booleans()),
        kill_pending=draw(st.booleans()),
        uninterruptible_looks=draw(st.integers(0, 4)),
        ports=draw(st.sampled_from([(), (30000,), (1, 2)])),
        leader_alive=draw(st.none() | st.booleans()),
    )


@st.composite
def gpus(draw: st.DrawFn, number: int) -> g.Gpu:
    uuid = UUIDS[number]
    uses = st.lists(st.builds(g.Use, pid=PIDS, used_bytes=FIGURES, types=st.sampled_from(["C", "G", "CG", "M", ""])))
    return g.Gpu(
        uuid=uuid,
        index=number,
        minor=draw(st.none() | st.just(number)),
        parent="GPU-0" if uuid.startswith("MIG") else None,
        state=draw(st.sampled_from(g.GpuState)),
        memory=g.Memory(
            kind=draw(st.sampled_from(["device", "unified"])),
            total_bytes=draw(FIGURES),
            used_bytes=draw(FIGURES),
            free_bytes=draw(FIGURES),
        ),
        uses=draw(st.none() | uses.map(lambda items: tuple({item.pid: item for item in items}.values()))),
        gpu_percent=draw(st.none() | st.sampled_from([0, 50, 100])),
        power_w=draw(st.none() | st.sampled_from([0.0, 90.0, 600.0])),
        power_limit_w=draw(st.none() | st.sampled_from([0.0, 700.0])),
    )


@st.composite
def any_snapshot(draw: st.DrawFn) -> g.Snapshot:
    found = draw(st.lists(processes(), max_size=10))
    past = st.builds(
        g.Past,
        pid=PIDS,
        start_ticks=st.integers(0, 3),
        title=st.sampled_from(TITLES),
        uid=st.sampled_from([0, 1000]),
        run_id=st.none() | st.sampled_from(RUNS),
        held=st.dictionaries(st.sampled_from(UUIDS), FIGURES),
        last_at=st.sampled_from([snapshots.AT - 5, snapshots.AT - 500, snapshots.AT + 5]),
    )
    return g.Snapshot(
        at=snapshots.AT,
        driver=g.Driver(state=draw(st.sampled_from(g.DriverState))),
        gpus=tuple(draw(gpus(number)) for number in range(draw(st.integers(0, 3)))),
        processes=tuple({process.pid: process for process in found}.values()),
        coverage=draw(st.sampled_from(g.Coverage)),
        uid=draw(st.sampled_from([0, 1000])),
        container=draw(st.booleans()),
        own_chain=tuple(draw(st.lists(PIDS, max_size=2))),
        runs=(
            g.RunFacts(run_id="ended", live=False, ended_at=draw(st.none() | st.just(1.0))),
            g.RunFacts(run_id="lives", live=True),
        ),
        past=tuple(draw(st.lists(past, max_size=4))),
        looks=draw(st.dictionaries(st.sampled_from(UUIDS), st.integers(0, 5))),
    )


def check(snapshot: g.Snapshot) -> tuple[Holder, ...]:
    """All that holds for every snapshot."""
    found = classify(snapshot, KNOWN)
    by_pid = {process.pid: process for process in snapshot.processes}
    ended = {run.run_id for run in snapshot.runs if not run.live}
    pids = [holder.pid for holder in found if holder.pid is not None]
    assert len(pids) == len(set(pids)), "one holder a pid"
    for holder in found:
        process = by_pid.get(holder.pid) if holder.pid is not None else None
        assert holder.evidence and holder.advice and holder.killable in ("yes", "root", "no")
        if holder.preselected:
            assert holder.class_ is HolderClass.OURS_ORPHAN and holder.killable == "yes" and holder.zombie
        if holder.class_ is HolderClass.OURS_ORPHAN:
            assert process is not None and process.uid == snapshot.uid and process.run_id in ended
        if holder.killable != "no":
            assert process is not None, "nobody can be signalled who is not there"
            assert process.start_ticks == holder.start_ticks
            assert holder.pid not in snapshot.own_chain and (holder.pid or 0) > 1
            assert not KNOWN.is_protected(process)
            assert holder.killable == "root" or process.uid == snapshot.uid
            assert holder.class_ is not HolderClass.OURS_LIVE
        if holder.class_ is HolderClass.GHOST_MEMORY:
            assert snapshot.coverage is g.Coverage.ALL and not snapshot.container
            assert snapshot.driver.state is g.DriverState.OK
            if holder.pid is None:
                gpu = snapshot.gpu(next(iter(holder.held)))
                assert gpu is not None and gpu.held_bytes is not None and gpu.memory.kind == "device"
        assert all(amount is None or amount >= 0 for amount in holder.held.values())
    return found


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example])
@given(any_snapshot())
def test_any_snapshot(snapshot: g.Snapshot) -> None:
    check(snapshot)


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example])
@given(any_snapshot(), st.sampled_from(UUIDS))
def test_an_unknown_figure_gives_no_ghost(snapshot: g.Snapshot, uuid: str) -> None:
    """One figure of one row is taken away: whatever was said of that GPU's memory, no ghost is left in it."""
    unknown = tuple(
        msgspec.structs.replace(gpu, uses=(*(gpu.uses or ()), g.Use(pid=900, used_bytes=None)))
        if gpu.uuid == uuid
        else gpu
        for gpu in snapshot.gpus
    )
    found = check(msgspec.structs.replace(snapshot, gpus=unknown))
    ghosts = [holder for holder in found if holder.class_ is HolderClass.GHOST_MEMORY and holder.pid is None]
    assert not [holder for holder in ghosts if uuid in holder.held]


@pytest.mark.parametrize("name", snapshots.names())
def test_what_holds_for_all_holds_for_the_recorded_ones(name: str) -> None:
    assert check(snapshots.load(name).snapshot()) is not None


@pytest.mark.parametrize("name", snapshots.names())
def test_less_sight_accuses_nobody_more(name: str) -> None:
    """The same situation seen with another user's descriptors hidden, or from a container: no new ghost, nobody
    else pre-selected."""
    snapshot = snapshots.load(name).snapshot()
    before = {holder.pid for holder in classify(snapshot, KNOWN) if holder.preselected}
    for coverage, container in itertools.product((g.Coverage.OWN, g.Coverage.NONE), (False, True)):
        less = msgspec.structs.replace(snapshot, coverage=coverage, container=container)
        found = check(less)
        assert not [holder for holder in found if holder.class_ is HolderClass.GHOST_MEMORY]
        assert {holder.pid for holder in found if holder.preselected} <= before


@pytest.mark.parametrize("name", snapshots.names())
def test_the_order_of_what_is_seen_changes_nothing(name: str) -> None:
    snapshot = snapshots.load(name).snapshot()
    turned = msgspec.structs.replace(
        snapshot, processes=tuple(reversed(snapshot.processes)), past=tuple(reversed(snapshot.past))
    )
    assert classify(turned, KNOWN) == classify(snapshot, KNOWN)


def test_every_class_and_every_report_has_a_situation() -> None:
    situations = [snapshots.load(name) for name in snapshots.names()]
    assert len(situations) >= 44
    classes = {item.class_ for situation in situations for item in situation.expect}
    assert classes == {str(item) for item in HolderClass}
    told = {report for situation in situations for report in situation.reports}
    assert told >= set(range(1, 41))


def test_the_file_of_names_is_no_engine() -> None:
    assert "holders" not in loader.names()
    assert Path(loader.__file__).with_name("known").joinpath("holders.toml").is_file()
    assert set(KNOWN.engines) == {loader.load(name).title for name in loader.names()}
    assert KNOWN.workers and KNOWN.adopters and KNOWN.protected and KNOWN.shared


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("-bash", "bash"),
        ("/sbin/init splash", "init"),
        ("tmux: server", "tmux"),
        ("python3 -m gpustat -i", "gpustat"),
        ("/usr/bin/python3.11 -u /usr/bin/nvitop -m", "nvitop"),
        ("python3 -c import torch", "python3"),
        ("python3 -m", "python3"),
        ("nginx: worker process", "nginx"),
        ("", ""),
    ],
)
def test_program(title: str, name: str) -> None:
    assert program(title) == name
