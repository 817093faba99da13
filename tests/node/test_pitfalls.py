"""Pitfalls P1 to P10 of the GPU field report, by id: what a GPU's figures and lists may look like.

Through the real nvidia-ml-py, in the real child process, on a driver's library that is built from C (tests/real). What
a pitfall asks of the layers above the child stands in test_snapshot.py and in the tests of holders and release.
"""

from __future__ import annotations

import os

import msgspec
import psutil
import pytest

from supervisor.core.gpu import Gpu, GpuState
from tests.node.gpu_harness import HOST_PID, GpuChild, look, one_look
from tests.real import nvml
from tests.real.nvml import GIB, StubNvml

# ------------------------------------------------------------------------------------------------ unified memory


@pytest.mark.parametrize("without_version_1", [False, True])
def test_p01_memory_of_the_machine_where_both_versions_are_not_supported(
    nvml_stub: StubNvml, without_version_1: bool
) -> None:
    gpu = nvml_stub.gpu(name="NVIDIA GB10", unified=True)
    if without_version_1:
        nvml_stub.fail("nvmlDeviceGetMemoryInfo", nvml.NOT_SUPPORTED)
    nvml_stub.proc(gpu, HOST_PID, 30 * GIB, tied=False)
    nvml_stub.proc(gpu, HOST_PID + 1, 2 * GIB, "G", tied=False)
    (seen,) = one_look(nvml_stub)
    machine = psutil.virtual_memory()
    assert (seen.state, seen.memory.kind) == (GpuState.OK, "unified")
    assert seen.memory.total_bytes == machine.total
    assert seen.memory.free_bytes is not None
    assert abs(seen.memory.free_bytes - machine.available) < GIB
    assert seen.memory.used_bytes == 32 * GIB  # never total minus free: that is everybody's
    assert seen.memory.reserved_bytes is None


def test_p01_an_unknown_share_makes_the_whole_unknown(nvml_stub: StubNvml) -> None:
    gpu = nvml_stub.gpu(unified=True)
    nvml_stub.proc(gpu, HOST_PID, 30 * GIB, tied=False)
    nvml_stub.proc(gpu, HOST_PID + 1, GIB, tied=False, told="NA")
    (seen,) = one_look(nvml_stub)
    assert seen.memory.used_bytes is None and seen.errors["used_bytes"] == "no_data"
    assert seen.memory.free_bytes is not None


@pytest.mark.parametrize(
    "code, word", [(nvml.UNKNOWN, "unknown"), (nvml.NO_PERMISSION, "no_permission"), (nvml.TIMEOUT, "timeout")]
)
def test_p01_any_other_error_is_no_unified_memory(nvml_stub: StubNvml, code: int, word: str) -> None:
    nvml_stub.gpu(name="NVIDIA GB10", unified=True)
    nvml_stub.fail("nvmlDeviceGetMemoryInfo_v2", code)
    (seen,) = one_look(nvml_stub)
    assert seen.state is GpuState.UNREADABLE and seen.errors["memory"] == word
    assert seen.memory.total_bytes is None and not seen.complete


def test_p01_a_discrete_part_in_trouble_never_shows_the_machines_memory(nvml_stub: StubNvml) -> None:
    nvml_stub.gpu(name="NVIDIA B200", capability=100, unified=True)
    (seen,) = one_look(nvml_stub)
    assert seen.state is GpuState.UNREADABLE and "not_supported" in seen.why
    assert seen.memory.kind == "device" and seen.memory.total_bytes is None


def test_p01_a_total_that_the_driver_of_such_a_part_makes_up_is_not_believed(nvml_stub: StubNvml) -> None:
    nvml_stub.gpu(name="NVIDIA GB10", capability=121, total_bytes=3 * GIB)
    (seen,) = one_look(nvml_stub)
    assert seen.memory.kind == "unified" and seen.memory.total_bytes == psutil.virtual_memory().total


def test_p02_a_total_of_nothing(nvml_stub: StubNvml) -> None:
    nvml_stub.gpu(name="NVIDIA Thor", capability=110, total_bytes=0, reserved_bytes=0)
    nvml_stub.gpu(name="NVIDIA H100", capability=90, total_bytes=0)
    nvml_stub.gpu(name="NVIDIA Thor", capability=110, total_bytes=0, lost=1)
    unified, broken, lost = one_look(nvml_stub)
    assert unified.memory.kind == "unified" and unified.memory.total_bytes == psutil.virtual_memory().total
    assert broken.state is GpuState.UNREADABLE and broken.errors["memory"] == "no_data"
    assert lost.state is GpuState.LOST and lost.memory.total_bytes is None


# ------------------------------------------------------------------------------------------------ processes' memory


