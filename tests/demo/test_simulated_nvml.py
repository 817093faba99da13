"""The module that stands for nvidia-ml-py on the demonstration's node, read by the node program's own reader; and that
it goes nowhere else."""

from __future__ import annotations

import ast
import base64
import os
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from supervisor.adapters import gpu, nvml_source
from supervisor.adapters.node import NodeClient
from supervisor.core.gpu import Driver, DriverState, Gpu, Memory, Snapshot
from supervisor.core.gpu_events import gpu_event
from supervisor.core.tally import memory_words
from supervisor.demo import simulated_nvml
from supervisor.demo.gpus import COUNT, SimulatedGpus
from supervisor.demo.simulated.gpus import Gpus, start_ticks
from supervisor.headless import gpu_text
from supervisor.headless.text import Style
from supervisor.node import nvml, nvml_calls, nvml_library, xid
from supervisor.supervise.connection import Connection
from supervisor.supervise.session import Session

GIB = 1 << 30
PACKAGE = Path(simulated_nvml.__file__).resolve().parents[1]


@pytest.fixture
def gpus(tmp_path: Path) -> SimulatedGpus:
    return SimulatedGpus(tmp_path / "gpus")


@pytest.fixture
def reader(gpus: SimulatedGpus) -> Iterator[nvml.Reader]:
    """Of the text as it travels, loaded as the node loads it."""
    module = nvml_library.load_module(gpus.nvml_source())
    module.FRESH_S = 0.0
    calls = nvml_calls.Calls()
    assert nvml_library.simulated(module)
    assert nvml_library.initialise(module, calls) == ("simulated", "", 0)
    yield nvml.Reader(module, calls)


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as started:
        yield started
        started.kill()


def look(reader: nvml.Reader) -> list[dict[str, Any]]:
    return reader.sample(lambda: False)


def test_eight_gpus_of_which_every_field_can_be_read(reader: nvml.Reader) -> None:
    found = look(reader)
    assert len(found) == COUNT == 8
    for item in found:
        assert item["state"] == "ok" and item["complete"], item
        assert set(item["errors"]) == {"mig"}  # it cannot be divided, as most cannot
        assert item["memory"]["used_bytes"] < 64 << 20 and item["uses"] == [] and item["gpu_percent"] == 0
        assert item["memory"]["total_bytes"] / GIB == pytest.approx(95.6, abs=0.05)
        assert 20 <= item["temperature_c"] <= 45 and 20 <= item["power_w"] <= 60
    assert len({item["uuid"] for item in found}) == COUNT and len({item["bus_id"] for item in found}) == COUNT


def test_memory_hangs_on_the_living_process_and_falls_after_its_end(
    gpus: SimulatedGpus, reader: nvml.Reader, process: subprocess.Popen[bytes]
) -> None:
    Gpus(str(gpus.folder)).write([(process.pid, 7, 34 * GIB, 60)])
    busy = look(reader)[7]
    assert [(use["pid"], use["used_bytes"]) for use in busy["uses"]] == [(process.pid, 34 * GIB)]
    assert busy["memory"]["used_bytes"] // GIB == 34
    assert busy["gpu_percent"] > 40 and busy["power_w"] > 200
    ticks = start_ticks(process.pid)
    process.kill()
    process.wait()
    just_ended = look(reader)[7]
    assert just_ended["uses"] == [] and just_ended["gpu_percent"] == 0
    assert just_ended["memory"]["used_bytes"] > 25 * GIB
    died = gpus.folder / "died" / f"{process.pid}-{ticks}"
    for age_s, least, most in ((1.0, 14, 20), (5.0, 0, 1)):
        at = died.stat().st_mtime - age_s
        os.utime(died, (at, at))
        assert least * GIB <= look(reader)[7]["memory"]["used_bytes"] <= most * GIB
        os.utime(died, (at + age_s, at + age_s))


