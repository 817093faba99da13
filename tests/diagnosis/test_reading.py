"""Prefixes, tracebacks, rules and blocks: the parts that read a line."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.core import events as ev
from supervisor.core.diagnosis.blocks import BlockDiagnoser
from supervisor.core.diagnosis.diagnoser import Diagnoser, Told
from supervisor.core.diagnosis.facts import EndFacts
from supervisor.core.diagnosis.rulebook import Rulebook
from supervisor.core.diagnosis.tracebacks import Ending, Inside, Tracebacks
from supervisor.core.diagnosis.unwrap import unwrap
from supervisor.core.kinds import blurred
from supervisor.core.lines import LineSplitter
from supervisor.engines import loader
from tests.diagnosis import corpus
from tests.scale import scaled

WRAPPED = {
    "RuntimeError: x": ("RuntimeError: x", "", ""),
    "[2025-03-29 18:56:25 TP0] RuntimeError: x": ("RuntimeError: x", "TP0", ""),
    "[2026-01-12 04:57:55 DP0 TP0 EP0] x": ("x", "DP0 TP0 EP0", ""),
    "(EngineCore_DP0 pid=18987) ERROR 11-05 11:27:03 [core.py:390] ValueError: x": (
        "ValueError: x", "EngineCore_DP0 pid=18987", "ERROR",
    ),
    "ERROR 03-02 03:24:44 worker_base.py:581] RuntimeError: x": ("RuntimeError: x", "", "ERROR"),
    "inference_engine  | [2025-02-12 12:54:32 TP0] x": ("x", "inference_engine TP0", ""),
    "(RayWorkerWrapper pid=21, ip=10.0.0.1) *** SIGSEGV": ("*** SIGSEGV", "RayWorkerWrapper pid=21, ip=10.0.0.1", ""),
    "Apr  3 17:38:57 node0 langmodel[140343]: #033[1;36m(VllmWorker rank=3 pid=140343)#033[0;0m OSError: x": (
        "OSError: x", "langmodel[140343] VllmWorker rank=3 pid=140343", "",
    ),
    "ERROR 2025-04-05T00:01:19.209514570Z [2025-04-05 00:01:19 TP1] x": ("x", "TP1", ""),
    "2026-11-30T10:00:00.123456789Z stderr F RuntimeError: x": ("RuntimeError: x", "", ""),
    "[rank1]:[E129 08:52:51.685329145 ProcessGroupNCCL.cpp:1595] [PG ID 2] x": ("[PG ID 2] x", "1", "ERROR"),
    "[12/07/2025-00:20:27] [TRT-LLM] [RANK 3] [E] x": ("x", "3", "ERROR"),
    "2025-03-07 23:50:27,531 - __main__ - INFO - [2025-03-07 23:50:27 TP0] x": ("x", "TP0", ""),
    "  9%|# | 2/23 [00:08<01:20,  3.82s/it][rank1]:[E129 08:52:51.6 a.cpp:1] CUDA error": ("CUDA error", "1", "ERROR"),
    "> [1,0]<stderr>: RuntimeError: x": ("RuntimeError: x", "", ""),
    "[2, 3] is no time": ("[2, 3] is no time", "", ""),
}  # fmt: skip


@pytest.mark.parametrize("text", WRAPPED)
def test_a_line_is_unwrapped(text: str) -> None:
    said = unwrap(text)
    assert (said.body, said.speaker, said.level) == WRAPPED[text]


@given(st.text(max_size=300))
def test_unwrapping_never_raises_and_adds_nothing(text: str) -> None:
    assert text.endswith(unwrap(text).body)


def test_tracebacks_of_two_ranks_are_told_apart() -> None:
    both = Tracebacks()
    assert both.take("TP0", "Scheduler hit an exception: Traceback (most recent call last):", 1) is Inside.HEAD
    assert both.take("TP1", "Traceback (most recent call last):", 2) is Inside.HEAD
    assert both.take("TP0", '  File "/a/linear.py", line 642, in weight_loader', 3) is Inside.FRAME
    assert both.take("TP1", '  File "/a/io.py", line 1, in recv', 4) is Inside.FRAME
    assert both.take("TP0", "    assert param.shape == loaded.shape", 5) is Inside.FRAME
    assert both.take("TP1", "EOFError", 6) == Ending("EOFError", ("a/io.py:recv",), 2)
    assert both.following
    assert both.take("TP0", "AssertionError", 7) == Ending("AssertionError", ("a/linear.py:weight_loader",), 1)
    assert not both.following


def test_a_traceback_whose_end_never_comes_is_let_go() -> None:
    reader = Tracebacks()
    reader.take("", "Traceback (most recent call last):", 1)
    for number in range(2, 1000):
        reader.take("", f"    x = {number}", number)
    assert not reader.following


@pytest.mark.parametrize(
    ("pattern", "other"),
    [(r"exit code -9\b", "exit code -11"), (r"40[13] Client", "404 Client"), (r"\[Errno (?:98|48)\]", "[Errno 2]")],
)
def test_a_pattern_for_any_digits_fits_what_the_pattern_does_not(pattern: str, other: str) -> None:
    any_digits = blurred(pattern)
    assert any_digits is not None
    assert re.search(any_digits, other)
    assert not re.search(pattern, other)


def test_a_pattern_without_digits_needs_no_other() -> None:
    assert blurred(r"\d{4} Killed[^\d]+\d") is None


@pytest.mark.parametrize("name", loader.names())
def test_every_rule_is_found_by_its_words(name: str) -> None:
    """Whatever the words that are looked for first: each sample leads to the rule that it is a sample of."""
    engine, common = loader.load(name), loader.common()
    book = Rulebook(engine, common)
    for rule in (*engine.roots, *common.roots):
        for sample in rule.samples:
            hits = book.hits(sample)
            assert hits is not None, sample
            assert rule in [item.rule for item in hits.roots], sample
    for line in (*engine.noise_lines, *common.noise_lines, *engine.headers, *common.headers):
        for sample in line.samples:
            hits = book.hits(sample)
            assert hits is not None, sample
            assert line in [item.rule for item in (*hits.noise, *hits.headers)], sample


def blocks(data: bytes, cuts: list[int]) -> list[ev.LogBlock]:
    """`data` cut at these places."""
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    out, line_no = [], 1
    for start, end in pairwise(places):
        piece = data[start:end]
        out.append(ev.LogBlock(at=1.0, data=piece, offset=start, line_no=line_no, lines=piece.count(b"\n")))
        line_no += piece.count(b"\n")
    return out


LOGS = [case.log for case in corpus.with_logs()]


@settings(max_examples=scaled(300))
@given(st.sampled_from(LOGS), st.lists(st.integers(0, 10**6), max_size=8))
def test_a_log_in_blocks_comes_to_what_its_lines_come_to(log: str, cuts: list[int]) -> None:
    """However it is cut, and though most of its lines are passed over."""
    data = (corpus.FOLDER / "failures" / log).read_bytes()
    engine = loader.load(corpus.BY_PREFIX[log.partition("-")[0]])
    by_lines, by_blocks = Diagnoser(engine, loader.common()), BlockDiagnoser(engine, loader.common())
    splitter = LineSplitter()
    for line in (*splitter.feed(data), *splitter.end()):
        if not line.living:
            by_lines.feed(line.text, line.line_no)
    for block in blocks(data, cuts):
        by_blocks.feed(block)
    assert by_blocks.conclude(EndFacts(), 2.0) == by_lines.conclude(EndFacts(), 2.0)


def test_a_flood_is_read_once() -> None:
    engine = loader.load("sglang")
    reader = BlockDiagnoser(engine, loader.common())
    line = (
        b"[2026-11-30 10:00:%02d TP3] Decode batch. #running-req: %d, #token: 48211, token usage: 0.43, #queue-req: 0\n"
    )
    data = b"".join(line % (number % 60, number) for number in range(5000))
    reader.feed(ev.LogBlock(at=0.0, data=data, offset=0, line_no=1, lines=5000))
    assert reader.read_lines < 50
    end = b"[2026-11-30 11:00:00 TP3] RuntimeError: CUDA error: an illegal memory access was encountered\n"
    reader.feed(ev.LogBlock(at=1.0, data=end, offset=len(data), line_no=5001, lines=1))
    finding = reader.conclude(EndFacts(), 2.0).finding
    assert finding is not None
    assert finding.line_no == 5001


def test_what_came_to_nothing_is_read_again_where_digits_matter() -> None:
    reader = Diagnoser(loader.load("sglang"), loader.common())
    assert reader.feed("child ended, exit code: -3", 1) is Told.SOMETHING  # -9 would be somebody's SIGKILL
    reader.feed("child ended, exit code: -9", 2)
    finding = reader.conclude(EndFacts(), 0.0).finding
    assert finding is not None
    assert finding.category == "killed"
