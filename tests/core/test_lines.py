"""Lines against any bytes in any pieces: the same lines, safe to show, with the file's own numbers and offsets."""

from __future__ import annotations

import itertools
import subprocess
import tracemalloc
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.lines import MAX_LINE_BYTES, Line, LineSplitter, nth_newline, sanitise

PARTS = [
    b"\n", b"\r", b"\r\n", b"\r\r\n", b"\t", b" ", b"Error: x", b"  45%|\xe2\x96\x88", "é€😀".encode(),
    b"\xff\xfe", b"\xe2\x96", b"\xf0\x9f", b"\x1b[31m", b"\x1b[2K", b"\x1b]0;title\x07", b"\x1b]8;;http://x",
    b"\x1bP1$r\x1b\\", b"\x1b", b"\x9b31m", b"\xc2\x9b", b"\xc2\x85", b"\x00", b"\x07\x08\x7f",
    "\u202eevil\u2066\u2028".encode(), b"a" * 100, b"b" * (MAX_LINE_BYTES - 3), b"\r" + b"c" * (MAX_LINE_BYTES + 9),
]  # fmt: skip
RAW = st.lists(st.sampled_from(PARTS) | st.binary(max_size=6), max_size=25).map(b"".join)


def final(lines: list[Line]) -> list[Line]:
    return [line for line in lines if not line.living]


def whole(data: bytes) -> list[Line]:
    splitter = LineSplitter()
    return final([*splitter.feed(data), *splitter.end()])


def pieces(data: bytes, cuts: list[int]) -> list[Line]:
    splitter, out = LineSplitter(), []
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for start, end in itertools.pairwise(edges):
        out += splitter.feed(data[start:end])
    assert splitter.offset == len(data)
    return [*out, *splitter.end()]


@given(RAW, st.lists(st.integers(0, 1 << 30), max_size=12))
def test_where_the_reads_cut_changes_no_line(data: bytes, cuts: list[int]) -> None:
    assert final(pieces(data, cuts)) == whole(data)


@given(st.lists(st.sampled_from([part for part in PARTS if len(part) < 30]), max_size=15).map(b"".join))
def test_byte_by_byte_changes_no_line(data: bytes) -> None:
    assert final(pieces(data, list(range(len(data))))) == whole(data)


@given(RAW, st.lists(st.integers(0, 1 << 30), max_size=12))
def test_nothing_that_is_shown_can_drive_a_terminal(data: bytes, cuts: list[int]) -> None:
    for line in pieces(data, cuts):
        assert "\x1b" not in line.text
        assert [char for char in line.text if unicodedata.category(char) in ("Cc", "Zl", "Zp")] == []
        assert not set(line.text) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f")


@given(RAW)
def test_numbers_and_offsets_are_the_files(data: bytes) -> None:
    lines = whole(data)
    raw = data.split(b"\n")
    if raw[-1] == b"":
        raw.pop()
    assert [line.line_no for line in lines] == list(range(1, len(raw) + 1))
    starts = [0, *(place + 1 for place, byte in enumerate(data) if byte == 10)][: len(raw)]
    assert [line.offset for line in lines] == starts


def test_a_number_is_what_sed_shows(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"first\r\n\n 10%|\r 50%|\r100%|\nOSError: third\x0b\x0cline\r\nlast without an end")
    for line in whole(path.read_bytes()):
        shown = subprocess.run(["sed", "-n", f"{line.line_no}p", path], capture_output=True, check=True).stdout
        assert sanitise(shown.decode().rstrip("\r\n").rpartition("\r")[2]) == line.text


