"""Recorded starts with their timing: for the bench of the time left (`eta.py`) and the test of the same.

The time of a line is its own stamp; bars bear none, so a bar's steps stand at its begin (the stamp before it) plus the
seconds that the bar itself tells, never past the next stamp. Stamps are of a second: so exact is all that is told.
"""

from __future__ import annotations

import random
import re
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT))

from supervisor.core.engine import Engine  # noqa: E402 - the checkout's own, found above
from supervisor.core.eta import Estimate, Estimator, Past  # noqa: E402
from supervisor.core.lines import LineSplitter  # noqa: E402
from supervisor.core.progress import LineReader  # noqa: E402
from supervisor.engines import loader  # noqa: E402

CORPORA = CHECKOUT / "tests" / "corpora"
LEAST_S = 20.0
"""Of a shorter start, stamps of a second tell too little."""
POINTS = (0.25, 0.5, 0.75)
DISTURBED = 0.2
SEEDS = 9
RUNS = {
    "sglang": [
        "healthy/sg-3451", "healthy/sg-r1", "healthy/sg-r2", "healthy/sg-r3", "healthy/sg-r4",
        "recorded/sglang-0.5.23-cpu-start-then-scheduler-sigkill",
    ],
    "vllm": [
        "healthy/vl-10116", "healthy/vl-16141", "healthy/vl-16141b", "healthy/vl-16259", "healthy/vl-6473",
        "healthy/vl-7878", "healthy/vl-r1", "healthy/vl-r10", "healthy/vl-r2", "healthy/vl-r3", "healthy/vl-r5",
        "healthy/vl-r7", "healthy/vl-r9", "recorded/vllm-0.32-cpu-start",
    ],
    "llamacpp": ["recorded/llamacpp-start"],
    "trtllm": ["healthy/tr-r1"],
}  # fmt: skip
PAIRS = {
    "healthy/sg-r4": "healthy/sg-r3",
    "healthy/sg-r3": "healthy/sg-r4",
    "healthy/vl-r3": "healthy/vl-r2",
    "healthy/vl-r2": "healthy/vl-r3",
}
"""Two starts of one engine on one machine, each the other's earlier run. Less alike than two runs of one profile: a
prefill and a decode server (one of them captures graphs), one model in two quantisations."""

_STAMPS = (
    (re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)"), "%Y-%m-%d %H:%M:%S"),
    (re.compile(r"(?:INFO|WARNING|ERROR|DEBUG) (\d\d-\d\d \d\d:\d\d:\d\d)"), "%m-%d %H:%M:%S"),
    (re.compile(r"\[(\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d)"), "%m/%d/%Y-%H:%M:%S"),
)
_SINCE_START = re.compile(r"^(\d+)\.(\d\d)\.(\d{3})\.(\d{3}) ")
_BAR = re.compile(r"\[(?:(\d+):)?(\d\d):(\d\d)<")


@dataclass(frozen=True)
class Step:
    """A line that told a stage, or that it is ready."""

    at_s: float
    stage: str
    fraction: float | None
    ready: bool


@dataclass(frozen=True)
class Start:
    """One recorded start: from its first stamp to its ready line."""

    name: str
    engine: Engine
    steps: tuple[Step, ...]
    total_s: float


def load(name: str, engine_name: str) -> Start:
    """Read one of the corpora's logs."""
    engine = loader.load(engine_name)
    reader, splitter = LineReader(engine), LineSplitter()
    texts = [line.text for line in [*splitter.feed((CORPORA / f"{name}.log").read_bytes()), *splitter.end()]]
    stamps = [_stamp(text) for text in texts]
    begin = next(stamp for stamp in stamps if stamp is not None)
    steps: list[Step] = []
    now, bar_at = 0.0, 0.0
    for number, text in enumerate(texts):
        read = reader.read(text)
        stamp, bar = stamps[number], _BAR.search(text) if read.fraction is not None else None
        if bar is not None:
            hours, minutes, seconds = (int(part or 0) for part in bar.groups())
            elapsed_s = hours * 3600.0 + minutes * 60 + seconds
            bar_at = now if read.done == 0 or not elapsed_s else bar_at
            after = next((later - begin for later in stamps[number:] if later is not None), bar_at + elapsed_s)
            now = max(now, min(bar_at + elapsed_s, after))
        elif stamp is not None:
            now = max(now, stamp - begin)
            bar_at = now
        if read.stage or read.ready:
            steps.append(Step(now, read.stage, read.fraction, read.ready))
        if read.ready:
            break
    return Start(name, engine, tuple(steps), steps[-1].at_s)


