"""A serving engine's metrics, asked of real servers at the pace of a clock that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from supervisor.adapters import sockets
from supervisor.adapters.http import Http
from supervisor.core import events as ev
from supervisor.core import url as urls
from supervisor.core.command import Secret
from supervisor.core.engine import MetricsRules
from supervisor.core.events import Metrics, Owner, Verdict
from supervisor.supervise.desk import Desk
from supervisor.supervise.metrics import BUSY_EVERY_S, IDLE_EVERY_S, QUIET_AFTER_S, RARELY_S, MetricsWatch
from supervisor.testing import ManualClock
from tests.endpoints.servers import MEBIBYTE, Behaviour, Peer, Server, body_of, closes, reply, says, serving

RULES = MetricsRules(
    path="/metrics",
    flag="--enable-metrics",
    running=("run",),
    queued=("wait",),
    generated=("rate(made_total)",),
    cache=("cache",),
)


def page(text: str) -> bytes:
    return reply(200, "Content-Type: text/plain; version=0.0.4", body=text.encode())


IDLE = page("run 0\nwait 0\nmade_total 5\n")


async def until(seen: Callable[[], bool]) -> None:
    """Until the real server has seen what the test waits for."""
    for _ in range(2000):
        if seen():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it was not seen within 10 s")


class Place:
    """A server, a desk whose run serves, and the watch between them."""

    def __init__(self, server: Server, *, argv: tuple[str, ...] = (), key: str | None = None) -> None:
        self.server = server
        self.clock = ManualClock()
        self.desk = Desk(clock=self.clock, verify=True, on_phase=lambda _change: self.watch.phase_changed())
        url = urls.parse(f"http://127.0.0.1:{server.port}/health")
        secret = Secret(key) if key else None
        self.watch = MetricsWatch(RULES, url, self.desk, argv=argv, api_key=secret)
        self._subscription = self.desk.hub.subscribe()
        self._told: asyncio.Queue[Metrics] = asyncio.Queue()
        self.address = f"127.0.0.1:{server.port}"

    async def drain(self) -> None:
        async for batch in self._subscription.batches():
            for event in batch:
                if isinstance(event, Metrics):
                    self._told.put_nowait(event)

    async def told(self) -> Metrics:
        async with asyncio.timeout(10):
            return await self._told.get()

    @property
    def silent(self) -> bool:
        return self._told.empty()

    async def asked(self, times: int) -> None:
        """Until the server has been asked so often, and its answers were read."""
        await until(lambda: self.server.connections >= times and self.clock.sleepers > 0)

    def answer(self, verdict: Verdict = Verdict.READY, owner: Owner = Owner.OURS) -> None:
        answer = ev.Answer(verdict=verdict, why="", status=200, bytes=0, address=self.address, owner=owner)
        self.desk.note(ev.Answered(at=self.clock.now(), answer=answer))
        self.watch.answered(answer)

    def serve(self) -> None:
        now = self.clock.now()
        self.desk.note(ev.RunBegan(at=now, run_id="r", why="launch"))
        self.desk.note(ev.ProcessSeen(at=now, root=ev.Process(pid=1, start_ticks=1)))
        self.answer()
        self.desk.note(ev.Verified(at=now, text="generated 'Paris'"))


@asynccontextmanager
async def watched(behave: Behaviour, *, argv: tuple[str, ...] = (), key: str | None = None) -> AsyncIterator[Place]:
    """The watch at work on a real server."""
    async with serving(behave) as server:
        place = Place(server, argv=argv, key=key)
        http = Http(sockets.dial)
        tasks = [asyncio.create_task(place.drain()), asyncio.create_task(place.watch.watch(http))]
        try:
            yield place
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            await http.close()
            assert all(isinstance(one, asyncio.CancelledError) for one in ended), ended


@pytest.mark.asyncio
async def test_two_looks_make_a_rate_and_nothing_is_asked_before_it_is_healthy() -> None:
    first, second = (page(f"run {n}\nwait 1\nmade_total {made}\ncache 0.5\n") for n, made in ((3, 100), (4, 190)))
    async with watched(says(first, second)) as place:
        await place.clock.advance(100)
        assert place.server.connections == 0
        place.serve()
        one = await place.told()
        assert (one.running, one.queued, one.generated_tokens_s, one.cache_share) == (3, 1, None, 0.5)
        await place.asked(1)
        await place.clock.advance(BUSY_EVERY_S - 0.1)
        assert place.server.connections == 1
        await place.clock.advance(0.1)
        two = await place.told()
        assert (two.running, two.generated_tokens_s) == (4, 45.0)
        assert place.server.paths == ["/metrics", "/metrics"]
        assert place.desk.hub.view.metrics == two


@pytest.mark.asyncio
async def test_an_idle_server_is_asked_less_often() -> None:
    async with watched(says(IDLE)) as place:
        place.serve()
        await place.asked(1)
        for number in range(2, 2 + int(QUIET_AFTER_S / BUSY_EVERY_S)):
            await place.clock.advance(BUSY_EVERY_S)
            await place.asked(number)
        asked = place.server.connections
        await place.clock.advance(BUSY_EVERY_S)
        await asyncio.sleep(0.05)
        assert place.server.connections == asked
        await place.clock.advance(IDLE_EVERY_S - BUSY_EVERY_S)
        await place.asked(asked + 1)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("answer", "argv", "why"),
    [
        (reply(404), (), "launched without --enable-metrics"),
        (reply(501), (), "launched without --enable-metrics"),
        (reply(404), ("x", "--enable-metrics"), "GET /metrics answers 404"),
        (reply(401), (), "GET /metrics answers 401: it needs a key: give `verify.api_key_env`"),
        (page("<html>\x1b]0;x\x07"), (), "none of the names"),
    ],
)
async def test_no_metrics_is_told_once_and_asked_rarely(answer: bytes, argv: tuple[str, ...], why: str) -> None:
    async with watched(says(answer, answer, IDLE), argv=argv) as place:
        place.serve()
        told = await place.told()
        assert why in told.why and told.running is None
        await place.asked(1)
        await place.clock.advance(RARELY_S - 1)
        assert place.server.connections == 1
        await place.clock.advance(1)
        await place.asked(2)
        assert place.silent
        await place.clock.advance(RARELY_S)
        assert (await place.told()).running == 0  # somebody has put it right meanwhile


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("behave", "why"),
    [
        (says(reply(503)), "GET /metrics answers 503"),
        (closes, "closed the connection without an answer"),
        (body_of(reply(200, length=3 * MEBIBYTE), 3 * MEBIBYTE), "more than 1 MiB"),
        (says(reply(200, body=b"run 5\n", length=5000)), "its end did not come"),
    ],
    ids=["503", "no answer", "huge", "cut off"],
)
async def test_an_answer_that_cannot_be_believed_gives_no_figures(behave: Behaviour, why: str) -> None:
    async with watched(behave) as place:
        place.serve()
        told = await place.told()
        assert why in told.why and told.running is None


@pytest.mark.asyncio
async def test_the_key_goes_along_and_nowhere_into_what_is_told() -> None:
    async with watched(says(reply(403)), key="sk-0123456789") as place:
        place.serve()
        told = await place.told()
        assert "authorization: bearer sk-0123456789" in place.server.heads[0].lower()
        assert "sk-01" not in told.why


@pytest.mark.asyncio
async def test_somebody_elses_server_on_the_port_is_not_asked() -> None:
    async with watched(says(IDLE)) as place:
        place.serve()
        await place.asked(1)
        place.answer(Verdict.REJECTED, Owner.OTHER)
        await place.clock.advance(RARELY_S)
        await asyncio.sleep(0.05)
        assert place.server.connections == 1
        place.answer()
        await place.asked(2)


@pytest.mark.asyncio
async def test_one_request_is_in_flight_and_its_end_is_told_before_the_next() -> None:
    """A server that hangs is not asked again, and one that stops is asked no more."""
    gate = asyncio.Event()

    async def behave(peer: Peer) -> None:
        await peer.request()
        await gate.wait()
        await peer.send(IDLE)

    async with watched(behave) as place:
        place.serve()
        await until(lambda: bool(place.server.paths))
        await place.clock.advance(RARELY_S)
        assert place.server.connections == 1
        place.desk.note(ev.StopBegan(at=place.clock.now(), by="ana"))
        gate.set()
        await asyncio.sleep(0.05)
        await place.clock.advance(RARELY_S)
        assert place.server.connections == 1 and place.silent


@pytest.mark.asyncio
async def test_an_answer_that_came_after_somebody_else_took_the_port_is_not_told() -> None:
    gate = asyncio.Event()

    async def behave(peer: Peer) -> None:
        await peer.request()
        if not gate.is_set():
            await gate.wait()
            await peer.send(page("run 7\nwait 0\nmade_total 5\n"))
        else:
            await peer.send(IDLE)

    async with watched(behave) as place:
        place.serve()
        await until(lambda: bool(place.server.paths))
        place.answer(Verdict.REJECTED, Owner.OTHER)
        place.watch.phase_changed()
        gate.set()
        await until(lambda: not place.watch._wake.is_set())  # it has begun anew: the answer is behind it
        place.answer()
        assert (await place.told()).running == 0
