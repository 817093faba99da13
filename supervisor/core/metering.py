"""From an engine's metrics as text to what is told of its load: which names are meant, ranks added up, counters as
rates. Pure: it is fed with answers and their times.

A counter that fell has begun anew with its server, and one that was not told for long says nothing about now: neither
makes a rate. What the engine does not tell is None, never nought.
"""

from __future__ import annotations

from collections.abc import Iterable

from supervisor.core import prometheus
from supervisor.core.engine import MetricsRules
from supervisor.core.events import Metrics
from supervisor.core.prometheus import Expression, Series

MAX_GAP_S = 150.0
"""Between two answers: over more than that an average is no news. Twice and a half the slowest pace of the asking."""
MAX_COUNT = 1 << 53
"""Above it a float has no units any more: no number of requests."""


class Meter:
    """Feed it the answers of one server, in order."""

    def __init__(self, rules: MetricsRules) -> None:
        self._rules = rules
        self._running = _expressions(rules.running)
        self._queued = _expressions(rules.queued)
        self._generated = _expressions(rules.generated)
        self._prompt = _expressions(rules.prompt)
        self._cache = _expressions(rules.cache)
        every = (*self._running, *self._queued, *self._generated, *self._prompt, *self._cache)
        self._names = frozenset(item.name for item in every)
        self._before: dict[Expression, tuple[float, float]] = {}

    def take(self, at: float, data: bytes) -> Metrics:
        """What an answer tells. `at`: when it came, in seconds."""
        found = prometheus.parse(data, self._names)
        before, self._before = self._before, {}

        def amount(expressions: Iterable[Expression]) -> float | None:
            """The first of them that is told at all; the growth of one that is a counter."""
            for item in expressions:
                series = self._counted(item.of(found.get(item.name, ())))
                if not series:
                    continue
                value = sum(series)
                if not item.rate:
                    return value
                self._before[item] = (at, value)
                return _rate(before.get(item), at, value)
            return None

        metrics = Metrics(
            at=at,
            running=_count(amount(self._running)),
            queued=_count(amount(self._queued)),
            generated_tokens_s=_round(amount(self._generated)),
            prompt_tokens_s=_round(amount(self._prompt)),
            cache_share=self._share(found),
        )
        if not any(found.values()):
            return Metrics(at=at, why="its metrics have none of the names that are known of this engine")
        return metrics

    def totals(self, data: bytes) -> dict[str, float]:
        """Expression → its sum now, of every one that is told. For whoever checks an engine's rules."""
        found = prometheus.parse(data, self._names)
        out: dict[str, float] = {}
        for item in (*self._running, *self._queued, *self._generated, *self._prompt, *self._cache):
            series = self._counted(item.of(found.get(item.name, ())))
            if series:
                out[str(item)] = sum(series)
        return out

    def _share(self, found: dict[str, list[Series]]) -> float | None:
        """Caches of one size each, one a replica: the share of all of them is the mean of their shares."""
        for item in self._cache:
            series = self._counted(item.of(found.get(item.name, ())))
            if series:
                share = sum(series) / len(series)
                return round(share, 4) if 0 <= share <= 1 else None
        return None

    def _counted(self, series: list[Series]) -> list[float]:
        """The values that make up the whole: one of each group of copies, and no part that another one counts in."""
        copies, parts = self._rules.copies, self._rules.parts
        groups: dict[tuple[tuple[str, str], ...], float] = {}
        for one in series:
            if any(one.labels.get(name) for name in parts):
                continue
            key = tuple(sorted((name, value) for name, value in one.labels.items() if name not in copies))
            groups[key] = max(groups.get(key, one.value), one.value)
        return list(groups.values())


def _expressions(texts: Iterable[str]) -> tuple[Expression, ...]:
    return tuple(map(prometheus.expression, texts))


def _rate(before: tuple[float, float] | None, at: float, value: float) -> float | None:
    if before is None or not 0 < at - before[0] <= MAX_GAP_S or value < before[1]:
        return None
    return (value - before[1]) / (at - before[0])


def _checked(value: float | None, least: float, most: float) -> float | None:
    return value if value is not None and least <= value <= most else None


def _count(value: float | None) -> int | None:
    checked = _checked(value, 0, MAX_COUNT)
    return None if checked is None else round(checked)


def _round(value: float | None) -> float | None:
    checked = _checked(value, 0, MAX_COUNT)
    return None if checked is None else round(checked, 2)
