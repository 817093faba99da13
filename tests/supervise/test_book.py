r"""A book shows every line as the splitter does, whatever it holds of the log and wherever the rest comes from."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from supervisor.adapters.spool import Spool
from supervisor.core import events as ev
from supervisor.core.lines import MAX_LINE_BYTES, Line, LineSplitter
from supervisor.core.log_book import Row
from supervisor.errors import UnreachableError
from supervisor.supervise import book_asking
from supervisor.supervise.book import Book
from supervisor.supervise.book_asking import ASKED, LATER, LOST

PARTS = [
    b"\n", b"\n", b"\n", b"\r", b"\r\n", b"\t", b"word ", b"\x1b[32mgreen\x1b[0m", "█é😀".encode(), b"\xff\xf0", b"   ",
    b"a" * 200, b"x" * (MAX_LINE_BYTES + 7), b"12345678\n" * 40, b"\r 45%|##" * 5, b"y" * 70_000,
]  # fmt: skip
RAW = st.lists(st.sampled_from(PARTS) | st.binary(max_size=4), max_size=40).map(b"".join)
CUTS = st.lists(st.integers(0, 1 << 30), max_size=10)


def small_spool(folder: Path, limit_bytes: int = 1 << 30) -> Spool:
    """Segments so small that a test's log has many."""
    return Spool(folder, limit_bytes=limit_bytes, segment_bytes=4096, memory_bytes=1 << 30, memory_segment_bytes=1024)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spool")


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """As small for such a log as the real ones are for a real one."""
    monkeypatch.setattr(book_asking, "FAR_BYTES", 100_000)
    monkeypatch.setattr(book_asking, "FIRST_PIECE_BYTES", 16 << 10)
    monkeypatch.setattr(book_asking, "MOST_PIECE_BYTES", 16 << 10)


def blocks_of(data: bytes, cuts: Iterable[int], *, offset: int = 0, line_no: int = 1) -> list[ev.LogBlock]:
    """The bytes as a session tells them."""
    out = []
    first_line = line_no
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for number, (start, end) in enumerate(itertools.pairwise(edges)):
        piece = data[start:end]
        lines = piece.count(b"\n")
        out.append(
            ev.LogBlock(
                at=0.0, data=piece, offset=offset + start, line_no=line_no, lines=lines, fresh=not number,
                run_offset=offset, run_line=first_line,
            )
        )  # fmt: skip
        line_no += lines
    return out


def lines_of(data: bytes, *, offset: int = 0, line_no: int = 1) -> list[Line]:
    """What the splitter shows of every line, the unfinished one too."""
    splitter = LineSplitter(offset=offset, lines_before=line_no - 1)
    return [line for line in [*splitter.feed(data), *splitter.end()] if not line.living]


def rows_of(data: bytes, *, line_no: int = 1) -> list[Row]:
    """The rows of a log. Of its last line, where that is not finished, a book says that it may still change."""
    lines = lines_of(data, line_no=line_no)
    rows = [Row(line.line_no, line.text) for line in lines]
    if data and not data.endswith(b"\n"):
        living = [line for line in LineSplitter(lines_before=line_no - 1).feed(data) if line.living]
        rows[-1] = Row(lines[-1].line_no, living[-1].text if living else lines[-1].text, living=True)
    return rows


def all_rows(book: Book, step: int = 7) -> list[Row]:
    """Every row, in pages."""
    out: list[Row] = []
    for start in range(book.first_line, book.last_line + 1, step):
        out += book.rows(start, step)
    return out


def same(rows: list[Row], wanted: list[Row]) -> bool:
    """The same, but for half a character at the end of an unfinished line, which a book keeps back."""
    if rows and wanted and rows[-1].living:
        return rows[:-1] == wanted[:-1] and wanted[-1].text.rstrip("\ufffd") == rows[-1].text.rstrip("\ufffd")
    return rows == wanted


