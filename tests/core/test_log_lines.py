r"""Lines out of blocks: the splitter's own, across blocks and files; what fell out is counted to the line."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from supervisor.core import events as ev
from supervisor.core.lines import LineSplitter
from supervisor.core.log_lines import LogLines
from tests.core.test_block_reader import blocks_of

PARTS = [b"\n", b"\n", b"\r", b"\r\n", b"one", b"two ", b" 45%|##", b"line\n", b"\x1b[1m", b"\xe2\x96"]
RAW = st.lists(st.sampled_from(PARTS), max_size=40).map(b"".join)
CUTS = st.lists(st.integers(0, 1 << 20), min_size=1, max_size=9)


def told(logs: list[ev.Log]) -> list[tuple[str, int | None, int, bool]]:
    return [(log.text, log.line_no, log.offset, log.living) for log in logs]


@given(data=RAW, cuts=CUTS, offset=st.integers(0, 9), line_no=st.integers(1, 9))
def test_the_lines_of_the_blocks_are_the_splitters(data: bytes, cuts: list[int], offset: int, line_no: int) -> None:
    reader, splitter = LogLines(), LineSplitter(offset=offset, lines_before=line_no - 1)
    for block in blocks_of(data, cuts, offset=offset, line_no=line_no):
        lines = [(line.text, line.line_no, line.offset, line.living) for line in splitter.feed(block.data)]
        logs = reader.take(block)
        assert told(logs) == lines
        assert sum(log.dropped for log in logs) == 0


@given(data=RAW, cuts=CUTS, gone=st.sets(st.integers(0, 10)))
def test_after_a_gap_it_begins_at_a_whole_line_and_every_line_is_given_or_counted(
    data: bytes, cuts: list[int], gone: set[int]
) -> None:
    data += b"\nlast\n"
    whole = {line.line_no: line for line in LineSplitter().feed(data) if not line.living}
    blocks = [*blocks_of(data, cuts), *blocks_of(b"the end\n", [], offset=len(data), line_no=len(whole) + 1)]
    whole[len(whole) + 1] = LineSplitter(offset=len(data), lines_before=len(whole)).feed(b"the end\n")[0]
    reader, seen, dropped = LogLines(), 0, 0
    for number, block in enumerate(blocks):
        if number in gone and number < len(blocks) - 1:
            reader.skip(block)
            continue
        for log in reader.take(block):
            dropped += log.dropped
            if not log.living:
                seen += 1
                assert log.line_no == seen + dropped, "the gap is counted where it is"
                line = whole[log.line_no]
                assert (log.text, log.offset) == (line.text, line.offset)
    assert seen + dropped == len(whole)


def block(data: bytes, offset: int, line_no: int, *, fresh: bool = False, run: tuple[int, int] = (0, 1)) -> ev.LogBlock:
    lines = data.count(b"\n")
    return ev.LogBlock(
        at=1.0, data=data, offset=offset, line_no=line_no, lines=lines, fresh=fresh, run_offset=run[0], run_line=run[1]
    )  # fmt: skip


def test_a_gap_that_ends_with_a_line_costs_no_line_more() -> None:
    reader = LogLines()
    assert told(reader.take(block(b"a\nb", 0, 1))) == [("a", 1, 0, False)]
    reader.skip(block(b"b\nc\n", 3, 2))
    (log,) = reader.take(block(b"d\n", 7, 4))
    assert (log.text, log.line_no, log.dropped) == ("d", 4, 2)


def test_what_was_missed_of_a_file_that_is_gone_is_counted_too() -> None:
    reader = LogLines()
    reader.take(block(b"a\nb\n", 0, 1))
    reader.skip(block(b"c\nd\n", 4, 3))
    reader.skip(block(b"x\ny", 0, 1, fresh=True))
    assert reader.take(block(b"y", 3, 2)) == []
    (log,) = reader.take(block(b"y\nz\n", 4, 2))
    assert (log.text, log.line_no, log.dropped) == ("z", 3, 2 + 2)


def test_another_file_begins_with_its_first_line_wherever_it_is_read_from() -> None:
    reader = LogLines()
    reader.take(block(b"a\nunfinished", 0, 1))
    (log,) = reader.take(block(b"half of it\n", 500, 70, fresh=True))
    assert (log.text, log.line_no, log.offset, log.dropped) == ("half of it", 70, 500, 0)


def test_the_next_run_in_a_file_begins_with_its_first_line() -> None:
    """The last words of the run before were not read any more: nobody missed them by being slow."""
    reader = LogLines()
    reader.take(block(b"a\nb", 0, 1))
    (log,) = reader.take(block(b"new run\n", 100, 9, run=(100, 9)))
    assert (log.text, log.line_no, log.dropped) == ("new run", 9, 0)


def test_a_tail_begins_with_its_first_whole_line() -> None:
    reader = LogLines(clean=False)
    assert reader.take(block(b"d of a line", 7, 3)) == []
    logs = reader.take(block(b"\nwhole\n", 18, 3))
    assert [(log.text, log.line_no, log.dropped) for log in logs] == [("whole", 4, 0)]
