"""The gpus command: its text, its JSON, and the real command on a driver's library built from C."""

from __future__ import annotations

import io
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core import gpu as g
from supervisor.core.gpu_events import gpu_event, holders_event, named, safe
from supervisor.core.holder_words import alike
from supervisor.core.holders import Holder, classify
from supervisor.engines import loader
from supervisor.headless import gpu_text, jsonl
from supervisor.headless.gpus import View
from supervisor.headless.nodes import Node
from supervisor.headless.text import Style
from tests.conftest import MakeTmux
from tests.core import snapshots
from tests.main_job.kit import Site, site
from tests.real import processes
from tests.real.nvml import GIB, MIB, StubNvml
from tests.real.processes import Tracker
from tests.schema import checked, stream

KNOWN = loader.known_holders()
PLAIN = Style(colour=False)
NODE = Node(name="gpu1", make_link=lambda: pytest.fail("nothing is to be connected"))
EVIL = "\x1b]0;owned\x07\x1b[31mworker\u202e\x9b2J"


def seen(name: str) -> tuple[g.Snapshot, tuple[Holder, ...]]:
    snapshot = safe(snapshots.load(name).snapshot())
    return snapshot, named(classify(snapshot, KNOWN), NODE.name)


def text_of(name: str, width: int = 120) -> list[str]:
    return gpu_text.node_lines("gpu1", *seen(name), PLAIN, width)


# ------------------------------------------------------------------------------------------------ text


def test_a_gpu_and_below_it_its_holders() -> None:
    lines = text_of("06-relaunched-beside-the-old-worker")
    assert lines == [
        "gpu1 · 2 GPUs",
        " 0 H200            ▕████████▋           ▏  60.5/139.8 GiB    0 %    ?°  80/700 W",
        "         801  ours-live          60.0 GiB    5 min  ana         sglang::scheduler_TP0 of kimi",
        " 1 H200            ▕█████████████       ▏  90.5/139.8 GiB    0 %    ?°  80/700 W",
        "         802  ours-live          60.0 GiB    5 min  ana         sglang::scheduler_TP1 of kimi",
        "         502  ours-orphan        30.0 GiB      2 h  ana         sglang::scheduler_TP1 of kimi",
    ]


def test_a_narrow_terminal_gets_no_bar_and_no_line_is_too_long() -> None:
    lines = text_of("06-relaunched-beside-the-old-worker", 60)
    assert not any("▕" in line for line in lines)
    assert max(map(len, lines)) == 60 and lines[2].endswith("…")


def test_what_is_wrong_with_a_gpu_has_a_line_and_what_is_not_has_none() -> None:
    healthy = g.Gpu(uuid="GPU-0", index=0, throttle=(), ecc_uncorrected=0)
    assert gpu_text.troubles(healthy) == []
    sick = msgspec.structs.replace(
        healthy,
        throttle=("hw_slowdown", "sw_power_cap", "hw_thermal"),
        ecc_uncorrected=2,
        xid=g.Xid(code=79, at=1.0, bad=True, text="off"),
    )
    assert gpu_text.troubles(sick) == [
        "slowed by: hw_slowdown, hw_thermal",
        "2 uncorrected memory errors (ECC)",
        "XID 79, an error of the hardware or driver: off",
    ]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("56-a-lost-gpu", "lost"),
        ("63-the-driver-hangs", "The driver has not answered for 14 s."),
        ("55-no-driver-and-still-a-list", "The driver was upgraded"),
        ("49-mig-instance", "└ MIG 2"),
        ("21-gb10-orphan", "110.2/119.7 GiB unified"),
        ("42-too-few-looks", "40.0 GiB belong to no process in the list"),
        ("48-wsl", "its processes cannot be read"),
        ("41-ghost-memory", "ghost-memory"),
    ],
)
def test_what_cannot_be_seen_is_said(name: str, words: str) -> None:
    assert words in "\n".join(text_of(name))


def test_unexplained_memory_is_told_once() -> None:
    """As a holder, or as a remark of the GPU."""
    assert not any("belong to no process" in line for line in text_of("41-ghost-memory"))


@pytest.mark.parametrize("name", snapshots.names())
@pytest.mark.parametrize("width", [40, 80, 200])
def test_every_situation_fits_and_has_no_escape(name: str, width: int) -> None:
    lines = text_of(name, width) + gpu_text.zombie_lines("gpu1", *seen(name), PLAIN, width)
    assert all(line.isprintable() for line in lines)
    assert all(len(line) <= width for line in text_of(name, width))
    coloured = gpu_text.node_lines("gpu1", *seen(name), Style(colour=True), width)
    assert [re.sub(r"\x1b\[\d+m", "", line) for line in coloured] == text_of(name, width)


