"""The zombies command: what is left over on a node's GPUs, and on demand the end of it, with proof.

Without `--kill` it only looks. With it: what is pre-selected, or the pids named; the plan first, then the question.
Nothing protected is ever touched; another user's process only as root, its pid typed by hand at a terminal.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import IO

from supervisor.adapters.base import Clock
from supervisor.adapters.node import NodeClient
from supervisor.core import events as ev
from supervisor.core import left_over
from supervisor.core.events import Outcome
from supervisor.core.gpu import Coverage, Snapshot
from supervisor.core.gpu_events import holders_event
from supervisor.core.holders import Holder
from supervisor.core.known import Known
from supervisor.core.lines import sanitise
from supervisor.core.wait import Decision
from supervisor.errors import LinkError, UsageError
from supervisor.headless import gpu_text
from supervisor.headless.gpus import View, until_decided
from supervisor.headless.nodes import Node, connection_to
from supervisor.supervise import left_overs
from supervisor.supervise.clear import Cleared, clear
from supervisor.supervise.left_overs import GRACE_S

Ask = Callable[[str], Awaitable[str]]
"""Shows a question at a terminal and gives the line that was typed; "" at its end."""


async def run_zombies(
    node: Node,
    *,
    clock: Clock,
    known: Known,
    as_json: bool,
    kill: Sequence[int] | None = None,
    yes: bool = False,
    ask: Ask | None = None,
    out: IO[str] | None = None,
    err: IO[str] | None = None,
) -> int:
    """Exit code 0: nothing is left over (any more). 1: something is. 3: the node was not reached.

    Args:
        kill: None only looks; empty takes what is pre-selected; else these pids and no other.
        ask: None where there is no terminal to ask at.

    Raises `UsageError` for what is not allowed, before anything is signalled.
    """
    zombies = _Zombies(node, clock, known, View(out or sys.stdout, as_json=as_json, redraws=False), err or sys.stderr)
    said = "" if kill is None else "; what was signalled by then may go on ending"
    try:
        decision = await until_decided(lambda: zombies.run(kill, yes, ask), said)
    except UsageError as error:
        zombies.refused(error)
        raise
    zombies.end(decision)
    return decision.exit_code


class _Zombies:
    """One run of the command."""

    def __init__(self, node: Node, clock: Clock, known: Known, view: View, err: IO[str]) -> None:
        self._node = node
        self._clock = clock
        self._known = known
        self._view = view
        self._err = err
        self._release = ""

    async def run(self, kill: Sequence[int] | None, yes: bool, ask: Ask | None) -> Decision:
        """Look, and end what is to be ended."""
        connection = connection_to(self._node, self._clock)
        try:
            await connection.connect_once()
            client = connection.client
            snapshot, holders = await self._look(client)
            self._show(snapshot, holders)
            if kill is None:
                return decided(snapshot, holders, None)
            targets = chosen(holders, kill, snapshot)
            if not targets:
                self._tell("nothing is pre-selected: name a pid to end it (--kill PID)")
                return decided(snapshot, holders, None)
            await self._agree(targets, snapshot, yes, ask)
            cleared = await clear(
                client, clock=self._clock, targets=targets, grace_s=GRACE_S, tell=self._tell, spared=holders
            )
            self._release = cleared.release
            snapshot, holders = await self._look(client)
            self._view.event(holders_event(snapshot, holders, self._node.name, self._clock.now()))
            return decided(snapshot, holders, cleared)
        except LinkError as error:
            return Decision(outcome=Outcome.UNREACHABLE, exit_code=3, reason=str(error))
        finally:
            await connection.close()

    async def _look(self, client: NodeClient) -> tuple[Snapshot, tuple[Holder, ...]]:
        found = await left_overs.look(client, clock=self._clock, known=self._known, name=self._node.name)
        return found.snapshot, found.holders

    def _show(self, snapshot: Snapshot, holders: tuple[Holder, ...]) -> None:
        view = self._view
        view.event(holders_event(snapshot, holders, self._node.name, self._clock.now()))
        if not view.as_json:
            for line in gpu_text.zombie_lines(self._node.name, snapshot, holders, view.style, view.width):
                view.text(line)

    async def _agree(self, targets: Sequence[Holder], snapshot: Snapshot, yes: bool, ask: Ask | None) -> None:
        """Returns when the user wants it. Raises `UsageError` otherwise: nothing has been signalled then."""
        by_hand = [holder for holder in targets if left_over.by_hand(holder)]
        if by_hand and ask is None:
            pids = ", ".join(f"pid {holder.pid} of {holder.user or holder.uid}" for holder in by_hand)
            raise UsageError(f"{pids}: another's process is ended only at a terminal, where its pid is typed by hand")
        if ask is None and not yes:
            raise UsageError("there is no terminal to ask at: --yes ends what the plan above names")
        for line in plan_lines(targets, snapshot):
            self._tell(line)
        for holder in by_hand:
            assert ask is not None
            typed = await ask(f"type the pid {holder.pid} to end this process of {holder.user or holder.uid}: ")
            if typed.strip() != str(holder.pid):
                raise UsageError("that was not the pid: nothing was signalled")
        if len(by_hand) < len(targets) and not yes:
            assert ask is not None
            if (await ask("end them? [y/N] ")).strip().lower() not in ("y", "yes"):
                raise UsageError("not confirmed: nothing was signalled")

    def _tell(self, words: str) -> None:
        words = sanitise(words)
        if self._view.as_json:
            self._view.event(ev.Warning_(at=self._clock.now(), text=words, facts={"host": self._node.name}))
        else:
            print(words, file=self._err, flush=True)

    def refused(self, error: UsageError) -> None:
        """The ending of a stream before which nothing was signalled; the sentence itself is told with the exit code."""
        decision = Decision(outcome=Outcome.REFUSED, exit_code=error.exit_code, reason=str(error))
        self._view.summary(self._clock.now(), decision)

    def end(self, decision: Decision) -> None:
        """The ending."""
        self._view.summary(self._clock.now(), decision, self._release)
        if decision.outcome is Outcome.UNREACHABLE and not self._view.as_json:
            print(sanitise(decision.reason), file=self._err, flush=True)
        elif decision.reason:
            self._view.text()
            self._view.text(sanitise(decision.reason))


def chosen(holders: Sequence[Holder], pids: Sequence[int], snapshot: Snapshot) -> tuple[Holder, ...]:
    """The holders that are to be ended. Raises `UsageError` for a pid that may not be, with why and what else to do."""
    if not pids:
        return tuple(holder for holder in holders if holder.preselected)
    by_pid = {holder.pid: holder for holder in holders if holder.pid is not None}
    out = []
    for pid in dict.fromkeys(pids):
        holder = by_pid.get(pid)
        if holder is None:
            raise UsageError(f"pid {pid} is no holder of GPU memory there: nothing was signalled")
        if why := left_over.why_not(holder, snapshot.uid):
            raise UsageError(f"{why} (nothing was signalled)")
        out.append(holder)
    return tuple(out)


def plan_lines(targets: Sequence[Holder], snapshot: Snapshot) -> list[str]:
    """What will be ended, before it is asked for."""
    out = ["to be ended (TERM, and KILL after 30 s):"]
    for holder in targets:
        place = "".join(f"{part}, " for part in left_over.places(holder, snapshot))
        out.append(f"  pid {holder.pid} ({holder.class_}) {place}{holder.title or holder.comm}".rstrip())
    if runs := left_over.runs_of(targets):
        out.append(f"  and every other process that is left of run {', '.join(runs)}")
    return out


def decided(snapshot: Snapshot, holders: Sequence[Holder], cleared: Cleared | None) -> Decision:
    """What the command came to: 0 only where all that could be left over was looked at."""
    zombies = [holder for holder in holders if holder.zombie]
    reason = left_over.count_words(zombies)
    blind = left_over.not_seen(snapshot)
    if blind:
        reason = f"{reason if zombies else 'no left-over holder was seen'}: {blind}"
    if cleared is not None:
        reason = f"{cleared.text}; {reason}"
    sure = not blind or snapshot.coverage is Coverage.ALL  # then at least every process was looked at
    if zombies or not sure or (cleared is not None and not cleared.released):
        return Decision(outcome=Outcome.FAILED, exit_code=1, reason=reason)
    return Decision(outcome=Outcome.REACHED, exit_code=0, reason=reason)


def terminal() -> Ask | None:
    """Asks at the terminal, None where there is none to ask at. A signal ends the waiting, too."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None

    async def ask(question: str) -> str:
        print(question, end="", file=sys.stderr, flush=True)
        loop = asyncio.get_running_loop()
        line: asyncio.Future[bytes] = loop.create_future()
        descriptor = sys.stdin.fileno()

        def typed() -> None:
            data = os.read(descriptor, 1024)
            if not line.done():
                line.set_result(data)

        loop.add_reader(descriptor, typed)
        try:
            return (await line).decode("utf-8", "replace")
        finally:
            loop.remove_reader(descriptor)

    return ask
