"""How fast a log goes through each part of the operator's side, without SSH; the way by single lines beside it.

    .venv/bin/python scripts/bench/pipeline.py [--megabytes 200] [--big] [--folder DIR]

Fed with frames of 64 KiB of an SGLang-like log. Per part: megabytes a second, and the longest time that one frame kept
everything else waiting; of the process's own time, and of the clock, which has whatever else runs on the machine and
the disk in it (budget: 50 MB/s for all of it together, no piece of work above 8 ms). `--big`: ten million lines, 1 GB,
go into a book, and what the process then holds in memory is told (budget: 200 MB).
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT))

import psutil  # noqa: E402 - the checkout's own, found above

from supervisor.adapters.node import Frame  # noqa: E402
from supervisor.adapters.spool import Spool  # noqa: E402
from supervisor.core import events as ev  # noqa: E402
from supervisor.core.lines import LineSplitter  # noqa: E402
from supervisor.core.progress import BlockReader, LineReader  # noqa: E402
from supervisor.engines import loader  # noqa: E402
from supervisor.supervise.book import Book  # noqa: E402
from supervisor.supervise.follow import Begins, Blocks  # noqa: E402
from supervisor.supervise.hub import Hub  # noqa: E402

FRAME_BYTES = 65_536
DRAIN_EVERY = 26
"""Frames that come between two pictures of a console at 50 MB/s."""


def sglang_like(megabytes: int) -> bytes:
    """Lines as a serving SGLang writes them, 107 bytes each on average; the same at every run."""
    chance, out, size = random.Random(1), [], 0
    while size < min(megabytes, 32) * 1_000_000:
        line = (
            f"[2025-12-07 00:{chance.randrange(60):02}:{chance.randrange(60):02} TP{chance.randrange(8)}] Decode batch."
            f" #running-req: {chance.randrange(200)}, #token: {chance.randrange(99999)}, token usage: 0."
            f"{chance.randrange(99):02}, gen: {chance.randrange(9999)}\n"
        )
        out.append(line.encode())
        size += len(line)
    data = b"".join(out)
    return data * max(1, megabytes // 32)


def frames_of(data: bytes) -> Iterator[Frame]:
    """The log as the node program sends it."""
    for offset in range(0, len(data), FRAME_BYTES):
        piece = data[offset : offset + FRAME_BYTES]
        yield Frame(dev=1, ino=1, offset=offset, size=len(data), data=piece)


def blocks_of(data: bytes) -> Iterator[ev.LogBlock]:
    """The log as a session tells it."""
    blocks = Blocks(Begins(offset=0, line_no=1, run_offset=0, run_line=1))
    for frame in frames_of(data):
        block = blocks.take(0.0, frame)
        assert block is not None
        yield block


def measure(name: str, data: bytes, work: Callable[[], Iterator[object]]) -> None:
    """Print the speed and the longest pause of `work`, which yields after each frame."""
    worst_s = worst_wall_s = 0.0
    began_wall_at = before_wall = time.perf_counter()
    began_at = before = time.thread_time()
    for _ in work():
        now, now_wall = time.thread_time(), time.perf_counter()
        worst_s, worst_wall_s = max(worst_s, now - before), max(worst_wall_s, now_wall - before_wall)
        before, before_wall = now, now_wall
    rate = len(data) / 1e6 / (time.thread_time() - began_at)
    rate_wall = len(data) / 1e6 / (time.perf_counter() - began_wall_at)
    print(f"{name:44} {rate:7.0f} {worst_s * 1000:9.2f}     {rate_wall:7.0f} {worst_wall_s * 1000:9.2f}", flush=True)


def by_line(data: bytes) -> Iterator[object]:
    """What was done before: an event of every line, every line asked by every rule."""
    splitter, reader, hub = LineSplitter(), LineReader(loader.load("sglang")), Hub()
    subscription = hub.subscribe()
    for number, frame in enumerate(frames_of(data)):
        for line in splitter.feed(frame.data):
            hub.publish(ev.Log(at=0.0, text=line.text, line_no=line.line_no, offset=line.offset, living=line.living))
            reader.read(line.text)
        if number % DRAIN_EVERY == 0:
            subscription.take()
        yield


def splitting(data: bytes) -> Iterator[object]:
    """Lines out of bytes, nothing else."""
    splitter = LineSplitter()
    for frame in frames_of(data):
        yield splitter.feed(frame.data)


def rules(engine: str, data: bytes) -> Iterator[object]:
    """The engine's rules over blocks."""
    reader = BlockReader(loader.load(engine))
    for block in blocks_of(data):
        yield reader.read(block)


