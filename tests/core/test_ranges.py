"""Ranges against a plain set of offsets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.ranges import Ranges

ENDS = st.tuples(st.integers(0, 40), st.integers(0, 40))
STEPS = st.lists(st.tuples(st.booleans(), ENDS), max_size=25)


def both(steps: list[tuple[bool, tuple[int, int]]]) -> tuple[Ranges, set[int]]:
    ranges, plain = Ranges(), set[int]()
    for adds, (start, end) in steps:
        if adds:
            ranges.add(start, end)
            plain |= set(range(start, end))
        else:
            ranges.remove(start, end)
            plain -= set(range(start, end))
    return ranges, plain


@given(STEPS)
def test_they_are_in_order_disjoint_and_joined_where_they_touch(steps: list[tuple[bool, tuple[int, int]]]) -> None:
    ranges, plain = both(steps)
    assert {offset for start, end in ranges for offset in range(start, end)} == plain
    assert ranges.total == len(plain)
    edges = [edge for pair in ranges for edge in pair]
    assert edges == sorted(set(edges))


@given(STEPS, ENDS)
def test_what_is_asked_of_them(steps: list[tuple[bool, tuple[int, int]]], ends: tuple[int, int]) -> None:
    ranges, plain = both(steps)
    start, end = ends
    up, down = start, start
    while up in plain:
        up += 1
    while down - 1 in plain:
        down -= 1
    assert (ranges.run_end(start), ranges.run_start(start)) == (up, down)
    assert ranges.holds(start, end) is (set(range(start, end)) <= plain)
    missing = [offset for offset in range(start, end) if offset not in plain]
    assert [offset for a, b in ranges.gaps(start, end) for offset in range(a, b)] == missing
    starts = [offset for offset in plain if offset >= start and offset - 1 not in plain]
    assert ranges.next_start(start) == min(starts, default=None)


def test_a_log_that_grows_stays_one_range() -> None:
    ranges = Ranges()
    for at in range(0, 1000, 10):
        ranges.add(at, at + 10)
    assert list(ranges) == [(0, 1000)]
    assert repr(ranges) == "<Ranges [(0, 1000)]>"
