"""The console on a real llama-server behind a real sshd: watched to serving, searched, resized, restarted, left."""

from __future__ import annotations

import contextlib
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import MakeSshd, MakeTmux
from tests.real import processes
from tests.real.llama import LlamaServer, large_model, tiny_model
from tests.real.nvml import GIB, MIB, StubNvml
from tests.real.ports import free_port
from tests.real.processes import Tracker
from tests.scale import FULL, scaled
from tests.story import console_kit, kit
from tests.story.console_kit import LARGE, SMALL, USUAL, Console

SERVED = ("launching", "loading", "200", "serving")
"""What every start of a llama-server enters; a small model may be loaded before anybody has seen a 503."""


@pytest.fixture
def place(
    tracker: Tracker, tmp_path: Path, make_sshd: MakeSshd, nvml_stub: StubNvml, require_real: Callable[..., None]
) -> Iterator[tuple[kit.Profile, dict[str, str]]]:
    """A profile on a node with one GPU, and the environment of its consoles. Whatever runs at the end is stopped."""
    require_real("llama-server")
    nvml_stub.gpu(base_bytes=3 * GIB + 512 * MIB)
    nvml_stub.write()
    sshd = make_sshd(environment=nvml_stub.environment())
    env = console_kit.environment(tmp_path, sshd)
    port = free_port()
    command = LlamaServer().command(large_model() if FULL else tiny_model(), port, "-c", "256", "-t", "2")
    item = kit.profile(tmp_path, command, port=port, host="node", engine="llamacpp")
    yield item, env
    assert kit.run("stop", str(item), env=env).code == 0


Place = tuple[kit.Profile, dict[str, str]]


def generate(item: kit.Profile, body: bytes = b'{"prompt": "one two three", "max_tokens": 4}') -> None:
    """A user's request."""
    url = f"http://127.0.0.1:{item.port}/v1/completions"
    asked = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"})
    with contextlib.suppress(urllib.error.HTTPError), urllib.request.urlopen(asked, timeout=30) as answer:
        answer.read()


def until_served(console: Console) -> str:
    """To serving; the strip never stands before where it stood, and comes by every phase."""
    seen: list[str] = []

    def look(screen: str) -> bool:
        now = console_kit.phase(screen)
        if now and (not seen or seen[-1] != now):
            seen.append(now)
        return now == "serving"

    screen = console.until_holds(look, "serving")
    road = ["preflight", "launching", "loading", "503", "200", "serving"]
    assert seen == [name for name in road if name in seen], f"the phases stood there in this order: {seen}"
    assert len(seen) >= 2, f"nothing was seen of the way there, only {seen}"
    entered = [name for mark, name in console_kit.steps(screen) if mark == "✔"]
    assert [name for name in entered if name in SERVED] == list(SERVED), screen
    if FULL:
        assert "503" in seen, "the large model loads for seconds"
    return screen


def count_in(item: kit.Profile, text: str) -> int:
    return sum(text in line for line in console_kit.log_of(item))


def test_watched_to_serving_and_read(place: Place, make_tmux: MakeTmux) -> None:
    item, env = place
    console = console_kit.start(make_tmux, str(item), env=env)
    screen = until_served(console)
    assert item.name in screen and "node" in screen
    pid = console_kit.server_of(item).pid
    console.until(str(pid), re.compile(r"\b200\b"), "3.5", "80.0")  # whose answer it is, and the GPU's memory

    _search(console, item)
    _filter(console, item)
    _errors(console, item)
    _help_and_palette(console)
    _resize(console, item)

    console.press("q")
    assert console.until_quit() == 0
    assert f"{item.name} @ node: the server goes on (serving)" in console.farewell
    assert processes.alive(console_kit.server_of(item))
    assert console_kit.server_of(item).pid == pid


