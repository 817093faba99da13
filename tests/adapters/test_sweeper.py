"""Python's garbage collector, kept out of a user's way and put back as it was."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from supervisor.adapters.sweeper import OVERDUE, QUIET_S, SETTLED_S, Sweeper


class Ring:
    """What only the collector can free."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def sweeper() -> Iterator[Sweeper]:
    usual = gc.get_threshold()
    sweeper = Sweeper()
    yield sweeper
    sweeper.end()
    assert gc.get_threshold() == usual


def test_it_does_nothing_before_it_has_begun(sweeper: Sweeper) -> None:
    assert not sweeper.look(1e9)


def test_what_is_there_at_the_start_is_taken_out_of_the_way_and_given_back(
    sweeper: Sweeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gc, "get_count", lambda: (0, 0, 0))  # what other tests have left is not overdue
    frozen = gc.get_freeze_count()
    sweeper.begin(0.0)
    assert not sweeper.look(SETTLED_S / 2)
    assert sweeper.look(SETTLED_S)
    assert gc.get_freeze_count() > frozen + 1000
    sweeper.end()
    assert gc.get_freeze_count() == 0


def test_a_pause_of_the_user_is_waited_for_but_not_for_ever(sweeper: Sweeper, monkeypatch: pytest.MonkeyPatch) -> None:
    sweeper.begin(0.0)
    due = 0
    monkeypatch.setattr(gc, "get_count", lambda: (0, 0, due))
    sweeper.look(SETTLED_S)
    ring = Ring()
    gone = weakref.ref(ring)
    del ring
    due = OVERDUE - 1
    sweeper.busy(10.0)
    assert not sweeper.look(10.0 + QUIET_S / 2)
    assert gone() is not None
    assert sweeper.look(10.0 + QUIET_S)
    assert gone() is None
    due = OVERDUE
    sweeper.busy(20.0)
    assert sweeper.look(20.0)
