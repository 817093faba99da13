"""Small pictures made of characters: a history, a bar. Pure."""

from __future__ import annotations

from collections.abc import Sequence

LEVELS = "▁▂▃▄▅▆▇█"
EIGHTHS = " ▏▎▍▌▋▊▉█"


def spark(values: Sequence[float | None], top: float) -> str:
    """A column a value, full at `top`; a blank where nothing is known."""
    scale = 8 / top if top > 0 else 0.0
    return "".join(
        [" " if value is None else LEVELS[min(7, int(value * scale))] if value > 0 else LEVELS[0] for value in values]
    )


def gauge(share: float, width: int) -> str:
    """A bar of eighths, blank where it is empty."""
    eighths = round(min(1.0, max(0.0, share)) * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (EIGHTHS[rest] if rest else "")).ljust(width)


def thin(fraction: float, width: int) -> tuple[str, str]:
    """A thin bar in half steps: what is done, and what is not."""
    halves = round(min(1.0, max(0.0, fraction)) * width * 2)
    done = "━" * (halves // 2) + "╸" * (halves % 2)
    return done, "─" * (width - len(done))
