"""The kernel's record of what it killed for memory: lines of several kernels, cgroups of both versions, a real kill."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.node import cgroup, oom

KERNELS = {
    "2.6.32": (
        "<3>Out of memory: Kill process 4711 (python) score 912 or sacrifice child",
        "<3>Killed process 4711, UID 0, (python) total-vm:71303168kB, anon-rss:64123904kB, file-rss:132kB",
    ),
    "3.10": (
        "[1234567.8] Memory cgroup out of memory: Kill process 4711 (python) score 1001 or sacrifice child",
        "[1234567.8] Killed process 4711 (python) total-vm:71303168kB, anon-rss:64123904kB, file-rss:0kB",
    ),
    "4.15": (
        "3,1201,99812345,-;Memory cgroup out of memory: Kill process 4711 (python) score 1001 or sacrifice child",
        "3,1202,99812346,-;Killed process 4711 (python) total-vm:71303168kB, anon-rss:64123904kB, file-rss:0kB, "
        "shmem-rss:0kB",
        "6,1203,99812399,-;oom_reaper: reaped process 4711 (python), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB",
    ),
    "5.0": (
        "6,88,1,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/a,"
        "task_memcg=/a/run,task=python,pid=4711,uid=1000",
        "3,89,1,-;Memory cgroup out of memory: Killed process 4711 (python) total-vm:71303168kB, "
        "anon-rss:64123904kB, file-rss:0kB, shmem-rss:0kB, UID:1000",
    ),
    "6.18": (
        "6,531,1,-;python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        "6,532,1,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=session-5.scope,mems_allowed=0-1,"
        "global_oom,task_memcg=/user.slice/user-0.slice/session-5.scope,task=python,pid=4711,uid=0",
        "3,533,1,-;Out of memory: Killed process 4711 (python) total-vm:71303168kB, anon-rss:64123904kB, "
        "file-rss:384kB, shmem-rss:0kB, UID:0 pgtables:125880kB oom_score_adj:0",
    ),
}


@pytest.mark.parametrize("version", KERNELS)
def test_every_kernel_names_whom_it_killed(version: str) -> None:
    kills = oom.parse(KERNELS[version])
    assert [(kill.pid, kill.name) for kill in kills] == [(4711, "python")]
    assert "Killed process 4711" in kills[0].text
    wanted = {"5.0": "/a/run", "6.18": "/user.slice/user-0.slice/session-5.scope"}.get(version)
    assert kills[0].memcg == wanted


def test_a_group_that_is_killed_together_is_told_whole() -> None:
    lines = [
        "6,1,1,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/p,"
        "task_memcg=/p/c,task=sglang::schedul,pid=10,uid=0",
        "3,2,1,-;Memory cgroup out of memory: Killed process 10 (sglang::schedul) total-vm:1kB, anon-rss:1kB",
        "6,3,1,-;Tasks in /p are going to be killed due to memory.oom.group set",
        "3,4,1,-;Memory cgroup out of memory: Killed process 11 (a) b) total-vm:1kB, anon-rss:1kB, file-rss:0kB",
    ]
    assert [(kill.pid, kill.name, kill.memcg) for kill in oom.parse(lines)] == [
        (10, "sglang::schedul", "/p/c"),
        (11, "a) b", None),
    ]


def test_what_only_sounds_like_a_kill_is_none() -> None:
    lines = [
        "3,1,1,-;Out of memory: Kill process 4711 (python) score 912 or sacrifice child",
        "6,2,1,-;oom_reaper: reaped process 4711 (python), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB",
        "6,3,1,-;python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        "4,4,1,-;Killed process accounting is off",
        "4,5,1,-;NVRM: Xid (PCI:0000:10:00): 79, pid=4711, GPU has fallen off the bus.",
    ]
    assert oom.parse(lines) == []


# ------------------------------------------------------------------------------- cgroups as files


class Files:
    """A /proc and a cgroup tree that a test writes."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.sys = folder / "proc", folder / "sys"
        self.kmsg = folder / "kmsg"
        self.me = os.getpid()

    def process(self, pid: int, cgroups: str, mounts: str) -> None:
        self.write(self.proc / str(pid) / "cgroup", cgroups)
        self.write(self.proc / str(pid) / "mountinfo", mounts)

    def write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def version_2(self, name: str, root: str = "/") -> None:
        self.process(self.me, f"0::{name}\n", f"30 23 0:26 {root} {self.sys} rw,relatime - cgroup2 cgroup2 rw\n")

    def record(self) -> oom.Record:
        return oom.Record(self.me, kmsg=str(self.kmsg), proc_folder=str(self.proc))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def events(oom_kill: int, local: int = 0) -> str:
    return f"low 0\nhigh 0\nmax 12\noom {oom_kill + local}\noom_kill {oom_kill}\noom_group_kill 0\n"


