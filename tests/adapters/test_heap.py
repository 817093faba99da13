"""Memory that is free goes back to the system, and where there is no way to, nothing happens."""

from __future__ import annotations

import ctypes

import pytest

from supervisor.adapters import heap


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    heap._trim.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: object())
    assert heap.give_back() is False
    heap._trim.cache_clear()


def test_what_is_freed_between_living_blocks_goes_back() -> None:
    if heap._trim() is None:
        pytest.skip("no malloc_trim in this C library")
    kept = []
    for _ in range(2000):  # blocks below the size that gets pages of its own, each second one freed
        kept += [bytes(60_000), bytes(600)]
    before = _resident()
    kept = kept[1::2]
    heap.give_back()
    assert before - _resident() > 60_000_000


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