@given(st.lists(st.sampled_from(["\x1b[31m", "\x1b[0m", "a", "äö", " ", "████"])).map("".join), st.integers(1, 30))
def test_a_cut_line_has_its_width_and_all_its_colours(line: str, width: int) -> None:
    plain = re.sub(r"\x1b\[\d+m", "", line)
    out = gpu_text.cut(line, width)
    assert len(re.sub(r"\x1b\[\d+m", "", out)) == min(len(plain), width)
    assert re.findall(r"\x1b\[\d+m", out) == re.findall(r"\x1b\[\d+m", line)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("NVIDIA H200", "H200"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("Tesla V100-SXM2-32GB", "V100-SXM2-32GB"),
        ("", "GPU"),
        ("NVIDIA ", "GPU"),
    ],
)
def test_short_name(name: str, short: str) -> None:
    assert gpu_text.short_name(name) == short


@pytest.mark.parametrize(("share", "cells"), [(0.0, 0), (0.5, 10), (1.0, 20), (0.001, 0)])
def test_bar(share: float, cells: int) -> None:
    assert gpu_text.bar(share).count("█") == cells and len(gpu_text.bar(share)) == gpu_text.BAR_CELLS


def test_nothing_of_a_title_reaches_the_screen_as_a_command() -> None:
    snapshot = snapshots.load("50-the-pid-was-used-again").snapshot()
    snapshot = msgspec.structs.replace(
        snapshot,
        processes=tuple(
            msgspec.structs.replace(item, title=EVIL, user=EVIL, run_id=EVIL) for item in snapshot.processes
        ),
        past=tuple(msgspec.structs.replace(item, title=EVIL, run_id=EVIL) for item in snapshot.past),
        gpus=tuple(msgspec.structs.replace(item, name=EVIL, why=EVIL) for item in snapshot.gpus),
        driver=g.Driver(state=g.DriverState.UNAVAILABLE, why=EVIL),
    )
    snapshot = safe(snapshot)
    holders = named(classify(snapshot, KNOWN), NODE.name)
    lines = gpu_text.node_lines("gpu1", snapshot, holders, PLAIN, 200)
    lines += gpu_text.zombie_lines("gpu1", snapshot, holders, PLAIN, 200)
    assert all(line.isprintable() for line in lines) and any("worker" in line for line in lines)
    told = jsonl.to_line(holders_event(snapshot, holders, NODE.name, 5.0)) + jsonl.to_line(
        gpu_event(snapshot, NODE.name, 5.0)
    )
    assert "\\u001b" not in told and "\\u0007" not in told and told.isprintable()


def test_at_its_power_limit_a_gpu_is_well() -> None:
    """Under load it is so all the time: no line of it, and no new block whenever it comes and goes."""
    assert gpu_text.troubles(g.Gpu(uuid="GPU-0", index=0, throttle=("sw_power_cap", "applications_clocks"))) == []


@pytest.mark.parametrize(
    ("xid", "said"),
    [
        (g.Xid(code=45, at=1.0, bad=False, text="the program: it was ended"), "XID 45: the program: it was ended"),
        (
            g.Xid(code=149, at=1.0, bad=False),
            "XID 149: what it means is not known here, see NVIDIA's list of XIDs",
        ),
    ],
)
def test_an_xid_that_is_not_known_is_not_blamed_on_the_program(xid: g.Xid, said: str) -> None:
    assert gpu_text.troubles(g.Gpu(uuid="GPU-0", index=0, xid=xid)) == [said]


def many() -> tuple[g.Snapshot, tuple[Holder, ...]]:
    """Report 34 as it was: 126 data workers, each with the files of a dead rank open."""
    snapshot = snapshots.load("34-data-workers-hold-a-dead-ranks-memory").snapshot()
    one = next(item for item in snapshot.processes if item.pid == 5001)
    rest = [item for item in snapshot.processes if item.pid not in (5001, 5002)]
    workers = [msgspec.structs.replace(one, pid=5001 + number, start_ticks=number) for number in range(126)]
    snapshot = safe(msgspec.structs.replace(snapshot, processes=(*rest, *workers)))
    return snapshot, named(classify(snapshot, KNOWN), NODE.name)


