"""Supervisors that are killed at any moment, two that start at once, and servers that die while somebody waits."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.main_job.kit import LOADS, QUICK, WARMS, Site, site
from tests.real import processes
from tests.real.processes import Tracker
from tests.scale import scaled

DEATH_SEEN_WITHIN_S = 2.0
"""The aim is 0.5 s; the bound is loose because CI's machines are shared."""


@pytest.fixture
def here(tmp_path: Path, tracker: Tracker) -> Iterator[Site]:
    with site(tmp_path, tracker, *QUICK) as made:
        yield made


def assert_one_server(place: Site) -> None:
    """One start ever, one run alive, and one record of it."""
    assert place.servers_ever() == 1
    assert len(place.runs_alive()) == 1
    assert {record["run_id"] for record in place.records()} == place.runs_alive()


# ------------------------------------------------------------------------------------------- killed supervisors


@pytest.mark.parametrize(
    ("phase", "flags"), [("loading", LOADS), ("warming", WARMS), ("serving", QUICK)], ids=["loading", "503", "serving"]
)
def test_after_a_kill_the_next_start_takes_the_same_server_over(
    tmp_path: Path, tracker: Tracker, phase: str, flags: tuple[str, ...]
) -> None:
    with site(tmp_path, tracker, *flags) as here:
        if phase == "serving":
            here.serve()
            phase = "loading"  # a wait that takes a serving run over passes it; a wait for what serves is soon over
        before: tuple[int, int] | None = None
        for _ in range(max(2, scaled(20))):
            command = here.headless()
            command.until_phase(phase)
            before = before or here.identity()
            command.kill()
        command = here.headless()
        command.until_phase(phase)
        assert here.identity() == before
        assert_one_server(here)


def test_killed_between_the_claim_and_the_record_nothing_is_started_twice(here: Site) -> None:
    dice = random.Random(7)
    before_the_record = 0
    for _ in range(max(2, scaled(20))):
        killed = here.start("--headless", str(here.file), "--json")
        while not here.lock_is_held():
            assert killed.process.poll() is None, killed.said
        time.sleep(dice.random() * 0.01)  # not waited for: what follows takes some 10 ms, and the moment is random
        killed.process.kill()
        before_the_record += not any(record["root"] for record in here.records())
        killed.kill()
        assert_taken_over_or_launched(here)
    print(f"{before_the_record} of the kills came before the server was recorded")


def test_killed_at_any_moment_of_a_start_nothing_is_started_twice(here: Site) -> None:
    dice = random.Random(8)
    took_s = _time_to_launch(here)
    for _ in range(max(2, scaled(20))):
        killed = here.start("--headless", str(here.file), "--json")
        time.sleep(dice.uniform(0.5, 1.1) * took_s)  # not waited for: the moment is what is random here
        killed.kill()
        assert_taken_over_or_launched(here)


def assert_taken_over_or_launched(place: Site) -> None:
    """The next start ends well, and one server stands; then all of it is removed for the next round."""
    place.serve()
    assert_one_server(place)
    _clear(place)


def _clear(place: Site) -> None:
    for process in place.marked():
        processes.send(process, signal.SIGKILL)
    processes.poll(lambda: not place.marked() and not place.lock_is_held(), 10, "the end of the run")
    for path in place.state_dir.glob("**/runs/*/run.json"):
        path.unlink()
    place.log.unlink()


def _time_to_launch(place: Site) -> float:
    began = time.monotonic()
    command = place.headless()
    command.until_phase("launching")
    took_s = time.monotonic() - began
    assert command.exit_code() == 0
    _clear(place)
    return took_s


# ------------------------------------------------------------------------------------------- two at once


def test_of_two_that_start_at_once_one_launches_and_both_succeed(here: Site) -> None:
    for _ in range(max(2, scaled(20))):
        both = [here.headless(), here.headless()]
        assert [command.exit_code() for command in both] == [0, 0], "\n".join(command.said for command in both)
        assert_one_server(here)
        told = [command.out.count('"to":"launching"') for command in both]
        assert sum(told) == 1, "\n".join(command.said for command in both)
        _clear(here)


# ------------------------------------------------------------------------------------------- the server dies


@pytest.mark.parametrize(("phase", "flags"), [("loading", LOADS), ("warming", WARMS)], ids=["loading", "503"])
def test_a_killed_server_ends_the_wait_at_once_with_its_signal(
    tmp_path: Path, tracker: Tracker, phase: str, flags: tuple[str, ...]
) -> None:
    with site(tmp_path, tracker, *flags) as here:
        waiting = here.headless()
        waiting.until_phase(phase)
        root = here.process_of("root")
        died_at, died_at_monotonic = time.time(), time.monotonic()
        processes.send(root, signal.SIGKILL)
        assert waiting.exit_code() == 1, waiting.said
        took_s = time.monotonic() - died_at_monotonic
        told_s = waiting.told_at("failed") - died_at
        print(f"{phase}: told {told_s * 1000:.0f} ms after the death, ended {took_s * 1000:.0f} ms after it")
        assert "SIGKILL" in waiting.summary()["reason"]
        assert "SIGKILL" in str(waiting.summary()["finding"])
        assert took_s < DEATH_SEEN_WITHIN_S


@pytest.mark.parametrize("code", [0, 3])
def test_a_server_that_ends_by_itself_is_a_failure_whatever_its_code(here: Site, code: int) -> None:
    here.write("--sim-load", "1", "--sim-fault", f"exit-code:{code}")
    waiting = here.headless()
    assert waiting.exit_code() == 1
    reason = waiting.summary()["reason"]
    assert "the server failed" in reason and f"{code}" in reason


def test_a_stop_by_somebody_else_ends_the_wait_and_says_who(tmp_path: Path, tracker: Tracker) -> None:
    with site(tmp_path, tracker, *LOADS) as here:
        waiting = here.headless()
        waiting.until_phase("loading")
        stop = here.start("stop", str(here.file))
        assert waiting.exit_code() == 1
        assert stop.exit_code() == 0, stop.said
        by = here.records()[-1]["by"]
        assert "stop" in waiting.summary()["reason"]
        assert f"stopped by {by}" in waiting.said or f"stop asked for by {by}" in waiting.said
        assert waiting.summary()["phase"] == "stopped"
