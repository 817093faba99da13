"""Every engine's file: its patterns against its samples, its rules against whole logs of real launches."""

from __future__ import annotations

import re
import re._parser as sre  # type: ignore[import-not-found]  # private, and the only one that knows what a pattern needs
import tomllib
from collections.abc import Iterable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import pytest

from supervisor.core.engine import Engine
from supervisor.core.lines import Line, LineSplitter
from supervisor.core.metering import Meter
from supervisor.core.progress import LineReader, Read
from supervisor.engines import loader

CORPORA = Path(__file__).parents[1] / "corpora"
NAMES = loader.names()
ENGINES = [loader.load(name) for name in NAMES]
STAGES = [(engine, stage) for engine in ENGINES for stage in engine.stages]


def line_samples() -> Iterator[Any]:
    """Every sample of a line with one meaning, as parameters."""
    for engine in ENGINES:
        for kind in ("ready", "noise", "serving"):
            for line in getattr(engine, f"{kind}_lines"):
                for sample in line.samples:
                    yield pytest.param(line.pattern, sample, id=f"{engine.name} {kind} {sample[:30]}")


SAMPLES = list(line_samples())


def document(name: str) -> dict[str, Any]:
    return tomllib.loads((files("supervisor.engines") / f"{name}.toml").read_text(encoding="utf-8"))


# ------------------------------------------------------------------------------------------------- the files


def test_the_engines_are_there() -> None:
    assert {"sglang", "vllm", "llamacpp", "trtllm"} <= set(NAMES)
    assert loader.load(loader.GENERIC).health.ready == (200,)
    with pytest.raises(KeyError):
        loader.load("no-such-engine")


@pytest.mark.parametrize("engine", ENGINES, ids=NAMES)
def test_a_file_bears_its_engines_name_and_every_pattern_has_a_sample(engine: Engine) -> None:
    assert loader.load(engine.name) is engine
    assert engine.stages and engine.ready_lines and engine.detect
    assert all(stage.samples for stage in engine.stages)
    for line in (*engine.ready_lines, *engine.serving_lines, *engine.noise_lines, *engine.headers):
        assert line.samples
    assert all(root.samples for root in engine.roots)


@pytest.mark.parametrize(("pattern", "sample"), SAMPLES)
def test_a_pattern_matches_its_sample(pattern: str, sample: str) -> None:
    assert re.search(pattern, sample)


@pytest.mark.parametrize(("engine", "stage"), STAGES, ids=[f"{e.name} {s.name} {s.pattern[:20]}" for e, s in STAGES])
def test_a_stage_reads_its_samples_with_their_counts(engine: Engine, stage: Any) -> None:
    reader = LineReader(engine)
    for sample in stage.samples:
        match = re.search(stage.pattern, sample.line)
        assert match is not None
        groups = match.groupdict()
        for name in ("done", "total", "percent"):
            wanted = getattr(sample, name)
            assert (float(groups[name]) if groups.get(name) else None) == wanted
        read = reader.read(sample.line)
        assert (read.stage, read.ready) == (stage.name, False), "no other rule is faster"
        assert (read.done, read.total) == (sample.done, sample.total)
        if sample.done is not None and sample.total:
            assert read.fraction == pytest.approx(sample.done / sample.total)


@pytest.mark.parametrize("engine", ENGINES, ids=NAMES)
def test_a_ready_line_is_no_stage(engine: Engine) -> None:
    reader = LineReader(engine)
    for line in engine.ready_lines:
        for sample in line.samples:
            assert reader.read(sample) == Read(ready=True)
            assert [stage.name for stage in engine.stages if re.search(stage.pattern, sample)] == []


def rules() -> Iterator[Any]:
    """Every rule that every line of a log is asked for."""
    for engine in ENGINES:
        found: list[Any] = [*engine.stages, *engine.ready_lines, *engine.serving_lines]
        for rule in found:
            yield pytest.param(rule, id=f"{engine.name} {rule.pattern[:30]}")


