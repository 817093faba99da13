"""How much of a load is done and how long the rest takes: stages of the log, memory, earlier runs → an estimate. Pure.

A load is a row of segments: a stage, and its second and third time where a draft model is loaded or graphs are
captured in two rounds. An earlier run tells how long each of them took and how its bar moved; without one, the present
bar is extrapolated and the rest is what the engine's file calls typical. Where neither says anything there is no
estimate: it never claims what it has not seen. It decides nothing and never raises, whatever comes in which order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from msgspec import Struct

from supervisor.core.engine import LoadStage
from supervisor.core.pace import Bar

MAX_SEGMENTS = 64
"""Of one run: a log can be anybody's."""
WEIGHTS = "weights"
"""The one stage whose bytes are known before."""
QUIET_BAR_S = 15.0
"""A bar in the log is better than memory, unless it has stood still for this long."""
FAR_MORE = 3.0
"""A stage without a bar that takes this many times what it took before: nothing supports an estimate any more."""
CALM_S = (1.0, 15.0)
"""A jump of the estimate is shown over at least and at most this time."""


class Mark(Struct, frozen=True, kw_only=True):
    """A segment of an earlier run."""

    stage: str
    nth: int = 1
    """The stage's first, second … time in that run."""
    at_s: float
    """Since the launch."""
    curve: tuple[tuple[float, float], ...] = ()
    """How its bar moved: seconds since the segment's begin, fraction."""


class Past(Struct, frozen=True, kw_only=True):
    """An earlier load, from the launch to the first accepted answer."""

    marks: tuple[Mark, ...]
    total_s: float


class Estimate(Struct, frozen=True, kw_only=True):
    """What is known at one moment."""

    eta_s: float | None = None
    """Until the first accepted answer."""
    overall: float | None = None
    """The part of the whole load that is done, 0 to 1."""
    fraction: float | None = None
    """The part of the present stage, where memory tells it and the log does not."""
    rests_on: str = ""
    """`history`, `log bar`, `memory`, or `typical` (earlier stages were measured, this one has nothing to measure)."""


class _Segment:
    def __init__(self, stage: str, nth: int, at: float, *, timed: bool) -> None:
        self.stage = stage
        self.nth = nth
        self.at = at
        self.timed = timed
        self.bar = Bar()
        self.memory = Bar()

    @property
    def key(self) -> tuple[str, int]:
        return self.stage, self.nth

    def best(self, now: float) -> Bar:
        """The bar that tells most: the log's, unless memory moves and it does not."""
        if self.bar.last is None or self.bar.last[1] <= 0:
            return self.memory if self.memory.last is not None else self.bar
        stands = now - self.bar.last[0] > QUIET_BAR_S
        moved = self.memory.last is not None and self.memory.last[0] > self.bar.last[0]
        return self.memory if stands and moved and self.memory.fraction > self.bar.fraction else self.bar


