"""The look at the GPUs as a whole: node program, NVML child, NVIDIA's library in C, real processes on it.

The pitfalls whose answer lies above NVML stand here by their numbers; the others in test_pitfalls.py.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from supervisor.adapters import gpu as looks
from supervisor.adapters.clock import SystemClock
from supervisor.adapters.local import LocalLink
from supervisor.adapters.node import NodeClient
from supervisor.core.gpu import Coverage, DriverState, GpuState, Snapshot
from supervisor.node import driver, proc
from tests.node.conftest import PYTHON, Node, need_python, until, until_async
from tests.real import nvml, parts, pidns
from tests.real.nvml import GIB, StubNvml

pytestmark = pytest.mark.asyncio

HOLD = "import sys, time; held = [open(path) for path in sys.argv[1:]]; print(flush=True); time.sleep(600)"


@pytest.fixture
def stub(nvml_stub: StubNvml, monkeypatch: pytest.MonkeyPatch) -> StubNvml:
    """Two GPUs on the node. Ask for it before (left of) `node`, which inherits the environment."""
    for name, value in nvml_stub.environment().items():
        monkeypatch.setenv(name, value)
    nvml_stub.gpu()
    nvml_stub.gpu()
    nvml_stub.write()
    return nvml_stub


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes of the test, ended with it."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def holder(started: list[subprocess.Popen[bytes]], *paths: Path) -> subprocess.Popen[bytes]:
    """A process with these files open."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, *map(str, paths)], stdout=subprocess.PIPE)
    started.append(process)
    assert process.stdout is not None and process.stdout.readline()
    return process


def nvml_children() -> list[int]:
    """Living NVML processes of node programs that this test process is above of."""
    marker = (driver.MARKER + "=").encode()
    out = []
    for pid in proc.pids():
        if marker in proc.read(f"/proc/{pid}/environ") and proc.describe(pid) is not None:
            config = os.environ["NVML_STUB_CONFIG"].encode()
            if config in proc.read(f"/proc/{pid}/environ"):
                out.append(pid)
    return out


async def test_one_look_has_gpus_holders_and_what_is_above_them(
    stub: StubNvml, node: Node, started: list[subprocess.Popen[bytes]]
) -> None:
    first = holder(started, stub.devices / "nvidia0", stub.devices / "nvidia-uvm")
    heir = holder(started, stub.devices / "nvidia1")
    stub.gpus[0].base_bytes = 3 * GIB
    stub.proc(stub.gpus[0], first.pid, 70 * GIB)
    stub.write()
    snapshot = await looks.look(node.client)
    assert snapshot.driver.state is DriverState.OK and snapshot.driver.version == stub.driver_version
    assert [gpu.uuid for gpu in snapshot.gpus] == [gpu.uuid for gpu in stub.gpus]
    assert snapshot.gpus[0].memory.used_bytes == 73 * GIB and snapshot.gpus[0].unexplained_bytes == 3 * GIB
    assert snapshot.looks == {stub.gpus[0].uuid: 1}
    listed = snapshot.process(first.pid)
    assert listed is not None and listed.devices == tuple(
        sorted(str(stub.devices / name) for name in ("nvidia0", "nvidia-uvm"))
    )
    assert listed.ppid == os.getpid() and listed.same_namespace and not listed.ports
    assert listed.leader_alive is (True if os.getsid(0) else None)  # 0: a session from outside this pid namespace
    assert abs(listed.started_at - time.time()) < 60 and listed.uid == os.getuid() and listed.user
    assert HOLD.split(";")[0] in listed.title and listed.threads == 1
    silent = snapshot.process(heir.pid)
    assert silent is not None and silent.devices == (str(stub.devices / "nvidia1"),)
    above = snapshot.process(os.getpid())
    assert above is not None and above.devices == ()  # it is there as a parent only
    assert snapshot.coverage is (Coverage.ALL if os.getuid() == 0 else Coverage.OWN)
    assert os.getpid() in snapshot.own_chain and set(nvml_children()) <= set(snapshot.own_chain)
    assert snapshot.uid == os.getuid()


