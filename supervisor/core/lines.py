r"""Bytes of a log into lines that are safe to show. Incremental, pure, never raises on any input.

Splits on `\n`; a `\r` that is not part of `\r\n` begins a progress bar anew, which collapses into one living line.
UTF-8 that is cut by a read is kept for the next one; what is no UTF-8 becomes U+FFFD. Escape sequences and control
characters are taken out, so that log bytes can never drive a terminal. A line is cut at `MAX_LINE_BYTES`, and says so.

Offsets and numbers are the file's: `line_no` counts `\n` only, so that `sed -n Np FILE` shows that line.
"""

from __future__ import annotations

import re

from msgspec import Struct

MAX_LINE_BYTES = 16 * 1024
"""What is kept of one line; the rest is counted. The whole line is in the file."""

_ESCAPES = re.compile(
    r"""
      \x1b\[[0-?]*[ -/]*[@-~]                  # CSI: colours, cursor
    | \x1b[\]PX^_].*?(?:\x1b\\|\x07|\x9c|$)    # OSC, DCS, SOS, PM, APC: titles, links, device strings
    | \x1b[ -/]*[0-~]                          # other two- and three-character escapes
    | \x9b[0-?]*[ -/]*[@-~]                    # CSI as one C1 character
    """,
    re.VERBOSE | re.DOTALL,
)
# Controls, C1, bidirectional overrides and line separators: nothing in a log may move a cursor or turn text round.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")

_VISIBLE = re.compile(rb"[!-~]")

# The same two for bytes of many lines at once, where `\n` and `\r` end a sequence that is not finished.
_BYTE_ESCAPES = re.compile(
    rb"""
    \x1b (?:
        \[[0-?]*[ -/]*[@-~]
      | [\]PX^_][^\r\n]*?(?:\x1b\\|\x07|\xc2\x9c|(?=[\r\n])|\Z)
      | [ -/]*[0-~]
    )
    """,
    re.VERBOSE,
)
_BYTE_ESCAPES_AND_C1 = re.compile(_BYTE_ESCAPES.pattern + rb"| \xc2\x9b[0-?]*[ -/]*[@-~]", re.VERBOSE)
_BYTE_MARKS = re.compile(rb"\xc2[\x80-\x9f]|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]|\xef\xbb\xbf")
_BYTE_CONTROLS = bytes(byte for byte in (*range(0x20), 0x7F) if byte not in b"\t\n\r")


class Line(Struct, frozen=True):
    """One line, or the living state of one.

    `offset`: byte offset in the file of the line's first byte. `living`: no `\\n` has come yet, a later Line with
    the same `line_no` replaces this one.
    """

    text: str
    line_no: int
    offset: int
    living: bool = False


def sanitise(text: str) -> str:
    """`text` without escape sequences and control characters; tabs become spaces."""
    if text.isprintable():
        return text  # nearly every line, and several times as quick as looking for what is to be taken out
    if "\x1b" in text or "\x9b" in text:
        text = _ESCAPES.sub("", text)
    if "\t" in text:
        text = text.expandtabs(8)
    return _CONTROLS.sub("", text)


def nth_newline(data: bytes, count: int) -> int:
    r"""Where the `count`-th `\n` (from 1) is, -1 where there are fewer. By halves: counting is quicker than finding."""
    start, end = 0, len(data)
    while end - start > 1024:
        middle = (start + end) // 2
        before = data.count(b"\n", start, middle)
        if before >= count:
            end = middle
        else:
            start, count = middle, count - before
    at = start - 1
    for _ in range(count):
        at = data.find(b"\n", at + 1, end)
        if at == -1:
            return -1
    return at


def plain_bytes(data: bytes) -> bytes:
    r"""Whole lines without what `sanitise` takes out of each, so that words can be looked for in all of them at once.

    Tabs, `\r`, and what is no UTF-8 stay as they are; every `\n` stays.
    """
    if b"\xc2\x9b" in data:
        data = _BYTE_ESCAPES_AND_C1.sub(b"", data)
    elif b"\x1b" in data:
        data = _BYTE_ESCAPES.sub(b"", data)
    if not data.isascii() and (b"\xc2" in data or b"\xe2\x80" in data or b"\xe2\x81" in data or b"\xef" in data):
        data = _BYTE_MARKS.sub(b"", data)
    return data.translate(None, _BYTE_CONTROLS)


def shown(raw: bytes) -> str:
    r"""The text of one whole line without its `\n`: what `LineSplitter` makes of it."""
    if b"\r" not in raw:
        return _text(raw[:MAX_LINE_BYTES], len(raw))
    end = len(raw)
    while True:
        start = raw.rfind(b"\r", 0, end) + 1
        drawn, size = raw[start : min(end, start + MAX_LINE_BYTES)], end - start
        if size and _shows(drawn, size):
            return _text(drawn, size)
        if not start:
            return ""
        end = start - 1


def shown_unfinished(raw: bytes) -> str:
    r"""The text of a line as far as it has come, `raw` being all of it and without a `\n`.

    Of a bar it is what `LineSplitter` gives as living; of an ordinary line, which that one keeps back, what is there.
    """
    start = raw.rfind(b"\r") + 1
    growing, size = raw[start : start + MAX_LINE_BYTES], len(raw) - start
    if size == len(growing):
        size = _whole_characters(growing)
        growing = growing[:size]
    if not start or _shows(growing, size):
        return _text(growing, size)
    return shown(raw[:start])


