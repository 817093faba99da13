"""Which bytes of a file are at hand: a set of offsets, kept as ranges. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class Ranges:
    """Ranges [start, end), disjoint, in order; those that touch are one."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self.total = 0
        """How many bytes they are together."""

    def __repr__(self) -> str:
        return f"<Ranges {list(self)}>"

    def __iter__(self) -> zip[tuple[int, int]]:
        return zip(self._starts, self._ends, strict=True)

    def add(self, start: int, end: int) -> None:
        """Take in a range, whatever of it is there already."""
        if start >= end:
            return
        if self._ends and start == self._ends[-1]:  # a log grows at its end
            self._ends[-1] = end
            self.total += end - start
            return
        first = bisect_left(self._ends, start)
        last = bisect_right(self._starts, end)
        if first < last:
            start = min(start, self._starts[first])
            end = max(end, self._ends[last - 1])
        self._put(first, last, [(start, end)])

    def remove(self, start: int, end: int) -> None:
        """Take out a range, whatever of it is there."""
        first = bisect_right(self._ends, start)
        last = bisect_left(self._starts, end)
        if first >= last or start >= end:
            return
        left = [(self._starts[first], start), (end, self._ends[last - 1])]
        self._put(first, last, [(a, b) for a, b in left if a < b])

    def _put(self, first: int, last: int, ranges: list[tuple[int, int]]) -> None:
        self.total -= sum(self._ends[first:last]) - sum(self._starts[first:last])
        self.total += sum(b - a for a, b in ranges)
        self._starts[first:last] = [a for a, _ in ranges]
        self._ends[first:last] = [b for _, b in ranges]

    def run_end(self, offset: int) -> int:
        """Where the range ends that `offset` lies in; `offset` itself where it lies in none."""
        at = bisect_right(self._starts, offset) - 1
        return max(offset, self._ends[at]) if at >= 0 else offset

    def run_start(self, offset: int) -> int:
        """Where the range begins that the byte before `offset` lies in; `offset` itself where it lies in none."""
        at = bisect_left(self._starts, offset) - 1
        return self._starts[at] if at >= 0 and self._ends[at] >= offset else offset

    def next_start(self, offset: int) -> int | None:
        """Where the first range begins at or after `offset`."""
        at = bisect_left(self._starts, offset)
        return self._starts[at] if at < len(self._starts) else None

    def holds(self, start: int, end: int) -> bool:
        """Whether all of [start, end) is there."""
        return self.run_end(start) >= end or start >= end

    def gaps(self, start: int, end: int) -> list[tuple[int, int]]:
        """What of [start, end) is not there."""
        out = []
        at = bisect_right(self._ends, start)
        while start < end and at < len(self._starts) and self._starts[at] < end:
            if self._starts[at] > start:
                out.append((start, self._starts[at]))
            start = max(start, self._ends[at])
            at += 1
        if start < end:
            out.append((start, end))
        return out