def test_a_pid_that_is_another_process_by_now_holds_nothing(
    gpus: SimulatedGpus, reader: nvml.Reader, process: subprocess.Popen[bytes]
) -> None:
    (gpus.folder / "held" / "1").write_text(f"{process.pid} {start_ticks(process.pid) - 1} 0 {GIB} 9\nrubbish\n")
    assert look(reader)[0]["uses"] == []


def test_a_gpu_that_is_lost_keeps_its_place_and_the_kernel_says_why(gpus: SimulatedGpus, reader: nvml.Reader) -> None:
    log = xid.KernelLog(str(gpus.devices / "kmsg"))
    Gpus(str(gpus.folder)).lose(5)
    log.read(reader.xids, reader.devices)
    found = look(reader)
    assert [item["state"] for item in found] == ["ok"] * 5 + ["lost"] + ["ok"] * 2
    assert found[5]["xid"]["code"] == 79 and found[5]["xid"]["bad"]


# ------------------------------------------------------------------------------------------- and nowhere else


class Node:
    """Stands for a node that wants nvidia-ml-py's text first."""

    nvml_source: str | None = NodeClient.nvml_source

    def __init__(self) -> None:
        self.given: list[str] = []

    async def request(self, op: str, /, *, timeout_s: float = 30.0, **args: object) -> dict[str, Any]:
        if "nvml" not in args:
            return {"needs_nvml": True}
        self.given.append(str(args["nvml"]))
        return {"at": 1.0, "driver": {"state": "ok"}}


@pytest.mark.asyncio
async def test_a_real_node_gets_nvidias_own_text(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SIMULATED", "INFERENCE_SUPERVISOR_SIMULATED", "INFERENCE_SUPERVISOR_DEV", "NVML_SOURCE"):
        monkeypatch.setenv(name, "1")
    node = Node()
    snapshot = await gpu.look(cast(NodeClient, node))
    await gpu.begin(cast(NodeClient, node))
    assert node.given == [nvml_source.source()] * 2 and not snapshot.driver.simulated
    text = zlib.decompress(base64.b64decode(node.given[0]))
    assert b"NVIDIA" in text and not nvml_library.simulated(nvml_library.load_module(node.given[0]))


@pytest.mark.asyncio
async def test_the_demonstrations_node_gets_the_simulated_one_for_its_own_folder(gpus: SimulatedGpus) -> None:
    node = Node()
    node.nvml_source = gpus.nvml_source()
    await gpu.look(cast(NodeClient, node))
    assert str(gpus.folder).encode() in zlib.decompress(base64.b64decode(node.given[0]))


def test_nothing_but_the_demonstration_says_the_word() -> None:
    """Everybody else only hands it on, and without it there is none."""
    wrong = []
    said = False
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        demo = PACKAGE / "demo" in path.parents
        said = said or (demo and "nvml_source=self.nvml_source" in text)
        calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
        for word in (word for call in calls for word in call.keywords if word.arg == "nvml_source"):
            if not demo and ast.unparse(word.value) not in ("nvml_source", "self._nvml_source"):
                wrong.append(f"{path}:{word.lineno}")
        if "simulated_nvml" in text and not demo:
            wrong.append(str(path))
    assert said and not wrong, wrong
    for taker in (Session, Connection):
        assert (taker.__init__.__kwdefaults__ or {})["nvml_source"] is None


def test_whatever_tells_of_them_says_that_they_are_simulated() -> None:
    driver = Driver(state=DriverState.OK, simulated=True)
    gpus = tuple(Gpu(uuid=f"GPU-{index}", index=index, memory=Memory(total_bytes=2, used_bytes=1)) for index in (0, 1))
    snapshot = Snapshot(at=1.0, driver=driver, gpus=gpus)
    assert "2 SIMULATED GPUs" in gpu_text.head("demo", snapshot, Style(colour=False))
    assert "2 SIMULATED GPUs" in memory_words(gpu_event(snapshot, "demo", 1.0))
