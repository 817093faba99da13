"""A stop during which a worker dies and its pid is given to a bystander: `python -m tests.supervise.reused_pid FOLDER`.

Runs in a pid namespace of its own (tests/real/pidns.py), where the next pid can be chosen. Prints what came of it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from supervisor.adapters import gpu
from supervisor.adapters.clock import SystemClock
from supervisor.adapters.local import LocalLink
from supervisor.adapters.node import NodeClient
from supervisor.node import proc
from supervisor.supervise.stop import stop_run
from tests.node.conftest import Node, until
from tests.real.nvml import StubNvml
from tests.real.pidns import NEXT_PID
from tests.supervise.trees import Grove

NAME = "daemon"


class Swapping(NodeClient):
    """Right before the first KILL goes out, the worker is gone, and somebody else has its pid."""

    grove: Grove
    root_pid = 0
    bystander: subprocess.Popen[bytes] | None = None
    reply: dict[str, Any]

    async def request(self, op: str, /, *, timeout_s: float = 30.0, **args: Any) -> dict[str, Any]:
        if op == "signal" and args["signal"] == "KILL" and self.bystander is None:
            (worker,) = [item["pid"] for item in args["targets"] if item["pid"] != self.root_pid]
            self.bystander = await self._swap(worker)
            self.reply = await super().request(op, timeout_s=timeout_s, **args)
            return self.reply
        return await super().request(op, timeout_s=timeout_s, **args)

    async def _swap(self, pid: int) -> subprocess.Popen[bytes]:
        """Kill a process, and start one of the very same command line under its pid."""
        (claim,) = self.grove.stub.claims.glob(f"{NAME}.{pid}.*")
        os.kill(pid, signal.SIGKILL)
        await until(lambda: proc.stat(pid) is None)
        claim.unlink()
        await gpu.look(self)  # the stub has seen that the worker's memory is gone before the next one's comes
        env = {**os.environ, "NASTY_BYSTANDER": str(self.grove.folder / "signals")}
        for _ in range(50):
            NEXT_PID.write_text(str(pid - 1))
            bystander = subprocess.Popen(self.grove.words(NAME, NAME, 0), env=env, start_new_session=True)
            if bystander.pid == pid:
                await until(lambda: self.grove.members(f"bystander-{NAME}"))
                return bystander
            bystander.kill()
            bystander.wait()
        raise AssertionError(f"pid {pid} was not to be had")


async def main(folder: Path) -> None:
    with StubNvml(folder / "nvml", gpus=1) as stub:
        os.environ.update(stub.environment())
        link = LocalLink()
        await link.connect()
        client = await Swapping.start(
            link, clock=SystemClock(), python=sys.executable, state_dir=str(folder / "state")
        )  # fmt: skip
        assert isinstance(client, Swapping)
        grove = Grove(Node(link, client, folder / "state"), stub, folder)
        tree = await grove.plant(NAME, NAME, 0, beside=False)
        client.grove, client.root_pid = grove, tree.root.pid
        stopped = await stop_run(
            client, clock=SystemClock(), key=tree.key, run_id=tree.run_id, root=tree.root, by="test", grace_s=0.3,
            tell=lambda _text: None, release_wait_s=10,
        )  # fmt: skip
        bystander = client.bystander
        assert bystander is not None
        signals = folder / "signals"
        told = {
            "pid": bystander.pid,
            "alive": bystander.poll() is None,
            "signals": signals.read_text().split() if signals.exists() else [],
            "reply": client.reply,
            "survivors": [item.pid for item in grove.alive(NAME)],
            "release": stopped.release,
            "text": stopped.text,
        }
        bystander.kill()
        bystander.wait()
        await client.close()
        await link.close()
        print(json.dumps(told))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
