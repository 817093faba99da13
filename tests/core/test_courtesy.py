"""Stepping aside for keys: at once, not for ever, and never because a clock was set."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.courtesy import ASIDE_S, MOST_S, TURN_S, Courtesy


def test_nothing_steps_aside_where_nobody_types() -> None:
    assert Courtesy().wait_s(1000.0) == 0


def test_the_log_waits_out_a_key_and_goes_on() -> None:
    courtesy = Courtesy()
    courtesy.touched(10.0)
    assert courtesy.wait_s(10.0) == ASIDE_S
    assert 0 < courtesy.wait_s(10.0 + ASIDE_S / 2) < ASIDE_S
    assert courtesy.wait_s(10.0 + ASIDE_S + 0.001) == 0


def test_a_clock_that_was_set_back_does_not_stop_the_log() -> None:
    courtesy = Courtesy()
    courtesy.touched(100_000.0)
    assert courtesy.wait_s(10.0) <= ASIDE_S
    waited, now = 0.0, 10.0
    while (wait_s := courtesy.wait_s(now)) and waited < 10:
        now += wait_s
        waited += wait_s
    assert waited <= MOST_S + ASIDE_S


@given(st.lists(st.floats(0.001, 0.2), min_size=20, max_size=200))
def test_a_key_that_is_held_down_leaves_the_log_its_share(gaps: list[float]) -> None:
    """Whatever the rhythm of the keys, the log is let go within `MOST_S` and a step."""
    courtesy, now, aside_since = Courtesy(), 0.0, None
    for gap in gaps:
        courtesy.touched(now)
        end = now + gap
        while now < end:
            wait_s = courtesy.wait_s(now)
            if wait_s:
                aside_since = now if aside_since is None else aside_since
                assert now - aside_since <= MOST_S + ASIDE_S
                now += min(wait_s, 0.01)
            else:
                aside_since = None
                now += 0.01


def test_after_the_longest_wait_the_log_has_its_turn_whatever_is_typed() -> None:
    courtesy, now = Courtesy(), 0.0
    courtesy.touched(now)
    while courtesy.wait_s(now):
        now += 0.01
        courtesy.touched(now)
    assert now <= MOST_S + 0.02
    assert courtesy.wait_s(now + TURN_S * 0.9) == 0
    courtesy.touched(now + TURN_S * 1.1)
    assert courtesy.wait_s(now + TURN_S * 1.1) > 0
