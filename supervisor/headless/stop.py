"""The stop command: one transaction, told line by line, ended by what is gone and what is left."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import IO

from supervisor.adapters.base import Clock, Link
from supervisor.core import events as ev
from supervisor.core.events import Outcome
from supervisor.core.lines import sanitise
from supervisor.core.wait import Decision
from supervisor.errors import LinkError
from supervisor.headless import jsonl, text
from supervisor.supervise.connection import Connection
from supervisor.supervise.plan import Plan
from supervisor.supervise.stop import Stopped, stop_live


async def run_stop(
    plan: Plan,
    make_link: Callable[[], Link],
    *,
    clock: Clock,
    by: str,
    as_json: bool,
    mask: Callable[[str], str],
    out: IO[str] | None = None,
) -> int:
    """Exit code 0: all gone and released, or nothing ran. 1: something is left, or not proved to be released. 3: the
    node was not reached."""

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
    )
    decision: Decision
    phase = ev.Phase.STOPPED
    evidence: tuple[ev.Evidence, ...] = ()
    try:
        await connection.connect_once()
        state = await connection.client.request("state", key=plan.key)
        live = state["live"]
        if live is None:
            reason = f"nothing runs for {plan.name} on the node"
            decision = Decision(outcome=Outcome.REACHED, exit_code=0, reason=reason)
        else:
            stopped = await stop_live(connection.client, live, plan, clock=clock, by=by, tell=tell)
            decision, phase = _decision(stopped)
            evidence = (ev.Evidence(kind="release", at=clock.now(), text=sanitise(stopped.release)),)
    except LinkError as error:
        decision = Decision(outcome=Outcome.UNREACHABLE, exit_code=3, reason=str(error))
        phase = ev.Phase.IDLE
    finally:
        await connection.close()
    summary = ev.Summary(
        at=clock.now(),
        verdict=decision.outcome,
        exit_code=decision.exit_code,
        phase=phase,
        reason=sanitise(decision.reason),
        evidence=evidence,
    )
    if as_json:
        say(jsonl.to_line(summary))
    else:
        for line in text.ending(summary, text.Style(colour=False)):
            say(line)
    return decision.exit_code


def _decision(stopped: Stopped) -> tuple[Decision, ev.Phase]:
    phase = ev.Phase.STOPPED if stopped.gone else ev.Phase.STOPPING
    if stopped.released or stopped.idle:
        return Decision(outcome=Outcome.REACHED, exit_code=0, reason=stopped.text), phase
    return Decision(outcome=Outcome.FAILED, exit_code=1, reason=stopped.text), phase
