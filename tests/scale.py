"""How much of a count a run does: a tenth by default, all of it with `scripts/test --full`."""

from __future__ import annotations

import os

FULL = bool(os.environ.get("SUPERVISOR_TEST_FULL"))


def scaled(full_count: int) -> int:
    """`full_count` in a closing run, a tenth of it, at least 1, in every other."""
    return full_count if FULL else max(1, full_count // 10)
