"""How a screen's rows are shared out between what grows with the node and the log. Pure arithmetic, no style.

The log is what is read for ten minutes: it keeps `LOG_ROWS`, and on a tall screen about half.
"""

from __future__ import annotations

from msgspec import Struct

BESIDE_WIDTH = 140
"""From here on the holders stand beside the GPUs."""
LOG_ROWS = 10
"""With its border: eight lines of the log."""
LOG_SHARE = 0.48
FRAME_ROWS = 2
GPUS_LEAST_ROWS = 1
"""Their sum: an empty frame tells less than nothing."""
HOLDERS_LEAST_ROWS = 3
"""Fewer than a heading and two holders tell less than the one line of memory does."""


class Room(Struct, frozen=True):
    """Rows inside the frame of each table; 0: there is no room for it."""

    gpus: int
    holders: int
    beside: bool = False


def share(*, width: int, height: int, fixed_rows: int, gpus: int, holders: int, yields: bool = False) -> Room:
    """Share `height` rows.

    Args:
        fixed_rows: what the lines, the panel and the footer take.
        gpus: rows that the table of GPUs would like.
        holders: rows that the table of holders would like, its heading among them; 0: it has nothing to show.
        yields: something failed: holders that would cost rows give place to the finding.
    """
    log = max(LOG_ROWS, int((height - fixed_rows) * LOG_SHARE))
    free = height - fixed_rows - log
    if width >= BESIDE_WIDTH:
        rows = max(min(gpus, GPUS_LEAST_ROWS), min(max(gpus, holders), free - FRAME_ROWS))
        return Room(gpus=min(gpus, rows), holders=rows if holders else 0, beside=bool(holders and gpus))
    gpu_rows = max(min(gpus, GPUS_LEAST_ROWS), min(gpus, free - FRAME_ROWS))
    rest = free - gpu_rows - 2 * FRAME_ROWS
    rows = min(holders, rest)
    enough = rows >= min(HOLDERS_LEAST_ROWS, holders) and not yields
    return Room(gpus=gpu_rows, holders=rows if rows > 0 and enough else 0)
