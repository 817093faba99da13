r"""Rules over blocks tell the very same as rules over lines, wherever the blocks are cut."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core import engine as en
from supervisor.core.events import LogBlock
from supervisor.core.lines import MAX_LINE_BYTES, LineSplitter, plain_bytes, sanitise, shown
from supervisor.core.progress import NOTHING, BlockReader, LineReader, Read
from supervisor.engines import loader

Told = tuple[int, int, str, Read]

RULES = en.Engine(
    name="x",
    title="X",
    stages=(
        en.Stage(
            name="weights",
            pattern=r"shards:\s+(?P<percent>\d+)% \| (?P<done>\d+)/(?P<total>\d+)",
            samples=(),
            literals=("% | ",),
        ),
        en.Stage(name="begin", pattern="Load weight  begin|Init", samples=(), literals=("Load weight  begin", "Init")),
        en.Stage(name="cut", pattern="more bytes|x …", samples=(), literals=("more bytes", "x ")),
    ),
    ready_lines=(
        en.Line(pattern="fired up", samples=(), literals=("fired up",)),
        en.Line(pattern="^ranks? died$", samples=(), literals=("ed",)),
    ),
)
ONE_WITHOUT = en.Engine(
    name="y", title="Y", ready_lines=(en.Line(pattern="fired|^$", samples=()), *RULES.ready_lines), stages=RULES.stages
)

PARTS = [
    b"\n", b"\n", b"\n", b"\r", b"\r\n", b"\t", b" ", b"x", b"shards:  45% | 9/20", b"shards:\t7% | 1/3",
    b"Load weight  begin", b"Load weight\tbegin", b"Load weight", b"  begin",
    b"Init", b"In", b"it", b"fired up", b"fired ", b"up", b"rank",
    b"ranks ", b"died", b"\x1b[32m", b"\x1b[", b"\x1b", b"3", b"m", b"\x1b]0;t", b"\x07", b"\x1b\\", b"\x1bPq", b"\x9b",
    b"\xc2\x9b1m", b"\xc2",
    b"\xc2\x9c", b"\xc2\x85", b"\x00", b"\x7f", b"\xe2\x80\x8e", b"\xe2\x80", b"\x8e", b"\xe2\x81\xa6", b"\xef\xbb\xbf",
    b"\xf0\x9f", "█é…😀".encode(), b"\xff", b"a" * (MAX_LINE_BYTES - 40), b"b" * (MAX_LINE_BYTES // 2),
    b"Init" + b" " * (MAX_LINE_BYTES + 5),
    b"\x1b[m" * 6000, b"\x00" * (MAX_LINE_BYTES + 1),
]  # fmt: skip
RAW = st.lists(st.sampled_from(PARTS) | st.binary(max_size=3), max_size=40).map(b"".join)
CUTS = st.lists(st.integers(0, 1 << 30), max_size=8)


def blocks_of(data: bytes, cuts: Iterable[int], *, offset: int = 0, line_no: int = 1) -> list[LogBlock]:
    """The bytes in blocks as a session tells them."""
    out = []
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for start, end in itertools.pairwise(edges):
        piece = data[start:end]
        lines = piece.count(b"\n")
        out.append(LogBlock(at=0.0, data=piece, offset=offset + start, line_no=line_no, lines=lines))
        line_no += lines
    return out


def by_line(engine: en.Engine, blocks: Iterable[LogBlock]) -> list[Told]:
    """The same by every single line."""
    reader, splitter, out = LineReader(engine), None, []
    for block in blocks:
        splitter = splitter or LineSplitter(offset=block.offset, lines_before=block.line_no - 1)
        for line in splitter.feed(block.data):
            read = reader.read(line.text)
            if read is not NOTHING:
                out.append((line.line_no, line.offset, line.text, read))
    return out


def by_block(engine: en.Engine, blocks: Iterable[LogBlock]) -> list[Told]:
    reader = BlockReader(engine)
    return [told for block in blocks for told in reader.read(block)]


@pytest.mark.parametrize("engine", [RULES, ONE_WITHOUT], ids=["literals", "one without"])
@given(data=RAW, cuts=CUTS, offset=st.integers(0, 1000), line_no=st.integers(1, 1000))
def test_blocks_tell_what_lines_tell(
    engine: en.Engine, data: bytes, cuts: list[int], offset: int, line_no: int
) -> None:
    blocks = blocks_of(data, cuts, offset=offset, line_no=line_no)
    assert by_block(engine, blocks) == by_line(engine, blocks)


@given(data=st.lists(st.sampled_from([part for part in PARTS if len(part) < 50]), max_size=25).map(b"".join))
def test_byte_by_byte_too(data: bytes) -> None:
    blocks = blocks_of(data, range(len(data)))
    assert by_block(RULES, blocks) == by_line(RULES, blocks)


SAMPLES = [
    sample.encode()
    for name in loader.names()
    for engine in (loader.load(name),)
    for sample in (
        *(sample.line for stage in engine.stages for sample in stage.samples),
        *(sample for line in engine.ready_lines for sample in line.samples),
    )
]


@pytest.mark.parametrize("name", loader.names())
@given(
    data=st.lists(st.sampled_from([*SAMPLES, b"\n", b"\n", b"\x1b[1;31m", b"\r", b"\t", b" noise "]), max_size=30).map(
        b"".join
    ),
    cuts=CUTS,
)
def test_the_engines_own_rules_too(name: str, data: bytes, cuts: list[int]) -> None:
    blocks = blocks_of(data, cuts)
    assert by_block(loader.load(name), blocks) == by_line(loader.load(name), blocks)


@pytest.mark.parametrize(
    ("raw", "stage"),
    [
        (b"In\x1b[0mit", "begin"),
        (b"In\x1b]0;a title\x07it", "begin"),
        (b"I\x00n\x7fit", "begin"),
        (b"In\xc2\x9b1mit", "begin"),
        (b"In\xe2\x80\x8e\xef\xbb\xbf\xc2\x85it", "begin"),
        (b"aaaLoad weight\tbegin", "begin"),
        (b"\x1b[1maaaLoad weight\tbegin", "begin"),
        (b"Load weight\tbegin", ""),
        (b"In\xffit", ""),
        (b"In\rit", ""),
        (b"Init\rover it", ""),
        (b"Init\r\r", "begin"),
        (b"\x00" * (MAX_LINE_BYTES + 1), "cut"),
        (b"\x1b[m" * 6000, "cut"),
        (b" " * 1997 + b"Init", ""),
    ],
)
def test_a_line_that_lies_whole_in_a_block(raw: bytes, stage: str) -> None:
    """What would hide a literal, or make one up, in the middle of a block: where most lines are passed over."""
    blocks = blocks_of(b"noise\n" * 3 + raw + b"\n" + b"noise\n" * 3, [])
    assert by_block(RULES, blocks) == by_line(RULES, blocks)
    assert [(line_no, read.stage) for line_no, _, _, read in by_block(RULES, blocks)] == ([(4, stage)] if stage else [])


def test_what_is_told_is_not_nothing() -> None:
    """The proofs above compare; this says what they compare."""
    data = (
        b"noise\nInit\x1b[0m ok\nshards:  45% | 9/20\rshards:  50% | 10/20\n"
        + b"\x00" * 10_000_000
        + b"\nit is fired \x1b[1mup\n"
    )
    told = by_block(RULES, blocks_of(data, range(0, len(data), 65_536)))
    assert [(line_no, read.stage, read.ready) for line_no, _, _, read in told] == [
        (2, "begin", False), (3, "weights", False), (4, "cut", False), (5, "", True)
    ]  # fmt: skip
    assert told[1][3].done == 10
    assert told[3][1] == data.index(b"it is fired")


def test_another_file_begins_anew() -> None:
    reader = BlockReader(RULES)
    assert reader.read(LogBlock(at=0.0, data=b"In", offset=90, line_no=7, lines=0)) == []
    (told,) = reader.read(LogBlock(at=0.0, data=b"it\nInit\n", offset=0, line_no=1, lines=2, fresh=True))
    assert told[:3] == (2, 3, "Init")


@given(data=RAW)
def test_a_line_that_is_whole_is_shown_as_the_splitter_shows_it(data: bytes) -> None:
    for raw in data.split(b"\n"):
        (line,) = [line for line in LineSplitter().feed(raw + b"\n") if not line.living]
        assert shown(raw) == line.text


@given(data=RAW)
def test_bytes_of_many_lines_are_cleared_as_each_line_is(data: bytes) -> None:
    """But for tabs, and what is no UTF-8: only words in ASCII are looked for in them."""

    def ascii_words(text: str) -> list[str]:
        return "".join(char if char.isascii() and char != " " else " " for char in text).split()

    plain = plain_bytes(data)
    assert plain.count(b"\n") == data.count(b"\n")
    for raw, cleared in zip(data.split(b"\n"), plain.split(b"\n"), strict=True):
        for segment, clear in zip(raw.split(b"\r"), cleared.split(b"\r"), strict=True):
            wanted = ascii_words(sanitise(segment.decode("utf-8", "replace")))
            assert ascii_words(clear.decode("latin-1")) == wanted
