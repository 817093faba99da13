"""Whole-process time of `--version` and of `--headless --url` on a healthy endpoint, beside curl and the bare imports.

    .venv/bin/python scripts/bench/startup.py [--runs 15]

The budget: `--headless --url` at most 1.4 times `python -c 'import asyncio, httpx'`, in the same run.
"""

from __future__ import annotations

import argparse
import http.server
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

SUPERVISOR = str(Path(sys.executable).parent / "supervisor")


class _Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def seconds(words: list[str]) -> float:
    """One whole process."""
    began = time.perf_counter()
    # Byte code is kept, as on any user's machine: without it, ours alone would be compiled at every start.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
    return time.perf_counter() - began


def main() -> int:
    """Interleave the commands, so that a noisy moment meets all of them; print medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15)
    options = parser.parse_args()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Healthy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/health"
    commands = {
        "python -c 'import asyncio, httpx'": [sys.executable, "-c", "import asyncio, httpx"],
        "supervisor --headless --url": [SUPERVISOR, "--headless", "--url", url],
        "supervisor --version": [SUPERVISOR, "--version"],
        "curl -sf": ["curl", "-sf", url],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for words in commands.values():
        seconds(words)
    for _ in range(options.runs):
        for name, words in commands.items():
            times[name].append(seconds(words))
    server.shutdown()
    base = statistics.median(times["python -c 'import asyncio, httpx'"])
    for name, values in times.items():
        median = statistics.median(values)
        print(f"{name:36} median {median * 1000:6.0f} ms   {median / base:5.2f} ×")
    return 0


if __name__ == "__main__":
    sys.exit(main())