def test_p03_not_available_is_null_and_nothing_follows_from_the_rest(nvml_stub: StubNvml) -> None:
    gpu = nvml_stub.gpu(base_bytes=GIB)
    nvml_stub.proc(gpu, HOST_PID, 20 * GIB, tied=False, told="NA")
    nvml_stub.proc(gpu, HOST_PID + 1, 10 * GIB, tied=False)
    (seen,) = one_look(nvml_stub)
    assert seen.uses is not None
    assert {use.pid: use.used_bytes for use in seen.uses} == {HOST_PID: None, HOST_PID + 1: 10 * GIB}
    assert seen.memory.used_bytes == 31 * GIB
    assert seen.unexplained_bytes is None


def test_p04_managed_memory_leaves_more_unexplained_than_told_and_never_less_than_nothing(nvml_stub: StubNvml) -> None:
    under, over = nvml_stub.gpu(), nvml_stub.gpu()
    nvml_stub.proc(under, HOST_PID, 60 * GIB, tied=False, told=5 * GIB)
    nvml_stub.proc(over, HOST_PID, 5 * GIB, tied=False, told=60 * GIB)
    first, second = one_look(nvml_stub)
    assert first.uses and first.unexplained_bytes == 55 * GIB
    assert second.uses and second.unexplained_bytes == 0


def test_p05_a_pid_of_another_namespace_is_told_as_it_is(nvml_stub: StubNvml) -> None:
    """Whether it may be signalled is for the snapshot's layer: here it is a number that the driver named."""
    gpu = nvml_stub.gpu()
    nvml_stub.proc(gpu, HOST_PID, GIB, tied=False)
    bystander = os.getpid()  # the same number as ours, meant by the host for somebody else
    nvml_stub.proc(gpu, bystander, GIB, tied=False)
    (seen,) = one_look(nvml_stub)
    assert seen.uses is not None and [use.pid for use in seen.uses] == [HOST_PID, bystander]


def test_p06_a_translated_pid_without_its_memory(nvml_stub: StubNvml) -> None:
    gpu = nvml_stub.gpu()
    nvml_stub.proc(gpu, os.getpid(), 8 * GIB, told="NA")
    nvml_stub.proc(gpu, HOST_PID, 40 * GIB, tied=False, listed=False)
    (seen,) = one_look(nvml_stub)
    assert seen.uses is not None and [use.pid for use in seen.uses] == [os.getpid()]
    assert seen.memory.used_bytes == 48 * GIB and seen.unexplained_bytes is None


def test_p07_an_empty_list_is_an_empty_list_and_not_an_unreadable_one(nvml_stub: StubNvml) -> None:
    full, unreadable = nvml_stub.gpu(), nvml_stub.gpu()
    nvml_stub.proc(full, HOST_PID, 70 * GIB, tied=False, listed=False)
    nvml_stub.fail("nvmlDeviceGetComputeRunningProcesses_v3", nvml.NO_PERMISSION, unreadable)
    first, second = one_look(nvml_stub)
    assert first.uses == () and first.unexplained_bytes == 70 * GIB and first.complete
    assert second.uses is None and second.errors["uses"] == "no_permission" and not second.complete


# ------------------------------------------------------------------------------------------------ lost GPUs


@pytest.mark.parametrize("how", [1, 2])
def test_p08_a_gpu_that_was_lost_before_we_came(nvml_stub: StubNvml, how: int) -> None:
    for index in range(4):
        nvml_stub.gpu(lost=how if index == 2 else 0, base_bytes=index * GIB)
    seen = one_look(nvml_stub)
    assert [gpu.state.value for gpu in seen] == ["ok", "ok", "lost", "ok"]
    assert [gpu.index for gpu in seen] == [0, 1, 2, 3]
    assert [gpu.memory.used_bytes for gpu in seen] == [0, GIB, None, 3 * GIB]
    assert "reset" in seen[2].why and seen[2].uses is None


def test_p08_one_that_is_lost_under_us_keeps_its_place_and_its_handle_is_not_used_again(nvml_stub: StubNvml) -> None:
    gpus = [nvml_stub.gpu(base_bytes=GIB) for _ in range(3)]
    nvml_stub.write()
    with GpuChild(nvml_stub.environment()) as child:
        before = look(child)
        nvml_stub.fail("nvmlDeviceGetPowerUsage", nvml.LOST, gpus[1])  # not the first thing that is asked
        nvml_stub.write()
        seen = look(child)
        assert [gpu.state.value for gpu in seen] == ["ok", "lost", "ok"]
        assert seen[1].uuid == before[1].uuid and seen[1].name and seen[1].bus_id == before[1].bus_id
        assert seen[1].memory.used_bytes is None  # what was read while it went is not told
        assert set(seen[1].errors.values()) == {"lost"}
        calls = nvml_stub.calls("nvmlDeviceGetMemoryInfo_v2")
        look(child)
        assert nvml_stub.calls("nvmlDeviceGetMemoryInfo_v2") == calls + 2


