"""Search, filter and levels by pieces find what a look at every line finds, however the pieces fall."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.adapters.time_limit import within
from supervisor.core import log_search
from supervisor.core.line_set import LineSet
from supervisor.core.lines import MAX_LINE_BYTES, LineSplitter
from supervisor.core.log_finder import Finder, Seek
from supervisor.core.log_levels import MAX_BLOCK_LINES, Level, LevelReader, level_of
from supervisor.core.log_search import BadPatternError, Matcher, Query
from supervisor.core.log_shown import shown_line, shown_text, without_half_word
from supervisor.testing import MemoryBook
from tests.core.test_lines import RAW
from tests.scale import scaled

SECRET = "hunter2"
HEAD = "Traceback (most recent call last):"


def mask(text: str) -> str:
    return text.replace(SECRET, "•••")


def shown(data: bytes) -> list[str]:
    """Line by line, as a book shows them."""
    splitter = LineSplitter()
    return [mask(without_half_word(line.text)) for line in splitter.feed(data) if not line.living]


# ------------------------------------------------------------------------------- sets of lines

NUMBERS = st.integers(1, 200_000)


@given(st.lists(st.lists(NUMBERS, max_size=30, unique=True).map(sorted), max_size=6), st.lists(NUMBERS, max_size=10))
def test_a_line_set_is_a_sorted_set(runs: list[list[int]], asked: list[int]) -> None:
    lines, plain = LineSet(), set[int]()
    for run in runs:
        lines.add(run)
        plain |= set(run)
    expected = sorted(plain)
    assert list(lines) == expected == [lines[at] for at in range(len(lines))]
    assert len(lines) == len(expected)
    for number in [*asked, *expected]:
        smaller = [n for n in expected if n < number]
        larger = [n for n in expected if n > number]
        assert (number in lines) is (number in plain)
        assert lines.rank(number) == len(smaller)
        assert lines.before(number) == (smaller[-1] if smaller else None)
        assert lines.after(number) == (larger[0] if larger else None)
    with pytest.raises(IndexError):
        lines[len(expected)]


def test_a_line_set_of_millions_takes_two_bytes_a_line() -> None:
    lines = LineSet()
    count = scaled(10_000_000)
    for start in range(1, count + 1, 50_000):
        lines.add(range(start, min(start + 50_000, count + 1)))
    assert len(lines) == count
    assert lines[count // 2] == count // 2 + 1
    assert sum(block.itemsize * len(block) for block in lines._blocks.values()) == 2 * count


# ------------------------------------------------------------------------------- text as it is shown


@given(RAW)
def test_a_piece_is_shown_as_its_lines_are(data: bytes) -> None:
    data += b"\n"
    assert shown_text(data, mask).split("\n") == shown(data)
    assert SECRET[:4] not in shown_text(data[:-1] + f" {SECRET}\n".encode(), mask)


@pytest.mark.parametrize("end", [b"", b"\r", b"\x1b[K", b"\r\x1b[K\r"])
def test_a_bar_of_megabytes_is_read_from_its_end(end: bytes) -> None:
    tail_bytes = 64 * 1024
    redrawn = b"".join(b"\r  %d%%" % (n % 100) for n in range(30_000)) + end
    assert len(redrawn) > tail_bytes
    (line,) = LineSplitter().feed(redrawn + b"\n")
    assert shown_line(redrawn) == line.text == "  99%"
    blank = b"seen" + b"\r" * (tail_bytes + 9)
    assert shown_line(blank) == "seen"


def test_no_half_of_a_secret_is_left_where_a_line_was_cut() -> None:
    for before in range(MAX_LINE_BYTES - len(SECRET) - 2, MAX_LINE_BYTES + 2):
        text = shown_text(b"x " * (before // 2) + f" {SECRET} {'y' * 99}\n".encode(), mask)
        assert SECRET[:2] not in text
        assert "more bytes in this line]" in text


def test_a_secret_with_a_newline_does_not_shift_lines() -> None:
    text = shown_text(b"a\nb\nc\n", lambda text: text.replace("a\nb", "*"))
    assert text == "a\nb\nc"


# ------------------------------------------------------------------------------- finding

WORDS = [b"error", b"Error", b"x", b" ", b"\n", b"\n", b"\r", b"\r\n", b"\x1b[32m", b"\x1b]0;t\x07", b"\t", b"abc"]
WORDS += ["é".encode(), "É".encode(), "\u212a".encode(), b"k", b"K", b"\xff", SECRET.encode(), b"z" * MAX_LINE_BYTES]
LOGS = st.lists(st.sampled_from(WORDS), max_size=60).map(b"".join)
QUERIES = st.sampled_from(
    [
        Query("error"), Query("Error"), Query("k"), Query("é"), Query("É"), Query("abc x"), Query(SECRET), Query("•"),
        Query("er+or", regex=True), Query("^x", regex=True), Query("[^a]$", regex=True), Query(r"\S", regex=True),
        Query("more bytes"), Query("r\n"),
    ]
)  # fmt: skip


def naive(query: Query, lines: Sequence[str]) -> list[int]:
    """The definition: each line by itself."""
    plain = re.sub(r"\\.", "", query.text) if query.regex else query.text
    flags = (
        0 if plain != plain.lower() else re.IGNORECASE | (0 if query.regex or not query.text.isascii() else re.ASCII)
    )
    pattern = re.compile(query.text if query.regex else re.escape(query.text), flags)
    return [number for number, line in enumerate(lines, 1) if pattern.search(line)]


@given(LOGS, LOGS, QUERIES, st.integers(1, 400), st.integers(1, 400), st.integers(0, 5))
def test_pieces_find_what_every_line_by_itself_finds(
    data: bytes, more: bytes, query: Query, chunk_bytes: int, step_bytes: int, steps: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_search, "STEP_BYTES", step_bytes)
        book = MemoryBook(data, chunk_bytes=chunk_bytes)
        finder = Finder(book, Matcher(query), mask)
        for _ in range(steps):
            finder.step()
        book.append(more)  # while it is being searched
        while finder.step():
            assert not finder.complete or finder.fraction == 1
    whole = data + more
    assert finder.complete
    assert list(finder.hits) == naive(query, shown(whole[: whole.rfind(b"\n") + 1]))


@given(LOGS, QUERIES, st.integers(1, 400), st.integers(0, 40), st.booleans(), st.integers(0, 3))
def test_a_seek_finds_the_nearest_and_goes_round(
    data: bytes, query: Query, chunk_bytes: int, start: int, down: bool, steps: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_search, "STEP_BYTES", 64)
        finder = Finder(MemoryBook(data, chunk_bytes=chunk_bytes), Matcher(query), mask)
        for _ in range(steps):
            finder.step()
        seek = Seek(finder, start, down=down)
        while seek.step():
            pass
    hits = naive(query, shown(data[: data.rfind(b"\n") + 1]))
    beyond = [hit for hit in hits if (hit > start if down else hit < start)]
    rest = [hit for hit in hits if hit not in beyond]
    if beyond:
        assert (seek.found, seek.wrapped) == (beyond[0] if down else beyond[-1], False)
    elif rest:
        assert (seek.found, seek.wrapped) == (rest[0] if down else rest[-1], True)
    else:
        assert seek.found is None


def test_a_match_whose_letters_have_colours_between_them_is_found_and_highlighted_where_it_is_shown() -> None:
    book = MemoryBook(b"ok\nload \x1b[31mfai\x1b[0mled: disk\nok\n")
    finder = Finder(book, Matcher(Query("failed")), mask)
    while finder.step():
        pass
    assert list(finder.hits) == [2]
    text = book.rows(2, 1)[0].text
    ((start, end),) = finder.matcher.spans(text)
    assert text[start:end] == "failed"


def test_lines_that_are_on_the_node_are_counted_and_not_looked_at() -> None:
    book = MemoryBook(b"x\n" * 100, first_line=1001, held_from=1041)
    finder = Finder(book, Matcher(Query("x")), mask)
    while finder.step():
        pass
    assert (len(finder.hits), finder.unseen_lines, finder.complete) == (60, 40, True)
    assert (finder.hits[0], finder.hits[59]) == (1041, 1100)
    assert book.asked == []


def test_the_living_line_is_found_once_it_is_whole() -> None:
    book = MemoryBook(b"x 1\nx 2")
    finder = Finder(book, Matcher(Query("x")), mask)
    while finder.step():
        pass
    assert list(finder.hits) == [1]
    book.append(b"\n")
    while finder.step():
        pass
    assert list(finder.hits) == [1, 2]


# ------------------------------------------------------------------------------- patterns


@pytest.mark.parametrize("text", ["(", "[a", "*x", "(?P<a>b)(?P<a>c)", "a{99999999999999}", "(" * 3000])
def test_a_bad_pattern_says_so(text: str) -> None:
    with pytest.raises(BadPatternError) as told:
        Matcher(Query(text, regex=True))
    assert str(told.value)


def test_a_pattern_that_python_warns_of_warns_nobody() -> None:
    assert Matcher(Query("[[a]x", regex=True)).passes("ax")


def test_a_catastrophic_pattern_costs_its_lines_and_is_given_up() -> None:
    slow = b"a" * 60 + b"!\n"
    book = MemoryBook((b"good aab\n" + slow) * 3)
    matcher = Matcher(Query(r"(a+)+b", regex=True), within(0.02))
    finder = Finder(book, matcher, mask)
    began = time.perf_counter()
    while finder.step():
        pass
    assert list(finder.hits) == [1, 3, 5]
    assert matcher.slow_lines == 3
    assert not matcher.spans("a" * 60 + "!")
    book.append(slow * 100)
    while finder.step():
        pass
    assert matcher.too_slow
    assert finder.complete
    assert time.perf_counter() - began < 20  # without the limit: years


def test_the_limit_ends_nothing_else() -> None:
    guard = within(5)
    assert guard(lambda: None)

    def fails() -> None:
        raise KeyError("own")

    with pytest.raises(KeyError):
        guard(fails)
    assert not within(0.01)(lambda: re.search("(a+)+b", "a" * 60))


# ------------------------------------------------------------------------------- levels

LEVELS = [
    ("INFO 11-30 03:17:34 [api.py:1] 0 errors, ERROR count 0", Level.ALL),
    ("[2025-11-30 04:18:09 TP0] Load weight begin. avail mem=94.21 GB", Level.ALL),
    ("server_args={'log_level': 'error', 'x': 'warning'}", Level.ALL),
    ("token error rate 0.1, warnings 3", Level.ALL),
    ("A warm welcome", Level.ALL),
    ("E", Level.ALL),
    ("WARNING 11-30 03:17:34 [system_utils.py:255] failed to raise with error limit", Level.WARNING),
    ("node0:301:301 [0] misc/nvmlwrap.cc:187 NCCL WARN nvmlDeviceGetHandleByPciBusId() failed", Level.WARNING),
    ("W0712 10:00:00.123456 1234 file.cc:12] text", Level.WARNING),
    ("0.00.005.132 W srv  llama_server: CORS is set to allow all origins", Level.WARNING),
    ("[rank0]:[W1130 04:18:09.123 ProcessGroup.cpp:1] text", Level.WARNING),
    ("[W socket.cpp:558] [c10d] The client socket has failed", Level.WARNING),
    ("x.py:3: UserWarning: old", Level.ALL),
    ("warning: old flag", Level.WARNING),
    ("(EngineCore pid=7) ERROR 11-30 03:17:34 [core.py:1] EngineCore failed to start.", Level.ERROR),
    ("[TRT-LLM] [E] Failed to initialize", Level.ERROR),
    ("[engine][ERROR] Assertion failed", Level.ERROR),
    ("E0712 10:00:00.123456 1234 file.cc:12] text", Level.ERROR),
    ("0.00.008.421 E gguf_init_from_reader: invalid magic characters", Level.ERROR),
    ("error: invalid argument: --no-such-flag", Level.ERROR),
    ("ERROR:    Exception in ASGI application", Level.ERROR),
    ('{"level":"error","msg":"x"}', Level.ERROR),
    ("ts=1 level=error msg=x", Level.ERROR),
    ("torch.OutOfMemoryError: CUDA out of memory.", Level.ERROR),
    ("RuntimeError", Level.ERROR),
    ("engine-1  | ModuleNotFoundError: No module named 'x'", Level.ERROR),
    ("[rank3]: Traceback (most recent call last):", Level.ERROR),
    ("llama_model_load: error loading model: x", Level.ERROR),
    ("srv    load_model: failed to load model, 'x.gguf'", Level.ERROR),
    ("./entrypoint.sh: line 47: 28 Killed python3 -m server", Level.ERROR),
    ("terminate called after throwing an instance of 'std::bad_alloc'", Level.ERROR),
]


@pytest.mark.parametrize(("line", "level"), LEVELS)
def test_how_bad_a_line_is(line: str, level: Level) -> None:
    assert level_of(line) is level
    assert LevelReader(Level.WARNING).hits(f"calm\n{line}\ncalm") == ([1] if level else [])
    assert LevelReader(Level.ERROR).hits(f"{line}\ncalm") == ([0] if level is Level.ERROR else [])


def test_a_traceback_belongs_to_its_error_with_and_without_a_prefix() -> None:
    plain = f"""calm
