"""Records the streams that the console's tests play back: `python -m tests.real.make_streams`.

Three real sessions on this machine, with the simulated engine and an NVIDIA driver without GPUs (tests/real/nvml.py)
that shows eight: one that loads and serves, one that fails while its graphs are captured, one that stays at 503 until
its time is over. What differs from day to day and from machine to machine (times, pids, paths, the host's name) is then
put in order, and looks at the GPUs are thinned out, so that the files are small and the tests' pictures stay the same.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil

from supervisor.adapters.clock import SystemClock
from supervisor.adapters.local import LocalLink
from supervisor.core import events as ev
from supervisor.core.event_json import from_line, iso, seconds, to_object
from supervisor.core.events import Phase
from supervisor.profile import load
from supervisor.supervise.record import Recorder, record
from supervisor.supervise.session import Session
from supervisor.wiring import plan_of
from tests.real.nvml import GIB, MIB, StubNvml
from tests.real.ports import free_port
from tests.schema import checked
from tests.story.kit import CHECKOUT, SIMULATED, SUPERVISOR

FOLDER = CHECKOUT / "tests" / "corpora" / "streams"
BEGAN = datetime(2026, 11, 30, 3, 12, tzinfo=UTC)
RUN_ID = "20261130-031200-a3f1"
PROFILE, NODE, PORT = "kimi-k25-eagle3", "gpu1", 30000
MODEL = "moonshot/kimi-k2.5-int4"
FIRST_PID = 48190
GPUS, GPU_BYTES = 8, 143771 * MIB
LOAD_S, WARM_S, SERVES_S = 9.0, 2.5, 9.0
EVERY_S = {"gpu": 5.0, "holders": 7.0, "bar": 2.0, "look": 2.0}
"""Between two samples that stay."""
NEEDED = {
    "parent", "used_bytes", "gpu_percent", "total_bytes", "reserved_bytes", "free_bytes", "why", "pid", "start_ticks",
    "uid", "user", "title", "run_id",
}  # fmt: skip
LEFT_OUT = {
    "bus_id", "memory_clock_mhz", "ecc_uncorrected", "persistence", "mig", "comm",
    "memory_percent",
}  # fmt: skip


class Cards:
    """Eight GPUs that hold what the simulated engine says that its ranks hold, and one small process of somebody's."""

    def __init__(self, stub: StubNvml, folder: Path) -> None:
        self.stub = stub
        self.gpus = [
            stub.gpu(name="NVIDIA H200", total_bytes=GPU_BYTES, base_bytes=4 * MIB, mig=0) for _ in range(GPUS)
        ]
        (stub.folder / "held").mkdir()  # where the engine writes it down, see supervisor/demo/simulated/gpus.py
        devices = [str(stub.devices / name) for name in ("nvidia7", "nvidiactl", "nvidia-uvm")]
        script = folder / "eval.py"
        script.write_text(f"import time\nkept = [open(name, 'rb') for name in {devices}]\ntime.sleep(600)\n")
        self._other = subprocess.Popen([sys.executable, script.name], cwd=folder)
        stub.claim(self.gpus[7], self._other.pid, int(1.2 * GIB))
        stub.write()

    def step(self) -> None:
        """What they show now."""
        wave = int(4 * (time.monotonic() % 2 - 1))
        for held in (self.stub.folder / "held").glob("[0-9]*"):
            for row in held.read_text().splitlines():
                pid, _ticks, number, count, percent = map(int, row.split())
                gpu = self.gpus[number]
                if psutil.pid_exists(pid):
                    self.stub.claim(gpu, pid, count)
                gpu.util = max(0, percent + (wave if percent > 20 else 0))
                gpu.temperature_c = 41 + number + percent // 6
                gpu.power_mw = 118_000 + 1500 * number + 4600 * gpu.util
        self.stub.write()

    def close(self) -> None:
        self._other.kill()
        self._other.wait()


