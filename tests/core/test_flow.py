"""The window follows what the road carries: small on a slow link, whatever its round trip; large where it is quick."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.flow import LEAST_BYTES, LOOK_S, MOST_BYTES, PATIENCE_S, FlowWindow

FRAME = 64 << 10


class Road:
    """A link of one speed and round trip, on which one sender keeps the window full."""

    def __init__(self, rate: float, rtt_s: float) -> None:
        self.rate, self.rtt_s, self.now = rate, rtt_s, 0.0
        self.window = FlowWindow(rtt_s)

    def speed(self) -> float:
        """What passes: as much as the link carries, or a window each round trip."""
        return min(self.rate, self.window.bytes / self.rtt_s if self.rtt_s else self.rate)

    def waits_s(self) -> float:
        """How long what is sent behind the log waits in the queue before the link."""
        return max(0.0, self.window.bytes - self.rate * self.rtt_s) / self.rate

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now += FRAME / self.speed()
            self.window.took(self.now, FRAME, behind=True)


@pytest.mark.parametrize("rtt_ms", [0.05, 1, 20, 100, 200])
@pytest.mark.parametrize("rate", [1e6, 12e6, 100e6, 400e6])
def test_it_fills_the_road_and_keeps_nobody_waiting(rate: float, rtt_ms: float) -> None:
    road = Road(rate, rtt_ms / 1000)
    road.run(20.0)
    most = MOST_BYTES / road.rtt_s
    assert road.speed() > 0.7 * min(rate, most)
    assert road.waits_s() <= max(PATIENCE_S * 1.1, LEAST_BYTES / rate)


def test_a_slow_link_keeps_the_least() -> None:
    """On 1 MB/s a health answer waits behind 64 KiB at most: 0.07 s."""
    road = Road(1e6, 0.002)
    road.run(10.0)
    assert road.window.bytes == LEAST_BYTES


def test_a_link_that_becomes_slow_gets_a_small_one_again() -> None:
    road = Road(100e6, 0.001)
    road.run(3.0)
    assert road.window.bytes == MOST_BYTES
    road.rate = 1e6
    road.run(1.5)
    assert road.waits_s() <= 0.07


def test_a_writer_that_is_slower_than_the_road_tells_nothing_of_it() -> None:
    window = FlowWindow(0.01)
    for tick in range(1000):
        assert not window.took(tick * LOOK_S, FRAME, behind=tick % 2 == 0)
    assert window.bytes == LEAST_BYTES


@given(st.lists(st.tuples(st.floats(0, 2), st.integers(0, FRAME), st.booleans()), max_size=60), st.floats(0, 5))
def test_it_stays_in_its_bounds(steps: list[tuple[float, int, bool]], rtt_s: float) -> None:
    window, now = FlowWindow(rtt_s), 0.0
    for later_s, size, behind in steps:
        now += later_s
        before = window.bytes
        assert window.took(now, size, behind=behind) is (window.bytes != before)
        assert LEAST_BYTES <= window.bytes <= min(MOST_BYTES, before * 2)