def _stamp(text: str) -> float | None:
    since = _SINCE_START.match(text)
    if since is not None:
        minutes, seconds, millis, micros = (int(part) for part in since.groups())
        return minutes * 60.0 + seconds + millis / 1e3 + micros / 1e6
    for pattern, form in _STAMPS:
        found = pattern.search(text)
        if found is not None:
            return datetime.strptime(
                f"2024 {found[1]}" if "%Y" not in form else found[1], f"%Y {form}" if "%Y" not in form else form
            ).timestamp()
    return None


def record(start: Start) -> Past:
    """The start as an earlier run."""
    estimator = Estimator(start.engine.load, began_at=0.0)
    for step in start.steps:
        if step.stage:
            estimator.stage(step.at_s, step.stage, step.fraction)
    return estimator.record(start.total_s)


def disturbed(past: Past, seed: int) -> Past:
    """The same run with every segment up to 20 % shorter or longer: two starts of one profile are never the same."""
    chance, marks = random.Random(seed), []
    ends = [mark.at_s for mark in past.marks[1:]] + [past.total_s]
    at_s = past.marks[0].at_s * chance.uniform(1 - DISTURBED, 1 + DISTURBED)
    for mark, end_s in zip(past.marks, ends, strict=True):
        share = chance.uniform(1 - DISTURBED, 1 + DISTURBED)
        curve = tuple((point_s * share, fraction) for point_s, fraction in mark.curve)
        marks.append(type(mark)(stage=mark.stage, nth=mark.nth, at_s=at_s, curve=curve))
        at_s += max(0.0, end_s - mark.at_s) * share
    return Past(marks=tuple(marks), total_s=at_s)


def replay(start: Start, past: list[Past], *, every_s: float = 1.0) -> list[tuple[float, Estimate]]:
    """What the estimator says, second by second, to the end of the start."""
    estimator = Estimator(start.engine.load, past, began_at=0.0)
    every_s = min(every_s, start.total_s / 100)
    out, number, now = [], 0, 0.0
    while now < start.total_s:
        while number < len(start.steps) and start.steps[number].at_s <= now:
            step = start.steps[number]
            if step.stage:
                estimator.stage(step.at_s, step.stage, step.fraction)
            number += 1
        out.append((now, estimator.estimate(now)))
        now += every_s
    return out


def with_history(start: Start) -> list[float | None]:
    """The same with one earlier run: the pair's, else the start itself disturbed, the median of `SEEDS` tries."""
    pair = PAIRS.get(start.name)
    if pair is not None:
        return errors(start, [record(load(pair, start.engine.name))])
    tries = [errors(start, [disturbed(record(start), seed)]) for seed in range(SEEDS)]
    out: list[float | None] = []
    for values in zip(*tries, strict=True):
        known = sorted((value for value in values if value is not None), key=abs)
        out.append(known[len(known) // 2] if known else None)
    return out


def errors(start: Start, past: list[Past]) -> list[float | None]:
    """At 25, 50 and 75 % of the load: the estimate's error as a share of the whole load, None without an estimate."""
    said = replay(start, past)
    out: list[float | None] = []
    for point in POINTS:
        now, estimate = min(said, key=lambda item: abs(item[0] - point * start.total_s))
        wrong = None if estimate.eta_s is None else (estimate.eta_s - (start.total_s - now)) / start.total_s
        out.append(wrong)
    return out
