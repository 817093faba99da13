"""Several profiles in the real console, in a real terminal: from the start screen to servers that outlive it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import MakeTmux
from tests.main_job.kit import QUICK, Site
from tests.real.processes import Tracker
from tests.real.tmux import Tmux

PATIENCE_S = 40.0


@pytest.fixture
def pair(tmp_path: Path, tracker: Tracker) -> Iterator[tuple[Site, Site]]:
    """Two profiles in one folder, each with a real simulated engine behind it."""
    first, second = (Site(tmp_path, tracker, *QUICK) for _ in range(2))
    try:
        yield (first, second) if first.key < second.key else (second, first)
    finally:
        first.end()
        second.end()


def console(make_tmux: MakeTmux, folder: Path, *words: str) -> Tmux:
    command = [sys.executable, "-m", "supervisor.cli", *words]
    env = {"XDG_CONFIG_HOME": str(folder / "config"), "HOME": str(folder / "home")}
    return make_tmux(command, width=120, height=40, environment=env, cwd=folder)


def row(title: str, *words: str) -> re.Pattern[str]:
    """The row of a profile with these words in it, in this order."""
    return re.compile("".join([rf"(?m)^.*\b{title}\b", *(rf"[^\n]*{word}" for word in words)]))


def test_two_launched_from_the_start_screen_and_taken_over_side_by_side(
    pair: tuple[Site, Site], make_tmux: MakeTmux, tmp_path: Path
) -> None:
    one, two = pair
    screen = console(make_tmux, tmp_path)
    screen.wait_for(row(two.key, "none"), PATIENCE_S)
    screen.wait_for(row(one.key, "local", "sglang", "model", "none"), PATIENCE_S)
    screen.send_keys("Space")
    screen.wait_for(re.compile(rf"\[x\] +{one.key}"), PATIENCE_S)
    screen.send_keys("Space", "Enter")
    screen.wait_for(
        re.compile(r"Launch 2 profiles\?[\s\S]*(nothing of it lives there[\s\S]*){2}launch \(y\)"), PATIENCE_S
    )
    assert not one.servers_ever() and not two.servers_ever()
    screen.send_keys("y")
    screen.wait_for("2 serving", PATIENCE_S)
    assert (one.servers_ever(), two.servers_ever()) == (1, 1)

    screen.send_keys("Enter")
    screen.wait_for(re.compile(rf"{one.key} @ local[\s\S]*✔ serving[\s\S]*Prefill batch"), PATIENCE_S)
    screen.send_keys("Escape")
    screen.wait_for("2 profiles", PATIENCE_S)
    screen.send_keys("Down", "k")
    screen.wait_for(re.compile(rf"{two.key} @ local"), PATIENCE_S)
    screen.send_keys("y")
    screen.wait_for(re.compile("✔ done|all .* gone"), PATIENCE_S)
    screen.send_keys("Enter")
    screen.wait_for(re.compile(r"\A(?![\s\S]*close \(enter\))"), PATIENCE_S)
    screen.wait_for(row(two.key, "■ stopped"), PATIENCE_S)
    screen.wait_for(row(one.key, "✔ serving"), PATIENCE_S)
    screen.send_keys("q")
    assert screen.wait_exit(PATIENCE_S) == 0
    ours = {record["run_id"] for record in one.records() if record["key"] == one.key}
    assert one.runs_alive() == ours, "the first one outlives the console"

    lost = tmp_path / "lost.toml"
    lost.write_text(
        f'[node]\nhost = "ssh://nobody@127.0.0.1:1"\n[launch]\ncommand = {json.dumps(one.command())}\n', "utf-8"
    )
    screen = console(make_tmux, tmp_path, str(two.file), str(one.file), str(lost), "--no-launch", "--layout", "wall")
    screen.wait_for("3 profiles", PATIENCE_S)
    screen.wait_for(re.compile(r"1 serving[\s\S]*1 link lost"), PATIENCE_S)
    screen.send_keys("l")
    screen.wait_for(row(one.key, "✔ serving"), PATIENCE_S)
    screen.wait_for(row(two.key, "✘ refused", "nothing runs for"), PATIENCE_S)
    screen.wait_for(row("lost", "○ lost"), PATIENCE_S)
    screen.send_keys("q")
    assert screen.wait_exit(PATIENCE_S) == 0
    assert (one.servers_ever(), two.servers_ever()) == (1, 1), "nothing was launched again"
