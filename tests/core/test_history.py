"""The record of earlier launches: bounded, of like settings first."""

from __future__ import annotations

import pytest

from supervisor.core.eta import Mark, Past
from supervisor.core.history import ASKED_OF, MOST_RUNS, History, RunRecord, decode, encode


def run(number: int, fingerprint: str = "a", weights_bytes: int | None = None) -> RunRecord:
    past = Past(marks=(Mark(stage="weights", at_s=1.0, curve=((0.5, 0.1), (9.0, 1.0))),), total_s=100.0 + number)
    return RunRecord(
        run_id=f"r{number}", at=1000.0 + number, fingerprint=fingerprint, weights_bytes=weights_bytes, past=past
    )


def test_the_newest_come_first_and_the_oldest_fall_off() -> None:
    history = History()
    for number in (3, 1, 2, *range(4, MOST_RUNS + 6)):
        history = history.with_run(run(number))
    assert [item.run_id for item in history.runs] == [f"r{n}" for n in range(MOST_RUNS + 5, 5, -1)]


def test_a_run_stands_once() -> None:
    assert len(History().with_run(run(1)).with_run(run(1)).runs) == 1


def test_runs_of_the_same_settings_count_where_there_are_any() -> None:
    history = History()
    for number in range(8):
        history = history.with_run(run(number, "a" if number % 2 else "b"))
    assert [past.total_s for past in history.pasts("b")] == [106.0, 104.0, 102.0, 100.0]
    assert [past.total_s for past in history.pasts("other")] == [107.0, 106.0, 105.0, 104.0, 103.0]
    assert len(history.pasts("other")) == ASKED_OF


def test_the_size_of_the_weights_is_that_of_the_same_settings() -> None:
    history = History().with_run(run(1, "a", 10)).with_run(run(2, "a")).with_run(run(3, "b", 30))
    assert (history.weights_bytes("a"), history.weights_bytes("b"), history.weights_bytes("c")) == (10, 30, None)


def test_it_is_read_as_it_was_written() -> None:
    history = History().with_run(run(1)).with_run(run(2, "b", 5))
    assert decode(encode(history)) == history


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"version": 2}', b'{"runs": [{"run_id": 3}]}', b"\xff", b"[" * 100_000]
)
def test_what_is_no_history_is_refused_with_why(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        decode(data)
