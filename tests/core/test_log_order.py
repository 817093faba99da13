"""Newest first or not, from time stamps and tracebacks, and never by mistake on a log that is the right way round."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.diagnosis.log_order import Order, order_of, stamp
from supervisor.core.diagnosis.which_engine import WhichEngine, which_engine
from supervisor.core.engine import Engine, LogSign
from supervisor.engines import loader

CORPORA = Path(__file__).parents[1] / "corpora"
LOGS = sorted(path for folder in ("healthy", "recorded") for path in (CORPORA / folder).glob("*.log"))
ENGINE_OF = {
    "sg": "sglang", "sglang": "sglang", "vl": "vllm", "vllm": "vllm", "lc": "llamacpp", "llamacpp": "llamacpp",
    "tr": "trtllm", "tg": "tgi", "lm": "lmdeploy",
}  # fmt: skip
TRACEBACK = [
    "Traceback (most recent call last):",
    '  File "/app/a.py", line 3, in main',
    "    run()",
    '  File "/app/b.py", line 9, in run',
    "    raise ValueError('no')",
    "ValueError: no",
]


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("2025-04-05T00:01:19.209514570Z a", "2025-04-05T00:01:19.209514571Z a"),
        ("[2025-04-05 00:01:19 TP0] a", "[2025-04-05 00:01:20 TP1] a"),
        ("INFO 03-07 21:49:33 [core.py:133] x", "INFO 03-08 01:00:00 [core.py:133] x"),
        ("[12/07/2025-00:20:27] [TRT-LLM] [I] x", "[01/01/2026-00:20:26] [TRT-LLM] [I] x"),
        ("Dec  7 00:20:27 node vllm[3]: x", "Dec 11 00:20:27 node vllm[3]: x"),
        ("I0307 21:49:33.123456  77 x.cc:3] x", "I0307 21:49:33.123457  77 x.cc:3] x"),
        ("21:49:33.5 x", "21:49:33.50001 x"),
        (
            "ERROR 2025-04-05T00:01:19Z later [2025-04-05 09:00:00] x",
            "ERROR 2025-04-05T00:01:20Z [2025-04-05 08:00:00]",
        ),
    ],
)
def test_times_compare(older: str, newer: str) -> None:
    first, second = stamp(older), stamp(newer)
    assert first is not None and second is not None
    assert first[0] == second[0] and first[1] < second[1]


@pytest.mark.parametrize("text", ["no time at all", "ratio 3:4", "x" * 130 + "2025-04-05 00:01:19", "10.0.0.1:23333"])
def test_what_is_no_time_is_none(text: str) -> None:
    assert stamp(text) is None


def stamped(count: int) -> list[str]:
    return [f"[2025-04-05 00:{second // 60:02}:{second % 60:02}] line {second}" for second in range(count)]


def test_reversed_lines_and_reversed_entries_are_told_apart() -> None:
    lines = stamped(10)
    assert order_of(lines) is Order.AS_WRITTEN
    assert order_of(lines[::-1]) is Order.LINES_REVERSED
    assert order_of((lines + TRACEBACK)[::-1]) is Order.LINES_REVERSED
    entries = [[line, *TRACEBACK] for line in lines]
    assert order_of([line for entry in entries[::-1] for line in entry]) is Order.ENTRIES_REVERSED


def test_tracebacks_alone_tell() -> None:
    assert order_of(TRACEBACK) is Order.AS_WRITTEN
    assert order_of(TRACEBACK[::-1]) is Order.LINES_REVERSED
    assert order_of([f"ERROR 2025-04-05T00:01:19Z {line}" for line in TRACEBACK[::-1]]) is Order.LINES_REVERSED


def test_ranks_that_overtake_each_other_and_a_second_run_below_the_first_change_nothing() -> None:
    lines = stamped(60)
    for index in range(0, 60, 6):
        lines[index], lines[index + 1] = lines[index + 1], lines[index]
    assert order_of(lines) is Order.AS_WRITTEN
    assert order_of(stamped(30) + stamped(30) + stamped(30)) is Order.AS_WRITTEN
    assert order_of([]) is Order.AS_WRITTEN
    assert order_of(["[2025-04-05 00:00:02] b", "[2025-04-05 00:00:01] a"]) is Order.AS_WRITTEN, (
        "two lines prove little"
    )


@pytest.mark.parametrize("path", LOGS, ids=[path.stem for path in LOGS])
def test_a_real_log_stands_as_it_was_written(path: Path) -> None:
    assert order_of(path.read_text("utf-8", "replace").split("\n")) is Order.AS_WRITTEN


@given(st.lists(st.text(max_size=80)))
def test_any_text_has_some_order(lines: list[str]) -> None:
    assert order_of(lines) in Order


# ------------------------------------------------------------------------------------------------ whose log it is

ENGINES = {name: loader.load(name) for name in loader.names()}


@pytest.mark.parametrize("path", LOGS, ids=[path.stem for path in LOGS])
def test_a_real_log_is_known_for_its_engine(path: Path) -> None:
    assert which_engine([path.read_bytes()], ENGINES) == ENGINE_OF[path.stem.split("-")[0]]


@pytest.mark.parametrize("name", sorted(ENGINES))
def test_every_engine_has_signs_and_knows_itself_by_a_strong_one(name: str) -> None:
    signs = ENGINES[name].log_signs
    assert signs
    for word in max(signs, key=lambda sign: sign.weight).literals:
        assert which_engine([b"x\n" + word.encode() + b"\n"], ENGINES) == name


def test_what_is_quoted_once_or_is_a_tie_is_nobodys() -> None:
    def engine(name: str, *words: str) -> Engine:
        return Engine(name=name, title=name, log_signs=(LogSign(literals=words, weight=2),))

    two = {"a": engine("a", "alpha", "beta"), "b": engine("b", "gamma", "delta")}
    assert which_engine([], two) is None
    assert which_engine([b"alpha alpha alpha"], two) is None, "a word counts once"
    assert which_engine([b"alpha", b"beta"], two) == "a"
    assert which_engine([b"alpha beta gamma delta"], two) is None
    assert which_engine([b"train.py: error"], ENGINES) is None


def test_it_stops_looking_once_nothing_can_change_it() -> None:
    which = WhichEngine({"a": Engine(name="a", title="a", log_signs=(LogSign(literals=("x",), weight=50),))})
    assert not which.decided
    which.feed(b"x")
    assert which.decided and which.name == "a"
