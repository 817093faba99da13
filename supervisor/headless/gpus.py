"""The gpus command: GPU memory of one or several nodes and who holds it, once or for as long as one looks.

It shows and decides nothing. A driver that hangs or is missing is part of what it shows; only a node that cannot be
reached makes it fail.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import IO, Any

from msgspec import Struct

from supervisor.adapters import gpu as gpus_of
from supervisor.adapters.base import Clock
from supervisor.core import events as ev
from supervisor.core.events import LinkState, Outcome
from supervisor.core.gpu import Snapshot
from supervisor.core.gpu_events import gpu_event, holders_event, named, safe
from supervisor.core.holders import Holder, classify
from supervisor.core.known import Known
from supervisor.core.lines import sanitise
from supervisor.core.wait import Decision
from supervisor.errors import LinkError, UnreachableError
from supervisor.headless import gpu_text
from supervisor.headless.interrupts import catch_signals
from supervisor.headless.nodes import Node, Out, connection_to
from supervisor.headless.text import Style

INTERVAL_S = 1.0


async def run_gpus(
    nodes: Sequence[Node],
    *,
    clock: Clock,
    known: Known,
    as_json: bool,
    watch: bool,
    out: IO[str] | None = None,
    err: IO[str] | None = None,
) -> int:
    """Exit code 0 whatever was found, 3 for a node that was not reached, 129/130/143 when a signal ended it."""
    stream = out or sys.stdout
    view = View(stream, as_json=as_json, redraws=watch and not as_json and _can_redraw(stream))
    shown = _Gpus(nodes, clock, known, view, err or sys.stderr)
    decision = await until_decided(shown.watch if watch else shown.once, "")
    view.end()
    view.summary(clock.now(), decision)
    return decision.exit_code


async def until_decided(work: Callable[[], Coroutine[Any, Any, Decision]], said: str) -> Decision:
    """What `work` comes to, or the signal that ends it."""
    decided: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()

    def decide(decision: Decision) -> None:
        if not decided.done():
            decided.set_result(decision)

    restore = catch_signals(decide, said)
    task = asyncio.create_task(work())
    try:
        await asyncio.wait((task, decided), return_when=asyncio.FIRST_COMPLETED)
        return decided.result() if decided.done() else task.result()
    finally:
        restore()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class View(Out):
    """Standard output with a block of lines a node: drawn in place on a terminal, else one after the other."""

    def __init__(self, stream: IO[str], *, as_json: bool, redraws: bool) -> None:
        super().__init__(stream, as_json=as_json)
        terminal = stream.isatty()
        self.style = Style(colour=terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb")
        self._terminal = terminal
        self.redraws = redraws
        self._drawn = 0
        self._drawn_width = 0
        self._blocks: dict[str, list[str]] = {}
        self._lines = 0

    @property
    def width(self) -> int:
        """Cells of a line."""
        return max(10, shutil.get_terminal_size().columns) if self._terminal else gpu_text.PIPE_WIDTH

    def block(self, name: str, lines: list[str]) -> None:
        """Show a node's lines, in the place that it has."""
        if not self.redraws:
            if self._lines:
                self.text()
            for line in lines:
                self.text(line)
            self._lines += len(lines)
            return
        self._blocks[name] = lines
        self._draw()

    def _draw(self) -> None:
        room = max(3, shutil.get_terminal_size().lines - 1)
        lines = [line for block in self._blocks.values() for line in [*block, ""]][:-1]
        if len(lines) > room:
            lines = [*lines[: room - 1], f"… {len(lines) - room + 1} more lines: a higher terminal shows them"]
        up = f"\x1b[{self._drawn}A" if self._drawn else ""
        if self._drawn and self.width < self._drawn_width:
            up = "\x1b[2J\x1b[H"  # the terminal has broken the lines that stood there: nobody knows where they began
        self.stream.write(up + "\r\x1b[J" + "\n".join(lines) + "\n")
        self.stream.flush()
        self._drawn, self._drawn_width = len(lines), self.width

    def end(self) -> None:
        """What was drawn stays."""
        self._drawn = 0


class _Last(Struct):
    """What was shown of a node last."""

    snapshot: Snapshot | None = None
    holders: tuple[Holder, ...] = ()
    face: object = None
    at: float = 0.0


