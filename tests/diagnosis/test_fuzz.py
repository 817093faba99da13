"""Ten thousand logs that no server wrote: random bytes, and real logs that were cut, spliced, shuffled and damaged.

Whatever comes, there is no exception, the time is bounded by the bytes, and so is the memory that is kept.
"""

from __future__ import annotations

import gc
import random
import re
import string
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.diagnosis.conclude import Diagnosis
from supervisor.core.diagnosis.log_order import order_of
from supervisor.core.diagnosis.which_engine import which_engine
from supervisor.core.engine import Line, Root
from supervisor.core.families import FAMILIES
from supervisor.core.lines import sanitise
from supervisor.diagnosing import Reader
from supervisor.engines import loader
from supervisor.headless import diagnosis_text
from supervisor.headless.text import Style
from tests.scale import FULL, scaled

CORPORA = Path(__file__).parents[1] / "corpora"
LOGS = sorted(CORPORA.glob("*/*.log"))
ENGINES = {name: loader.load(name) for name in (*loader.names(), loader.GENERIC)}
COMMON = loader.common()
COUNT = scaled(10_000)
MOST_BYTES = 32 * 1024
"""Of one mutated log, so that many can be tried."""
FIXED_S, BYTE_S = 1.0, 20e-6
"""What a log may cost of a processor's time: its rules, and each byte of it."""


