"""The collected failures and how a diagnosis is scored on them; used by the tests and by `scripts/bench/diagnosis.py`.

A line is named exactly where the finding's line is one that an expert accepts as naming the cause. A family is right
where it is the case's own or one that is marked as acceptable too.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from supervisor.core.diagnosis.conclude import Diagnosis
from supervisor.core.diagnosis.diagnoser import Diagnoser
from supervisor.core.diagnosis.facts import EndFacts
from supervisor.core.diagnosis.log_order import Order, order_of
from supervisor.core.engine import Common, Engine, Root
from supervisor.core.lines import shown
from supervisor.engines import loader

FOLDER = Path(__file__).resolve().parents[1] / "corpora"
ENGINES = {"sglang": "sglang", "vllm": "vllm", "llama.cpp": "llamacpp", "tensorrt-llm": "trtllm"}
BY_PREFIX = {"sg": "sglang", "vl": "vllm", "lc": "llamacpp", "tr": "trtllm", "tg": "tgi", "lm": "lmdeploy"}
CRUDE = re.compile(
    r"\b(?:[A-Za-z_.]*(?:Error|Exception)|error|ERROR|fatal|FATAL|Fatal|panic|CRITICAL|Killed|Segmentation fault|"
    r"core dumped|failed|Failed|cannot|out of memory)\b"
)
"""What a simple rule would call an error: for the baselines beside ours."""


class Case(Struct, frozen=True, kw_only=True):
    """One failure, as it was labelled."""

    id: str
    engine: str
    category: str
    detail: str
    root_line: str
    root_lines: tuple[str, ...] = ()
    noise_lines: tuple[str, ...] = ()
    category_alt: tuple[str, ...] = ()
    verbatim: bool = True
    log: str = ""

    @property
    def families(self) -> tuple[str, ...]:
        """Those that are right."""
        return (self.category, *self.category_alt)

    def accepts(self, line: str) -> bool:
        """Whether an expert takes this line as naming the cause."""
        return bool(line.strip()) and any(root.strip() in line or line.strip() in root for root in self.root_lines)


def cases() -> list[Case]:
    """All, with a log or without."""
    lines = (FOLDER / "failures" / "cases.jsonl").read_text(encoding="utf-8").splitlines()
    return [msgspec.convert(json.loads(line), Case, strict=False) for line in lines]


def with_logs() -> list[Case]:
    """Those whose log is here."""
    return [case for case in cases() if case.log]


def text_lines(raw: bytes) -> list[tuple[int, str]]:
    """Number and text of each line, in the order in which they were written."""
    lines = [(number, shown(line)) for number, line in enumerate(raw.split(b"\n"), 1)]
    if order_of(text for _, text in lines) is not Order.AS_WRITTEN:
        lines.reverse()
    return lines


def diagnose(engine: Engine, common: Common, raw: bytes, facts: EndFacts | None = None) -> Diagnosis:
    """What a log comes to."""
    diagnoser = Diagnoser(engine, common)
    for number, text in text_lines(raw):
        diagnoser.feed(text, number)
    return diagnoser.conclude(facts or EndFacts(), 0.0)


class Score(Struct):
    """How many of how many."""

    logs: int = 0
    lines: int = 0
    families: int = 0
    wrong: list[str] = []

    def count(self, case: Case, done: Diagnosis) -> None:
        """One more."""
        self.logs += 1
        line = done.finding is not None and case.accepts(done.finding.line)
        family = done.finding is not None and done.finding.category in case.families
        self.lines += line
        self.families += family
        if not (line and family):
            got = "nothing" if done.finding is None else f"{done.finding.category}: {done.finding.line[:100]}"
            self.wrong.append(f"{case.id} wants {case.category}, got {got}")


def score(chosen: Iterable[Case], roots: Sequence[Root] | None = None) -> Score:
    """Of these cases with logs.

    Args:
        roots: no other root rules than these, where given.
    """
    told = Score()
    for case in chosen:
        engine, common = loader.load(ENGINES[case.engine]), loader.common()
        if roots is not None:
            engine = msgspec.structs.replace(engine, roots=tuple(rule for rule in engine.roots if rule in roots))
            common = msgspec.structs.replace(common, roots=tuple(rule for rule in common.roots if rule in roots))
        told.count(case, diagnose(engine, common, raw(case)))
    return told


def raw(case: Case) -> bytes:
    """The case's log."""
    return (FOLDER / "failures" / case.log).read_bytes()


def baseline(case: Case, which: int) -> bool:
    """Whether the first (0) or last (-1) error-looking line is the cause."""
    looks = [text for _, text in text_lines(raw(case)) if CRUDE.search(text)]
    return bool(looks) and case.accepts(looks[which])


def seen_in(chosen: Iterable[Case]) -> list[Root]:
    """The root rules that somebody who knows these cases alone would have written: each fits one of their lines."""
    found: list[Root] = []
    for case in chosen:
        engine, common = loader.load(ENGINES[case.engine]), loader.common()
        text = raw(case).decode("utf-8", "replace") if case.log else case.root_line
        for rule in (*engine.roots, *common.roots):
            if (
                rule not in found
                and any(word in text for word in rule.literals)
                and re.search(rule.pattern, text, re.M)
            ):
                found.append(rule)
    return found


def halves(seed: int) -> tuple[list[Case], list[Case]]:
    """The cases with logs, split at random."""
    known = with_logs()
    random.Random(seed).shuffle(known)
    return known[: len(known) // 2], known[len(known) // 2 :]
