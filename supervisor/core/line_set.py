"""A set of line numbers that is asked "the n-th", "how many before" and "the next after". Pure.

Ten million lines of a log may match: two bytes a line in blocks of 65,536, where a set of ints would take sixty.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

_BITS = 16
_MASK = (1 << _BITS) - 1


class LineSet:
    """Line numbers in rising order, each once. Numbers may be added in any order, runs of them are cheapest."""

    def __init__(self) -> None:
        self._blocks: dict[int, array[int]] = {}
        self._keys: list[int] = []
        self._before: list[int] = [0]  # how many stand before each block, and in all
        self._stale = False

    def __repr__(self) -> str:
        return f"<LineSet of {len(self)}>"

    def __len__(self) -> int:
        self._settle()
        return self._before[-1]

    def __contains__(self, line_no: object) -> bool:
        if not isinstance(line_no, int):
            return False
        block = self._blocks.get(line_no >> _BITS)
        if block is None:
            return False
        low = line_no & _MASK
        place = bisect_left(block, low)
        return place < len(block) and block[place] == low

    def __getitem__(self, index: int) -> int:
        """The line number at `index` (from 0)."""
        self._settle()
        if not 0 <= index < self._before[-1]:
            raise IndexError(index)
        at = bisect_right(self._before, index) - 1
        key = self._keys[at]
        return (key << _BITS) | self._blocks[key][index - self._before[at]]

    def __iter__(self) -> Iterator[int]:
        self._settle()
        for key in self._keys:
            base = key << _BITS
            for low in self._blocks[key]:
                yield base | low

    def add(self, lines: Sequence[int]) -> None:
        """Take line numbers, in rising order."""
        start = 0
        while start < len(lines):
            key = lines[start] >> _BITS
            end = bisect_left(lines, (key + 1) << _BITS, start)
            self._add_block(key, array("H", [line_no & _MASK for line_no in lines[start:end]]))
            start = end

    def _add_block(self, key: int, new: array[int]) -> None:
        self._stale = True
        old = self._blocks.get(key)
        if old is None:
            self._blocks[key] = new
        elif old[-1] < new[0]:
            old.extend(new)
        elif new[-1] < old[0]:
            self._blocks[key] = new + old
        else:
            self._blocks[key] = array("H", sorted({*old, *new}))

    def rank(self, line_no: int) -> int:
        """How many of the set are smaller than `line_no`."""
        self._settle()
        at = bisect_left(self._keys, line_no >> _BITS)
        if at == len(self._keys) or self._keys[at] != line_no >> _BITS:
            return self._before[at]
        return self._before[at] + bisect_left(self._blocks[self._keys[at]], line_no & _MASK)

    def after(self, line_no: int) -> int | None:
        """The smallest that is larger than `line_no`."""
        place = self.rank(line_no + 1)
        return self[place] if place < len(self) else None

    def before(self, line_no: int) -> int | None:
        """The largest that is smaller than `line_no`."""
        place = self.rank(line_no)
        return self[place - 1] if place else None

    def _settle(self) -> None:
        if self._stale:
            self._keys = sorted(self._blocks)
            self._before = [0, *accumulate(len(self._blocks[key]) for key in self._keys)]
            self._stale = False
