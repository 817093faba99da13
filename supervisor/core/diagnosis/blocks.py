"""The diagnosis of a log that flows in blocks: reads only the lines that can matter, across the blocks' borders.

At 50 MB/s nobody can look at each line. But a server writes few kinds of lines: what it says differs in numbers alone.
So a line is read once, and where it says nothing, others that are the same but for their digits are passed over.
"""

from __future__ import annotations

from supervisor.core import events as ev
from supervisor.core.diagnosis.conclude import Diagnosis
from supervisor.core.diagnosis.diagnoser import Diagnoser, Told
from supervisor.core.diagnosis.facts import EndFacts
from supervisor.core.engine import Common, Engine
from supervisor.core.lines import LineSplitter, plain_bytes, shown

MOST_KIND_BYTES = 4 << 20
"""Of the kinds of lines that are remembered; then it begins anew, which costs reading them once more."""
ECHOES_READ = 32
"""Of an error that comes again and again, so many are read: who says it is told up to a number of processes."""
LONGEST_KIND = 4096
"""Bytes of a line that is remembered: longer ones hold somebody's text, and hardly come again."""
KIND_BYTES = 150
"""What remembering one costs beside its own bytes."""
_DIGITS = b"0123456789"


class BlockDiagnoser:
    """Tell it the blocks in order; ask it what a `Diagnoser` is asked."""

    def __init__(self, engine: Engine, common: Common) -> None:
        self._diagnoser = Diagnoser(engine, common)
        self._splitter: LineSplitter | None = None
        self._told = False
        self._known: dict[bytes, Told] = {}
        self._known_bytes = 0
        self._echoes: dict[bytes, int] = {}
        self._epoch = 0

    def __repr__(self) -> str:
        return f"<BlockDiagnoser {self._diagnoser!r}>"

    @property
    def read_lines(self) -> int:
        """How many lines were read and not passed over."""
        return self._diagnoser.read_lines

    def feed(self, block: ev.LogBlock) -> ev.Finding | None:
        """One block. The finding that ends the wait, once, as soon as it is certain."""
        if block.fresh or self._splitter is None or block.offset != self._splitter.offset:
            self._splitter = LineSplitter(offset=block.offset, lines_before=block.line_no - 1)
        data = block.data
        first, last = data.find(b"\n") + 1, data.rfind(b"\n") + 1
        if first == last:
            self._whole(self._splitter, data)
        else:
            self._whole(self._splitter, data[:first])
            self._inner(data[first:last], block.line_no + 1)
            self._splitter = LineSplitter(offset=block.offset + last, lines_before=block.line_no + block.lines - 1)
            self._whole(self._splitter, data[last:])
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
        if self._splitter is not None:
            for line in self._splitter.end():
                self._line(line.text, line.line_no)
            self._splitter = None
        return self._diagnoser.conclude(facts, at)

    # ------------------------------------------------------------------------------- lines

    def _whole(self, splitter: LineSplitter, data: bytes) -> None:
        for line in splitter.feed(data):
            if not line.living:
                self._line(line.text, line.line_no)

    def _line(self, text: str, line_no: int) -> Told:
        told = self._diagnoser.feed(text, line_no)
        if told is Told.SERVING:
            self._diagnoser.serving()
        return told

    def _inner(self, data: bytes, line_no: int) -> None:
        """Lines that lie whole in a block: the first of them has the number `line_no`."""
        lines = data.split(b"\n")
        kinds = plain_bytes(data).translate(None, _DIGITS).split(b"\n")
        known, diagnoser = self._known, self._diagnoser
        for index, kind in enumerate(kinds):
            following = diagnoser.following
            told = None if following else known.get(kind)
            if told is Told.NOTHING or (told is Told.ECHO and self._heard_enough(kind)):
                continue
            if told is Told.SERVING:
                diagnoser.serving()
                continue
            told = self._line(shown(lines[index]), line_no + index)
            if not following and told is not Told.SOMETHING and len(kind) <= LONGEST_KIND:
                known[kind] = told
                self._known_bytes += len(kind) + KIND_BYTES
            if self._known_bytes > MOST_KIND_BYTES:
                known.clear()
                self._echoes.clear()
                self._known_bytes = 0

    def _heard_enough(self, kind: bytes) -> bool:
        """Of an error that was told before: other ranks say the same, and differ from it in digits alone."""
        if self._epoch != self._diagnoser.epoch:
            self._forget_echoes()
            return False
        self._echoes[kind] = heard = self._echoes.get(kind, 0) + 1
        return heard > ECHOES_READ

    def _forget_echoes(self) -> None:
        self._epoch = self._diagnoser.epoch
        self._echoes.clear()
