"""Asks a serving engine for a token now and then, where its health answer does not prove that it generates.

An API server whose engine is frozen answers 200 for ever. A look that fails is told as what it is, with who of the
run's processes stands still; tokens that flow by the engine's own metrics are proof enough, and nothing is asked then.
It asks one thing at a time, and never ends a run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from supervisor.core import events as ev
from supervisor.core.engine import Engine
from supervisor.core.events import Phase
from supervisor.core.lines import sanitise
from supervisor.core.url import Url
from supervisor.supervise.desk import Desk
from supervisor.supervise.plan import VerifyPlan
from supervisor.supervise.verify import Verifier

EVERY_S = 60.0
AGAIN_EVERY_S = 10.0
"""While it is degraded: when a token comes, it serves again."""
TIMEOUT_S = 60.0
STOPPED_TIMEOUT_S = 5.0
"""Where a process of the run stands still: then no queue explains the silence."""
DOUBTED_TIMEOUT_S = 15.0
"""Where one has died: a queue may explain it, and nobody should wait long to hear that none does."""
FLOWS_WITHIN_S = 15.0

Ask = Callable[[VerifyPlan], Verifier]
Look = Callable[[], Awaitable[Sequence[ev.Process]]]


class Canary:
    """One run's.

    Args:
        plan: None: verification is off, and so is this.
        ask: makes a verifier.
        look: the run's processes as they are now.
    """

    def __init__(self, engine: Engine, plan: VerifyPlan | None, desk: Desk, ask: Ask, look: Look) -> None:
        self._plan = plan if engine.completion is not None and not engine.health.generates else None
        self._desk = desk
        self._ask = ask
        self._look = look
        self._due_at = desk.clock.now() + EVERY_S
        self._asking = self._doubted = False

    def hurry(self) -> None:
        """A process of it stands still or has died: ask at the next occasion, tokens or not."""
        self._due_at = self._desk.clock.now()
        self._doubted = True

    def served(self) -> None:
        """A generation came back just now."""
        self._due_at = self._desk.clock.now() + EVERY_S

    @property
    def due(self) -> bool:
        """Whether it is time to ask."""
        if self._plan is None or self._asking or self._desk.phase not in (Phase.SERVING, Phase.DEGRADED):
            return False
        if self._desk.clock.now() < self._due_at:
            return False
        if self._desk.phase is Phase.SERVING and self._flows() and not self._doubted:
            self.served()
            return False
        return True

    def _flows(self, since: float | None = None) -> bool:
        """Whether its own metrics tell of tokens: those of the last seconds, or those that were read after `since`."""
        metrics = self._desk.hub.view.metrics
        oldest = since if since is not None else self._desk.clock.now() - FLOWS_WITHIN_S
        return metrics is not None and metrics.at > oldest and bool(metrics.generated_tokens_s)

    async def run(self, url: Url, answer: ev.Answer) -> None:
        """Ask once, after this accepted answer."""
        if self._plan is None or self._asking:
            return
        self._asking = True
        try:
            await self._once(self._plan, url, answer)
        finally:
            self._asking = False

    async def _once(self, whole: VerifyPlan, url: Url, answer: ev.Answer) -> None:
        stopped = _stopped(await self._look())
        limit_s = STOPPED_TIMEOUT_S if stopped else DOUBTED_TIMEOUT_S if self._doubted else TIMEOUT_S
        self._doubted = False
        began = self._desk.clock.now()
        plan = VerifyPlan(prompt=whole.prompt, timeout_s=min(limit_s, whole.timeout_s), tries=1, max_tokens=1)
        address = answer.address.rpartition(":")[0].strip("[]")
        verdict = await self._ask(plan).run(url, address, answer.model, self._wanted)
        now = self._desk.clock.now()
        if not self._wanted():
            return
        degraded = self._desk.phase is Phase.DEGRADED
        wait_s = EVERY_S if verdict.passed is not False else AGAIN_EVERY_S
        self._due_at = now if self._doubted else now + wait_s  # something may have died while it was asked
        if verdict.passed:
            if degraded:
                self._desk.note(ev.Verified(at=now, text=f"it generates again: {verdict.text}"))
        elif verdict.passed is False and verdict.silent and self._flows(since=began):
            self._doubted = True  # a queue may explain it, and so may tokens from just before: the next look tells
        elif verdict.passed is False and not degraded:
            self._tell(now, verdict.text, verdict.silent, _stopped(await self._look()))

    def _wanted(self) -> bool:
        return self._desk.phase in (Phase.SERVING, Phase.DEGRADED)

    def _tell(self, now: float, text: str, silent: bool, stopped: Sequence[ev.Process]) -> None:
        who = "; ".join(f"process {item.pid} {item.title[:60]} stands still (state {item.state})" for item in stopped)
        cause = f"health is accepted, and no generation comes: {text}" + (f"; {who}" if who else "")
        self._desk.note(ev.VerifyFailed(at=now, text=cause))
        advice = "The process lives and was left running. Its engine hangs: look at its log, then restart it."
        if stopped:
            pids = " ".join(str(item.pid) for item in stopped)
            advice = f"Somebody stopped a process of it (SIGSTOP, a debugger): `kill -CONT {pids}` lets it go on."
        self._desk.tell(
            ev.Finding(
                at=now,
                category="hang" if silent else "health",
                detail="frozen engine" if silent else "health is no proof",
                cause=sanitise(cause),
                confidence="sure",
                advice=advice,
            )
        )


def _stopped(tree: Sequence[ev.Process]) -> list[ev.Process]:
    return [item for item in tree if item.state in ("T", "t")]