def profile(folder: Path, stub: StubNvml, *flags: str) -> tuple[Path, int]:
    """The profile of one stream."""
    port = free_port()
    command = [sys.executable, str(SIMULATED), "sglang", "--model-path", MODEL, "--tp", str(GPUS), "--port", str(port)]
    command += [
        "--enable-metrics",
        "--sim-health-delay",
        "0.4",
        "--sim-shards",
        "16",
        "--sim-gpus",
        str(stub.folder),
        *flags,
    ]
    lines = [f'name = "{PROFILE}"', 'engine = "sglang"', "[node]", 'host = "local"']
    lines += [f'state_dir = "{folder / "state"}"', f'python = "{sys.executable}"', "[launch]"]
    lines += [f"command = {json.dumps(command)}", f'log = "{folder / "server.log"}"', f'cwd = "{folder}"']
    path = folder / f"{PROFILE}.toml"
    path.write_text("\n".join(lines) + "\n")
    return path, port


# ------------------------------------------------------------------------------------------- recording


async def serves(path: Path, out: Path, cards: Cards) -> None:
    """As a console sees it: on for a while after it serves, and no verdict."""
    clock = SystemClock()
    session = Session(plan_of(load(path), PROFILE), LocalLink, clock=clock, by="ana@desk")
    recorder = Recorder(str(out), at=clock.now(), mask=str, profile=PROFILE, node=NODE)
    recording = asyncio.create_task(record(session.desk, recorder))
    running = asyncio.create_task(session.run())
    left_s = SERVES_S
    while left_s > 0:
        serving = session.desk.phase is Phase.SERVING
        await asyncio.to_thread(cards.step)
        await asyncio.sleep(0.4)
        left_s -= 0.4 if serving else 0
        assert session.desk.phase is not Phase.FAILED
    recording.cancel()
    await asyncio.gather(recording, return_exceptions=True)
    await session.stop()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def waits(path: Path, out: Path, cards: Cards, timeout: str) -> None:
    """As the headless command sees it, to its verdict."""
    words = [*SUPERVISOR, "--headless", str(path), "--record", str(out), "--timeout", timeout]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as wait:
        while wait.poll() is None:
            cards.step()
            time.sleep(0.4)
    subprocess.run([*SUPERVISOR, "stop", str(path)], stdout=subprocess.DEVNULL, check=False)


# ------------------------------------------------------------------------------------------- putting in order


