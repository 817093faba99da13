"""The launch gate on a whole launch: real commands, a real orphan of ours, and a driver's library built from C."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from supervisor.cli import main
from supervisor.supervise import before
from tests.main_job.kit import RUN_MARKER, Command, Site, site_with_gpu
from tests.node.conftest import until
from tests.real import processes
from tests.real.nvml import GIB, StubNvml
from tests.real.processes import Tracker

MIB = 1 << 20


@pytest.fixture
def here(nvml_stub: StubNvml, tmp_path: Path, tracker: Tracker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A profile on a node with one GPU."""
    with site_with_gpu(tmp_path, tracker, nvml_stub, monkeypatch) as made:
        yield made


def orphan(here: Site, stub: StubNvml) -> psutil.Process:
    """What is left of a run whose server was killed: a worker in a session of its own, with the device and 71 GiB."""
    here.serve()
    root = here.process_of("root")
    run_id = here.records()[-1]["run_id"]
    worker = f"exec -a sglang::scheduler_TP0 sleep 600 3<{stub.devices / 'nvidia0'} >/dev/null 2>&1"
    started = subprocess.run(
        ["bash", "-c", 'setsid bash -c "$1" >/dev/null 2>&1 & echo $!', "bash", worker],
        env={**os.environ, RUN_MARKER: run_id},
        capture_output=True,
        check=True,
    )
    found = psutil.Process(int(started.stdout))
    asyncio.run(until(lambda: found.cmdline()[:1] == ["sglang::scheduler_TP0"]))
    stub.claim(stub.gpus[0], found.pid, 71 * GIB)
    for process in (root, *root.children(recursive=True)):
        processes.send(process, signal.SIGKILL)
    path = next(here.state_dir.glob("**/runs/*/run.json")).with_name("exit.json")
    asyncio.run(until(path.exists))
    return found


def warnings(command: Command) -> str:
    return "\n".join(event["text"] for event in command.events() if event["kind"] == "warning")


def test_a_launch_onto_an_orphan_of_ours_is_refused_by_name(here: Site, nvml_stub: StubNvml) -> None:
    worker = orphan(here, nvml_stub)
    refused = here.headless()
    assert refused.exit_code() == 4, refused.said
    reason = refused.summary()["reason"]
    run_id = here.records()[0]["run_id"]
    assert f"GPU 0: 71.0 GiB held by pid {worker.pid} sglang::scheduler_TP0 600, orphan of run {run_id}" in reason
    assert f"supervisor zombies {here.file} --kill" in reason and "--clean" in reason and "--force" in reason
    assert here.servers_ever() == 1 and processes.alive(worker)


def test_clean_stops_the_orphan_with_proof_and_launches(here: Site, nvml_stub: StubNvml) -> None:
    worker = orphan(here, nvml_stub)
    nvml_stub.release_delay_ms = 1000
    nvml_stub.write()
    cleaned = here.headless("--clean", "--timeout", "60s")
    assert cleaned.exit_code(60) == 0, cleaned.said
    assert not processes.alive(worker)
    assert "--clean: the process is gone" in warnings(cleaned) and "71.0 GiB freed" in warnings(cleaned)
    (baseline,) = here.records()[-1]["gpu_baseline"].values()
    assert baseline == 400 * MIB  # what was there with nobody on it, for the proof of the next stop


def test_clean_that_is_not_proved_launches_nothing(here: Site, nvml_stub: StubNvml) -> None:
    """The GPU falls off the bus while it is cleared."""
    worker = orphan(here, nvml_stub)
    refused = here.headless("--clean", "--timeout", "60s")
    asyncio.run(until(lambda: "will stop pid" in refused.out, 20))
    nvml_stub.gpus[0].lost = 1
    nvml_stub.write()
    assert refused.exit_code(60) == 4, refused.said
    assert "--clean could not clear the left-overs" in refused.summary()["reason"]
    assert here.servers_ever() == 1 and not processes.alive(worker)


