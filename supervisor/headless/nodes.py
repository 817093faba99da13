"""What the commands about nodes share: which node, one connection to it, and its looks made safe to show.

Titles are bytes of somebody else's processes: nothing of them may drive a terminal, so they are made safe here, once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import IO

from msgspec import Struct
from msgspec.structs import replace

from supervisor.adapters.base import Clock, Link
from supervisor.core import events as ev
from supervisor.core.gpu import Gpu, Snapshot
from supervisor.core.gpu_events import GpuEvent, Holders
from supervisor.core.holder import Holder
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


def safe(snapshot: Snapshot) -> Snapshot:
    """The same look with every text of the node made safe to show."""
    return replace(
        snapshot,
        driver=replace(snapshot.driver, why=sanitise(snapshot.driver.why)),
        gpus=tuple(
            replace(gpu, name=sanitise(gpu.name), why=sanitise(gpu.why), bus_id=sanitise(gpu.bus_id))
            for gpu in snapshot.gpus
        ),
        processes=tuple(
            replace(item, title=sanitise(item.title), comm=sanitise(item.comm), user=sanitise(item.user))
            for item in snapshot.processes
        ),
        past=tuple(replace(item, title=sanitise(item.title)) for item in snapshot.past),
    )


def gpu_event(node: Node, snapshot: Snapshot, at: float) -> GpuEvent:
    """The look at the GPUs as an event; node times become the operator's."""
    offset_s = snapshot.at - at
    sampled_at = None if snapshot.sampled_at is None else snapshot.sampled_at - offset_s
    return GpuEvent(
        at=at,
        host=node.name,
        driver=snapshot.driver,
        gpus=tuple(_here(gpu, offset_s) for gpu in snapshot.gpus),
        sampled_at=sampled_at,
    )


def holders_event(node: Node, snapshot: Snapshot, holders: tuple[Holder, ...], at: float) -> Holders:
    """The holders of a look as an event."""
    offset_s = snapshot.at - at
    return Holders(
        at=at,
        host=node.name,
        coverage=snapshot.coverage,
        container=snapshot.container,
        holders=tuple(
            item if item.started_at is None else replace(item, started_at=item.started_at - offset_s)
            for item in holders
        ),
    )


def named(holders: tuple[Holder, ...], node: Node) -> tuple[Holder, ...]:
    """The same with the node's name in the commands that the advice gives."""
    return tuple(replace(item, advice=item.advice.replace(" HOST ", f" {node.name} ")) for item in holders)


def _here(gpu: Gpu, offset_s: float) -> Gpu:
    return gpu if gpu.xid is None else replace(gpu, xid=replace(gpu.xid, at=gpu.xid.at - offset_s))
