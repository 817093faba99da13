"""Who has a GPU's device file open: real processes, a folder that stands for /dev. No GPU and no NVML are needed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.node import devices, proc, sockets
from tests.real.processes import Tracker, poll

OPEN = "import sys, time; held = [open(path) for path in sys.argv[1:]]; print(flush=True); time.sleep(600)"


@pytest.fixture
def dev(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the device files of two GPUs."""
    folder = tmp_path / "dev"
    (folder / "nvidia-caps").mkdir(parents=True)
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-caps/nvidia-cap1", "nvidia-modeset"):
        (folder / name).write_bytes(b"\0" * 4096)
    monkeypatch.setenv("INFERENCE_SUPERVISOR_DEV", str(folder))
    return folder


@pytest.fixture
def run(tracker: Tracker) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes of the test, ended with it."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def python(run: list[subprocess.Popen[bytes]], code: str, *words: object) -> subprocess.Popen[bytes]:
    """A Python process that has said its first line."""
    process = subprocess.Popen([sys.executable, "-c", code, *map(str, words)], stdout=subprocess.PIPE)
    run.append(process)
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


def scanned() -> devices.Scan:
    scan = devices.Scan()
    scan.finish(30.0)
    assert scan.done
    return scan


def test_open_device_files_are_found_and_others_are_not(dev: Path, run: list[subprocess.Popen[bytes]]) -> None:
    holder = python(run, OPEN, dev / "nvidia0", dev / "nvidia-uvm", dev / "nvidia-caps/nvidia-cap1")
    other = python(run, OPEN, dev / "nvidia-modeset", "/dev/null")
    scan = scanned()
    assert scan.found[holder.pid] == [str(dev / name) for name in ("nvidia-caps/nvidia-cap1", "nvidia-uvm", "nvidia0")]
    assert other.pid not in scan.found
    assert scan.coverage == (devices.ALL if os.getuid() == 0 else devices.OWN)


def test_a_forked_child_that_outlives_its_parent_still_holds(dev: Path, run: list[subprocess.Popen[bytes]]) -> None:
    code = (
        "import os, sys, time\nheld = open(sys.argv[1])\n"
        "if os.fork(): os._exit(0)\nprint(os.getpid(), flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(dev / "nvidia1")], stdout=subprocess.PIPE)
    run.append(parent)
    assert parent.stdout is not None
    heir = int(parent.stdout.readline())
    parent.wait()
    try:
        assert scanned().found == {heir: [str(dev / "nvidia1")]}
    finally:
        os.kill(heir, 9)


def test_threads_of_a_zombie_leader_hold_what_it_held(dev: Path, run: list[subprocess.Popen[bytes]]) -> None:
    code = (
        "import ctypes, platform, sys, threading, time\nheld = open(sys.argv[1])\n"
        "threading.Thread(target=time.sleep, args=(600,)).start()\nprint(flush=True)\n"
        "ctypes.CDLL(None).syscall(93 if platform.machine() == 'aarch64' else 60, 0)"  # exit: this thread alone
    )
    leader = python(run, code, dev / "nvidia0")

    def dead() -> bool:
        found = proc.stat(leader.pid)
        return found is not None and found["state"] == "Z"

    poll(dead, 10.0, "a zombie leader")
    found = proc.stat(leader.pid)
    assert found is not None and found["threads"] == 2  # the dead leader counts
    assert scanned().found[leader.pid] == [str(dev / "nvidia0")]


def test_a_mapping_holds_after_the_file_was_closed(dev: Path, run: list[subprocess.Popen[bytes]]) -> None:
    code = (
        "import mmap, sys, time\nfile = open(sys.argv[1]); kept = mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ)\n"
        "import os; os.closerange(3, 64); print(flush=True); time.sleep(600)"
    )
    process = python(run, code, dev / "nvidia0")
    assert process.pid not in scanned().found
    assert devices.mapped(process.pid) == [str(dev / "nvidia0")]


def test_ports_of_holders_are_told(dev: Path, run: list[subprocess.Popen[bytes]]) -> None:
    code = (
        "import socket, sys, time\nheld = open(sys.argv[1]); s = socket.create_server(('127.0.0.1', 0))\n"
        "print(s.getsockname()[1], flush=True); time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(dev / "nvidia0")], stdout=subprocess.PIPE)
    run.append(process)
    assert process.stdout is not None
    port = int(process.stdout.readline())
    inodes = {row["inode"] for row in sockets.listening(None) if row["port"] == port}
    assert inodes
    scan = devices.Scan({row["inode"]: row["port"] for row in sockets.listening(None)})
    scan.finish(30.0)
    assert scan.ports[process.pid] == [port]
    by_file = {(row["inode"], row["port"]) for row in sockets.by_file(None)}
    assert {(inode, port) for inode in inodes} <= by_file


def test_a_title_is_one_line(run: list[subprocess.Popen[bytes]]) -> None:
    """A program in `python -c` has lines; each of them broke the table that the title stands in."""
    process = python(run, "import time\nprint(flush=True)\n\ntime.sleep(600)")
    described = proc.describe(process.pid)
    assert described is not None
    assert described["title"] == f"{sys.executable} -c import time print(flush=True) time.sleep(600)"


def test_a_scan_goes_on_where_it_stopped(dev: Path, run: list[subprocess.Popen[bytes]]) -> None:
    holder = python(run, OPEN, dev / "nvidia0")
    scan = devices.Scan()
    steps = 0
    while not scan.step(0.0):
        assert scan.coverage == devices.PARTIAL
        steps += 1
    assert steps > 1  # one process a step with no time at all
    assert scan.found == {holder.pid: [str(dev / "nvidia0")]}


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_what_may_not_be_read_makes_the_scan_one_of_our_own_processes(
    dev: Path, run: list[subprocess.Popen[bytes]]
) -> None:
    holder = python(run, OPEN, dev / "nvidia0")
    coverage: list[str] = []
    found: list[dict[int, list[str]]] = []

    def as_nobody() -> None:
        import ctypes
        import platform

        # The system call alone changes one thread; glibc's wrapper would change the whole test process.
        setuid = {"x86_64": 105, "aarch64": 146}[platform.machine()]
        assert ctypes.CDLL(None).syscall(setuid, 65534) == 0
        scan = devices.Scan()
        scan.finish(30.0)
        coverage.append(scan.coverage)
        found.append(scan.found)

    thread = threading.Thread(target=as_nobody)
    thread.start()
    thread.join()
    assert coverage == [devices.OWN] and holder.pid not in found[0]


def test_without_device_files_there_is_no_gpu(dev: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert devices.present()
    monkeypatch.setenv("INFERENCE_SUPERVISOR_DEV", str(tmp_path))
    assert not devices.present()
    monkeypatch.setenv("INFERENCE_SUPERVISOR_DEV", str(tmp_path / "missing"))
    assert not devices.present()
    (dev / "dxg").touch()
    monkeypatch.setenv("INFERENCE_SUPERVISOR_DEV", str(dev))
    assert devices.present()  # P24: the GPU of a Linux under Windows