class Order:
    """Makes one stream neutral. What is one thing in the stream is one thing afterwards."""

    def __init__(self, folder: Path, port: int, lines: list[bytes]) -> None:
        self.began = seconds(json.loads(lines[0])["at"])
        self.shift = timedelta(seconds=BEGAN.timestamp() - self.began)
        text = b"\n".join(lines).decode()
        self.run_id = next(iter(re.findall(r'"run_id":"([0-9a-f-]{20})"', text)), RUN_ID)
        found = set(re.findall(r'"pid":(\d{3,})', text)) | set(re.findall(r"\b(?:pid|process|keeper) (\d{3,})\b", text))
        self.pids = {pid: FIRST_PID + 11 * number for number, pid in enumerate(sorted(map(int, found)))}
        self.ticks: dict[int, int] = {}
        python = "/opt/ml/bin/python3"
        self.texts = {
            f"{sys.executable} {SIMULATED} sglang": f"{python} -m sglang.launch_server",
            sys.executable: python,
            str(SIMULATED): "/opt/ml/sglang/launch_server.py",
            str(folder): "/data/runs",
            self.run_id: RUN_ID,
            "local (": f"{NODE} (",
        }
        self.port = port

    def line(self, document: dict[str, Any]) -> dict[str, Any]:
        """One line."""
        found: dict[str, Any] = self._value("", document)
        return found

    def _value(self, key: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._value(name, item) for name, item in value.items()}
        if isinstance(value, list):
            return [self._value(key, item) for item in value]
        if isinstance(value, str):
            return self._time(value) if key in ("at", "started_at", "sampled_at") else self._text(value)
        if isinstance(value, int) and not isinstance(value, bool):
            if key == "pid":
                return self.pids.get(value, value)
            if key == "start_ticks":
                return self.ticks.setdefault(value, 884_200 + 7 * len(self.ticks))
        return value

    def _time(self, text: str) -> str:
        return iso(seconds(text) + self.shift.total_seconds())

    def _text(self, text: str) -> str:
        for old, new in self.texts.items():
            text = text.replace(old, new)
        text = re.sub(rf"{re.escape(str(CHECKOUT))}[^\s,\"]*", "-m sglang.launch_server", text)
        text = re.sub(rf"\b{re.escape(os.uname().nodename)}\b", NODE, text)
        text = re.sub(rf"\b{self.port}\b", str(PORT), text)
        text = re.sub(r"\b\d{3,7}\b", lambda match: str(self.pids.get(int(match[0]), match[0])), text)
        text = re.sub(r"127\.0\.0\.1:(?!30000)\d{4,5}", "127.0.0.1:52044", text)
        return re.sub(r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}", self._clock, text)

    def _clock(self, match: re.Match[str]) -> str:
        """A time in the text, of this machine's own zone."""
        then = datetime.fromisoformat(match[0]).astimezone() + self.shift
        return then.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def thinned(documents: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Without most of the samples; the last one of each kind stays, and so does a bar's last state."""
    last = {document["kind"]: number for number, document in enumerate(documents)}
    told: dict[str, float] = {}
    for number, document in enumerate(documents):
        kind, at = document["kind"], seconds(document["at"])
        name = "bar" if document.get("living") else "look" if "GET /health" in document.get("text", "") else kind
        if name in EVERY_S and number != last[kind] and at - told.get(name, 0.0) < EVERY_S[name]:
            continue
        told[name] = at
        yield document


def renumbered(documents: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The log's lines with numbers and offsets of a file that has these lines alone."""
    numbers: dict[int, int] = {}
    offset = 0
    for document in documents:
        if document["kind"] == "log":
            document["line_no"] = numbers.setdefault(document["line_no"], len(numbers) + 1)
            document["offset"] = offset
            offset += 0 if document.get("living") else len(document["text"].encode()) + 1
        for finding in (document if document["kind"] == "finding" else None, document.get("finding")):
            if finding is not None and finding["line_no"] is not None:
                finding["line_no"] = numbers.get(finding["line_no"], finding["line_no"])
        yield document


def slim(document: dict[str, Any]) -> dict[str, Any]:
    """A line without what it can be read without, as an older version might have written it."""
    if document["kind"] == "log":
        return {name: value for name, value in document.items() if value not in (False, 0) or name == "offset"}
    if document["kind"] not in ("gpu", "holders"):
        return document

    def trim(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                name: trim(item)
                for name, item in value.items()
                if name not in LEFT_OUT and (name in NEEDED or item not in (None, ""))
            }
        return [trim(item) for item in value] if isinstance(value, list) else value

    trimmed: dict[str, Any] = trim(document)
    return trimmed


def put_in_order(raw: Path, out: Path, folder: Path, port: int) -> None:
    """The raw record as a neutral one."""
    lines = raw.read_bytes().splitlines()
    order = Order(folder, port, lines)
    documents = [order.line(json.loads(line)) for line in lines]
    with out.open("w", encoding="utf-8") as file:
        for document in renumbered(thinned(documents)):
            if document["kind"] == "record":
                document |= {"node": NODE, "profile": PROFILE, "title": PROFILE}
            elif "host" in document:
                document["host"] = NODE
            line = json.dumps(slim(document), ensure_ascii=False, separators=(",", ":"))
            checked(line)
            if document["kind"] != "record":
                event = from_line(line.encode())
                assert isinstance(event, ev.Event) and slim(to_object(event)).keys() == slim(document).keys()
            file.write(line + "\n")


def main() -> None:
    """Make all of them anew."""
    FOLDER.mkdir(exist_ok=True)
    streams = {
        "serves": ("", ("--sim-load", str(LOAD_S), "--sim-warm", str(WARM_S), "--sim-traffic", "12")),
        "fails": ("60s", ("--sim-load", "5", "--sim-fault", "die-at-graphs")),
        "slow-503": ("13s", ("--sim-load", "4", "--sim-warm", "600", "--sim-health-delay", "0.01")),
    }
    for name, (timeout, flags) in streams.items():
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            with StubNvml(folder / "nvml") as stub:
                os.environ.update(stub.environment())
                cards = Cards(stub, folder)
                path, port = profile(folder, stub, *flags)
                raw = folder / "raw.jsonl"
                if timeout:
                    waits(path, raw, cards, timeout)
                else:
                    asyncio.run(serves(path, raw, cards))
                cards.close()
            put_in_order(raw, FOLDER / f"{name}.jsonl", folder, port)
        print(f"{name}: {(FOLDER / f'{name}.jsonl').stat().st_size} bytes")


if __name__ == "__main__":
    main()
