"""Carries bytes between stdin/stdout and a TCP port, for nodes whose sshd forbids forwarding."""

from __future__ import annotations

import json
import os
import select
import socket
from typing import Any, Dict


def run(args: Dict[str, Any], out: int) -> None:
    """Connect, say how that went in one JSON line, then carry bytes until both sides have ended."""
    try:
        sock = socket.create_connection((args["host"], int(args["port"])), timeout=float(args["timeout_s"]))
    except ConnectionRefusedError as error:
        _say(out, {"error": "refused", "text": str(error)})
        return
    except socket.timeout as error:
        _say(out, {"error": "silent", "text": str(error)})
        return
    except OSError as error:
        _say(out, {"error": "unreachable", "text": str(error)})
        return
    sock.settimeout(None)
    _say(out, {"ok": True})
    sources = [0, sock.fileno()]
    while sock.fileno() in sources:
        ready, _, _ = select.select(sources, [], [])
        if 0 in ready:
            data = os.read(0, 65536)
            if data:
                sock.sendall(data)
            else:
                sources.remove(0)
                return  # our own side is gone: nobody waits for the rest
        if sock.fileno() in ready:
            data = sock.recv(65536)
            if not data:
                return
            view = memoryview(data)
            while view:
                view = view[os.write(out, view) :]


def _say(out: int, document: Dict[str, Any]) -> None:
    os.write(out, (json.dumps(document) + "\n").encode())
