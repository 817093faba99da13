"""What a pane, a search and a filter ask of a log that is too large for memory. A Protocol and its Structs, pure.

`supervise/book.py` keeps one on the disk; a test may keep one in memory. Rows go by the file's own line numbers, so
that the number on the screen is the one that `sed -n Np` takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from msgspec import Struct


class Row(Struct, frozen=True):
    """One line as it is shown: sanitised, a bar with `\\r` collapsed to its last state, a huge line cut."""

    line_no: int
    text: str
    living: bool = False
    """No `\\n` has come yet: it may still change."""
    held: bool = True
    """False: its bytes are on the node alone and have been asked for; `text` says so."""


class Chunk(Struct, frozen=True):
    """Whole lines in a row, for a search that looks at bytes and not at lines. Raw, as they stand in the file."""

    line_no: int
    """Number of the first line."""
    data: bytes
    lines: int


class LogBook(Protocol):
    """A log that grows. Every method is cheap but `chunks`, which reads the disk piece by piece."""

    @property
    def version(self) -> int:
        """Changes whenever anything of it has."""

    @property
    def generation(self) -> int:
        """Changes when the log has become another file: its lines and their numbers have nothing to do with these."""

    @property
    def first_line(self) -> int:
        """The first line that exists in the log, held or not: 1, or where the run began in its file."""

    @property
    def last_line(self) -> int:
        """The newest line, a living one too; `first_line - 1` while there is none."""

    @property
    def lost_lines(self) -> int:
        """Lines that can be shown no more: neither held nor to be had from the node."""

    def rows(self, line_no: int, count: int) -> list[Row]:
        """`count` rows from `line_no` on, fewer at the end. What is not held is asked for, and shown when it comes."""

    def chunks(self, line_no: int, until: int, *, backwards: bool = False) -> Iterator[Chunk]:
        """The held lines `line_no` ≤ n < `until`, in pieces of about 1 MiB. Holes are left out."""

    async def fetch_before(self, line_no: int, *, at_most_bytes: int = 64 << 20) -> bool:
        """Bring what is missing before a line, nearest first, so that it can be searched. True: nothing is missing.

        False: so much came, or nobody can be asked now. What can be had no more counts as not missing.
        """
