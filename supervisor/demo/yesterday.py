"""What yesterday left on the demonstration's node: the record of a run that has ended, and one process of it that has
not.

The process is a real one, small and ours: it bears the title of an engine's worker and the run's id, has a GPU's device
files open, and holds memory of that simulated GPU until it ends. Only its record is of yesterday.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

from supervisor import resources
from supervisor.demo.gpus import SimulatedGpus
from supervisor.node import proc, records
from supervisor.supervise.begin import new_run_id

KEY = "nightly"
GPU = 7
GIB = 33.9
TITLE = f"sglang::scheduler_TP{GPU}"
AGO_S = 22 * 3600.0
START_WAIT_S = 10.0
_LONG_GONE = {"pid": 4_000_000, "start_ticks": 1}


class LeftOver:
    """The process, and its record."""

    def __init__(self, gpus: SimulatedGpus, state_dir: Path, lock: Path) -> None:
        self._gpus = gpus
        self._state_dir = state_dir
        self._lock = lock
        self.run_id = new_run_id(time.time() - AGO_S - 4 * 3600.0)
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """Of the process, once it was started."""
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Write the record and have the process; returns when it holds its memory."""
        self._write()
        # Its title takes the place of these words, and is not longer than they are.
        words = [sys.executable, "-I", str(resources.simulated_engine()), "left-over", TITLE]
        words += ["--sim-gpus", str(self._gpus.folder), "--gpu", str(GPU), "--gib", str(GIB)]
        self._process = await asyncio.create_subprocess_exec(
            *words,
            "--sim-while",
            str(self._lock),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={"PATH": os.environ.get("PATH", os.defpath), proc.MARKER: self.run_id},
            start_new_session=True,
        )
        assert self._process.stdout is not None
        async with asyncio.timeout(START_WAIT_S):
            await self._process.stdout.read()  # it closes that when it holds its memory

    def _write(self) -> None:
        base = records.base_dir(str(self._state_dir))
        folder = records.run_dir(base, KEY, self.run_id)
        records.make_private(folder)
        ended_at = time.time() - AGO_S
        record = {
            "protocol": records.PROTOCOL,
            "run_id": self.run_id,
            "key": KEY,
            "fingerprint": "",
            "argv": ["python3", "-m", "sglang.launch_server", "--model-path", "simulated/70b", "--tp", "8"],
            "cwd": "/",
            "env": {},
            "log": None,
            "root": _LONG_GONE,
            "keeper": _LONG_GONE,
            "boot_id": proc.boot_id(),
            "uid": os.getuid(),
            "started_at": ended_at - 4 * 3600.0,
            "by": "demo",
            "detaches": False,
            "engine": "sglang",
            "port": 30000,
        }
        ending: dict[str, Any] = {"code": None, "signal": "SIGKILL", "root_code": None, "at": ended_at, "left": []}
        records.write(os.path.join(folder, "run.json"), record)
        records.write(os.path.join(folder, "exit.json"), {**ending, "stopped_by": None, "log_size": None})

    async def close(self) -> None:
        """End it, if nobody has."""
        if self._process is None:
            return
        if self._process.returncode is None:
            self._process.terminate()
        await self._process.wait()
