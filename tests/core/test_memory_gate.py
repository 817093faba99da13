"""The launch gate: what is certain is refused by name, all else is a warning, a missing figure refuses nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.core.gpu import GIB, Driver, DriverState, Gpu, GpuState, HolderProcess, Memory, Snapshot, Use, Xid
from supervisor.core.holders import Holder, HolderClass
from supervisor.core.memory_gate import Checked, asked_of, check
from supervisor.engines import loader

NOW = 1_800_000_000.0
MIB = 1 << 20
TOTAL = 80 * GIB
RESERVED = 600 * MIB
SG = "python3 -m sglang.launch_server --model-path /m"
VL = "vllm serve /m"
LC = "llama-server -m /m.gguf"
TRT = "trtllm-serve /m"


def process(pid: int, **changed: Any) -> HolderProcess:
    good = {"pid": pid, "start_ticks": pid * 7, "state": "S", "title": f"worker {pid}", "started_at": NOW - 7300}
    return HolderProcess(**{**good, **changed})


def gpu(index: int = 0, held: dict[int, float | None] | None = None, *, free: float | None = None, **more: Any) -> Gpu:
    """A GPU of 80 GiB with what these pids hold (GiB; None: no figure); free is what is left unless it is given."""
    used = int(sum(value or 0 for value in (held or {}).values()) * GIB)
    free_bytes = TOTAL - RESERVED - used if free is None else int(free * GIB)
    memory = Memory(total_bytes=TOTAL, reserved_bytes=RESERVED, used_bytes=used, free_bytes=free_bytes)
    uses = tuple(
        Use(pid=pid, used_bytes=None if value is None else int(value * GIB)) for pid, value in (held or {}).items()
    )
    good = {"uuid": f"GPU-{index}{index}aa-uuid", "index": index, "name": "NVIDIA H100", "memory": memory, "uses": uses}
    return Gpu(**{**good, **more})


def node(*gpus: Gpu, dead: Sequence[int] = (), driver: DriverState = DriverState.OK, **more: Any) -> Snapshot:
    """All pids on the GPUs live but the dead."""
    pids = {use.pid for item in gpus for use in item.uses or ()} - set(dead)
    good = {
        "at": NOW,
        "driver": Driver(state=driver, why="" if driver is DriverState.OK else "reboot or reload the module"),
        "gpus": gpus,
        "processes": tuple(process(pid) for pid in sorted(pids)),
    }
    return Snapshot(**{**good, **more})


def holder(pid: int | None, held: dict[str, int | None], class_: HolderClass, **more: Any) -> Holder:
    good = {
        "class_": class_,
        "pid": pid,
        "start_ticks": (pid or 0) * 7,
        "title": f"sglang::scheduler_TP{pid}",
        "run_id": "20270115-071200-ab12",
        "started_at": NOW - 7300,
        "held": held,
        "preselected": class_ is HolderClass.OURS_ORPHAN,
    }
    return Holder(**{**good, **more})


def holders(snapshot: Snapshot, class_: HolderClass = HolderClass.OURS_ORPHAN, **more: Any) -> tuple[Holder, ...]:
    """Every pid of NVML's lists as a holder of this class."""
    held: dict[int, dict[str, int | None]] = {}
    for item in snapshot.gpus:
        for use in item.uses or ():
            held.setdefault(use.pid, {})[item.uuid] = use.used_bytes
    return tuple(holder(pid, what, class_, **more) for pid, what in held.items())


def weights(size: float, least: float | None = None) -> dict[str, Any]:
    least_bytes = int((size if least is None else least) * GIB)
    return {"bytes": int(size * GIB), "least_bytes": least_bytes, "files": 3, "how": "3 files on the disk", "why": ""}


def checked(
    command: str | list[str],
    snapshot: Snapshot,
    found: Sequence[Holder] = (),
    *,
    engine: str | None = None,
    env: dict[str, str] | None = None,
    **facts: Any,
) -> Checked:
    argv = command.split() if isinstance(command, str) else command
    data = loader.load(engine) if engine else loader.detect(argv)
    assert data is not None
    return check(snapshot, found, asked_of({"gpu_env": env or {}, **facts}, argv, data, "kimi"))


