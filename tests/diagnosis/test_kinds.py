"""Kinds of failures that the collected logs do not have: excerpts in our own arrangement, each with the lines and the
families that an expert accepts. They were labelled before the diagnosis first saw them.
"""

from __future__ import annotations

import json

import pytest
from msgspec import Struct, convert

from supervisor.core.diagnosis.unwrap import unwrap
from supervisor.core.families import FAMILIES
from supervisor.engines import loader
from tests.diagnosis import corpus


class Kind(Struct, frozen=True, kw_only=True):
    """One excerpt, and what is right about it."""

    id: str
    engine: str
    families: tuple[str, ...]
    root_lines: tuple[str, ...]
    log: str


LINES = (corpus.FOLDER / "kinds.jsonl").read_text(encoding="utf-8").splitlines()
KINDS = [convert(json.loads(line), Kind) for line in LINES]
DEATHS = {
    "sglang": "Received sigquit from a child process. It usually means the child failed.\nKilled",
    "vllm": "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
    "llamacpp": "main: exiting due to model loading error",
    "trtllm": "RuntimeError: Executor worker returned error",
    "tgi": "Error: ShardCannotStart",
    "lmdeploy": "Aborted (core dumped)",
}
"""How each engine tells that it ends, and nothing more."""
SAID_OF_ITSELF = {
    "sglang": (
        "[2026-07-09 10:11:30] server_args=ServerArgs(model_path='/m', tokenizer_mode='auto', trust_remote_code=True, "
        "log_level='error', speculative_draft_model_path=None, disable_custom_all_reduce=False, watchdog_timeout=300, "
        "mooncake_ib_device='mlx5_0', crash_dump_folder=None, error_rate=0, quantization='unknown quantization')",
        "python3 -m sglang.launch_server --model-path /m --trust-remote-code --speculative-draft-model-path /d",
        "                        [--trust-remote-code] [--speculative-draft-model-path PATH] [--kill-on-error]",
    ),
    "vllm": (
        "args: Namespace(subparser='serve', disable_custom_all_reduce=False, uvicorn_log_level='critical', "
        "trust_remote_code=True, error=None)",
        "non-default args: {'model': '/m', 'trust_remote_code': True, 'disable_custom_all_reduce': True}",
        "Initializing a V1 LLM engine (v0.15.1) with config: model='/m', trust_remote_code=True, quantization=fp8, "
        "decoding_config=DecodingConfig(backend='auto', disable_fallback=False)",
        "+ vllm serve /m --trust-remote-code --disable-custom-all-reduce --max-model-len 4096",
        "usage: api_server.py [-h] [--trust-remote-code] [--uvicorn-log-level {critical,debug,error}]",
    ),
    "llamacpp": (
        "load_tensors: tensor 'token_embd.weight' (q4_K) (and 98 others) cannot be used with preferred buffer type CPU",
        "ggml_vulkan: Failed to allocate pinned memory.",
        "llama_model_loader: - kv  20: tokenizer.chat_template str = {% if error %}{{ raise_exception('failed') }}",
    ),
    "trtllm": (
        "model='/m' tokenizer=None trust_remote_code=True kv_cache_config=KvCacheConfig(free_gpu_memory_fraction=0.9)",
        "[TensorRT-LLM][WARNING] [json.exception.type_error.302] type must be string, but is null",
    ),
    "tgi": (
        '2024-03-06T17:53:18.335714Z  INFO text_generation_launcher: Args { model_id: "/m", trust_remote_code: true, '
        "disable_custom_kernels: false, cuda_memory_fraction: 1.0 }",
    ),
    "lmdeploy": (
        "input backend=turbomind, backend_config=TurbomindEngineConfig(model_name='m', trust_remote_code=True, tp=2)",
    ),
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.id)
def test_the_line_and_the_family_are_named(kind: Kind) -> None:
    done = corpus.diagnose(loader.load(kind.engine), loader.common(), kind.log.encode())
    assert done.finding is not None, (done.reason, done.candidates)
    line = done.finding.line
    assert any(root in line for root in kind.root_lines), f"{line!r}\n{kind.root_lines!r}"
    assert done.finding.category in kind.families, (done.finding.category, line)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.id)
def test_each_excerpt_has_the_lines_that_are_right(kind: Kind) -> None:
    assert kind.root_lines
    assert set(kind.families) <= set(FAMILIES)
    assert all(any(root in line for line in kind.log.splitlines()) for root in kind.root_lines)


def test_every_engine_and_nearly_every_family_has_kinds() -> None:
    assert {kind.engine for kind in KINDS} == set(DEATHS)
    seen = {family for kind in KINDS for family in kind.families}
    assert set(FAMILIES) - seen <= {"health", "wrong_output", "unknown"}


@pytest.mark.parametrize(
    ("engine", "line"), [(engine, line) for engine, lines in SAID_OF_ITSELF.items() for line in lines]
)
def test_what_a_server_says_of_its_own_arguments_is_no_cause_of_its_death(engine: str, line: str) -> None:
    log = f"{line}\n{DEATHS[engine]}".encode()
    done = corpus.diagnose(loader.load(engine), loader.common(), log)
    assert done.finding is None
    assert not [item for item in done.candidates if item.text in line]


def test_the_bare_message_of_a_logger_makes_way_for_its_traceback() -> None:
    log = (
        b"ERROR 12-05 20:24:46 engine.py:366] CUDA error: uncorrectable ECC error encountered\n"
        b"ERROR 12-05 20:24:46 engine.py:366] Traceback (most recent call last):\n"
        b'ERROR 12-05 20:24:46 engine.py:366]   File "/x/worker.py", line 114, in init_device\n'
        b"ERROR 12-05 20:24:46 engine.py:366] RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
    )
    done = corpus.diagnose(loader.load("vllm"), loader.common(), log)
    assert done.finding is not None
    assert done.finding.line_no == 4


def test_an_exception_that_says_nothing_is_told_by_its_next_line() -> None:
    log = (
        b"[2026-01-01 10:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        b'  File "/x/scheduler.py", line 9, in __init__\n'
        b"    self.model = build()\n"
        b"RuntimeError: \n"
        b"The widget of layer seven does not turn\n"
        b"\n"
        b"[2026-01-01 10:00:01] Received sigquit from a child process. It usually means the child failed.\n"
    )
    done = corpus.diagnose(loader.load("sglang"), loader.common(), log)
    assert done.finding is not None
    assert done.finding.line == "The widget of layer seven does not turn"


def test_what_of_an_uncaught_exception_is_better_than_nothing() -> None:
    log = b"terminate called after throwing an instance of 'foo::Bar'\n  what():  the widget is gone\nAborted\n"
    done = corpus.diagnose(loader.load("llamacpp"), loader.common(), log)
    assert done.finding is not None
    assert "the widget is gone" in done.finding.line


@pytest.mark.parametrize(
    ("line", "body", "speaker"),
    [
        ("[12-16 14:27:08] Rank 0 scheduler is dead.", "Rank 0 scheduler is dead.", ""),
        ("[llamacpp-router stdout] [52717] 0.00.910.211 E clip_init: x", "0.00.910.211 E clip_init: x", ""),
        ("2026-03-25T19:17:07+02:00 gemma3.server[16376]: CUDA error: x", "CUDA error: x", "gemma3.server[16376]"),
        ("2026-03-25T19:17:07+0200 node1 vllm[8052]: CUDA error: x", "CUDA error: x", "vllm[8052]"),
    ],
)
def test_more_of_what_wraps_a_line_comes_off(line: str, body: str, speaker: str) -> None:
    said = unwrap(line)
    assert (said.body, said.speaker) == (body, speaker)
