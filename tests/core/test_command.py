"""What is learnt from launch commands, with flags as the engines' data give them."""

from __future__ import annotations

import json

import msgspec
import pytest

from supervisor.core import command as c
from supervisor.core import words as w
from supervisor.core.command import Learnt, Secret, learn
from supervisor.core.engine import Flags

SGLANG = Flags(
    model=("--model-path", "--model"),
    served_model_name=("--served-model-name",),
    tp=("--tp", "--tensor-parallel-size", "--tp-size"),
)
VLLM = Flags(
    model=("--model",),
    served_model_name=("--served-model-name",),
    tp=("--tensor-parallel-size", "-tp"),
    positional_after=("serve",),
)
TRTLLM = Flags(tp=("--tp_size",), positional_after=("trtllm-serve", "serve"))
TGI = Flags(port=("--port", "-p"), host=("--hostname",), model=("--model-id",))
LLAMA = Flags(model=("-m", "--model", "-hf"), served_model_name=("-a", "--alias"))
LMDEPLOY = Flags(port=("--server-port",), positional_after=("api_server",), tp=("--tp",))


def of(text: str, flags: Flags) -> Learnt:
    return learn(w.texts(w.split(text)), flags)


CASES = [
    (
        "~/ml-env/bin/python3 -m sglang.launch_server --model-path /shared/kimi --tp 8 --port 30001 --host 0.0.0.0",
        SGLANG,
        Learnt(model="/shared/kimi", tp=8, port=30001, host="0.0.0.0"),
    ),
    ("run --port=30000 --tp=8 --model-path=/m", SGLANG, Learnt(model="/m", tp=8, port=30000)),
    ("run --port 1 --port 2", SGLANG, Learnt(port=2)),
    ("run --port 1 --port=3 --host a --host b", SGLANG, Learnt(port=3, host="b")),
    ("run --model b --model-path a", SGLANG, Learnt(model="a")),
    ("run --model-path --port 1", SGLANG, Learnt(port=1)),
    ("run --model-path=", SGLANG, Learnt()),
    ("run --port", SGLANG, Learnt()),
    ("run", SGLANG, Learnt()),
    ("run --portage 3 --ports=4", SGLANG, Learnt()),
    ("vllm serve M -tp 8 --port 8001", VLLM, Learnt(model="M", tp=8, port=8001)),
    ("vllm serve --tensor_parallel_size 4 org/M", VLLM, Learnt(model="org/M", tp=4)),
    ("/opt/bin/vllm serve --port 8000 M", VLLM, Learnt(model="M", port=8000)),
    ("vllm serve --trust-remote-code M --port 1", VLLM, Learnt(model="M", port=1)),
    ("vllm serve --max-model-len 4096 M", VLLM, Learnt(model="M")),
    ("vllm serve --dtype=auto M", VLLM, Learnt(model="M")),
    ("vllm serve --dtype auto --trust-remote-code /m/M", VLLM, Learnt(model="/m/M")),
    ("vllm serve --dtype auto --trust-remote-code M", VLLM, Learnt()),  # either could be the model: no guess
    ("vllm serve --served-model-name a b --port 1", VLLM, Learnt(served_model_name="a", port=1)),
    ("vllm serve M --served-model-name a b", VLLM, Learnt(model="M", served_model_name="a")),
    ("vllm serve M --model N", VLLM, Learnt(model="N")),
    ("python -m vllm.entrypoints.openai.api_server --model M", VLLM, Learnt(model="M")),
    ("vllm serve", VLLM, Learnt()),
    ("trtllm-serve M --backend pytorch --tp_size 2", TRTLLM, Learnt(model="M", tp=2)),
    ("/usr/bin/trtllm-serve serve M --tp_size=2", TRTLLM, Learnt(model="M", tp=2)),
    ("text-generation-launcher -p 8080 --model-id M --hostname h", TGI, Learnt(port=8080, model="M", host="h")),
    ("llama-server -m f.gguf -a name", LLAMA, Learnt(model="f.gguf", served_model_name="name")),
    ("lmdeploy serve api_server M --server-port 23333 --tp 2", LMDEPLOY, Learnt(model="M", port=23333, tp=2)),
    (
        "docker run --rm --gpus all --ipc host -v /m:/m img python -m x --model-path /m/a --port 30000",
        SGLANG,
        Learnt(model="/m/a", port=30000),
    ),
    (
        "docker run -p 8000:30000 img --port 30000",
        Flags(port=("--port", "-p")),
        Learnt(port=30000, published=((8000, 30000),)),
    ),
    ("docker run -p 8000:80 img --model-id M", TGI, Learnt(model="M", published=((8000, 80),))),
    (
        "podman run -p127.0.0.1:81:80/tcp --publish=82:81 --publish '[::1]:83:82' -p 84:83/udp img",
        TGI,
        Learnt(published=((81, 80), (82, 81), (83, 82))),
    ),
    ("run --port $PORT --model-path ${M} --tp 2", SGLANG, Learnt(tp=2, unresolved=("--model-path", "--port"))),
    ("vllm serve $M --port 1", VLLM, Learnt(port=1)),
]


