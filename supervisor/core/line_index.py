r"""Where the lines of a log are in its file, sparsely: a mark every so many bytes. Pure, and holds no text.

What of the file was ever seen lies in spans, whose line numbers are known; between them are holes, of which only both
ends are. A span stays though its bytes may have been let go, so that they can be asked for again by their offset. A
line is found by its number within the bytes between two marks; whoever has the bytes looks for the `\n` there.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

from msgspec import Struct

MARK_BYTES = 64 * 1024


class Place(Struct, frozen=True):
    r"""Where a line begins: behind the `newlines`-th `\n` from `start` on, which is found before `end`."""

    start: int
    end: int
    newlines: int


class Hole(Struct, frozen=True):
    """Bytes that were never seen, and the numbers of the lines that the bytes at both ends belong to."""

    start: int
    end: int
    first_line: int
    last_line: int


class Span:
    """Bytes in a row that were seen."""

    __slots__ = ("begins_line", "end", "first_line", "lines", "next_line", "offsets", "start")

    def __init__(self, start: int, line_no: int, *, begins_line: bool) -> None:
        self.start = self.end = start
        self.first_line = self.next_line = line_no
        """Numbers of the lines that the first byte, and the one behind the last, belong to."""
        self.begins_line = begins_line
        """Whether its first byte is known to begin a line."""
        self.offsets = array("q", [start])
        self.lines = array("q", [line_no])

    def __repr__(self) -> str:
        return f"<Span {self.start}-{self.end}, lines {self.first_line}-{self.next_line}>"


class LineIndex:
    """Spans in the order of the file."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def __repr__(self) -> str:
        return f"<LineIndex {self.spans}>"

    @property
    def end(self) -> int:
        """The offset behind the last byte that was seen."""
        return self.spans[-1].end if self.spans else 0

    def add(
        self, offset: int, line_no: int, data: bytes, lines: int, *, begins_line: bool = False, mark: bool = False
    ) -> None:
        r"""Bytes that no span has yet, at most a few marks' worth at once.

        `lines`: how many `\n` they have. `begins_line`: it is known that the first byte begins one. `mark`: set a mark
        at `offset`, however near the last one is. Raises `ValueError` where the numbers contradict what is known.
        """
        at = bisect_right(self.spans, offset, key=_start)
        before = self.spans[at - 1] if at else None
        after = self.spans[at] if at < len(self.spans) else None
        end, next_line = offset + len(data), line_no + lines
        if (before is not None and before.end > offset) or (after is not None and after.start < end):
            raise ValueError("these bytes were seen already")
        joins_before = before is not None and before.end == offset
        joins_after = after is not None and after.start == end
        if before is not None and (before.next_line > line_no or (joins_before and before.next_line != line_no)):
            raise ValueError("the line numbers do not fit what comes before")
        if after is not None and (after.first_line < next_line or (joins_after and after.first_line != next_line)):
            raise ValueError("the line numbers do not fit what comes after")
        if not data:
            return
        if before is not None and joins_before:
            span = before
        else:
            span = Span(offset, line_no, begins_line=begins_line)
            self.spans.insert(at, span)
            at += 1
        self._extend(span, offset, line_no, data, mark=mark)
        span.end, span.next_line = end, next_line
        if after is not None and joins_after:
            span.offsets.extend(after.offsets)
            span.lines.extend(after.lines)
            span.end, span.next_line = after.end, after.next_line
            del self.spans[at]

    def _extend(self, span: Span, offset: int, line_no: int, data: bytes, *, mark: bool) -> None:
        if offset > span.start and (mark or offset - span.offsets[-1] >= MARK_BYTES):
            span.offsets.append(offset)
            span.lines.append(line_no)
        for start in range(MARK_BYTES, len(data), MARK_BYTES):
            line_no += data.count(b"\n", start - MARK_BYTES, start)
            span.offsets.append(offset + start)
            span.lines.append(line_no)

    def place(self, line_no: int) -> Place | None:
        """Where the line begins; None where no bytes were seen that tell. The line behind the last one has a place."""
        at = bisect_left(self.spans, line_no, key=_first_line)
        if at and line_no <= (span := self.spans[at - 1]).next_line:
            mark = bisect_left(span.lines, line_no) - 1
            end = span.offsets[mark + 1] if mark + 1 < len(span.offsets) else span.end
            return Place(span.offsets[mark], end, line_no - span.lines[mark])
        if at < len(self.spans) and (span := self.spans[at]).first_line == line_no and span.begins_line:
            return Place(span.start, span.start, 0)
        return None

    def mark_before(self, offset: int) -> tuple[int, int] | None:
        """The last mark at or before a byte that was seen: its offset, and the number of the line there."""
        at = bisect_right(self.spans, offset, key=_start) - 1
        if at < 0 or offset > self.spans[at].end:
            return None
        span = self.spans[at]
        mark = bisect_right(span.offsets, offset) - 1
        return span.offsets[mark], span.lines[mark]

    def line_at(self, offset: int) -> int | None:
        """Number of the line that a byte belongs to, where a mark stands there or a span ends; else None."""
        found = self.mark_before(offset)
        if found is not None and found[0] == offset:
            return found[1]
        at = bisect_left(self.spans, offset, key=_end)
        return self.spans[at].next_line if at < len(self.spans) and self.spans[at].end == offset else None

    def mark_after(self, offset: int) -> int:
        """The first mark behind a byte that was seen, or the end of its span."""
        span = self.spans[bisect_right(self.spans, offset, key=_start) - 1]
        mark = bisect_right(span.offsets, offset)
        return span.offsets[mark] if mark < len(span.offsets) else span.end

    def holes(self, offset: int, line_no: int) -> list[Hole]:
        """What was not seen from `offset` on, which is where line `line_no` begins, up to the last span."""
        out = []
        for span in self.spans:
            if span.start > offset:
                out.append(Hole(offset, span.start, line_no, span.first_line))
            if span.end > offset:
                offset, line_no = span.end, span.next_line
        return out


def _start(span: Span) -> int:
    return span.start


def _end(span: Span) -> int:
    return span.end


def _first_line(span: Span) -> int:
    return span.first_line
