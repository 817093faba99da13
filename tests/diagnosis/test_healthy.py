"""Servers that came up and served give no finding, whatever their logs look like."""

from __future__ import annotations

import json
import re

import pytest

from supervisor.core.diagnosis.diagnoser import Diagnoser
from supervisor.core.diagnosis.facts import EndFacts
from supervisor.core.engine import Line, Root
from supervisor.core.events import Exit
from supervisor.engines import loader
from tests.diagnosis import corpus

HEALTHY = sorted((corpus.FOLDER / "healthy").glob("*.log"))
GOOD_STARTS = ("llamacpp-start.log", "vllm-0.32-cpu-start.log", "vllm-0.32-cpu-sigterm.log", "vllm-0.32-cpu-apiserver")


def engine_of(name: str) -> str:
    """The engine of a healthy log by the beginning of its name."""
    return corpus.BY_PREFIX[name.partition("-")[0]]


@pytest.mark.parametrize("path", HEALTHY, ids=lambda path: path.stem)
def test_a_healthy_log_gives_no_finding(path) -> None:  # type: ignore[no-untyped-def]
    done = corpus.diagnose(loader.load(engine_of(path.name)), loader.common(), path.read_bytes())
    assert done.finding is None, (done.finding.line_no, done.finding.line)


def test_there_are_forty_and_a_simple_rule_cries_at_half_of_them() -> None:
    assert len(HEALTHY) == 40
    cried = sum(bool(re.search(corpus.CRUDE, path.read_text(errors="replace"))) for path in HEALTHY)
    assert cried >= 20, cried


@pytest.mark.parametrize("path", HEALTHY, ids=lambda path: path.stem)
def test_a_healthy_server_that_was_asked_to_stop_has_not_failed(path) -> None:  # type: ignore[no-untyped-def]
    facts = EndFacts(exit=Exit(code=0), served=True, asked_to_stop=True)
    done = corpus.diagnose(loader.load(engine_of(path.name)), loader.common(), path.read_bytes(), facts)
    assert done.finding is None


@pytest.mark.parametrize("name", GOOD_STARTS)
def test_a_recorded_good_start_gives_no_finding(name: str) -> None:
    path = next((corpus.FOLDER / "recorded").glob(f"{name}*"))
    engine = loader.load("llamacpp" if name.startswith("llama") else "vllm")
    assert corpus.diagnose(engine, loader.common(), path.read_bytes()).finding is None


RECORDED = {
    "llamacpp-bad-flag": ("llamacpp", "config", "--no-such-flag"),
    "llamacpp-model-path-missing": ("llamacpp", "model_files", "nope.gguf"),
    "llamacpp-not-a-gguf": ("llamacpp", "model_files", "invalid magic"),
    "llamacpp-port-taken": ("llamacpp", "port", "couldn't bind"),
    "sglang-0.5.23-cpu-start-then-scheduler-sigkill": ("sglang", "killed", "exit code -9"),
    "vllm-0.32-cpu-model-path-missing": ("vllm", "model_files", "Repo id must be"),
    "vllm-0.32-cpu-port-taken": ("vllm", "port", "Address already in use"),
}


@pytest.mark.parametrize("name", RECORDED)
def test_an_injected_fault_is_named(name: str) -> None:
    engine, family, words = RECORDED[name]
    raw = (corpus.FOLDER / "recorded" / f"{name}.log").read_bytes()
    finding = corpus.diagnose(loader.load(engine), loader.common(), raw).finding
    assert finding is not None
    assert finding.category == family
    assert words in finding.line
    number = next(number for number, text in corpus.text_lines(raw) if text.strip() == finding.line)
    assert finding.line_no == number


def test_requests_that_fail_are_no_failed_server() -> None:
    log = b"""INFO:     Application startup complete.
ERROR:    Exception in ASGI application
Traceback (most recent call last):
  File "/usr/lib/python3/site-packages/starlette/middleware/errors.py", line 187, in __call__
    await self.app(scope, receive, _send)
ValueError: could not parse the request

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/usr/lib/python3/site-packages/vllm/entrypoints/openai/api_server.py", line 400, in create_completion
    raise error
RuntimeError: the request is wrong
INFO:     127.0.0.1:4711 - "POST /v1/completions HTTP/1.1" 500 Internal Server Error
"""
    done = corpus.diagnose(loader.load("vllm"), loader.common(), log)
    assert done.finding is None
    ended = corpus.diagnose(loader.load("vllm"), loader.common(), log, EndFacts(exit=Exit(code=1), served=True))
    assert ended.finding is not None
    assert ended.finding.category == "unknown"  # it ended, and no request is why


def test_the_index_names_logs_that_are_here() -> None:
    index = [json.loads(line) for line in (corpus.FOLDER / "healthy" / "index.jsonl").read_text().splitlines()]
    assert {item["id"] for item in index} == {path.stem for path in HEALTHY}


@pytest.mark.parametrize("path", HEALTHY, ids=lambda path: path.stem)
def test_nothing_certain_stands_in_the_log_of_a_server_that_answered(path) -> None:  # type: ignore[no-untyped-def]
    """A certain line ends a wait at once: an accepted answer after it would be a lie of ours."""
    diagnoser = Diagnoser(loader.load(engine_of(path.name)), loader.common())
    for number, text in corpus.text_lines(path.read_bytes()):
        diagnoser.feed(text, number)
    assert diagnoser.certain(0.0) is None


def certain_rules() -> list[tuple[str, Line | Root]]:
    """Every rule of ours that ends a wait, with its engine."""
    found: list[tuple[str, Line | Root]] = []
    for name in loader.names():
        engine = loader.load(name)
        rules: tuple[Line | Root, ...] = (*engine.noise_lines, *engine.headers, *engine.roots)
        found += [(name, rule) for rule in rules if rule.certain]
    return found


@pytest.mark.parametrize(("name", "rule"), certain_rules(), ids=lambda item: getattr(item, "pattern", item)[:40])
def test_what_is_certain_is_backed_by_a_recorded_log(name: str, rule: Line | Root) -> None:
    assert rule.recorded
    path = corpus.FOLDER / rule.recorded
    if rule.recorded.startswith("failures/"):
        lines = [text for _, text in corpus.text_lines(path.read_bytes())]
        last = max(number for number, text in enumerate(lines) if re.search(rule.pattern, text))
        served = [*loader.load(name).ready_lines, *loader.load(name).serving_lines]
        after = lines[last + 1 :]
        assert not [text for text in after if any(re.search(line.pattern, text) for line in served)]


def test_the_engines_that_can_linger_have_a_certain_rule() -> None:
    assert {name for name, _ in certain_rules()} >= {"sglang", "vllm", "trtllm"}
