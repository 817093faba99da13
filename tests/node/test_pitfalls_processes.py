"""Pitfalls P26 to P32 of the GPU field report, by id: names and numbers of GPUs, rows of processes, and nvidia-ml-py
itself; and what the child costs. See test_pitfalls.py.
"""

from __future__ import annotations

from pathlib import Path

import psutil
import pynvml  # type: ignore[import-untyped]
import pytest

from supervisor.node import nvml_calls
from tests.node.conftest import need_python
from tests.node.gpu_harness import HOST_PID, GpuChild, look, one_look
from tests.real import nvml
from tests.real.nvml import GIB, MIB, StubNvml


def test_p26_everything_is_told_by_uuid_and_the_device_file_by_its_own_number(nvml_stub: StubNvml) -> None:
    first = nvml_stub.gpu(uuid="GPU-ffffffff-0000-0000-0000-000000000000", minor=3)
    second = nvml_stub.gpu(uuid="GPU-00000000-1111-0000-0000-000000000000", minor=0, bus_id="00000000:C1:00.0")
    seen = one_look(nvml_stub)
    assert [(gpu.uuid, gpu.index, gpu.minor) for gpu in seen] == [(first.uuid, 0, 3), (second.uuid, 1, 0)]
    assert seen[1].bus_id == "00000000:C1:00.0"


# ------------------------------------------------------------------------------------------------ processes


def test_p27_garbage_in_the_shares_of_processes(nvml_stub: StubNvml) -> None:
    gpu = nvml_stub.gpu(phantoms=100, util=250)
    for number, percent in enumerate((30, 100, 140, 3_000_000)):
        nvml_stub.proc(gpu, HOST_PID + number, GIB, tied=False, sm=percent)
    (seen,) = one_look(nvml_stub)
    assert seen.uses is not None
    told = {use.pid - HOST_PID: use.sm_percent for use in seen.uses}
    assert told == {0: 30, 1: 100, 2: 100, 3: None}  # and no phantom
    assert seen.gpu_percent == 100 and seen.complete


@pytest.mark.parametrize("how", ["not_found", "success", "grows"])
def test_p27_no_samples_are_no_error(nvml_stub: StubNvml, how: str) -> None:
    gpu = nvml_stub.gpu(phantoms=-1 if how == "success" else 0)  # nvidia-ml-py then raises "NVMLError: Success"
    nvml_stub.proc(gpu, HOST_PID, GIB, tied=False)
    if how == "grows":
        nvml_stub.fail("nvmlDeviceGetProcessUtilization", nvml.INSUFFICIENT_SIZE)
    (seen,) = one_look(nvml_stub)
    assert seen.uses is not None and seen.uses[0].sm_percent is None
    assert seen.complete and "sm_percent" not in seen.errors


def test_p28_the_server_of_mps_and_its_clients(nvml_stub: StubNvml) -> None:
    gpu = nvml_stub.gpu()
    nvml_stub.proc(gpu, HOST_PID, 30 * MIB, "C", tied=False)
    nvml_stub.proc(gpu, HOST_PID + 1, 4 * GIB, "M", tied=False)
    (seen,) = one_look(nvml_stub)
    assert seen.uses is not None
    assert [(use.pid - HOST_PID, use.types) for use in seen.uses] == [(0, "C"), (1, "M")]


def test_p29_a_pid_in_two_lists_and_on_two_gpus(nvml_stub: StubNvml) -> None:
    gpus = [nvml_stub.gpu(), nvml_stub.gpu()]
    for gpu in gpus:
        nvml_stub.proc(gpu, HOST_PID, 3 * GIB, "CG", tied=False)
    seen = one_look(nvml_stub)
    for told in seen:
        assert told.uses is not None
        assert [(use.pid, use.types, use.used_bytes) for use in told.uses] == [(HOST_PID, "CG", 3 * GIB)]
        assert told.unexplained_bytes == 0


