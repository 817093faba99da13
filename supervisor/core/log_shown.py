"""A piece of a log as it is shown, many lines at once: what a search looks at is what stands on the screen. Pure.

Line by line this is `LineSplitter`'s work, at some 10 MB/s. Most lines are plain, so the piece is taken whole wherever
that comes to the same; only lines with bars, odd escapes or more bytes than are kept go the long way.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from supervisor.core.lines import MAX_LINE_BYTES, shown

HALF_WORD_CHARS = 1024
"""Longer secrets have a blank in them."""
_CSI = re.compile("\x1b\\[[0-?]*[ -/]*[@-~]")
_CSI_BYTES = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]")
_BLANK = re.compile(r"^[^\S\n]+$", re.MULTILINE)
# What `sanitise` works on beside CSI: controls but \n, C1, bidirectional marks and separators.
_ODD = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
_PLAIN_BYTES = bytes([0x0A, *range(0x20, 0x7F)])


def without_half_word(text: str) -> str:
    """A line that was cut where it grew too long, cut at a blank before: half a secret passes every mask."""
    if not text.endswith(" more bytes in this line]"):
        return text
    kept, mark, count = text.rpartition(" … [")
    last = kept[-HALF_WORD_CHARS:]
    return kept[: len(kept) - len(last) + last.rfind(" ") + 1].rstrip() + mark + count


def first_part(text: str) -> str:
    """A line of which only the beginning is at hand: says so, and ends with a whole word, as above."""
    if not text or text.endswith(" more bytes in this line]"):
        return text
    last = text[-HALF_WORD_CHARS:]
    return text[: len(text) - len(last) + last.rfind(" ") + 1].rstrip() + " … [the rest of this line is not here]"


def last_part(text: str) -> str:
    """A line of which only the end is at hand: says so, and begins with a whole word."""
    if not text:
        return text
    at = text.find(" ", 0, HALF_WORD_CHARS)
    return "[the beginning of this line is not here] … " + text[at + 1 if at != -1 else HALF_WORD_CHARS :].lstrip()


def shown_line(raw: bytes) -> str:
    """One whole line (without its newline) as it is shown."""
    return without_half_word(shown(raw))


def shown_text(data: bytes, mask: Callable[[str], str]) -> str:
    """Whole lines of a log as they are shown, masked, joined by newlines; the last one's newline is left out."""
    text = _shown(data if data.endswith(b"\n") else data + b"\n")
    masked = mask(text)
    if masked is not text and masked.count("\n") != text.count("\n"):
        # A secret with a newline in it: line by line, as the screen has them.
        return "\n".join(mask(line).replace("\n", " ") for line in text.split("\n"))
    return masked


def _shown(data: bytes) -> str:
    """`data` ends in a newline, what comes back does not."""
    if len(data) > MAX_LINE_BYTES and _has_long_line(data):
        raw = data[:-1].split(b"\n")
        return "\n".join(shown_line(line) if len(line) > MAX_LINE_BYTES else _shown(line + b"\n") for line in raw)
    returned = b"\r" in data
    plain = data.replace(b"\r\n", b"\n") if returned else data
    if plain.isascii():
        plain = _CSI_BYTES.sub(b"", plain) if b"\x1b" in plain else plain
        odd = bool(plain.translate(None, _PLAIN_BYTES))
        text = plain[:-1].decode("ascii")
    else:
        # Decoded first: bytes that an escape sequence keeps apart must not become one character.
        text = plain[:-1].decode("utf-8", "replace")
        text = _CSI.sub("", text) if "\x1b" in text else text
        odd = bool(_ODD.search(text))
    if not odd and not (returned and _BLANK.search(text)):
        return text
    raw = data[:-1].split(b"\n")
    return "\n".join(
        shown_line(raw[at]) if _ODD.search(line) or (b"\r" in raw[at] and not line.strip()) else line
        for at, line in enumerate(text.split("\n"))
    )


def _has_long_line(data: bytes) -> bool:
    """Whether any line is longer than what is kept of it: a look at one place in 16 KiB tells for most."""
    start = 0
    while start + MAX_LINE_BYTES < len(data):
        end = data.rfind(b"\n", start, start + MAX_LINE_BYTES + 1)
        if end == -1:
            return True
        start = end + 1
    return False
