"""Pitfalls P11 to P25 of the GPU field report, by id: the driver that is not there, that hangs, that is of another
version, or that lets us read a part only. See test_pitfalls.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from supervisor.adapters import nvml_source
from supervisor.core.gpu import DriverState, GpuState
from supervisor.node import nvml_library
from tests.node.gpu_harness import HOST_PID, GpuChild, driver_of, look, one_look
from tests.real import nvml
from tests.real.nvml import GIB, MIB, StubNvml
from tests.real.processes import poll

# ------------------------------------------------------------------------------------------------ no driver


def test_p11_library_and_driver_of_different_versions(nvml_stub: StubNvml) -> None:
    nvml_stub.gpu()
    nvml_stub.init_code = nvml.MISMATCH
    driver = driver_of(nvml_stub)
    assert driver.state is DriverState.UNAVAILABLE
    assert "different versions" in driver.why and "reboot" in driver.why


@pytest.mark.parametrize("device, state", [(None, "absent"), ("nvidiactl", "unavailable"), ("dxg", "unavailable")])
@pytest.mark.parametrize("code", [None, nvml.DRIVER_NOT_LOADED, nvml.LIBRARY_NOT_FOUND])
def test_p12_no_library_or_no_driver(nvml_stub: StubNvml, device: str | None, state: str, code: int | None) -> None:
    if device is not None:
        (nvml_stub.devices / device).touch()
    nvml_stub.init_code = code or 0
    other = {} if code is not None else {"NVML_LIBRARY": str(nvml_stub.folder / "nothing.so")}
    driver = driver_of(nvml_stub, **other)
    assert driver.state.value == state
    assert driver.why


def test_p12_the_library_is_found_by_its_usual_name(nvml_stub: StubNvml) -> None:
    nvml_stub.gpu()
    assert driver_of(nvml_stub, LD_LIBRARY_PATH=str(nvml_stub.library.parent), NVML_LIBRARY="").state is DriverState.OK


def test_p12_a_library_that_prints_on_standard_output(nvml_stub: StubNvml) -> None:
    nvml_stub.gpu()
    nvml_stub.banner_load = "WARNING: You should always run with libnvidia-ml.so that is installed with your driver"
    nvml_stub.banner_init = '{"sample": {"ids": [1], "gpus": "a lie"}}'
    nvml_stub.write()
    with GpuChild(nvml_stub.environment()) as child:  # which reads each line as JSON
        assert len(look(child)) == 1
    assert b"WARNING" in child.noise and b"a lie" in child.noise


# ------------------------------------------------------------------------------------------------ MIG


def test_p13_a_divided_gpu_and_no_permission_for_the_whole(nvml_stub: StubNvml) -> None:
    gpu = nvml_stub.gpu(util=-1)
    nvml_stub.gpu()
    one = gpu.slice(1, "MIG-1111", 10 * GIB, 100 * MIB)
    gpu.slice(3, "MIG-3333", 20 * GIB)
    for function in ("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetComputeRunningProcesses_v3"):
        nvml_stub.fail(function, nvml.NO_PERMISSION, gpu)
    nvml_stub.proc(one, HOST_PID, 4 * GIB, tied=False)
    whole, first, second, other = one_look(nvml_stub)
    assert whole.mig is True and whole.state is GpuState.UNREADABLE and "MIG" in whole.why
    assert whole.errors["memory"] == whole.errors["uses"] == "no_permission"
    assert whole.gpu_percent is None and whole.errors["gpu_percent"] == "not_supported"
    assert (first.uuid, first.parent, first.index) == ("MIG-1111", gpu.uuid, 1)
    assert (second.uuid, second.parent, second.index) == ("MIG-3333", gpu.uuid, 3)
    assert first.memory.used_bytes == 4 * GIB + 100 * MIB and first.memory.total_bytes == 10 * GIB
    assert first.uses is not None and [use.pid for use in first.uses] == [HOST_PID] and second.uses == ()
    assert first.complete and first.errors["temperature_c"] == "of_the_parent"
    assert other.mig is None and other.errors["mig"] == "not_supported" and other.parent is None


def test_p13_a_lost_gpu_takes_its_instances_along_and_they_keep_their_places(nvml_stub: StubNvml) -> None:
    gpu = nvml_stub.gpu()
    gpu.slice(0, "MIG-0000", 10 * GIB)
    nvml_stub.write()
    with GpuChild(nvml_stub.environment()) as child:
        assert [seen.state.value for seen in look(child)] == ["ok", "ok"]
        gpu.lost = 1
        nvml_stub.write()
        assert [(seen.uuid, seen.state.value) for seen in look(child)] == [(gpu.uuid, "lost"), ("MIG-0000", "lost")]


# ------------------------------------------------------------------------------------------------ versions


def test_p14_an_old_library_without_the_newest_lists(tmp_path: Path, nvml_stub: StubNvml) -> None:
    with StubNvml(tmp_path, gpus=1, without=nvml.V3_LISTS) as old:
        old.proc(old.gpus[0], HOST_PID, GIB, "CG", tied=False)
        (seen,) = one_look(old)
        assert seen.uses is not None and [(use.pid, use.types) for use in seen.uses] == [(HOST_PID, "CG")]
        assert seen.complete


def test_p14_a_library_without_any_list(tmp_path: Path, nvml_stub: StubNvml) -> None:
    both = [*nvml.V3_LISTS, *(name.replace("_v3", "_v2") for name in nvml.V3_LISTS)]
    with StubNvml(tmp_path, gpus=1, without=both) as old:
        (seen,) = one_look(old)
        assert seen.uses is None and seen.errors["uses"] == "no_symbol"


def test_p14_rows_of_a_layout_that_the_header_does_not_have(nvml_stub: StubNvml) -> None:
    gpu = nvml_stub.gpu(wrong_layout=True)
    for number in range(5):
        nvml_stub.proc(gpu, HOST_PID + number, GIB + number, tied=False)
    nvml_stub.write()
    with GpuChild(nvml_stub.environment()) as child:
        for _ in range(3):
            (seen,) = look(child)
            assert seen.uses is not None
            told = {use.pid: use.used_bytes for use in seen.uses}
            assert told == {HOST_PID + number: GIB + number for number in range(5)}
            assert seen.complete
    assert nvml_stub.calls("nvmlDeviceGetComputeRunningProcesses_v3") == 2  # for size and rows, and then never again


def test_p14_rows_with_absurd_pids_are_dropped_and_that_is_told(nvml_stub: StubNvml) -> None:
    gpu = nvml_stub.gpu()
    for pid in (0, HOST_PID, 0xFFFFFFFF, 1 << 23):
        nvml_stub.proc(gpu, pid, GIB, tied=False)
    (seen,) = one_look(nvml_stub)
    assert seen.uses is not None and [use.pid for use in seen.uses] == [HOST_PID]
    assert seen.errors["uses_compute"] == "absurd_rows" and not seen.complete


def test_p15_the_source_is_the_real_one_and_a_shim_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert nvml_source.source() is not None
    info = tmp_path / "nvidia_ml_py-99.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: nvidia-ml-py\nVersion: 99.0\n")
    shim = "import warnings\nwarnings.warn('deprecated', FutureWarning)\nfrom pynvml_utils import *\n"
    (tmp_path / "pynvml.py").write_text(shim)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert nvml_source.source.__wrapped__() is None


def test_p15_what_is_installed_on_the_node_is_not_used(tmp_path: Path, nvml_stub: StubNvml) -> None:
    """A module of that name that raises lies first on the path of the node's Python."""
    nvml_stub.gpu()
    (tmp_path / "pynvml.py").write_text("raise FutureWarning('use the other one')\n")
    environment = {"PYTHONPATH": str(tmp_path), "PYTHONWARNINGS": "error"}
    broken = subprocess.run(
        [sys.executable, "-c", "import pynvml"], env=os.environ | environment, capture_output=True, check=False
    )
    assert broken.returncode != 0
    assert driver_of(nvml_stub, **environment).state is DriverState.OK


