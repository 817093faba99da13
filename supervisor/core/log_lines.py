r"""Blocks of a log into the lines that a front end shows, for one reader. Pure.

Goes on across blocks. A reader that was too slow misses whole blocks: it is told of each by `skip`, begins again at the
next line that it has whole, and the line says how many were missed.
"""

from __future__ import annotations

from supervisor.core import events as ev
from supervisor.core.lines import Line, LineSplitter


class LogLines:
    """`take` blocks in the order of the stream.

    Args:
        clean: False where the first block may begin within a line; what is left of that line is not shown then.
    """

    def __init__(self, *, clean: bool = True) -> None:
        self._clean = clean
        self._splitter: LineSplitter | None = None
        self._next_line: int | None = None
        """The first line that has not been given whole. None: none was ever seen."""
        self._here: tuple[int, int] = (-1, 0)
        """Offset and line number of the next byte, if nothing falls out."""
        self._at_start = False
        """The next byte, if nothing falls out, begins a line."""
        self._gap = False
        self._dropped = 0

    def skip(self, block: ev.LogBlock) -> None:
        """This block fell out: count its lines, of which none is shown."""
        if block.fresh or self._next_line is None:
            self._begin(block)
        self._gap = True
        self._pass(block)

    def take(self, block: ev.LogBlock) -> list[ev.Log]:
        """The lines that it completes, and the living one that it leaves."""
        if block.fresh or self._next_line is None:
            self._begin(block)
        data = block.data
        if self._splitter is None or self._gap or block.offset != self._splitter.offset:
            start = self._start(block)
            if start is None:
                self._gap = True
                self._pass(block)
                return []
            before = block.line_no - 1 + (1 if start else 0)
            self._dropped += max(0, before + 1 - (self._next_line or 1))
            self._splitter = LineSplitter(offset=block.offset + start, lines_before=before)
            self._gap = False
            data = data[start:] if start else data
        lines = self._splitter.feed(data)
        self._pass(block)
        self._next_line = self._splitter.line_no
        return self._told(block.at, lines)

    def _begin(self, block: ev.LogBlock) -> None:
        """A file is seen for the first time. What was missed of the one before stays counted."""
        if self._next_line is not None:
            self._dropped += max(0, self._here[1] - self._next_line)
        self._at_start = self._clean or self._next_line is not None
        self._next_line = block.line_no if self._at_start else block.line_no + 1
        self._here = (block.offset, block.line_no)
        self._splitter, self._gap = None, False

    def _start(self, block: ev.LogBlock) -> int | None:
        """Where the first line begins that is whole. None: not in this block."""
        if block.offset == block.run_offset:
            self._next_line = block.line_no  # whatever came before was not of this run
            return 0
        if self._at_start and block.offset == self._here[0]:
            return 0
        end = block.data.find(b"\n")
        return None if end == -1 else end + 1

    def _pass(self, block: ev.LogBlock) -> None:
        if block.data:
            self._at_start = block.data.endswith(b"\n")
        self._here = (block.offset + len(block.data), block.line_no + block.lines)

    def _told(self, at: float, lines: list[Line]) -> list[ev.Log]:
        out = [
            ev.Log(at=at, text=line.text, line_no=line.line_no, offset=line.offset, living=line.living)
            for line in lines
        ]
        if out and self._dropped:
            first = out[0]
            out[0] = ev.Log(
                at=at,
                text=first.text,
                line_no=first.line_no,
                offset=first.offset,
                living=first.living,
                dropped=self._dropped,
            )
            self._dropped = 0
        return out


def redraws(new: ev.Log, old: ev.Log) -> bool:
    """Whether `new` is the same line, drawn anew: what it replaces is no line that anybody missed."""
    return old.living and old.line_no == new.line_no