class _Gpus:
    """The command's two ways."""

    def __init__(self, nodes: Sequence[Node], clock: Clock, known: Known, view: View, err: IO[str]) -> None:
        self._nodes = nodes
        self._clock = clock
        self._known = known
        self._view = view
        self._err = err
        self._last = {node.name: _Last() for node in nodes}

    async def once(self) -> Decision:
        """One look at every node, all at the same time, shown in the order of the command line."""
        results = await asyncio.gather(*(self._look(node) for node in self._nodes), return_exceptions=True)
        lost: list[str] = []
        for node, result in zip(self._nodes, results, strict=True):
            if isinstance(result, LinkError):
                lost.append(self._unreachable(node, result))
            elif isinstance(result, BaseException):
                raise result
            else:
                self._show(node, result)
        return _ending(lost)

    async def _look(self, node: Node) -> Snapshot:
        connection = connection_to(node, self._clock)
        try:
            await connection.connect_once()
            return await gpus_of.settled_look(connection.client, clock=self._clock)
        finally:
            await connection.close()

    async def watch(self) -> Decision:
        """Each second, until a signal; a node that is lost comes back by itself."""
        results = await asyncio.gather(*(self._follow(node) for node in self._nodes), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, LinkError):
                raise result
        return _ending([str(result) for result in results])

    async def _follow(self, node: Node) -> None:
        """Raises the `LinkError` that no other attempt would mend, or that the first one met."""

        def on_link(state: LinkState, why: str) -> None:
            if state is LinkState.LOST:
                self._link_lost(node, why)

        connection = connection_to(node, self._clock, on_link)
        try:
            await connection.connect_once()
            while True:
                try:
                    await self._notices(node, connection.client)
                except UnreachableError as error:
                    connection.lost(str(error))
                await connection.close()
                await connection.open()
        except LinkError as error:
            self._unreachable(node, error)
            raise
        finally:
            await connection.close()

    async def _notices(self, node: Node, client: Any) -> None:
        feed = gpus_of.GpuFeed()
        await gpus_of.begin(client, interval_s=INTERVAL_S)
        async for notice in client.notices():
            if notice.get("notice") == "gpu":
                self._show(node, feed.take(notice))
        raise UnreachableError("the connection to the node program ended")

    # ------------------------------------------------------------------------------- showing

    def _show(self, node: Node, snapshot: Snapshot) -> None:
        snapshot = safe(snapshot)
        holders = named(classify(snapshot, self._known), node.name)
        at, last = self._clock.now(), self._last[node.name]
        face = _face(snapshot, holders)
        changed = face != last.face
        self._last[node.name] = _Last(snapshot=snapshot, holders=holders, face=face, at=at)
        view = self._view
        view.event(gpu_event(snapshot, node.name, at))
        if changed:
            view.event(holders_event(snapshot, holders, node.name, at))
        if not view.as_json and (changed or view.redraws):
            view.block(node.name, gpu_text.node_lines(node.name, snapshot, holders, view.style, view.width))

    def _link_lost(self, node: Node, why: str) -> None:
        why = sanitise(why)
        last, at = self._last[node.name], self._clock.now()
        self._view.event(ev.Warning_(at=at, text=f"{node.name}: the link is lost: {why}", facts={"host": node.name}))
        if self._view.as_json:
            return
        if last.snapshot is None or not self._view.redraws:
            print(f"{node.name}: the link is lost: {why}", file=self._err, flush=True)
            last.face = None  # what comes after it is worth a block
            return
        note = f"link lost: {why}; last known {at - last.at:.0f} s ago"
        lines = gpu_text.node_lines(node.name, last.snapshot, last.holders, self._view.style, self._view.width, note)
        self._view.block(node.name, lines)

    def _unreachable(self, node: Node, error: LinkError) -> str:
        text = sanitise(str(error))
        text = text if text.startswith(f"{node.name}: ") else f"{node.name}: {text}"
        self._view.event(ev.Warning_(at=self._clock.now(), text=text, facts={"host": node.name}))
        if not self._view.as_json:
            print(text, file=self._err, flush=True)
        return text


def _face(snapshot: Snapshot, holders: tuple[Holder, ...]) -> object:
    """What makes a new block: memory, states and holders, not every degree and percent."""
    gpus = tuple(
        (gpu.uuid, gpu.state, _rough(gpu.memory.used_bytes), tuple(gpu_text.troubles(gpu)), gpu.xid)
        for gpu in snapshot.gpus
    )
    who = tuple(
        (item.pid, item.start_ticks, item.class_, item.title, *map(_rough, item.held.values())) for item in holders
    )
    return snapshot.driver.state, gpus, who


def _rough(count: int | None) -> int | None:
    return None if count is None else round(count / 2**27)


def _ending(lost: Sequence[str]) -> Decision:
    if lost:
        return Decision(outcome=Outcome.UNREACHABLE, exit_code=3, reason="; ".join(lost))
    return Decision(outcome=Outcome.REACHED, exit_code=0, reason="looked")


def _can_redraw(stream: IO[str]) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb"