async def test_a_session_from_outside_the_pid_namespace_is_not_taken_for_one_without_a_leader() -> None:
    """`docker exec`, `kubectl exec`, a CI runner: the kernel shows 0 as the session; who leads it cannot be seen."""
    parts.require_real("pid namespaces")
    look = (
        "import os, time; from supervisor.node import proc; first = proc.stat(os.getpid())['sid']\n"
        "reader, writer = os.pipe(); child = os.fork()\n"
        "if not child: os.setsid(); os.write(writer, b'x'); time.sleep(600)\n"
        "os.read(reader, 1); own = proc.stat(child)['sid']; living = proc.leader_lives(own)\n"
        "os.kill(child, 9); os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)\n"
        "print(first, proc.leader_lives(first), living, proc.leader_lives(own))"
    )
    words = pidns.inside([sys.executable, "-c", look])
    done = await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["0", "None", "True", "False"], done.stderr


async def test_what_is_above_a_holder_is_told_with_its_ports(stub: StubNvml, node: Node, tmp_path: Path) -> None:
    """A server's root has the port and no GPU, its worker the GPU and no port; a shell leads the session."""
    worker = f"import time; held = open({str(stub.devices / 'nvidia0')!r}); time.sleep(600)"
    server = (
        "import socket, subprocess, sys\ns = socket.create_server(('127.0.0.1', 0))\n"
        f"worker = subprocess.Popen([sys.executable, '-c', {worker!r}])\n"
        "print(s.getsockname()[1], worker.pid, flush=True); worker.wait()"
    )
    # The middle shell goes, so that the server is re-parented, and only its session leads back to who started it.
    script = f'("$1" -c "$2" >{tmp_path}/said &) ; exec sleep 600'
    run = await node.launch(["/bin/sh", "-c", script, "sh", sys.executable, server])
    said = tmp_path / "said"
    port, pid = map(int, (await until(lambda: said.exists() and said.read_text().strip())).split())

    async def seen() -> Snapshot | None:
        snapshot = await looks.look(node.client)
        found = snapshot.process(pid)
        return snapshot if found is not None and found.devices else None

    snapshot = await until_async(seen)
    found = snapshot.process(pid)
    assert found is not None
    root = snapshot.process(found.ppid)
    assert root is not None and root.ports == (port,) and root.devices == ()
    leader = snapshot.process(run["root"]["pid"])
    assert leader is not None and leader.pid == found.sid and leader.pid not in (found.ppid, root.ppid)


async def test_runs_are_told_live_and_ended(stub: StubNvml, node: Node, started: list[subprocess.Popen[bytes]]) -> None:
    """The worker of a run whose root was killed is known by the run that it carries."""
    script = f"exec 3<{stub.devices}/nvidia0; sleep 600 & echo $! >{node.state_dir}/worker; exec 3<&-; wait"
    run = await node.launch(["/bin/sh", "-c", script])
    worker = int(await until(lambda: (node.state_dir / "worker").exists() and (node.state_dir / "worker").read_text()))
    stub.proc(stub.gpus[0], worker, 20 * GIB)
    stub.write()
    snapshot = await looks.look(node.client)
    found = snapshot.process(worker)
    assert found is not None and found.run_id == run["run_id"] and found.devices
    assert [(item.run_id, item.key, item.live) for item in snapshot.runs] == [(run["run_id"], node.key, True)]
    os.kill(run["root"]["pid"], signal.SIGKILL)
    await node.ended(run["run_id"])
    snapshot = await looks.look(node.client)
    (facts,) = snapshot.runs
    assert not facts.live and facts.ended_at is not None and abs(facts.ended_at - time.time()) < 60
    assert snapshot.process(worker) is not None