def ways(parsed: Iterable[Any]) -> list[list[str]]:
    """Every way through a pattern, each as the runs of characters that stand on it in this very case."""
    out = [[""]]
    for op, value in parsed:
        if op is sre.LITERAL:
            out = [[*runs[:-1], runs[-1] + chr(value)] for runs in out]
            continue
        inner = [[""]]
        if op is sre.SUBPATTERN:
            assert not value[1], "a flag within a pattern may make the case of no matter"
            inner = ways(value[3])
        elif op is sre.BRANCH:
            inner = [way for branch in value[1] for way in ways(branch)]
        elif op is sre.MAX_REPEAT and value[:2] == (0, 1):
            inner = [["", ""], *ways(value[2])]
        else:  # a class, a repetition, an assertion: nothing that would have to stand there is known of it
            inner = [["", ""]]
        out = [[*runs[:-1], runs[-1] + more[0], *more[1:]] for runs in out for more in inner]
    return out


@pytest.mark.parametrize("rule", [*rules()])
def test_what_a_rule_fits_has_one_of_its_literals_in_it(rule: Any) -> None:
    """Whatever has none is passed over unread, so a literal that is not needed would be a rule that misses lines."""
    for sample in rule.samples:
        text = sample if isinstance(sample, str) else sample.line
        assert any(word in text for word in rule.literals)
    assert not re.compile(rule.pattern).flags & re.IGNORECASE
    for runs in ways(sre.parse(rule.pattern)):
        assert any(word in run for run in runs for word in rule.literals), runs


@pytest.mark.parametrize("literals", ["[]", '[""]', '["Größe"]', '["a\\tb"]', None])
def test_a_rule_without_literals_is_refused(literals: str | None) -> None:
    changed = document("vllm")
    changed["ready_lines"][0].pop("literals")
    if literals is not None:
        changed["ready_lines"][0]["literals"] = tomllib.loads(f"x = {literals}")["x"]
    with pytest.raises(ValueError, match=r"vllm: the rule 'Application startup .* needs `literals`"):
        loader.check(msgspec.convert(changed, Engine))


