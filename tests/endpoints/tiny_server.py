"""An HTTP server in a process of its own, for the tests of who owns a port. Standard library alone; run as a script.

Its argument is one JSON object: port; comm (the name to go by); uid (whom to become); model (the id to list);
hands_over (once, while it answers, a child takes the port over).
"""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import Any


def listen(port: int) -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    sock.bind(("127.0.0.1", port))
    sock.listen(16)
    return sock


def path_of(connection: socket.socket) -> str:
    head = b""
    while b"\r\n\r\n" not in head:
        data = connection.recv(65536)
        if not data:
            return ""
        head += data
    return head.split()[1].decode()


def answer(connection: socket.socket, path: str, model: str | None) -> None:
    body = b""
    status = "200 OK"
    if path == "/v1/models":
        body = json.dumps({"data": [{"id": model}]}).encode() if model else b""
        status = status if model else "404 None"
    connection.sendall(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)


def hand_over(options: dict[str, Any], sock: socket.socket) -> None:
    """Close the port here, and return when a child listens on it."""
    sock.close()
    reader, writer = os.pipe()
    if os.fork() == 0:
        child = listen(options["port"])
        os.write(writer, b"x")
        serve({**options, "hands_over": False}, child)
    os.read(reader, 1)


def serve(options: dict[str, Any], sock: socket.socket) -> None:
    while True:
        connection, _ = sock.accept()
        path = path_of(connection)
        if options.get("hands_over"):
            hand_over(options, sock)
        answer(connection, path, options.get("model"))
        connection.close()
        if options.get("hands_over"):
            os.wait()  # the child serves from now on


def main() -> None:
    options = json.loads(sys.argv[1])
    if options.get("comm"):
        with open("/proc/self/comm", "w") as comm:
            comm.write(options["comm"])
    if options.get("uid"):
        os.setgroups([])
        os.setuid(options["uid"])
    sock = listen(options["port"])
    print("listening", flush=True)
    serve(options, sock)


if __name__ == "__main__":
    main()
