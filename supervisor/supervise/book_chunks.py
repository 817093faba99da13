r"""The held lines of a book as raw pieces, for a search that looks at bytes. Reads the disk piece by piece.

Each piece is read when it is asked for: what was let go meanwhile is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from supervisor.core.log_book import Chunk

if TYPE_CHECKING:
    from supervisor.supervise.book import Book

CHUNK_BYTES = 1 << 20


class _Run(Struct, frozen=True):
    """Bytes in a row that are held, and the numbers of the lines that both ends belong to."""

    start: int
    end: int
    first_line: int
    next_line: int
    begins_line: bool


def _runs(book: Book) -> list[_Run]:
    out = []
    for span in book.index.spans:
        gaps = book.spool.gaps(span.start, span.end)
        edges = [span.start, *(edge for gap in gaps for edge in gap), span.end]
        for start, end in zip(edges[::2], edges[1::2], strict=True):
            first, after = book.index.line_at(start), book.index.line_at(end)
            if start < end and first is not None and after is not None:
                out.append(_Run(start, end, first, after, span.begins_line and start == span.start))
    return out


def _first_whole(book: Book, run: _Run, line_no: int) -> tuple[int, int] | None:
    """Number and offset of the first line ≥ `line_no` that begins in the run, None where none does."""
    if run.begins_line and line_no <= run.first_line:
        return run.first_line, run.start
    wanted = max(line_no, run.first_line + 1)
    start = book.line_start(wanted) if wanted <= run.next_line else None
    if start is not None and run.start <= start <= run.end:
        return wanted, start
    return None


def forwards(book: Book, line_no: int, until: int) -> Iterator[Chunk]:
    """From `line_no` on."""
    for run in _runs(book):
        if run.next_line < line_no:
            continue
        if run.first_line >= until:
            return
        found = _first_whole(book, run, line_no)
        if found is not None:
            yield from _forwards_in(book, run, *found, until)


def _forwards_in(book: Book, run: _Run, line_no: int, at: int, until: int) -> Iterator[Chunk]:
    stop = book.line_start(until) if until <= run.next_line else None
    end = stop if stop is not None else run.end
    while line_no < until and at < end:
        data = book.spool.read(at, min(CHUNK_BYTES, end - at))
        size = data.rfind(b"\n") + 1
        if size:
            lines = data.count(b"\n", 0, size)
            yield Chunk(line_no, data[:size], lines)
            line_no, at = line_no + lines, at + size
            continue
        chunk, at = _one_line(book, line_no, at)
        if chunk is None:
            return
        yield chunk
        line_no += 1


def _one_line(book: Book, line_no: int, at: int) -> tuple[Chunk | None, int]:
    """A line that is longer than a piece, or the unfinished last one; and where the next begins."""
    end = book.line_start(line_no + 1)
    if end is None:
        if line_no != book.last_line:
            return None, at
        end = book.index.end
    if book.spool.run_end(at) < end or at >= end:
        return None, at
    half = CHUNK_BYTES // 2
    if end - at <= CHUNK_BYTES:
        return Chunk(line_no, book.spool.read(at, end - at), 1), end
    return Chunk(line_no, book.spool.read(at, half) + book.spool.read(end - half, half), 1), end


def backwards(book: Book, line_no: int, until: int) -> Iterator[Chunk]:
    """From before `until` on, towards `line_no`; the lines of each piece stand in their own order."""
    for run in reversed(_runs(book)):
        if run.first_line >= until:
            continue
        if run.next_line < line_no:
            return
        found = _first_whole(book, run, line_no)
        if found is not None:
            yield from _backwards_in(book, run, *found, until)


def _backwards_in(book: Book, run: _Run, line_no: int, first_at: int, until: int) -> Iterator[Chunk]:
    if until > run.next_line >= line_no and run.end == book.index.end:
        start = book.line_start(run.next_line)  # the unfinished last line
        chunk = _one_line(book, run.next_line, start)[0] if start is not None else None
        if chunk is not None:
            yield chunk
    until = min(until, run.next_line)
    end = book.line_start(until)
    while line_no < until and end is not None:
        at = max(first_at, end - CHUNK_BYTES)
        data = book.spool.read(at, end - at)
        if len(data) < end - at:
            return
        cut = data.find(b"\n") + 1 if at > first_at else 0
        if cut == len(data):
            until -= 1
            start = book.line_start(until)
            chunk = _one_line(book, until, start)[0] if start is not None else None
            if chunk is None:
                return
            yield chunk
            end = start
            continue
        lines = data.count(b"\n", cut)
        until -= lines
        end = at + cut
        yield Chunk(until, data[cut:], lines)
