"""A server whose rank dies while its front end stays: 503 for ever, and the launcher waits on a dead child.

    python lingering.py PORT STAMP [FILE]

Prints its first lines, answers 503, then the lines of FILE, at whose last one STAMP gets the time (`time.monotonic()`).
Then its rank, a child, ends with status 1, and nothing happens any more. Only a signal ends it. No module but the
standard library's: it shares nothing with the product.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

TEXT = b"LLM is unavailable. Please check the server logs for more details."


class Handler(BaseHTTPRequestHandler):
    """503, whatever is asked."""

    def do_GET(self) -> None:
        self.send_response(503)
        self.send_header("Content-Length", str(len(TEXT)))
        self.end_headers()
        self.wfile.write(TEXT)

    def log_message(self, format: str, *args: object) -> None:
        """Its access log is not what a test is about."""


def rank() -> tuple[int, int]:
    """A child that ends with status 1 when its pipe is closed: its pid, and the pipe's end."""
    theirs, ours = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ours)
        os.read(theirs, 1)
        os._exit(1)
    os.close(theirs)
    return pid, ours


def main(port: int, stamp: Path, lines: list[str]) -> None:
    """Until a signal."""
    pid, pipe = rank()
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print("[TRT-LLM] [I] Starting MpiSession with 8 workers", flush=True)
    time.sleep(1.5)  # long enough to be seen at 503, and for its child to be known
    for line in lines:
        print(line, flush=True)
    half = stamp.with_suffix(".half")
    half.write_text(repr(time.monotonic()))
    half.rename(stamp)
    os.close(pipe)
    os.waitpid(pid, 0)
    while True:
        time.sleep(600)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]).read_text().splitlines() if sys.argv[3:] else [])
