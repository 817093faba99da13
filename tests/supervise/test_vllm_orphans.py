"""The real vLLM on the CPU, opt-in: its API server is killed -9, and what it leaves behind is found and cleared."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from supervisor.adapters import gpu
from supervisor.adapters.clock import SystemClock
from supervisor.adapters.local import LocalLink
from supervisor.adapters.node import NodeClient
from supervisor.core.gpu import GIB
from supervisor.core.holders import HolderClass, classify
from supervisor.engines import loader
from supervisor.supervise.clear import clear
from supervisor.supervise.stop import stop_run
from tests.node.conftest import PYTHON, Node, until
from tests.real import parts, processes, vllm
from tests.real.nvml import StubNvml
from tests.real.ports import free_port
from tests.real.processes import Tracker


@pytest.mark.heavy_engine
@pytest.mark.asyncio
async def test_the_core_of_a_killed_vllm_is_found_as_ours_and_cleared(
    tracker: Tracker, nvml_stub: StubNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes, titles and marks are real; the memory is the stub's, tied to their pids."""
    parts.require_real("vLLM")
    nvml_stub.gpu(base_bytes=400 << 20)
    nvml_stub.release_delay_ms = 1000
    nvml_stub.write()
    for name, value in nvml_stub.environment().items():
        monkeypatch.setenv(name, value)
    # What CUDA would do in each process of it: have the GPU's device file open.
    opened = str(nvml_stub.device(nvml_stub.gpus[0]))
    (tmp_path / "sitecustomize.py").write_text(f"import os\nos.open({opened!r}, os.O_RDONLY)\n")
    port, log = free_port(), tmp_path / "vllm.log"
    link = LocalLink()
    await link.connect()
    client = await NodeClient.start(link, clock=SystemClock(), python=PYTHON, state_dir=str(tmp_path / "state"))
    node = Node(link, client, tmp_path / "state")
    try:
        env = {**vllm.ENVIRONMENT, "PYTHONPATH": str(tmp_path)}
        run = await node.launch(vllm.command(port), env=env, log=str(log), cwd=str(tmp_path))
        root = psutil.Process(run["root"]["pid"])
        await until(lambda: b"Application startup complete" in log.read_bytes(), 240)
        below = {item.pid: item for item in root.children(recursive=True)}
        cores = [pid for pid, item in below.items() if "VLLM::EngineCor" in " ".join([item.name(), *item.cmdline()])]
        assert cores, [processes.describe(item) for item in below.values()]
        for pid in cores:
            nvml_stub.claim(nvml_stub.gpus[0], pid, 20 * GIB)
        await gpu.look(client)
        for pid in cores:
            below[pid].suspend()  # as one that hangs in a collective or in the driver: it cannot see its server go
        root.kill()
        await node.ended(run["run_id"], 30)
        holders = classify(await gpu.look(client), loader.known_holders())
        left = [item for item in holders if item.pid in cores]
        assert left and {item.run_id for item in left} == {run["run_id"]}
        assert {item.class_ for item in left} == {HolderClass.OURS_ORPHAN} and all(item.preselected for item in left)
        cleared = await clear(
            client, clock=SystemClock(), targets=left, grace_s=5, tell=lambda _text: None, spared=holders
        )
        assert cleared.gone and cleared.released, cleared
        stopped = await stop_run(
            client, clock=SystemClock(), key=node.key, run_id=run["run_id"], root=None, by="test", grace_s=5,
            tell=lambda _text: None,
        )  # fmt: skip
        assert stopped.gone and stopped.released, stopped
        assert not [processes.describe(item) for item in below.values() if processes.alive(item)]
    finally:
        node.end_everything()
        await client.close()
        await link.close()