async def test_the_ring_tells_who_it_was(
    stub: StubNvml, node: Node, started: list[subprocess.Popen[bytes]], link: LocalLink
) -> None:
    """gpu.md section 5, 8: the memory is still there, the process is not, and we know who it was."""
    process = holder(started, stub.devices / "nvidia0")
    stub.proc(stub.gpus[0], process.pid, 70 * GIB)
    stub.list_delay_ms = stub.release_delay_ms = 60_000
    stub.write()
    before = await looks.look(node.client)
    assert before.past == ()
    process.kill()
    process.wait()
    snapshot = await looks.look(node.client)
    assert snapshot.process(process.pid) is None
    uses = snapshot.gpus[0].uses
    assert uses is not None and [use.pid for use in uses] == [process.pid]
    (past,) = snapshot.past
    assert past.pid == process.pid and "import sys, time" in past.title
    assert past.held == {stub.gpus[0].uuid: 70 * GIB} and 0 <= snapshot.at - past.last_at < 30
    again = await NodeClient.start(link, clock=SystemClock(), python=PYTHON, state_dir=str(node.state_dir))
    try:
        assert [item.pid for item in (await looks.look(again)).past] == [process.pid]  # it outlives the connection
    finally:
        await again.close()


async def test_p05_a_pid_that_exists_here_and_holds_nothing(
    stub: StubNvml, node: Node, started: list[subprocess.Popen[bytes]]
) -> None:
    """A host's pid can be somebody else's here: what NVML says and what the process holds are told apart."""
    stranger = holder(started)
    stub.proc(stub.gpus[0], stranger.pid, 30 * GIB, tied=False)
    stub.write()
    snapshot = await looks.look(node.client)
    found = snapshot.process(stranger.pid)
    assert found is not None and found.devices == ()


async def test_p06_p07_memory_without_a_process_is_no_process_of_ours(stub: StubNvml, node: Node) -> None:
    """A list that is empty or partial: the memory is told, nobody is accused, and whether we are in a container."""
    stub.gpus[0].ghost_bytes = 40 * GIB
    stub.proc(stub.gpus[1], 2_000_000, 40 * GIB, tied=False)
    stub.write()
    snapshot = await looks.look(node.client)
    assert snapshot.gpus[0].unexplained_bytes == 40 * GIB
    assert snapshot.gpus[1].unexplained_bytes == 0 and snapshot.process(2_000_000) is None
    assert snapshot.container == (os.readlink("/proc/self/ns/pid") != "pid:[4026531836]")


async def test_p09_a_gpu_that_vanishes_keeps_its_place(stub: StubNvml, node: Node) -> None:
    await looks.look(node.client)
    stub.gpus[1].absent = True
    stub.write()
    snapshot = await looks.look(node.client)
    assert [gpu.uuid for gpu in snapshot.gpus] == [gpu.uuid for gpu in stub.gpus]
    assert [gpu.state for gpu in snapshot.gpus] == [GpuState.OK, GpuState.LOST]


async def test_p11_p12_without_nvml_the_process_view_works(
    stub: StubNvml,
    node: Node,
    started: list[subprocess.Popen[bytes]],
) -> None:
    stub.init_code = nvml.MISMATCH
    stub.write()
    process = holder(started, stub.devices / "nvidia0")
    snapshot = await looks.look(node.client)
    assert snapshot.driver.state is DriverState.UNAVAILABLE and snapshot.driver.why
    found = snapshot.process(process.pid)
    assert found is not None and found.devices == (str(stub.devices / "nvidia0"),)
    assert snapshot.coverage is not Coverage.NONE


async def _stuck(node: Node) -> Snapshot | None:
    snapshot = await looks.look(node.client, wait_s=0.2, scan=False)
    return snapshot if snapshot.driver.state is DriverState.STUCK else None


async def test_p19_a_call_that_hangs_is_told_and_the_rest_goes_on(
    stub: StubNvml, node: Node, started: list[subprocess.Popen[bytes]], link: LocalLink
) -> None:
    """ "Driver not responding since N s" with the call's name; /proc flows on; no second child, also not by others."""
    process = holder(started, stub.devices / "nvidia0")
    await looks.look(node.client)
    (child,) = nvml_children()
    stub.hang("nvmlDeviceGetMemoryInfo_v2")
    stub.write()
    snapshot = await until_async(lambda: _stuck(node), timeout_s=30.0)
    assert snapshot.driver.call == "nvmlDeviceGetMemoryInfo_v2" and snapshot.driver.stuck_s >= driver.STUCK_AFTER_S
    assert "not responding since" in snapshot.driver.why and snapshot.driver.version == stub.driver_version
    assert len(snapshot.gpus) == 2  # what was known last
    assert snapshot.process(process.pid) is not None
    assert nvml_children() == [child]
    stub.heal()
    stub.write()
    snapshot = await looks.look(node.client)
    assert snapshot.driver.state is DriverState.OK and nvml_children() == [child]
    assert stub.calls("nvmlInitWithFlags", child) == 1


