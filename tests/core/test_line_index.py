r"""The index finds every line within the bytes between two marks, in whatever order the pieces of the file came."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core import line_index
from supervisor.core.line_index import MARK_BYTES, Hole, LineIndex

DATA = st.lists(st.sampled_from([b"\n", b"a", b"line\n", b"\n\n", b"x" * 40]), max_size=60).map(b"".join)
CUTS = st.lists(st.integers(0, 1 << 20), max_size=8)


def pieces_of(data: bytes, cuts: list[int]) -> list[tuple[int, int, bytes]]:
    """Offset, line number and bytes of each piece."""
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [(a, data.count(b"\n", 0, a) + 1, data[a:b]) for a, b in itertools.pairwise(edges)]


def start_of(data: bytes, line_no: int) -> int:
    return [0, *(place + 1 for place, byte in enumerate(data) if byte == 10)][line_no - 1]


def add(index: LineIndex, offset: int, line_no: int, data: bytes) -> None:
    index.add(offset, line_no, data, data.count(b"\n"), begins_line=offset == 0)


def check(index: LineIndex, data: bytes) -> None:
    """Every line that has a place is there."""
    last = data.count(b"\n") + 1
    assert index.place(0) is None
    assert index.place(last + 1) is None
    for line_no in range(1, last + 1):
        place = index.place(line_no)
        if place is None:
            continue
        at = place.start - 1
        for _ in range(place.newlines):
            at = data.index(b"\n", at + 1, place.end)
        assert at + 1 == start_of(data, line_no)


@pytest.fixture(autouse=True)
def small_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_index, "MARK_BYTES", 16)


@given(data=DATA, cuts=CUTS, order=st.permutations(range(9)), left_out=st.sets(st.integers(0, 8), max_size=3))
def test_lines_are_found_in_whatever_order_the_pieces_come(
    data: bytes, cuts: list[int], order: list[int], left_out: set[int]
) -> None:
    index, pieces = LineIndex(), pieces_of(data, cuts)
    for number in order:
        if number < len(pieces) and number not in left_out:
            add(index, *pieces[number])
            check(index, data)
    seen = [piece for number, piece in enumerate(pieces) if number not in left_out]
    assert index.end == max((offset + len(piece) for offset, _, piece in seen), default=0)
    if not left_out and data:
        assert [(span.start, span.end) for span in index.spans] == [(0, len(data))]
        assert all(index.place(line_no) for line_no in range(1, data.count(b"\n") + 2))
    holes = index.holes(0, 1)
    offsets = {at for hole in holes for at in range(hole.start, hole.end)}
    assert offsets == set(range(index.end)) - {at for o, _, piece in seen for at in range(o, o + len(piece))}
    for hole in holes:
        assert hole.first_line == data.count(b"\n", 0, hole.start) + 1
        assert hole.last_line == data.count(b"\n", 0, hole.end) + 1


@given(data=DATA, cuts=CUTS)
def test_marks_tell_the_line_where_they_stand(data: bytes, cuts: list[int]) -> None:
    index = LineIndex()
    for piece in pieces_of(data, cuts):
        add(index, *piece)
    for offset in range(len(data)):
        found = index.mark_before(offset)
        assert found is not None
        assert found[1] == data.count(b"\n", 0, found[0]) + 1
        assert found[0] <= offset < index.mark_after(offset)
        assert index.line_at(offset) in (None, data.count(b"\n", 0, offset) + 1)
    if data:
        assert index.line_at(len(data)) == data.count(b"\n") + 1


def test_what_contradicts_is_refused() -> None:
    index = LineIndex()
    add(index, 100, 11, b"a\nb\n")
    add(index, 200, 21, b"c\nd\n")
    for offset, line_no, data in [
        (102, 13, b"x"), (98, 11, b"xyz"), (104, 12, b"x"), (104, 14, b"x"), (150, 12, b"x"), (150, 21, b"\n"),
        (96, 12, b"x"), (196, 19, b"x\nyz"), (300, 22, b"x"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=r"seen already|do not fit"):
            add(index, offset, line_no, data)
    assert index.holes(0, 1) == [Hole(0, 100, 1, 11), Hole(104, 200, 13, 21)]
    add(index, 104, 13, b"x\n" * 8 + b"y" * 80)
    assert [(span.start, span.end) for span in index.spans] == [(100, 204)]


def test_ten_million_lines_cost_a_few_hundred_kilobytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_index, "MARK_BYTES", MARK_BYTES)
    index, block = LineIndex(), b"x" * 106 + b"\n"
    data = block * (65_536 // len(block))
    lines = len(data) // len(block)
    for number in range(10_000_000 // lines):
        index.add(number * len(data), number * lines + 1, data, lines, begins_line=not number)
    (span,) = index.spans
    assert span.next_line > 9_999_000
    assert (len(span.offsets) + len(span.lines)) * 8 < 400_000
    place = index.place(5_000_000)
    assert place is not None and place.end - place.start <= 2 * MARK_BYTES
