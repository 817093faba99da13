"""The diagnosis of a log that flows in blocks: reads only the lines that can matter, across the blocks' borders.

At 50 MB/s nobody can look at each line. But a server writes few kinds of lines: what it says differs in numbers alone.
So a line is read once, and where it says nothing, others that are the same but for their digits are passed over.
"""

from __future__ import annotations

from supervisor.core import events as ev
from supervisor.core.block_lines import BlockLines
from supervisor.core.diagnosis.conclude import Diagnosis
from supervisor.core.diagnosis.diagnoser import SERVED_LINES, Certainty, Diagnoser, Told
from supervisor.core.diagnosis.facts import EndFacts
from supervisor.core.engine import Common, Engine
from supervisor.core.kinds import LONGEST, KnownKinds, kinds_of
from supervisor.core.lines import Line, shown

ECHOES_READ = 20
"""Of an error that comes again and again, so many are read: who says it is told up to a number of processes."""
MOST_ECHOES = 2000


class BlockDiagnoser:
    """Tell it the blocks in order; ask it what a `Diagnoser` is asked."""

    def __init__(self, engine: Engine, common: Common) -> None:
        self._diagnoser = Diagnoser(engine, common)
        self._lines = BlockLines()
        self._told = False
        self._nothing = KnownKinds()
        self._serving = KnownKinds()
        self._echoes: dict[bytes, int] = {}
        self._epoch = 0

    def __repr__(self) -> str:
        return f"<BlockDiagnoser {self._diagnoser!r}>"

    @property
    def read_lines(self) -> int:
        """How many lines were read and not passed over."""
        return self._diagnoser.read_lines

    def feed(self, block: ev.LogBlock) -> Certainty | None:
        """One block. What ends the wait, once, as soon as it is certain."""
        parts = self._lines.take(block)
        self._whole(parts.before)
        if parts.inner:
            self._inner(parts.inner, parts.line_no)
        self._whole(parts.after)
        if self._told:
            return None
        found = self._diagnoser.certain(block.at)
        self._told = found is not None
        return found

    def suspicion(self, at: float) -> ev.Finding | None:
        """What would be named if it ended now. It proves nothing."""
        return self._diagnoser.suspicion(at)

    def conclude(self, facts: EndFacts, at: float) -> Diagnosis:
        """Why it ended. What has no newline yet is read too: last words often have none."""
        for line in self._lines.end():
            self._line(line.text, line.line_no)
        return self._diagnoser.conclude(facts, at)

    # ------------------------------------------------------------------------------- lines

    def _whole(self, lines: list[Line]) -> None:
        for line in lines:
            if not line.living:
                self._line(line.text, line.line_no)

    def _line(self, text: str, line_no: int) -> Told:
        told = self._diagnoser.feed(text, line_no)
        if told is Told.SERVING:
            self._diagnoser.serving()
        return told

    def _inner(self, data: bytes, line_no: int) -> None:
        """Lines that lie whole in a block: the first of them has the number `line_no`."""
        kinds = kinds_of(data)
        nothing, serving, diagnoser = self._nothing, self._serving, self._diagnoser
        if not diagnoser.following and self._all_known(kinds):
            diagnoser.pass_over(len(kinds))
            return
        lines = data.split(b"\n")
        passed = 0
        for index, kind in enumerate(kinds):
            following = diagnoser.following
            if not following:
                if kind in nothing.all or (kind in self._echoes and self._heard_enough(kind)):
                    passed += 1
                    continue
                if kind in serving.all:
                    passed += 1
                    diagnoser.serving()
                    continue
            diagnoser.pass_over(passed)
            passed = 0
            told = self._line(shown(lines[index]), line_no + index)
            if not following:
                self._remember(kind, told)
        diagnoser.pass_over(passed)

    def _all_known(self, kinds: list[bytes]) -> bool:
        """Whether none of these lines need be read. In a flood that is nearly every block, and told at once."""
        fresh = set(kinds)
        fresh -= self._nothing.all
        if not fresh <= self._serving.all:
            return False
        if fresh:
            for _ in range(SERVED_LINES):  # of a block that is full of them
                self._diagnoser.serving()
        return True

    def _remember(self, kind: bytes, told: Told) -> None:
        if told is Told.NOTHING:
            self._nothing.add(kind)
        elif told is Told.SERVING:
            self._serving.add(kind)
        elif told is Told.ECHO and len(kind) <= LONGEST:
            if len(self._echoes) > MOST_ECHOES:
                self._echoes.clear()
            self._echoes.setdefault(kind, 0)

    def _heard_enough(self, kind: bytes) -> bool:
        """Of an error that was told before: other ranks say the same, and differ from it in digits alone."""
        if self._epoch != self._diagnoser.epoch:
            self._forget_echoes()
            return False
        self._echoes[kind] += 1
        return self._echoes[kind] > ECHOES_READ

    def _forget_echoes(self) -> None:
        self._epoch = self._diagnoser.epoch
        self._echoes.clear()
