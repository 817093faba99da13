"""Asks a serving engine for its metrics, and tells what they come to: running, queued, tokens a second, cache.

One request in flight, from the same address as the last accepted health answer and with its key; never while somebody
else has the port. Each look is a line in many servers' access logs, so an idle server is asked less often, and one
that has no metrics hardly at all: that is told once. It never changes a phase and never ends a run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from supervisor.adapters.http import Http, NoReply
from supervisor.core import events as ev
from supervisor.core.command import Secret
from supervisor.core.engine import MetricsRules
from supervisor.core.events import Metrics, Owner, Phase, Verdict
from supervisor.core.judge import Reply
from supervisor.core.lines import sanitise
from supervisor.core.metering import Meter
from supervisor.core.prometheus import MAX_BYTES
from supervisor.core.url import Url
from supervisor.errors import DialForbiddenError
from supervisor.supervise.desk import Desk

BUSY_EVERY_S = 2.0
IDLE_EVERY_S = 5.0
"""When nothing has run or waited for `QUIET_AFTER_S`."""
QUIET_AFTER_S = 30.0
TROUBLE_EVERY_S = 10.0
"""After an answer that may be another one soon: 503, silence."""
RARELY_S = 60.0
"""After one that will stay as it is: no such page, a key is missing, nothing known in it."""
TIMEOUT_S = 10.0

_ASKED_IN = {Phase.HEALTHY, Phase.SERVING, Phase.DEGRADED}
_STAYS = {401, 403, 404, 405, 501}


class MetricsWatch:
    """One run's metrics. Goes on over lost connections, as the counters do.

    Args:
        rules: None: nothing is known of this engine's metrics, and nothing is asked.
        argv: the launched command, to see whether it asks for metrics.
    """

    def __init__(
        self,
        rules: MetricsRules | None,
        url: Url,
        desk: Desk,
        *,
        argv: Sequence[str] = (),
        api_key: Secret | None = None,
    ) -> None:
        self._known = rules is not None
        self._rules = rules = rules or MetricsRules()
        self._url = url.with_path(rules.path)
        self._desk = desk
        self._has_flag = bool(rules.flag) and any(word.split("=")[0] == rules.flag for word in argv)
        self._headers = {"Authorization": f"Bearer {api_key.reveal()}"} if api_key is not None else {}
        self._meter = Meter(rules)
        self._address: str | None = None
        self._told = ""
        self._busy_at = float("-inf")
        self._wake = asyncio.Event()

    def answered(self, answer: ev.Answer) -> None:
        """A look at the health endpoint is over: it tells where to ask, and whether one may."""
        if answer.verdict is Verdict.READY:
            self._address = answer.address.rpartition(":")[0].strip("[]")
            self._wake.set()
        elif answer.owner is Owner.OTHER:
            self._address = None

    def phase_changed(self) -> None:
        """Look at the phase anew."""
        self._wake.set()

    async def watch(self, http: Http) -> None:
        """Ask for ever; whoever runs it ends it. Raises `LinkError` when the link is gone."""
        self._busy_at = self._desk.clock.now()  # who has just connected wants to see something
        while True:
            self._wake.clear()
            address = self._address
            if not self._known or address is None or self._desk.phase not in _ASKED_IN:
                await self._wake.wait()
                continue
            await self._desk.clock.sleep(await self._look(http, address))

    async def _look(self, http: Http, address: str) -> float:
        """One look; returns how long to wait for the next."""
        try:
            reply = await http.look(
                self._url,
                address,
                timeout_s=TIMEOUT_S,
                needs_body=lambda status: status == 200,
                headers=self._headers,
                max_bytes=MAX_BYTES,
            )
        except DialForbiddenError:
            return self._nothing("the link lets no connection through to it", RARELY_S)
        if self._desk.phase not in _ASKED_IN or self._address != address:
            return 0.0  # it ended meanwhile, or somebody else has the port: nothing is said of what is not ours
        if isinstance(reply, NoReply):
            refused = reply.verdict is Verdict.REFUSED
            return self._nothing(reply.why, RARELY_S if refused else TROUBLE_EVERY_S)
        if reply.status != 200:
            return self._nothing(self._why(reply), RARELY_S if reply.status in _STAYS else TROUBLE_EVERY_S)
        if not reply.body_complete:
            full = len(reply.body) >= MAX_BYTES
            why = f"it is more than {MAX_BYTES >> 20} MiB" if full else "its end did not come"
            return self._nothing(f"GET {self._rules.path}: {why}", RARELY_S if full else TROUBLE_EVERY_S)
        now = self._desk.clock.now()
        metrics = self._meter.take(now, reply.body)
        if metrics.why:
            return self._nothing(metrics.why, RARELY_S)
        self._told = ""
        self._desk.tell(metrics)
        if metrics.running or metrics.queued or metrics.generated_tokens_s or metrics.prompt_tokens_s:
            self._busy_at = now
        return BUSY_EVERY_S if now - self._busy_at < QUIET_AFTER_S else IDLE_EVERY_S

    def _why(self, reply: Reply) -> str:
        path, status = self._rules.path, reply.status
        if status in (401, 403):
            return f"GET {path} answers {status}: it needs a key: give `verify.api_key_env`"
        if status in _STAYS and self._rules.flag and not self._has_flag:
            return f"launched without {self._rules.flag}"
        return f"GET {path} answers {status}"

    def _nothing(self, why: str, wait_s: float) -> float:
        """Nothing is known, and why; told once, not at every look."""
        if why != self._told:
            self._told = why
            self._desk.tell(Metrics(at=self._desk.clock.now(), why=sanitise(why)))
        return wait_s