def test_many_alike_are_told_as_one() -> None:
    snapshot, holders = many()
    lines = gpu_text.node_lines("gpu1", snapshot, holders, PLAIN, 160)
    assert len(lines) < 8 and any("126×" in line and "pids 5001, 5002, 5003 and 123 more" in line for line in lines)
    told = gpu_text.zombie_lines("gpu1", snapshot, holders, PLAIN, 120)
    assert len(told) < 15 and any(line.startswith("126 processes  heir") for line in told)
    (command,) = [line for line in told if "--kill" in line]
    assert "when the last of these has ended" in command
    assert command.split("--kill ")[1].split() == [str(5001 + number) for number in range(126)]
    event = checked(jsonl.to_line(holders_event(snapshot, holders, NODE.name, 5.0)))
    assert sum(item["class"] == "heir" for item in event["holders"]) == 126


def test_the_command_for_many_orphans_names_them_all() -> None:
    """Their advice is each one's own: of many alike it is put together."""
    snapshot = snapshots.load("10-oom-killer-took-the-api-server-in-tmux").snapshot()
    one = next(item for item in snapshot.processes if item.title.startswith("VLLM::Worker"))
    workers = [msgspec.structs.replace(one, pid=7000 + number, start_ticks=number) for number in range(12)]
    rest = [item for item in snapshot.processes if item is not one]
    gpu = msgspec.structs.replace(
        snapshot.gpus[0], uses=tuple(g.Use(pid=item.pid, used_bytes=1 << 30) for item in workers)
    )
    snapshot = safe(msgspec.structs.replace(snapshot, processes=(*rest, *workers), gpus=(gpu,)))
    told = gpu_text.zombie_lines("gpu1", snapshot, named(classify(snapshot, KNOWN), "gpu1"), PLAIN, 120)
    assert any(line.startswith("12 processes  foreign-orphan  12.0 GiB on GPU 0") for line in told), told
    assert any(line.endswith(" ".join(str(7000 + number) for number in range(12))) for line in told)


def test_the_ranks_of_eight_gpus_are_told_one_by_one() -> None:
    _, holders = seen("06-relaunched-beside-the-old-worker")
    assert len(alike(holders)) == len(holders)


def test_without_an_answer_of_the_driver_no_number_of_gpus_is_told() -> None:
    driver = g.Driver(state=g.DriverState.UNAVAILABLE, why="the NVIDIA driver is not loaded")
    assert gpu_text.head("gpu1", g.Snapshot(at=1.0, driver=driver), PLAIN) == "gpu1 · GPUs not known"


def test_what_is_to_be_done_is_not_cut_off_a_narrow_terminal() -> None:
    why = "the loaded driver and its library are of different versions (loaded 580.95.05, library 595.71.01), " * 2
    driver = g.Driver(state=g.DriverState.UNAVAILABLE, why=why + "reboot the node")
    lines = gpu_text.node_lines("gpu1", g.Snapshot(at=1.0, driver=driver), (), PLAIN, 60)
    assert lines[-1].endswith("reboot the node") and max(map(len, lines)) <= 60
    gpu = g.Gpu(uuid="GPU-0", index=0, state=g.GpuState.LOST, why="fallen off the bus, " * 5 + "reset it")
    snapshot = g.Snapshot(at=1.0, driver=g.Driver(state=g.DriverState.OK), gpus=(gpu,))
    assert gpu_text.node_lines("gpu1", snapshot, (), PLAIN, 60)[-1].endswith("reset it")


@given(st.text(st.sampled_from("a训:é\u0301\u200d한🙂 …")), st.integers(1, 30))
def test_a_cut_line_fits_whatever_it_is_written_in(line: str, width: int) -> None:
    """A line of two cells a letter would be broken by the terminal, and the next drawing would miss its place."""
    out = gpu_text.cut(line, width)
    assert gpu_text.cells(out) <= width
    assert out == line if gpu_text.cells(line) <= width else out.endswith("…")


def test_cells() -> None:
    assert [gpu_text.cells(text) for text in ("", "abc", "训练", "e\u0301", "🙂", "▕█▏ 40°")] == [0, 3, 4, 1, 2, 7]


# ------------------------------------------------------------------------------------------------ json


@pytest.mark.parametrize("name", snapshots.names())
def test_every_situation_as_json(name: str) -> None:
    snapshot, holders = seen(name)
    event = checked(jsonl.to_line(holders_event(snapshot, holders, NODE.name, 5.0)))
    assert [item["class"] for item in event["holders"]] == [str(item.class_) for item in holders]
    assert [gpu["uuid"] for gpu in checked(jsonl.to_line(gpu_event(snapshot, NODE.name, 5.0)))["gpus"]] == [
        gpu.uuid for gpu in snapshot.gpus
    ]