def _search(console: Console, item: kit.Profile) -> None:
    """As many matches as `grep -c` finds; each of them highlighted; n and N go from one to the next."""
    for _ in range(scaled(100)):
        generate(item)
    # The newest line stands on the screen: what the pane searches is the whole file.
    newest = len(console_kit.log_of(item))
    console.until_holds(lambda screen: max(console_kit.log_rows(screen), default=0) >= newest, f"line {newest}")
    count = count_in(item, "print_timing")
    assert count >= 4 * scaled(100)
    console.press("/")
    console.until("search")
    console.type("print_timing")
    console.until(re.compile(rf"\b{count:,} of {count:,}\b"))  # it follows: the newest match is the nearest
    console.press("Enter")
    console.until(" quit", re.compile(rf"\b{count:,} of {count:,}\b"))  # typing is over, the match is the same
    coloured = console.terminal.capture(colours=True)
    rows = console_kit.log_rows(console_kit.plain(coloured))
    found = {line_no for line_no, row in rows.items() if "print_timing" in row}
    assert found and console_kit.highlighted(coloured, "print_timing") == found, coloured
    for key, there in (("N", count - 1), ("n", count), ("n", 1)):
        console.press(key)
        console.until(re.compile(rf"\b{there:,} of {count:,}\b"))
    console.press("Escape", "Escape")  # the line that is pointed at, then the search
    console.until_holds(
        lambda _screen: not console_kit.highlighted(console.terminal.capture(colours=True), "print_timing"),
        "no highlight any more",
    )


def _filter(console: Console, item: kit.Profile) -> None:
    """Only the lines with that text; escape brings the others back."""
    total, count = len(console_kit.log_of(item)), count_in(item, "launch_slot_")
    assert 0 < count < total
    console.press("&")
    console.type("launch_slot_")
    console.press("Enter")
    screen = console.until(re.compile(rf"\b{count:,} of {total:,}\b"))
    rows = console_kit.log_rows(screen)
    assert rows and all("launch_slot_" in row for row in rows.values()), screen
    console.press("Escape")
    console.until_holds(
        lambda screen: any("print_timing" in row for row in console_kit.log_rows(screen).values()), "all lines again"
    )
    console.press("f")


def _errors(console: Console, item: kit.Profile) -> None:
    """A prompt that is too long is an error in the server's own words; e goes there, from far away."""
    generate(item, b'{"prompt": "' + b"one two " * 600 + b'"}')
    lines = processes.poll(lambda: _error_lines(item) or None, 20, "the server's complaint")
    for _ in range(scaled(100)):
        generate(item)
    newest = len(console_kit.log_of(item))
    console.until_holds(lambda screen: max(console_kit.log_rows(screen), default=0) >= newest, f"line {newest}")
    console.press("Home")
    console.until_holds(lambda screen: min(console_kit.log_rows(screen), default=0) == 1, "the start of the log")
    console.press("e")
    screen = console.until_holds(
        lambda screen: lines[0] in console_kit.log_rows(screen), f"line {lines[0]}, which is an error"
    )
    assert console_kit.log_rows(screen)[lines[0]][:40] in console_kit.log_of(item)[lines[0] - 1]
    console.press("f")
    newest = len(console_kit.log_of(item))
    console.until_holds(lambda screen: max(console_kit.log_rows(screen), default=0) >= newest, "the end again")


def _error_lines(item: kit.Profile) -> list[int]:
    """Numbers of the lines with llama.cpp's own mark of an error."""
    marked = re.compile(r"^[\d.]+ E ")
    return [number for number, line in enumerate(console_kit.log_of(item), 1) if marked.match(line)]


def _help_and_palette(console: Console) -> None:
    """Every key in the help with its id; the palette finds and runs a command by its words."""
    console.press("?")
    console.until("console.restart", "console.stop", "log.search", "log.next_error")
    console.press("Escape")
    console.until_gone("console.restart")
    console.press("C-p")
    console.until("console.copy")
    console.type("restart")
    console.until("console.restart")
    console.until_gone("console.copy")
    console.press("Enter")
    console.until("Restart", "TERM")
    console.press("n")
    console.until_gone("TERM")


