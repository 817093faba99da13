"""The root cause of real failures: the line and the family, beside what a simple rule would have named."""

from __future__ import annotations

import pytest

from supervisor.core.diagnosis.facts import EndFacts
from supervisor.core.events import Exit
from supervisor.core.families import FAMILIES
from supervisor.engines import loader
from tests.diagnosis import corpus
from tests.scale import FULL

SHARE = 0.95
SPLITS = 10 if FULL else 3


def test_the_line_and_the_family_are_named(record_property: object) -> None:
    told = corpus.score(corpus.with_logs())
    assert told.logs == 50
    assert told.lines >= SHARE * told.logs, told.wrong
    assert told.families >= SHARE * told.logs, told.wrong


def test_a_simple_rule_names_far_fewer() -> None:
    """The figures beside ours: the first and the last line that looks like an error."""
    known = corpus.with_logs()
    first = sum(corpus.baseline(case, 0) for case in known)
    last = sum(corpus.baseline(case, -1) for case in known)
    assert max(first, last) < 0.6 * len(known), (first, last)


@pytest.mark.parametrize("case", [case for case in corpus.cases() if not case.log], ids=lambda case: case.id)
def test_no_case_without_a_log_raises_or_leaves_the_families(case: corpus.Case) -> None:
    lines = "\n".join((case.root_line, *case.noise_lines)).encode()
    done = corpus.diagnose(loader.load(corpus.ENGINES[case.engine]), loader.common(), lines)
    assert done.finding is None or done.finding.category in FAMILIES


def test_a_line_alone_with_its_noise_is_enough_for_the_family() -> None:
    """Of failures of which only the line and the noise were kept, those that have a line at all."""
    told = corpus.Score()
    for case in corpus.cases():
        if not case.log and not case.root_line.startswith("(none"):
            lines = "\n".join((case.root_line, *case.noise_lines)).encode()
            told.count(case, corpus.diagnose(loader.load(corpus.ENGINES[case.engine]), loader.common(), lines))
    assert told.families >= 0.9 * told.logs, told.wrong


@pytest.mark.parametrize("seed", range(SPLITS))
def test_rules_of_one_half_name_most_of_the_other(seed: int) -> None:
    """The cross-check: without each rule that no case of the one half shows, measured on the other half."""
    known, unseen = corpus.halves(seed)
    told = corpus.score(unseen, corpus.seen_in(known))
    assert told.lines >= 0.6 * told.logs, told.wrong


def test_the_founding_story_is_named_with_its_advice() -> None:
    """An `__init__` failed half-way, and the object was used all the same."""
    log = b"""[2026-11-30 10:00:01 TP0] Capture draft decode CUDA graph begin. backend=flashinfer, num_tokens_per_bs=1
[2026-11-30 10:09:12] The server is fired up and ready to roll!
[2026-11-30 10:09:40 TP0] Decode batch, #running-req: 12, #token: 4821, token usage: 0.05, #queue-req: 0
[2026-11-30 10:09:41 TP3] Scheduler hit an exception: Traceback (most recent call last):
  File "/sgl/python/sglang/srt/managers/scheduler.py", line 3120, in run_scheduler_process
    scheduler.event_loop_overlap()
  File "/sgl/python/sglang/srt/speculative/eagle_worker_v2.py", line 611, in forward_batch_generation
    if batch.batch_size() > self.spec_disable_batch_threshold:
AttributeError: 'EAGLEWorkerV2' object has no attribute 'spec_disable_batch_threshold'

[2026-11-30 10:09:41] Received sigquit from a child process. It usually means the child failed.
Killed
"""
    facts = EndFacts(exit=Exit(signal="SIGKILL"), served=True, oom_looked_at=True)
    finding = corpus.diagnose(loader.load("sglang"), loader.common(), log, facts).finding
    assert finding is not None
    assert finding.line_no == 9
    assert finding.category == "engine_bug"
    assert "EAGLEWorkerV2" in finding.cause
    assert "first exception in `__init__`" in finding.advice
    assert any("OOM killer" in text for text in finding.ruled_out)
