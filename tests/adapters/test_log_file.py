"""Logs as files: gzip, UTF-16, broken ends; forwards and backwards the lines are the same, each with its number."""

from __future__ import annotations

import gzip
import io
import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.adapters import log_file
from supervisor.adapters.log_file import BLOCK_BYTES, Backwards, head_of, lines_of, opened
from supervisor.core.diagnosis.log_order import Order
from supervisor.errors import UsageError

TEXT = "".join(f"line {number} — größer\n" for number in range(1, 40_001))


def read(path: Path) -> tuple[bytes, list[str]]:
    with opened(str(path)) as reading:
        return b"".join(reading.blocks), reading.notes


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "server.log"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.parametrize("zipped", [False, True])
def test_plain_and_zipped_text_of_both_encodings_come_out_the_same(path: Path, encoding: str, zipped: bool) -> None:
    data = TEXT.encode(encoding)
    path.write_bytes(gzip.compress(data) if zipped else data)
    assert read(path) == (TEXT.encode(), [])


def test_big_endian_too_and_an_odd_byte_at_the_end(path: Path) -> None:
    path.write_bytes(b"\xfe\xff" + "a\nb".encode("utf-16-be") + b"\0")
    assert read(path) == ("a\nb\ufffd".encode(), [])


def test_members_behind_each_other_are_one_log_and_padding_is_none(path: Path) -> None:
    path.write_bytes(gzip.compress(b"a\n") + gzip.compress(b"b\n") + b"\0" * 600)
    assert read(path) == (b"a\nb\n", [])
    path.write_bytes(gzip.compress(b"a\n") + b"trailing words")
    assert read(path) == (b"a\n", [])


@pytest.mark.parametrize("cut", [3, 9, 500, -8, -1])
def test_a_log_that_is_cut_off_is_read_as_far_as_it_goes_and_that_is_told(path: Path, cut: int) -> None:
    path.write_bytes(gzip.compress(TEXT.encode())[:cut])
    data, notes = read(path)
    assert TEXT.encode().startswith(data)
    assert len(notes) == 1 and "ends in the middle" in notes[0]


def test_a_log_that_is_broken_is_read_as_far_as_it_goes_and_that_is_told(path: Path) -> None:
    data = bytearray(gzip.compress(TEXT.encode()))
    data[len(data) // 2 : len(data) // 2 + 64] = b"\xff" * 64
    path.write_bytes(data)
    out, notes = read(path)
    assert TEXT.encode()[: len(out) // 2] == out[: len(out) // 2]
    assert len(notes) == 1 and "is broken" in notes[0]


def test_what_is_no_utf_8_passes_as_it_is(path: Path) -> None:
    raw = bytes(range(256)) * 3000
    path.write_bytes(raw)
    assert read(path) == (raw, [])
    path.write_bytes(b"")
    assert read(path) == (b"", [])
    path.write_bytes(b"\x1f")
    assert read(path) == (b"\x1f", [])


@pytest.mark.parametrize(("name", "words"), [("missing", "No such file"), (".", "directory"), ("a\0b", "null")])
def test_what_cannot_be_read_is_told(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(UsageError, match=f"cannot be read: .*{words}"), opened(f"{tmp_path}/{name}"):
        raise AssertionError("it was opened")


def test_an_error_of_whoever_reads_is_not_taken_for_one_of_the_file(path: Path) -> None:
    path.write_bytes(b"x")
    with pytest.raises(BrokenPipeError), opened(str(path)):
        raise BrokenPipeError


def test_memory_stays_small_whatever_the_size(path: Path) -> None:
    """A gzip bomb: a hundred megabytes out of a hundred kilobytes."""
    with gzip.open(path, "wb", compresslevel=1) as stream:
        for _ in range(100):
            stream.write(b"0" * (1 << 20))
    tracemalloc.start()
    try:
        with opened(str(path)) as reading:
            assert sum(map(len, reading.blocks)) == 100 << 20
        assert tracemalloc.get_traced_memory()[1] < 8 * BLOCK_BYTES
    finally:
        tracemalloc.stop()


def test_the_head_is_bounded(path: Path) -> None:
    blocks = iter([b"a\n" * BLOCK_BYTES] * 100)
    head, whole = head_of(blocks)
    assert sum(map(len, head)) <= log_file.HEAD_BYTES + 2 * BLOCK_BYTES and not whole
    assert head_of(iter([b"x"])) == ([b"x"], True)
    assert [*lines_of([b"a\nb", b"c\r\nlast"], 10)] == ["a", "bc", "last"]
    assert [*lines_of([b"a\nb\nc\n"], 2)] == ["a", "b"]


# ------------------------------------------------------------------------------------------------ backwards


def backwards(data: bytes, order: Order) -> Iterator[tuple[bytes, int]]:
    spool = Backwards(iter([data[:7], data[7:]]), order)
    try:
        out = b"".join(spool.blocks())
        lines = out.split(b"\n")[:-1]
        numbers = spool.numbers(range(1, len(lines) + 1))
        assert sorted(numbers) == list(range(1, len(lines) + 1))
        yield from ((line, numbers[number]) for number, line in enumerate(lines, 1))
    finally:
        spool.close()


def wanted(data: bytes) -> list[tuple[bytes, int]]:
    lines = data.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    return [(line, number) for number, line in reversed([*enumerate(lines, 1)])]


@given(st.lists(st.sampled_from([b"", b"a", b"bcd", b"\r", b"x" * 300]), max_size=12), st.booleans())
def test_backwards_every_line_comes_with_its_number(lines: list[bytes], ends: bool) -> None:
    data = b"\n".join(lines) + (b"\n" if ends else b"")
    assert [*backwards(data, Order.LINES_REVERSED)] == wanted(data)


def test_backwards_across_the_borders_of_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_file, "BLOCK_BYTES", 13)
    for size in range(60):
        data = b"".join(b"%d %s\n" % (number, b"y" * (number * 7 % 29)) for number in range(size))
        assert [*backwards(data, Order.LINES_REVERSED)] == wanted(data)


def test_entries_keep_their_own_order() -> None:
    entry = "[2025-01-01 00:00:0{}] a\n  b{}\n  c{}\n"
    data = "".join(entry.format(number, number, number) for number in (3, 2, 1)).encode()
    found = [(line.decode(), number) for line, number in backwards(data, Order.ENTRIES_REVERSED)]
    assert [line for line, _ in found] == [
        "[2025-01-01 00:00:01] a", "  b1", "  c1", "[2025-01-01 00:00:02] a", "  b2", "  c2",
        "[2025-01-01 00:00:03] a", "  b3", "  c3",
    ]  # fmt: skip
    assert [number for _, number in found] == [7, 8, 9, 4, 5, 6, 1, 2, 3]


def test_a_huge_line_keeps_its_beginning_and_costs_no_more() -> None:
    data = b"first\n" + b"begin" + b"z" * (30 << 20) + b"\nlast\n"
    tracemalloc.start()
    try:
        found = [*backwards(data, Order.LINES_REVERSED)]
        assert tracemalloc.get_traced_memory()[1] - len(data) < 16 * BLOCK_BYTES
    finally:
        tracemalloc.stop()
    assert [(line[:5], number) for line, number in found] == [(b"last", 3), (b"begin", 2), (b"first", 1)]


def test_a_spool_without_room_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.BytesIO):
        def write(self, _data: object) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: Full())
    with pytest.raises(UsageError, match=r"needs room in .*: No space left on device"):
        Backwards(iter([b"x"]), Order.LINES_REVERSED)
