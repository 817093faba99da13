"""Several servers in one console, and the start screen: simulated engines behind a real sshd, in a real terminal."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import MakeSshd, MakeTmux
from tests.real import processes
from tests.real.processes import Tracker
from tests.story import console_kit, kit
from tests.story.console_kit import LARGE, SMALL, USUAL, Console

QUICK = ("--sim-load", "0.3", "--sim-warm", "0.2", "--sim-health-delay", "0.05", "--sim-speed", "4")

Place = tuple[dict[str, str], Callable[..., kit.Profile]]


@pytest.fixture
def place(tracker: Tracker, tmp_path: Path, make_sshd: MakeSshd) -> Iterator[Place]:
    """The environment of the consoles, and how profiles are made; what runs of them at the end is stopped."""
    env = console_kit.environment(tmp_path, make_sshd())
    made: list[kit.Profile] = []

    def make(*flags: str, folder: Path = tmp_path) -> kit.Profile:
        folder.mkdir(exist_ok=True)
        made.append(kit.simulated_profile(folder, "sglang", *QUICK, *flags, host="node"))
        return made[-1]

    yield env, make
    for item in made:
        assert kit.run("stop", str(item), env=env).code == 0


def row_of(screen: str, name: str) -> str:
    """The row of the table on which this profile stands."""
    return next((row for row in screen.splitlines() if name in row), "")


def chosen(screen: str, name: str) -> bool:
    """Whether the foot of the screen tells of this one."""
    return any(name in row for row in screen.splitlines()[-8:-1])


def choose(console: Console, name: str) -> None:
    """Move to a profile, wherever it stands in the list."""
    for key in ("", "Down", "Up", "Up"):
        if key:
            before = console.screen
            console.press(key)
            console.until_holds(lambda screen, before=before: screen != before, "another one is chosen")  # type: ignore[misc]
        if chosen(console.screen, name):
            return
    raise AssertionError(f"{name} cannot be chosen:\n{console.screen}")


def test_one_serves_and_one_fails(place: Place, make_tmux: MakeTmux) -> None:
    env, make = place
    good, bad = make(), make("--sim-fault", "die-at-graphs")
    console = console_kit.start(make_tmux, str(good), str(bad), env=env)

    def both(screen: str) -> bool:
        return "serving" in row_of(screen, good.name) and "failed" in row_of(screen, bad.name)

    console.until_holds(both, "one that serves and one that has failed")
    for size in (SMALL, LARGE, USUAL):
        console.resize(size)
        screen = console.until_holds(both, f"the same at {size}")
        assert console_kit.widest(screen) <= size[0]

    # The one that serves: enter opens its console, escape comes back.
    console.press("Enter")
    screen = console.until_phase("serving")
    assert good.name in screen and bad.name not in screen
    console.press("Escape")
    console.until(good.name, bad.name)

    # The one that has failed: why, and the line that shows it.
    console.press("Down")
    console.press("Enter")
    console.until_gone(good.name)
    lines = console_kit.log_of(bad)
    cause = next(number for number, line in enumerate(lines, 1) if line.startswith("AttributeError: "))
    console.until(bad.name, "failed", re.compile(rf"\bline {cause}\b"), lines[cause - 1][:50])
    console.press("Home")
    console.until_holds(lambda screen: 1 in console_kit.log_rows(screen), "the start of the log")
    console.press("Enter")
    screen = console.until_holds(lambda screen: cause in console_kit.log_rows(screen), f"line {cause}")
    assert console_kit.log_rows(screen)[cause] in lines[cause - 1]
    console.press("Escape", "Escape")  # the line that is pointed at, then the screen
    console.until(good.name, bad.name)
    console.press("q")
    assert console.until_quit() == 0
    assert f"{good.name} @ node: the server goes on" in console.farewell
    assert f"{bad.name} @ node: the run has failed" in console.farewell
    assert processes.alive(console_kit.server_of(good))
    assert len(console_kit.records(good)) == len(console_kit.records(bad)) == 1


def test_the_start_screen(place: Place, make_tmux: MakeTmux, tmp_path: Path) -> None:
    """Two profiles, of which one's server lives. What lives is taken over; the other one is launched when asked for."""
    env, make = place
    folder = tmp_path / "profiles"
    lives, other = make(folder=folder), make(folder=folder)
    assert kit.run("--headless", str(lives), env=env).code == 0
    server = console_kit.server_of(lives)
    console = console_kit.start(make_tmux, env=env, cwd=folder)
    console.until_holds(
        lambda screen: "200" in row_of(screen, lives.name) and row_of(screen, other.name),
        "two profiles, and that the server of one answers",
    )
    assert "200" not in row_of(console.screen, other.name)
    assert "demo" in console.screen

    choose(console, lives.name)
    console.press("Enter")
    screen = console.until_phase("serving")
    assert lives.name in screen and other.name not in screen
    console.until(re.compile("taken over|takeover"))
    assert console_kit.server_of(lives).pid == server.pid and len(console_kit.records(lives)) == 1
    console.press("Escape")
    console.until(lives.name, other.name)

    # The other one is launched only after a question that enter does not answer.
    choose(console, other.name)
    console.press("Enter")
    console.until(re.compile(rf"Launch {other.name}"))
    console.press("n")
    console.until_gone(re.compile(rf"Launch {other.name}"))
    assert not console_kit.records(other)
    console.press("Enter")
    console.until(re.compile(rf"Launch {other.name}"))
    console.press("y")
    screen = console.until_phase("serving")
    assert other.name in screen and lives.name not in screen
    assert len(console_kit.records(other)) == 1
    console.press("q")
    assert console.until_quit() == 0
    for item in (lives, other):
        assert f"{item.name} @ node: the server goes on" in console.farewell
        assert processes.alive(console_kit.server_of(item))
