"""What is known of processes by name: engines, their workers, who adopts, who is protected, who is shared. Pure.

Names are data (`engines/*.toml`, `engines/known/holders.toml`); here stands only how they are compared. A name alone
never makes a process a left-over, and never one that may be ended.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from msgspec import Struct

from supervisor.core.gpu import HolderProcess

COMM_MAX = 15
"""The kernel cuts a comm there."""
_PYTHON = re.compile(r"python[\d.]*", re.ASCII)


class Shared(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A holder that serves several clients, and how it gives its memory back."""

    name: str
    pattern: str
    under: str | None = None
    """Only while a process of this title is above it."""
    kill: str = "never"
    """`named`: its pid may be named to end it; `never`."""
    advice: str


class Known(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that is known by name. `engines`: title for people → patterns."""

    engines: dict[str, tuple[str, ...]] = {}
    workers: tuple[str, ...] = ()
    generic_comms: tuple[str, ...] = ()
    adopters: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    shared: tuple[Shared, ...] = ()

    def engine_of(self, process: HolderProcess) -> str | None:
        """The engine that a process belongs to by its title, for people; None where no title tells it."""
        comm = "" if process.title and process.comm in self.generic_comms else process.comm
        for title, patterns in self.engines.items():
            if _any(patterns, process.title) or _any(patterns, comm):
                return title
        return None

    def is_worker(self, process: HolderProcess) -> bool:
        """Whether something must have created it: a rank, a spawned child, a tracker."""
        return _any(self.workers, process.title) or _any(self.workers, process.comm)

    def is_adopter(self, process: HolderProcess) -> bool:
        """Whether it takes in children that it did not create: an init, a session, a shell."""
        return _named(self.adopters, process)

    def is_protected(self, process: HolderProcess) -> bool:
        """Whether it is of the node, the desktop or a monitor."""
        return _named(self.protected, process)

    def shared_of(self, process: HolderProcess, above: Iterable[HolderProcess]) -> Shared | None:
        """The entry that it is a shared holder by. `above`: its ancestors."""
        for entry in self.shared:
            if not _any((entry.pattern,), process.title or process.comm):
                continue
            if entry.under is None or any(_any((entry.under,), item.title or item.comm) for item in above):
                return entry
        return None


def program(title: str) -> str:
    """The name of the program that a command line runs: of `python -m NAME` and `python DIR/NAME` too."""
    words = title.split()
    if not words:
        return ""
    name = words[0].rpartition("/")[2].lstrip("-").rstrip(":")
    if not _PYTHON.fullmatch(name):
        return name
    for number, word in enumerate(words[1:], start=1):
        if word == "-m" and number + 1 < len(words):
            return words[number + 1]
        if word == "-c":
            return name
        if not word.startswith("-"):
            return word.rpartition("/")[2].removesuffix(".py")
    return name


def _named(names: tuple[str, ...], process: HolderProcess) -> bool:
    return _is_named(names, process.title, process.comm)


@lru_cache(maxsize=16384)
def _is_named(names: tuple[str, ...], title: str, comm: str) -> bool:
    if title and program(title) in names:
        return True
    return bool(comm) and any(comm == name[:COMM_MAX] for name in names)


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


@lru_cache(maxsize=16384)
def _any(patterns: tuple[str, ...], text: str) -> bool:
    """Looks come each second, and titles stay."""
    return bool(text) and any(_compiled(pattern).search(text) for pattern in patterns)