def test_a_counter_of_the_runs_own_cgroup_that_grew_is_a_kill(files: Files) -> None:
    files.version_2("/slice/run.scope")
    files.write(files.sys / "slice" / "run.scope" / "memory.events", events(2))
    files.write(files.sys / "slice" / "memory.events", events(2))
    files.write(files.sys / "slice" / "run.scope" / "cgroup.procs", f"{files.me}\n")
    record = files.record()
    files.write(files.sys / "slice" / "run.scope" / "memory.events", events(3))
    files.write(files.sys / "slice" / "memory.events", events(3))
    told = record.tell({files.me}, lambda pid: pid == files.me)
    assert told["looked_at"] is True
    assert told["kills"] == [
        {
            "text": "the kernel killed 1 process of the cgroup /slice/run.scope for memory (oom_kill in memory.events)",
            "pid": None,
            "ours": True,
        }
    ]


def test_a_cgroup_with_others_in_it_does_not_say_who_was_killed(files: Files) -> None:
    files.version_2("/run")
    files.write(files.sys / "run" / "memory.events", events(0))
    files.write(files.sys / "run" / "cgroup.procs", f"{files.me}\n1234567\n")
    record = files.record()
    files.write(files.sys / "run" / "memory.events", events(1))
    told = record.tell({files.me}, lambda pid: pid == files.me)
    assert [kill["ours"] for kill in told["kills"]] == [False]


def test_a_neighbour_that_was_killed_is_not_ours(files: Files) -> None:
    files.version_2("/slice/run")
    for folder in ("slice", "slice/run"):
        files.write(files.sys / folder / "memory.events", events(0))
    record = files.record()
    files.write(files.sys / "slice" / "memory.events", events(1))
    told = record.tell({files.me}, lambda _pid: True)
    assert [kill["ours"] for kill in told["kills"]] == [False]
    assert "/slice for memory" in told["kills"][0]["text"]


def test_no_counter_and_no_log_is_told_as_nobody_looked(files: Files) -> None:
    files.version_2("/")  # the root of the tree counts nothing
    files.write(files.sys / "cgroup.procs", "")
    told = files.record().tell({files.me}, lambda _pid: True)
    assert told["looked_at"] is False and told["kills"] == []


def test_a_root_that_moves_to_another_cgroup_is_not_covered_by_the_counter(files: Files) -> None:
    files.version_2("/run")
    files.write(files.sys / "run" / "memory.events", events(0))
    files.write(files.sys / "docker" / "abc" / "memory.events", events(0))
    record = files.record()
    mounts = (files.proc / str(files.me) / "mountinfo").read_text()
    files.process(99, "0::/docker/abc\n", mounts)
    record.sample(99)
    assert record.tell({99}, lambda _pid: True)["looked_at"] is False


def test_a_container_without_a_cgroup_namespace_finds_its_own_folder(files: Files) -> None:
    files.version_2("/docker/abc/sub", root="/docker/abc")
    files.write(files.sys / "sub" / "memory.events", events(0))
    found = cgroup.cgroups_of(files.me, str(files.proc))
    assert [(Path(item.folder), item.name) for item in found] == [
        (files.sys / "sub", "/docker/abc/sub"),
        (files.sys, "/docker/abc"),
    ]