def test_p16_used_does_not_count_what_the_driver_reserves(nvml_stub: StubNvml) -> None:
    nvml_stub.gpu(total_bytes=80 * GIB, reserved_bytes=912 * MIB, base_bytes=8 * MIB)
    (seen,) = one_look(nvml_stub)
    memory = seen.memory
    assert (memory.used_bytes, memory.reserved_bytes) == (8 * MIB, 912 * MIB)
    assert memory.free_bytes == 80 * GIB - 920 * MIB
    assert nvml_stub.calls("nvmlDeviceGetMemoryInfo") == 0


def test_p16_the_first_version_where_there_is_no_second(tmp_path: Path, nvml_stub: StubNvml) -> None:
    with StubNvml(tmp_path, without=["nvmlDeviceGetMemoryInfo_v2"]) as old:
        old.gpu(total_bytes=80 * GIB, reserved_bytes=912 * MIB, base_bytes=8 * MIB)
        (seen,) = one_look(old)
        assert (seen.memory.used_bytes, seen.memory.reserved_bytes) == (920 * MIB, None)
        assert seen.errors["reserved_bytes"] == "no_symbol" and seen.complete


# ------------------------------------------------------------------------------------------------ time


def test_p17_a_slow_start_is_waited_for_and_told_by_name(nvml_stub: StubNvml) -> None:
    nvml_stub.gpu(persistence=False)
    nvml_stub.hang("nvmlInitWithFlags", seconds=2.5)
    nvml_stub.write()
    with GpuChild(nvml_stub.environment()) as child:
        beat = child.wait(lambda line: line.get("call_s", 0) > 1, "a beat from within the start")
        assert beat["call"] == "nvmlInitWithFlags"
        assert child.driver()["state"] == "ok"
        (seen,) = look(child)
        assert seen.persistence is False  # why it was slow
        look(child)
    assert nvml_stub.calls("nvmlInitWithFlags") == 1


