"""One TCP connection: every address of a name, no connection to ourselves, and an end that can be asked for twice."""

from __future__ import annotations

import asyncio
import socket

import pytest

from supervisor.adapters import sockets
from supervisor.errors import DialRefusedError
from tests.endpoints.servers import accepts_only, hangs, serving
from tests.real.ports import free_port


@pytest.mark.asyncio
async def test_a_name_whose_addresses_all_refuse_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a broken connection: that is what a launch is told until its server binds."""
    port = free_port()
    both = [
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", port, 0, 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)),
    ]
    # Only the name table is ours: which addresses `localhost` has differs between machines. The connections are real.
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both)
    with pytest.raises(DialRefusedError, match=f"nothing listens on two-addresses port {port}"):
        await sockets.dial("two-addresses", port, 1.0)


@pytest.mark.asyncio
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_the_second_address_of_a_name_is_tried(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(accepts_only, host=host) as server:
        both = [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", server.port, 0, 0)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", server.port)),
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both)
        stream = await sockets.dial("two-addresses", server.port, 1.0)
        await stream.close()


def test_a_socket_that_the_kernel_connected_to_itself_is_known() -> None:
    with socket.socket() as ours:
        ours.bind(("127.0.0.1", 0))
        ours.connect(ours.getsockname())  # this is legal, and what happens by chance at 10 looks a second
        assert sockets.is_to_itself(ours)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as other:
        assert not sockets.is_to_itself(other)


@pytest.mark.asyncio
async def test_a_connection_to_itself_is_a_refusal_and_frees_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """The socket is bound to the port that it dials, as the kernel would do it."""
    port = free_port()

    class Unlucky(socket.socket):
        def setblocking(self, flag: bool) -> None:
            self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.bind(("127.0.0.1", port))
            super().setblocking(flag)

    monkeypatch.setattr(sockets.socket, "socket", Unlucky)  # type: ignore[attr-defined]
    with pytest.raises(DialRefusedError):
        await sockets.dial("127.0.0.1", port, 1.0)
    monkeypatch.undo()
    with socket.socket() as server:
        server.bind(("127.0.0.1", port))  # without SO_REUSEADDR: nothing of the connection may be left
        server.listen()


@pytest.mark.asyncio
async def test_a_close_that_was_cancelled_does_not_cancel_the_next_one() -> None:
    """Else a deadline that falls into a close ends the whole command by a CancelledError that nobody sent."""
    async with serving(hangs) as server:
        stream = await sockets.dial("127.0.0.1", server.port, 1.0)
        closing = asyncio.create_task(stream.close())
        await asyncio.sleep(0)  # it now waits for the transport
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        await stream.close()
