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
    if "\x1b" in text or "\x9b" in text:
        text = _ESCAPES.sub("", text)
    if "\t" in text:
        text = text.expandtabs(8)
    return _CONTROLS.sub("", text)


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
        self._pending = bytearray()
        self._cut_bytes = 0
        self._told_living = b""

    def __repr__(self) -> str:
        return f"<LineSplitter line {self._line_no}, {len(self._pending)} bytes pending>"

    @property
    def offset(self) -> int:
        """The offset of the next byte to be fed."""
        return self._next_offset

    def feed(self, data: bytes) -> list[Line]:
        """The lines that `data` completes, and the living line if `data` leaves one."""
        out: list[Line] = []
        start = 0
        while (end := data.find(b"\n", start)) != -1:
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
        if not self._pending and not self._cut_bytes:
            return []
        return [self._complete(self._next_offset)]

    def _keep(self, data: bytes) -> None:
        room = MAX_LINE_BYTES - len(self._pending)
        # A progress bar may redraw itself for hours without a newline: only its last state is worth keeping.
        if len(data) > room and b"\r" in data.rstrip(b"\r"):
            self._pending.clear()
            data = data.rstrip(b"\r").rpartition(b"\r")[2]
            room = MAX_LINE_BYTES
        elif len(data) > room and b"\r" in self._pending:
            last = bytes(self._pending).rstrip(b"\r").rpartition(b"\r")[2]
            self._pending[:] = last
            room = MAX_LINE_BYTES - len(last)
        self._pending += data[: max(0, room)]
        self._cut_bytes += max(0, len(data) - max(0, room))

    def _complete(self, next_line_offset: int) -> Line:
        line = Line(self._text(bytes(self._pending)), self._line_no, self._line_offset)
        self._pending.clear()
        self._cut_bytes = 0
        self._told_living = b""
        self._line_no += 1
        self._line_offset = next_line_offset
        return line

    def _living(self) -> Line | None:
        if b"\r" not in self._pending:
            return None  # an unfinished ordinary line: more of it comes
        state = bytes(self._pending)
        # The bar that was drawn last and whole; what follows the last \r may still be growing.
        if state == self._told_living:
            return None
        self._told_living = state
        return Line(self._text(state), self._line_no, self._line_offset, living=True)

    def _text(self, raw: bytes) -> str:
        # tqdm draws "\rtext": the last non-empty segment is what a terminal would show. What was printed behind
        # a bar without a newline is in that same segment, so an error there is not lost.
        segments = [part for part in raw.split(b"\r") if part.strip()]
        text = sanitise((segments[-1] if segments else b"").decode("utf-8", "replace"))
        if self._cut_bytes:
            text += f" … [{self._cut_bytes} more bytes in this line]"
        return text
