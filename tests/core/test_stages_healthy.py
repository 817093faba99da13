"""The stages and ready lines of servers that came up, as people have labelled them, found by the engines' rules.

`corpora/healthy/index.jsonl` tells which stages each log shows. A label is for a whole log, so nothing is asked of the
place where a stage was found. Labels were made by hand, and some tell of what their log does not show (three of one
GPU are labelled `distributed`, one without a ready line `ready`): they count as missed all the same.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from supervisor.core.lines import LineSplitter
from supervisor.core.progress import LineReader
from supervisor.engines import loader

HEALTHY = Path(__file__).parents[1] / "corpora" / "healthy"
ENGINES = {"sg": "sglang", "vl": "vllm", "lc": "llamacpp", "tr": "trtllm", "tg": "tgi", "lm": "lmdeploy"}
STAGES = {
    "args": {"config"},
    "distributed": {"distributed"},
    "weights": {"weights"},
    "kv_cache": {"kv cache"},
    "graph_capture": {"graphs"},
    "compile": {"compile", "kernels"},
    "warmup": {"warm-up", "kernels"},
}
"""A label, and our names for it."""
INDEX = [msgspec.json.decode(line) for line in (HEALTHY / "index.jsonl").read_bytes().splitlines()]


def told(entry: dict[str, Any]) -> tuple[set[str], list[str]]:
    """The labels whose stages were found, and the ready lines."""
    engine = loader.load(ENGINES[entry["engine"]])
    reader, splitter = LineReader(engine), LineSplitter()
    lines = [*splitter.feed((HEALTHY / f"{entry['id']}.log").read_bytes()), *splitter.end()]
    serving = [re.compile(rule.pattern) for rule in engine.serving_lines]
    reads = [(line.text, reader.read(line.text)) for line in lines]
    names = {read.stage for _, read in reads}
    out = {label for label, ours in STAGES.items() if ours & names}
    ready = [text for text, read in reads if read.ready]
    if ready:
        out.add("ready")
    if any(pattern.search(text) for text, _ in reads for pattern in serving):
        out.add("serving")
    return out, ready


def wanted() -> list[dict[str, Any]]:
    return [entry for entry in INDEX if ENGINES[entry["engine"]] in loader.names()]


def test_nearly_all_labelled_stages_and_ready_lines_are_found() -> None:
    labelled = found = ready_lines = ready_found = 0
    missing: list[str] = []
    for entry in wanted():
        seen, ready = told(entry)
        labels = set(entry["stages"])
        labelled += len(labels)
        found += len(labels & seen)
        missing += [f"{entry['id']} {label}" for label in sorted(labels - seen)]
        if entry["ready_line"] is not None:
            words = re.sub(r"\x1b\[[\d;]*m", "", entry["ready_line"]).strip()
            ready_lines += 1
            if any(words in text for text in ready):
                ready_found += 1
            else:
                missing.append(f"{entry['id']} ready line")
    text = f"stages {found} of {labelled}, ready lines {ready_found} of {ready_lines}; missing: {', '.join(missing)}"
    print(text)
    assert found >= 0.95 * labelled, text
    assert ready_found >= 0.95 * ready_lines, text


@pytest.mark.parametrize("name", ["sglang", "vllm", "llamacpp", "trtllm"])
def test_the_load_is_made_of_the_engines_stages(name: str) -> None:
    """An estimate adds up what is left by these names: one that no rule gives would be left for ever."""
    engine = loader.load(name)
    names = [part.stage for part in engine.load]
    assert len(set(names)) == len(names)
    assert set(names) == {stage.name for stage in engine.stages}
    assert all(part.typical_s >= 0 for part in engine.load) and sum(part.typical_s for part in engine.load) > 0


def test_a_log_without_a_ready_line_tells_none() -> None:
    """The tails of serving logs: nothing in them is taken for a server that has just come up."""
    for name in ("sg-2795", "sg-3868", "sg-4184", "vl-17514", "vl-8881"):
        entry = next(item for item in INDEX if item["id"] == name)
        assert told(entry)[1] == []
