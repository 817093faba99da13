"""Which files of the two places are profiles, and how a broken one is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisor.profiles import known

GOOD = '[node]\nhost = "gpu1"\n[launch]\ncommand = "serve --port 1"\n'


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    here, config = tmp_path / "here", tmp_path / "config"
    here.mkdir()
    (config / "profiles").mkdir(parents=True)
    return here, config


def test_what_is_a_profile_and_what_is_somebody_elses(places: tuple[Path, Path]) -> None:
    here, config = places
    (here / "kimi.toml").write_text(GOOD)
    (here / "half.toml").write_text("[node]\nhost = 3\n")
    (here / "cut.toml").write_text('x = "\n[launch]\n')
    (here / "pyproject.toml").write_text('[project]\nname = "node"\n')
    (here / "binary.toml").write_bytes(b"\xff\x00\x80")
    (here / "folder.toml").mkdir()
    (config / "profiles" / "kimi.toml").write_text(GOOD)
    (config / "profiles" / "odd.toml").write_text("nonsense")
    (config / "profiles" / "qwen.toml").write_text(GOOD.replace("gpu1", "gpu2"))
    os.symlink(here / "kimi.toml", config / "profiles" / "linked.toml")
    found = known(cwd=here, config_dir=config, engines=())
    assert [(item.typed, item.profile is not None) for item in found] == [
        ("./cut.toml", False),
        ("./half.toml", False),
        ("./kimi.toml", True),
        (str(config / "profiles" / "kimi.toml"), True),
        ("odd", False),
        ("qwen", True),
    ]
    errors = {item.path.stem: item.error for item in found if item.error}
    assert errors["half"].startswith("line 2: node.host: expected ")
    assert errors["cut"].startswith("line 1: ")
    assert all("\n" not in text and str(config) not in text for text in errors.values())


def test_no_folder_is_no_profile(tmp_path: Path) -> None:
    assert known(cwd=tmp_path / "gone", config_dir=tmp_path / "gone", engines=()) == ()