class Node:
    """The file as it stands on the node."""

    def __init__(self, data: bytes, *, at_most: int = 1 << 20) -> None:
        self.data = data
        self.at_most = at_most
        self.asked: list[tuple[int, int]] = []
        self.down = False
        self.busy = 0
        self.answer = asyncio.Event()
        self.answer.set()

    async def read(self, offset: int, length: int) -> bytes:
        self.busy += 1
        assert self.busy == 1, "one request at a time"
        self.asked.append((offset, length))
        try:
            await self.answer.wait()
        finally:
            self.busy -= 1
        if self.down:
            raise UnreachableError("down")
        return self.data[offset : offset + min(length, self.at_most)]

    async def count(self, offset: int) -> int:
        return self.data[:offset].count(b"\n")


async def shown_at_last(book: Book, pages: Iterable[tuple[int, int]]) -> list[Row]:
    """The rows of these pages once nothing of them is missing, as a pane comes to see them."""
    out: list[Row] = []
    for start, count in pages:
        for _ in range(200):
            rows = book.rows(start, count)
            task = book._asking._task
            if task is None or task.done():
                break
            await task
        else:
            raise AssertionError("it goes on asking for ever")
        out += rows
    return out


# ------------------------------------------------------------------------------------------------- all is held


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=RAW, cuts=CUTS, offset=st.integers(0, 5000), line_no=st.integers(1, 500))
def test_every_row_is_what_the_splitter_shows(
    data: bytes, cuts: list[int], offset: int, line_no: int, folder: Path
) -> None:
    book = Book(spool=small_spool(folder))
    try:
        for block in blocks_of(data, cuts, offset=offset, line_no=line_no):
            book.append(block)
        assert same(all_rows(book), rows_of(data, line_no=line_no))
        assert same(all_rows(book, 1), rows_of(data, line_no=line_no)), "from its memory of them too"
        assert (book.first_line, book.lost_lines) == (line_no, 0)
    finally:
        book.close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=RAW.filter(lambda data: b"\n" in data), cuts=CUTS, ends=st.tuples(st.integers(0, 99), st.integers(0, 99)))
def test_chunks_are_the_bytes_of_the_lines(data: bytes, cuts: list[int], ends: tuple[int, int], folder: Path) -> None:
    book = Book(spool=small_spool(folder))
    try:
        for block in blocks_of(data, cuts):
            book.append(block)
        raw = data.split(b"\n")
        raw = [line + b"\n" for line in raw[:-1]] + [line for line in raw[-1:] if line]
        first, until = (end % (len(raw) + 2) for end in ends)
        wanted = b"".join(raw[max(0, first - 1) : max(0, until - 1)])
        for backwards in (False, True):
            chunks = list(book.chunks(first, until, backwards=backwards))
            if backwards:
                chunks.reverse()
            assert b"".join(chunk.data for chunk in chunks) == wanted
            line_no = max(1, first)
            for chunk in chunks:
                assert chunk.line_no == line_no
                line_no += chunk.lines
            assert line_no == max(1, first) + len(raw[max(0, first - 1) : max(0, until - 1)])
    finally:
        book.close()


def test_chunks_are_about_a_mebibyte_and_a_longer_line_gives_both_of_its_ends(tmp_path: Path) -> None:
    book = Book(spool=Spool(tmp_path))
    line = b"x" * 99 + b"\n"
    huge = b"A" + b"y" * 3_000_000 + b"B\n"
    data = line * 25_000 + huge + line * 25_000 + b"C" + b"z" * 2_000_000 + b"D"
    for block in blocks_of(data, range(0, len(data), 65_536)):
        book.append(block)
    for backwards in (False, True):
        chunks = list(book.chunks(1, 1 << 40, backwards=backwards))
        assert all(len(chunk.data) <= 1 << 20 for chunk in chunks)
        assert len(chunks) <= 12
        assert sum(chunk.lines for chunk in chunks) == 50_002
        (cut,) = [chunk for chunk in chunks if chunk.data[:1] == b"A"]
        assert (cut.line_no, cut.lines, cut.data[-2:]) == (25_001, 1, b"B\n")
        (cut,) = [chunk for chunk in chunks if chunk.data[:1] == b"C"]
        assert (cut.line_no, cut.lines, cut.data[-1:]) == (50_002, 1, b"D")
    book.close()


