"""The zombies command: who is chosen, what is asked, and the real command on real left-overs."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from supervisor.core.gpu import Coverage, Driver, DriverState, Snapshot
from supervisor.core.holders import HolderClass, classify
from supervisor.engines import loader
from supervisor.errors import UsageError
from supervisor.headless import gpu_text
from supervisor.headless.text import Style
from supervisor.headless.zombies import chosen, decided, plan_lines
from tests.conftest import MakeTmux
from tests.core import snapshots
from tests.main_job.kit import QUICK, Site, site_with_gpu
from tests.node.conftest import until
from tests.real import processes
from tests.real.nvml import GIB, MISMATCH, StubNvml
from tests.real.processes import Tracker
from tests.real.tmux import Tmux
from tests.schema import stream

KNOWN = loader.known_holders()
HOLD = "import sys, time; print(flush=True); time.sleep(600)"
NOBODY = 65534


# ------------------------------------------------------------------------------------------------ who is chosen


@pytest.mark.parametrize("name", snapshots.names())
def test_what_is_chosen_in_every_situation(name: str) -> None:
    snapshot = snapshots.load(name).snapshot()
    holders = classify(snapshot, KNOWN)
    assert {holder.class_ for holder in chosen(holders, (), snapshot)} <= {HolderClass.OURS_ORPHAN}
    for holder in holders:
        if holder.pid is None:
            continue
        allowed = holder.killable == "yes" or (holder.killable == "root" and snapshot.uid == 0)
        if allowed:
            assert chosen(holders, (holder.pid, holder.pid), snapshot) == (holder,)
        else:
            with pytest.raises(UsageError, match=f"pid {holder.pid}"):
                chosen(holders, (holder.pid,), snapshot)
    with pytest.raises(UsageError, match="pid 77777 is no holder"):
        chosen(holders, (77777,), snapshot)


def test_one_that_may_not_be_ended_stops_the_whole_command() -> None:
    snapshot = snapshots.load("03-desktop-beside-an-orphan").snapshot()
    with pytest.raises(UsageError, match="pid 900 is protected, and never touched"):
        chosen(classify(snapshot, KNOWN), (4711, 900), snapshot)


def test_another_users_process_comes_with_the_command_for_root() -> None:
    snapshot = snapshots.load("20-another-users-orphan").snapshot()
    with pytest.raises(UsageError, match="belongs to root: ask, or as root: sudo kill 4711"):
        chosen(classify(snapshot, KNOWN), (4711,), snapshot)


def test_the_plan_names_what_goes_with_it() -> None:
    snapshot = snapshots.load("02-our-workers-stuck-in-loading").snapshot()
    assert plan_lines(chosen(classify(snapshot, KNOWN), (), snapshot), snapshot) == [
        "to be ended (TERM, and KILL after 30 s):",
        "  pid 501 (ours-orphan) 40.0 GiB on GPU 0, sglang::scheduler_TP0",
        "  pid 502 (ours-orphan) 40.0 GiB on GPU 1, sglang::scheduler_TP1",
        "  and every other process that is left of run 1128-0300-aaaa",
    ]


def zombies_text(name: str) -> str:
    snapshot = snapshots.load(name).snapshot()
    lines = gpu_text.zombie_lines("gpu1", snapshot, classify(snapshot, KNOWN), Style(colour=False), 120)
    return "\n".join(lines)


def test_evidence_and_advice_stand_below_each() -> None:
    assert zombies_text("02-our-workers-stuck-in-loading").startswith(
        "gpu1 · 2 GPUs: 2 left-over holders with 80.0 GiB\n\n"
        "pid 501  ours-orphan  40.0 GiB on GPU 0  2 h old  ana  sglang::scheduler_TP0\n"
        "    It holds 40.0 GiB on GPU 0.\n"
        "    It carries the id of run 1128-0300-aaaa of kimi, which ended 10 min ago.\n"
        "    → Clear it: supervisor zombies HOST --kill\n"
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("40-utilisation-latch", "not left over, but worth a look:\n\nno process  utilisation-latch"),
        ("30-ollama-keeps-alive", "ollama stop"),
        ("38-a-shared-host", "3 more hold memory and are alive: supervisor gpus gpu1"),
        ("43-own-coverage-is-no-ghost", "Left-overs of others show as root."),
        ("34-data-workers-hold-a-dead-ranks-memory", "2 left-over holders\n"),
        ("31b-residual-floor", "no left-over holders"),
    ],
)
def test_what_else_is_said(name: str, words: str) -> None:
    assert words in zombies_text(name)


# ------------------------------------------------------------------------------------------------ the real command


@pytest.fixture
def here(nvml_stub: StubNvml, tmp_path: Path, tracker: Tracker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A node with one GPU, and a profile on it."""
    with site_with_gpu(tmp_path, tracker, nvml_stub, monkeypatch) as made:
        yield made