def test_clean_stops_nothing_where_the_launch_is_refused_all_the_same(here: Site, nvml_stub: StubNvml) -> None:
    worker = orphan(here, nvml_stub)
    here.file.write_text(here.file.read_text().replace(str(here.log), "/no/such/folder/log"))
    refused = here.headless("--clean")
    assert refused.exit_code() == 4, refused.said
    assert "/no/such/folder does not exist" in refused.summary()["reason"]
    assert processes.alive(worker)


def test_force_goes_on_and_says_so(here: Site, nvml_stub: StubNvml) -> None:
    worker = orphan(here, nvml_stub)
    forced = here.headless("--force")
    assert forced.exit_code() == 0, forced.said
    assert "GPU 0: 71.0 GiB held by pid" in warnings(forced) and "--force)" in warnings(forced)
    assert processes.alive(worker) and here.servers_ever() == 2


def test_force_does_not_take_a_port_from_anybody(here: Site, nvml_stub: StubNvml) -> None:
    with socket.create_server(("127.0.0.1", here.port)):
        refused = here.headless("--force")
        assert refused.exit_code() == 4, refused.said
        assert f"port {here.port} is taken" in refused.summary()["reason"]


def test_somebody_elses_memory_is_a_warning(here: Site, nvml_stub: StubNvml) -> None:
    """A process of no run of ours: whether our server fits beside it is not certain."""
    with subprocess.Popen(["sleep", "60"]) as other:
        nvml_stub.claim(nvml_stub.gpus[0], other.pid, 60 * GIB)
        served = here.serve()
        assert f"GPU 0: 60.0 GiB held by pid {other.pid}" in warnings(served)
        assert other.poll() is None
        other.kill()


def test_a_restart_without_a_proof_goes_on_with_force(here: Site, nvml_stub: StubNvml) -> None:
    here.serve()
    nvml_stub.claim(nvml_stub.gpus[0], here.identity()[0], 40 * GIB)
    forced = here.start("restart", str(here.file), "--json", "--force", "--timeout", "60s")
    asyncio.run(until(lambda: "will stop pid" in forced.out, 20))
    nvml_stub.gpus[0].lost = 1
    nvml_stub.write()
    assert forced.exit_code(60) == 0, forced.said
    assert "not proved" in warnings(forced) and here.servers_ever() == 2


def test_a_node_without_a_gpu_says_nothing(here: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "no-devices").mkdir()
    monkeypatch.delenv("NVML_LIBRARY")
    monkeypatch.setenv("INFERENCE_SUPERVISOR_DEV", str(tmp_path / "no-devices"))
    served = here.serve()
    assert "GPU" not in warnings(served) and "driver" not in warnings(served)
    assert "gpu_baseline" not in here.records()[-1]


def test_clean_works_without_a_gpu_too(
    here: Site, nvml_stub: StubNvml, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What is left of this profile's runs can hold its port or its shared memory."""
    (tmp_path / "no-devices").mkdir()
    monkeypatch.delenv("NVML_LIBRARY")
    monkeypatch.setenv("INFERENCE_SUPERVISOR_DEV", str(tmp_path / "no-devices"))
    worker = orphan(here, nvml_stub)
    served = here.serve()
    assert f"pid {worker.pid} (sglang::scheduler_TP0" in warnings(served) and processes.alive(worker)
    here.process_of("root").kill()
    cleaned = here.serve("--clean")
    assert not processes.alive(worker) and "--clean: the process is gone" in warnings(cleaned)


def test_a_driver_that_hangs_delays_a_launch_and_no_more(here: Site, nvml_stub: StubNvml) -> None:
    nvml_stub.hang("*")
    nvml_stub.write()
    try:
        served = here.headless("--timeout", "60s")
        assert served.exit_code(60) == 0, served.said
        told = warnings(served)
        assert "the NVIDIA driver does not answer, so GPU memory was not looked at" in told
        assert f"no answer within {before.DRIVER_WAIT_S:.0f} s" in told
    finally:
        nvml_stub.heal()
        nvml_stub.write()


@pytest.mark.parametrize("flag", ["--force", "--clean"])
def test_the_flags_belong_to_a_profile(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--headless", "--url", "http://127.0.0.1:1/health", flag]) == 2
    assert f"{flag} belongs to PROFILE" in capsys.readouterr().err
