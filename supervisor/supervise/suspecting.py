"""Reads a run's log for what ends it: tells what is certain at once, and shows a suspicion calmly, once for each cause.

A suspicion never ends anything. It is shown while the load lasts, when it has stood for a while: of a launch that is
about to fail the finding itself comes first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine

import msgspec

from supervisor.core import events as ev
from supervisor.core.diagnosis.blocks import BlockDiagnoser
from supervisor.core.diagnosis.diagnoser import Certainty
from supervisor.core.diagnosis.facts import DeadProcess, EndFacts
from supervisor.core.diagnosis.hardware import with_gpu_faults
from supervisor.core.engine import Common, Engine
from supervisor.core.events import Phase
from supervisor.supervise.desk import Desk

STANDS_S = 2.0
"""How long a suspicion must have stood before it is shown."""
MOST_SHOWN = 8
QUOTED_CHARS = 200
_MAY_FAIL = {Phase.QUEUED, Phase.LAUNCHING, Phase.LOADING, Phase.WARMING, Phase.HEALTHY, Phase.SERVING}
_LOADS = {Phase.LAUNCHING, Phase.LOADING, Phase.WARMING}
_NAMED = {"sure", "likely"}
"""Confidences of lines that a rule knows: nobody is to be troubled with a word that sounds like an error."""


class LogVerdict:
    """One run's log under the rules of its engine.

    Args:
        beside: runs something beside the attendance, and cancels it with that.
    """

    def __init__(
        self,
        engine: Engine,
        common: Common,
        desk: Desk,
        beside: Callable[[Coroutine[None, None, None]], None],
    ) -> None:
        self._desk = desk
        self._beside = beside
        self._reader = BlockDiagnoser(engine, common)
        self.read_to = 0
        """The offset in the file up to which it was read."""
        self._certain: Certainty | None = None
        self._told = self._waits = False
        self._shown: set[tuple[str, str]] = set()

    def take(self, block: ev.LogBlock) -> None:
        """One block, as it came. What was read before, by a request at the end, is not read twice."""
        if block.fresh:
            self.read_to = 0
        if block.offset < self.read_to:
            known = self.read_to - block.offset
            if known >= len(block.data):
                return
            lines = block.data.count(b"\n", 0, known)
            block = msgspec.structs.replace(
                block,
                data=block.data[known:],
                offset=self.read_to,
                line_no=block.line_no + lines,
                lines=block.lines - lines,
            )
        self.read_to = block.offset + len(block.data)
        found = self._reader.feed(block)
        if found is not None and self._certain is None:
            self._certain = found
        self.settle()
        if not self._waits and self._desk.phase in _LOADS and self._suspicion() is not None:
            self._waits = True
            self._beside(self._show_later())

    def settle(self) -> None:
        """Tell what is certain, once the phase is one that it can end: a takeover reads the log before all else."""
        certain = self._certain
        if certain is None or self._told or self._desk.phase not in _MAY_FAIL:
            return
        self._told = True
        found = certain.finding
        text = found.cause + _where(found)
        if certain.line_no != found.line_no:
            text += f", and that ends it, says line {certain.line_no}: {certain.line[:QUOTED_CHARS]}"
        self._desk.note(ev.CannotComeUp(at=self._desk.clock.now(), text=text))
        if self._desk.phase is Phase.DEGRADED:
            self._desk.tell(found)  # it did come up: no verdict tells the cause, so it is told here

    def finding(self, facts: EndFacts, at: float) -> ev.Finding:
        """Why it failed. The line that proves it is often an echo: where the cause is surely known too, that is it."""
        concluded = self._reader.conclude(facts, at)
        found = concluded.finding
        if self._certain is not None and (found is None or found.confidence != "sure"):
            found = msgspec.structs.replace(self._certain.finding, at=at, ruled_out=concluded.ruled_out)
        found = with_gpu_faults(found, facts, at)
        if found is not None:
            return found
        how = facts.exit.words() if facts.exit is not None else "nobody saw how"
        return ev.Finding(
            at=at,
            category="unknown",
            detail="no cause",
            cause=f"the server ended: {how}; {concluded.reason}" if concluded.reason else f"the server ended: {how}",
            ruled_out=concluded.ruled_out,
        )

    # ------------------------------------------------------------------------------- suspicions

    def _suspicion(self) -> ev.Finding | None:
        found = self._reader.suspicion(self._desk.clock.now())
        if found is None or found.confidence not in _NAMED or _key(found) in self._shown:
            return None
        return found if len(self._shown) < MOST_SHOWN else None

    async def _show_later(self) -> None:
        found = self._suspicion()
        while found is not None and self._desk.phase in _LOADS:
            await self._desk.clock.sleep(STANDS_S)
            before, found = found, self._suspicion()
            if found is None or _key(before) != _key(found) or self._desk.phase not in _LOADS:
                continue  # another one by now: it must stand for as long
            self._shown.add(_key(found))
            text = f"the log hints at trouble, and the server goes on: {found.cause}{_where(found)}"
            self._desk.warn(text, suspicion=found.category, line_no=found.line_no)
            found = self._suspicion()
        self._waits = False


def _where(found: ev.Finding) -> str:
    return f" (line {found.line_no}: {found.line[:QUOTED_CHARS]})" if found.line_no is not None else ""


def _key(found: ev.Finding) -> tuple[str, str]:
    return found.category, found.detail


class DeadRanks:
    """Tells of processes of the run that ended while the server goes on. Those of the engine's own names, and crashes:
    a helper that ends with an error is nobody's business."""

    STANDS_S = 1.0

    def __init__(self, engine: Engine, desk: Desk, beside: Callable[[Coroutine[None, None, None]], None]) -> None:
        self._titles = [re.compile(title) for title in engine.titles]
        self._desk = desk
        self._beside = beside
        self._waiting: list[DeadProcess] = []

    def take(self, dead: DeadProcess) -> bool:
        """One has ended. Whether it is one that matters."""
        ours = any(title.search(dead.title) for title in self._titles)
        if not (ours or (dead.how is not None and dead.how.signal is not None)):
            return False
        self._waiting.append(dead)
        if len(self._waiting) == 1:
            self._beside(self._tell_later())
        return True

    async def _tell_later(self) -> None:
        await self._desk.clock.sleep(self.STANDS_S)
        found, self._waiting = self._waiting, []
        if self._desk.phase not in (*_LOADS, Phase.HEALTHY, Phase.SERVING, Phase.DEGRADED):
            return
        first = found[0]
        how = f" by {first.how.words()}" if first.how is not None else ", nobody saw how"
        more = f", and {len(found) - 1} more after it" if len(found) > 1 else ""
        self._desk.warn(f"process {first.pid} {first.title[:80]} ended{how}{more}, while the server itself goes on")
