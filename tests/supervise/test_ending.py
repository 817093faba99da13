"""What is known of an end beside the log: facts gathered from the keeper's record, the tree and the GPUs."""

from __future__ import annotations

import pytest

from supervisor.core import events as ev
from supervisor.core.diagnosis.facts import EndFacts
from supervisor.core.diagnosis.hardware import with_gpu_faults
from supervisor.core.events import Phase
from supervisor.core.gpu import GIB, Driver, DriverState, Gpu, GpuState, Memory, Use, Xid
from supervisor.core.gpu_events import GpuEvent
from supervisor.supervise.ending import EndWatch

ROOT = ev.Process(pid=100, start_ticks=1, title="python -m server")
RANKS = tuple(ev.Process(pid=100 + rank, start_ticks=2, title=f"rank {rank}") for rank in (1, 2))
OFFSET_S = 7.0
"""The node's clock is so much before ours."""


@pytest.fixture
def end() -> EndWatch:
    watch = EndWatch(ROOT, now=1000.0)
    watch.tree(1000.0, (ROOT, *RANKS))
    return watch


def dead(pid: int, at: float, **how: object) -> dict[str, object]:
    return {"at": at + OFFSET_S, "pid": pid, "title": f"rank {pid - 100}", "code": None, "signal": None, **how}


def ended(end: EndWatch, at: float, *, wanted: bool = False, **told: object) -> EndFacts:
    end.ended(at, {"code": 1, "signal": None, "at": at + OFFSET_S, **told}, wanted=wanted, offset_s=OFFSET_S)
    return end.facts(at + 1)


def test_who_died_first_comes_first_with_how_and_by_our_clock(end: EndWatch) -> None:
    end.child_ended(dead(102, 1010.0, signal="SIGSEGV"), OFFSET_S)
    facts = ended(end, 1015.0, dead=[dead(101, 1012.0, code=3), dead(102, 1010.0, signal="SIGSEGV")])
    assert [(item.pid, item.at, item.how) for item in facts.dead] == [
        (102, 1010.0, ev.Exit(signal="SIGSEGV")),
        (101, 1012.0, ev.Exit(code=3)),
    ]


def test_what_the_root_killed_on_its_own_way_out_did_not_die_first(end: EndWatch) -> None:
    facts = ended(end, 1015.0, dead=[dead(101, 1014.9, signal="SIGKILL"), dead(102, 1014.95, signal="SIGABRT")])
    assert [item.pid for item in facts.dead] == [102], "nobody takes his ranks down by SIGABRT"
    kills = {"kills": [{"text": "Killed process 101", "pid": 101, "ours": False}], "looked_at": True}
    facts = ended(end, 1015.0, dead=[dead(101, 1014.9, signal="SIGKILL")], memory=kills)
    assert 101 in [item.pid for item in facts.dead], "the kernel says that it was not the root"


def test_nobody_saw_how_where_no_keeper_lives(end: EndWatch) -> None:
    end.tree(1001.0, (ROOT, RANKS[0]))
    assert end.facts(1002.0).dead == (), "its keeper would have told of it"
    end.keeper_gone()
    end.tree(1003.0, (ROOT,))
    assert [(item.pid, item.title, item.how) for item in end.facts(1004.0).dead] == [(101, "rank 1", None)]
    end.tree(1005.0, ())
    assert [item.pid for item in end.facts(1006.0).dead] == [101], "the root's own end is no child's"


@pytest.mark.parametrize("known", [True, False])
def test_a_kill_of_the_kernel_is_ours_by_the_pids_that_were_ever_seen(end: EndWatch, known: bool) -> None:
    pid = 102 if known else 4711
    end.tree(1001.0, (ROOT, RANKS[0]))  # it is gone since
    kills = [{"text": f"Out of memory: Killed process {pid} (python)", "pid": pid, "ours": False}]
    facts = ended(end, 1015.0, memory={"kills": kills, "looked_at": True, "free_bytes": 5, "total_bytes": 9})
    assert [(kill.pid, kill.ours) for kill in facts.oom_kills] == [(pid, known)]
    assert (facts.oom_looked_at, facts.host_free_bytes, facts.host_total_bytes) == (True, 5, 9)


