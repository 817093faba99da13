"""A pid that changes hands between the listing and the signal: the real kernel, the real node program."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.real import parts, pidns
from tests.scale import scaled

CHECKOUT = Path(__file__).resolve().parents[2]


def test_a_bystander_that_got_the_pid_of_a_worker_during_the_stop(tmp_path: Path) -> None:
    parts.require_real("NVML stub", "pid namespaces")
    for number in range(scaled(10)):
        command = [sys.executable, "-m", "tests.supervise.reused_pid", str(tmp_path / str(number))]
        done = subprocess.run(pidns.inside(command), cwd=CHECKOUT, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout.splitlines()[-1])
        pid = told["pid"]
        assert told["alive"] and told["signals"] == [] and told["survivors"] == []
        assert pid in told["reply"]["gone"] and pid not in told["reply"]["sent"]
        # It holds memory of its own under that very pid: named, subtracted, and no obstacle.
        assert told["release"].startswith("proved (") and f"not ours, new since then: pid {pid} " in told["text"], told
