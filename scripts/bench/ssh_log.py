"""A log through a real sshd into the book, as fast as it goes, beside `ssh HOST cat FILE`.

    .venv/bin/python scripts/bench/ssh_log.py [--megabytes 400] [--window 65536] [--rtt-ms 0] [--ssh-only]

The file lies in the page cache; all of it goes through the node program's tail, a channel of the log's window, the
engine's rules, the hub, and 30 times a second into a book. Beside it a clock ticks each millisecond: how late it is
tells how long a key would have waited. `--rtt-ms` puts a relay in between that delays each way by half of it.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import subprocess
import sys
import tempfile
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT))

from scripts.bench.pipeline import sglang_like  # noqa: E402 - the checkout's own, found above
from supervisor.adapters.clock import SystemClock  # noqa: E402
from supervisor.adapters.node import open_tail  # noqa: E402
from supervisor.adapters.spool import Spool  # noqa: E402
from supervisor.adapters.ssh import SshLink  # noqa: E402
from supervisor.core import events as ev  # noqa: E402
from supervisor.core.progress import BlockReader  # noqa: E402
from supervisor.engines import loader  # noqa: E402
from supervisor.supervise import follow  # noqa: E402
from supervisor.supervise.book import Book  # noqa: E402
from supervisor.supervise.connection import Connection  # noqa: E402
from supervisor.supervise.follow import Begins, Blocks, Position, frames  # noqa: E402
from supervisor.supervise.hub import Hub  # noqa: E402
from tests.real.sshd import Sshd  # noqa: E402


class Delay:
    """A relay to a port that holds every byte back for a while, in both ways."""

    def __init__(self, target_port: int, delay_s: float) -> None:
        self._target_port, self._delay_s = target_port, delay_s

    async def start(self) -> int:
        """Listen; returns the port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 22)
        return int(self._server.sockets[0].getsockname()[1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._target_port, limit=1 << 22)
        with suppress(asyncio.CancelledError):  # at the end of the bench
            await asyncio.gather(self._copy(reader, back), self._copy(there, writer))

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        held: deque[tuple[float, bytes]] = deque()
        came = asyncio.Event()

        async def send() -> None:
            while True:
                while not held:
                    came.clear()
                    await came.wait()
                at, data = held.popleft()
                await asyncio.sleep(max(0.0, at - loop.time()))
                writer.write(data)
                if not data:
                    writer.close()
                    return

        task = asyncio.create_task(send())
        try:
            while True:
                data = await reader.read(1 << 18)
                held.append((loop.time() + self._delay_s, data))
                came.set()
                if not data:
                    break
        except OSError:
            pass
        await task


async def into_the_book(folder: Path, sshd: Sshd, path: Path, port: int, window: int | None) -> None:
    """Measure ours, and print it."""
    known, config = folder / "known_hosts", folder / "config"
    config.write_text(f"Host *\n  IdentityFile {sshd.client_key}\n  IdentitiesOnly yes\n")
    target = f"ssh://{sshd.user}@127.0.0.1:{port}"
    connection = Connection(
        lambda: SshLink(target, config_files=[config], known_hosts=known),
        clock=SystemClock(),
        on_link=lambda _state, _why: None,
        python=sys.executable,
    )
    if window:
        setattr(follow, "open_tail", functools.partial(open_tail, window_bytes=window))  # noqa: B010 - no part of it
    await connection.open()
    size, position = path.stat().st_size, Position(path=str(path), offset=0)
    blocks, reader = Blocks(Begins(offset=0, line_no=1, run_offset=0, run_line=1)), BlockReader(loader.load("sglang"))
    hub, book = Hub(), Book(spool=Spool(folder))
    subscription = hub.subscribe(lines=False)
    late: list[float] = []

    async def tick() -> None:
        while True:
            at = time.perf_counter()
            await asyncio.sleep(0.001)
            late.append(time.perf_counter() - at - 0.001)

    async def draw() -> None:
        async for batch in subscription.batches():
            for event in batch:
                assert isinstance(event, ev.LogBlock)
                book.append(event)
            book.rows(book.last_line - 59, 60)
            await asyncio.sleep(1 / 30)

    tasks = [asyncio.create_task(tick()), asyncio.create_task(draw())]
    began_at, cpu = time.perf_counter(), time.process_time()
    first_at = 0.0
    counted = 0
    async for frame in frames(connection, position):
        block = blocks.take(0.0, frame)
        if block is not None:
            first_at = first_at or time.perf_counter()
            counted += 1
            hub.publish(block)
            reader.read(block)
            await asyncio.sleep(0)  # as a session does
        if position.offset >= size:
            break
    took_s = time.perf_counter() - first_at
    cpu_share = (time.process_time() - cpu) / (time.perf_counter() - began_at)
    await asyncio.sleep(0.1)
    assert book.index.end == size, f"{book.index.end} of {size}"
    late.sort()
    print(
        f"into the book:        {size / 1e6 / took_s:6.0f} MB/s  {cpu_share:4.0%} of a core  frames of"
        f" {size / counted / 1024:.0f} KiB  a key waits {late[len(late) // 2] * 1000:.1f} ms,"
        f" of a hundred one {late[len(late) * 99 // 100] * 1000:.1f}, worst {late[-1] * 1000:.1f}"
    )
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await connection.close()
    book.close()


def ssh_cat(sshd: Sshd, path: Path, config: Path) -> None:
    """Measure OpenSSH's own client, and print it."""
    command = ["ssh", "-F", str(config), "node", f"cat {path}"]
    began_at = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    size, first_at = 0, 0.0
    while data := process.stdout.read1(1 << 20):  # type: ignore[attr-defined]
        first_at = first_at or time.perf_counter()
        size += len(data)
    took_s = time.perf_counter() - (first_at or began_at)
    process.wait()
    print(f"ssh node cat FILE:    {size / 1e6 / took_s:6.0f} MB/s")


async def measure(folder: Path, sshd: Sshd, path: Path, options: argparse.Namespace) -> None:
    """Both, through the relay where one is wanted."""
    port = sshd.port
    if options.rtt_ms:
        port = await Delay(sshd.port, options.rtt_ms / 2000).start()
    known, config = folder / "known_hosts", folder / "ssh_config"
    known.write_text(sshd.known_hosts.read_text().replace(f":{sshd.port}", f":{port}"))
    text = sshd.ssh_config.read_text().replace(f"Port {sshd.port}", f"Port {port}")
    config.write_text(text.replace(str(sshd.known_hosts), str(known)))
    await asyncio.to_thread(ssh_cat, sshd, path, config)
    if not options.ssh_only:
        await into_the_book(folder, sshd, path, port, options.window)


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--window", type=int, default=None)
    parser.add_argument("--rtt-ms", type=float, default=0.0)
    parser.add_argument("--ssh-only", action="store_true")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="supervisor-bench-") as name, Sshd(Path(name) / "sshd") as sshd:
        path = Path(name) / "log"
        path.write_bytes(sglang_like(options.megabytes))
        for _ in range(options.runs):
            asyncio.run(measure(Path(name), sshd, path, options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