def test_p18_one_start_and_one_end_in_a_life(nvml_stub: StubNvml) -> None:
    nvml_stub.gpu()
    nvml_stub.write()
    with GpuChild(nvml_stub.environment(), interval_s=0.4) as child:
        child.wait(lambda line: line.get("beat", 0) >= 3, "a third beat")
        assert nvml_stub.calls("nvmlInitWithFlags") == 1 and nvml_stub.calls("nvmlShutdown") == 0
        assert nvml_stub.calls("nvmlDeviceGetHandleByIndex_v2") == 1
    assert nvml_stub.calls("nvmlInitWithFlags") == nvml_stub.calls("nvmlShutdown") == 1
    assert nvml_stub.calls("nvmlEventSetFree") == 1


def test_p18_it_retires_in_time(nvml_stub: StubNvml) -> None:
    nvml_stub.gpu()
    nvml_stub.write()
    with GpuChild(nvml_stub.environment(), interval_s=0.4, retire_after_s=1.0) as child:
        child.wait(lambda line: "retire" in line, "its retirement")
        assert child.process.wait(5) == 0  # with stdin still open
    assert nvml_stub.calls("nvmlInitWithFlags") == nvml_stub.calls("nvmlShutdown") == 1


def test_p18_it_retires_when_it_has_grown(nvml_stub: StubNvml) -> None:
    nvml_stub.gpu()
    nvml_stub.write()
    with GpuChild(nvml_stub.environment(), interval_s=0.4, retire_growth_bytes=256 * 1024) as child:
        look(child)
        for number in range(4000):
            nvml_stub.proc(nvml_stub.gpus[0], HOST_PID + number, MIB, tied=False)
        nvml_stub.write()
        line = child.wait(lambda line: "retire" in line, "its retirement")
        assert "it grew" in line["retire"]


def test_p18_a_driver_that_was_unloaded_under_us_is_met_by_a_new_life(nvml_stub: StubNvml) -> None:
    nvml_stub.gpu()
    nvml_stub.gpu()
    nvml_stub.write()
    with GpuChild(nvml_stub.environment(), interval_s=0.4) as child:
        look(child)
        nvml_stub.fail("*", nvml.UNINITIALIZED)
        nvml_stub.write()
        child.wait(lambda line: "retire" in line, "its retirement")
    assert nvml_stub.calls("nvmlInitWithFlags") == 1


