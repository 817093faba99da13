"""What the simulated engine writes: whole lines, progress bars as tqdm draws them, and a flood of log when asked.

All of it goes to standard output, each piece in one write, as a log that several processes share.
"""

from __future__ import annotations

import os
import random
import threading
import time

_EIGHTHS = " ▏▎▍▌▋▊▉"


def write(text: str) -> None:
    write_bytes(text.encode("utf-8"))


def write_bytes(data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(1, view) :]
        except OSError:
            return  # nobody reads: a server does not die of its log


def line(text: str) -> None:
    write(text + "\n")


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes:02d}:{rest:02d}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def _pace(done: int, total: int, elapsed_s: float) -> str:
    if not done:
        return "[00:00<?, ?it/s]"
    each_s = max(elapsed_s, 1e-6) / done
    rate = f"{each_s:5.2f}s/it" if each_s > 1 else f"{1 / each_s:5.2f}it/s"
    return f"[{_clock(elapsed_s)}<{_clock(each_s * (total - done))}, {rate}]"


def shards_bar(done: int, total: int, elapsed_s: float) -> str:
    """The bar of the weight files, as both SGLang and vLLM draw it."""
    percent = 100.0 * done / total
    return (
        f"Loading safetensors checkpoint shards: {percent:3.0f}% Completed | {done}/{total} "
        f"{_pace(done, total, elapsed_s)}"
    )


def graphs_bar(title: str, done: int, total: int, elapsed_s: float) -> str:
    """tqdm's own bar, ten blocks wide."""
    eighths = int(80 * done / total)
    part = _EIGHTHS[eighths % 8] if eighths % 8 else ""
    blocks = ("█" * (eighths // 8) + part).ljust(10)
    return f"{title}: {100.0 * done / total:3.0f}%|{blocks}| {done}/{total} {_pace(done, total, elapsed_s)}"


_FLOOD = (
    "Prefill batch, #new-seq: {a}, #new-token: {b}, #cached-token: {c}, token usage: 0.{a:02d}, #running-req: {a}",
    "Decode batch, #running-req: {a}, #token: {b}, token usage: 0.{a:02d}, gen throughput (token/s): {b}.{a:02d}",
    'INFO:     127.0.0.1:{b} - "POST /v1/completions HTTP/1.1" 200 OK',
    "request {c}: prompt 'Wie heißt die Hauptstadt von Frankreich?' → 'Paris' ({b} tokens)",
    "request {c}: prompt '法国的首都是哪里？' → '巴黎' ({b} tokens) 🙂",
    "request {c}: prompt 'Столица Франции — это' → 'Париж' ({b} tokens), naïve café €{a}",
)


def flood_lines(seed: int, count: int) -> list[bytes]:
    """Plausible log lines, the same ones for the same seed; every second kind holds letters outside ASCII."""
    dice = random.Random(seed)
    stamp = time.strftime("[%Y-%m-%d %H:%M:%S] ")
    return [
        (
            stamp
            + dice.choice(_FLOOD).format(a=dice.randrange(100), b=dice.randrange(1024, 65536), c=dice.randrange(10**6))
            + "\n"
        ).encode("utf-8")
        for _ in range(count)
    ]


class Flood:
    """Writes `rate` bytes a second until `stop`. Every piece ends with a line that tells its number and the monotonic
    time of its writing, so that a reader can measure how far behind it is."""

    def __init__(self, rate: float, seed: int) -> None:
        self._rate = rate
        lines = flood_lines(seed, 4096)
        # A fast flood goes by blocks of lines, or the joining would be slower than the writing.
        step = 64 if rate >= 1e6 else 1
        self._blocks = [b"".join(lines[at : at + step]) for at in range(0, len(lines), step)]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flood", daemon=True)

    def start(self) -> None:
        if self._rate > 0:
            self._thread.start()

    def stop(self) -> None:
        """Ends the flood, so that the last words of a dying engine are the last ones; waits for a write under way."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(1)

    def _run(self) -> None:
        begun, written, number, at = time.monotonic(), 0, 0, 0
        while not self._over.wait(0.02):
            owed = int(self._rate * (time.monotonic() - begun)) - written
            piece: list[bytes] = []
            size = 0
            while size < owed:
                piece.append(self._blocks[at % len(self._blocks)])
                size += len(piece[-1])
                at += 1
            if piece:
                piece.append(b"[flood] seq: %d, monotonic: %.6f\n" % (number, time.monotonic()))
                data = b"".join(piece)
                write_bytes(data)
                written += len(data)
                number += 1
