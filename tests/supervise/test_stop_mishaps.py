"""Stops that meet what users do: a shell that carries our mark, a run inside a run, an interrupt, a second stop.

Real commands on one stub GPU. A bystander is whoever did not come from the launch; none may ever be signalled.
"""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from supervisor.core.events import Phase
from tests.headless.test_zombies import orphan
from tests.main_job.kit import QUICK, RUN_MARKER, Site, site_with_gpu
from tests.node.conftest import until
from tests.real import processes
from tests.real.nvml import GIB, StubNvml
from tests.real.processes import Tracker
from tests.supervise.test_release_of_runs import evidence_of, knows_what_is_held, serving

SHELL = """
trap 'kill $!' TERM
INFERENCE_SUPERVISOR_RUN=$1 sleep 600 &
echo $!
wait
"""


@pytest.fixture
def here(nvml_stub: StubNvml, tmp_path: Path, tracker: Tracker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A profile on a node with one GPU."""
    with site_with_gpu(tmp_path, tracker, nvml_stub, monkeypatch) as made:
        yield made


@contextmanager
def bystander(run_id: str, *fds: int) -> Iterator[psutil.Process]:
    """A process of a shell with a session of its own, whose user exported a run's id there."""
    shell = subprocess.Popen(
        ["/bin/sh", "-c", SHELL, "sh", run_id], stdout=subprocess.PIPE, pass_fds=fds, start_new_session=True
    )
    assert shell.stdout is not None
    process = psutil.Process(int(shell.stdout.readline()))
    processes.poll(lambda: process.environ().get(RUN_MARKER) == run_id and process.name() == "sleep", 10, "its start")
    try:
        yield process
    finally:
        shell.terminate()
        shell.wait()
        shell.stdout.close()


def run_id(here: Site) -> str:
    return str(here.records()[-1]["run_id"])


# ------------------------------------------------------------------------------------------- bystanders


def test_a_process_of_the_users_shell_that_exported_the_runs_id(here: Site) -> None:
    here.serve()
    with bystander(run_id(here)) as process:
        stopped = here.start("stop", str(here.file))
        assert stopped.exit_code() == 0, stopped.said
        assert processes.alive(process)
        assert f"pid {process.pid} " not in stopped.said


def test_zombies_of_such_a_process(here: Site, nvml_stub: StubNvml) -> None:
    here.serve()
    ended = run_id(here)
    assert here.start("stop", str(here.file)).exit_code() == 0
    with open(nvml_stub.device(nvml_stub.gpus[0])) as device, bystander(ended, device.fileno()) as process:
        nvml_stub.claim(nvml_stub.gpus[0], process.pid, 10 * GIB)
        cleared = here.start("zombies", str(here.file), "--kill", "--yes")
        assert cleared.exit_code(60) == 0, cleared.said
        assert processes.alive(process)


def test_a_stop_from_a_shell_that_carries_the_runs_id(here: Site) -> None:
    """The supervisor, its node program and its children carry it too."""
    here.serve()
    stopped = here.start("stop", str(here.file), "--json", env={RUN_MARKER: run_id(here)})
    assert stopped.exit_code() == 0, stopped.said
    assert f"pid {stopped.process.pid} " not in stopped.said


def test_a_run_inside_a_run_is_another_run(here: Site, tmp_path: Path, tracker: Tracker) -> None:
    """A notebook that we serve, from whose terminal somebody launches a server of another profile."""
    inner = Site(tmp_path / "inner", tracker, *QUICK)
    words = [sys.executable, "-m", "supervisor.cli", "--headless", str(inner.file), "--timeout", "60s"]
    script = tmp_path / "notebook.sh"
    script.write_text(f"#!/bin/sh\n{' '.join(words)} >{tmp_path}/inner.out 2>&1\nexec sleep 600\n")
    script.chmod(0o755)
    outer = tmp_path / "outer.toml"
    outer.write_text(
        f'name = "{here.key}"\nengine = "generic"\n[node]\nhost = "local"\nstate_dir = "{here.state_dir}"\n'
        f'python = "{sys.executable}"\n[launch]\ncommand = "{script}"\ncwd = "{tmp_path}"\n'
        f'env.HOME = "{inner.home}"\nlogin_env = false\n[ready]\n'
        f'url = "http://127.0.0.1:{here.port}/health"\n[stop]\ngrace = "3s"\n'
    )
    here.launch_and_leave(outer)
    try:
        said = tmp_path / "inner.out"
        processes.poll(lambda: said.exists() and "serving" in said.read_text(), 60, "the inner one serves")
        root = inner.process_of("root")
        keeper = inner.process_of("keeper")
        stopped = here.start("stop", str(outer))
        code = stopped.exit_code(60)
        assert processes.alive(root) and processes.alive(keeper)
        assert code == 0
    finally:
        inner.end()


# ------------------------------------------------------------------------------------------- a second stop


def test_a_stop_of_a_run_that_died_with_left_overs(here: Site, nvml_stub: StubNvml) -> None:
    worker = orphan(here, nvml_stub)
    stopped = here.start("stop", str(here.file), "--json")
    assert stopped.exit_code(60) == 0, stopped.said
    assert not processes.alive(worker)
    assert stopped.summary()["evidence"][0]["text"].startswith("proved (71.0 GiB freed on GPU 0")


def test_a_stop_after_a_stop_finds_nothing(here: Site, nvml_stub: StubNvml) -> None:
    here.serve()
    nvml_stub.claim(nvml_stub.gpus[0], here.identity()[0], 40 * GIB)
    assert here.start("stop", str(here.file)).exit_code() == 0
    again = here.start("stop", str(here.file), "--json")
    assert again.exit_code(10) == 0, again.said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_stop_says_so_and_the_next_one_goes_on(here: Site, nvml_stub: StubNvml, number: int) -> None:
    here.serve()
    nvml_stub.claim(nvml_stub.gpus[0], here.identity()[0], 40 * GIB)
    nvml_stub.release_delay_ms = 5000
    nvml_stub.write()
    stopped = here.start("stop", str(here.file), "--json")
    path = next(here.state_dir.glob("**/runs/*/run.json")).with_name("exit.json")
    asyncio.run(until(path.exists))
    stopped.process.send_signal(number)
    assert stopped.exit_code() == 128 + number, stopped.said
    again = here.start("stop", str(here.file), "--json")
    assert again.exit_code(60) == 0, again.said
    assert again.summary()["evidence"][0]["text"].startswith("proved (40.0 GiB freed on GPU 0")


def test_a_stop_whose_node_program_is_killed_says_how_far_it_came(here: Site, nvml_stub: StubNvml) -> None:
    here.serve()
    nvml_stub.claim(nvml_stub.gpus[0], here.identity()[0], 40 * GIB)
    nvml_stub.release_delay_ms = 5000
    nvml_stub.write()
    stopped = here.start("stop", str(here.file), "--json")
    processes.poll(lambda: "waiting for the GPUs" in stopped.out, 20, "the proof")
    for process in psutil.Process(stopped.process.pid).children():
        process.kill()
    assert stopped.exit_code() == 3, stopped.said
    assert "the stop has begun and is not proved" in stopped.summary()["reason"]


def test_a_restart_ends_what_a_dead_run_left_and_launches_after_the_proof(here: Site, nvml_stub: StubNvml) -> None:
    worker = orphan(here, nvml_stub)
    nvml_stub.release_delay_ms = 2000
    nvml_stub.write()
    here.write(*QUICK)
    restarted = here.start("restart", str(here.file), "--json", "--timeout", "60s")
    assert restarted.exit_code(60) == 0, restarted.said
    assert not processes.alive(worker)
    assert "71.0 GiB freed in" in restarted.out and here.servers_ever() == 2


@pytest.mark.asyncio
async def test_a_link_that_breaks_during_the_proof(here: Site, nvml_stub: StubNvml) -> None:
    """The next connection goes on with it, and nothing of the first is left to complain."""
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))
    nvml_stub.release_delay_ms = 4000
    nvml_stub.write()
    async with serving(here) as session:
        nvml_stub.claim(nvml_stub.gpus[0], here.identity()[0], 40 * GIB)
        await knows_what_is_held(session)
        first = session._connection.client
        record = here.records()[-1]
        await first.request("write_stop", key=here.key, run_id=record["run_id"], by="another@there")
        here.process_of("root").terminate()
        path = next(here.state_dir.glob("**/runs/*/run.json")).with_name("exit.json")
        await until(lambda: path.exists() and session.attendance is not None and session.attendance._gone)
        await first.close()
        await until(lambda: session.desk.phase is Phase.STOPPED, 30)
        assert session._connection.client is not first
        assert "release: proved (40.0 GiB freed on GPU 0" in evidence_of(session)
    gc.collect()
    assert not complaints


