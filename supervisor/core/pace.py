"""A bar that fills: its last steps, and how long it still takes at their rate. Pure; never raises.

Bars start slow (the first graph captured takes a hundred times the last) and can end slow, so neither the first steps
nor the average alone are gone by.
"""

from __future__ import annotations

import math

STEPS = 120
"""As many are kept; of more, every second one goes."""
CURVE = 24
"""Points of a bar that are kept for later runs."""
LEAST_S = 1.0
"""Steps within less than this tell no rate: they came out of a pipe at once."""
LEAST_FRACTION = 0.08


class Bar:
    """Only what goes on counts: a step back, of another rank's bar, is passed over."""

    def __init__(self) -> None:
        self._steps: list[tuple[float, float]] = []

    @property
    def last(self) -> tuple[float, float] | None:
        """When it moved last, and to where."""
        return self._steps[-1] if self._steps else None

    @property
    def fraction(self) -> float:
        """How far it is, 0 without any step."""
        return self._steps[-1][1] if self._steps else 0.0

    @property
    def measured(self) -> bool:
        """Whether it ever got anywhere."""
        return self.fraction >= LEAST_FRACTION

    def put(self, at: float, fraction: float) -> None:
        """One step."""
        if not (math.isfinite(at) and math.isfinite(fraction)):
            return
        fraction = min(1.0, max(0.0, fraction))
        if self._steps and (fraction <= self._steps[-1][1] or at < self._steps[-1][0]):
            return
        self._steps.append((at, fraction))
        if len(self._steps) > STEPS:
            self._steps = [*self._steps[:-1:2], self._steps[-1]]

    def left_s(self, now: float) -> float | None:
        """Seconds until it is full, None where its steps do not tell it."""
        if len(self._steps) < 2 or self.fraction < LEAST_FRACTION:
            return None
        if self.fraction >= 1.0:
            return 0.0
        (first_at, first), (last_at, last) = self._steps[0], self._steps[-1]
        if last_at - first_at < LEAST_S:
            return None
        average = (last - first) / (last_at - first_at)
        middle_at, middle = self._steps[-1 - max(1, len(self._steps) // 3)]
        recent = (last - middle) / (last_at - middle_at) if last_at > middle_at else average
        rate = math.sqrt(average * recent)
        if not 0.0 < rate < math.inf:
            return None  # so slow that no number tells it
        step_s = (last_at - first_at) / (len(self._steps) - 1)
        left_s = (1.0 - last) / rate
        return max(left_s - max(0.0, now - last_at), min(left_s, 0.3 * step_s))

    def curve(self, since: float) -> tuple[tuple[float, float], ...]:
        """How it moved, in few points, for `Mark.curve`."""
        every = max(1, math.ceil(len(self._steps) / CURVE))
        chosen = self._steps[::every]
        if self._steps and chosen[-1] is not self._steps[-1]:
            chosen.append(self._steps[-1])
        return tuple((round(max(0.0, at - since), 3), round(fraction, 4)) for at, fraction in chosen)