def test_p08_it_comes_back_after_a_reset(nvml_stub: StubNvml) -> None:
    gpu = nvml_stub.gpu(lost=2)
    nvml_stub.gpu()
    nvml_stub.write()
    with GpuChild(nvml_stub.environment(), slow_s=0.5) as child:
        assert look(child)[0].state is GpuState.LOST
        gpu.lost = 0
        nvml_stub.write()
        told = child.until(lambda sample: bool(sample["gpus"][0]["state"] == "ok"), "the GPU again")
        first, second = msgspec.convert(told["gpus"], list[Gpu])
        assert (first.uuid, first.index, second.uuid) == (gpu.uuid, 0, nvml_stub.gpus[1].uuid)


def test_p08_every_single_function_may_fail(nvml_stub: StubNvml) -> None:
    """One call after another fails for one GPU: the sample goes on, and the other GPU stays whole."""
    first, second = nvml_stub.gpu(base_bytes=GIB), nvml_stub.gpu(base_bytes=GIB)
    nvml_stub.write()
    with GpuChild(nvml_stub.environment()) as child:
        look(child)
        functions = [name for name in nvml_stub.tallies()[child.pid] if name.startswith("nvmlDevice")]
    assert len(functions) > 15
    for function in functions:
        nvml_stub.heal()
        nvml_stub.fail(function, nvml.UNKNOWN, second)
        seen = one_look(nvml_stub)
        assert len(seen) == 2, function
        assert seen[0].uuid == first.uuid and seen[0].complete and seen[0].memory.used_bytes == GIB, function


def test_p09_fewer_gpus_than_at_the_start_is_told(nvml_stub: StubNvml) -> None:
    gpus = [nvml_stub.gpu(base_bytes=GIB) for _ in range(4)]
    nvml_stub.write()
    with GpuChild(nvml_stub.environment(), slow_s=0.5) as child:
        assert child.sample()["driver"]["count_before"] is None
        gpus[1].absent = True
        nvml_stub.write()
        told = child.until(lambda sample: sample["driver"]["count_before"] is not None, "the loss")
        assert told["driver"]["count_before"] == 4
        seen = msgspec.convert(told["gpus"], list[Gpu])
        assert [(gpu.uuid, gpu.state.value) for gpu in seen] == [
            (gpu.uuid, "lost" if gpu.absent else "ok") for gpu in gpus
        ]
        known = [{key: gpu[key] for key in ("uuid", "index", "name", "bus_id", "minor")} for gpu in told["gpus"]]
    with GpuChild(nvml_stub.environment(), known=known) as child:  # the next one has never seen it
        told = child.sample()
        assert told["driver"]["count_before"] == 4
        assert [gpu["state"] for gpu in told["gpus"]] == ["ok", "lost", "ok", "ok"]
        assert told["gpus"][1]["uuid"] == gpus[1].uuid and told["gpus"][1]["bus_id"] == gpus[1].bus_id


# ------------------------------------------------------------------------------------------------ XID


def test_p10_xid_events_are_told_by_kind(nvml_stub: StubNvml) -> None:
    gpus = [nvml_stub.gpu() for _ in range(2)]
    nvml_stub.write()
    with GpuChild(nvml_stub.environment()) as child:
        assert [gpu.xid for gpu in look(child)] == [None, None]
        nvml_stub.xid(gpus[1], 79)
        nvml_stub.write()
        told = child.until(lambda sample: sample["gpus"][1]["xid"] is not None, "the event")
        first, second = msgspec.convert(told["gpus"], list[Gpu])
        assert first.xid is None
        assert second.xid is not None and (second.xid.code, second.xid.bad) == (79, True)
        assert "bus" in second.xid.text
        nvml_stub.xid(gpus[0], 45)
        nvml_stub.write()
        told = child.until(lambda sample: sample["gpus"][0]["xid"] is not None, "the second event")
        assert told["gpus"][0]["xid"]["bad"] is False  # comes with every kill


def test_p10_the_kernels_log_where_it_may_be_read(nvml_stub: StubNvml) -> None:
    nvml_stub.gpu()
    nvml_stub.gpu()
    nvml_stub.fail("nvmlEventSetCreate", nvml.NO_PERMISSION)
    nvml_stub.write()
    log = nvml_stub.devices / "kmsg"
    log.write_text("4,1,1,-;NVRM: Xid (PCI:0000:10:00): 31, from before we looked\n")
    with GpuChild(nvml_stub.environment()) as child:
        assert [gpu.xid for gpu in look(child)] == [None, None]
        with log.open("a") as file:
            file.write("6,2,2,-;usb 1-1: new device\n4,3,3,-;NVRM: Xid (PCI:0000:10:00): 119, pid=1, GSP timeout\n")
            file.write("4,4,4,-;NVRM: GPU at PCI:0000:11:00.0 has fallen off the bus.\n")
        first, second = look(child)
        assert first.xid is not None and (first.xid.code, first.xid.bad) == (119, True)
        assert second.xid is not None and second.xid.code == 79
