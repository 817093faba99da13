"""What the commands about nodes share: which node, one connection to it, and lines of text or of JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import IO

from msgspec import Struct

from supervisor.adapters.base import Clock, Link
from supervisor.core import events as ev
from supervisor.core.lines import sanitise
from supervisor.core.wait import Decision
from supervisor.headless import jsonl
from supervisor.supervise.connection import Connection, OnLink


class Node(Struct, frozen=True, kw_only=True):
    """A node as it was named on the command line, and how it is reached."""

    name: str
    make_link: Callable[[], Link]
    python: str | None = None
    state_dir: str | None = None


def connection_to(node: Node, clock: Clock, on_link: OnLink = lambda _state, _why: None) -> Connection:
    """A connection that is not open yet."""
    return Connection(node.make_link, clock=clock, on_link=on_link, python=node.python, state_dir=node.state_dir)


class Out:
    """Standard output of such a command: lines of text or of JSON."""

    def __init__(self, stream: IO[str], *, as_json: bool) -> None:
        self.stream = stream
        self.as_json = as_json

    def text(self, line: str = "") -> None:
        """A line for people; nothing where JSON is wanted."""
        if not self.as_json:
            self._write(line)

    def event(self, event: ev.Event) -> None:
        """A line of JSON; nothing where text is wanted."""
        if self.as_json:
            self._write(jsonl.to_line(event))

    def summary(self, at: float, decision: Decision, release: str = "") -> None:
        """The last line of the JSON. `release`: what came of the proof, where there was one to give."""
        proof = (ev.Evidence(kind="release", at=at, text=sanitise(release)),) if release else ()
        self.event(
            ev.Summary(
                at=at,
                verdict=decision.outcome,
                exit_code=decision.exit_code,
                phase=ev.Phase.IDLE,
                reason=sanitise(decision.reason),
                evidence=proof,
            )
        )

    def _write(self, line: str) -> None:
        self.stream.write(line + "\n")
        self.stream.flush()