def test_a_bar_lives_and_its_rows_are_what_was_drawn_last(tmp_path: Path) -> None:
    book = Book(spool=small_spool(tmp_path))
    splitter = LineSplitter()
    for block in blocks_of(b"first\n  0%|  |\r 45%|##|\r100%|####|\nnext", range(42)):
        book.append(block)
        for line in splitter.feed(block.data):
            if line.living:
                (row,) = book.rows(line.line_no, 1)
                assert row == Row(line.line_no, line.text, living=True)
    assert book.rows(1, 9) == [Row(1, "first"), Row(2, "100%|####|"), Row(3, "next", living=True)]
    assert book.last_line == 3
    book.close()


def test_ten_megabytes_in_one_line_are_a_row(tmp_path: Path) -> None:
    book = Book(spool=Spool(tmp_path))
    data = b"before\n" + b"x" * 10_000_000 + b"\nafter\n" + b"y" * 10_000_000 + b"\r 7%\n" + b"z" * 200_000
    for block in blocks_of(data, range(0, len(data), 65_536)):
        book.append(block)
    rows = book.rows(1, 9)
    assert [row.text[:5] for row in rows] == ["befor", "xxxxx", "after", " 7%", "zzzzz"]
    assert rows[1].text.endswith(f"x … [{10_000_000 - MAX_LINE_BYTES} more bytes in this line]")
    assert rows[4].text.endswith(f"z … [{200_000 - MAX_LINE_BYTES} more bytes in this line]")
    assert [row.living for row in rows] == [False] * 4 + [True]
    book.close()


def test_another_file_is_another_log(tmp_path: Path) -> None:
    book = Book(spool=small_spool(tmp_path))
    for block in (*blocks_of(b"old 1\nold 2\nol", [3]), *blocks_of(b"new 1\nne", [4])):
        version = book.version
        book.append(block)
        assert book.version != version
    assert book.rows(1, 9) == [Row(1, "new 1"), Row(2, "ne", living=True)]
    chunks = book.chunks(1, 9)
    next(chunks)
    book.append(blocks_of(b"newer\n", [])[0])
    assert list(chunks) == []
    book.close()


def test_a_next_run_in_the_same_file_goes_on(tmp_path: Path) -> None:
    book = Book(spool=small_spool(tmp_path))
    book.append(blocks_of(b"run one\n", [], offset=100, line_no=5)[0])
    (block,) = blocks_of(b"run two\n", [], offset=108, line_no=6)
    book.append(ev.LogBlock(at=0, data=block.data, offset=108, line_no=6, lines=1, run_offset=108, run_line=6))
    assert book.rows(1, 9) == [Row(5, "run one"), Row(6, "run two")]
    book.close()


def test_numbers_that_do_not_fit_begin_a_log_anew(tmp_path: Path) -> None:
    """Whatever happened to the file: better the new lines alone than wrong ones, and never an end of the console."""
    book = Book(spool=small_spool(tmp_path))
    book.append(blocks_of(b"a\nb\nc\n", [])[0])
    book.append(ev.LogBlock(at=0, data=b"d\ne\n", offset=9, line_no=2, lines=2))
    assert book.rows(1, 9)[-1] == Row(3, "e")
    book.close()


# ------------------------------------------------------------------------------------------------- a replay


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.lists(st.sampled_from([p for p in PARTS if len(p) < 1000]), max_size=30).map(b"".join), cuts=CUTS)
def test_lines_without_their_bytes_are_shown_too(data: bytes, cuts: list[int], folder: Path) -> None:
    book, splitter = Book(spool=small_spool(folder)), LineSplitter()
    try:
        last: dict[int, str] = {}
        living: dict[int, bool] = {}
        for block in blocks_of(data, cuts):
            for line in splitter.feed(block.data):
                book.append_line(
                    ev.Log(at=0, text=line.text, line_no=line.line_no, offset=line.offset, living=line.living)
                )
                if line.text.strip() or line.line_no not in last:
                    last[line.line_no] = line.text
                living[line.line_no] = line.living
        shown = [(row.line_no, row.text, row.living) for row in all_rows(book)]
        assert shown == [(line_no, text, living[line_no]) for line_no, text in last.items()]
    finally:
        book.close()