async def test_p19_what_a_lost_connection_left_in_the_driver_is_found_and_not_doubled(
    stub: StubNvml, node: Node, link: LocalLink
) -> None:
    await looks.look(node.client)
    (child,) = nvml_children()
    stub.hang("nvmlDeviceGetMemoryInfo_v2", deaf=True)
    stub.write()
    await until_async(lambda: _stuck(node), timeout_s=30.0)
    await node.client.close()  # the connection goes; the child cannot
    again = await NodeClient.start(link, clock=SystemClock(), python=PYTHON, state_dir=str(node.state_dir))
    try:
        snapshot = await looks.look(again)
        assert snapshot.driver.state is DriverState.STUCK
        assert f"pid {child}" in snapshot.driver.why and "not started" in snapshot.driver.why
        assert nvml_children() == [child]
        stub.heal()
        stub.write()
        await until(lambda: not nvml_children(), 30.0)
        assert (await looks.look(again)).driver.state is DriverState.OK
    finally:
        await again.close()


async def test_p19_a_call_that_hangs_past_the_connection_is_ended_by_term(stub: StubNvml, node: Node) -> None:
    """End of stdin, 5 s, TERM; never KILL, which has frozen GPUs in the middle of a call."""
    await looks.look(node.client)
    (child,) = nvml_children()
    stub.hang("nvmlDeviceGetMemoryInfo_v2")
    stub.write()
    await until_async(lambda: _stuck(node), timeout_s=30.0)
    await node.client.close()
    assert nvml_children() == [child]  # it is given time to come back
    await until(lambda: not nvml_children(), 30.0)
    assert stub.calls("nvmlShutdown", child) == 0


async def test_p09_a_gpu_that_vanished_keeps_its_place_in_the_next_child(stub: StubNvml, node: Node) -> None:
    await looks.look(node.client)
    await node.client.request("gpu_end")
    await until(lambda: not nvml_children())
    stub.gpus[1].absent = True
    stub.write()
    snapshot = await looks.look(node.client)
    assert [(gpu.uuid, gpu.state) for gpu in snapshot.gpus] == [
        (stub.gpus[0].uuid, GpuState.OK),
        (stub.gpus[1].uuid, GpuState.LOST),
    ]
    assert snapshot.driver.count_before == 2 and stub.calls("nvmlInitWithFlags") == 2


async def test_p17_a_slow_first_answer_is_waited_for(stub: StubNvml, node: Node) -> None:
    """Without persistence mode the first answer takes seconds: the time that was asked for is stretched for it."""
    stub.hang("nvmlDeviceGetCount_v2", seconds=3.0)
    stub.write()
    snapshot = await looks.look(node.client, wait_s=0.5)
    assert snapshot.driver.state is DriverState.OK and len(snapshot.gpus) == 2


async def test_p21_nothing_asks_the_driver_when_nobody_looks(stub: StubNvml, node: Node) -> None:
    """A GPU that sleeps is not kept awake: calls come with looks alone, and end with the watch."""
    await looks.look(node.client)
    before = stub.calls("nvmlDeviceGetMemoryInfo_v2")
    await looks.begin(node.client)
    await until(lambda: stub.calls("nvmlDeviceGetMemoryInfo_v2") > before)
    await node.client.request("gpu_end")
    await until(lambda: not nvml_children())
    after = stub.calls("nvmlDeviceGetMemoryInfo_v2")
    await node.client.request("ping")
    assert not nvml_children() and stub.calls("nvmlDeviceGetMemoryInfo_v2") == after


async def test_p25_the_driver_can_be_let_go(stub: StubNvml, node: Node) -> None:
    """An open NVML handle forbids a reset: `gpu_end` closes it, and the next look opens it again."""
    await looks.look(node.client)
    assert nvml_children()
    await node.client.request("gpu_end")
    await until(lambda: not nvml_children())
    assert stub.calls("nvmlShutdown") == 1
    assert (await looks.look(node.client)).driver.state is DriverState.OK


