"""Profiles and command lines for the tests that drive the whole program."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests.real.ports import free_port

CHECKOUT = Path(__file__).resolve().parents[2]
SUPERVISOR = (sys.executable, "-m", "supervisor.cli")
SIMULATED = CHECKOUT / "supervisor" / "demo" / "simulated_engine.py"


class Result(Struct, frozen=True):
    """What one command line came to."""

    code: int
    out: str
    err: str
    ended_at: float
    """`time.monotonic()` when its process was seen to be gone."""

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Its JSON lines."""
        return [json.loads(line) for line in self.out.splitlines() if line.strip()]

    @property
    def summary(self) -> dict[str, Any]:
        """The last of them."""
        last = self.lines[-1]
        assert last["kind"] == "summary", last
        return last

    def phases(self) -> list[str]:
        """The phases entered, in order."""
        return [line["to"] for line in self.lines if line["kind"] == "phase"]


def run(*words: str, env: Mapping[str, str] | None = None, timeout_s: float = 90.0) -> Result:
    """Run the real program to its end."""
    done = subprocess.run(
        [*SUPERVISOR, *words],
        capture_output=True,
        text=True,
        env={**os.environ, **(env or {})},
        timeout=timeout_s,
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr, time.monotonic())


def simulated(engine: str, port: int, *more: str) -> list[str]:
    """The command of a simulated engine, quick unless told otherwise."""
    return [sys.executable, str(SIMULATED), engine, "--model-path", "sim/tiny", "--port", str(port), *more]


class Profile(Struct, frozen=True):
    """A profile file of a test, with what the test needs to know of it."""

    path: Path
    name: str
    port: int
    state_dir: Path

    def __str__(self) -> str:
        return str(self.path)


def profile(
    folder: Path, command: Sequence[str], *, port: int, host: str = "local", engine: str = "", more: str = ""
) -> Profile:
    """Write a profile with a name of its own."""
    name = "t" + secrets.token_hex(4)
    words = json.dumps(list(command), ensure_ascii=False)
    text = [f'name = "{name}"', f'engine = "{engine}"' if engine else ""]
    text += ["[node]", f'host = "{host}"', f'state_dir = "{folder / "state"}"', f'python = "{sys.executable}"']
    text += ["[launch]", f"command = {words}", f'cwd = "{folder}"', more]
    path = folder / f"{name}.toml"
    path.write_text("\n".join(text) + "\n", encoding="utf-8")
    return Profile(path, name, port, folder / "state")


def simulated_profile(folder: Path, engine: str, *flags: str, host: str = "local", more: str = "") -> Profile:
    """A profile that launches a simulated engine on a free port."""
    port = free_port()
    return profile(folder, simulated(engine, port, *flags), port=port, host=host, engine=engine, more=more)
