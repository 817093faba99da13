"""Looks at one run's health endpoint, at the pace that its phase wants; asks for the generation that proves `serving`.

One look at a time. What it sees are facts for the desk; it never changes a phase.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence

from supervisor.adapters.http import Http
from supervisor.core import events as ev
from supervisor.core.command import Secret
from supervisor.core.events import Phase, Verdict
from supervisor.core.judge import Listener
from supervisor.errors import NodeRequestError, UnreachableError
from supervisor.supervise.begin import Run
from supervisor.supervise.canary import Canary
from supervisor.supervise.connection import Connection
from supervisor.supervise.desk import Desk
from supervisor.supervise.metrics import MetricsWatch
from supervisor.supervise.plan import Plan, VerifyPlan
from supervisor.supervise.probe import Prober, listeners_on
from supervisor.supervise.takedown import processes
from supervisor.supervise.verify import Verifier, verify_and_tell

CLOSED_EVERY_S = 1.0
"""How often "nothing listens" is told again; the node itself looks every 100 ms."""
WARMING_EVERY_S = 0.06
WARMING_SLOWLY_S = 0.25
QUICK_FOR_S = 30.0
"""How long the quick pace lasts after the last thing that moved: a 503 for hours must not fill an access log."""

_LOOKED_AT = {Phase.LAUNCHING, Phase.LOADING, Phase.WARMING, Phase.HEALTHY, Phase.SERVING, Phase.DEGRADED}


class HealthLook:
    """One run's health, over one connection after the other.

    Args:
        beside: runs something beside the attendance, and cancels it with that.
    """

    def __init__(
        self,
        plan: Plan,
        run: Run,
        connection: Connection,
        desk: Desk,
        *,
        beside: Callable[[Coroutine[None, None, None]], None],
    ) -> None:
        self._plan = plan
        self._run = run
        self._connection = connection
        self._desk = desk
        self._beside = beside
        self._wake = asyncio.Event()
        self._port_open: bool | None = None  # not looked at yet
        self._moved_at = desk.clock.now()
        self._verify_over = False
        self._http: Http | None = None
        self._canary = Canary(plan.engine, plan.verify, desk, self._verifier, self._tree)
        settled = run.settled
        self.metrics = MetricsWatch(plan.engine.metrics, settled.url, desk, argv=settled.argv, api_key=self._api_key)

    def connected(self, http: Http) -> None:
        """A new connection: what was known of the port is not known any more."""
        self._http = http
        self._port_open = None

    def port(self, is_open: bool) -> None:
        """The node has seen the port open or close."""
        self._port_open = is_open
        self.moved(self._desk.clock.now(), wake=True)

    def moved(self, at: float, *, wake: bool = False) -> None:
        """Something moved: the quick pace is worth it. `wake`: and so is a look at once."""
        self._moved_at = at
        if wake:
            self._wake.set()

    def doubt(self) -> None:
        """A process of the run was stopped or has died: its health may go on answering."""
        self._canary.hurry()
        self._wake.set()

    async def look(self) -> None:
        """Look for ever."""
        http = self._http
        assert http is not None
        prober = self._prober(http)
        while True:
            self._wake.clear()
            phase = self._desk.phase
            if phase not in _LOOKED_AT or self._port_open is None:
                await self._wake.wait()
                continue
            if not self._port_open:
                self._closed()
                await self._pause(CLOSED_EVERY_S)
                continue
            answer = await prober.look()
            now = self._desk.clock.now()
            self._desk.note(ev.Answered(at=now, answer=answer))
            self.metrics.answered(answer)
            if answer.verdict is Verdict.READY:
                await self._verify(http, prober, answer)
                if self._canary.due:
                    self._beside(self._canary.run(prober.url, answer))
            await self._pause(self._pace_s(now))

    def _closed(self) -> None:
        url = self._run.settled.url
        answer = ev.Answer(
            verdict=Verdict.REFUSED,
            why=f"nothing listens on {url.host_header} (looked at on the node)",
            address=url.host_header,
            cause="refused",
            owner=ev.Owner.UNKNOWN,
        )
        self._desk.note(ev.Answered(at=self._desk.clock.now(), answer=answer))

    def _pace_s(self, now: float) -> float:
        match self._desk.phase:
            case Phase.SERVING | Phase.HEALTHY:
                return self._plan.engine.health.serving_interval_s
            case Phase.DEGRADED:
                return CLOSED_EVERY_S
            case _:
                return WARMING_EVERY_S if now - self._moved_at < QUICK_FOR_S else WARMING_SLOWLY_S

    async def _pause(self, wait_s: float) -> None:
        """Wait for the next look, or for what makes one worth it at once."""
        sleep = asyncio.ensure_future(self._desk.clock.sleep(wait_s))
        wake = asyncio.ensure_future(self._wake.wait())
        try:
            await asyncio.wait((sleep, wake), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for future in (sleep, wake):
                future.cancel()
            await asyncio.gather(sleep, wake, return_exceptions=True)

    @property
    def _api_key(self) -> Secret | None:
        return self._plan.api_key or self._run.settled.learnt.api_key

    def _prober(self, http: Http) -> Prober:
        settled, key = self._run.settled, self._api_key
        return Prober(
            http,
            settled.url,
            self._plan.engine,
            listeners=self._listeners,
            owner_any=self._plan.owner_any,
            expected_models=settled.expected_models,
            api_key=key.reveal() if key is not None else None,
        )

    async def _listeners(self, port: int) -> Sequence[Listener]:
        return await listeners_on(self._connection.client, port, key=self._plan.key, run_id=self._run.run_id)

    async def _tree(self) -> Sequence[ev.Process]:
        try:
            found = await self._connection.client.request("tree", key=self._plan.key, run_id=self._run.run_id)
        except (NodeRequestError, UnreachableError):
            return ()
        return processes(found["tree"])

    def _verifier(self, plan: VerifyPlan) -> Verifier:
        assert self._http is not None and self._plan.engine.completion is not None
        return Verifier(self._http, self._plan.engine.completion, plan, clock=self._desk.clock, api_key=self._api_key)

    async def verify_again(self) -> None:
        """Ask for a generation at the next look, whatever the last one came to."""
        self._verify_over = False
        self._wake.set()

    async def _verify(self, http: Http, prober: Prober, answer: ev.Answer) -> None:
        completion, plan = self._plan.engine.completion, self._plan.verify
        if self._verify_over or plan is None or completion is None or self._desk.phase is Phase.WARMING:
            return
        self._verify_over = True
        verifier = Verifier(http, completion, plan, clock=self._desk.clock, api_key=self._api_key)
        if not await verify_and_tell(self._desk, verifier, prober.url, answer):
            self._verify_over = False  # it went back to loading meanwhile: verify when it is healthy again
