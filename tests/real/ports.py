"""Loopback ports that nobody listens on."""

from __future__ import annotations

import itertools
import os
import re
import socket

# Below the range that the kernel takes for outgoing connections (32768 and up), and a part for each xdist worker: a
# port that was free when asked for is then still free when a server gets round to binding it.
_PER_WORKER = 1500
_worker = int(re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "")) or 0) % 8
_start = 20000 + _worker * _PER_WORKER
_offsets = itertools.count(os.getpid() * 7)  # not the same ports as the run before: those may be in TIME_WAIT


def free_port(address: str = "127.0.0.1") -> int:
    """A port on which a server can listen now. No port comes twice in one process, within reason."""
    for _ in range(_PER_WORKER):
        port = _start + next(_offsets) % _PER_WORKER
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"no free port on {address} from {_start} to {_start + _PER_WORKER}")
