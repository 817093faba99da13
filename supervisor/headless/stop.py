"""The stop command: one transaction, told line by line, ended by what is gone and what is left."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import IO

import msgspec

from supervisor.adapters.base import Clock, Link
from supervisor.core import events as ev
from supervisor.core.events import Outcome
from supervisor.core.lines import sanitise
from supervisor.core.wait import Decision
from supervisor.errors import LinkError
from supervisor.headless import jsonl, text
from supervisor.headless.gpus import until_decided
from supervisor.supervise.connection import Connection
from supervisor.supervise.plan import Plan
from supervisor.supervise.stop import Stopped, stop_left_overs, stop_live


async def run_stop(
    plan: Plan,
    make_link: Callable[[], Link],
    *,
    clock: Clock,
    by: str,
    as_json: bool,
    mask: Callable[[str], str],
    out: IO[str] | None = None,
    nvml_source: str | None = None,
) -> int:
    """Exit code 0: all gone and released, or nothing ran. 1: something is left, or not proved to be released. 3: the
    node was not reached, or the link broke. 129, 130, 143: a signal ended this command.

    `nvml_source`: see `Connection`.
    """

    def say(line: str) -> None:
        print(mask(line), file=out or sys.stdout, flush=True)

    def tell(words: str) -> None:
        words = sanitise(words)  # it names processes by their titles
        if as_json:
            say(jsonl.to_line(ev.Warning_(at=clock.now(), text=words)))
        else:
            print(mask(words), file=sys.stderr, flush=True)

    connection = Connection(
        make_link,
        clock=clock,
        on_link=lambda _state, _why: None,
        python=plan.python,
        state_dir=plan.state_dir,
        nvml_source=nvml_source,
    )
    work = _Work(connection, plan, clock, by, tell)
    try:
        decision = await until_decided(work.run, "")
    finally:
        await connection.close()
    if decision.outcome in (Outcome.INTERRUPTED, Outcome.UNREACHABLE):
        decision = msgspec.structs.replace(decision, reason=f"{decision.reason}{work.words()}")
    summary = ev.Summary(
        at=clock.now(),
        verdict=decision.outcome,
        exit_code=decision.exit_code,
        phase=work.phase,
        reason=sanitise(decision.reason),
        evidence=work.evidence,
    )
    if as_json:
        say(jsonl.to_line(summary))
    else:
        for line in text.ending(summary, text.Style(colour=False)):
            say(line)
    return decision.exit_code


class _Work:
    """The transaction, and how far it got."""

    def __init__(self, connection: Connection, plan: Plan, clock: Clock, by: str, tell: Callable[[str], None]) -> None:
        self._connection = connection
        self._plan = plan
        self._clock = clock
        self._by = by
        self._tell = tell
        self._began = False
        self.phase = ev.Phase.IDLE
        self.evidence: tuple[ev.Evidence, ...] = ()

    async def run(self) -> Decision:
        try:
            await self._connection.connect_once()
            return await self._stop()
        except LinkError as error:
            return Decision(outcome=Outcome.UNREACHABLE, exit_code=3, reason=str(error))

    def words(self) -> str:
        """What one has to know who breaks it off now."""
        if not self._began:
            return ""
        again = f"`supervisor stop {self._plan.name}` goes on with it, and proves the release"
        return f"; the stop has begun and is not proved: what was signalled by then may go on ending; {again}"

    async def _stop(self) -> Decision:
        client, plan = self._connection.client, self._plan
        live = (await client.request("state", key=plan.key))["live"]
        self._began, self.phase = True, ev.Phase.STOPPING
        if live is not None:
            stopped = await stop_live(client, live, plan, clock=self._clock, by=self._by, tell=self._tell)
            return self._decision(stopped, "")
        nothing = f"nothing runs for {plan.name} on the node"
        left = await stop_left_overs(client, plan, clock=self._clock, by=self._by, tell=self._tell)
        if left is not None:
            return self._decision(left, f"{nothing}; of what ran before: ")
        self.phase = ev.Phase.STOPPED
        return Decision(outcome=Outcome.REACHED, exit_code=0, reason=nothing)

    def _decision(self, stopped: Stopped, before: str) -> Decision:
        self.phase = ev.Phase.STOPPED if stopped.gone else ev.Phase.STOPPING
        self.evidence = (ev.Evidence(kind="release", at=self._clock.now(), text=sanitise(stopped.release)),)
        good = stopped.released or stopped.idle
        outcome = Outcome.REACHED if good else Outcome.FAILED
        return Decision(outcome=outcome, exit_code=0 if good else 1, reason=before + stopped.text)