def tables(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The path of every table in a document."""
    if isinstance(value, dict):
        yield path
        for key, item in value.items():
            yield from tables(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from tables(item, (*path, index))


@pytest.mark.parametrize("name", NAMES)
def test_a_key_that_is_not_known_is_refused_in_every_table(name: str) -> None:
    paths = list(tables(document(name)))
    assert len(paths) > 5
    for path in paths:
        changed = document(name)
        table: Any = changed
        for step in path:
            table = table[step]
        table["patern"] = "a slip of the pen"
        with pytest.raises(msgspec.ValidationError, match="patern"):
            msgspec.convert(changed, Engine)


@pytest.mark.parametrize(
    ("name", "port", "timeout_at_least_s"),
    [("sglang", 30000, 25), ("vllm", 8000, 5), ("llamacpp", 8080, 5), ("trtllm", 8000, 5)],
)
def test_what_the_engines_are_known_to_do(name: str, port: int, timeout_at_least_s: float) -> None:
    engine = loader.load(name)
    assert engine.default_port == port
    assert (engine.health.path, engine.health.ready, engine.health.body) == ("/health", (200,), None)
    assert 503 in engine.health.not_yet
    assert engine.health.timeout_s > timeout_at_least_s, "a probe that gives up before the engine does piles up"


@pytest.mark.parametrize("engine", ENGINES, ids=NAMES)
def test_an_engines_metrics_read_its_samples(engine: Engine) -> None:
    rules = engine.metrics
    assert rules is not None and rules.samples and (rules.running, rules.queued, rules.generated) != ((), (), ())
    for sample in rules.samples:
        data = sample.text.encode()
        told = Meter(rules).take(1.0, data)
        assert (told.running, told.queued, told.cache_share) == (sample.running, sample.queued, sample.cache)
        totals = Meter(rules).totals(data)
        for wanted, expressions in ((sample.generated, rules.generated), (sample.prompt, rules.prompt)):
            assert next((totals[one] for one in expressions if one in totals), None) == wanted
        again = Meter(rules)
        again.take(1.0, data)
        idle = again.take(3.0, data)
        counter = next(one for one in rules.generated if one in totals).startswith("rate(")
        assert idle.generated_tokens_s == (0.0 if counter else sample.generated)
        assert idle.prompt_tokens_s == 0.0


def test_the_consuming_read_is_never_asked() -> None:
    """TensorRT-LLM's /metrics takes what it tells away from whoever else reads it."""
    rules = loader.load("trtllm").metrics
    assert rules is not None and rules.path == "/prometheus/metrics"


@pytest.mark.parametrize("wrong", [{"running": ["sum(x)"]}, {"path": "metrics"}, {"cache": ["a{b=c}"]}])
def test_metrics_that_cannot_be_read_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"name": "x", "title": "X", "metrics": wrong}, Engine)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("~/ml-env/bin/python3 -m sglang.launch_server --model-path /shared/k2.5 --tp 8", "sglang"),
        ("sglang serve --model-path m", "sglang"),
        ("docker run --gpus all lmsysorg/sglang:latest python3 -m sglang.launch_server", "sglang"),
        ("/opt/venv/bin/vllm serve Qwen/Qwen3-8B", "vllm"),
        ("python -m vllm.entrypoints.openai.api_server --model m", "vllm"),
        ("docker run -p 8000:8000 vllm/vllm-openai:latest --model m", "vllm"),
        ("/opt/llama/bin/llama-server -m /models/a.gguf", "llamacpp"),
        ("trtllm-serve serve m --backend pytorch", "trtllm"),
        ("python3 train.py --model vllm", None),
        ("bash start.sh", None),
        ("mpirun -n 8 my-llama-server-wrapper", None),
        ("sglang serve m && vllm serve m", None),
    ],
)
def test_the_engine_is_found_from_the_command_or_not_at_all(command: str, name: str | None) -> None:
    found = loader.detect(command.split())
    assert (found.name if found else None) == name


# ------------------------------------------------------------------------------------------------- whole logs

VLLM_CPU = "config > distributed > weights > kv cache > warm-up > http"

TRACES = [
    # log, engine, stages by when each was seen first, line of ready, last count of the weights
    ("healthy/lc-10701", "llamacpp", "config > weights > kv cache > graphs > warm-up > loaded", 145, None),
    ("healthy/lc-12946", "llamacpp", "config > weights > kv cache > graphs > warm-up > loaded", 159, None),
    ("healthy/lc-14625", "llamacpp", "warm-up > loaded", 263, None),
    ("healthy/sg-2795", "sglang", "", None, None),
    ("healthy/sg-3451", "sglang", "config > distributed > weights > kv cache > graphs > http > warm-up", 30, (4, 4)),
    ("healthy/sg-4184", "sglang", "", None, None),
    ("healthy/sg-6854", "sglang", "warm-up", 18, None),
    ("healthy/sg-r2", "sglang", "config > distributed > weights > kv cache > graphs > http > warm-up", 160, (88, 88)),
    ("healthy/tr-r1", "trtllm", "config > distributed > weights > kv cache > kernels > graphs > http", 179, (681, 681)),
    ("healthy/vl-10116", "vllm", "config > weights > kv cache > http", 40, (4, 4)),
    (
        "healthy/vl-16141",
        "vllm",
        "config > distributed > weights > compile > kv cache > graphs > warm-up > http",
        59,
        (1, 1),
    ),
    (
        "healthy/vl-r9",
        "vllm",
        "config > distributed > weights > compile > kv cache > graphs > warm-up > http",
        152,
        (4, 4),
    ),
    ("recorded/llamacpp-start", "llamacpp", "config > weights > kv cache > loaded", 12, None),
    ("recorded/llamacpp-bad-flag", "llamacpp", "", None, None),
    ("recorded/llamacpp-model-path-missing", "llamacpp", "config > weights", None, None),
    ("recorded/llamacpp-not-a-gguf", "llamacpp", "config > weights", None, None),
    ("recorded/llamacpp-port-taken", "llamacpp", "config", None, None),
    (
        "recorded/sglang-0.5.23-cpu-start-then-scheduler-sigkill",
        "sglang",
        "config > distributed > weights > kv cache > http > warm-up",
        326,
        (1, 1),
    ),
    ("recorded/vllm-0.32-cpu-start", "vllm", VLLM_CPU, 100, (1, 1)),
    (
        "recorded/vllm-0.32-cpu-apiserver-sigkill",
        "vllm",
        VLLM_CPU,
        100,
        (1, 1),
    ),
    (
        "recorded/vllm-0.32-cpu-enginecore-sigkill",
        "vllm",
        VLLM_CPU,
        100,
        (1, 1),
    ),
    (
        "recorded/vllm-0.32-cpu-sigterm",
        "vllm",
        VLLM_CPU,
        100,
        (1, 1),
    ),
    ("recorded/vllm-0.32-cpu-model-path-missing", "vllm", "config", None, None),
    ("recorded/vllm-0.32-cpu-port-taken", "vllm", "config", None, None),
]