def test_lines_that_fell_out_of_a_record_are_lost_and_said_so(tmp_path: Path) -> None:
    book = Book(spool=small_spool(tmp_path))

    def log(line_no: int | None, text: str, *, living: bool = False) -> None:
        book.append_line(ev.Log(at=0, text=text, line_no=line_no, offset=0, living=living))

    log(11, "eleven")
    log(12, "12 %", living=True)
    log(15, "fif\nteen\x1b[2J")
    log(None, "the next")
    assert book.rows(1, 99) == [
        Row(11, "eleven"), Row(12, "12 %"), Row(13, LOST, held=False), Row(14, LOST, held=False), Row(15, "fif teen"),
        Row(16, "the next"),
    ]  # fmt: skip
    assert book.lost_lines == 2
    log(1, "another file")
    assert all_rows(book) == [Row(1, "another file")]
    book.close()


# ------------------------------------------------------------------------------------------------- what is not held


DATA = b"".join(b"line %d of the log, and what it says\n" % number for number in range(1, 20_001))
ROWS = rows_of(DATA)


def some(data: bytes, start: int, end: int) -> ev.LogBlock:
    """A block of a run that began at the file's start."""
    piece = data[start:end]
    return ev.LogBlock(
        at=0, data=piece, offset=start, line_no=data.count(b"\n", 0, start) + 1, lines=piece.count(b"\n")
    )  # fmt: skip


@pytest.mark.asyncio
@pytest.mark.parametrize("count", [False, True], ids=["read", "counted"])
async def test_what_was_before_a_takeover_is_fetched_where_it_is_looked_at(
    tmp_path: Path, count: bool, small_pieces: None
) -> None:
    node, changes = Node(DATA), []
    book = Book(
        read=node.read,
        count=node.count if count else None,
        on_change=lambda: changes.append(book.version),
        spool=small_spool(tmp_path),
    )
    start = len(DATA) - 10_000
    book.append(some(DATA, start, len(DATA)))
    assert (book.first_line, book.last_line) == (1, 20_000)
    assert book.rows(20_000, 1) == ROWS[-1:] and not node.asked
    assert book.rows(1, 1) == [Row(1, ASKED, held=False)]
    assert await shown_at_last(book, [(1, 3)]) == ROWS[:3]
    assert len(node.asked) == 1 and len(changes) == 1
    asked = len(node.asked)
    assert await shown_at_last(book, [(10_000, 5)]) == ROWS[9_999:10_004]
    assert (len(node.asked) - asked < 4) is count, "a jump into the middle reads its way, or counts it"
    middle = 19_000
    assert await shown_at_last(book, [(middle - step, 50) for step in range(0, 1000, 50)]) == [
        row for step in range(0, 1000, 50) for row in ROWS[middle - step - 1 : middle - step + 49]
    ]
    assert await shown_at_last(book, [(page, 500) for page in range(1, 20_001, 500)]) == ROWS
    assert book.lost_lines == 0
    assert all(length <= (16 << 10) + 512 for _, length in node.asked)
    book.close()


@pytest.mark.asyncio
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=RAW, cuts=CUTS, gone=st.sets(st.integers(0, 10)), jumps=st.lists(st.integers(0, 999), max_size=6))
async def test_whatever_fell_out_comes_back(
    data: bytes, cuts: list[int], gone: set[int], jumps: list[int], folder: Path
) -> None:
    """Blocks that a slow reader lost, in any line of any length."""
    node = Node(data)
    book = Book(read=node.read, count=node.count, spool=small_spool(folder))
    try:
        for number, block in enumerate(blocks_of(data, cuts)):
            if number not in gone:
                book.append(block)
        end = book.index.end
        wanted = rows_of(data[:end])
        pages = [(1 + jump % (len(wanted) + 1), 9) for jump in jumps]
        await shown_at_last(book, pages)
        assert same(await shown_at_last(book, [(1, 1 << 20)]), wanted)
        assert b"".join(chunk.data for chunk in book.chunks(1, 1 << 40)) == data[:end] or len(data) > 1 << 20
    finally:
        book.close()


