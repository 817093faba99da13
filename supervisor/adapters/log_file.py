r"""Reads a log that is a file or comes on standard input, whatever its size and wrapping, as UTF-8 in bounded memory.

Known by its first bytes: gzip (one or several members), UTF-16 with its mark (what `>` of PowerShell writes). What is
no UTF-8 passes as it is: `core/lines.py` makes replacement characters of it. Lines are counted by `\n`, as the text
that comes out of `zcat` or the editor has them.

Backwards, for logs that stand newest first, it reads from a spool without a name, which is gone with the process.
"""

from __future__ import annotations

import codecs
import sys
import tempfile
import zlib
from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO

from msgspec import Struct

from supervisor.core.diagnosis.log_order import Order, stamp
from supervisor.core.lines import MAX_LINE_BYTES, shown
from supervisor.errors import UsageError

BLOCK_BYTES = 256 * 1024
HEAD_BYTES = 4 * 1024 * 1024
"""The beginning that is looked at before the log is read: whose it is, and in which order."""
MOST_OF_ENTRY = 5000
"""Lines that belong to one time stamp; what has more is taken for lines of their own."""
STDIN = "-"

_GZIP = b"\x1f\x8b"
_UTF16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


class Reading(Struct):
    """A log that is being read."""

    blocks: Iterator[bytes]
    notes: list[str] = []
    """What was wrong with it, one sentence each."""


@contextmanager
def opened(name: str) -> Iterator[Reading]:
    """The log of that name, `-` for standard input. Raises `UsageError` where it cannot be read."""
    if name == STDIN:
        if sys.stdin.isatty():
            raise UsageError("no log comes on standard input: give a FILE, or `… | supervisor diagnose -`")
        yield _reading(sys.stdin.buffer, "standard input")
        return
    try:
        stream = open(name, "rb")  # noqa: SIM115  # what fails later is another's
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{name}: cannot be read: {reason}") from error
    with stream:
        yield _reading(stream, name)


def _reading(stream: IO[bytes], name: str) -> Reading:
    notes: list[str] = []
    return Reading(blocks=_text(_unzipped(_raw(stream, name), notes)), notes=notes)


def _raw(stream: IO[bytes], name: str) -> Iterator[bytes]:
    while True:
        try:
            data = stream.read(BLOCK_BYTES)
        except OSError as error:
            raise UsageError(f"{name}: cannot be read: {error.strerror}") from error
        if not data:
            return
        yield data


def _unzipped(blocks: Iterator[bytes], notes: list[str]) -> Iterator[bytes]:
    first = next(blocks, b"")
    if not first.startswith(_GZIP):
        if first:
            yield first
        yield from blocks
        return
    inflate, data, began = zlib.decompressobj(wbits=31), first, True
    while True:
        try:
            out = inflate.decompress(data, BLOCK_BYTES)
        except zlib.error as error:
            if began:  # what follows a whole member and is none: gzip itself leaves padding out
                notes.append(f"the gzip data is broken, and was read up to there ({error})")
            return
        if out:
            yield out
        data = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
        if inflate.eof:
            data = (data or next(blocks, b"")).lstrip(b"\0")
            if not data:
                return
            inflate, began = zlib.decompressobj(wbits=31), data.startswith(_GZIP[:1])
        elif not data and len(out) < BLOCK_BYTES:
            data = next(blocks, b"")
            if not data:
                notes.append("the gzip data ends in the middle: the end of the log is missing")
                return


def _text(blocks: Iterator[bytes]) -> Iterator[bytes]:
    first = next(blocks, b"")
    while 0 < len(first) < 2 and (more := next(blocks, b"")):
        first += more
    encoding = _UTF16.get(first[:2])
    if encoding is None:
        if first:
            yield first
        yield from blocks
        return
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    data = first[2:]
    while True:
        text = decoder.decode(data)
        if text:
            yield text.encode("utf-8", "replace")
        data = next(blocks, b"")
        if not data:
            break
    if last := decoder.decode(b"", final=True):
        yield last.encode("utf-8", "replace")


