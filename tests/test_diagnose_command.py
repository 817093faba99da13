"""The diagnose command: from any log to a report, fast, offline, with nothing of the log shown raw."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from supervisor.adapters import log_file
from supervisor.cli import main
from supervisor.core.families import FAMILIES
from supervisor.headless.diagnosis_text import masked
from tests import schema
from tests.test_project import loaded_by

CHECKOUT = Path(__file__).resolve().parents[1]
CORPORA = CHECKOUT / "tests" / "corpora"
HEALTHY = sorted((CORPORA / "healthy").glob("*.log"))
SERVED = "vllm-0.32-cpu-start"

# A launch that dies as vLLM's do: the cause in the middle, noise at the end.
FAILED = """\
INFO 11-30 03:15:20 [api_server.py:1] vLLM API server version 0.9.0
(EngineCore_DP0 pid=41) INFO 11-30 03:15:24 [core.py:133] Initializing a V1 LLM engine (v0.9.0) with config: model='m'
(EngineCore_DP0 pid=41) ERROR 11-30 03:15:26 [core.py:396] EngineCore failed to start.
(EngineCore_DP0 pid=41) ERROR 11-30 03:15:26 [core.py:396] Traceback (most recent call last):
(EngineCore_DP0 pid=41) ERROR 11-30 03:15:26 [core.py:396]   File "/v/vllm/v1/engine/core.py", line 387, in run
(EngineCore_DP0 pid=41) ERROR 11-30 03:15:26 [core.py:396] torch.OutOfMemoryError: CUDA out of memory. \
Tried to allocate 896.00 MiB. GPU 0 has a total capacity of 23.55 GiB of which 512.00 MiB is free.
(APIServer pid=40) Traceback (most recent call last):
(APIServer pid=40)   File "/usr/bin/vllm", line 8, in <module>
(APIServer pid=40) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
"""
ROOT = 6


@pytest.fixture
def failed(tmp_path: Path) -> Path:
    path = tmp_path / "server.log"
    path.write_text(FAILED)
    return path


def told(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> list[dict[str, Any]]:
    """The JSON objects of a call."""
    assert main(["diagnose", *words, "--json"]) == code
    return schema.stream(capsys.readouterr().out)


def finding_of(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    documents = told(capsys, *words)
    finding: dict[str, Any] = next(item for item in documents if item["kind"] == "finding")
    assert documents[-1]["finding"] == {key: value for key, value in finding.items() if key != "kind"} | {
        key: documents[-1]["finding"][key] for key in documents[-1]["finding"] if key == "kind"
    }
    return finding


# ------------------------------------------------------------------------------------------------ what it says


def test_the_cause_its_line_and_its_number_are_named(failed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finding = finding_of(capsys, str(failed))
    assert (finding["category"], finding["line_no"]) == ("memory", ROOT)
    assert "CUDA out of memory" in finding["line"] and finding["advice"]
    assert FAILED.splitlines()[finding["line_no"] - 1] == finding["line"]


def test_the_text_has_all_of_it_in_words(failed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(failed)]) == 0
    text = capsys.readouterr().out
    assert FAMILIES["memory"] in text and f"line {ROOT}:" in text
    for words in ("cause:", "confidence:", "advice:", "read as a log of vLLM; 9 lines"):
        assert words in text
    assert "\x1b" not in text, "no colour where no terminal is"


@pytest.mark.parametrize("path", HEALTHY, ids=[path.stem for path in HEALTHY])
def test_a_healthy_servers_log_gives_no_finding(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (summary,) = told(capsys, str(path))
    assert summary["finding"] is None
    assert main(["diagnose", str(path)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("not known: " if summary["candidates"] else "no failure: ") and "cause:" not in text


def test_a_log_that_tells_nothing_says_so_with_its_best_candidates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.log"
    path.write_text("starting\nwarning: could not find the frobnicator\nsomething failed to start\nbye\n")
    summary = told(capsys, str(path))[-1]
    assert summary["finding"] is None
    assert [item["line_no"] for item in summary["candidates"]]
    assert all({"line", "line_no", "category", "cause"} <= item.keys() for item in summary["candidates"])


@pytest.mark.parametrize("data", [b"", b"\n", b"\0\0\0", b"nothing of note"])
def test_an_empty_log_is_no_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(data)
    (summary,) = told(capsys, str(path))
    assert (summary["finding"], summary["candidates"]) == (None, [])


# ------------------------------------------------------------------------------------------------ how it comes


def wrapped(kind: str) -> bytes:
    lines = FAILED.splitlines()
    match kind:
        case "gzip":
            return gzip.compress(FAILED.encode())
        case "utf-16":
            return FAILED.replace("\n", "\r\n").encode("utf-16")
        case "quoted":
            return "".join(f"> {line}\n" for line in lines).encode()
        case "fenced":
            return f"It fails.\n\n```\n{FAILED}```\n".encode()
        case "compose":
            return "".join(f"vllm-1  | {line}\n" for line in lines).encode()
        case "kubernetes":
            return "".join(f"2025-04-05T00:01:{n:02}.000000000Z {line}\n" for n, line in enumerate(lines)).encode()
        case "newest first":
            stamped = [f"ERROR 2025-04-05T00:01:{n:02}Z {line}\n" for n, line in enumerate(lines)]
            return "".join(reversed(stamped)).encode()
        case "bars":
            bar = "".join(f"\rLoading: {n}%|   | {n}/100 [00:00]" for n in range(100)).encode()
            return bar + b"\n" + FAILED.encode()
        case "no newline":
            return "\n".join(lines[: ROOT + 1]).encode()
        case _:
            return FAILED.replace("torch", "t\u00f6rch \ud83d").encode("utf-8", "surrogatepass")


@pytest.mark.parametrize(
    ("kind", "line_no"),
    [
        ("gzip", ROOT),
        ("utf-16", ROOT),
        ("quoted", ROOT),
        ("fenced", ROOT + 3),
        ("compose", ROOT),
        ("kubernetes", ROOT),
        ("newest first", 10 - ROOT),
        ("bars", ROOT + 1),
        ("no newline", ROOT),
        ("broken utf-8", ROOT),
    ],
)
@pytest.mark.parametrize("by_stdin", [False, True])
def test_however_a_log_is_wrapped_its_line_is_found(
    kind: str,
    line_no: int,
    by_stdin: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(wrapped(kind))
    if by_stdin:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    finding = finding_of(capsys, "-" if by_stdin else str(path))
    assert (finding["category"], finding["line_no"]) == ("memory", line_no)


def test_the_engine_can_be_said(failed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(failed), "--engine", "sglang"]) == 0
    assert "read as a log of SGLang (--engine)" in capsys.readouterr().out
    assert main(["diagnose", str(failed), "--engine", "generic"]) == 0
    assert "CUDA out of memory" in capsys.readouterr().out, "what all engines have in common is known without one"


@pytest.mark.parametrize(
    ("words", "told_words"),
    [
        ([], "required: FILE|-"),
        (["/no/such.log"], "/no/such.log: cannot be read: No such file or directory"),
        (["/"], "/: cannot be read: Is a directory"),
        ([""], "is empty"),
        (["-", "--engine", "vlm"], "did you mean vllm?"),
        (["x", "--frobnicate"], "unrecognized arguments"),
    ],
)
def test_a_wrong_call_is_told_with_code_2(
    words: list[str], told_words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnose", *words]) == 2
    out = capsys.readouterr()
    assert told_words in out.err and out.out == ""


def test_a_terminal_on_standard_input_is_no_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Terminal(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal(io.BytesIO()))
    assert main(["diagnose", "-"]) == 2
    assert "give a FILE" in capsys.readouterr().err


def test_a_cut_gzip_is_read_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(FAILED.encode())[:-8])
    documents = told(capsys, str(path))
    assert documents[0]["line_no"] == ROOT
    assert "ends in the middle" in documents[1]["text"]


# ------------------------------------------------------------------------------------------------ nothing raw

NASTY = "\x1b]0;pwned\x07\x1b[2J\u202egnp.exe\x00\x9b31m"


def test_nothing_of_a_log_drives_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.log"
    path.write_text(FAILED.replace("CUDA out of memory", f"CUDA out of memory {NASTY}{NASTY} x"))
    for words in ([], ["--json"]):
        assert main(["diagnose", str(path), *words]) == 0
        out = capsys.readouterr().out
        assert "memory" in out
        assert not [letter for letter in out if not letter.isprintable() and letter != "\n"], repr(out)


@pytest.mark.parametrize(
    "secret",
    [
        "--api-key s3cr3t-value",
        "--hf-token=s3cr3t-value",
        "HF_TOKEN=s3cr3t-value",
        "api_key='s3cr3t-value'",
        '"api_key": "s3cr3t-value"',
        "Authorization: Bearer s3cr3t-value",
        "https://me:s3cr3t-value@proxy/",
        "hf_s3cr3tvalueABCDEFGHIJKL",
        "sk-s3cr3tvalue0123456789",
    ],
)
def test_no_secret_of_a_log_is_shown(secret: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.log"
    path.write_text(FAILED.replace("CUDA out of memory.", f"CUDA out of memory. {secret} "))
    for words in ([], ["--json"]):
        assert main(["diagnose", str(path), *words]) == 0
        out = capsys.readouterr().out
        assert "***" in out and "s3cr3t" not in out


@pytest.mark.parametrize(
    "text", ["max_tokens=4096", "tokenizer='m'", "token usage: 0.5", "KeyError: 'model.layers.0.w'", "[rank0]: x"]
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert masked(text) == text


# ------------------------------------------------------------------------------------------------ fast and alone


def test_it_loads_neither_console_nor_ssh_nor_http(failed: Path) -> None:
    code, loaded = loaded_by("diagnose", str(failed), "--json")
    assert code == 0
    assert not loaded & {"textual", "rich", "asyncssh", "httpx", "httpcore", "psutil", "pynvml", "cryptography"}


def test_cat_into_it_works_and_a_reader_that_goes_away_is_no_traceback(failed: Path) -> None:
    command = [sys.executable, "-m", "supervisor.cli", "diagnose", "-"]
    done = subprocess.run(command, input=FAILED, capture_output=True, text=True, cwd=CHECKOUT, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"line {ROOT}:" in done.stdout
    reader, writer = os.pipe()
    os.close(reader)
    gone = subprocess.run(
        command, input=FAILED, stdout=writer, stderr=subprocess.PIPE, text=True, cwd=CHECKOUT, timeout=60, check=False
    )
    os.close(writer)
    assert "Traceback" not in gone.stderr


def test_the_help_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "diagnose FILE|-" in capsys.readouterr().out


def test_a_large_log_is_read_quickly_and_in_little_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A server that served for days and died; the floor is far below what a free machine does (20 MB/s and more)."""
    path = tmp_path / "x.log"
    line = (
        "INFO 11-30 04:{:02}:{:02} [loggers.py:127] Engine 000: Avg prompt throughput: {}.3 tokens/s, Running: 9 reqs\n"
    )
    block = "".join(line.format(n // 60 % 60, n % 60, n) for n in range(3600)).encode()
    with path.open("wb") as stream:
        stream.write(FAILED.split("(EngineCore_DP0 pid=41) ERROR")[0].encode())
        while stream.tell() < 40 << 20:
            stream.write(block)
        stream.write(FAILED.encode())
    began = time.perf_counter()
    finding = finding_of(capsys, str(path))
    assert path.stat().st_size / (time.perf_counter() - began) > 5e6
    assert finding["category"] == "memory"
    with path.open("rb") as stream:
        assert stream.read().split(b"\n")[finding["line_no"] - 1].decode() == finding["line"]


def test_a_large_log_newest_first_keeps_its_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"2025-04-05T00:00:00.{n:06}Z INFO engine step {n}" for n in range(20_000)]
    lines += [f"2025-04-05T00:01:{n:02}.000000Z {text}" for n, text in enumerate(FAILED.splitlines())]
    path = tmp_path / "x.log"
    path.write_text("\n".join(reversed(lines)) + "\n")
    assert path.stat().st_size > 2 * log_file.BLOCK_BYTES
    documents = told(capsys, str(path))
    assert documents[0]["line_no"] == 10 - ROOT
    assert "newest line first" in json.dumps(documents)
