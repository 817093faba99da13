r"""The log of one session as rows, however large it is: implements `core/log_book.py`.

The bytes lie in the spool, the line numbers in a sparse index; what is not held (from before a takeover, fallen out of
a slow reader's queue, let go for newer bytes) is asked for where somebody wants to see it (`book_asking.py`). Text is
made of the lines that are shown and of no others.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator

import msgspec

from supervisor.adapters.heap import give_back
from supervisor.adapters.spool import Spool
from supervisor.core import events as ev
from supervisor.core.line_index import LineIndex
from supervisor.core.lines import MAX_LINE_BYTES, nth_newline, sanitise, shown, shown_cut, shown_unfinished
from supervisor.core.log_book import Chunk, Row
from supervisor.core.log_shown import first_part, last_part
from supervisor.supervise import book_chunks
from supervisor.supervise.book_asking import Asking, Count, Read

READ_BYTES = 64 << 10
WHOLE_LINE_BYTES = 8 << 20
"""A longer line is looked at from its end, for the last state of a bar, no further than this."""
UNFINISHED_BYTES = 1 << 20
CACHE_CHARS = 2 << 20


TRIM_EVERY_BYTES = 16 << 20
"""What came of a log before the heap is asked for what is free in it."""


class Book:
    """A log that grows. Close it when it is no longer shown.

    Args:
        read: (offset, length) → bytes of the file on the node, at most that many; empty where they are not to be had;
            raises `UnreachableError` where they may be had later. None: nobody can be asked.
        count: (offset) → how many lines of the file end before it; raises a `SupervisorError`. For a jump into the
            middle of what was never seen; without it that is read from its nearer end.
        on_change: called when something came that was asked for.
        spool: where the bytes are kept; None: in the user's cache folder.
    """

    def __init__(
        self,
        *,
        read: Read | None = None,
        count: Count | None = None,
        on_change: Callable[[], None] | None = None,
        spool: Spool | None = None,
    ) -> None:
        self.version = 0
        self.spool = spool if spool is not None else Spool()
        self._since_trim_bytes = 0
        self.index = LineIndex()
        self.run: tuple[int, int] | None = None
        """Offset and line number of where the run began; of the first one, where several follow in one file."""
        self._asking = Asking(self, read, count, on_change)
        self._rows: OrderedDict[int, Row] = OrderedDict()
        self._cached_chars = 0
        self.generation = 0
        """Counts the files that the log has been."""
        self._ends_with_newline = False
        self._living_line: int | None = None

    def __repr__(self) -> str:
        return f"<Book lines {self.first_line}-{self.last_line}, {self.index}>"

    # ------------------------------------------------------------------------------- what there is

    @property
    def warning(self) -> str:
        """What the user has to know of it: it cannot be kept on the disk."""
        return self.spool.warning

    @property
    def first_line(self) -> int:
        """The first line of the run, held or not; of what cannot be had any more, the first that was seen."""
        if self.run is None or not self.index.spans:
            return self.run[1] if self.run else 1
        return self.run[1] if self._asking.may_ask_first else self.index.spans[0].first_line

    @property
    def last_line(self) -> int:
        """The newest line, a living one too; `first_line - 1` while there is none."""
        if not self.index.spans:
            return self.first_line - 1
        last = self.index.spans[-1]
        return last.next_line if not self._ends_with_newline else last.next_line - 1

    @property
    def lost_lines(self) -> int:
        """Lines that can be shown no more."""
        return self._asking.lost_lines()

    # ------------------------------------------------------------------------------- what comes in

    def append(self, block: ev.LogBlock, *, begins_line: bool = False) -> None:
        """Take what came, in the order of the stream. `begins_line`: its first byte is known to begin one."""
        if block.fresh:
            self._begin_anew()
        if self.run is None or block.run_offset < self.run[0]:
            self.run = (block.run_offset, block.run_line)
        data, offset, line_no = block.data, block.offset, block.line_no
        if (seen := self.index.end - offset) > 0:
            # The tail that every newcomer gets may be known here already.
            line_no += data.count(b"\n", 0, seen)
            data, offset = data[seen:], self.index.end
        if data:
            try:
                whole = data is block.data
                self.keep(offset, line_no, data, block.lines if whole else None, begins_line=begins_line and whole)
            except ValueError:
                # No continuation of what is known: anew.
                self.append(msgspec.structs.replace(block, fresh=True), begins_line=begins_line)
                return
            self._ends_with_newline = data.endswith(b"\n")
            self._since_trim_bytes += len(data)
            if self._since_trim_bytes >= TRIM_EVERY_BYTES:
                self._since_trim_bytes = 0
                give_back()
        self.version += 1

    def append_line(self, log: ev.Log) -> None:
        """Take a line that comes without its bytes (a replay): the book gives it offsets of its own."""
        end, next_line = self.index.end, self.last_line + (1 if self._ends_with_newline else 0)
        line_no = log.line_no if log.line_no is not None else max(next_line, 1)
        fresh = not self.index.spans or line_no < next_line
        redrawn = not fresh and self._living_line == line_no
        if not redrawn and not fresh:
            if self._living_line is not None:
                self.keep(end, self._living_line, b"\n")  # it ended unseen: nothing of it may run into the next
                end += 1
            end += line_no - self.index.spans[-1].next_line  # lines that nobody has take a byte each
        text = sanitise(log.text).replace("\n", " ").encode("utf-8", "replace")
        data = text + (b"\r" if log.living else b"\n")
        self._living_line = line_no if log.living else None
        place = (0, line_no) if fresh or self.run is None else self.run
        self.append(
            ev.LogBlock(
                at=log.at,
                data=data,
                offset=0 if fresh else end,
                line_no=line_no,
                lines=0 if log.living else 1,
                fresh=fresh,
                run_offset=place[0],
                run_line=place[1],
            ),
            begins_line=not redrawn,
        )

    def keep(
        self, offset: int, line_no: int, data: bytes, known_lines: int | None = None, *, begins_line: bool = False
    ) -> None:
        """Bytes that no span has yet, from wherever. Raises `ValueError` where they contradict what is known."""
        unit = self.spool.unit_bytes
        assert self.run is not None
        begins_line = begins_line or offset == self.run[0]
        while data:
            # A mark where the spool's segments begin: what is let go is known by its offset and its line.
            piece = data[: unit - offset % unit]
            lines = known_lines if known_lines is not None and piece is data else piece.count(b"\n")
            known_lines = None
            mark = offset % unit == 0
            self.index.add(offset, line_no, piece, lines, begins_line=begins_line, mark=mark)
            self.spool.write(offset, piece)
            offset, line_no, data, begins_line = offset + len(piece), line_no + lines, data[len(piece) :], False

    def _begin_anew(self) -> None:
        self.generation += 1
        self.spool.clear()
        self.index = LineIndex()
        self.run = None
        self._ends_with_newline = False
        self._living_line = None
        self._asking.begin_anew()
        self.forget_rows()

    def forget_rows(self) -> None:
        """What was shown before may look otherwise now."""
        self._rows.clear()
        self._cached_chars = 0
        self.version += 1

    def close(self) -> None:
        """Let go of everything that it holds."""
        self._asking.close()
        self.spool.close()

    # ------------------------------------------------------------------------------- rows

    def rows(self, line_no: int, count: int) -> list[Row]:
        """`count` rows from `line_no` on, fewer at the end. What is not held is asked for, and shown when it comes."""
        line_no, end = max(line_no, self.first_line), min(line_no + count, self.last_line + 1)
        out: list[Row] = []
        while line_no < end:
            row = self._rows.get(line_no)
            if row is not None:
                self._rows.move_to_end(line_no)
                out.append(row)
            else:
                out += self._read_rows(line_no, end)
            line_no = out[-1].line_no + 1
        return out

    def _read_rows(self, line_no: int, end: int) -> list[Row]:
        """At least one row."""
        start = self.line_start(line_no)
        if start is None:
            return self._broken_rows(line_no, None, end)
        data = self.spool.read(start, READ_BYTES)
        out, place = [], 0
        while line_no < end and (stop := data.find(b"\n", place)) != -1 and line_no not in self._rows:
            out.append(self._cache(Row(line_no, shown(data[place:stop]))))
            place, line_no = stop + 1, line_no + 1
        return out or self._odd_rows(line_no, start, end)

    def _odd_rows(self, line_no: int, start: int, end: int) -> list[Row]:
        """From a line that is not whole in one read: a long one, the living one, or one of which a part is not held."""
        next_start = self.line_start(line_no + 1)
        if next_start is not None and self.spool.run_end(start) >= next_start - 1:
            return [self._cache(Row(line_no, self._long(start, next_start - 1)))]
        held_end = self.spool.run_end(start)
        if line_no == self.last_line and held_end == self.index.end:
            return [Row(line_no, self._unfinished(start, held_end), living=True)]
        return self._broken_rows(line_no, start, end)

    def _broken_rows(self, line_no: int, start: int | None, end: int) -> list[Row]:
        """From a line of which a part is not held, or nothing. It is asked for; what is there is shown meanwhile."""
        asked, why, next_line = self._asking.want(line_no)
        if start is not None:
            text = first_part(self._long(start, self.spool.run_end(start)))
        else:
            text = last_part(self._rest_of(line_no))
        living = line_no == self.last_line and not self._ends_with_newline
        if text or living:
            row = Row(line_no, text, living=living)
            return [row if asked or living else self._cache(row)]
        return [Row(number, why, held=False) for number in range(line_no, max(line_no + 1, min(end, next_line)))]

    def _rest_of(self, line_no: int) -> str:
        """The end of a line whose beginning was never seen: where a takeover began to read."""
        for span in reversed(self.index.spans):
            if span.first_line == line_no:
                next_start = self.line_start(line_no + 1)
                end = next_start - 1 if next_start is not None else span.end
                return self._long(span.start, end) if self.spool.run_end(span.start) >= end else ""
        return ""

    def _long(self, start: int, end: int) -> str:
        if end - start <= WHOLE_LINE_BYTES:
            return shown(self.spool.read(start, end - start))
        tail = self.spool.read(end - WHOLE_LINE_BYTES, WHOLE_LINE_BYTES)
        if (returned := tail.find(b"\r")) != -1:
            return shown(tail[returned:])
        return shown_cut(self.spool.read(start, MAX_LINE_BYTES), end - start)

    def _unfinished(self, start: int, end: int) -> str:
        """As `_long`; this one is made anew with every picture, so it looks back less far."""
        if end - start <= UNFINISHED_BYTES:
            return shown_unfinished(self.spool.read(start, end - start))
        tail = self.spool.read(end - UNFINISHED_BYTES, UNFINISHED_BYTES)
        if (returned := tail.find(b"\r")) != -1:
            return shown_unfinished(tail[returned:])
        return shown_cut(self.spool.read(start, MAX_LINE_BYTES), end - start)

    def _cache(self, row: Row) -> Row:
        self._rows[row.line_no] = row
        self._cached_chars += len(row.text) + 100
        while self._cached_chars > CACHE_CHARS:
            self._cached_chars -= len(self._rows.popitem(last=False)[1].text) + 100
        return row

    def line_start(self, line_no: int) -> int | None:
        """The offset of a line's first byte, None where it is not known, or the bytes that tell it are not held."""
        place = self.index.place(line_no)
        if place is None:
            return None
        if not place.newlines:
            return place.start
        data = self.spool.read(place.start, place.end - place.start)
        at = nth_newline(data, place.newlines)
        return place.start + at + 1 if at != -1 else None

    # ------------------------------------------------------------------------------- search

    def chunks(self, line_no: int, until: int, *, backwards: bool = False) -> Iterator[Chunk]:
        """The held lines `line_no` ≤ n < `until`, in pieces of about 1 MiB. Holes are left out.

        Of a line that is longer, its beginning and its end are given. Over where the log turns into another file.
        """
        line_no, until = max(line_no, self.first_line), min(until, self.last_line + 1)
        walk = book_chunks.backwards if backwards else book_chunks.forwards
        generation = self.generation
        for chunk in walk(self, line_no, until):
            yield chunk
            if self.generation != generation:
                return

    async def fetch_before(self, line_no: int, *, at_most_bytes: int = 64 << 20) -> bool:
        """Ask for what is missing before a line, nearest first, so that it can be searched. True: nothing is missing.

        False: so many bytes came, or the node cannot be asked now; to be called again. What cannot be had counts as
        not missing.
        """
        return await self._asking.fetch_before(line_no, at_most_bytes)