async def test_the_child_goes_with_the_connection(stub: StubNvml, node: Node) -> None:
    await looks.look(node.client)
    assert nvml_children()
    await node.client.close()
    await until(lambda: not nvml_children())
    assert stub.calls("nvmlInitWithFlags") == stub.calls("nvmlShutdown") == 1  # P18


async def _snapshots(node: Node) -> AsyncIterator[Snapshot]:
    feed = looks.GpuFeed()
    async for notice in node.client.notices():
        if notice["notice"] == "gpu":
            yield feed.take(notice)


async def test_a_watch_tells_each_second_and_processes_only_when_they_change(
    stub: StubNvml, node: Node, started: list[subprocess.Popen[bytes]]
) -> None:
    process = holder(started, stub.devices / "nvidia0")
    stub.proc(stub.gpus[0], process.pid, 10 * GIB)
    stub.write()
    await looks.begin(node.client)
    raw: list[bool] = []
    async with asyncio.timeout(30):
        feed = looks.GpuFeed()
        async for notice in node.client.notices():
            raw.append(notice["snapshot"]["processes"] is not None)
            snapshot = feed.take(notice)
            if snapshot.process(process.pid) is not None and not raw[-1]:
                break  # left out, and still known
    assert raw[0]
    process.kill()
    process.wait()
    async with asyncio.timeout(30):
        async for snapshot in _snapshots(node):
            if snapshot.process(process.pid) is None:
                break
    assert [past.pid for past in snapshot.past] == [process.pid]


async def test_state_d_is_counted_look_by_look(
    stub: StubNvml, node: Node, started: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    """A process that waits for its vfork child is in state D for as long as that one opens a FIFO nobody writes to."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    code = (
        "import os, sys; held = open(sys.argv[1])\n"
        "actions = [(os.POSIX_SPAWN_OPEN, 9, sys.argv[2], os.O_RDONLY, 0)]\n"
        "os.posix_spawn('/bin/true', ['true'], os.environ, file_actions=actions)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(stub.devices / "nvidia0"), str(fifo)])
    started.append(process)
    await until(lambda: (proc.stat(process.pid) or {}).get("state") == "D")
    try:
        seen = []
        for number in range(3):
            found = (await looks.look(node.client, scan=number == 0)).process(process.pid)
            assert found is not None and found.state == "D" and not found.kill_pending
            seen.append(found.uninterruptible_looks)
        assert seen == [1, 2, 3]
    finally:
        os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
    process.wait()


@pytest.mark.parametrize("version", ["3.8", "3.13"])
async def test_a_look_and_a_watch_under_the_nodes_own_python(
    stub: StubNvml, link: LocalLink, tmp_path: Path, started: list[subprocess.Popen[bytes]], version: str
) -> None:
    process = holder(started, stub.devices / "nvidia0")
    stub.proc(stub.gpus[0], process.pid, 10 * GIB)
    stub.write()
    python = need_python(version)
    client = await NodeClient.start(link, clock=SystemClock(), python=python, state_dir=str(tmp_path / "state"))
    try:
        assert client.hello.python.startswith(version + ".")
        snapshot = await looks.settled_look(client, clock=SystemClock())
        assert snapshot.driver.state is DriverState.OK and snapshot.process(process.pid) is not None
        await looks.begin(client)
        async with asyncio.timeout(30):
            async for notice in client.notices():
                if notice["notice"] == "gpu":
                    break
        seen = looks.GpuFeed().take(notice)
        assert seen.gpus[0].held_bytes == 10 * GIB
    finally:
        await client.close()


async def test_without_any_gpu_nothing_is_started(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    if driver.worth_asking():
        pytest.skip("this machine has an NVIDIA GPU")
    began = time.monotonic()
    snapshot = await looks.look(node.client)
    assert snapshot.driver.state is DriverState.ABSENT and snapshot.gpus == () and snapshot.processes == ()
    assert time.monotonic() - began < looks.FIRST_WAIT_S
