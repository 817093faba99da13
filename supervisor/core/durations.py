"""Durations as people write them: "30m", "90s", "1h30m", "500ms", a plain number of seconds. Pure."""

from __future__ import annotations

import re

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.ASCII)
_PLAIN = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
MAX_S = 366 * 86400.0


def parse(text: str) -> float:
    """Seconds. Raises `ValueError` with a sentence that shows how durations are written."""
    text = text.strip()
    if _PLAIN.fullmatch(text):
        value = float(text)
    else:
        parts = list(_PART.finditer(text))
        if not parts or "".join(part.group(0) for part in parts) != text:
            raise ValueError(f"not a duration: {text!r} (like 30m, 90s, 1h30m, 500ms, or plain seconds)")
        value = sum(float(part.group(1)) * _UNITS_S[part.group(2)] for part in parts)
    if value <= 0:
        raise ValueError(f"a duration is more than nothing: {text!r}")
    if value > MAX_S:
        raise ValueError(f"a duration of more than a year cannot be meant: {text!r}")
    return value


def spell(seconds: float) -> str:
    """For people: 0.8 s, 42 s, 6:38, 1:02:03."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}:{rest:02d}"
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
