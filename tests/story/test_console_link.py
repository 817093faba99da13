"""The console when its link breaks, when the node is not the one it was, and when the console itself is ended.

Whatever happens to the connection: the phase stays, the server lives, and the log has neither a gap nor a repeat.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import MakeSshd, MakeTmux
from tests.real import processes
from tests.real.processes import Tracker
from tests.real.sshd import Sshd
from tests.scale import FULL, scaled
from tests.story import console_kit, kit
from tests.story.console_kit import Console

QUICK = ("--sim-load", "0.2", "--sim-warm", "0.2", "--sim-health-delay", "0.05", "--sim-speed", "4")
WRITES = ("--sim-log-rate", "2000")
LOST = re.compile(r"\b(?:lost|down) (\d+) s\b")
LARGE = (200, 50)
FLOOD = re.compile(r"\[flood\] seq: (\d+), monotonic: [\d.]+")


@pytest.fixture
def stopping(tracker: Tracker, make_sshd: MakeSshd) -> Iterator[Callable[[kit.Profile, dict[str, str]], None]]:
    """Profiles whose runs are stopped at the end, over a link of their own."""
    made: list[tuple[kit.Profile, dict[str, str]]] = []
    yield lambda item, env: made.append((item, env))
    for item, env in made:
        assert kit.run("stop", str(item), env=env).code == 0


def profile_of(folder: Path, *flags: str, keepalive: str = "1s") -> kit.Profile:
    """A simulated SGLang on the node, whose lost link is noticed within a few seconds."""
    item = kit.simulated_profile(folder, "sglang", *QUICK, *flags, host="node")
    text = item.path.read_text()
    item.path.write_text(text.replace("[launch]", f'keepalive = "{keepalive}"\n[launch]'))
    return item


def servers_ever(item: kit.Profile) -> int:
    """How many servers were ever started, by the logs alone."""
    logs = [folder / "log" for folder in console_kit.records(item)]
    return sum(log.read_bytes().count(b"*** SIMULATED ENGINE") for log in logs if log.exists())


def test_a_lost_link_and_its_return(
    tmp_path: Path,
    stopping: Callable[[kit.Profile, dict[str, str]], None],
    make_sshd: MakeSshd,
    make_tmux: MakeTmux,
) -> None:
    sshd = make_sshd()
    env = console_kit.environment(tmp_path, sshd)
    item = profile_of(tmp_path, *WRITES)
    stopping(item, env)
    console = console_kit.start(make_tmux, str(item), env=env, size=LARGE)
    console.until_phase("serving")
    server = console_kit.server_of(item)

    # Every connection goes silent, and nothing takes new ones: as when a cable is pulled.
    sshd.stop_listener()
    frozen = sshd.freeze_sessions()
    first = _since(console, 0)
    screen = console.until_holds(lambda screen: _lost_s(screen) > first, "the time since then goes on")
    assert console_kit.phase(screen) == "serving", screen
    assert "last known" in screen
    assert processes.alive(server)
    unseen = len(console_kit.log_of(item))
    newest = max(console_kit.log_rows(screen))
    processes.poll(lambda: len(console_kit.log_of(item)) > unseen + 5, 20, "lines that nobody sees")
    assert max(console_kit.log_rows(console.screen)) == newest

    for session in frozen:
        processes.send(session, signal.SIGKILL)
    sshd.start()
    console.until_gone(LOST, "last known")
    _until_shown(console, item)

    # Sessions that are killed: it is back at once, and the log goes on each time.
    for _ in range(scaled(20)):
        sshd.kill_sessions()
        _until_shown(console, item)
    assert console_kit.phase(console.screen) == "serving"
    assert console_kit.server_of(item).pid == server.pid and processes.alive(server)
    assert len(console_kit.records(item)) == servers_ever(item) == 1
    _compare(console, item)


def _lost_s(screen: str) -> int:
    found = LOST.search(screen)
    return int(found[1]) if found else -1


def _since(console: Console, least_s: int) -> int:
    """That the link is lost, and for how many seconds."""
    screen = console.until_holds(lambda screen: _lost_s(screen) >= least_s, "a lost link")
    return _lost_s(screen)


def _until_shown(console: Console, item: kit.Profile) -> None:
    """The pane has come to where the file is now."""
    newest = len(console_kit.log_of(item))
    console.until_holds(lambda screen: max(console_kit.log_rows(screen), default=0) >= newest, f"line {newest}")


def _compare(console: Console, item: kit.Profile) -> None:
    """Page through the whole log: every line under its number, as the file has it, across all the breaks."""
    _until_shown(console, item)
    shown: dict[int, str] = {}
    console.press("Home")
    console.until_holds(lambda screen: 1 in console_kit.log_rows(screen), "the start of the log")
    last = len(console_kit.log_of(item))
    while last not in shown:
        before = max(shown, default=0)
        rows = console.still_rows(after=before)
        assert min(rows) <= before + 1, f"no row between {before} and {min(rows)}"
        assert sorted(rows) == list(range(min(rows), max(rows) + 1)), f"numbers are left out in {sorted(rows)}"
        shown |= rows
        console.press("NPage")
    lines = console_kit.log_of(item)
    floods = {number: row for number, row in shown.items() if FLOOD.search(lines[number - 1])}
    assert len(floods) > 50
    wrong = {number: (row, lines[number - 1]) for number, row in floods.items() if not lines[number - 1].endswith(row)}
    assert not wrong, wrong
    told = [int(found[1]) for _, row in sorted(floods.items()) if (found := FLOOD.search(row))]
    assert told == list(range(told[0], told[0] + len(told)))


def test_a_node_with_another_key(
    tmp_path: Path,
    stopping: Callable[[kit.Profile, dict[str, str]], None],
    make_sshd: MakeSshd,
    make_tmux: MakeTmux,
) -> None:
    """It is not connected to: nothing is launched on it at the start, and a run that is watched is not asked of it."""
    sshd = make_sshd()
    env = console_kit.environment(tmp_path, sshd)
    item = profile_of(tmp_path)
    stopping(item, env)
    console = console_kit.start(make_tmux, str(item), env=env)
    console.until_phase("serving")
    server = console_kit.server_of(item)
    old = sshd.host_key.read_bytes()
    _change_key(sshd)
    sshd.kill_sessions()
    sshd.stop_listener()
    logins = sshd.log_text().count("Accepted")
    sshd.start()
    screen = console.until(re.compile("host key", re.IGNORECASE), "SHA256:")
    assert console_kit.phase(screen) in ("serving", ""), screen
    assert processes.alive(server)

    other = profile_of(tmp_path)
    refused = console_kit.start(make_tmux, str(other), env=env)
    screen = refused.until(re.compile("host key", re.IGNORECASE), "SHA256:")
    assert console_kit.phase(screen) == ""
    assert not console_kit.records(other)
    assert sshd.log_text().count("Accepted") == logins
    for one, last in ((console, "serving when the link was lost"), (refused, "launched nothing")):
        one.press("q")
        assert one.until_quit() == 0
        assert last in one.farewell and "goes on" not in one.farewell
    assert processes.alive(server)

    sshd.host_key.write_bytes(old)  # for the stop at the end
    sshd.stop_listener()
    sshd.start()


def _change_key(sshd: Sshd) -> None:
    """As if another machine had taken its address."""
    sshd.host_key.unlink()
    sshd.host_key.with_suffix(".pub").unlink()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "other", "-f", sshd.host_key], check=True)


def test_an_ended_console_leaves_the_server(
    tmp_path: Path,
    stopping: Callable[[kit.Profile, dict[str, str]], None],
    make_sshd: MakeSshd,
    make_tmux: MakeTmux,
) -> None:
    """By TERM and HUP it ends in order and says that the server goes on; by KILL, or with its terminal, it cannot."""
    env = console_kit.environment(tmp_path, make_sshd())
    item = profile_of(tmp_path)
    stopping(item, env)
    assert kit.run("--headless", str(item), env=env).code == 0
    server = console_kit.server_of(item)
    names = ("SIGTERM", "SIGHUP", "terminal", *(("SIGKILL",) if FULL else ()))
    consoles = {name: console_kit.start(make_tmux, str(item), env=env) for name in names}
    for console in consoles.values():
        console.until_phase("serving")
    for name, number, status in (("SIGTERM", signal.SIGTERM, 143), ("SIGHUP", signal.SIGHUP, 129)):
        os.kill(consoles[name].terminal.pid, number)
        assert consoles[name].until_quit() == status
        assert f"{item.name} @ node: the server goes on" in consoles[name].farewell
    if FULL:
        os.kill(consoles["SIGKILL"].terminal.pid, signal.SIGKILL)
        assert consoles["SIGKILL"].until_quit() == -signal.SIGKILL
    consoles["terminal"].terminal.close()
    found = kit.run("status", str(item), "--json", env=env)
    assert (found.code, found.summary["phase"]) == (0, "serving")
    assert console_kit.server_of(item).pid == server.pid and processes.alive(server)
    assert len(console_kit.records(item)) == servers_ever(item) == 1