@pytest.fixture
def holders(here: Site, nvml_stub: StubNvml) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two processes of ours on the GPU, which know nothing of us."""
    started = [hold(nvml_stub) for _ in range(2)]
    yield started
    for process in started:
        end(process)


def hold(stub: StubNvml, user: int | None = None) -> subprocess.Popen[bytes]:
    """A process that has the GPU's file open and 10 GiB of its memory."""
    with open(stub.device(stub.gpus[0])) as device:
        process = subprocess.Popen(
            ["/usr/bin/env", "python3", "-c", HOLD] if user is not None else [sys.executable, "-c", HOLD],
            stdout=subprocess.PIPE,
            pass_fds=(device.fileno(),),
            user=user,
            cwd="/",
        )
    assert process.stdout is not None and process.stdout.readline()
    stub.claim(stub.gpus[0], process.pid, 10 * GIB)
    return process


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def orphan(here: Site, stub: StubNvml) -> psutil.Process:
    """A launch of ours whose root dies and whose worker lives on with 71 GiB."""
    here.write(*QUICK, "--sim-fault", "orphan-workers:3")
    here.serve()
    worker = next(item for item in here.marked() if "::scheduler" in " ".join([item.name(), *item.cmdline()]))
    stub.claim(stub.gpus[0], worker.pid, 71 * GIB)
    path = next(here.state_dir.glob("**/runs/*/run.json")).with_name("exit.json")
    asyncio.run(until(path.exists))
    assert processes.alive(worker)
    return worker


def test_nothing_left_over_is_0(here: Site, holders: list[subprocess.Popen[bytes]]) -> None:
    command = here.start("zombies", "local", "--json")
    assert command.exit_code() == 0, command.said
    events = stream(command.out)
    assert [event["kind"] for event in events] == ["holders", "summary"]
    assert {item["pid"] for item in events[0]["holders"]} >= {process.pid for process in holders}
    assert events[-1]["reason"] == "no left-over holders"


def test_none_seen_is_not_none_left_where_the_driver_cannot_be_asked(here: Site, nvml_stub: StubNvml) -> None:
    """It said "no left-over holders" of a node whose driver it could not ask."""
    nvml_stub.init_code = MISMATCH
    nvml_stub.write()
    zombies = here.start("zombies", "local", "--json")
    code = 0 if os.getuid() == 0 else 1  # root has looked at every process's device files
    assert zombies.exit_code() == code, zombies.said
    reason = zombies.summary()["reason"]
    assert "no left-over holder was seen" in reason and "memory without a process was not" in reason


@pytest.mark.parametrize(("coverage", "code"), [(Coverage.ALL, 0), (Coverage.OWN, 1), (Coverage.NONE, 1)])
def test_what_was_not_looked_at_is_no_zero(coverage: Coverage, code: int) -> None:
    driver = Driver(state=DriverState.STUCK, why="driver not responding since 14 s")
    decision = decided(Snapshot(at=0, driver=driver, coverage=coverage), (), None)
    assert decision.exit_code == code and "driver not responding since 14 s" in decision.reason
    fine = Snapshot(at=0, driver=Driver(state=DriverState.OK), coverage=Coverage.OWN)
    assert (decided(fine, (), None).exit_code, decided(fine, (), None).reason) == (0, "no left-over holders")


def test_our_orphan_is_found_and_cleared_with_proof(
    here: Site, nvml_stub: StubNvml, holders: list[subprocess.Popen[bytes]]
) -> None:
    worker = orphan(here, nvml_stub)
    nvml_stub.release_delay_ms = 1500
    nvml_stub.write()
    profile = str(here.file)
    looked = here.start("zombies", profile)
    assert looked.exit_code() == 1, looked.said
    assert "1 left-over holder with 71.0 GiB" in looked.out and f"pid {worker.pid}  ours-orphan" in looked.out
    assert f"→ Clear it: supervisor zombies {profile} --kill" in looked.out
    refused = here.start("zombies", profile, "--kill")
    assert refused.exit_code() == 2 and "no terminal to ask at" in refused.err, refused.said
    assert processes.alive(worker)
    cleared = here.start("zombies", profile, "--kill", "--yes", "--json")
    assert cleared.exit_code(60) == 0, cleared.said
    events = stream(cleared.out)
    summary = events[-1]
    assert "71.0 GiB freed" in summary["reason"] and "no left-over holders" in summary["reason"]
    assert [item["kind"] for item in summary["evidence"]] == ["release"]
    assert summary["evidence"][0]["text"].startswith("proved")
    told = [event["text"] for event in events if event["kind"] == "warning"]
    assert "to be ended (TERM, and KILL after 30 s):" in told and any(f"pid {worker.pid}" in text for text in told)
    assert [event["kind"] for event in events].count("holders") == 2
    assert not processes.alive(worker) and all(process.poll() is None for process in holders)
    assert here.start("zombies", profile).exit_code() == 0


def test_an_unproved_release_is_1(here: Site, nvml_stub: StubNvml) -> None:
    worker = orphan(here, nvml_stub)
    command = here.start("zombies", str(here.file), "--kill", "--yes", "--json")
    processes.poll(lambda: "will stop pid" in command.out, 20, "the plan")
    nvml_stub.gpus[0].lost = 1
    nvml_stub.write()
    assert command.exit_code(60) == 1, command.said
    assert stream(command.out)[-1]["evidence"][0]["text"].startswith("unproved (")
    assert not processes.alive(worker)


