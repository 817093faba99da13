"""What was seen in the last minutes, for whoever draws it: fed with events, bounded in memory. Pure.

A series keeps one value for each two seconds of the operator's clock. Where that clock is set back, what now lies in
the future is forgotten; where it is set forward, the gap stays a gap. Nothing is ever made up between two samples.
"""

from __future__ import annotations

import math
from array import array
from collections import deque

from msgspec import Struct

from supervisor.core import events as ev
from supervisor.core.events import Owner, Phase, Verdict
from supervisor.core.gpu import DriverState
from supervisor.core.gpu_events import GpuEvent

SPAN_S = 300.0
SLOT_S = 2.0
PROBES = 240
MOST_GPUS = 1024
"""UUIDs come from the node: a driver that makes up new ones must not fill our memory."""
RATE_POINTS = 64
RATE_AFTER_S = 5.0
"""A rate of less time than this says nothing."""
STALLED_S = 20.0
"""A stage that stands still for longer (or for three of its own steps) has no rate any more."""
_NAN = float("nan")


class Series:
    """One figure over the last five minutes, a value a slot; the last one in a slot stands."""

    __slots__ = ("_last", "_slot_s", "_values")

    def __init__(self, *, span_s: float = SPAN_S, slot_s: float = SLOT_S) -> None:
        self._slot_s = slot_s
        self._values = array("d", [_NAN]) * math.ceil(span_s / slot_s)
        self._last: int | None = None

    def put(self, at: float, value: float | None) -> None:
        """A sample; None: it could not be read."""
        if not math.isfinite(at):
            return
        slot, size = math.floor(at / self._slot_s), len(self._values)
        if self._last is not None:
            low, high = sorted((slot, self._last))
            for stale in range(low + 1, min(high, low + size) + 1):
                self._values[stale % size] = _NAN
        self._last = slot
        self._values[slot % size] = _NAN if value is None else value

    def spans(self, now: float, count: int) -> list[float | None]:
        """The last `count` equal spans up to now, oldest first: the mean of each, None where nothing was seen.

        The spans lie on a fixed grid of the clock, so that a picture moves by whole columns and does not flicker.
        """
        if self._last is None or count <= 0 or not math.isfinite(now):
            return [None] * max(0, count)
        size, last = len(self._values), self._last
        wide = math.ceil(size / count)
        # What came last may be a moment newer than `now`.
        here = max(math.floor(now / self._slot_s), last) // wide
        turn = (last + 1) % size
        known = [*self._values[turn:], *self._values[:turn]]  # slots last - size + 1 to last
        first = (here - count + 1) * wide - (last - size + 1)
        return [_mean(known[max(0, at) : max(0, at + wide)]) for at in range(first, first + count * wide, wide)]


def _mean(values: list[float]) -> float | None:
    """Of those that are known."""
    total = sum(values)
    if total != total:  # one of them is not a number
        values = [value for value in values if value == value]
        total = sum(values)
    return total / len(values) if values else None


class GpuTrail(Struct):
    """One GPU."""

    used_bytes: Series
    percent: Series
    seen_at: float = 0.0


class Probe(Struct, frozen=True):
    """One answer of the health endpoint, or several alike in a row within a second."""

    at: float
    status: int | None
    verdict: Verdict
    ms: float
    count: int
    owner: Owner = Owner.NOT_CHECKED