def test_p19_a_call_that_does_not_come_back_is_told_by_name_and_age(nvml_stub: StubNvml) -> None:
    gpus = [nvml_stub.gpu() for _ in range(4)]
    nvml_stub.write()
    with GpuChild(nvml_stub.environment(), interval_s=0.4) as child:
        look(child)
        nvml_stub.hang("nvmlDeviceGetPowerUsage", gpus[2])
        nvml_stub.write()
        beat = child.wait(lambda line: line.get("call_s", 0) > 2, "a beat from within the call")
        assert beat["call"] == "nvmlDeviceGetPowerUsage"
        samples = sum("sample" in line for line in child.lines)
        later = child.wait(lambda line: line.get("call_s", 0) > beat["call_s"] + 0.5, "the next beat")
        assert later["beat"] > beat["beat"]
        assert sum("sample" in line for line in child.lines) == samples
        asked = [child.ask() for _ in range(3)]  # asked meanwhile: answered together
        nvml_stub.heal()
        nvml_stub.write()
        child.wait(lambda line: line.get("sample", {}).get("ids") == asked, "one answer to all three")
    assert nvml_stub.calls("nvmlInitWithFlags") == nvml_stub.calls("nvmlShutdown") == 1


def test_p19_the_end_of_stdin_within_a_call_waits_for_the_call(nvml_stub: StubNvml) -> None:
    """An exit is a SIGKILL to the thread in the driver, and that has frozen GPUs: so none before the call is over."""
    nvml_stub.gpu()
    nvml_stub.hang("nvmlDeviceGetMemoryInfo_v2")
    nvml_stub.write()
    with GpuChild(nvml_stub.environment(), interval_s=0.4) as child:
        child.wait(lambda line: line.get("call") == "nvmlDeviceGetMemoryInfo_v2", "the hang")
        assert child.process.stdin is not None
        child.process.stdin.close()
        with pytest.raises(subprocess.TimeoutExpired):
            child.process.wait(1.0)
        nvml_stub.heal()
        nvml_stub.write()
        assert child.process.wait(5) == 0
    assert nvml_stub.calls("nvmlShutdown") == 1


@pytest.mark.parametrize("deaf", [False, True])
def test_p19_term_ends_it_where_the_kernel_lets_it(nvml_stub: StubNvml, deaf: bool) -> None:
    nvml_stub.gpu()
    nvml_stub.hang("nvmlDeviceGetMemoryInfo_v2", deaf=deaf)
    nvml_stub.write()
    child = GpuChild(nvml_stub.environment(), interval_s=0.4)
    child.wait(lambda line: line.get("call") == "nvmlDeviceGetMemoryInfo_v2", "the hang")
    os.kill(child.pid, signal.SIGTERM)
    if deaf:
        with pytest.raises(subprocess.TimeoutExpired):
            child.process.wait(0.5)
        nvml_stub.heal()
        nvml_stub.write()
        assert child.close() == 0
    else:
        assert child.process.wait(5) == -signal.SIGTERM
        child.close()


def test_p20_never_more_often_than_the_floor_and_slow_fields_seldom(nvml_stub: StubNvml) -> None:
    nvml_stub.gpu()
    nvml_stub.write()
    with GpuChild(nvml_stub.environment()) as child:
        began = time.monotonic()
        for _ in range(4):
            child.sample()  # each is asked for as soon as the one before is there
        assert time.monotonic() - began >= 3 * 0.4
    with GpuChild(nvml_stub.environment(), interval_s=0.01) as child:
        child.sample()
        began = time.monotonic()
        calls = nvml_stub.calls("nvmlDeviceGetMemoryInfo_v2")
        for _ in range(50):
            child.ask()
        child.wait(lambda line: line.get("beat", 0) >= 4, "a fourth beat")
        made = nvml_stub.calls("nvmlDeviceGetMemoryInfo_v2") - calls
        passed_s = time.monotonic() - began
        assert 3 <= made <= passed_s / 0.4 + 2
        for slow in ("EnforcedPowerLimit", "TotalEccErrors", "PersistenceMode", "MigMode", "MaxClockInfo"):
            assert nvml_stub.calls(f"nvmlDeviceGet{slow}", child.pid) == 1
        assert nvml_stub.calls("nvmlDeviceGetPcieThroughput") == 0