def lines_of(log: str, read_bytes: int) -> list[Line]:
    """The log in reads of that size, as they come over a link."""
    data, splitter, out = (CORPORA / f"{log}.log").read_bytes(), LineSplitter(), []
    for start in range(0, len(data), read_bytes):
        out += splitter.feed(data[start : start + read_bytes])
    return [*out, *splitter.end()]


def test_every_log_of_the_corpora_is_told_of() -> None:
    paths = [path for folder in ("healthy", "recorded") for path in (CORPORA / folder).glob("*.log")]
    there = {str(path.relative_to(CORPORA).with_suffix("")) for path in paths}
    # What the rest of the servers that came up show stands in their index: see tests/core/test_stages_healthy.py.
    index = (CORPORA / "healthy" / "index.jsonl").read_bytes().splitlines()
    there -= {f"healthy/{msgspec.json.decode(line)['id']}" for line in index} - {log for log, *_ in TRACES}
    assert {log for log, *_ in TRACES} <= there
    assert there - {log for log, *_ in TRACES} == set(), "a log without an expectation tests nothing"


@pytest.mark.parametrize("read_bytes", [1 << 20, 61])
@pytest.mark.parametrize(("log", "name", "stages", "ready", "weights"), TRACES, ids=[trace[0] for trace in TRACES])
def test_a_real_log_tells_its_stages_in_order(
    log: str, name: str, stages: str, ready: int | None, weights: tuple[int, int] | None, read_bytes: int
) -> None:
    reader = LineReader(loader.load(name))
    reads = [(line, reader.read(line.text)) for line in lines_of(log, read_bytes)]
    assert " > ".join(dict.fromkeys(read.stage for _, read in reads if read.stage)) == stages
    assert next((line.line_no for line, read in reads if read.ready), None) == ready
    counts = [(read.done, read.total) for _, read in reads if read.stage == "weights" and read.total]
    assert (counts[-1] if counts else None) == weights
    if ready is not None:
        first_stage = next((line.line_no for line, read in reads if read.stage), 0)
        assert first_stage < ready


@pytest.mark.parametrize("log", [trace[0] for trace in TRACES if trace[3]])
def test_the_ready_lines_number_is_the_files(log: str) -> None:
    """Found by the words of the engine's own source, not by our patterns."""
    raw = (CORPORA / f"{log}.log").read_bytes().split(b"\n")
    ready = next(trace[3] for trace in TRACES if trace[0] == log)
    assert ready is not None
    words = [b"The server is fired up", b"Application startup complete", b"listening on http"]
    assert any(word in raw[ready - 1] for word in words)
