"""The time left on recorded starts with their timing: loose bounds for what `scripts/bench/eta.py` prints."""

from __future__ import annotations

import importlib.util
import itertools
import statistics
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "scripts" / "bench" / "starts.py"


@pytest.fixture(scope="module")
def starts() -> Any:
    spec = importlib.util.spec_from_file_location("bench_starts", BENCH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def long_starts(starts: Any) -> list[Any]:
    found = [starts.load(name, engine) for engine, names in starts.RUNS.items() for name in names]
    return [start for start in found if start.total_s >= starts.LEAST_S]


def test_with_one_earlier_run_every_start_has_an_estimate_and_the_middle_one_is_near(starts: Any) -> None:
    rows = [starts.with_history(start) for start in long_starts(starts)]
    assert len(rows) >= 20
    assert all(value is not None for row in rows for value in row)
    for place, most in enumerate((0.15, 0.12, 0.10)):
        assert statistics.median(abs(row[place]) for row in rows) <= most


def test_without_one_an_estimate_is_given_where_something_supports_it(starts: Any) -> None:
    rows = [starts.errors(start, []) for start in long_starts(starts)]
    for place, (told, most) in enumerate(((3, 0.4), (10, 0.4), (12, 0.25))):
        known = [abs(row[place]) for row in rows if row[place] is not None]
        assert len(known) >= told
        assert statistics.median(known) <= most


def test_what_is_shown_does_not_jump(starts: Any) -> None:
    """Looked at each second: what is shown doubles or halves, beyond what time itself takes away, hardly ever."""
    seconds = jumps = 0
    for start in long_starts(starts):
        said = starts.replay(start, [starts.disturbed(starts.record(start), 1)])
        for (before_at, before), (at, now) in itertools.pairwise(said):
            if before.eta_s is None or now.eta_s is None:
                continue
            expected = max(0.0, before.eta_s - (at - before_at))
            seconds += 1
            jumps += max(expected, now.eta_s) > 2 * min(expected, now.eta_s) + 5
    assert seconds > 1000
    assert jumps <= 0.005 * seconds