@pytest.mark.asyncio
async def test_what_was_let_go_comes_back(tmp_path: Path, small_pieces: None) -> None:
    """A bound of 64 KiB for 770: the newest is held, what is looked at comes, and the bound holds."""
    node = Node(DATA)
    book = Book(read=node.read, spool=small_spool(tmp_path, 64 << 10))
    for at in range(0, len(DATA), 8000):
        book.append(some(DATA, at, at + 8000))
    assert book.spool._disk.held.total <= 64 << 10
    assert book.rows(19_990, 11) == ROWS[-11:]
    assert book.rows(1, 2) == [Row(1, ASKED, held=False), Row(2, ASKED, held=False)]
    for page in (1, 777, 15_000, 19_000, 3):
        assert await shown_at_last(book, [(page, 60)]) == ROWS[page - 1 : page + 59]
    assert book.spool._disk.held.total <= 64 << 10
    assert book.lost_lines == 0
    for at in range(20_000, 1, -60):
        assert await shown_at_last(book, [(max(1, at - 59), min(60, at))]) == ROWS[max(0, at - 60) : at]
    book.close()


def test_what_was_let_go_and_cannot_be_had_is_counted(tmp_path: Path) -> None:
    book = Book(spool=small_spool(tmp_path, 64 << 10))
    for at in range(0, len(DATA), 8000):
        book.append(some(DATA, at, at + 8000))
    rows = book.rows(1, 20_000)
    there = [row for row in rows if row.held]
    assert there == ROWS[-len(there) :]
    assert len(there) > 1000
    assert book.lost_lines in (20_000 - len(there), 20_000 - len(there) - 1), "but for one of which the end is there"
    assert {row.text for row in rows if not row.held} == {LOST}
    chunks = list(book.chunks(1, 1 << 40))
    assert sum(chunk.lines for chunk in chunks) in (len(there), len(there) - 1)
    assert [chunk.data for chunk in book.chunks(1, 1 << 40, backwards=True)] == [chunk.data for chunk in chunks]
    book.close()


@pytest.mark.asyncio
async def test_all_of_it_can_be_fetched_for_a_search(tmp_path: Path) -> None:
    node = Node(DATA)
    book = Book(read=node.read, spool=small_spool(tmp_path))
    book.append(some(DATA, 500_000, 600_000))
    book.append(some(DATA, 700_000, len(DATA)))
    assert not await book.fetch_before(1 << 40, at_most_bytes=1)
    assert node.asked[0][0] + node.asked[0][1] >= 700_000, "the nearest first"
    before = book.rows(16_500, 1)[0].line_no
    assert await book.fetch_before(before)
    assert b"".join(chunk.data for chunk in book.chunks(1, before)) == DATA[: DATA.index(b"line %d " % before)]
    assert await book.fetch_before(1 << 40)
    assert all_rows(book, 1000) == ROWS
    node.down = True
    book.append(ev.LogBlock(at=0, data=b"", offset=0, line_no=1, lines=0, fresh=True))
    book.append(some(DATA, 700_000, len(DATA)))
    assert not await book.fetch_before(1 << 40)
    book.close()


@pytest.mark.asyncio
async def test_a_link_that_is_down_is_said_and_asked_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(DATA)
    node.down = True
    book = Book(read=node.read, spool=small_spool(tmp_path))
    book.append(some(DATA, 700_000, len(DATA)))
    assert await shown_at_last(book, [(5, 2)]) == [Row(5, LATER, held=False), Row(6, LATER, held=False)]
    assert len(node.asked) == 1, "not at every picture"
    assert book.lost_lines == 0
    node.down = False
    monkeypatch.setattr(book._asking, "_retry_at", 0.0)
    assert await shown_at_last(book, [(5, 2)]) == ROWS[4:6]
    book.close()