class Trail:
    """The histories of one session."""

    def __init__(self) -> None:
        self.gpus: dict[str, GpuTrail] = {}
        """By UUID."""
        self.probes: deque[Probe] = deque(maxlen=PROBES)
        """Of this run, oldest first."""
        self.metrics: ev.Metrics | None = None
        """The last that the engine told in this run."""
        self.running, self.queued = Series(), Series()
        self.generated_tokens_s, self.prompt_tokens_s = Series(), Series()
        self.cache_share = Series()
        self._sampled_at = -math.inf
        self._stage = ""
        self._points: deque[tuple[float, float]] = deque(maxlen=RATE_POINTS)  # (at, fraction) of this stage

    def begin(self, gpu: GpuEvent | None, health: ev.Health | None, progress: ev.Progress | None) -> None:
        """What was known before the first event."""
        for event in (gpu, health, progress):
            if event is not None:
                self.take(event)

    def take(self, event: ev.AnyEvent) -> None:
        """One event of the stream; most are none of ours."""
        match event:
            case GpuEvent():
                self._gpus(event)
            case ev.Health():
                self._probe(event)
            case ev.Progress():
                self._progress(event)
            case ev.Metrics():
                self._load(event)
            case ev.PhaseChanged() if event.to is Phase.PREFLIGHT:
                self._new_run()
            case _:
                pass

    def _new_run(self) -> None:
        """The GPUs' histories go on; everything of a server begins anew."""
        self.probes.clear()
        self.metrics = None
        self.running, self.queued = Series(), Series()
        self.generated_tokens_s, self.prompt_tokens_s = Series(), Series()
        self.cache_share = Series()
        self._stage = ""
        self._points.clear()

    # ------------------------------------------------------------------------------- GPUs

    def _gpus(self, event: GpuEvent) -> None:
        at = event.sampled_at if event.sampled_at is not None else event.at
        if event.driver.state is not DriverState.OK or not math.isfinite(at):
            return  # it repeats what was known: that is no new sample
        for gpu in event.gpus[:MOST_GPUS]:
            trail = self.gpus.get(gpu.uuid)
            if trail is None:
                trail = self.gpus[gpu.uuid] = GpuTrail(Series(), Series())
            trail.seen_at = at
            trail.used_bytes.put(at, gpu.memory.used_bytes)
            trail.percent.put(at, gpu.gpu_percent)
        if len(self.gpus) > len(event.gpus):
            for uuid in [uuid for uuid, trail in self.gpus.items() if abs(at - trail.seen_at) > SPAN_S]:
                del self.gpus[uuid]
        while len(self.gpus) > MOST_GPUS:
            del self.gpus[next(iter(self.gpus))]

    # ------------------------------------------------------------------------------- health, metrics

    def _probe(self, event: ev.Health) -> None:
        probe = Probe(event.at, event.status, event.verdict, event.ms, event.count, event.owner)
        if self.probes and (last := self.probes[-1]).at == probe.at and last.verdict is probe.verdict:
            self.probes.pop()  # the same one, told by the view before
        self.probes.append(probe)

    def _load(self, event: ev.Metrics) -> None:
        self.metrics = event
        self.running.put(event.at, event.running)
        self.queued.put(event.at, event.queued)
        self.generated_tokens_s.put(event.at, event.generated_tokens_s)
        self.prompt_tokens_s.put(event.at, event.prompt_tokens_s)
        self.cache_share.put(event.at, event.cache_share)

    # ------------------------------------------------------------------------------- the load

    def _progress(self, event: ev.Progress) -> None:
        fraction = event.fraction
        set_back = bool(self._points) and (
            event.at < self._points[-1][0] or (fraction is not None and fraction < self._points[-1][1])
        )
        if event.stage != self._stage or set_back:
            self._stage = event.stage
            self._points.clear()
        if fraction is not None and (not self._points or fraction > self._points[-1][1]):
            self._points.append((event.at, fraction))

    def stage_left_s(self, now: float) -> float | None:
        """How long the present stage still takes at the rate of its last steps, None where that says nothing."""
        if len(self._points) < 3:
            return None
        (began, first), (last, fraction) = self._points[0], self._points[-1]
        took_s, still_s = last - began, now - last
        if took_s < RATE_AFTER_S or fraction >= 1.0:
            return None
        step_s = took_s / (len(self._points) - 1)
        if not 0 <= still_s <= max(STALLED_S, 3 * step_s):
            return None
        left_s = (1.0 - fraction) * took_s / (fraction - first)
        return max(0.0, left_s - still_s)
