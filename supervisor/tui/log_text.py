"""Text in cells: which part of a line fits where, for lines of any length and any script. Pure.

A cell is counted as Textual counts it. What terminals disagree about (joined emoji, variation selectors, towers of
accents) is taken out of what is drawn: a row that is a cell off pushes everything beside it off.
"""

from __future__ import annotations

import re

from rich.cells import get_character_cell_size

MAX_ACCENTS = 4
"""Zero-width characters that one cell may carry."""

_JOINERS = re.compile("[\u200d\ufe00-\ufe0f]")


def tame(text: str) -> str:
    """`text` with every cell of it as wide as all terminals draw it."""
    if text.isascii():
        return text
    text = _JOINERS.sub("", text)
    out: list[str] = []
    carried = 0
    for character in text:
        carried = 0 if get_character_cell_size(character) else carried + 1
        if carried <= MAX_ACCENTS:
            out.append(character)
    return "".join(out)


def cells(text: str) -> int:
    """How many cells it takes."""
    return len(text) if text.isascii() else sum(map(get_character_cell_size, text))


def cut(text: str, left: int, width: int) -> tuple[int, int, int]:
    """The part of `text` in the cells `left` to `left + width`: (start, end, cells to leave blank before it).

    A wide character that the left edge would halve is left out, and its half left blank.
    """
    if text.isascii():
        return min(left, len(text)), min(left + width, len(text)), 0
    at = start = lead = 0
    begun = False
    for place, character in enumerate(text):
        size = get_character_cell_size(character)
        if not begun and at >= left and (size or not left):
            begun, start, lead = True, place, at - left
        if at + size > left + width:
            return (start, place, lead) if begun else (place, place, 0)
        at += size
    return (start, len(text), lead) if begun else (len(text), len(text), 0)


def fold(text: str, width: int) -> list[tuple[int, int]]:
    """The rows that `text` takes at `width` cells, as (start, end); at least one."""
    width = max(2, width)
    if text.isascii():
        return [(start, min(start + width, len(text))) for start in range(0, len(text), width)] or [(0, 0)]
    rows: list[tuple[int, int]] = []
    start = used = 0
    for place, character in enumerate(text):
        size = get_character_cell_size(character)
        if used + size > width:
            rows.append((start, place))
            start, used = place, 0
        used += size
    rows.append((start, len(text)))
    return rows