def test_times_of_the_node_are_told_by_our_clock() -> None:
    snapshot = msgspec.structs.replace(
        snapshots.load("06-relaunched-beside-the-old-worker").snapshot(), sampled_at=snapshots.AT - 3
    )
    xid = g.Xid(code=79, at=snapshots.AT - 10, bad=True)
    snapshot = msgspec.structs.replace(snapshot, gpus=(msgspec.structs.replace(snapshot.gpus[0], xid=xid),))
    event = checked(jsonl.to_line(gpu_event(snapshot, NODE.name, 100.0)))
    assert event["at"] == "1970-01-01T00:01:40.000Z" and event["sampled_at"] == "1970-01-01T00:01:37.000Z"
    assert event["gpus"][0]["xid"]["at"] == "1970-01-01T00:01:30.000Z"
    holders = classify(snapshot, KNOWN)
    told = checked(jsonl.to_line(holders_event(snapshot, holders, NODE.name, 100_000.0)))["holders"]
    young = next(item for item in told if item["pid"] == 801)
    assert young["started_at"] == "1970-01-02T03:41:50.000Z"  # 290 s before


# ------------------------------------------------------------------------------------------------ drawing


class Terminal(io.StringIO):
    """A terminal that keeps what was written."""

    def isatty(self) -> bool:
        return True


def screen(data: str) -> list[str]:
    """What a terminal shows of it: lines, cursor up, clear to the end."""
    rows, row = [""], 0
    for part in re.split(r"(\x1b\[\d*A|\x1b\[J|\n|\r)", data):
        if (up := re.fullmatch(r"\x1b\[(\d*)A", part)) is not None:
            row -= int(up.group(1))
        elif part == "\x1b[J":
            del rows[row + 1 :]
            rows[row] = ""
        elif part == "\n":
            row += 1
            rows += [""] * (row + 1 - len(rows))
        elif part != "\r":
            rows[row] += part
    return rows


def test_a_block_is_drawn_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "10")
    out = Terminal()
    view = View(out, as_json=False, redraws=True)
    view.block("a", ["a1", "a2"])
    view.block("b", ["b1"])
    view.block("a", ["a3"])
    assert screen(out.getvalue()) == ["a3", "", "b1", ""]
    view.block("b", [f"b{number}" for number in range(20)])
    rows = screen(out.getvalue())
    assert len(rows) == 10 and rows[0] == "a3" and "more lines" in rows[8]


def test_a_terminal_that_became_narrower_is_drawn_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """It broke the lines that stood there, so that nobody can count how far up they begin."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "10")
    out = Terminal()
    view = View(out, as_json=False, redraws=True)
    view.block("a", ["a" * 70])
    monkeypatch.setenv("COLUMNS", "40")
    view.block("a", ["b" * 30])
    assert out.getvalue().endswith("\x1b[2J\x1b[H\r\x1b[J" + "b" * 30 + "\n") and view.width == 40
    view.block("a", ["c" * 30])
    assert out.getvalue().endswith("\x1b[1A\r\x1b[J" + "c" * 30 + "\n")


# ------------------------------------------------------------------------------------------------ the real command


@pytest.fixture
def here(nvml_stub: StubNvml, tmp_path: Path, tracker: Tracker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A node with two GPUs, one of them held by this test."""
    for _ in range(2):
        nvml_stub.gpu(base_bytes=400 * MIB)
    nvml_stub.proc(nvml_stub.gpus[1], os.getpid(), 30 * GIB)
    nvml_stub.write()
    for name, value in nvml_stub.environment().items():
        monkeypatch.setenv(name, value)
    with open(nvml_stub.device(nvml_stub.gpus[1])), site(tmp_path, tracker) as made:
        yield made


def test_local_as_text(here: Site, nvml_stub: StubNvml) -> None:
    command = here.start("gpus", "local")
    assert command.exit_code() == 0, command.said
    lines = command.out.splitlines()
    assert lines[0] == "local · 2 GPUs · driver 580.95.05 · CUDA 13.0"
    assert "0.4/80.0 GiB" in lines[1] and "40°" in lines[1] and "120/700 W" in lines[1]
    assert "30.4/80.0 GiB" in lines[2]
    assert str(os.getpid()) in lines[3] and "30.0 GiB" in lines[3] and "protected" in lines[3]  # it runs the command
    assert "\x1b" not in command.said and command.err == ""


