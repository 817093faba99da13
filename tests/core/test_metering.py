"""What a server's metrics come to: counters as rates that no restart makes wrong, ranks added up, silence as None."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.engine import MetricsRules
from supervisor.core.metering import MAX_GAP_S, Meter

RULES = MetricsRules(
    running=("run",),
    queued=("wait",),
    generated=('rate(live{mode="decode"})', "speed", "rate(made_total)"),
    prompt=("rate(read_total)",),
    cache=("cache", "old_cache"),
    copies=("tp",),
    parts=("priority",),
)


def page(**values: float) -> bytes:
    return "".join(f"{name} {value}\n" for name, value in values.items()).encode()


def test_a_counter_is_a_rate_from_the_second_answer_on() -> None:
    meter = Meter(RULES)
    first = meter.take(100.0, page(run=2, wait=1, made_total=1000, read_total=5000, cache=0.25))
    assert (first.at, first.running, first.queued, first.cache_share, first.why) == (100.0, 2, 1, 0.25, "")
    assert (first.generated_tokens_s, first.prompt_tokens_s) == (None, None)  # never nought, which would be a claim
    second = meter.take(102.0, page(run=2, wait=0, made_total=1090, read_total=5000))
    assert (second.generated_tokens_s, second.prompt_tokens_s, second.cache_share) == (45.0, 0.0, None)


def test_a_counter_that_fell_has_begun_anew() -> None:
    meter = Meter(RULES)
    meter.take(0.0, page(made_total=9000))
    assert meter.take(2.0, page(made_total=10)).generated_tokens_s is None
    assert meter.take(4.0, page(made_total=30)).generated_tokens_s == 10.0


def test_an_answer_without_the_counter_and_a_long_silence_make_no_rate() -> None:
    meter = Meter(RULES)
    meter.take(0.0, page(made_total=0, run=1))
    meter.take(2.0, page(run=1))
    assert meter.take(4.0, page(made_total=100)).generated_tokens_s is None
    assert meter.take(4.0 + MAX_GAP_S + 1, page(made_total=1e6)).generated_tokens_s is None
    assert meter.take(4.0 + MAX_GAP_S + 1, page(made_total=2e6)).generated_tokens_s is None  # no time went by


def test_the_best_expression_that_is_told_counts() -> None:
    meter = Meter(RULES)
    both = b'live{mode="prefill"} 7\nlive{mode="decode"} %d\nspeed 12\nmade_total 4\n'
    assert meter.take(0.0, both % 100).generated_tokens_s is None
    assert meter.take(2.0, both % 150).generated_tokens_s == 25.0
    assert meter.take(4.0, b'live{mode="prefill"} 7\nspeed 12\n').generated_tokens_s == 12.0


def test_replicas_are_added_up_and_copies_and_parts_are_not() -> None:
    meter = Meter(RULES)
    told = meter.take(
        0.0,
        b'run{dp="0",tp="0"} 4\nrun{dp="0",tp="1"} 4\nrun{dp="1",tp="2"} 2\nrun{dp="1",tp="3",priority="5"} 2\n'
        b'cache{dp="0"} 0.5\ncache{dp="1"} 0.1\n',
    )
    assert (told.running, told.cache_share) == (6, 0.3)


@pytest.mark.parametrize("bad", [b"", b"\xff\x00", b"<html>not found</html>", b"other_total 5\n", b'{"a": 1}'])
def test_an_answer_without_any_of_the_names_says_so(bad: bytes) -> None:
    told = Meter(RULES).take(0.0, bad)
    assert told.running is None and "none of the names" in told.why


def test_what_cannot_be_is_not_told() -> None:
    told = Meter(RULES).take(0.0, page(run=-1, wait=1e300, speed=-5, cache=2))
    assert (told.running, told.queued, told.generated_tokens_s, told.cache_share) == (None, None, None, None)


@given(st.lists(st.tuples(st.floats(0.1, 200), st.integers(0, 10**9)), min_size=1, max_size=12))
def test_a_rate_is_never_negative_and_adds_up_to_what_was_counted(steps: list[tuple[float, int]]) -> None:
    """Against a plain account of the same steps."""
    meter, at, before, made = Meter(RULES), 0.0, None, 0.0
    for wait_s, value in steps:
        at += wait_s
        told = meter.take(at, page(made_total=value)).generated_tokens_s
        if before is None or value < before or wait_s > MAX_GAP_S:
            assert told is None
        else:
            assert told is not None and told >= 0
            made = told * wait_s
            assert math.isclose(made, value - before, rel_tol=1e-3, abs_tol=0.01 * wait_s)
        before = value
