"""The file of earlier launches: private, replaced as a whole, never lost in silence."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from supervisor.core.eta import Mark, Past
from supervisor.core.history import History, RunRecord
from supervisor.supervise import history as module
from supervisor.supervise.history import HistoryFile


def record(number: int = 1) -> RunRecord:
    past = Past(marks=(Mark(stage="weights", at_s=1.0),), total_s=60.0)
    return RunRecord(run_id=f"r{number}", at=float(number), past=past)


def file_of(folder: Path | None, node: str = "root@gpu1", key: str = "kimi") -> HistoryFile:
    return HistoryFile(folder, node, key)


def test_a_launch_is_remembered_in_a_private_file(tmp_path: Path) -> None:
    kept = file_of(tmp_path / "history")
    assert kept.read() == History()
    kept.add(record(1))
    kept.add(record(2))
    assert kept.path == tmp_path / "history" / "root@gpu1" / "kimi.json"
    assert [item.run_id for item in file_of(tmp_path / "history").read().runs] == ["r2", "r1"]
    assert stat.S_IMODE(kept.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.path.parent.stat().st_mode) == 0o700
    assert os.listdir(kept.path.parent) == ["kimi.json"], "nothing half written is left"
    assert kept.problem == ""


def test_a_damaged_file_is_put_aside_and_told(tmp_path: Path) -> None:
    kept = file_of(tmp_path)
    assert kept.path is not None
    kept.path.parent.mkdir(parents=True)
    for number, aside in enumerate(("kimi.damaged", "kimi.damaged2")):
        kept.path.write_bytes(b'{"runs": [' + b"x" * number)
        kept.problem = ""
        assert kept.read() == History()
        assert "was damaged" in kept.problem and aside in kept.problem
        assert (kept.path.parent / aside).read_bytes() == b'{"runs": [' + b"x" * number
        assert not kept.path.exists()
    kept.add(record())
    assert len(kept.read().runs) == 1


def test_a_folder_that_cannot_be_made_costs_the_memory_and_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    kept = file_of(tmp_path / "file")
    kept.add(record())
    assert "cannot be" in kept.problem and str(tmp_path) in kept.problem


def test_without_a_folder_nothing_is_kept() -> None:
    kept = file_of(None)
    kept.add(record())
    assert kept.read() == History() and kept.problem == ""


def test_names_that_are_no_file_names_stay_apart(tmp_path: Path) -> None:
    paths = {file_of(tmp_path, node).path for node in ("a/b", "a_b", "../a", "ssh://root@h:22", "[::1]", "é")}
    assert len(paths) == 6
    assert all(path is not None and path.parent.parent == tmp_path for path in paths)


@pytest.mark.parametrize(("base", "wanted"), [("/srv/state", "/srv/state"), ("state", "/home/u/.local/state")])
def test_the_folder_is_where_xdg_says(base: str, wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", base)
    monkeypatch.setenv("HOME", "/home/u")
    assert module.folder() == Path(wanted) / "inference-supervisor" / "history"