def _resize(console: Console, item: kit.Profile) -> None:
    """Whatever the size: whose server, where it stands, its memory, its health, and the end of the log."""
    last = console_kit.log_of(item)[-1][:50]
    for size in (SMALL, LARGE, USUAL):
        console.resize(size)

        def essentials(screen: str, width: int = size[0]) -> bool:
            rows = console_kit.log_box(screen)
            return (
                all(text in screen for text in (item.name, "3.5", "80.0", "restart", "help", "quit"))
                and console_kit.phase(screen) == "serving"
                and re.search(r"health.*200", screen) is not None
                and any(last in row for row in rows)
                and len(rows) >= 6
                and console_kit.widest(screen) <= width
            )

        console.until_holds(essentials, f"the essentials at {size}")


def test_restarted_then_killed(place: Place, make_tmux: MakeTmux) -> None:
    """Both ask, name the very processes, and end with the proof."""
    item, env = place
    console = console_kit.start(make_tmux, str(item), env=env)
    console.until_phase("serving")
    before = console_kit.tree_of(item)

    console.press("r")
    screen = console.until("Restart", item.name, *(str(process.pid) for process in before))
    assert "MiB" in screen or "GiB" in screen or "TERM" in screen
    console.press("n")
    console.until_gone("TERM")
    assert all(processes.alive(process) for process in before)
    assert len(console_kit.records(item)) == 1

    console.press("r")
    console.until("TERM")
    console.press("y")
    console.until(_gone(len(before)), timeout_s=40)
    assert not processes.wait_gone(before, 0)
    _close(console)
    after = processes.poll(lambda: _another(item, before[0].pid), 40, "another server")
    console.until(str(after))
    console.until_phase("serving")
    assert len(console_kit.records(item)) == 2
    # What stands in the log is the new run's, from its first line on.
    first = console_kit.log_of(item)
    console.press("Home")
    rows = console.found(lambda screen: _starts(console_kit.log_rows(screen)), "the start of the log")
    assert all(line_is(text, first[number - 1]) for number, text in rows.items()), rows

    victims = console_kit.tree_of(item)
    console.press("k")
    console.until("Stop", *(str(process.pid) for process in victims))
    console.press("y")
    console.until(_gone(len(victims)), timeout_s=40)
    assert not processes.wait_gone(victims, 0)
    _close(console)
    console.until_phase("stopped")
    console.press("q")
    assert console.until_quit() == 0
    assert item.name in console.farewell and "goes on" not in console.farewell
    assert len(console_kit.records(item)) == 2


def _close(console: Console) -> None:
    """The transaction; the next key comes when it has gone, or the terminal takes both for one with alt."""
    console.press("Escape")
    console.until_gone("TERM")


def _gone(count: int) -> re.Pattern[str]:
    """The proof: what is gone, and by what the memory is known to be free."""
    what = "the process is gone" if count == 1 else f"all {count} processes are gone"
    return re.compile(rf"{what} after [\d.]+ s \(signals by \w+\)")


def _another(item: kit.Profile, pid: int) -> int | None:
    newest = console_kit.server_of(item).pid if len(console_kit.records(item)) > 1 else pid
    return newest if newest != pid else None


def _starts(rows: dict[int, str]) -> dict[int, str] | None:
    return rows if 1 in rows else None


def line_is(shown: str, line: str) -> bool:
    """Whether a row shows this line; it may be cut at the edge."""
    return line.startswith(shown) and len(shown) >= min(len(line.rstrip()), 60)


def test_left_and_taken_over(place: Place, make_tmux: MakeTmux) -> None:
    """q leaves the server alone; the next console finds it, says that it took it over, and launches nothing."""
    item, env = place
    first = console_kit.start(make_tmux, str(item), env=env, size=SMALL)
    first.until_phase("serving")
    pid = console_kit.server_of(item).pid
    first.press("q")
    assert first.until_quit() == 0
    assert "the server goes on" in first.farewell

    second = console_kit.start(make_tmux, str(item), env=env)
    second.until_phase("serving")
    second.until(re.compile("taken over|takeover"))
    assert console_kit.server_of(item).pid == pid
    assert len(console_kit.records(item)) == 1
    log = console_kit.log_of(item)
    second.press("Home")
    rows = second.found(lambda screen: _starts(console_kit.log_rows(screen)), "the log from its first line on")
    assert all(line_is(text, log[number - 1]) for number, text in rows.items()), rows
    second.press("q")
    assert second.until_quit() == 0
    assert processes.alive(console_kit.server_of(item))
