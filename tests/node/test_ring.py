"""The ring of who held GPU memory: what it keeps, what it forgets, and what a file can do to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from supervisor.core.gpu import Past
from supervisor.node import proc, ring


@pytest.fixture(autouse=True)
def written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring, "WRITE_EVERY_S", 0.0)


def process(pid: int, ticks: int, title: str = "VLLM::Worker_TP1") -> dict[str, Any]:
    return {"pid": pid, "start_ticks": ticks, "title": title, "comm": "worker", "run_id": "r1", "uid": 1000}


def dead() -> int:
    """A pid that nobody has."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def file_of(folder: Path) -> Path:
    return folder / "gpu-holders.json"


def entries(folder: Path) -> list[dict[str, Any]]:
    told = json.loads(file_of(folder).read_text())["entries"]
    assert isinstance(told, list)
    return told


def write(folder: Path, *told: object) -> None:
    file_of(folder).write_text(json.dumps({"boot_id": proc.boot_id(), "entries": told}))


def entry(number: int, **changed: object) -> dict[str, object]:
    told = {"pid": number, "start_ticks": 5, "title": "old", "uid": 1000, "run_id": None, "held": {"GPU-0": 5}}
    return {**told, "last_at": time.time() - 10, **changed}


def test_what_is_too_old_leaves_the_file_too(tmp_path: Path) -> None:
    """It was read again at each writing, told again, and written again: for as long as the machine was up."""
    pid = dead()
    write(tmp_path, entry(pid, last_at=time.time() - ring.KEPT_S - 5), entry(pid, start_ticks=6, title="young"))
    one = ring.Ring(str(tmp_path))
    one.see([process(os.getpid(), 1)], {os.getpid(): {"GPU-0": 1}})
    assert [item["title"] for item in one.gone({(os.getpid(), 1)})] == ["young"]
    assert sorted(item["title"] for item in entries(tmp_path)) == ["VLLM::Worker_TP1", "young"]


def test_there_is_an_end_to_what_it_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring, "ENTRIES_MAX", 10)
    write(tmp_path, *(entry(4_000_000 + number) for number in range(50)))
    one = ring.Ring(str(tmp_path))
    one.see([process(os.getpid(), 1)], {os.getpid(): {"GPU-0": 1}})
    assert len(entries(tmp_path)) <= 10


def test_two_that_write_keep_what_the_other_saw(tmp_path: Path) -> None:
    one, other = ring.Ring(str(tmp_path)), ring.Ring(str(tmp_path))
    pids = [dead(), dead()]
    one.see([process(pids[0], 1, "a")], {pids[0]: {"GPU-0": 1}})
    other.see([process(pids[1], 2, "b")], {pids[1]: {"GPU-1": None}})
    assert sorted(item["title"] for item in ring.Ring(str(tmp_path)).gone(set())) == ["a", "b"]


BROKEN = [
    "text", 5, None, [], {},
    entry(1, title=5, held="x"), entry(1, held=[1]), entry(1, held={"GPU-0": "much"}), entry(1, last_at="soon"),
    entry(1, last_at=float("nan")), entry(1, last_at=float("inf")), entry(1, last_at=1e300), entry(1, pid=None),
    entry(1, pid=float("inf")), {"pid": 1, "start_ticks": 2, "last_at": time.time()},
]  # fmt: skip


@pytest.mark.parametrize("told", BROKEN, ids=range(len(BROKEN)))
def test_an_entry_of_a_foreign_hand_is_passed_over(tmp_path: Path, told: object) -> None:
    pid = dead()
    write(tmp_path, told, entry(pid, title="sound"))
    one = ring.Ring(str(tmp_path))
    one.see([process(os.getpid(), 1)], {os.getpid(): {"GPU-0": 1}})
    gone = one.gone({(os.getpid(), 1)})
    assert [item["title"] for item in gone] == ["sound"]
    msgspec.convert(gone, list[Past])  # what the operator's side makes of it


def test_odd_entries_that_can_be_read_are_made_sound(tmp_path: Path) -> None:
    write(tmp_path, entry(dead(), title=7, last_at=str(time.time() - 5), held=None))
    one = ring.Ring(str(tmp_path))
    one.see([], {})
    (past,) = msgspec.convert(one.gone(set()), list[Past])
    assert past.title == "7" and past.held == {}


@pytest.mark.parametrize("text", ["", "{", "[]", '"x"', "\x00\xff", '{"boot_id": 5, "entries": {}}'], ids=repr)
def test_a_file_that_is_none_is_passed_over_and_written_anew(tmp_path: Path, text: str) -> None:
    file_of(tmp_path).write_text(text)
    one = ring.Ring(str(tmp_path))
    one.see([process(os.getpid(), 1)], {os.getpid(): {"GPU-0": 1}})
    assert [item["pid"] for item in entries(tmp_path)] == [os.getpid()]


def test_a_folder_that_cannot_be_written_holds_nothing_up(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    one = ring.Ring(str(tmp_path / "file" / "folder"))
    pid = dead()
    one.see([process(pid, 1)], {pid: {"GPU-0": 1}})
    assert [item["pid"] for item in one.gone(set())] == [pid]
