"""Carries bytes between stdin/stdout and a TCP port, for nodes whose sshd forbids forwarding.

Ends when the server has said all, or when nobody reads us any more. Says nothing of its own after the first line.
"""

from __future__ import annotations

import json
import os
import select
import socket
from typing import Any, Dict

CHUNK_BYTES = 65536


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
    _say(out, {"ok": True})
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setblocking(False)
    os.set_blocking(out, False)
    with sock:
        try:
            _carry(sock, out)
        except ConnectionError:
            pass  # the server broke off, or nobody reads us: our end is what tells it


def _carry(sock: socket.socket, out: int) -> None:
    """Both ways at once: a side that does not read must not keep the other from being read."""
    up = down = b""  # towards the server, towards the operator
    up_open = down_open = True
    poller = select.poll()
    while down_open or down:
        wanted = {
            0: select.POLLIN if up_open and not up else 0,
            sock.fileno(): (select.POLLIN if down_open and not down else 0) | (select.POLLOUT if up else 0),
            out: select.POLLOUT if down else 0,
        }
        for descriptor, events in wanted.items():
            # What has ended would be told for ever, so it is asked about only while it is wanted. `out` always: a
            # reader that is gone is told without being asked, and it is how we learn of it while the server is silent.
            if events or descriptor == out:
                poller.register(descriptor, events)
        ready = dict(poller.poll())
        for descriptor in wanted:
            try:
                poller.unregister(descriptor)
            except KeyError:
                pass
        if ready.get(out, 0) & (select.POLLERR | select.POLLHUP):
            return
        if 0 in ready:
            up = os.read(0, CHUNK_BYTES)
            up_open = bool(up)
            if not up_open:
                sock.shutdown(socket.SHUT_WR)
        if sock.fileno() in ready and not down and down_open:
            try:
                down = sock.recv(CHUNK_BYTES)
                down_open = bool(down)
            except BlockingIOError:
                pass
        if up:
            try:
                up = up[sock.send(up) :]
            except BlockingIOError:
                pass
        if down:
            try:
                down = down[os.write(out, down) :]
            except BlockingIOError:
                pass


def _say(out: int, document: Dict[str, Any]) -> None:
    os.write(out, (json.dumps(document) + "\n").encode())
