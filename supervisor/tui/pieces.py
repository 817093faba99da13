"""Pieces of text with a role each, and how they are fitted into a line. Pure: no widget, no clock, no I/O.

A piece's role names what it is for ("bad" needs a hand), never a colour: that is what `layouts/*.tcss` decides. Nothing
here is markup. Widths are cells of a terminal. Masking a secret must come before any cut, so whoever cuts text of the
node's has masked it first (`model.mask`).
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from rich.cells import cell_len, set_cell_size

from supervisor.core.durations import spell
from supervisor.core.gpu import GIB
from supervisor.core.lines import sanitise

Piece = tuple[str, str]
Pieces = tuple[Piece, ...]
Mask = Callable[[str], str]

ROLES = (
    "plain", "strong", "dim", "good", "now", "warn", "bad",
    "waiting",  # the server answers, and is not ready yet
    "ours", "others", "left", "used",  # memory: this run's, other servers', left over, of nobody who is known
    "track", "spark",  # the empty part of a bar; a history
)  # fmt: skip
INDENT = "  "
ELLIPSIS = "…"


# ------------------------------------------------------------------------------------------------ cells


def cells(text: str) -> int:
    """How many cells of a terminal a text takes."""
    return len(text) if text.isascii() else cell_len(text)


def length(pieces: Iterable[Piece]) -> int:
    """Cells in all."""
    return sum(cells(text) for text, _role in pieces)


def one_line(text: str) -> str:
    """Text of the node's as one line that cannot drive a terminal; most texts are so already."""
    return text if text.isprintable() else sanitise(" ".join(text.split()))


def clip(text: str, width: int) -> str:
    """At most `width` cells; a sign at the end where there was more."""
    if width <= 0:
        return ""
    if cells(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + ELLIPSIS


def clip_start(text: str, width: int) -> str:
    """The same for a path: its end says more than its start."""
    if cells(text) <= width:
        return text
    while text and cells(text) > max(0, width - 1):
        text = text[1:]
    return ELLIPSIS + text if width > 0 else ""


def left(text: str, width: int) -> str:
    """Exactly `width` cells, set to the left."""
    text = clip(text, width)
    return text + " " * (width - cells(text))


def right(text: str, width: int) -> str:
    """Exactly `width` cells, set to the right."""
    text = clip(text, width)
    return " " * (width - cells(text)) + text


# ------------------------------------------------------------------------------------------------ lines


def fit(pieces: Iterable[Piece], width: int) -> Pieces:
    """The pieces cut to `width` cells, with a sign at the end where there was more."""
    out: list[Piece] = []
    room = width
    for text, role in pieces:
        needed = cells(text)
        if needed > room:
            if room > 0:
                out.append((clip(text, room), role))
            elif out:
                last, last_role = out[-1]
                out[-1] = (clip(last + " ", cells(last)), last_role)
            break
        if text:
            out.append((text, role))
        room -= needed
    return tuple(out)


def first_fitting(candidates: Iterable[Sequence[Piece]], width: int) -> Pieces:
    """The first that fits, else the last one cut."""
    last: Sequence[Piece] = ()
    for last in candidates:
        if length(last) <= width:
            return tuple(last)
    return fit(last, width)


def spread(at_left: Sequence[Piece], at_right: Sequence[Piece], width: int, gap: int = 2) -> Pieces:
    """One group at each end of the line; what stands at the left is cut where both do not fit."""
    room = width - length(at_right)
    if not at_right or room < gap:
        return fit(at_left, width)
    shown = fit(at_left, room - gap)
    return (*shown, (" " * (room - length(shown)), "plain"), *at_right)


def joined(groups: Iterable[Sequence[Piece]], joint: str = " · ") -> Pieces:
    """Groups with a joint between them; empty ones fall away."""
    out: list[Piece] = []
    for group in groups:
        if group:
            out += [(joint, "dim"), *group] if out else group
    return tuple(out)


def rows(lines: Iterable[Sequence[Piece]]) -> Pieces:
    """Lines below each other."""
    out: list[Piece] = []
    for number, line in enumerate(lines):
        if number:
            out.append(("\n", "plain"))
        out += line
    return tuple(out)


def wrapped(text: str, width: int, *, first: str = "", rest: str = "") -> list[str]:
    """A text of which nothing may be missing, in lines of at most `width` cells (20 at least)."""
    width = max(20, width)
    out: list[str] = []
    found = textwrap.wrap(  # an option of a command line must be copied whole
        one_line(text), width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False
    )
    for line in found:
        while cells(line) > width:  # wide characters: textwrap counts characters
            head = set_cell_size(line, width).rstrip()
            out.append(head)
            line = rest + line[len(head) :].lstrip()
        out.append(line)
    return out


def text_of(pieces: Iterable[Piece]) -> str:
    """The text without its roles."""
    return "".join(text for text, _role in pieces)


# ------------------------------------------------------------------------------------------------ figures


def clock_time(at: float) -> str:
    """The operator's local time, seconds."""
    try:
        return datetime.fromtimestamp(at).astimezone().strftime("%H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return "?"  # a clock that stands in another age


def running(seconds: float) -> str:
    """A duration that still grows: whole seconds, since tenths that are drawn once a second only flicker."""
    return spell(seconds) if seconds >= 9.95 else f"{max(0.0, seconds):.0f} s"


def age(seconds: float) -> str:
    """How old something is, in at most five cells: "12 s", "6:39", "25 h", "12 d"."""
    if seconds < 60:
        return f"{max(0.0, seconds):.0f} s"
    if seconds < 3600:
        return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
    if seconds < 172_800:
        return f"{seconds / 3600:.0f} h"
    return f"{seconds / 86400:.0f} d"


def in_gib(count: int | None) -> str:
    """A figure of a column of GiB: "61.2", "0.4", "?"."""
    return "?" if count is None else f"{count / GIB:.1f}"
