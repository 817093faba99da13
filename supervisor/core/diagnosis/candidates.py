"""The lines that may name the cause, and which of them does. Pure, bounded.

What stands nearest to the cause counts (the rank of its rule), and of equals what came first: the others are echoes of
it. A line after which the launch went on has killed nobody, and an error in one request is not the server's end.
"""

from __future__ import annotations

from msgspec import Struct

from supervisor.core.diagnosis.rulebook import Cause

MOST = 200
"""Candidates kept. Beyond that the weakest of the middle go: the first ones and the last ones are what matters."""
MOST_SPEAKERS = 16
WENT_ON = 25
"""So much less a line counts after which a later stage was seen."""
SURE_RANK = 60
"""From which rank on a line is surely the cause."""
OUTCOME_RANK = 43
"""What a line counts that tells how a process ended, after one that tells why: a little less than any exception."""


class Candidate(Struct, kw_only=True):
    """A line that may name the cause."""

    line_no: int
    order: int
    """How many lines were read before it: in a log that is told backwards the numbers fall."""
    text: str
    body: str
    rank: int
    speaker: str = ""
    name: str = ""
    """Of the exception, "" where it is none."""
    frames: tuple[str, ...] = ()
    cause: Cause | None = None
    request: bool = False
    """It stands in what one request alone has met."""
    went_on: bool = False
    """A later stage of the load came after it: perhaps of another rank, which did not know yet."""
    survived: bool = False
    """The server came up, or served, after it."""
    while_serving: bool = False
    after_stop: bool = False
    """Somebody had asked it to stop."""
    said_by: list[str] = []
    """Who said the same later."""

    @property
    def key(self) -> str:
        """What the same error of another rank has in common with it."""
        return f"{self.name} {self.body[:120]}" if self.cause is None else self.cause.rule.pattern

    @property
    def deadly(self) -> bool:
        """Whether it proves an end by itself, whenever it comes."""
        return self.cause is not None and (self.cause.rule.deadly or self.cause.rule.certain)


class Candidates:
    """All of one log, in the order in which they were read."""

    def __init__(self) -> None:
        self._kept: list[Candidate] = []
        self._by_key: dict[str, Candidate] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, candidate: Candidate) -> bool:
        """One more. The same from another process is an echo of the first; False for an echo."""
        known = self._by_key.get(candidate.key)
        same = known is not None and known.rank >= candidate.rank and known.request == candidate.request
        if known is not None and same and not known.survived:
            if _restated(known, candidate):
                self._replace(known, candidate)
                return True
            if len(known.said_by) < MOST_SPEAKERS and candidate.speaker not in (known.speaker, *known.said_by):
                known.said_by.append(candidate.speaker)
            return False
        self._by_key[candidate.key] = candidate
        self._kept.append(candidate)
        if len(self._kept) > MOST:
            weakest = min(
                self._kept[MOST // 4 : -MOST // 4], key=lambda item: (not item.survived, item.rank, item.order)
            )
            self._kept.remove(weakest)
            if self._by_key.get(weakest.key) is weakest:
                del self._by_key[weakest.key]
        return True

    def _replace(self, known: Candidate, candidate: Candidate) -> None:
        candidate.order = known.order
        self._kept[self._kept.index(known)] = candidate
        self._by_key[candidate.key] = candidate

    def went_on(self) -> None:
        """The load came to a later stage."""
        for candidate in self._kept:
            candidate.went_on = True

    def survived(self) -> bool:
        """The server is up: none of those that are known has stopped it. True where that was not known of all."""
        news = any(not candidate.survived for candidate in self._kept)
        for candidate in self._kept:
            candidate.survived = True
        return news

    def best(self, *, ended: bool) -> list[Candidate]:
        """The candidates that can be the cause, best first.

        Args:
            ended: there are signs that the server has come to an end, so that what came while it served counts too.
        """
        counting = [item for item in self._kept if _counts(item, ended=ended)]
        uncaught = min((item.order for item in counting if _tells_why(item)), default=None)

        def weight(item: Candidate) -> int:
            rank = item.rank - (WENT_ON if item.went_on else 0)
            follows = uncaught is not None and item.order > uncaught and _is_outcome(item)
            return min(rank, OUTCOME_RANK) if follows else rank

        return sorted(counting, key=lambda item: (item.survived, -weight(item), item.order))


def _tells_why(item: Candidate) -> bool:
    """Whether it is an exception that nobody caught, or a cause that a rule is sure of."""
    return (bool(item.frames) or (item.cause is not None and item.rank >= SURE_RANK)) and not _is_outcome(item)


def _is_outcome(item: Candidate) -> bool:
    return item.cause is not None and item.cause.rule.outcome


def _restated(known: Candidate, candidate: Candidate) -> bool:
    """Whether a logger told the bare message, and its traceback names the exception now."""
    return not known.name and bool(candidate.frames) and bool(known.body) and candidate.body.endswith(known.body)


def _counts(item: Candidate, *, ended: bool) -> bool:
    if item.deadly:
        return True
    if item.request or item.survived or item.after_stop:
        return False
    return ended or not (item.while_serving or item.went_on)