LIVE, ORPHAN, OTHER = HolderClass.ENGINE_LIVE, HolderClass.OURS_ORPHAN, HolderClass.OTHER_USER
FULL = [gpu(index, {100 + index: 71.2}) for index in range(8)]
EMPTY = [gpu(index) for index in range(8)]
HALF = [*EMPTY[:4], *FULL[4:]]
MIXED = [*EMPTY[:3], gpu(3, {103: 71.2}, name="NVIDIA A2")]
LOST = gpu(2, state=GpuState.LOST, why="XID 79", memory=Memory(), uses=None)
PCI = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
SH = ["/bin/bash", "-lc"]


def see(value: str, **more: str) -> dict[str, str]:
    return {"CUDA_VISIBLE_DEVICES": value, **more}


BIG = {"weights": weights(500)}

# name, command, gpus, class of their holders, environment, what the refusals say ("" for none), other facts
TABLE: list[tuple[str, str | list[str], list[Gpu], HolderClass, dict[str, str], str, dict[str, Any]]] = [
    # a left-over of ours
    ("orphans on all eight", f"{SG} --tp 8", FULL, ORPHAN, {}, "GPU 3: 71.2 GiB held by pid 103", {}),
    ("orphans on the first of one", SG, FULL, ORPHAN, {}, "GPU 0: 71.2 GiB", {}),
    ("orphans beyond the used four", f"{SG} --tp 4", HALF, ORPHAN, {}, "", {}),
    ("orphans behind dp", f"{SG} --tp 4 --dp 2", HALF, ORPHAN, {}, "GPU 4: 71.2 GiB", {}),
    ("dp attention takes no more", f"{SG} --tp 4 --dp 4 --enable-dp-attention", HALF, ORPHAN, {}, "", {}),
    ("orphans behind pp", f"{SG} --tp 2 --pp-size 4", HALF, ORPHAN, {}, "GPU 7", {}),
    ("visible chosen around them", f"{SG} --tp 4", HALF, ORPHAN, see("0,1,2,3"), "", {}),
    ("visible chosen onto them", f"{SG} --tp 2", HALF, ORPHAN, see("5,6"), "GPU 5: 71.2 GiB", {}),
    ("visible by UUID", f"{SG} --tp 1", HALF, ORPHAN, see("GPU-77aa-uuid"), "GPU 7: 71.2 GiB", {}),
    ("visible by a short UUID", f"{SG} --tp 1", HALF, ORPHAN, see("GPU-77"), "GPU 7: 71.2 GiB", {}),
    ("an ambiguous short UUID", f"{SG} --tp 1", HALF, ORPHAN, see("GPU-"), "", {}),
    ("CUDA stops at the first invalid", f"{SG} --tp 1", HALF, ORPHAN, see("0,99,7"), "", {}),
    ("CUDA stops there, whatever follows", f"{SG} --tp 2", HALF, ORPHAN, see("0,99,7"), "", {}),
    ("none visible", SG, FULL, ORPHAN, see(""), "", {}),
    ("none visible by -1", SG, FULL, ORPHAN, see("-1,0"), "", {}),
    ("a GPU named twice", SG, FULL[:1] + EMPTY[1:], ORPHAN, see("0,0"), "", {}),
    ("different GPUs, no order", f"{SG} --tp 1", MIXED, ORPHAN, see("3"), "", {}),
    ("different GPUs, PCI order", f"{SG} --tp 1", MIXED, ORPHAN, see("3", **PCI), "GPU 3: 71.2 GiB", {}),
    ("different GPUs, all of them", f"{SG} --tp 4", MIXED, ORPHAN, {}, "GPU 3: 71.2 GiB", {}),
    ("llama.cpp takes all visible", LC, HALF, ORPHAN, {}, "GPU 5: 71.2 GiB", {}),
    ("llama.cpp without layers", f"{LC} -ngl 0", FULL, ORPHAN, {}, "", {}),
    ("llama.cpp on one of them", f"{LC} --split-mode none --main-gpu 0", HALF, ORPHAN, {}, "", {}),
    ("llama.cpp on one of all full", f"{LC} -mg 2", FULL, ORPHAN, {}, "GPU 2: 71.2 GiB", {}),
    ("trtllm by tp_size", f"{TRT} --tp_size 8", HALF, ORPHAN, {}, "GPU 6: 71.2 GiB", {}),
    ("trtllm with a file of options", f"{TRT} --tp_size 8 --config x.yaml", HALF, ORPHAN, {}, "", {}),
    ("on the CPU", f"{SG} --device cpu", FULL, ORPHAN, {}, "", {}),
    ("on the CPU by a variable", SG, FULL, ORPHAN, {"SGLANG_USE_CPU_ENGINE": ""}, "", {}),
    ("several nodes", f"{SG} --tp 16 --nnodes 2 --node-rank 0", HALF, ORPHAN, {}, "", {}),
    ("several nodes, all full", f"{SG} --tp 16 --nnodes 2 --node-rank 0", FULL, ORPHAN, {}, "GPU 7", {}),
    ("another base GPU", f"{SG} --tp 2 --base-gpu-id 4", [*FULL[:4], *EMPTY[4:]], ORPHAN, {}, "", {}),
    ("a shell may choose others", [*SH, f"{SG} --tp 8"], HALF, ORPHAN, {}, "", {}),
    ("a shell finds none free", [*SH, f"{SG} --tp 8"], FULL, ORPHAN, {}, "GPU 0", {}),
    ("env before the engine", f"env CUDA_VISIBLE_DEVICES=7 {SG}", HALF, ORPHAN, {}, "GPU 7", {}),
    ("env before the engine, around", f"env CUDA_VISIBLE_DEVICES=1 {SG}", HALF, ORPHAN, see("7"), "", {}),
    ("env that clears all", f"env -i {SG} --tp 8", HALF, ORPHAN, {}, "", {}),
    ("numactl before the engine", f"numactl -N 0 {SG} --tp 8", HALF, ORPHAN, {}, "GPU 7", {}),
    ("a script of somebody's", "python3 start.py vllm serve /m -tp 8", HALF, ORPHAN, {}, "", {}),
    ("in a container", f"docker run --gpus all x {VL} -tp 8", FULL, ORPHAN, {}, "", {}),
    ("through srun", f"srun {SG} --tp 8", FULL, ORPHAN, {}, "", {}),
    ("a flag cut short", f"{SG} --tensor-par 8", HALF, ORPHAN, {}, "GPU 7", {}),
    ("a variable for tp", [*SH, f"{SG} --tp $TP"], HALF, ORPHAN, {}, "", {}),
    # somebody else's memory
    ("foreign servers", f"{SG} --tp 8", FULL, LIVE, {}, "", {}),
    ("other users", f"{SG} --tp 8", FULL, OTHER, {}, "", {}),
    # the engine's own rule
    ("vllm's default", VL, FULL, LIVE, {}, "8.2 GiB of 79.4 GiB are free, the engine's default 0.9 wants 71.5", {}),
    ("vllm with room by its flag", f"{VL} --gpu-memory-utilization 0.1", FULL, LIVE, {}, "", {}),
    ("vllm by its flag", f"{VL} --gpu-memory-utilization=0.2", FULL, LIVE, {}, "memory-utilization 0.2 wants", {}),
    ("vllm by its flag with _", f"{VL} --gpu_memory_utilization 0.1", FULL, LIVE, {}, "", {}),
    ("vllm by its flag cut short", f"{VL} --gpu-memory-util 0.1", FULL, LIVE, {}, "", {}),
    ("vllm with a wrong value", f"{VL} --gpu-memory-utilization lots", FULL, LIVE, {}, "", {}),
    ("vllm with a value over 1", f"{VL} --gpu-memory-utilization 90", FULL, LIVE, {}, "", {}),
    ("vllm on the free ones", f"{VL} -tp 4", HALF, LIVE, {}, "", {}),
    ("vllm reaching the full ones", f"{VL} -tp 5", HALF, OTHER, {}, "GPU 4: 8.2 GiB", {}),
    ("vllm with a file of options", f"{VL} --config c.yaml", FULL, LIVE, {}, "", {}),
    ("vllm with a size of its own", f"{VL} --kv-cache-memory-bytes 1000", FULL, LIVE, {}, "", {}),
    ("vllm on the CPU by a variable", VL, FULL, LIVE, {"VLLM_CPU_KVCACHE_SPACE": ""}, "", {}),
    ("vllm with its old core, by a variable", VL, FULL, LIVE, {"VLLM_USE_V1": ""}, "", {}),
    ("vllm's old core and an orphan", VL, FULL, ORPHAN, {"VLLM_USE_V1": ""}, "orphan of run", {}),
    ("vllm under ray", f"{VL} -tp 8 --distributed-executor-backend ray", HALF, LIVE, {}, "", {}),
    ("vllm under mp", f"{VL} -tp 8 --distributed-executor-backend mp", HALF, LIVE, {}, "GPU 7", {}),
    ("vllm in a shell", [*SH, VL], FULL, LIVE, {}, "", {}),
    ("a little too full", VL, [gpu(0, {9: 8.1})], LIVE, {}, "", {}),
    ("sglang has no such rule", f"{SG} --mem-fraction-static 0.9", FULL, LIVE, {}, "", {}),
    # the weights
    ("weights too big for the rest", f"{SG} --tp 8", FULL, LIVE, {}, "the weights are 500.0 GiB", BIG),
    ("weights that fit", f"{SG} --tp 8", EMPTY, LIVE, {}, "", BIG),
    ("weights that never fit", SG, EMPTY, LIVE, {}, "for one GPU: 500.0 GiB each", BIG),
    ("weights that may become narrow", SG, EMPTY, LIVE, {}, "", {"weights": weights(100, 50)}),
    ("weights quantized on the fly", f"{SG} --quantization fp8", EMPTY, LIVE, {}, "", BIG),
    ("weights offloaded", f"{VL} --cpu-offload-gb 400", EMPTY, LIVE, {}, "", BIG),
    ("dummy weights", f"{SG} --load-format dummy", EMPTY, LIVE, {}, "", BIG),
    ("experts over more GPUs", f"{VL} -dp 8 --enable-expert-parallel", EMPTY, LIVE, {}, "", BIG),
    ("stages of a pipeline, some room", f"{SG} --pp 2", HALF[3:], LIVE, {}, "", {"weights": weights(100)}),
    ("stages of a pipeline, no room", f"{SG} --pp 2", FULL[:2], LIVE, {}, "100.0 GiB", {"weights": weights(100)}),
    ("llama.cpp does not shard", LC, EMPTY, LIVE, {}, "", {"weights": weights(900)}),
    ("weights not measured", SG, EMPTY, LIVE, {}, "", {"weights": {"bytes": None, "why": "no answer"}}),
    # lost
    ("a lost GPU among all", f"{SG} --tp 4", [*EMPTY[:2], LOST, EMPTY[3]], LIVE, {}, "GPU 2 is lost: XID 79", {}),
    ("a lost GPU beside enough", f"{SG} --tp 3", [*EMPTY[:2], LOST, EMPTY[3]], LIVE, {}, "", {}),
    ("a lost GPU by its UUID", SG, [*EMPTY[:2], LOST], LIVE, see("GPU-22aa-uuid"), "GPU 2 is lost", {}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("command", "gpus", "class_", "env", "refused", "facts"),
    [case[1:] for case in TABLE],
    ids=[case[0] for case in TABLE],
)
def test_what_is_refused_and_what_is_not(
    command: str | list[str],
    gpus: list[Gpu],
    class_: HolderClass,
    env: dict[str, str],
    refused: str,
    facts: dict[str, Any],
) -> None:
    snapshot = node(*gpus)
    result = checked(command, snapshot, holders(snapshot, class_), env=env, **facts)
    text = "\n".join(result.refusals)
    assert bool(text) == bool(refused), text
    assert refused in text
    assert bool(result.advice) == bool(text)
    assert "--force" in result.advice or not refused


def test_the_table_is_long_enough() -> None:
    assert len(TABLE) >= 40


def test_a_refusal_names_the_holder_and_what_clears_it() -> None:
    snapshot = node(*FULL)
    result = checked(f"{SG} --tp 8", snapshot, holders(snapshot))
    assert len(result.refusals) == 8
    assert result.refusals[3] == (
        "GPU 3: 71.2 GiB held by pid 103 sglang::scheduler_TP103, orphan of run 20270115-071200-ab12, 2 h old"
    )
    assert "`supervisor zombies kimi --kill`" in result.advice and "--clean" in result.advice
    assert [item.pid for item in result.clean] == [100 + index for index in range(8)]


def test_no_title_of_another_tenant_drives_the_terminal_of_who_is_refused() -> None:
    snapshot = node(gpu(0, {100: 71.2}))
    evil = "\x1b]0;owned\x07\x1b[2Jworker\u202e"
    for class_, command in ((HolderClass.OURS_ORPHAN, SG), (OTHER, VL), (OTHER, SG)):
        result = checked(command, snapshot, holders(snapshot, class_, title=evil, user=evil))
        told = (*result.refusals, *result.warnings)
        assert told and all(text.isprintable() and "worker" in text for text in told), told


def test_a_bare_context_of_an_orphan_refuses_nothing() -> None:
    """It is in nobody's way, and named all the same."""
    snapshot = node(gpu(0, {100: 0.4}))
    result = checked(SG, snapshot, holders(snapshot))
    assert not result.refusals and "pid 100" in result.warnings[0] and "orphan of run" in result.warnings[0]


def test_many_orphans_alike_are_one_sentence() -> None:
    snapshot = node(gpu(0, {100 + number: 0.5 for number in range(40)}))
    result = checked(SG, snapshot, holders(snapshot))
    assert result.refusals == (
        "GPU 0: 20.0 GiB held by 40 processes sglang::scheduler_TP100 (pids 100, 101, 102 and 37 more), "
        "orphans of run 20270115-071200-ab12, 2 h old",
    )
    assert len(result.clean) == 40
    others = checked(SG, snapshot, holders(snapshot, OTHER, user="bob"))
    assert not others.refusals and len(others.warnings) == 1 and "40 processes" in others.warnings[0]


def test_clean_takes_only_what_is_ours_and_on_these_gpus() -> None:
    snapshot = node(*FULL)
    found = (*holders(snapshot)[:5], *holders(snapshot, OTHER)[5:])
    result = checked(f"{SG} --tp 2", snapshot, found)
    assert [item.pid for item in result.clean] == [100, 101]
    assert len(result.refusals) == 2


def test_without_a_left_over_of_ours_no_cleaning_is_advised() -> None:
    snapshot = node(*FULL)
    result = checked(VL, snapshot, holders(snapshot, LIVE))
    assert result.advice == "--force launches as it is" and result.clean == ()
    assert "held by pid 100" in result.refusals[0]


def test_many_lines_are_cut_with_a_count() -> None:
    snapshot = node(*[gpu(index, {1000 * index + n: 4.0 for n in range(5)}) for index in range(8)])
    result = checked(f"{SG} --tp 8", snapshot, holders(snapshot))
    assert len(result.refusals) == 16 and result.refusals[-1] == "and 25 more of the kind"


# ------------------------------------------------------------------------------------------------- what is not certain


def test_memory_of_the_dead_may_be_free_in_a_moment() -> None:
    snapshot = node(*FULL, dead=range(100, 108))
    result = checked(VL, snapshot, holders(snapshot, HolderClass.TEARDOWN))
    assert result.refusals == ()
    assert any("its memory is being released" in text for text in result.warnings)
    assert any("8.2 GiB of 79.4 GiB are free" in text for text in result.warnings)


@pytest.mark.parametrize("state", [{"state": "Z"}, {"kill_pending": True}, {"state": ""}])
def test_memory_of_the_dying_may_be_free_in_a_moment(state: dict[str, Any]) -> None:
    snapshot = node(FULL[0], processes=(process(100, **state),))
    assert checked(VL, snapshot, holders(snapshot, LIVE)).refusals == ()
    assert checked(VL, node(FULL[0]), holders(snapshot, LIVE)).refusals  # the same process alive


def test_in_a_container_a_number_alone_is_no_process_of_ours() -> None:
    bare = node(FULL[0], container=True)
    assert checked(VL, bare, holders(bare, LIVE)).refusals == ()
    held = node(FULL[0], container=True, processes=(process(100, devices=("/dev/nvidia0",)),))
    assert checked(VL, held, holders(held, LIVE)).refusals


def test_memory_that_nobody_is_named_for_is_a_warning() -> None:
    snapshot = node(gpu(0, free=3.0))
    for command in (SG, VL, LC):
        result = checked(command, snapshot, weights=weights(10))
        assert result.refusals == ()
        assert any("only 3.0 GiB of 79.4 GiB are free, and no process is named" in text for text in result.warnings)


def test_an_orphan_with_a_device_file_alone() -> None:
    """Memory that somebody dead is named for, and an heir of ours: it holds. An empty GPU: it does not."""
    heir = holder(7, {gpu().uuid: None}, ORPHAN)
    used = node(FULL[0], dead=[100])
    assert "pid 7" in checked(SG, used, [heir]).refusals[0]
    empty = checked(SG, node(gpu()), [heir])
    assert empty.refusals == () and any("has its device file open" in text for text in empty.warnings)


def test_an_orphan_that_holds_nothing_is_no_reason() -> None:
    snapshot = node(gpu(0, {100: 0.0}))
    result = checked(SG, snapshot, holders(snapshot))
    assert result.refusals == () and len(result.clean) == 1


def test_an_orphan_that_the_driver_names_without_a_figure() -> None:
    snapshot = node(gpu(0, {100: None}))
    result = checked(SG, snapshot, holders(snapshot))
    assert "the driver gives no figure" in result.refusals[0]


def test_unified_memory_counts_what_is_available() -> None:
    """What the page cache holds is available, and no reason; what a living server holds is one."""
    memory = Memory(kind="unified", total_bytes=120 * GIB, used_bytes=20 * GIB, free_bytes=100 * GIB)
    room = node(gpu(0, memory=memory))
    assert checked(f"{VL} --gpu-memory-utilization 0.8", room).refusals == ()
    full = gpu(0, {9: 104.0}, memory=msgspec.structs.replace(memory, used_bytes=110 * GIB, free_bytes=10 * GIB))
    result = checked(f"{VL} --gpu-memory-utilization 0.8", node(full), holders(node(full), LIVE))
    assert "10.0 GiB of 120.0 GiB are free" in result.refusals[0]


def test_mig_instances_by_their_uuid() -> None:
    whole = gpu(0, mig=True, memory=Memory(), uses=None, state=GpuState.UNREADABLE)
    small = Memory(total_bytes=20 * GIB, reserved_bytes=0, used_bytes=18 * GIB, free_bytes=2 * GIB)
    one = gpu(0, {100: 18.0}, uuid="MIG-1111", parent=whole.uuid, memory=small)
    other = gpu(0, uuid="MIG-2222", parent=whole.uuid, memory=msgspec.structs.replace(small, free_bytes=20 * GIB))
    snapshot = node(whole, one, other)
    found = holders(snapshot)
    result = checked(SG, snapshot, found, env=see("MIG-1111"))
    assert "MIG instance 0 of GPU 0: 18.0 GiB held by pid 100" in result.refusals[0]
    assert checked(SG, snapshot, found, env=see("MIG-2222")).refusals == ()
    assert checked(SG, snapshot, found).refusals == ()  # which instance CUDA takes is not certain


def test_a_gpu_fewer_than_before_makes_the_order_uncertain() -> None:
    driver = Driver(state=DriverState.OK, count_before=8)
    snapshot = node(*HALF)
    lost = msgspec.structs.replace(snapshot, driver=driver)
    assert checked(f"{SG} --tp 1", lost, holders(lost), env=see("7")).refusals == ()
    assert checked(f"{SG} --tp 1", snapshot, holders(snapshot), env=see("7")).refusals
    gone = node(*HALF[1:])  # the indices have a gap
    assert checked(f"{SG} --tp 1", gone, holders(gone), env=see("6")).refusals == ()


# ------------------------------------------------------------------------------------------------- what is only told


@pytest.mark.parametrize(
    ("snapshot", "command", "more", "words"),
    [
        (node(*FULL[:2]), f"{SG} --tp 8", {}, "asks for 8 GPUs (tp 8), and it will see 2"),
        (node(*EMPTY), f"{SG} --tp 4", {"env": see("0,1")}, "asks for 4 GPUs (tp 4), and it will see 2"),
        (node(*EMPTY), f"{SG} --tp 4 --pp 2 --dp 2", {}, "asks for 16 GPUs (tp 4 × pp 2 × dp 2)"),
        (node(*EMPTY), SG, {"env": see("-1")}, "shows no GPU of this node: the server will see none"),
        (node(gpu(xid=Xid(code=79, at=NOW, bad=True, text="fallen off the bus"))), SG, {}, "XID 79 (fallen off"),
        (node(gpu(ecc_uncorrected=3)), SG, {}, "3 uncorrected memory errors"),
        (node(gpu(state=GpuState.UNREADABLE, why="no permission", memory=Memory())), SG, {}, "cannot be read: no perm"),
        (node(driver=DriverState.STUCK), SG, {}, "driver does not answer, so GPU memory was not looked at: reboot"),
        (node(driver=DriverState.UNAVAILABLE), SG, {}, "driver cannot be used"),
        (node(*EMPTY), f"{SG} --tp 2", {"shm": {"total_bytes": 64 * MIB, "free_bytes": 64 * MIB}}, "--shm-size"),
        (node(*EMPTY), SG, {"folders": [{"path": "/tmp", "source": "", "noexec": True}]}, "/tmp is mounted noexec"),
        (node(*EMPTY), SG, {"folders": [{"path": "/x", "source": "TMPDIR", "noexec": True}]}, "/x (TMPDIR) is mount"),
        (node(*HALF), f"{SG} --tp 4 --base-gpu-id 4", {"class_": ORPHAN}, "--base-gpu-id may choose others"),
        (node(*FULL), SG, {"class_": OTHER, "user": "bob"}, "of user bob, 2 h old; 8.2 GiB of 79.4 GiB are free"),
        (node(*FULL), SG, {"class_": HolderClass.OURS_LIVE}, "of the live run 20270115-071200-ab12"),
        (node(*FULL), f"{SG} --mem-fraction-static 0.9", {"class_": LIVE}, "--mem-fraction-static 0.9 wants 71.5 GiB"),
        (node(*FULL), f"{VL} --cpu-offload-gb 9 --gpu-memory-utilization 0.1", BIG, "make them few"),
    ],
)  # fmt: skip
def test_what_is_told(snapshot: Snapshot, command: str, more: dict[str, Any], words: str) -> None:
    facts = dict(more)
    class_, user = facts.pop("class_", LIVE), facts.pop("user", "")
    result = checked(command, snapshot, holders(snapshot, class_, user=user), **facts)
    assert result.refusals == ()
    assert any(words in text for text in result.warnings), result.warnings


@pytest.mark.parametrize(
    ("snapshot", "command", "facts"),
    [
        (node(driver=DriverState.ABSENT), f"{SG} --tp 8", {"shm": {"total_bytes": 1, "free_bytes": 1}}),
        (node(*EMPTY), f"{SG} --tp 8", {}),
        (node(*EMPTY), f"{SG} --tp 16 --nnodes 2", {}),
        (node(*EMPTY), SG, {"shm": {"total_bytes": 64 * MIB, "free_bytes": 64 * MIB}}),
        (node(*EMPTY), f"{SG} --tp 2", {"shm": {"total_bytes": 64 * GIB, "free_bytes": 60 * GIB}}),
        (node(*EMPTY), SG, {"folders": [{"path": "/tmp", "source": "", "noexec": None}]}),
        (node(gpu(0, {9: 0.3})), SG, {}),
        (node(gpu(xid=Xid(code=31, at=NOW, bad=False))), SG, {}),
    ],
)
def test_a_good_node_is_silent(snapshot: Snapshot, command: str, facts: dict[str, Any]) -> None:
    assert checked(command, snapshot, holders(snapshot, LIVE), **facts) == Checked()


@pytest.mark.parametrize("class_", [HolderClass.PROTECTED, HolderClass.UTILISATION_LATCH])
def test_what_is_no_matter_is_silent(class_: HolderClass) -> None:
    snapshot = node(gpu(0, {5: 1.0}))
    assert checked(LC, snapshot, holders(snapshot, class_)) == Checked()


def test_an_engine_that_is_not_known_is_never_refused() -> None:
    snapshot = node(*FULL)
    result = checked(["./my-server"], snapshot, holders(snapshot), engine=loader.GENERIC)
    assert result.refusals == () and len(result.warnings) == 8
    assert len(result.clean) == 8  # --clean may be asked for all the same


# ---------------------------------------------------------------------------------------- never without a figure

FIGURES = st.one_of(st.none(), st.integers(0, 100 * GIB))


@st.composite
def gpus(draw: st.DrawFn, missing: str) -> Gpu:
    """A GPU of any figures, where one is always missing."""
    index = draw(st.integers(0, 7))
    memory = {name: draw(FIGURES) for name in ("total_bytes", "reserved_bytes", "used_bytes", "free_bytes")}
    pids = draw(st.lists(st.integers(100, 110), unique=True, max_size=3))
    uses: tuple[Use, ...] | None = tuple(Use(pid=pid, used_bytes=draw(st.integers(1, 100 * GIB))) for pid in pids)
    if missing == "uses":
        uses = None
    elif missing == "use":
        uses = (*(uses or ()), Use(pid=111, used_bytes=None))
    else:
        memory[missing] = None
    kind = "device" if missing == "reserved_bytes" else draw(st.sampled_from(["device", "unified"]))
    return gpu(index, memory=Memory(kind=kind, **memory), uses=uses)


@pytest.mark.parametrize("missing", ["total_bytes", "reserved_bytes", "free_bytes", "uses", "use"])
@settings(max_examples=60, deadline=None)
@given(data=st.data(), size=st.floats(1, 2000))
def test_a_figure_that_is_missing_refuses_nothing(missing: str, data: st.DataObject, size: float) -> None:
    listed = data.draw(st.lists(gpus(missing), min_size=1, max_size=4))
    snapshot = node(*listed)
    for command in (f"{VL} -tp 2", f"{SG} --tp 2"):
        assert checked(command, snapshot, holders(snapshot, LIVE), weights=weights(size)).refusals == ()


@settings(max_examples=200, deadline=None)
@given(data=st.data(), tp=st.integers(1, 8), share=st.floats(0.05, 1), size=st.floats(1, 800))
def test_a_refusal_is_of_a_gpu_that_is_truly_too_full(data: st.DataObject, tp: int, share: float, size: float) -> None:
    """An independent sum over the used GPUs: refused only if one of them cannot have what is asked, whoever goes."""
    filled = data.draw(st.lists(st.floats(0, 78), min_size=1, max_size=8))
    alive = data.draw(st.lists(st.booleans(), min_size=len(filled), max_size=len(filled)))
    snapshot = node(
        *[gpu(index, {100 + index: amount}) for index, amount in enumerate(filled)],
        dead=[100 + index for index, lives in enumerate(alive) if not lives],
    )
    command = f"{VL} -tp {tp} --gpu-memory-utilization {share:.3f}"
    result = checked(command, snapshot, holders(snapshot, LIVE), weights=weights(size))
    total = (TOTAL - RESERVED) / GIB
    room = [total - (amount if lives else 0) for amount, lives in zip(filled, alive, strict=True)][:tp]
    cannot = any(left < share * total + 0.1 for left in room) or any(left < size / tp for left in room)
    assert not result.refusals or cannot
    surely = any(left < (share - 0.02) * total for left in room)
    assert result.refusals or not surely