def test_nothing_is_claimed_of_an_end_that_nobody_wrote_down(end: EndWatch) -> None:
    end.ended(1015.0, {"code": None, "signal": None, "unknown": True, "at": 1.0}, wanted=False, offset_s=OFFSET_S)
    facts = end.facts(1016.0)
    assert (facts.exit, facts.oom_looked_at, facts.oom_kills, facts.silent_s) == (ev.Exit(), False, (), None)


def test_the_silence_of_a_server_that_lives_is_since_the_last_block(end: EndWatch) -> None:
    end.log_grew(1005.0)
    assert end.facts(1025.0).silent_s == 20.0
    assert ended(end, 1030.0, silent_s=25.0).silent_s == 25.0


def test_served_and_asked_to_stop_are_remembered(end: EndWatch) -> None:
    assert not end.facts(1000.0).served
    change = ev.PhaseChanged(at=1.0, from_=Phase.WARMING, to=Phase.HEALTHY, label="200", evidence=())
    end.phase_changed(change)
    assert end.facts(1000.0).served
    assert not end.facts(1000.0).asked_to_stop
    assert ended(end, 1001.0, wanted=True).asked_to_stop


def look(at: float, *used_gib: float, **of_first: object) -> GpuEvent:
    gpus = []
    for index, used in enumerate(used_gib):
        memory = Memory(total_bytes=80 * GIB, used_bytes=int(used * GIB))
        more = of_first if index == 0 else {}
        uses = (Use(pid=101, used_bytes=1),) if index == 0 else ()
        gpus.append(Gpu(uuid=f"GPU-{index}", index=index, minor=index, memory=memory, uses=uses, **more))  # type: ignore[arg-type]
    return GpuEvent(at=at, host="node", driver=Driver(state=DriverState.OK), gpus=tuple(gpus))


def test_a_gpu_that_was_nearly_full_shortly_before_the_end_is_named_with_figures(end: EndWatch) -> None:
    end.gpus(look(1000.0, 79.9, 10.0))
    end.gpus(look(1040.0, 60.0, 79.0))
    end.gpus(look(1049.0, 60.0, 20.0))
    facts = ended(end, 1050.0)
    assert facts.gpus == ("GPU 1: 79.0 of 80.0 GiB",)
    end.gpus(look(1051.0, 80.0, 80.0))
    assert end.facts(1052.0).gpus == facts.gpus, "what others hold after the end is no fact of it"


def test_broken_hardware_of_our_own_gpus_is_told_and_takes_the_place_of_its_consequences(end: EndWatch) -> None:
    broken = Xid(code=79, at=1010.0, bad=True, text="the GPU has fallen off the bus")
    end.gpus(look(1010.0, 40.0, 1.0, xid=broken, state=GpuState.LOST))
    facts = ended(end, 1015.0)
    assert facts.gpu_faults == ("GPU 0: XID 79, the GPU has fallen off the bus",)
    crash = ev.Finding(at=1.0, category="native_crash", detail="x", cause="a kernel crashed", line="CUDA", line_no=7)
    found = with_gpu_faults(crash, facts, 2.0)
    assert found is not None and (found.category, found.line_no) == ("hardware", 7)
    assert "XID 79" in found.cause and "a kernel crashed" in found.cause
    files = ev.Finding(at=1.0, category="model_files", detail="x", cause="a file is missing")
    assert with_gpu_faults(files, facts, 2.0) is files
    assert with_gpu_faults(crash, EndFacts(), 2.0) is crash


@pytest.mark.parametrize(
    "xid",
    [
        Xid(code=79, at=900.0, bad=True, text="of yesterday's run"),
        Xid(code=45, at=1010.0, bad=False, text="comes with every kill"),
    ],
)
def test_what_was_before_the_run_or_is_the_programs_own_is_no_broken_hardware(end: EndWatch, xid: Xid) -> None:
    end.gpus(look(1010.0, 40.0, 1.0, xid=xid))
    assert end.facts(1011.0).gpu_faults == ()


def test_a_neighbours_gpu_is_not_ours(end: EndWatch) -> None:
    broken = Xid(code=79, at=1010.0, bad=True, text="fell off the bus")
    event = look(1010.0, 40.0, 1.0)
    gpus = (event.gpus[0], Gpu(uuid="GPU-1", index=1, minor=1, memory=Memory(), xid=broken))
    end.gpus(GpuEvent(at=1010.0, host="node", driver=event.driver, gpus=gpus))
    assert end.facts(1011.0).gpu_faults == ()