class Estimator:
    """One run's. Feed it with what is seen, and ask it as often as you like.

    Args:
        load: the engine's stages in their usual order.
        past: earlier runs, the newest first.
        began_at: when the run was launched.
        weights_bytes: of the model on the disk, None where they are not known.
    """

    def __init__(
        self, load: Sequence[LoadStage], past: Iterable[Past] = (), *, began_at: float, weights_bytes: int | None = None
    ) -> None:
        self._typical = {part.stage: max(0.0, part.typical_s) for part in load}
        self._past = [item for item in past if item.marks and math.isfinite(item.total_s) and item.total_s > 0]
        self._began_at = began_at
        self._weights_bytes = weights_bytes if weights_bytes and weights_bytes > 0 else None
        self._segments: list[_Segment] = []
        self._by_stage: dict[str, _Segment] = {}
        self._memory_base: int | None = None
        self._latest = began_at
        self._shown: tuple[float, float] | None = None
        self._overall = 0.0

    # ------------------------------------------------------------------------------------ what is seen

    def stage(self, at: float, stage: str, fraction: float | None = None, *, timed: bool = True) -> None:
        """A line of the log told a stage. `timed` False: the line is older than `at`, nobody knows by how much."""
        at = self._not_back(at)
        known = self._by_stage.get(stage)
        again = known is not None and fraction is not None and known.bar.fraction >= 0.99 and fraction < 0.5
        if known is None or again:
            if len(self._segments) >= MAX_SEGMENTS:
                return
            known = _Segment(stage, known.nth + 1 if known is not None else 1, at, timed=timed)
            self._segments.append(known)
            self._by_stage[stage] = known
            self._memory_base = None
        if fraction is not None:
            known.bar.put(at, fraction)

    def memory(self, at: float, held_bytes: int) -> None:
        """What the run holds of the memory that the weights go into; counts while the weights are loaded."""
        at = self._not_back(at)
        segment = self._segments[-1] if self._segments else None
        if segment is None or segment.stage != WEIGHTS or segment.nth > 1 or self._weights_bytes is None:
            return
        if self._memory_base is None or held_bytes < self._memory_base:
            self._memory_base = held_bytes
        segment.memory.put(at, min(1.0, (held_bytes - self._memory_base) / self._weights_bytes))

    def _not_back(self, at: float) -> float:
        if math.isfinite(at):
            self._latest = max(self._latest, at)
        return self._latest

    # ------------------------------------------------------------------------------------ what it comes to

    def estimate(self, now: float, *, calm: bool = True) -> Estimate:
        """The rest of the load, as far as anything supports one. `calm` False: at once, whatever was said before."""
        now = self._not_back(now)
        if not calm:
            self._shown = None
        if not self._segments:
            return self._told(now, *self._before_the_first(now))
        segment = self._segments[-1]
        bar = segment.best(now)
        fraction = bar.fraction if bar is segment.memory and bar.last is not None else None
        left_s, rests_on = self._by_history(segment, now), "history"
        if left_s is None:
            left_s, rests_on = self._without(segment, now)
        return self._told(now, left_s, rests_on, fraction)

    def _before_the_first(self, now: float) -> tuple[float | None, str]:
        """Nothing was said yet: an earlier run knows when its first line came."""
        gone_s = now - self._began_at
        rests = [
            max(past.total_s - gone_s, past.total_s - past.marks[0].at_s)
            for past in self._past
            if gone_s <= past.marks[0].at_s * FAR_MORE + 10.0
        ]
        return (_median([(rest, 1.0) for rest in rests]), "history") if rests else (None, "")

    def _told(self, now: float, left_s: float | None, rests_on: str, fraction: float | None = None) -> Estimate:
        if left_s is None or not math.isfinite(left_s):
            self._shown = None
            return Estimate(fraction=fraction)
        left_s = max(0.0, left_s)
        if self._shown is not None:
            before, at = self._shown
            expected = max(0.0, before - (now - at))
            calm_s = min(CALM_S[1], max(CALM_S[0], 0.1 * left_s))
            left_s = expected + (left_s - expected) * (1.0 - math.exp(-(now - at) / calm_s))
        self._shown = (left_s, now)
        gone_s = max(0.0, now - self._began_at)
        if gone_s + left_s > 0:
            self._overall = max(self._overall, min(1.0, gone_s / (gone_s + left_s)))
        return Estimate(eta_s=left_s, overall=self._overall, fraction=fraction, rests_on=rests_on)

    # ------------------------------------------------------------------------------------ with earlier runs

    def _by_history(self, segment: _Segment, now: float) -> float | None:
        rests: list[tuple[float, float]] = []
        for age, past in enumerate(self._past):
            left_s = self._by(past, segment, now)
            if left_s is not None:
                rests.append((left_s, 0.7**age * self._likeness(past)))
        return _median(rests)

    def _by(self, past: Past, segment: _Segment, now: float) -> float | None:
        places = {(mark.stage, mark.nth): index for index, mark in enumerate(past.marks)}
        place = places.get(segment.key)
        if place is not None:
            mark, end_s = past.marks[place], _end_s(past, place)
            here_s = self._rest_of(segment, mark, end_s - mark.at_s, now)
            return None if here_s is None else here_s + max(0.0, past.total_s - end_s)
        # It has a stage that the earlier run had not: what that one did after the last stage they have in common.
        for earlier in reversed(self._segments[:-1]):
            place = places.get(earlier.key)
            if place is not None:
                bar = segment.best(now)
                here_s = bar.left_s(now)
                if here_s is None and now - segment.at > 60.0 + FAR_MORE * self._typical.get(segment.stage, 0.0):
                    return None
                return (here_s or 0.0) + max(0.0, past.total_s - _end_s(past, place))
        return None

    def _rest_of(self, segment: _Segment, mark: Mark, took_s: float, now: float) -> float | None:
        """The rest of the present segment by the same one of an earlier run, at the present pace."""
        took_s, gone_s = max(0.0, took_s), max(0.0, now - segment.at)
        bar = segment.best(now)
        if mark.curve and bar is segment.bar and bar.last is not None:
            there_s = _time_of(mark.curve, bar.fraction)
            here_s = bar.last[0] - segment.at
            pace = 1.0
            if segment.timed:
                # What both have behind them weighs little at first: a second early is no tenth of the whole.
                prior_s = 0.5 + 0.1 * took_s
                pace = min(5.0, max(0.2, (here_s + prior_s) / (there_s + prior_s)))
            left_s = max(0.0, took_s - there_s) * pace
            return max(0.05 * left_s, left_s - (now - bar.last[0]))
        if bar.last is not None and bar is segment.memory and (left_s_ := bar.left_s(now)) is not None:
            return left_s_
        if not segment.timed:
            return max(0.1 * took_s, took_s / 2 - gone_s)
        if gone_s > FAR_MORE * took_s + 30.0:
            return None
        return max(took_s - gone_s, 0.1 * min(gone_s, took_s))

    def _likeness(self, past: Past) -> float:
        """How like this run an earlier one was so far, by the longest segment that both have behind them."""
        places = {(mark.stage, mark.nth): index for index, mark in enumerate(past.marks)}
        best, ours_s = 1.0, 0.0
        for segment, after in zip(self._segments, self._segments[1:], strict=False):
            place = places.get(segment.key)
            took_s = after.at - segment.at
            if place is None or not segment.timed or took_s <= ours_s:
                continue
            theirs_s = _end_s(past, place) - past.marks[place].at_s
            ours_s, best = took_s, math.exp(-min(3.0, abs(math.log((took_s + 1.0) / (max(0.0, theirs_s) + 1.0)))))
        return best

    # ------------------------------------------------------------------------------------ without any

    def _without(self, segment: _Segment, now: float) -> tuple[float | None, str]:
        bar = segment.best(now)
        measured = any(item.bar.measured or item.memory.measured for item in self._segments)
        if not measured or segment.stage not in self._typical:
            return None, ""
        rest_s = self._rest_of_the_others() * self._scale(now)
        left_s = bar.left_s(now)
        if left_s is not None:
            return left_s + rest_s, "memory" if bar is segment.memory else "log bar"
        if bar.last is not None and 0.0 < bar.fraction < 0.99:
            return None, ""  # its first steps: too few to go by
        typical_s = self._typical[segment.stage] * self._scale(now)
        gone_s = now - (bar.last[0] if bar.last is not None else segment.at)
        if bar.last is not None:
            typical_s = min(2.0, typical_s)  # its bar is full: what comes behind one is short
        if gone_s > FAR_MORE * typical_s + 10.0:
            return None, ""
        return max(typical_s - gone_s, 0.15 * typical_s) + rest_s, "typical"

    def _rest_of_the_others(self) -> float:
        """What the stages behind the furthest one take, by the engine's file."""
        order = list(self._typical)
        furthest = max((order.index(stage) for stage in self._by_stage if stage in self._typical), default=-1)
        return sum(self._typical[stage] for stage in order[furthest + 1 :])

    def _scale(self, now: float) -> float:
        """A model whose weights take four times as long takes about twice as long elsewhere."""
        segment = next((item for item in self._segments if item.stage == WEIGHTS), None)
        typical_s = self._typical.get(WEIGHTS, 0.0)
        if segment is None or typical_s <= 0:
            return 1.0
        bar = segment.best(now)
        left_s = bar.left_s(now)
        if bar.last is None or (left_s is None and bar.fraction < 0.99):
            return 1.0
        whole_s = bar.last[0] - segment.at + (left_s or 0.0)
        return min(3.0, max(0.4, math.sqrt(whole_s / typical_s)))

    # ------------------------------------------------------------------------------------ for the next time

    def record(self, now: float) -> Past:
        """This run as an earlier one of the next: it has come up at `now`."""
        now = self._not_back(now)
        marks = tuple(
            Mark(
                stage=item.stage,
                nth=item.nth,
                at_s=round(max(0.0, item.at - self._began_at), 3),
                curve=item.bar.curve(item.at),
            )
            for item in self._segments
        )
        return Past(marks=marks, total_s=round(max(0.0, now - self._began_at), 3))


def _end_s(past: Past, place: int) -> float:
    after = past.marks[place + 1].at_s if place + 1 < len(past.marks) else past.total_s
    return max(past.marks[place].at_s, min(after, past.total_s))


def _time_of(curve: Sequence[tuple[float, float]], fraction: float) -> float:
    """When that bar stood there, in seconds since its segment's begin; between two points on the line."""
    before_s, before = 0.0, 0.0
    for at_s, there in curve:
        if there >= fraction:
            share = (fraction - before) / (there - before) if there > before else 1.0
            return before_s + (at_s - before_s) * min(1.0, max(0.0, share))
        before_s, before = at_s, there
    return before_s


def _median(values: Sequence[tuple[float, float]]) -> float | None:
    """The weighted middle one, None of nothing."""
    total = sum(weight for _, weight in values)
    seen = 0.0
    for value, weight in sorted(values):
        seen += weight
        if seen >= total / 2:
            return value
    return None
