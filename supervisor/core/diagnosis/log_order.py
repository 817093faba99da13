"""In which order the lines of a log stand: as they were written, or newest first, as consoles of clouds export them.

Told from time stamps, and from tracebacks, whose frames follow their first line when the log is the right way round.
Pure; looks at the beginning of a log. Where nothing tells, it is as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum

LOOKED_AT_LINES = 4000
_STAMP_WITHIN = 120
"""Characters of a line within which its time stands."""

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_STAMPS = (
    # Each with its own kind: times of two kinds are never compared. Year or month come first, so that texts compare.
    re.compile(r"(?P<day>\d{4}[-/]\d\d[-/]\d\d)[T _](?P<time>\d\d:\d\d:\d\d)(?:[.,](?P<part>\d{1,9}))?"),
    re.compile(r"(?<!\d)(?P<month>\d\d)[-/](?P<dom>\d\d)[-/](?P<year>\d{4})-(?P<time>\d\d:\d\d:\d\d)"),
    re.compile(r"(?<![\d-])(?P<day>\d\d-\d\d) (?P<time>\d\d:\d\d:\d\d)(?:\.(?P<part>\d{1,9}))?"),
    re.compile(r"\b(?P<name>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +(?P<dom>\d\d?) (?P<time>\d\d:\d\d:\d\d)"),
    re.compile(r"\b[IWEF](?P<day>\d{4}) (?P<time>\d\d:\d\d:\d\d)\.(?P<part>\d{6})"),
    re.compile(r"^\D{0,3}(?P<time>\d\d:\d\d:\d\d)(?:[.,](?P<part>\d{1,9}))?"),
)
TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r"\bFile \"[^\"]+\", line \d+")


class Order(Enum):
    """How to read a log so that causes come before what they caused."""

    AS_WRITTEN = "as written"
    LINES_REVERSED = "newest line first"
    ENTRIES_REVERSED = "newest entry first"
    """The lines that belong to one time stamp (a traceback) stand in their own order."""


def stamp(text: str) -> tuple[int, str] | None:
    """The time that a line bears: its kind, and a text that compares as the time does. None without one."""
    head = text[:_STAMP_WITHIN]
    for kind, pattern in enumerate(_STAMPS):
        match = pattern.search(head)
        if match is not None:
            found = match.groupdict()
            day = found.get("day") or ""
            if found.get("year"):
                day = f"{found['year']}-{found['month']}-{found['dom']}"
            elif found.get("name"):
                day = f"{_MONTHS.index(found['name'] or ''):02}-{int(found['dom'] or 0):02}"
            return kind, f"{day.replace('/', '-')} {found['time']}.{(found.get('part') or '').ljust(9, '0')}"
    return None


def order_of(lines: Iterable[str]) -> Order:
    """How these lines stand."""
    rising = falling = stamped = bare = 0
    right = wrong = 0
    last: tuple[int, str] | None = None
    before = ""
    was_traceback = False
    for number, text in enumerate(lines):
        if number >= LOOKED_AT_LINES:
            break
        if not text.strip():
            continue
        found = stamp(text)
        if found is not None:
            stamped += 1
            if last is not None and last[0] == found[0]:
                rising += found[1] > last[1]
                falling += found[1] < last[1]
            last = found
        else:
            bare += 1
        is_frame = _is_frame(text)
        right += was_traceback and is_frame
        was_traceback = TRACEBACK in text
        wrong += was_traceback and _is_frame(before)
        before = text
    if wrong > right and rising <= 3 * falling + 3:
        return Order.LINES_REVERSED
    if falling >= 2 and falling > 3 * rising:
        return Order.ENTRIES_REVERSED if bare and right >= wrong else Order.LINES_REVERSED
    return Order.AS_WRITTEN


def _is_frame(text: str) -> bool:
    return 'File "' in text and _FRAME.search(text) is not None
