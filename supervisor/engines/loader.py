"""Loads `engines/*.toml` into `core.engine.Engine`s, and finds the one that a command launches."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from supervisor.core.engine import Engine, Line, Stage

if TYPE_CHECKING:
    from supervisor.core.known import Known

GENERIC = "generic"
_FOLDER = Path(__file__).parent


def names() -> tuple[str, ...]:
    """The names of the engines that are known, sorted."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


@cache
def load(name: str) -> Engine:
    """One engine. Raises `KeyError` for a name that is not known, `ValueError` for a file that is wrong."""
    if name == GENERIC:
        return Engine(name=GENERIC, title="any server")  # its defaults are the rule; no file needs to be read
    if name not in names():
        raise KeyError(name)
    import tomllib  # late: a wait for a plain URL needs no file

    text = (_FOLDER / f"{name}.toml").read_text(encoding="utf-8")
    engine = msgspec.convert(tomllib.loads(text), Engine)
    check(engine)
    return engine


def check(engine: Engine) -> None:
    """What the types do not say. Raises `ValueError`."""
    rules: tuple[Stage | Line, ...] = (*engine.stages, *engine.ready_lines, *engine.fatal_lines)
    for rule in rules:
        if not rule.literals or not all(word and word.isascii() and word.isprintable() for word in rule.literals):
            raise ValueError(
                f"{engine.name}: the rule {rule.pattern!r} needs `literals`: printable ASCII words, "
                "of which every line that it fits has at least one"
            )


@cache
def known_holders() -> Known:
    """Who holds GPU memory, by name: the engines' titles, and `known/holders.toml`, which is no engine."""
    import tomllib

    from supervisor.core.known import Known

    raw = tomllib.loads((_FOLDER / "known" / "holders.toml").read_text(encoding="utf-8"))
    raw["engines"] = {load(name).title: load(name).titles for name in names()}
    return msgspec.convert(raw, Known)


def detect(argv: Sequence[str]) -> Engine | None:
    """The engine that this command launches, None where none or more than one fits."""
    from supervisor.core import command  # late: a wait for a plain URL has no command

    name = command.detect(argv, {name: load(name).detect for name in names()})
    return None if name is None else load(name)
