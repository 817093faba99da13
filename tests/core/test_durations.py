"""Durations as people write them and read them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.durations import MAX_S, parse, spell


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30m", 1800), ("90s", 90), ("1h30m", 5400), ("500ms", 0.5), ("45", 45), ("1.5h", 5400), ("2d", 172_800),
        ("0.25", 0.25), (" 10s ", 10), ("1h1m1s", 3661), ("1m500ms", 60.5), ("366d", MAX_S),
    ],
)  # fmt: skip
def test_a_duration_is_what_it_says(text: str, seconds: float) -> None:
    assert parse(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    ["", " ", "m", "10x", "10 m", "1h 30m", "-5", "-5s", "+5", "1e3", "inf", "nan", "5min", "5M", "1,5s", ".5", "5.",
     "٣s", "10s!", "s10", "0x10"],
)  # fmt: skip
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="30m, 90s, 1h30m"):
        parse(text)


@pytest.mark.parametrize("text", ["0", "0s", "0m0s", "0.0"])
def test_nothing_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="more than nothing"):
        parse(text)


@pytest.mark.parametrize("text", ["367d", "9" * 400, "99999999h"])
def test_more_than_a_year_cannot_be_meant(text: str) -> None:
    with pytest.raises(ValueError, match="year"):
        parse(text)


@given(st.text(alphabet="0123456789.smhd -", max_size=12))
def test_what_is_taken_is_a_sane_number(text: str) -> None:
    try:
        seconds = parse(text)
    except ValueError:
        return
    assert math.isfinite(seconds)
    assert 0 < seconds <= MAX_S


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"), (0.84, "0.8 s"), (9.94, "9.9 s"), (9.95, "10 s"), (42, "42 s"), (59.4, "59 s"), (59.5, "1:00"),
        (398, "6:38"), (3599.5, "1:00:00"), (3722, "1:02:02"), (3723, "1:02:03"),
    ],
)  # fmt: skip
def test_a_duration_for_people(seconds: float, text: str) -> None:
    assert spell(seconds) == text


@given(st.floats(0, 1e6))
def test_what_is_spelled_never_shows_sixty(seconds: float) -> None:
    assert "60" not in spell(seconds).replace(" s", "").split(":")[-1]
    assert ":60" not in spell(seconds)
