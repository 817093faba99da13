"""Which of the holders on a node are marked to be ended: what the zombies dialog changes and draws. Pure.

What may be marked is `core/left_over.py`'s; only what is pre-selected (left of our own ended runs) is marked from the
start. Another user's process is marked by its typed pid alone, a protected one never.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from supervisor.core import left_over
from supervisor.core.claim import Identity
from supervisor.core.holder import Holder
from supervisor.core.holder_words import alike
from supervisor.supervise.left_overs import LeftOvers


class Line(Struct, frozen=True):
    """One holder, or many alike that are told as one."""

    group: tuple[Holder, ...]
    why_not: str
    """Why it cannot be marked; empty where it can."""
    by_hand: bool
    """Its pid has to be typed."""

    @property
    def holder(self) -> Holder:
        """The first of the group."""
        return self.group[0]


class Choice:
    """The lines of one look, left-over ones first, and the marks on them."""

    def __init__(self, found: LeftOvers, before: Choice | None = None) -> None:
        self.found = found
        self.left: list[Line] = []
        self.others: list[Line] = []
        uid = found.snapshot.uid
        for group in self._groups():
            line = Line(group, left_over.why_not(group[0], uid), left_over.by_hand(group[0]))
            if group[0].zombie:
                self.left.append(line)
            elif group[0].held:
                self.others.append(line)
        self._marked: set[Identity] = set()
        for line in self.lines:
            known = before is not None and before.knows(line.holder)
            wanted = before.is_marked(line) if known and before is not None else line.holder.preselected
            if wanted and not line.why_not and (known or not line.by_hand):
                self._marked |= _identities(line)

    def _groups(self) -> Iterator[tuple[Holder, ...]]:
        for group in alike(self.found.holders):
            if left_over.by_hand(group[0]):  # each pid of another user's is typed: none is marked along with others
                yield from ((holder,) for holder in group)
            else:
                yield group

    @property
    def lines(self) -> list[Line]:
        """All of them, in the order in which they are shown."""
        return [*self.left, *self.others]

    def knows(self, holder: Holder) -> bool:
        """Whether it was in this look."""
        return any(holder.pid == item.pid and holder.start_ticks == item.start_ticks for item in self.found.holders)

    def is_marked(self, line: Line) -> bool:
        """Whether all of it will be ended."""
        return bool(_identities(line)) and _identities(line) <= self._marked

    def mark(self, line: Line, on: bool) -> None:
        """Mark a line that may be, or take its mark away."""
        if line.why_not:
            return
        self._marked = self._marked | _identities(line) if on else self._marked - _identities(line)

    @property
    def targets(self) -> tuple[Holder, ...]:
        """The holders that will be ended."""
        return tuple(holder for line in self.lines for holder in line.group if _identity(holder) in self._marked)


def _identity(holder: Holder) -> Identity:
    return (holder.pid or 0, holder.start_ticks or 0)


def _identities(line: Line) -> set[Identity]:
    return {_identity(holder) for holder in line.group if holder.pid is not None}