def test_p29_a_pid_in_two_instances_of_one_gpu_holds_both(nvml_stub: StubNvml) -> None:
    gpu = nvml_stub.gpu()
    for number, used_bytes in ((0, 2 * GIB), (1, 3 * GIB)):
        place = gpu.slice(number, f"MIG-{number}", 10 * GIB)
        nvml_stub.proc(place, HOST_PID, used_bytes, tied=False)
    told = one_look(nvml_stub)
    assert [gpu.held_bytes for gpu in told] == [5 * GIB, 2 * GIB, 3 * GIB]
    assert told[0].uses is not None and len(told[0].uses) == 1


# ------------------------------------------------------------------------------------------------ the module


def test_p30_new_functions_where_there_are_such(nvml_stub: StubNvml) -> None:
    nvml_stub.gpu(temperature_c=71, events=0x1 | 0x4 | 0x40)
    (seen,) = one_look(nvml_stub)
    assert seen.temperature_c == 71 and seen.throttle == ("sw_power_cap", "hw_thermal")
    assert nvml_stub.calls("nvmlDeviceGetTemperature") == 0
    assert nvml_stub.calls("nvmlDeviceGetCurrentClocksThrottleReasons") == 0


def test_p30_old_functions_where_there_are_no_new_ones(tmp_path: Path, nvml_stub: StubNvml) -> None:
    with StubNvml(tmp_path, without=nvml.NEW_FUNCTIONS) as old:
        old.gpu(temperature_c=71, events=0x8)
        (seen,) = one_look(old)
        assert seen.temperature_c == 71 and seen.throttle == ("hw_slowdown",) and seen.complete


def test_p31_the_errors_of_nvidia_ml_py_can_neither_be_hashed_nor_compared() -> None:
    error = pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
    with pytest.raises(TypeError):
        hash(error)
    with pytest.raises(AttributeError):
        assert error == pynvml.NVML_ERROR_GPU_IS_LOST
    assert nvml_calls.word_of(error) == "lost"
    assert nvml_calls.word_of(pynvml.NVMLError(424242)) == "unknown"
    mismatch = pynvml.NVMLLibraryMismatchError("Unversioned function called and the pyNVML version does not match")
    assert not isinstance(mismatch, pynvml.NVMLError) and nvml_calls.word_of(mismatch) == "no_symbol"


def test_p31_what_the_process_costs(nvml_stub: StubNvml) -> None:
    for _ in range(8):
        gpu = nvml_stub.gpu()
        for number in range(75):
            nvml_stub.proc(gpu, HOST_PID + gpu.index * 100 + number, GIB // 2, tied=False, sm=10)
    nvml_stub.write()
    with GpuChild(nvml_stub.environment(), interval_s=0.4) as child:
        look(child)
        process = psutil.Process(child.pid)
        before = process.cpu_times()
        count = sum("sample" in line for line in child.lines)
        child.wait(lambda line: line.get("beat", 0) >= 5, "a fifth beat")
        made = sum("sample" in line for line in child.lines) - count
        after = process.cpu_times()
        spent_s = after.user + after.system - before.user - before.system
        assert made >= 5
        assert spent_s / made < 0.05  # measured: 0.015 on a 2-core machine, the library's own part included
        assert process.memory_info().rss < 35_000_000


def test_p32_names_that_are_no_utf_8(nvml_stub: StubNvml) -> None:
    nvml_stub.gpu(name=b"NVIDIA H100 \xff\xfe (engineering)".decode("utf-8", "surrogateescape"))
    (seen,) = one_look(nvml_stub)
    assert seen.name == "NVIDIA H100 \ufffd\ufffd (engineering)" and seen.complete


# ------------------------------------------------------------------------------------------------ old nodes


def test_the_oldest_python_that_a_node_may_have(nvml_stub: StubNvml) -> None:
    gpu = nvml_stub.gpu(base_bytes=GIB)
    gpu.slice(0, "MIG-0", 10 * GIB)
    nvml_stub.proc(gpu, HOST_PID, GIB, "CG", tied=False, sm=5)
    nvml_stub.xid(gpu, 48)
    nvml_stub.write()
    with GpuChild(nvml_stub.environment(), python=need_python("3.8"), interval_s=0.4) as child:
        child.until(lambda sample: sample["gpus"][0]["xid"] is not None, "an XID")
        whole, part = look(child)
        assert whole.complete and part.complete and whole.memory.used_bytes == 2 * GIB
        assert nvml_stub.calls("nvmlInitWithFlags") == 1