def test_p20_what_a_gpu_has_not_is_not_asked_for_each_time(nvml_stub: StubNvml) -> None:
    nvml_stub.gpu(util=-1)
    nvml_stub.write()
    with GpuChild(nvml_stub.environment()) as child:
        for _ in range(3):
            assert look(child)[0].errors["gpu_percent"] == "not_supported"
    assert nvml_stub.calls("nvmlDeviceGetUtilizationRates") == 1


def test_p21_nobody_asks_and_no_gpu_is_woken(nvml_stub: StubNvml) -> None:
    nvml_stub.gpu()
    nvml_stub.write()
    with GpuChild(nvml_stub.environment(), interval_s=0.4) as child:
        look(child)
        child.send(op="interval", interval_s=None)
        look(child)  # the order has arrived
        calls = nvml_stub.calls("nvmlDeviceGetMemoryInfo_v2")
        beats = sum("beat" in line for line in child.lines)
        child.wait(lambda line: line.get("beat", 0) > beats + 1, "two more beats")
        assert nvml_stub.calls("nvmlDeviceGetMemoryInfo_v2") == calls
        child.send(op="interval", interval_s=0.4)
        count = len(child.lines)
        child.wait(lambda line: line.get("sample", {}).get("ids") == [], "a sample by itself", after=count)


def test_p22_an_unknown_error_at_the_start_is_tried_again_later_and_not_in_a_loop(nvml_stub: StubNvml) -> None:
    nvml_stub.gpu()
    nvml_stub.init_code, nvml_stub.init_until = nvml.UNKNOWN, 1
    nvml_stub.write()
    began = time.monotonic()
    with GpuChild(nvml_stub.environment(), interval_s=0.4) as child:
        told = child.driver()
        assert told["state"] == "unavailable"
        assert ("restart of the container" in told["why"]) is nvml_library.in_container()
        assert child.sample()["gpus"] == []  # asking does not hurry it
        assert nvml_stub.calls("nvmlInitWithFlags") == 1
        child.until(lambda sample: bool(sample["driver"]["state"] == "ok"), "the second try")
        assert time.monotonic() - began >= 5.0
    assert nvml_stub.calls("nvmlInitWithFlags") == 2


# ------------------------------------------------------------------------------------------------ permissions


def test_p23_a_field_without_permission_is_null_and_the_row_stays(nvml_stub: StubNvml) -> None:
    gpu = nvml_stub.gpu()
    nvml_stub.proc(gpu, 1, GIB, tied=False, sm=50)  # somebody else's
    nvml_stub.fail("nvmlDeviceGetProcessUtilization", nvml.NO_PERMISSION)
    nvml_stub.fail("nvmlDeviceGetTotalEccErrors", nvml.NO_PERMISSION)
    nvml_stub.write()
    with GpuChild(nvml_stub.environment()) as child:
        for _ in range(2):
            (seen,) = look(child)
            assert seen.uses is not None
            assert [(use.pid, use.used_bytes, use.sm_percent) for use in seen.uses] == [(1, GIB, None)]
            assert seen.errors["sm_percent"] == seen.errors["ecc_uncorrected"] == "no_permission"
            assert seen.state is GpuState.OK and not seen.complete


def test_p24_the_windows_driver_tells_no_shares(nvml_stub: StubNvml) -> None:
    gpu = nvml_stub.gpu(util=-1, base_bytes=5 * GIB)
    nvml_stub.proc(gpu, os.getpid(), 0, told="NA")
    nvml_stub.fail("nvmlDeviceGetProcessUtilization", nvml.NOT_SUPPORTED)
    (seen,) = one_look(nvml_stub)
    assert seen.uses is not None and [(use.pid, use.used_bytes) for use in seen.uses] == [(os.getpid(), None)]
    assert seen.memory.used_bytes == 5 * GIB and seen.unexplained_bytes is None
    assert seen.gpu_percent is None


def test_p25_the_gpus_are_given_back_at_once(nvml_stub: StubNvml) -> None:
    for _ in range(8):
        nvml_stub.gpu()
    nvml_stub.write()
    with GpuChild(nvml_stub.environment(), interval_s=1.0) as child:
        look(child)
        process = psutil.Process(child.pid)
        began = time.monotonic()
        child.close()
        assert time.monotonic() - began < 2.0
        poll(lambda: not process.is_running(), 1.0, "its end")
    assert nvml_stub.calls("nvmlShutdown") == 1
