"""One stream for every front end: `subscribe()` gives the present state and all that comes after, nothing between lost.

A slow reader never holds anybody up: its queue is bounded. Log lines may be dropped for it and are counted, equal
kinds of samples coalesce to the latest, phases, findings, warnings and the link never drop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Hashable
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from supervisor.core import events as ev

if TYPE_CHECKING:  # a wait for a plain URL has no GPUs, and need not load what they are
    from supervisor.core.gpu_events import GpuEvent, Holders

LOG_TAIL_LINES = 1000
QUEUE_EVENTS = 4096


class View(Struct, frozen=True):
    """The present state, as a front end that has just come needs it. `log` is the tail, oldest first."""

    phase: ev.Phase = ev.Phase.IDLE
    since: float = 0.0
    run_id: str = ""
    changes: tuple[ev.PhaseChanged, ...] = ()
    link: ev.LinkEvent | None = None
    health: ev.Health | None = None
    progress: ev.Progress | None = None
    finding: ev.Finding | None = None
    warnings: tuple[ev.Warning_, ...] = ()
    log: tuple[ev.Log, ...] = ()
    gpu: GpuEvent | None = None
    holders: Holders | None = None


class Subscription:
    """One reader's queue. Iterate over `batches()`; each is what came since the last one, in order."""

    def __init__(self, view: View) -> None:
        self.view = view
        self._queue: deque[ev.AnyEvent] = deque()
        self._samples: dict[Hashable, ev.AnyEvent] = {}
        self._logs = 0
        self._dropped = 0
        self._ready = asyncio.Event()
        self._closed = False

    def push(self, event: ev.AnyEvent) -> None:
        """Add one event; never waits."""
        if isinstance(event, ev.Log):
            old = self._queue[-1] if self._queue else None
            if isinstance(old, ev.Log) and _redraws(event, old):
                self._queue.pop()
                self._logs -= 1
                self._dropped += old.dropped
            if self._logs >= QUEUE_EVENTS:
                self._drop_oldest_log()
            self._logs += 1
        elif (kind := _sample_kind(event)) is not None:
            event = self._replace_sample(kind, event)
        self._queue.append(event)
        self._ready.set()

    def _replace_sample(self, kind: Hashable, event: ev.AnyEvent) -> ev.AnyEvent:
        """Forget the queued sample of this kind: the newest alone counts, and a reader that sleeps costs no memory."""
        old = self._samples.get(kind)
        if old is not None:
            # Searched from the end: where somebody reads, it is one of the last.
            position = next(n for n in range(len(self._queue) - 1, -1, -1) if self._queue[n] is old)
            del self._queue[position]
            if isinstance(event, ev.Health) and isinstance(old, ev.Health):
                event = msgspec.structs.replace(event, count=event.count + old.count)
        self._samples[kind] = event
        return event

    def _drop_oldest_log(self) -> None:
        for position, event in enumerate(self._queue):
            if isinstance(event, ev.Log):
                del self._queue[position]
                self._logs -= 1
                self._dropped += 1 + event.dropped
                return

    def close(self) -> None:
        """End the stream after what is queued."""
        self._closed = True
        self._ready.set()

    def take(self) -> list[ev.AnyEvent]:
        """What is queued now. The first log line after a gap tells how many lines it stands for."""
        out = list(self._queue)
        self._queue.clear()
        self._samples.clear()
        self._logs = 0
        self._ready.clear()
        if self._dropped:
            for position, event in enumerate(out):
                if isinstance(event, ev.Log):
                    out[position] = msgspec.structs.replace(event, dropped=self._dropped + event.dropped)
                    self._dropped = 0
                    break
        if self._closed:
            self._ready.set()
        return out

    async def batches(self) -> AsyncIterator[list[ev.AnyEvent]]:
        """Batches until the hub closes."""
        while True:
            await self._ready.wait()
            batch = self.take()
            if batch:
                yield batch
            elif self._closed:
                return


def _sample_kind(event: ev.AnyEvent) -> Hashable | None:
    """What an event is a sample of, None for one of which each counts."""
    match event:
        case ev.Progress():
            return "progress"
        case ev.Health():
            return (event.status, event.verdict)  # that it answered 503 and then 200 must not fall away
        case _:
            tag = type(event).__struct_config__.tag
            return tag if tag in ("gpu", "holders") else None


def _redraws(new: ev.Log, old: ev.Log) -> bool:
    """Whether `new` is the same line, drawn anew: what it replaces is no line that anybody missed."""
    return old.living and old.line_no == new.line_no


class Hub:
    """Keeps the view, and hands every event to every subscriber."""

    def __init__(self) -> None:
        self._view = View()
        self._log: deque[ev.Log] = deque(maxlen=LOG_TAIL_LINES)
        self._subscriptions: list[Subscription] = []
        self._closed = False

    @property
    def view(self) -> View:
        """The present state."""
        return msgspec.structs.replace(self._view, log=tuple(self._log))

    def subscribe(self) -> Subscription:
        """The present state and a queue of what comes after; one step, so nothing falls between."""
        subscription = Subscription(self.view)
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
            case ev.Log():
                if self._log and _redraws(event, self._log[-1]):
                    self._log.pop()
                self._log.append(event)
            case ev.Summary():
                pass
            case _:
                self._keep_gpus(event)

    def _keep_gpus(self, event: GpuEvent | Holders) -> None:
        from supervisor.core.gpu_events import GpuEvent

        if isinstance(event, GpuEvent):
            self._view = msgspec.structs.replace(self._view, gpu=event)
        else:
            self._view = msgspec.structs.replace(self._view, holders=event)