[2025-11-30 TP0] Scheduler hit an exception: {HEAD}
  File "a.py", line 1, in f
    g()

ValueError: bad
calm again
[rank1]: {HEAD}
[rank0]: {HEAD}
[rank1]:   File "a.py"
[rank0]:   File "b.py"
INFO calm between
[rank1]: my.Oops: text
  indented and of nobody
[rank0]: KeyboardInterrupt
calm"""
    lines = plain.split("\n")
    calm = {0, 6, 11, 13, 15}
    assert LevelReader(Level.ERROR).hits(plain) == [at for at in range(len(lines)) if at not in calm]


BLOCKS = [
    "calm", "INFO all is well", "ERROR bad", f"{HEAD}", '  File "a.py", line 1', "ValueError: x", "", "my.Oops: y",
    f"[rank0]: {HEAD}", '[rank0]:   File "b.py"', "[rank0]: KeyError: 1", "WARNING hm",
]  # fmt: skip


@given(st.lists(st.sampled_from(BLOCKS), max_size=60), st.integers(1, 300), st.integers(1, 300), st.integers(0, 60))
def test_levels_by_pieces_from_the_end_are_levels_of_the_whole(
    lines: list[str], chunk_bytes: int, step_bytes: int, begin: int
) -> None:
    expected = {
        level: [at + 1 for at in LevelReader(level).hits("\n".join(lines))] for level in (Level.WARNING, Level.ERROR)
    }
    data = [line.encode() + b"\n" for line in lines]
    for level, hits in expected.items():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(log_search, "STEP_BYTES", step_bytes)
            book = MemoryBook(b"".join(data[:begin]), chunk_bytes=chunk_bytes)
            finder = Finder(book, Matcher(Query(level=level)), mask)
            for line in data[begin:]:
                book.append(line)
                finder.step()
            while finder.step():
                pass
        assert list(finder.hits) == hits if lines else not len(finder.hits)


def test_text_and_level_together() -> None:
    book = MemoryBook(f"ERROR disk\n{HEAD}\n  disk in a frame\nOSError: disk\nINFO disk\n".encode())
    finder = Finder(book, Matcher(Query("disk", level=Level.ERROR)), mask)
    while finder.step():
        pass
    assert list(finder.hits) == [1, 3, 4]


def test_a_recursion_of_a_thousand_frames_ends_somewhere() -> None:
    lines = [HEAD, *["  File x"] * 1000, "RecursionError: deep"]
    assert len(LevelReader(Level.ERROR).hits("\n".join(lines))) == MAX_BLOCK_LINES + 2


def errors(lines: Sequence[str]) -> Finder:
    return Finder(MemoryBook("".join(f"{line}\n" for line in lines).encode()), Matcher(Query(level=Level.ERROR)), mask)


def walk(finder: Finder, start: int, *, down: bool, count: int) -> list[int | None]:
    found: list[int | None] = []
    for _ in range(count):
        seek = Seek(finder, start, down=down, heads=True)
        while seek.step():
            pass
        found.append(seek.found)
        start = seek.found or start
    return found


@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize("step_bytes", [1, 30, 1 << 17])
def test_from_error_to_error_a_traceback_is_one(
    complete: bool, step_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_search, "STEP_BYTES", step_bytes)
    lines = ["calm", "ERROR one", "calm", HEAD, "  File x", "    y()", "ValueError: two", "calm", "ERROR three", "calm"]
    finder = errors(lines)
    while complete and finder.step():
        pass
    assert walk(finder, 1, down=True, count=4) == [2, 4, 9, 2]
    assert walk(finder, 10, down=False, count=4) == [9, 4, 2, 9]
    assert walk(finder, 6, down=True, count=1) == [9]
    assert walk(finder, 6, down=False, count=1) == [4]
    assert walk(errors(["calm"]), 1, down=True, count=1) == [None]


# ------------------------------------------------------------------------------- speed


def test_a_step_is_short_whatever_the_lines_are(record_property: Callable[[str, object], None]) -> None:
    """Bounded by bytes, so by time. The bound here is loose: what is exact is measured by scripts/bench."""
    line = "\x1b[36m(EngineCore pid=1)\x1b[0m [2025-11-30 04:18:09] Decode batch. #running-req: 7, token usage: 0.12\n"
    data = (line * 20_000).encode() + b"q" * 3_000_000 + b"\n" + b"\r 1%" * 500_000 + b"\n"
    for query in (Query("no such thing"), Query(r"gen \d{9}$", regex=True), Query(level=Level.ERROR)):
        finder = Finder(MemoryBook(data), Matcher(query), mask)
        times = []
        more = True
        while more:
            began = time.perf_counter()
            more = finder.step()
            times.append(time.perf_counter() - began)
        record_property(f"worst step, {query.text or 'errors'}", max(times))
        assert sorted(times)[len(times) // 2] < 0.05
        assert len(times) > len(data) // log_search.STEP_BYTES // 4