@pytest.fixture(autouse=True)
def roomy_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of diagnosers are made here, where a program makes one: the patterns need not be compiled each time."""
    monkeypatch.setattr(re, "_MAXCACHE", 10_000)


def pieces(data: bytes, chance: random.Random) -> Iterator[bytes]:
    """The log in reads of any size."""
    at = 0
    while at < len(data):
        size = chance.choice((1, 7, 61, 500, 4096, 65536))
        yield data[at : at + size]
        at += size


def diagnosed(data: bytes, engine: str, chance: random.Random) -> Diagnosis:
    """The whole way of a log, checked for what must hold of any answer."""
    began = time.thread_time()
    reader = Reader(ENGINES[engine], COMMON, 0.0)
    reader.feed(pieces(data, chance))
    found = reader.conclude()
    assert time.thread_time() - began < FIXED_S + BYTE_S * len(data)
    lines = data.count(b"\n") + (not data.endswith(b"\n") and data != b"")
    assert reader.lines == lines
    if found.finding is not None:
        assert found.finding.category in FAMILIES and found.finding.cause
        assert found.finding.line_no is None or 1 <= found.finding.line_no <= lines
    assert all(1 <= item.line_no <= lines and item.category in FAMILIES for item in found.candidates)
    read = diagnosis_text.Read(engine=engine, chosen=False, lines=lines)
    for text in diagnosis_text.report(diagnosis_text.safe(found), read, Style(colour=False)):
        assert sanitise(text) == text and "\n" not in text, ascii(text)
    return found


# ------------------------------------------------------------------------------------------------ made of real ones


def cut(data: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(data))
    return data[start : start + chance.randrange(1, MOST_BYTES)]


def spliced(data: bytes, chance: random.Random) -> bytes:
    return cut(data, chance) + cut(chance.choice(WHOLE), chance)


def shuffled(data: bytes, chance: random.Random) -> bytes:
    lines = cut(data, chance).split(b"\n")
    chance.shuffle(lines)
    return b"\n".join(lines)


def backwards(data: bytes, chance: random.Random) -> bytes:
    return b"\n".join(reversed(cut(data, chance).split(b"\n")))


def flipped(data: bytes, chance: random.Random) -> bytes:
    out = bytearray(cut(data, chance))
    for _ in range(chance.randrange(1, 200)):
        out[chance.randrange(len(out))] = chance.randrange(256)
    return bytes(out)


def without_newlines(data: bytes, chance: random.Random) -> bytes:
    return cut(data, chance).replace(b"\n", chance.choice((b"\r", b"", b"\t", b"\\n", b"\0")))


def stuttering(data: bytes, chance: random.Random) -> bytes:
    lines = cut(data, chance).split(b"\n")
    return b"\n".join(line for line in lines for _ in range(chance.choice((0, 1, 1, 2, 9))))[:MOST_BYTES]


def crossed(data: bytes, chance: random.Random) -> bytes:
    """Two processes that write over each other."""
    first, second = cut(data, chance), cut(chance.choice(WHOLE), chance)
    step = chance.randrange(1, 120)
    return b"".join(first[at : at + step] + second[at : at + step] for at in range(0, len(first), step))


def noise(_data: bytes, chance: random.Random) -> bytes:
    return chance.randbytes(chance.randrange(1, 4096))


def words(_data: bytes, chance: random.Random) -> bytes:
    """The words of the rules in any order, between digits, quotes and brackets."""
    parts = [*chance.choices(LITERALS, k=40), *chance.choices(string.printable, k=40), " ", "\n", "\n", "\x1b[31m"]
    return "".join(chance.choices(parts, k=chance.randrange(1, 600))).encode()


WHOLE = [path.read_bytes() for path in LOGS]
RULES: list[Root | Line] = [*COMMON.roots, *COMMON.headers, *COMMON.noise_lines]
for one in ENGINES.values():
    RULES += [*one.roots, *one.headers, *one.noise_lines]
LITERALS = sorted({word for rule in RULES for word in rule.literals})
WAYS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    cut, spliced, shuffled, backwards, flipped, without_newlines, stuttering, crossed, noise, words,
)  # fmt: skip


@pytest.mark.parametrize("way", WAYS, ids=[way.__name__ for way in WAYS])
def test_logs_that_no_server_wrote(way: Callable[[bytes, random.Random], bytes]) -> None:
    names = sorted(ENGINES)
    for number in range(COUNT // len(WAYS)):
        chance = random.Random(f"{way.__name__} {number}")
        data = way(chance.choice(WHOLE), chance)
        order_of(data.decode("utf-8", "replace").split("\n"))
        whose = which_engine([data], ENGINES)
        engine = chance.choice([whose or loader.GENERIC, chance.choice(names)])
        try:
            diagnosed(data, engine, chance)
        except Exception as error:
            raise AssertionError(f"log {number} of {way.__name__}, as {engine}: {data[:300]!r}…") from error


@given(st.binary(max_size=2000), st.sampled_from(sorted(ENGINES)), st.integers())
def test_any_bytes(data: bytes, engine: str, seed: int) -> None:
    diagnosed(data, engine, random.Random(seed))


@given(
    st.lists(
        st.one_of(
            st.sampled_from(LITERALS),
            st.sampled_from(["Traceback (most recent call last):", '  File "a.py", line 3, in f', "ValueError: x"]),
            st.sampled_from(["During handling of the above exception, another exception occurred:", "", "\r", "    "]),
            st.text(max_size=60),
        ),
        max_size=40,
    ),
    st.sampled_from(sorted(ENGINES)),
)
def test_any_lines(lines: list[str], engine: str) -> None:
    diagnosed("\n".join(lines).encode("utf-8", "surrogatepass"), engine, random.Random(0))


@pytest.mark.parametrize("read_bytes", [1, 13, 4096])
def test_where_the_reads_cut_a_log_changes_nothing(read_bytes: int) -> None:
    for path in random.Random(read_bytes).sample(LOGS, scaled(len(LOGS))):
        data = path.read_bytes()[-20_000:]
        name = which_engine([data], ENGINES) or loader.GENERIC
        found = []
        for size in (read_bytes, len(data)):
            reader = Reader(ENGINES[name], COMMON, 0.0)
            reader.feed(data[at : at + size] for at in range(0, len(data), size))
            found.append(told(reader.conclude()))
        assert found[0] == found[1], path.name


def told(diagnosis: Diagnosis) -> tuple[object, ...]:
    """All of it but how many processes say the same: which echoes of a line are passed over is a matter of speed."""
    finding = diagnosis.finding
    return (
        finding and (finding.line_no, finding.line, finding.category, finding.detail, finding.confidence),
        [(item.line_no, item.text, item.category) for item in diagnosis.candidates],
        diagnosis.ruled_out,
        diagnosis.reason,
    )


# ------------------------------------------------------------------------------------------------ memory


@pytest.mark.parametrize("kind", ["errors", "tracebacks", "speakers", "words", "no newline", "unfinished traceback"])
def test_what_is_kept_of_an_endless_log_is_bounded(kind: str) -> None:
    """Each line differs, so that nothing can be kept once for all of them."""
    chance = random.Random(kind)

    def block(number: int) -> bytes:
        out = []
        for index in range(100):
            key = f"{number:x}{index:x}" + "".join(chance.choices(string.ascii_lowercase, k=8))
            match kind:
                case "errors":
                    out.append(f"RuntimeError: {key} failed\n")
                case "tracebacks":
                    out.append(
                        f'Traceback (most recent call last):\n  File "{key}.py", line 3, in {key}\nError{key}: x\n'
                    )
                case "speakers":
                    out.append(f"(Worker_{key} pid={number}{index}) ERROR {key}Error: no\n")
                case "words":
                    out.append(f"{chance.choice(LITERALS)} {key} {chance.choice(LITERALS)}\n")
                case "no newline":
                    out.append(f"Error: {key} ")
                case _:
                    out.append(f'  File "{key}.py", line {index}, in f\n')
        return "".join(out).encode()

    reader = Reader(ENGINES["sglang"], COMMON, 0.0)
    reader.feed([b"Traceback (most recent call last):\n"])
    reader.feed(block(number) for number in range(20))
    tracemalloc.start()
    try:
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        reader.feed(block(number) for number in range(20, 20 + (1000 if FULL else 50)))
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 12 << 20, f"{grown / (1 << 20):.1f} MiB"
    reader.conclude()
