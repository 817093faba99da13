"""Loads `engines/*.toml` into `core.engine.Engine`s, and finds the one that a command launches."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

import msgspec

from supervisor.core.engine import Engine

GENERIC = "generic"


def names() -> tuple[str, ...]:
    """The names of the engines that are known, sorted."""
    folder = files("supervisor.engines")
    return tuple(sorted(item.name.removesuffix(".toml") for item in folder.iterdir() if item.name.endswith(".toml")))


@cache
def load(name: str) -> Engine:
    """One engine. Raises `KeyError` for a name that is not known."""
    if name == GENERIC:
        return Engine(name=GENERIC, title="any server")  # its defaults are the rule; no file needs to be read
    if name not in names():
        raise KeyError(name)
    text = (files("supervisor.engines") / f"{name}.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), Engine)


def detect(argv: Sequence[str]) -> Engine | None:
    """The engine that this command launches, None where none or more than one fits."""
    joined = " ".join(argv)
    found = [engine for engine in map(load, names()) if any(re.search(pattern, joined) for pattern in engine.detect)]
    return found[0] if len(found) == 1 else None