# ------------------------------------------------------------------------------------------- what moves during a stop


LOADS = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
devices, claims, ready = sys.argv[1:]
print("loads", flush=True)
while not os.path.exists(ready):
    time.sleep(0.02)
held = open(devices)
for number in (0, 1):
    with open(f"{claims}/.{number}", "w") as file:
        file.write(f"proc {number} {os.getpid()} C {40 << 30}\\n")
    os.rename(f"{claims}/.{number}", f"{claims}/{os.getpid()}.{number}")
time.sleep(600)
"""


def test_a_server_that_loads_while_it_is_stopped(here: Site, nvml_stub: StubNvml, tmp_path: Path) -> None:
    """It had no GPU open when the stop began, and two when it was killed: their release is what is proved."""
    nvml_stub.gpu(base_bytes=400 << 20)
    nvml_stub.release_delay_ms = 3000
    nvml_stub.write()
    program, ready = tmp_path / "loads.py", tmp_path / "ready"
    program.write_text(LOADS)
    words = [sys.executable, "-I", str(program), str(nvml_stub.device(nvml_stub.gpus[0])), str(nvml_stub.claims)]
    here.file.write_text(
        f'name = "{here.key}"\nengine = "generic"\n[node]\nhost = "local"\nstate_dir = "{here.state_dir}"\n'
        f'python = "{sys.executable}"\n[launch]\ncommand = {json.dumps([*words, str(ready)])}\n'
        f'log = "{here.log}"\n[ready]\nurl = "http://127.0.0.1:{here.port}/health"\n[stop]\ngrace = "8s"\n'
    )
    here.launch_and_leave(here.file)
    stopped = here.start("stop", str(here.file), "--json")
    processes.poll(lambda: "will stop pid" in stopped.out, 20, "the plan")
    ready.touch()
    assert stopped.exit_code(60) == 0, stopped.said
    assert stopped.summary()["evidence"][0]["text"].startswith("proved (80.0 GiB freed on 2 GPUs in "), stopped.said
