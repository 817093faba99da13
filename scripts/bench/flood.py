"""Health answers while the log floods a slow link: a 1 MB/s relay stands between us and a real sshd.

    .venv/bin/python scripts/bench/flood.py [--seconds 20] [--rate 1000000]

The log comes at 5 MB/s, five times what the link carries; the log's own channel has a small window, so that a health
answer waits behind at most that. Printed: milliseconds of the health answers as the session saw them (budget: 200).
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT))

from supervisor.adapters.clock import SystemClock  # noqa: E402 - the checkout's own, found above
from supervisor.adapters.ssh import SshLink  # noqa: E402
from supervisor.core import events as ev  # noqa: E402
from supervisor.engines import loader  # noqa: E402
from supervisor.supervise.plan import Plan  # noqa: E402
from supervisor.supervise.session import Session  # noqa: E402
from tests.real.ports import free_port  # noqa: E402
from tests.real.sshd import Sshd  # noqa: E402
from tests.story import kit  # noqa: E402


class SlowRelay:
    """Carries bytes to a port, at most `rate` bytes a second from the server to the client."""

    def __init__(self, target_port: int, rate: float) -> None:
        self._target_port, self._rate = target_port, rate
        self._free_at = 0.0

    async def start(self) -> int:
        """Listen; returns the port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._target_port, limit=4096)
        await asyncio.gather(self._copy(reader, back, slow=False), self._copy(there, writer, slow=True))

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, slow: bool) -> None:
        loop = asyncio.get_running_loop()
        try:
            while data := await reader.read(4096):
                if slow:
                    self._free_at = max(self._free_at, loop.time()) + len(data) / self._rate
                    await asyncio.sleep(self._free_at - loop.time())
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        writer.close()


async def measure(folder: Path, sshd: Sshd, options: argparse.Namespace) -> list[float]:
    """Milliseconds of every HTTP answer seen in the time."""
    port = await SlowRelay(sshd.port, options.rate).start()
    known = folder / "known_hosts"
    known.write_text(sshd.known_hosts.read_text().replace(f":{sshd.port}", f":{port}"))
    config = folder / "config"
    config.write_text(f"Host *\n  IdentityFile {sshd.client_key}\n  IdentitiesOnly yes\n")
    engine_port = free_port()
    flags = ["--sim-load", "0.5", "--sim-fault", "503-for-ever", "--sim-log-rate", "5000000"]
    argv = kit.simulated("sglang", engine_port, *flags)
    plan = Plan(
        key=f"bench{engine_port}",
        name="bench",
        engine=loader.load("sglang"),
        words=tuple([["lit", word]] for word in argv),
        env={},
        cwd=[["lit", str(folder)]],
        state_dir=str(folder / "state"),
        python=sys.executable,
    )
    target = f"ssh://{sshd.user}@127.0.0.1:{port}"
    session = Session(
        plan,
        lambda: SshLink(target, config_files=[config], known_hosts=known, keepalive_s=15),
        clock=SystemClock(),
        by="bench",
    )
    times: list[float] = []
    lines = 0
    task = asyncio.create_task(session.run())
    try:
        async with asyncio.timeout(options.seconds):
            async for batch in session.desk.hub.subscribe().batches():
                lines += sum(isinstance(event, ev.Log) for event in batch)
                times += [event.ms for event in batch if isinstance(event, ev.Health) and event.status is not None]
    except TimeoutError:
        pass
    await session.stop()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    print(f"{lines} log lines meanwhile")
    return times


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rate", type=float, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="supervisor-bench-") as name, Sshd(Path(name) / "sshd") as sshd:
        times = asyncio.run(measure(Path(name), sshd, options))
    if not times:
        print("no answer was seen")
        return 1
    print(
        f"health behind a flood: {len(times)} answers, "
        f"median {statistics.median(times):.0f} ms, worst {max(times):.0f} ms"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