def test_version_1_counts_in_oom_control(files: Files) -> None:
    mounts = f"35 31 0:32 / {files.sys}/memory rw - cgroup cgroup rw,memory\n"
    files.process(files.me, "9:name=systemd:/\n4:memory:/job\n0::/\n", mounts)
    files.write(files.sys / "memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n")
    files.write(files.sys / "memory/job/cgroup.procs", "")
    record = files.record()
    files.write(files.sys / "memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    told = record.tell(set(), lambda _pid: True)
    assert "memory.oom_control" in told["kills"][0]["text"] and told["kills"][0]["ours"] is True


def test_the_kernels_log_is_read_from_the_launch_on(files: Files) -> None:
    files.version_2("/")
    files.write(files.proc / "self" / "ns" / "x", "")
    (files.proc / "self" / "ns" / "pid").symlink_to("pid:[4026531836]")
    old = "3,1,1,-;Out of memory: Killed process 5 (python) total-vm:1kB, anon-rss:1kB, file-rss:0kB\n"
    new = "3,2,1,-;Out of memory: Killed process 6 (python) total-vm:1kB, anon-rss:1kB, file-rss:0kB\n"
    files.write(files.kmsg, old)
    record = files.record()
    with files.kmsg.open("a") as file:
        file.write(new + new.replace(" 6 ", " 7 "))
    told = record.tell({6}, lambda _pid: False)
    assert [(kill["pid"], kill["ours"]) for kill in told["kills"]] == [(6, True), (7, False)]


def test_a_pid_of_another_pid_namespace_is_not_ours(files: Files) -> None:
    files.version_2("/")
    files.write(files.proc / "self" / "ns" / "x", "")
    (files.proc / "self" / "ns" / "pid").symlink_to("pid:[4026532999]")
    files.write(files.kmsg, "")
    record = files.record()
    files.write(files.kmsg, "3,2,1,-;Out of memory: Killed process 6 (python) total-vm:1kB, anon-rss:1kB\n")
    told = record.tell({6}, lambda _pid: False)
    assert [(kill["pid"], kill["ours"]) for kill in told["kills"]] == [(None, False)]


def test_the_least_room_of_the_last_seconds_counts_and_file_cache_is_room(files: Files) -> None:
    files.version_2("/run")
    run = files.sys / "run"
    files.write(files.proc / "meminfo", "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 900 kB\n")
    files.write(run / "memory.max", "512000\n")
    files.write(run / "memory.stat", "anon 1\ninactive_file 1000\n")
    record = files.record()
    for used in (100_000, 510_000, 200_000):
        files.write(run / "memory.current", f"{used}\n")
        record.sample()
    told = record.tell(set(), lambda _pid: True)
    assert (told["free_bytes"], told["total_bytes"]) == (3000, 512_000)


# ------------------------------------------------------------------------------- the kernel itself

EATER = "import os, sys; sys.stdin.readline(); held = [bytearray(1 << 20) for _ in range(512)]"


@pytest.fixture
def memory_cgroup() -> Iterator[Path]:
    """A cgroup of 48 MiB, or the test is skipped by name."""
    name = f"isup-test-{secrets.token_hex(4)}"
    own = next((item for item in cgroup.cgroups_of(os.getpid()) if item.version == 1), None)
    unified = Path("/sys/fs/cgroup/cgroup.controllers")
    if own is not None:
        folder, limit = Path(own.folder) / name, "memory.limit_in_bytes"
    elif unified.exists() and "memory" in unified.read_text().split():
        folder, limit = Path("/sys/fs/cgroup") / name, "memory.max"
    else:
        pytest.skip("no memory cgroups on this machine")
    try:
        folder.mkdir()
        (folder / limit).write_text(str(48 << 20))
    except OSError as error:
        pytest.skip(f"no memory cgroup can be made here: {error}")
    yield folder
    end = time.monotonic() + 5
    while folder.exists() and time.monotonic() < end:
        try:
            folder.rmdir()
        except OSError:
            time.sleep(0.02)  # a dead process leaves its cgroup a moment after it was collected


def test_a_real_kill_is_counted_and_read_from_the_kernels_log(memory_cgroup: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", EATER], stdin=subprocess.PIPE)
    try:
        (memory_cgroup / "cgroup.procs").write_text(str(process.pid))
        record = oom.Record(process.pid)
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.close()
        assert process.wait(30) == -9
    finally:
        process.kill()
        process.wait()
    told = record.tell({process.pid}, lambda _pid: True)
    assert told["looked_at"] is True
    assert any(kill["ours"] for kill in told["kills"]), told
    if os.access("/dev/kmsg", os.R_OK) and oom.KernelLog("/dev/kmsg").readable:
        assert [kill["pid"] for kill in told["kills"]] == [process.pid], told
        assert f"Killed process {process.pid}" in told["kills"][0]["text"]