def test_without_a_pid_only_what_is_preselected(here: Site, holders: list[subprocess.Popen[bytes]]) -> None:
    command = here.start("zombies", "local", "--kill", "--yes")
    assert command.exit_code() == 0 and "nothing is pre-selected" in command.err, command.said
    assert all(process.poll() is None for process in holders)


def test_the_named_pid_and_no_other(here: Site, holders: list[subprocess.Popen[bytes]]) -> None:
    first, second = holders
    command = here.start("zombies", "local", "--kill", str(first.pid), "--yes")
    assert command.exit_code(60) == 0, command.said
    assert first.wait(5) == -15 and second.poll() is None
    assert f"pid {first.pid} (process) 10.0 GiB on GPU 0" in command.err and "10.0 GiB freed" in command.out


def test_who_runs_the_command_is_protected(here: Site, nvml_stub: StubNvml) -> None:
    with open(nvml_stub.device(nvml_stub.gpus[0])):
        nvml_stub.claim(nvml_stub.gpus[0], os.getpid(), GIB)
        command = here.start("zombies", "local", "--kill", str(os.getpid()), "--yes", "--json")
        assert command.exit_code() == 2 and "is protected, and never touched" in command.err, command.said
    summary = stream(command.out)[-1]
    assert summary["verdict"] == "refused" and summary["exit_code"] == 2


def test_a_pid_that_holds_nothing(here: Site, holders: list[subprocess.Popen[bytes]]) -> None:
    command = here.start("zombies", "local", "--kill", str(holders[0].pid), "1", "--yes")
    assert command.exit_code() == 2 and "pid 1 is no holder" in command.err, command.said
    assert all(process.poll() is None for process in holders)


def test_a_node_that_is_not_reached(here: Site) -> None:
    command = here.start("zombies", "no-such-node.invalid", "--json")
    assert command.exit_code() == 3, command.said
    assert stream(command.out)[-1]["verdict"] == "unreachable"
    assert here.start("zombies", "no-such-node.invalid").exit_code() == 3


# ------------------------------------------------------------------------------------------------ at a terminal


def ask(make_tmux: MakeTmux, stub: StubNvml, *words: str) -> Tmux:
    command = [sys.executable, "-m", "supervisor.cli", "zombies", "local", "--kill", *words]
    return make_tmux(command, width=140, height=50, environment=dict(stub.environment()), cwd=Path.cwd())


@pytest.mark.parametrize(("answer", "code"), [("n", 2), ("", 2), ("yess", 2), ("y", 0), ("YES", 0)])
def test_it_asks_after_the_plan(
    here: Site,
    nvml_stub: StubNvml,
    make_tmux: MakeTmux,
    holders: list[subprocess.Popen[bytes]],
    answer: str,
    code: int,
) -> None:
    first, second = holders
    terminal = ask(make_tmux, nvml_stub, str(first.pid))
    shown = terminal.wait_for("end them? [y/N]", 20)
    assert f"pid {first.pid} (process) 10.0 GiB on GPU 0" in shown
    assert first.poll() is None
    terminal.type_text(answer)
    terminal.send_keys("Enter")
    assert terminal.wait_exit(60) == code, terminal.capture()
    assert (first.poll() is None) is (code == 2) and second.poll() is None


def test_an_interrupt_at_the_question_ends_nothing(
    here: Site, nvml_stub: StubNvml, make_tmux: MakeTmux, holders: list[subprocess.Popen[bytes]]
) -> None:
    terminal = ask(make_tmux, nvml_stub, str(holders[0].pid))
    terminal.wait_for("end them? [y/N]", 20)
    terminal.send_keys("C-c")
    assert terminal.wait_exit() == 130
    assert holders[0].poll() is None


@pytest.mark.skipif(os.getuid() != 0, reason="another user's process can be started by root alone")
def test_another_users_process_only_with_its_pid_typed(here: Site, nvml_stub: StubNvml, make_tmux: MakeTmux) -> None:
    process = hold(nvml_stub, user=NOBODY)
    pid = str(process.pid)
    try:
        refused = here.start("zombies", "local", "--kill", pid, "--yes")
        assert refused.exit_code() == 2 and "only at a terminal" in refused.err, refused.said
        assert process.poll() is None
        terminal = ask(make_tmux, nvml_stub, pid, "--yes")
        terminal.wait_for(f"type the pid {pid}", 20)
        terminal.type_text("y")
        terminal.send_keys("Enter")
        assert terminal.wait_exit(20) == 2 and process.poll() is None
        terminal = ask(make_tmux, nvml_stub, pid)
        terminal.wait_for(f"type the pid {pid}", 20)
        terminal.type_text(pid)
        terminal.send_keys("Enter")
        assert terminal.wait_exit(60) == 0, terminal.capture()
        assert process.wait(5) == -15
    finally:
        end(process)