def test_two_nodes_as_json_and_one_that_is_not_reached(here: Site) -> None:
    command = here.start("gpus", "local", str(here.file), "no-such-node.invalid", "--json")
    assert command.exit_code() == 3, command.said
    events = stream(command.out)
    assert [event["kind"] for event in events] == ["gpu", "holders", "gpu", "holders", "warning", "summary"]
    assert [event["host"] for event in events[:4]] == ["local", "local", str(here.file), str(here.file)]
    assert "no-such-node.invalid" in events[4]["text"] and events[-1]["verdict"] == "unreachable"
    gpu = events[0]["gpus"][1]
    assert gpu["memory"]["used_bytes"] == 30 * GIB + 400 * MIB and gpu["uses"][0]["pid"] == os.getpid()


def test_through_ssh_by_an_address_with_a_port(
    here: Site, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment does not travel: on the other side there is no driver."""
    server = request.getfixturevalue("sshd")
    monkeypatch.setenv("SUPERVISOR_SSH_CONFIG", str(server.ssh_config))
    command = here.start("gpus", "node")
    assert command.exit_code() == 0 and "node · no GPU" in command.out, command.said
    command = here.start("gpus", f"ssh://127.0.0.1:{server.port}")
    assert command.exit_code() == 3 and "host key" in command.err, command.said  # it got as far as that


def test_a_driver_that_hangs_is_part_of_what_is_shown(here: Site, nvml_stub: StubNvml) -> None:
    nvml_stub.hang("nvmlDeviceGetMemoryInfo_v2")
    nvml_stub.write()
    command = here.start("gpus", "local", "--json")
    code = command.exit_code(60)
    nvml_stub.heal()
    nvml_stub.write()
    assert code == 0, command.said
    assert stream(command.out)[0]["driver"]["state"] == "stuck"


def test_watched_into_a_pipe_a_block_for_each_change(here: Site, nvml_stub: StubNvml) -> None:
    command = here.start("gpus", "local", "--watch")
    processes.poll(lambda: "30.4/80.0" in command.out, 20, "the first block")
    nvml_stub.gpus[0].temperature_c = 77  # no change that is worth a block
    nvml_stub.write()
    time.sleep(2.5)  # two intervals: that nothing comes cannot be awaited
    assert command.out.count("2 GPUs") == 1, command.out
    nvml_stub.gpus[0].base_bytes = 5 * GIB
    nvml_stub.write()
    processes.poll(lambda: "5.0/80.0" in command.out, 20, "the change")
    assert command.out.count("2 GPUs") == 2 and "77°" in command.out
    command.process.send_signal(signal.SIGINT)
    assert command.exit_code() == 130 and "Traceback" not in command.said


def test_watched_as_json_each_second_and_its_end(here: Site) -> None:
    command = here.start("gpus", "local", "--watch", "--json")
    processes.poll(lambda: command.out.count('"kind":"gpu"') >= 3, 20, "three looks")
    command.process.send_signal(signal.SIGTERM)
    assert command.exit_code() == 143, command.said
    events = stream(command.out)
    assert [event["kind"] for event in events].count("holders") == 1, "told again though nothing changed"
    assert events[-1]["verdict"] == "interrupted" and events[-1]["exit_code"] == 143


def test_watched_at_a_terminal_it_is_drawn_in_place(here: Site, nvml_stub: StubNvml, make_tmux: MakeTmux) -> None:
    words = [sys.executable, "-m", "supervisor.cli", "gpus", "local", "--watch"]
    terminal = make_tmux(words, width=120, height=30, environment=dict(nvml_stub.environment()), cwd=Path.cwd())
    terminal.wait_for("30.4/80.0", 20)
    nvml_stub.gpus[0].base_bytes = 5 * GIB
    nvml_stub.write()
    shown = terminal.wait_for("5.0/80.0", 20)
    assert shown.count("2 GPUs") == 1 and " 0.4/80.0" not in shown
    terminal.send_keys("C-c")
    assert terminal.wait_exit() == 130


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("gpus",), "HOST"),
        (("gpus", "local", "--nonsense"), "--nonsense"),
        (("gpus", "no-such-profile.toml"), "no-such-profile.toml"),
        (("zombies",), "HOST"),
        (("zombies", "local", "other"), "other"),
        (("zombies", "local", "--kill", "all"), "--kill"),
        (("zombies", "local", "--yes"), "--yes belongs to --kill"),
    ],
)
def test_a_wrong_command_line(here: Site, words: tuple[str, ...], said: str) -> None:
    command = here.start(*words)
    assert command.exit_code() == 2 and said in command.err, command.said


def test_help_names_both(here: Site) -> None:
    command = here.start("--help")
    assert command.exit_code() == 0
    assert "supervisor gpus HOST" in command.out and "supervisor zombies HOST" in command.out
