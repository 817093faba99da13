"""One stream for every front end: `subscribe()` gives the present state and all that comes after, nothing between lost.

A slow reader never holds anybody up: its queue is bounded. Of the log it may lose whole blocks, oldest first, and is
told how many lines they were; equal kinds of samples coalesce to the latest; phases, findings, warnings and the link
never drop. Lines are made of blocks for those who want lines, when they take them, and for nobody else.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Hashable, Iterable
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from supervisor.core import events as ev
from supervisor.core.log_lines import LogLines, redraws

if TYPE_CHECKING:  # a wait for a plain URL has no GPUs, and need not load what they are
    from supervisor.core.gpu_events import GpuEvent, Holders

LOG_TAIL_LINES = 1000
LOG_TAIL_BYTES = 2 << 20
"""Of the tail that every newcomer gets: a thousand lines can be gigabytes."""
QUEUE_EVENTS = 4096
"""Log lines that a reader may be behind, where they come as lines."""
QUEUE_BYTES = 8 << 20
"""Bytes of the log that a reader may be behind, where they come as blocks."""
EVENT_BYTES = 400
"""What an event weighs beside its bytes: a server that writes a dot a second must fill no memory either."""
SLICE_BYTES = 128 << 10
"""Blocks that are made into lines in one go: a key press may wait for that long."""

LogEvent = ev.Log | ev.LogBlock


class View(Struct, frozen=True):
    """The present state, as a front end that has just come needs it. Of the log: `log` or `blocks`, oldest first."""

    phase: ev.Phase = ev.Phase.IDLE
    since: float = 0.0
    run_id: str = ""
    changes: tuple[ev.PhaseChanged, ...] = ()
    link: ev.LinkEvent | None = None
    health: ev.Health | None = None
    progress: ev.Progress | None = None
    finding: ev.Finding | None = None
    warnings: tuple[ev.Warning_, ...] = ()
    gpu: GpuEvent | None = None
    holders: Holders | None = None
    metrics: ev.Metrics | None = None
    log: tuple[ev.Log, ...] = ()
    """The newest lines. In the view of a subscription alone; of `lines=False` those that never were in a block."""
    blocks: tuple[ev.LogBlock, ...] = ()
    """The newest bytes. In the view of a subscription with `lines=False` alone."""


class Subscription:
    """One reader's queue. Iterate over `batches()`; each is what came since the last one, in order.

    Args:
        lines: what goes on where the view's tail ended; None for a reader that takes blocks as they are.
    """

    def __init__(self, view: View, lines: LogLines | None = None) -> None:
        self.view = view
        self._lines = lines
        self._order = 0
        self._queue: deque[tuple[int, ev.AnyEvent]] = deque()
        self._log: deque[tuple[int, LogEvent]] = deque()
        self._samples: dict[Hashable, ev.AnyEvent] = {}
        self._logs = self._block_bytes = 0
        self._dropped = 0
        self._fresh_dropped = False
        self._ready = asyncio.Event()
        self._closed = False

    def push(self, event: ev.AnyEvent) -> None:
        """Add one event; never waits."""
        self._order += 1
        if isinstance(event, ev.LogBlock):
            self._block_bytes += _weight(event)
            self._log.append((self._order, event))
            while self._block_bytes > QUEUE_BYTES and len(self._log) > 1:
                self._drop_oldest_log()
        elif isinstance(event, ev.Log):
            self._push_line(event)
        else:
            if (kind := _sample_kind(event)) is not None:
                event = self._replace_sample(kind, event)
            self._queue.append((self._order, event))
        self._ready.set()

    def _push_line(self, event: ev.Log) -> None:
        old = self._log[-1][1] if self._log else None
        if isinstance(old, ev.Log) and redraws(event, old):
            self._log.pop()
            self._logs -= 1
            self._dropped += old.dropped
        if self._logs >= QUEUE_EVENTS:
            self._drop_oldest_log()
        self._logs += 1
        self._log.append((self._order, event))

    def _replace_sample(self, kind: Hashable, event: ev.AnyEvent) -> ev.AnyEvent:
        """Forget the queued sample of this kind: the newest alone counts, and a reader that sleeps costs no memory."""
        old = self._samples.get(kind)
        if old is not None:
            # Searched from the end: where somebody reads, it is one of the last.
            position = next(n for n in range(len(self._queue) - 1, -1, -1) if self._queue[n][1] is old)
            del self._queue[position]
            if isinstance(event, ev.Health) and isinstance(old, ev.Health):
                event = msgspec.structs.replace(event, count=event.count + old.count)
        self._samples[kind] = event
        return event

    def _drop_oldest_log(self) -> None:
        _, event = self._log.popleft()
        if isinstance(event, ev.Log):
            self._logs -= 1
            self._dropped += 1 + event.dropped
            return
        self._block_bytes -= _weight(event)
        if self._lines is not None:
            self._lines.skip(event)
        elif event.fresh:
            self._fresh_dropped = True

    def close(self) -> None:
        """End the stream after what is queued."""
        self._closed = True
        self._ready.set()

    def take(self, at_most_bytes: int | None = None) -> list[ev.AnyEvent]:
        """What is queued now, in order. The first log line after a gap tells how many lines it stands for."""
        out: list[ev.AnyEvent] = []
        taken_bytes = 0
        while self._log and (at_most_bytes is None or taken_bytes < at_most_bytes):
            order, event = self._log.popleft()
            self._take_others(out, before=order)
            if isinstance(event, ev.LogBlock):
                taken_bytes += len(event.data)
                self._block_bytes -= _weight(event)
                self._extend(out, self._opened(event))
            else:
                self._logs -= 1
                self._extend(out, (event,))
        if not self._log:
            self._take_others(out, before=None)
        if not (self._log or self._queue or self._closed):
            self._ready.clear()
        return out

    def _take_others(self, out: list[ev.AnyEvent], before: int | None) -> None:
        while self._queue and (before is None or self._queue[0][0] < before):
            event = self._queue.popleft()[1]
            if self._samples and (kind := _sample_kind(event)) is not None:
                self._samples.pop(kind, None)
            out.append(event)

    def _opened(self, block: ev.LogBlock) -> Iterable[LogEvent]:
        """What its reader gets of a block: lines, or the block."""
        if self._lines is not None:
            return self._lines.take(block)
        if self._fresh_dropped:
            self._fresh_dropped = False
            return (msgspec.structs.replace(block, fresh=True),)
        return (block,)

    def _extend(self, out: list[ev.AnyEvent], events: Iterable[LogEvent]) -> None:
        for event in events:
            if not isinstance(event, ev.Log):
                out.append(event)
                continue
            if self._dropped:
                event = msgspec.structs.replace(event, dropped=self._dropped + event.dropped)
                self._dropped = 0
            _put_line(out, event)

    async def batches(self) -> AsyncIterator[list[ev.AnyEvent]]:
        """Batches until the hub closes."""
        at_most_bytes = SLICE_BYTES if self._lines is not None else None
        while True:
            await self._ready.wait()
            batch = self.take(at_most_bytes)
            if batch:
                yield batch
            elif self._closed and not self._log:
                return
            if self._log:
                await asyncio.sleep(0)  # a flood that is made into lines must not keep the keys waiting


def _sample_kind(event: ev.AnyEvent) -> Hashable | None:
    """What an event is a sample of, None for one of which each counts."""
    match event:
        case ev.Progress():
            return "progress"
        case ev.Health():
            return (event.status, event.verdict)  # that it answered 503 and then 200 must not fall away
        case _:
            tag = type(event).__struct_config__.tag
            return tag if tag in ("gpu", "holders", "metrics") else None


def _put_line(out: list[ev.AnyEvent], line: ev.Log) -> None:
    """Behind what is there, or in place of the same line as it was drawn before."""
    old = out[-1] if out else None
    if isinstance(old, ev.Log) and redraws(line, old):
        out.pop()
        if old.dropped:
            line = msgspec.structs.replace(line, dropped=old.dropped + line.dropped)
    out.append(line)


class _Tail:
    """The newest of the log, for whoever comes later."""

    def __init__(self) -> None:
        self.events: deque[LogEvent] = deque()
        self._lines = self._bytes = 0
        self._cut = False

    def add(self, event: LogEvent) -> None:
        """Take one, and let go of what is too old."""
        if isinstance(event, ev.Log) and self.events:
            old = self.events[-1]
            if isinstance(old, ev.Log) and redraws(event, old):
                self.events.pop()
                self._count(old, -1)
        self.events.append(event)
        self._count(event, 1)
        while len(self.events) > 1 and (
            self._bytes > LOG_TAIL_BYTES or self._lines - _lines_of(self.events[0]) > LOG_TAIL_LINES
        ):
            self._count(self.events.popleft(), -1)
            self._cut = True

    def _count(self, event: LogEvent, sign: int) -> None:
        self._lines += sign * _lines_of(event)
        self._bytes += sign * _weight(event)

    def lines(self) -> tuple[LogLines, tuple[ev.Log, ...]]:
        """The newest lines, and what goes on from there."""
        reader, out = LogLines(clean=not self._cut), list[ev.AnyEvent]()
        for event in self.events:
            for line in reader.take(event) if isinstance(event, ev.LogBlock) else (event,):
                _put_line(out, line)
        return reader, tuple(event for event in out[-LOG_TAIL_LINES:] if isinstance(event, ev.Log))


def _weight(event: LogEvent) -> int:
    return EVENT_BYTES + len(event.data if isinstance(event, ev.LogBlock) else event.text)


def _lines_of(event: LogEvent) -> int:
    return event.lines if isinstance(event, ev.LogBlock) else 1


class Hub:
    """Keeps the view, and hands every event to every subscriber."""

    def __init__(self) -> None:
        self._view = View()
        self._tail = _Tail()
        self._subscriptions: list[Subscription] = []
        self._closed = False

    @property
    def view(self) -> View:
        """The present state, without the log."""
        return self._view

    def log_tail(self) -> tuple[ev.Log, ...]:
        """The newest lines of the log, oldest first. Made when asked for: not for every event."""
        return self._tail.lines()[1]

    def subscribe(self, *, lines: bool = True) -> Subscription:
        """The present state and a queue of what comes after; one step, so nothing falls between.

        `lines=False`: the log in blocks, as it came.
        """
        if lines:
            reader, log = self._tail.lines()
            subscription = Subscription(msgspec.structs.replace(self._view, log=log), reader)
        else:
            blocks = tuple(event for event in self._tail.events if isinstance(event, ev.LogBlock))
            log = tuple(event for event in self._tail.events if isinstance(event, ev.Log))
            subscription = Subscription(msgspec.structs.replace(self._view, log=log, blocks=blocks))
        self._subscriptions.append(subscription)
        if self._closed:
            subscription.close()
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Forget a reader."""
        self._subscriptions.remove(subscription)
        subscription.close()

    def publish(self, event: ev.AnyEvent) -> None:
        """Take one event into the view and hand it on."""
        if isinstance(event, ev.LogBlock | ev.Log):
            self._tail.add(event)
        else:
            self._keep(event)
        for subscription in self._subscriptions:
            subscription.push(event)

    def close(self) -> None:
        """No more events: every subscription ends after what it has."""
        self._closed = True
        for subscription in self._subscriptions:
            subscription.close()

    def _keep(self, event: ev.AnyEvent) -> None:
        replace = msgspec.structs.replace
        view = self._view
        match event:
            case ev.PhaseChanged():
                new_run = event.to is ev.Phase.PREFLIGHT
                self._view = replace(
                    view,
                    phase=event.to,
                    since=event.at,
                    run_id=event.run_id or view.run_id,
                    changes=(event,) if new_run else (*view.changes, event)[-200:],
                    finding=None if new_run else view.finding,
                    progress=None if new_run else view.progress,
                    metrics=None if new_run else view.metrics,
                )
            case ev.LinkEvent():
                self._view = replace(view, link=event)
            case ev.Health():
                self._view = replace(view, health=event)
            case ev.Progress():
                self._view = replace(view, progress=event)
            case ev.Finding():
                self._view = replace(view, finding=event)
            case ev.Warning_():
                self._view = replace(view, warnings=(*view.warnings, event)[-50:])
            case ev.Metrics():
                self._view = replace(view, metrics=event)
            case ev.Summary():
                pass
            case ev.Log() | ev.LogBlock():
                raise AssertionError("the log is no part of the view")
            case _:
                self._keep_gpus(event)

    def _keep_gpus(self, event: GpuEvent | Holders) -> None:
        from supervisor.core.gpu_events import GpuEvent

        if isinstance(event, GpuEvent):
            self._view = msgspec.structs.replace(self._view, gpu=event)
        else:
            self._view = msgspec.structs.replace(self._view, holders=event)