OTHERS = [
    b"", DATA[:300_000], DATA.replace(b"log", b"cat"), DATA.replace(b"line 1", b"line\n"), b"x" * len(DATA)
]  # fmt: skip


@pytest.mark.asyncio
@pytest.mark.parametrize("other", OTHERS, ids=["empty", "short", "other words", "other lines", "no lines"])
@pytest.mark.parametrize("let_go", [False, True], ids=["never seen", "let go"])
async def test_a_file_that_is_another_one_gives_no_line(
    tmp_path: Path, other: bytes, let_go: bool, small_pieces: None
) -> None:
    node = Node(other)
    book = Book(read=node.read, count=node.count, spool=small_spool(tmp_path, 64 << 10 if let_go else 1 << 30))
    for at in range(0 if let_go else 680_000, len(DATA), 8000):
        book.append(some(DATA, at, at + 8000))
    line_no = book.rows(19_000, 1)[0].line_no
    while (row := book.rows(line_no, 1)[0]).held:
        line_no -= 1
    assert row.text == ASKED
    found = await shown_at_last(book, [(line_no, 1)])
    if let_go and other == DATA.replace(b"log", b"cat"):
        return  # the same lengths and the same number of lines: what cannot be told apart without the bytes
    assert found in ([Row(line_no, LOST, held=False)], []), "gone, or no line of the log that is shown"
    assert book.first_line > 1 or let_go
    assert book.lost_lines > 15_000
    assert all_rows(book, 500)[-1000:] == ROWS[-1000:]
    book.close()


@pytest.mark.asyncio
async def test_bytes_of_the_file_before_are_not_taken_for_this_one(tmp_path: Path) -> None:
    node = Node(DATA)
    node.answer.clear()
    book = Book(read=node.read, spool=small_spool(tmp_path))
    book.append(some(DATA, 700_000, len(DATA)))
    assert book.rows(1, 1) == [Row(1, ASKED, held=False)]
    await asyncio.sleep(0)
    assert node.asked
    book.append(ev.LogBlock(at=0, data=b"new\n", offset=0, line_no=1, lines=1, fresh=True))
    node.answer.set()
    assert book._asking._task is not None
    await book._asking._task
    assert all_rows(book) == [Row(1, "new")]
    book.close()


@pytest.mark.asyncio
async def test_the_first_line_of_a_takeover_is_shown_in_part_until_the_rest_has_come(tmp_path: Path) -> None:
    node = Node(DATA)
    book = Book(read=node.read, spool=small_spool(tmp_path))
    start = DATA.index(b"of the log", 700_000)
    block = some(DATA, start, len(DATA))
    book.append(block)
    said = "[the beginning of this line is not here] … the log, and what it says"
    assert book.rows(block.line_no, 1) == [Row(block.line_no, said)]
    assert await shown_at_last(book, [(block.line_no, 1)]) == ROWS[block.line_no - 1 : block.line_no]
    book.close()


def test_a_part_of_a_line_says_so_and_shows_no_half_of_a_word(tmp_path: Path) -> None:
    """Half a secret passes every mask, and half a line is not what the server said."""
    line = b"args: --api-key sk-1234567890abcdef --tp 8\n"
    for cut in range(16, 35):
        end, start = Book(spool=small_spool(tmp_path)), Book(spool=small_spool(tmp_path))
        end.append(ev.LogBlock(at=0, data=line[cut:], offset=900 + cut, line_no=5, lines=1, fresh=True))
        start.append(ev.LogBlock(at=0, data=line[:cut], offset=0, line_no=1, lines=0, fresh=True))
        start.append(ev.LogBlock(at=0, data=b"x\n", offset=100, line_no=3, lines=1))
        (last,), first = end.rows(1, 9), start.rows(1, 1)[0]
        assert last == Row(5, "[the beginning of this line is not here] … --tp 8")
        assert first == Row(1, "args: --api-key … [the rest of this line is not here]")
        end.close()
        start.close()


@pytest.fixture(autouse=True)
def no_task_is_left() -> Iterator[None]:
    yield
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()