def head_of(blocks: Iterator[bytes]) -> tuple[list[bytes], bool]:
    """The first blocks, and whether they are all of it."""
    head: list[bytes] = []
    size = 0
    for data in blocks:
        head.append(data)
        size += len(data)
        if size >= HEAD_BYTES:
            return head, False
    return head, True


def lines_of(blocks: Iterable[bytes], most: int) -> Iterator[str]:
    """The first lines as text, for looking at how a log is made."""
    rest = b""
    for data in blocks:
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            yield shown(line)
            most -= 1
            if not most:
                return
        rest = rest[:MAX_LINE_BYTES]
    if rest:
        yield shown(rest)


# ------------------------------------------------------------------------------------------------ newest first


class Backwards:
    """A whole log on a spool, to be read from its end.

    Lines have two numbers: the one that they are given while they are read so, and the one in the log as it is.
    """

    def __init__(self, blocks: Iterable[bytes], order: Order) -> None:
        self._order = order
        self._size = self._lines = 0
        last = b"\n"
        try:
            self._file = tempfile.TemporaryFile(prefix="supervisor-log-")  # noqa: SIM115  # closed by `close`
            for data in blocks:
                self._file.write(data)
                self._lines += data.count(b"\n")
                self._size += len(data)
                last = data[-1:] or last
            self._file.flush()
        except OSError as error:
            why = f"it is newest first, and to read it backwards needs room in {tempfile.gettempdir()}"
            raise UsageError(f"{why}: {error.strerror}") from error
        self._lines += last != b"\n"

    def close(self) -> None:
        """The spool is gone."""
        self._file.close()

    def blocks(self) -> Iterator[bytes]:
        """The log as it was written, in blocks of whole lines."""
        out: list[bytes] = []
        size = 0
        for line, _ in self._in_order():
            out.append(line)
            size += len(line) + 1
            if size >= BLOCK_BYTES:
                yield b"\n".join(out) + b"\n"
                out, size = [], 0
        if out:
            yield b"\n".join(out) + b"\n"

    def numbers(self, given: Iterable[int]) -> dict[int, int]:
        """Number while it was read → number in the log as it is."""
        wanted, found = set(given), {}
        if self._order is Order.LINES_REVERSED:
            return {number: self._lines + 1 - number for number in wanted}
        for number, (_, line_no) in enumerate(self._in_order(), 1):
            if number in wanted:
                found[number] = line_no
                if len(found) == len(wanted):
                    break
        return found

    def _in_order(self) -> Iterator[tuple[bytes, int]]:
        """Each line with its number in the log, oldest first."""
        if self._order is not Order.ENTRIES_REVERSED:
            yield from self._from_end()
            return
        held: list[tuple[bytes, int]] = []
        for line, line_no in self._from_end():
            held.append((line, line_no))
            if len(held) >= MOST_OF_ENTRY or stamp(shown(line[:MAX_LINE_BYTES])) is not None:
                yield from reversed(held)
                held = []
        yield from reversed(held)

    def _from_end(self) -> Iterator[tuple[bytes, int]]:
        """Each line with its number, from the last one. Of a huge line its beginning is kept."""
        at, line_no, rest = self._size, self._lines, b""
        is_last = True
        while at > 0:
            start = max(0, at - BLOCK_BYTES)
            self._file.seek(start)
            data = self._file.read(at - start) + rest
            at = start
            ends = array("q", _newlines(data))
            end = len(data)
            for newline in reversed(ends):
                if not (is_last and newline + 1 == end):  # nothing stands behind the last newline
                    yield data[newline + 1 : min(end, newline + 1 + 2 * MAX_LINE_BYTES)], line_no
                    line_no -= 1
                is_last = False
                end = newline
            rest = data[: min(end, 4 * MAX_LINE_BYTES)]
            is_last = is_last and not ends and not rest
        if self._lines and line_no:
            yield rest, line_no


def _newlines(data: bytes) -> Iterator[int]:
    at = data.find(b"\n")
    while at != -1:
        yield at
        at = data.find(b"\n", at + 1)
