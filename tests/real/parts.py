"""The real parts that tests lean on, and what happens to a test whose part this machine lacks.

`require_real(name)` skips the test, naming the part, so that the last lines can count it. Where
SUPERVISOR_REQUIRE_REAL=1 is set, as CI does, it fails instead: there a missing part is a broken machine.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import cache

import pytest

from tests.real import llama, netns, nvml, pidns, sshd, tmux, vllm

PARTS: dict[str, Callable[[], str | None]] = {
    "sshd": sshd.missing,
    "llama-server": llama.missing,
    "tmux": tmux.missing,
    "network namespaces": netns.missing,
    "NVML stub": nvml.missing,
    "pid namespaces": pidns.missing,
}
"""Name → why it is missing, None when it is there."""

if os.environ.get("SUPERVISOR_TEST_ENGINES"):
    PARTS["vLLM"] = vllm.missing

_PREFIX = "real part missing: "


@cache
def missing(name: str) -> str | None:
    return PARTS[name]()


def require_real(*names: str) -> None:
    """Go on only where these parts are there. `KeyError` for a name that is none of PARTS."""
    for name in names:
        why = missing(name)
        if why is None:
            continue
        text = f"{_PREFIX}{name}: {why}"
        if os.environ.get("SUPERVISOR_REQUIRE_REAL") == "1":
            pytest.fail(f"{text} (SUPERVISOR_REQUIRE_REAL=1 forbids to skip)", pytrace=False)
        pytest.skip(text)


def summary(skips: Iterable[tuple[str, str]]) -> str:
    """The line at the end of a run. `skips` are (test, reason) of every skipped test."""
    lacking = {name: why for name in PARTS if (why := missing(name)) is not None}
    seen = ", ".join(f"{name} ✗ ({lacking[name]})" if name in lacking else f"{name} ✓" for name in PARTS)
    tests = [test for test, reason in skips if _PREFIX in reason]
    names = ", ".join(tests[:10]) + (f" and {len(tests) - 10} more" if len(tests) > 10 else "")
    return f"real parts: {seen} · {len(lacking)} missing (tests skipped by name: {names or 'none'})"
