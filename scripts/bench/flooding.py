"""The parts of `pane.py`: a server whose log floods, a terminal that is read byte by byte, and the viewers beside ours.

Each 30th line of the flood tells the moment at which it was written (CLOCK_MONOTONIC, the same for all processes of
this machine), so that a screen says by itself how far it is behind the file.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

MARK = re.compile(r"MARK (\d{9}\.\d{6})")

FLOOD = """
import os, sys, time
rate, amount, out, go = float(sys.argv[1]) * 1e6, int(float(sys.argv[2]) * 1e6), sys.argv[3], sys.argv[4]
handle = 1 if out == "-" else os.open(out, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
line = b"[2026-11-30 10:00:00 TP3] Decode batch. #running-req: 12, #token: 48211, token usage: 0.43, #queue-req: 0\\n"
mark = b"[2026-11-30 10:00:00 TP0] MARK @@@@@@@@@@@@@@@@ of the flood, as it was written by the server itself\\n"
template = (line * 29 + mark) * 80
os.write(handle, line * 200)
while not os.path.exists(go):
    time.sleep(0.01)
began, written = time.monotonic(), 0
while written < amount:
    data = template.replace(b"@" * 16, b"%016.6f" % time.monotonic())
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view):]
    written += len(data)
    if rate:
        time.sleep(max(0.0, began + written / rate - time.monotonic()))
os.write(handle, b"END OF THE FLOOD %16.6f\\n" % time.monotonic())
time.sleep(3600)
"""
LINE_BYTES = 104
"""Of one line of the flood, on the average."""

STOCK_LOG = """
import asyncio, sys
from textual.app import App
from textual.widgets import Input, Log
class Stock(App):
    ENABLE_COMMAND_PALETTE = False
    def compose(self):
        yield Log()
        yield Input()
    def on_mount(self):
        self.query_one(Input).focus()
        self.run_worker(self.follow())
    async def follow(self):
        log = self.query_one(Log)
        with open(sys.argv[1], "rb") as file:
            while True:
                data = file.read(65536)
                if data:
                    log.write(data.decode("utf-8", "replace"))
                await asyncio.sleep(0 if data else 0.02)
Stock().run()
"""


class Pty:
    """A program on a terminal of its own; what it writes is kept with the moment at which it came."""

    def __init__(
        self, words: Sequence[str], *, width: int = 120, height: int = 40, environment: Mapping[str, str] | None = None
    ) -> None:
        self.began_at = time.monotonic()
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        env = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "COLORTERM": "truecolor"}
        self.process = subprocess.Popen(
            words,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**env, **(environment or {})},
            start_new_session=True,
        )
        os.close(slave)
        self._master = master
        self._pieces: list[tuple[float, bytes]] = []
        self._came = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 65536)
            except OSError:
                return
            if not data:
                return
            with self._came:
                self._pieces.append((time.monotonic(), data))
                self._came.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        os.close(self._master)

    def press(self, keys: bytes) -> float:
        """Write keys; the moment just before."""
        with self._came:
            self._pieces.clear()
        now = time.monotonic()
        os.write(self._master, keys)
        return now

    def until(self, wanted: bytes, timeout_s: float = 10.0) -> float | None:
        """The moment at which `wanted` had come since the last key, None when it did not."""
        deadline = time.monotonic() + timeout_s
        with self._came:
            while True:
                joined = b"".join(data for _at, data in self._pieces)
                if (place := joined.find(wanted)) >= 0:
                    for at, data in self._pieces:
                        place -= len(data)
                        if place < 0:
                            return at
                if (left_s := deadline - time.monotonic()) <= 0:
                    return None
                self._came.wait(left_s)


def latencies(terminal: Pty, presses: Sequence[tuple[bytes, bytes]], rounds: int, pause_s: float) -> list[float]:
    """Milliseconds from each key to what it must bring onto the screen. One that never comes counts as 10 s."""
    out: list[float] = []
    for number in range(rounds):
        keys, wanted = presses[number % len(presses)]
        pressed_at = terminal.press(keys)
        shown_at = terminal.until(wanted)
        out.append(10_000.0 if shown_at is None else (shown_at - pressed_at) * 1000)
        time.sleep(pause_s)
    return out


def ssh_cat_mb_s(ssh_words: Sequence[str], file: Path) -> float:
    """MB/s of `ssh HOST cat FILE > /dev/null`."""
    began = time.monotonic()
    subprocess.run([*ssh_words, f"cat {file}"], stdout=subprocess.DEVNULL, check=True)
    return file.stat().st_size / 1e6 / (time.monotonic() - began)