def hub_alone(data: bytes) -> Iterator[object]:
    """Two readers of blocks, as a console and a wait for an ending have them."""
    hub = Hub()
    readers = [hub.subscribe(lines=False), hub.subscribe(lines=False)]
    for number, block in enumerate(blocks_of(data)):
        hub.publish(block)
        if number % DRAIN_EVERY == 0:
            for reader in readers:
                reader.take()
        yield


def hub_lines(data: bytes) -> Iterator[object]:
    """One reader who wants every line (`--events all`, a record)."""
    hub = Hub()
    reader = hub.subscribe()
    for block in blocks_of(data):
        hub.publish(block)
        yield reader.take()


def book_alone(folder: Path, data: bytes) -> Iterator[object]:
    """Bytes into the book."""
    book = Book(spool=Spool(folder))
    for block in blocks_of(data):
        book.append(block)
        yield
    book.close()


def everything(folder: Path, data: bytes) -> Iterator[object]:
    """As a console does it: rules, hub, and thirty times a second a batch into the book and a screen of rows."""
    blocks, reader = Blocks(Begins(offset=0, line_no=1, run_offset=0, run_line=1)), BlockReader(loader.load("sglang"))
    hub, book = Hub(), Book(spool=Spool(folder))
    subscription = hub.subscribe(lines=False)
    for number, frame in enumerate(frames_of(data)):
        block = blocks.take(0.0, frame)
        assert block is not None
        hub.publish(block)
        reader.read(block)
        if number % DRAIN_EVERY == 0:
            for event in subscription.take():
                assert isinstance(event, ev.LogBlock)
                book.append(event)
            book.rows(book.last_line - 59, 60)
        yield
    book.close()


def big(folder: Path) -> None:
    """Ten million lines in a book: what they hold in memory, and how quickly any of them is shown."""
    process = psutil.Process()
    piece = sglang_like(8)
    before, book = process.memory_info().rss, Book(spool=Spool(folder))
    offset, line_no, lines = 0, 1, piece.count(b"\n")
    began_at, worst_s = time.perf_counter(), 0.0
    while line_no <= 10_000_000:
        for start in range(0, len(piece), FRAME_BYTES):
            data = piece[start : start + FRAME_BYTES]
            count = data.count(b"\n")
            at = time.perf_counter()
            book.append(ev.LogBlock(at=0.0, data=data, offset=offset, line_no=line_no, lines=count))
            worst_s = max(worst_s, time.perf_counter() - at)
            offset, line_no = offset + len(data), line_no + count
    took_s = time.perf_counter() - began_at
    rss, peak = process.memory_info().rss, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"\n{book.last_line:,} lines, {offset / 1e9:.2f} GB: {offset / 1e6 / took_s:.0f} MB/s, ", end="")
    print(f"longest append {worst_s * 1000:.1f} ms")
    print(f"resident {rss / 1e6:.0f} MB (+{(rss - before) / 1e6:.0f}; peak {peak / 1e6:.0f}), {lines} lines apart")
    chance, times = random.Random(2), []
    for _ in range(500):
        at = time.perf_counter()
        book.rows(chance.randrange(1, book.last_line), 60)
        times.append(time.perf_counter() - at)
    print(f"60 rows anywhere: median {sorted(times)[250] * 1000:.2f} ms, worst {max(times) * 1000:.2f} ms")
    at = time.perf_counter()
    found = sum(chunk.data.count(b"TP7] Decode batch. #running-req: 199,") for chunk in book.chunks(1, 1 << 40))
    took_s = time.perf_counter() - at
    print(f"a word in all of it: {found} times, {offset / 1e6 / took_s:.0f} MB/s")
    print(f"resident then {process.memory_info().rss / 1e6:.0f} MB")
    book.close()


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--big", action="store_true")
    parser.add_argument("--folder", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="supervisor-bench-") as name:
        folder = options.folder or Path(name)
        if options.big:
            big(folder)
            return 0
        data = sglang_like(options.megabytes)
        few = data[:20_000_000]
        print(f"{'':44} {'MB/s':>7} {'worst ms':>9}     {'MB/s':>7} {'worst ms':>9}")
        print(f"{'':44} {'of its own time':>17}     {'by the clock':>17}")
        measure("by line: splitter, rules, hub (before)", few, lambda: by_line(few))
        measure("splitter alone", few, lambda: splitting(few))
        for engine in loader.names():
            measure(f"rules of {engine}", data, lambda engine=engine: rules(engine, data))  # type: ignore[misc]
        measure("hub, two readers of blocks", data, lambda: hub_alone(data))
        measure("hub, one reader of lines", few, lambda: hub_lines(few))
        measure("book", data, lambda: book_alone(folder, data))
        measure("frame to row: rules, hub, book, 30 pictures/s", data, lambda: everything(folder, data))
    return 0


if __name__ == "__main__":
    sys.exit(main())
