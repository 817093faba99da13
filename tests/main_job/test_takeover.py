"""The takeover table of the contract, row by row, with the real command on this machine."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.main_job.kit import LOADS, QUICK, Site, site, tracked
from tests.real import processes
from tests.real.processes import Tracker

SECRET_BEFORE, SECRET_AFTER = "sk-first-7f3a9c21", "sk-second-5b8e0d44"


@pytest.fixture
def here(tmp_path: Path, tracker: Tracker) -> Iterator[Site]:
    with site(tmp_path, tracker, *QUICK) as made:
        yield made


def warnings_of(events: list[dict[str, object]]) -> str:
    return "\n".join(str(event["text"]) for event in events if event["kind"] == "warning")


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A run that serves, for the rows that leave it as it is."""
    with tracked() as tracker, site(tmp_path_factory.mktemp("live"), tracker) as made:
        made.write(*QUICK, env={"HF_TOKEN": SECRET_BEFORE})
        made.serve()
        yield made


@pytest.fixture
def lives(live: Site) -> Iterator[Site]:
    """It, with the profile that launched it; the very same server lives afterwards, and there was no other."""
    live.write(*QUICK, env={"HF_TOKEN": SECRET_BEFORE})
    before = live.identity()
    yield live
    assert live.identity() == before and live.servers_ever() == 1 and len(live.runs_alive()) == 1


def test_a_live_run_with_the_same_fingerprint_is_taken_over(lives: Site) -> None:
    assert "taken over; started" in lives.serve().out


def test_it_is_taken_over_with_no_launch_too(lives: Site) -> None:
    assert "taken over; started" in lives.serve("--no-launch").out


def test_differences_in_ready_and_verify_never_count(lives: Site) -> None:
    more = '[ready]\ntimeout = "9m"\n[verify]\nprompt = "Say something"\ntimeout = "20s"'
    lives.write(*QUICK, env={"HF_TOKEN": SECRET_BEFORE}, more=more)
    lives.serve()


def test_a_live_run_with_other_settings_is_refused_with_the_difference(lives: Site) -> None:
    lives.write(*QUICK, "--context-length", "4096", env={"HF_TOKEN": SECRET_BEFORE, "SOME_FLAG": "1"})
    refused = lives.headless()
    assert refused.exit_code() == 4
    reason = refused.summary()["reason"]
    assert "only here: --context-length 4096" in reason
    assert "SOME_FLAG only here" in reason
    assert f"supervisor restart {lives.file}" in reason


def test_with_no_launch_it_is_taken_over_with_a_warning(lives: Site) -> None:
    lives.write(*QUICK, "--context-length", "4096", env={"HF_TOKEN": SECRET_BEFORE})
    text = warnings_of(lives.serve("--no-launch").events())
    assert "lives with other settings" in text and "--context-length 4096" in text


def test_a_changed_secret_counts_and_is_shown_nowhere(lives: Site) -> None:
    lives.write(*QUICK, env={"HF_TOKEN": SECRET_AFTER})
    refused = lives.headless("--events", "all")
    assert refused.exit_code() == 4
    assert "HF_TOKEN has another value" in refused.summary()["reason"]
    assert SECRET_BEFORE not in refused.said and SECRET_AFTER not in refused.said
    written = [path for path in lives.state_dir.rglob("*") if path.is_file()]
    assert written
    for path in written:
        data = path.read_bytes()
        assert SECRET_BEFORE.encode() not in data and SECRET_AFTER.encode() not in data, path


def test_a_server_whose_keeper_was_killed_is_taken_over_with_a_word(lives: Site) -> None:
    keeper = lives.process_of("keeper")
    processes.send(keeper, signal.SIGKILL)
    assert not processes.wait_gone([keeper], 5)
    for flag in ((), ("--no-launch",)):
        assert "exit code will be unknown" in warnings_of(lives.serve(*flag).events())


def test_a_run_that_ended_is_told_and_then_launched_anew(here: Site) -> None:
    here.serve()
    root = here.process_of("root")
    processes.send(root, signal.SIGKILL)
    processes.poll(lambda: not here.marked() and not here.lock_is_held(), 10, "the end of the whole run")
    told = here.headless("--no-launch")
    assert told.exit_code() == 1
    summary = told.summary()
    assert "SIGKILL" in summary["reason"]
    assert summary["finding"] is not None and "SIGKILL" in str(summary["finding"])
    assert here.servers_ever() == 1
    again = here.serve()
    text = warnings_of(again.events())
    assert "ended by itself" in text and "SIGKILL" in text
    assert here.servers_ever() == 2


def test_nothing_there_is_launched_and_refused_with_no_launch(here: Site) -> None:
    refused = here.headless("--no-launch")
    assert refused.exit_code() == 4
    assert "nothing runs" in refused.summary()["reason"]
    assert here.servers_ever() == 0 and not here.records()
    here.serve()
    assert here.servers_ever() == 1


def test_a_run_that_was_stopped_is_nothing_there(here: Site) -> None:
    here.serve()
    stop = here.start("stop", str(here.file))
    assert stop.exit_code() == 0, stop.said
    assert not here.marked()
    refused = here.headless("--no-launch")
    assert refused.exit_code() == 4
    assert "was stopped by" in refused.summary()["reason"]


@pytest.mark.parametrize("flag", [(), ("--no-launch",)])
def test_another_process_on_the_port_is_named(here: Site, flag: tuple[str, ...]) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", here.port))
        other.listen()
        refused = here.headless(*flag)
        assert refused.exit_code() == 4
    reason = refused.summary()["reason"]
    if flag:
        assert "attach" in reason, reason
    assert str(here.port) in reason and f"pid {os.getpid()}" in reason, reason
    assert here.servers_ever() == 0


def test_restart_replaces_a_run_whatever_its_settings(tmp_path: Path, tracker: Tracker) -> None:
    with site(tmp_path, tracker, *LOADS) as here:
        command = here.headless()
        command.until_phase("loading")
        old = here.identity()
        here.write(*QUICK)
        restart = here.start("restart", str(here.file), "--json", "--timeout", "25s")
        assert restart.exit_code() == 0, restart.said
        assert command.exit_code() == 1
        assert here.identity() != old and len(here.runs_alive()) == 1 and here.servers_ever() == 2
