"""What a line tells, whatever stands in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core import engine as en
from supervisor.core.progress import MATCHED_CHARS, NOTHING, LineReader, Read
from supervisor.engines import loader

COUNTED = r"loading: (?P<percent>[\d.]+)% \| (?P<done>\d+)/(?P<total>\d+)"


def engine(**rules: object) -> en.Engine:
    return en.Engine(name="x", title="X", **rules)  # type: ignore[arg-type]


def stage(pattern: str, name: str = "weights") -> en.Stage:
    return en.Stage(name=name, pattern=pattern, samples=())


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("loading: 33% | 1/3", Read(stage="weights", done=1, total=3, fraction=1 / 3)),
        ("loading: 45% | 0/0", Read(stage="weights", done=0, total=0, fraction=0.45)),
        ("loading: 140% | 7/5", Read(stage="weights", done=7, total=5, fraction=1.0)),
        ("unloading: none", NOTHING),
    ],
)
def test_counts_are_more_exact_than_a_printed_percentage(line: str, read: Read) -> None:
    assert LineReader(engine(stages=(stage(COUNTED),))).read(line) == read


def test_a_count_that_no_counter_says_breaks_nothing() -> None:
    """A float holds no number of a thousand digits, and the division ended the whole session."""
    read = LineReader(engine(stages=(stage(COUNTED),))).read(f"loading: 1% | {'9' * 1000}/1")
    assert (read.stage, read.done, read.fraction) == ("weights", None, 0.01)


@given(st.text(alphabet="0123456789٣७./%| loading:shardsCompt", max_size=80))
def test_no_line_at_all_raises(tail: str) -> None:
    for name in loader.names():
        LineReader(loader.load(name)).read(f"Loading safetensors checkpoint shards: {tail}")


def test_ready_comes_before_stages() -> None:
    rules = {"stages": (stage("up"),), "ready_lines": (en.Line(pattern="is up", samples=()),)}
    reader = LineReader(engine(**rules))
    assert reader.read("coming up") == Read(stage="weights")
    assert reader.read("it is up") == Read(ready=True)


def test_the_first_stage_that_fits_is_told() -> None:
    reader = LineReader(engine(stages=(stage("graph", "graphs"), stage("capture", "other"))))
    assert reader.read("capture graph").stage == "graphs"


def test_no_rule_looks_further_than_its_cap() -> None:
    reader = LineReader(engine(stages=(stage("needle"),)))
    assert reader.read(" " * (MATCHED_CHARS - 6) + "needle").stage == "weights"
    assert reader.read(" " * MATCHED_CHARS + "needle") == NOTHING


def test_an_engine_without_rules_tells_nothing() -> None:
    assert LineReader(engine()).read("anything") == NOTHING