@pytest.mark.parametrize(("text", "flags", "learnt"), CASES)
def test_what_a_command_says(text: str, flags: Flags, learnt: Learnt) -> None:
    assert of(text, flags) == learnt


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("run --port x", "--port: 'x'"),
        ("run --port=8000x", "--port: '8000x'"),
        ("run --port 0", "--port: '0'"),
        ("run --port 65536", "--port: '65536'"),
        ("run --port 99999999999999999999", "--port: '99999999999999999999'"),
        ("run --port 8e3", "--port: '8e3'"),
        ("run --port ٣", "--port: '٣'"),
        ("run --tp two", "--tp: 'two'"),
        ("run --tp=0", "--tp: '0'"),
        ("run --port 8000:80", "--port: '8000:80'"),
    ],
)
def test_a_number_that_is_none_is_named(text: str, named: str) -> None:
    with pytest.raises(ValueError, match="is no") as caught:
        of(text, SGLANG)
    assert named in str(caught.value)


def test_only_the_value_that_wins_must_be_a_number() -> None:
    assert of("srun -p gpu text-generation-launcher -p 8080", TGI).port == 8080


def test_the_text_of_a_shell_is_read_too() -> None:
    text = "source env.sh && python -m sglang.launch_server --model-path '/m a' --port 31000 > log 2>&1"
    assert learn(["/bin/bash", "-lc", text], SGLANG) == Learnt(model="/m a", port=31000)
    assert learn(["docker", "run", "img", "bash", "-c", "x --port 7"], SGLANG).port == 7
    assert learn(["bash", "-c", "x --port 7 --model-path 'open"], SGLANG).port == 7
    assert learn(["bash", "-lc", "x --port $PORT"], SGLANG).unresolved == ("--port",)
    assert learn(["python", "-c", "x --port 7"], SGLANG).port is None


@pytest.mark.parametrize(
    ("text", "default", "port"),
    [
        ("run --port 5", 80, 5),
        ("run", 80, 80),
        ("run", None, None),
        ("docker run -p 8000:80 img", 80, 8000),
        ("docker run -p 8000:80 img", 3000, 8000),
        ("docker run -p 8000:80 -p 8001:81 img", 81, 8001),
        ("docker run -p 8000:80 -p 8001:81 img", 82, 82),
        ("docker run -p 8000:30000 img --port 30000", 80, 8000),
        ("docker run -p 8000:30000 img --port 5", 80, 5),
        ("docker run -p 0:80 img", 80, 80),
        ("docker run -p", 80, 80),
    ],
)
def test_the_port_as_the_node_sees_it(text: str, default: int | None, port: int | None) -> None:
    assert of(text, Flags()).node_port(default) == port


def test_a_key_is_known_and_never_shown() -> None:
    learnt = of("run --api-key abc123 --port 1", SGLANG)
    assert learnt.api_key == Secret("abc123") != Secret("other")
    assert learnt.api_key is not None and learnt.api_key.reveal() == "abc123"
    assert "abc123" not in repr(learnt) + str(learnt) + f"{learnt.api_key}"
    assert "***" in repr(learnt)
    with pytest.raises(TypeError):
        msgspec.json.encode(learnt)
    with pytest.raises(TypeError):
        json.dumps(learnt.api_key)
    assert of("run --api-key $KEY", SGLANG).api_key is None


PATTERNS = {
    "sglang": [r"\bsglang\.launch_server\b", r"\bsglang serve\b"],
    "vllm": [r"\bvllm serve\b", r"vllm\.entrypoints"],
}


@pytest.mark.parametrize(
    ("text", "found", "listed"),
    [
        ("python -m sglang.launch_server --tp 8", "sglang", ("sglang",)),
        ("sglang serve", "sglang", ("sglang",)),
        ("docker run vllm/vllm-openai vllm serve M", "vllm", ("vllm",)),
        ("nginx", None, ()),
        ("", None, ()),
        ("bash -c 'vllm serve M & sglang serve'", None, ("sglang", "vllm")),
    ],
)
def test_detection_is_exact_or_none(text: str, found: str | None, listed: tuple[str, ...]) -> None:
    argv = w.texts(w.split(text))
    assert c.detect(argv, PATTERNS) == found
    assert c.candidates(argv, PATTERNS) == listed


@pytest.mark.parametrize(
    ("text", "flag", "kept", "gone"),
    [
        ("run --a 1 --b 2", "--a", "run --b 2", "--a 1"),
        ("run --a=1 --b 2", "--a", "run --b 2", "--a=1"),
        ("run --a=1 m --b", "--a", "run m --b", "--a=1"),
        ("run --a --b 2", "--a", "run --b 2", "--a"),
        ("run --a 1 2 3 --b", "--a", "run --b", "--a 1 2 3"),
        ("run --a 1 --b --a=2 --c --a", "--a", "run --b --c", "--a 1 --a=2 --a"),
        ("run --a -1 --b", "--a", "run --b", "--a -1"),
        ("run --a -0.5", "--a", "run", "--a -0.5"),
        ("run --a $X ~/y --b", "--a", "run --b", "--a $X ~/y"),
        ("run --a=$X --b", "--a", "run --b", "--a=$X"),
        ("run --ab 1", "--a", "run --ab 1", ""),
        ("run --a '--b c'", "--a", "run '--b c'", "--a"),
        ("run '{\"--a\": 1}'", "--a", "run '{\"--a\": 1}'", ""),
        ("run --a '{\"x\": 1}' --b", "--a", "run --b", "--a '{\"x\": 1}'"),
    ],
)
def test_dropping_a_flag_takes_its_values_along(text: str, flag: str, kept: str, gone: str) -> None:
    assert c.without(w.split(text), flag) == (w.split(kept), w.split(gone) if gone else [])


def test_the_flags_of_a_command() -> None:
    assert c.flag_names(w.split("run --a 1 --b=2 -c -1 --a $X --d=$Y $Z")) == ["--a", "--b", "-c", "--d"]
    assert c.program(["/usr/bin/docker", "run"]) == "docker"
    assert c.program([]) == ""
