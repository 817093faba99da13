"""Secrets never show, whatever the command; what is no secret stays as it was."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.node.redact import HIDDEN, redact_argv, secret_flag, secret_name, secrets_of

FLAGS = ["--api-key", "--token", "--password", "--hf-token", "--secret", "--admin-api-key", "--api_key", "-hft"]
SECRET = st.text("abcdefghijkXYZ0123456789_./+", min_size=6, max_size=24).map(lambda text: "S" + text)
WORD = st.text("mnopq-/=. ", max_size=12)


@given(st.lists(WORD, max_size=4), st.sampled_from(FLAGS), SECRET, st.booleans(), st.lists(WORD, max_size=4))
def test_the_value_of_a_secret_option_never_shows(
    before: list[str], flag: str, secret: str, joined: bool, after: list[str]
) -> None:
    argv = [*before, *([f"{flag}={secret}"] if joined else [flag, secret]), *after]
    shown = redact_argv(argv)
    assert len(shown) == len(argv) and secret not in " ".join(shown)
    assert secret in secrets_of(argv, {})
    assert shown[len(before)] == (f"{flag}={HIDDEN}" if joined else flag)


@given(
    st.sampled_from(FLAGS), SECRET, st.sampled_from(["{f} {s}", "{f}={s}", "{f} '{s}'", '{f}="{s}"', "HF_TOKEN={s}"])
)
def test_nor_inside_of_a_shells_text(flag: str, secret: str, shape: str) -> None:
    text = "cd /models && " + shape.format(f=flag, s=secret) + " exec vllm serve m --max-tokens 5"
    (_, _, shown) = redact_argv(["/bin/bash", "-lc", text])
    assert secret not in shown and HIDDEN in shown
    assert shown.startswith("cd /models && ") and shown.endswith(" exec vllm serve m --max-tokens 5")


@given(st.lists(WORD, max_size=8))
def test_what_holds_no_secret_stays_as_it_was(argv: list[str]) -> None:
    assert redact_argv(argv) == argv


@given(st.lists(st.text(max_size=30), max_size=6))
def test_any_words_at_all(argv: list[str]) -> None:
    shown = redact_argv(argv)
    assert len(shown) == len(argv)
    assert redact_argv(shown) == shown  # hiding what is hidden changes nothing


@pytest.mark.parametrize(
    "command",
    [
        "vllm serve m --max-tokens 5 --tokenizer /m/t --tokenizer-mode auto --max-num-batched-tokens 8192",
        "llama-server --api-key-file /etc/key --ssl-key-file /etc/k.pem --keep 4",
        "python -m sglang.launch_server --tokenizer-path /m --num-continuous-decode-steps 2 --token-limit 9",
        "serve MAX_TOKENS=5 --url http://host:8000/health",
    ],
)
def test_harmless_look_alikes(command: str) -> None:
    assert redact_argv(shlex.split(command)) == shlex.split(command)


def test_other_places() -> None:
    assert redact_argv(["env", "HF_TOKEN=hf_abc", "docker", "run", "-e", "OPENAI_API_KEY=sk-1", "img"]) == [
        *["env", "HF_TOKEN=***", "docker", "run", "-e", "OPENAI_API_KEY=***", "img"]
    ]
    assert redact_argv(["--db", "postgres://ada:geheim@host/db"]) == ["--db", "postgres://ada:***@host/db"]
    assert redact_argv(["server --api-key geheim --port 1"]) == ["server --api-key *** --port 1"]  # a title
    assert redact_argv(["--api-key", "--port", "1"]) == ["--api-key", "--port", "1"]


def test_names() -> None:
    assert all(map(secret_name, ["HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "api_key", "MY_CREDENTIALS"]))
    assert not any(map(secret_name, ["PATH", "MAX_TOKENS", "TOKENIZERS_PARALLELISM", "KEYBOARD"]))
    assert secret_flag("--HF-Token") and not secret_flag("--max-tokens") and not secret_flag("api-key")
    assert sorted(secrets_of(["--token", "abcdef"], {"HF_TOKEN": "ghijkl", "PATH": "/bin", "A_KEY": "x"})) == [
        "abcdef",
        "ghijkl",
    ]