def shown_cut(head: bytes, size: int) -> str:
    r"""The text of a line of `size` bytes without a `\r`, of which `head` is the beginning, up to the cap or more."""
    return _text(head[:MAX_LINE_BYTES], size)


class LineSplitter:
    """Feed bytes in the order of the file, take lines out.

    Args:
        offset: the file's offset of the first byte that will be fed.
        lines_before: how many `\\n` the file has before that offset.
    """

    def __init__(self, *, offset: int = 0, lines_before: int = 0) -> None:
        self._next_offset = offset
        self._line_no = lines_before + 1
        self._line_offset = offset
        self._drawn = bytearray()
        self._drawn_bytes = 0
        self._shown: tuple[bytes, int] = (b"", 0)
        self._is_bar = False
        self._empty = True
        self._told_living = ""

    def __repr__(self) -> str:
        return f"<LineSplitter line {self._line_no}, {len(self._drawn)} bytes pending>"

    @property
    def offset(self) -> int:
        """The offset of the next byte to be fed."""
        return self._next_offset

    @property
    def line_no(self) -> int:
        """Number of the line that the next byte belongs to."""
        return self._line_no

    def feed(self, data: bytes) -> list[Line]:
        """The lines that `data` completes, and the living line if `data` leaves one."""
        out: list[Line] = []
        start = 0
        while (end := data.find(b"\n", start)) != -1:
            if self._empty:
                out.append(self._whole(data[start:end], self._next_offset + end + 1))
            else:
                self._keep(data[start:end])
                out.append(self._complete(self._next_offset + end + 1))
            start = end + 1
        if start < len(data):
            self._keep(data[start:])
        self._next_offset += len(data)
        living = self._living()
        if living is not None:
            out.append(living)
        return out

    def end(self) -> list[Line]:
        """The last line, where the file does not end in a newline."""
        if self._empty:
            return []
        return [self._complete(self._next_offset)]

    # What is kept of a line is what was drawn last and was not blank, and what is being drawn, each up to the cap. So
    # a bar may redraw itself for hours, and where the reads happened to cut the bytes never changes the line.

    def _keep(self, data: bytes) -> None:
        if not data:
            return
        self._empty = False
        start = 0
        while (end := data.find(b"\r", start)) != -1:
            self._draw(data[start:end])
            self._returned()
            start = end + 1
        self._draw(data[start:] if start else data)

    def _draw(self, data: bytes) -> None:
        room = MAX_LINE_BYTES - len(self._drawn)
        if room > 0:
            self._drawn += data[:room]
        self._drawn_bytes += len(data)

    def _returned(self) -> None:
        """A carriage return: what was drawn stands until something else is drawn over it."""
        self._is_bar = True
        if self._drawn_bytes and _shows(self._drawn, self._drawn_bytes):
            self._shown = (bytes(self._drawn), self._drawn_bytes)
        self._drawn.clear()
        self._drawn_bytes = 0

    def _whole(self, raw: bytes, next_line_offset: int) -> Line:
        """A line of which nothing is pending: nearly all of them."""
        line = Line(shown(raw), self._line_no, self._line_offset)
        self._line_no += 1
        self._line_offset = next_line_offset
        return line

    def _complete(self, next_line_offset: int) -> Line:
        drawn, size = bytes(self._drawn), self._drawn_bytes
        kept, size = (drawn, size) if not self._is_bar or _shows(drawn, size) else self._shown
        line = Line(_text(kept, size), self._line_no, self._line_offset)
        self._drawn.clear()
        self._drawn_bytes = 0
        self._shown = (b"", 0)
        self._is_bar = False
        self._empty = True
        self._told_living = ""
        self._line_no += 1
        self._line_offset = next_line_offset
        return line

    def _living(self) -> Line | None:
        """The bar as it stands: drawn whole, or all of it that has come. None for an unfinished ordinary line."""
        if not self._is_bar:
            return None
        growing, size = bytes(self._drawn), self._drawn_bytes
        if size == len(growing):
            growing = growing[: _whole_characters(growing)]
            size = len(growing)
        text = _text(growing, size) if _shows(growing, size) else _text(*self._shown)
        if text == self._told_living:
            return None
        self._told_living = text
        return Line(text, self._line_no, self._line_offset, living=True)


def _shows(drawn: bytes | bytearray, size: int) -> bool:
    """Whether a terminal would show anything of it: an escape sequence that clears the line behind a bar does not."""
    if size > len(drawn):
        return True  # blank as far as it was kept, and nobody knows the rest
    if b"\x1b" not in drawn and b"\x9b" not in drawn and _VISIBLE.search(drawn):
        return True
    return bool(sanitise(drawn.decode("utf-8", "replace")).strip())


def _whole_characters(data: bytes | bytearray) -> int:
    """How many bytes are whole UTF-8 characters, without one at the end that is still to come."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte & 0b1100_0000 == 0b1000_0000:
            continue
        needs = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return len(data) - back if needs > back else len(data)
    return len(data)


def _text(kept: bytes, size: int) -> str:
    if size <= len(kept):
        return sanitise(kept.decode("utf-8", "replace"))
    whole = _whole_characters(kept)
    return sanitise(kept[:whole].decode("utf-8", "replace")) + f" … [{size - whole} more bytes in this line]"