def test_a_start_in_the_middle_goes_on_counting() -> None:
    splitter = LineSplitter(offset=1000, lines_before=41)
    (line,) = splitter.feed(b"here\n")
    assert line == Line("here", 42, 1000)
    assert splitter.feed(b"there\n") == [Line("there", 43, 1005)]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"  0%|  | 0/3\r 33%|# | 1/3\r100%|##| 3/3\n", "100%|##| 3/3"),
        (b"\r  0%|\r100%|##|\n", "100%|##|"),
        (b"100%|##|\r\n", "100%|##|"),
        (b"100%|##|\r\r\r\n", "100%|##|"),
        (b" 45%|#\rOSError: no space left\n", "OSError: no space left"),
        (b" 45%|#[rank0]: OSError: no space left\n", "45%|#[rank0]: OSError: no space left"),
        (b" 45%|#\r 46%|#Traceback (most recent call last):\n", "46%|#Traceback (most recent call last):"),
        (b"RuntimeError: gone\r\x1b[2K\n", "RuntimeError: gone"),
        (b"RuntimeError: gone\r\x1b[0m\x00   \n", "RuntimeError: gone"),
        (b"\r\n", ""),
        (b"\n", ""),
    ],
)
def test_a_bar_collapses_and_an_error_behind_it_is_kept(data: bytes, text: str) -> None:
    (line,) = whole(data)
    assert line.text.strip() == text


def test_a_bar_lives_until_its_line_ends() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"plain ") == []
    assert splitter.feed(b"line\n\r 10%|") == [Line("plain line", 1, 0), Line(" 10%|", 2, 11, living=True)]
    assert splitter.feed(b"\r 20%|") == [Line(" 20%|", 2, 11, living=True)]
    assert splitter.feed(b"\r") == [], "the same state again is not told"
    assert splitter.feed(b"\r 30%|\n") == [Line(" 30%|", 2, 11)]


def test_a_living_bar_shows_no_half_character() -> None:
    splitter = LineSplitter()
    bar = "\r 45%|█".encode()
    (line,) = splitter.feed(bar[:-1])
    assert line.text == " 45%|"
    (line,) = splitter.feed(bar[-1:])
    assert line.text == " 45%|█"


@pytest.mark.parametrize("cut", range(1, 4))
def test_utf8_that_a_read_cuts_is_whole_again(cut: int) -> None:
    splitter = LineSplitter()
    data = "😀\n".encode()
    assert splitter.feed(data[:cut]) == []
    assert splitter.feed(data[cut:]) == [Line("😀", 1, 0)]


def test_what_is_no_utf8_is_marked_and_harms_nothing() -> None:
    assert [line.text for line in whole(b"a\xffb\nc\xe2\x96\n")] == ["a\ufffdb", "c\ufffd"]


def test_ten_megabytes_in_one_line_are_cut_said_and_not_held() -> None:
    splitter, block = LineSplitter(), b"x" * 65_536
    tracemalloc.start()
    try:
        for _ in range(160):
            assert splitter.feed(block) == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000
    (line, after) = splitter.feed(b"\nnext\n")
    assert line.text.startswith("x" * MAX_LINE_BYTES)
    assert line.text.endswith(f"[{160 * 65_536 - MAX_LINE_BYTES} more bytes in this line]")
    assert len(line.text) < MAX_LINE_BYTES + 100
    assert after == Line("next", 2, 160 * 65_536 + 1)


def test_a_bar_that_is_redrawn_for_hours_keeps_its_last_state_only() -> None:
    splitter = LineSplitter()
    for step in range(5000):
        splitter.feed(f"\r {step:5}/5000 of the shards are loaded".encode())
    (line,) = splitter.feed(b"\n")
    assert line.text == "  4999/5000 of the shards are loaded"


def test_the_cut_of_a_long_text_says_nothing_of_the_bars_before_it() -> None:
    """A long line and then a bar: what was cut of the long one is no part of what is shown."""
    (line,) = whole(b"x" * 50_000 + b"\r100%|##|\n")
    assert line.text == "100%|##|"


def test_a_cut_never_leaves_half_a_character() -> None:
    (line,) = whole(b"x" + "█".encode() * 10_000 + b"\n")
    assert "\ufffd" not in line.text
    kept = line.text.partition(" … ")[0]
    assert f"[{30_001 - len(kept.encode())} more bytes" in line.text


def test_tabs_become_spaces() -> None:
    assert sanitise("a\tb") == "a       b"


@given(st.lists(st.integers(0, 3000), max_size=30), st.integers(1, 40))
def test_the_nth_newline_is_where_splitting_would_find_it(lengths: list[int], count: int) -> None:
    data = b"\n".join(b"x" * length for length in lengths)
    parts = data.split(b"\n", count)
    assert nth_newline(data, count) == (len(data) - len(parts[-1]) - 1 if len(parts) == count + 1 else -1)
