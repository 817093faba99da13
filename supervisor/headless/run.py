"""A headless wait from start to exit code: drains the stream, asks the limits, obeys signals, prints the ending.

It decides nothing about the server: `core/wait.py` says when a wait is over, the session drives the run.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Callable, Coroutine
from typing import IO, TYPE_CHECKING, Any

from msgspec import Struct

from supervisor.core import events as ev
from supervisor.core.events import Outcome
from supervisor.core.lines import sanitise
from supervisor.core.wait import EXIT_CODES, Decision, Limits, Waiter
from supervisor.errors import LinkError, RefusedError, SupervisorError
from supervisor.headless import jsonl, text
from supervisor.headless.interrupts import catch_signals
from supervisor.supervise.desk import Desk

if TYPE_CHECKING:  # a plain wait neither records nor tells anybody
    from supervisor.supervise.notify import Notifier
    from supervisor.supervise.record import Recorder

LIVE_EVERY_S = 0.5
STAGE_EVERY_S = 60.0
_LOADS = {ev.Phase.LAUNCHING, ev.Phase.LOADING, ev.Phase.WARMING}


class Options(Struct, frozen=True, kw_only=True):
    """How a wait is shown and limited."""

    until: ev.Phase
    limits: Limits
    json: bool = False
    all_events: bool = False
    record: str | None = None
    """A file that gets every event; it must not exist."""
    profile: str = ""
    node: str = ""
    """Whose stream it is, for the record."""
    mask: Callable[[str], str] = lambda line: line
    """Takes known secrets out of every line that is printed or recorded."""
    refused_exit_code: int = EXIT_CODES[Outcome.REFUSED]
    """`status` has nothing to refuse: there, nothing that runs is an answer like any other."""


class Printer:
    """Standard output carries the result, standard error the plain lines and the live line."""

    def __init__(self, options: Options, out: IO[str], err: IO[str], began_at: float) -> None:
        self._options = options
        self._out = out
        self._err = err
        self._live = err.isatty() and not options.json
        colour = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._style = text.Style(colour=colour and err.isatty())
        self._out_style = text.Style(colour=colour and out.isatty())
        self._recorder = _recorder(options, began_at) if options.record else None
        self._stage: ev.Progress | None = None
        self._printed_stages: dict[str, float] = {}

    def event(self, event: ev.AnyEvent) -> None:
        """Show one event."""
        if self._recorder is not None:
            self._recorder.write(event)
        if isinstance(event, ev.Progress):
            self._stage = event
        if self._options.json:
            if jsonl.wanted(event, everything=self._options.all_events):
                self._write(self._out, jsonl.to_line(event))
        elif self._options.all_events or not (isinstance(event, ev.Log) or self._says_nothing_new(event)):
            line = text.line_of(event, self._style)
            if line is not None:
                self._write(self._err, line)

    def _says_nothing_new(self, event: ev.AnyEvent) -> bool:
        """Of a load as plain lines: each stage once, and every minute how far it is. A terminal has its live line."""
        if not isinstance(event, ev.Progress):
            return False
        old = self._printed_stages.get(event.stage)
        if self._live or (old is not None and event.at - max(self._printed_stages.values()) < STAGE_EVERY_S):
            return True
        self._printed_stages[event.stage] = event.at
        return False

    def live(self, desk: Desk, elapsed_s: float) -> None:
        """Redraw the live line, on a terminal alone."""
        if not self._live:
            return
        last = desk.tally.last_line
        width = shutil.get_terminal_size().columns
        stage = self._stage if desk.phase in _LOADS else None
        line = text.live_line(ev.LABELS[desk.phase], stage, desk.clock.now(), elapsed_s, last[1] if last else "", width)
        self._err.write("\r\x1b[K" + self._options.mask(line))
        self._err.flush()

    def end(self, summary: ev.Summary) -> None:
        """The ending, and the record's end."""
        self.event(summary)
        if not self._options.json:
            for line in text.ending(summary, self._out_style):
                self._write(self._out, line)
        if self._recorder is not None:
            self._recorder.close()
            self.seen()

    def seen(self) -> None:
        """A batch is over: have it in the record, and say once if that is not possible."""
        if self._recorder is not None:
            self._recorder.flush()
            if self._recorder.problem:
                self.afterthought(self._recorder.problem)
                self._recorder = None

    def afterthought(self, text: str) -> None:
        """A warning that is none of the stream's; the summary stays its last line."""
        self._write(self._err, f"{self._style('warning', 'yellow')}: {sanitise(text)}")

    def _write(self, stream: IO[str], line: str) -> None:
        if self._live:
            self._err.write("\r\x1b[K")
            self._err.flush()
        try:
            stream.write(self._options.mask(line) + "\n")
            stream.flush()
        except BrokenPipeError:
            # The reader has gone (`| head`): the wait goes on, since its exit code is still wanted.
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115
            self._out = sys.stdout


def _recorder(options: Options, began_at: float) -> Recorder:
    from supervisor.supervise.record import Recorder  # late: most waits record nothing

    assert options.record is not None
    return Recorder(options.record, at=began_at, mask=options.mask, profile=options.profile, node=options.node)


async def wait(
    desk: Desk,
    work: Callable[[], Coroutine[Any, Any, None]],
    options: Options,
    *,
    began_at: float,
    waiter: Waiter | None = None,
    notifier: Notifier | None = None,
    out: IO[str] | None = None,
    err: IO[str] | None = None,
) -> int:
    """Run `work`, which feeds `desk`, until the target is reached or a limit fires. Returns the exit code.

    Raises `UsageError` where the record cannot be made, before anything is begun.
    `notifier`: its hooks are told, and waited for when the verdict has been printed; a second signal ends that.
    """
    printer = Printer(options, out or sys.stdout, err or sys.stderr, began_at)
    waiter = waiter or Waiter(until=options.until, limits=options.limits, began_at=began_at)
    decided: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
    hurry = asyncio.Event()

    def decide(decision: Decision | None) -> None:
        if decision is not None and not decided.done():
            decided.set_result(decision)

    def interrupt(decision: Decision) -> None:
        if decided.done():
            hurry.set()
        decide(decision)

    lines = options.all_events or bool(options.record)
    tasks = [
        asyncio.create_task(_drain(desk, printer, waiter, decide, notifier, lines=lines)),
        asyncio.create_task(_limits(desk, printer, waiter, decide, began_at)),
        asyncio.create_task(_work(work, options, decide)),
    ]
    for task in tasks:
        task.add_done_callback(lambda ended: _bug(ended, decided))
    restore = catch_signals(interrupt, "; the server, if one runs, was left running")
    try:
        decision = await decided
        # Told before anything is closed: what waits for this verdict must not wait for the closing too.
        printer.end(desk.tally.summary(decision, desk.clock.now()))
    finally:
        for task in tasks:
            task.cancel()
        if notifier is not None:
            notifier.warn = printer.afterthought
            tasks.append(asyncio.create_task(notifier.finish(hurry)))
        await asyncio.gather(*tasks, return_exceptions=True)
        restore()
    return decision.exit_code


def _bug(task: asyncio.Task[None], decided: asyncio.Future[Decision]) -> None:
    """A task that ended by what is no `SupervisorError` is a bug of ours: it must end the wait, never hang it."""
    if not task.cancelled() and (error := task.exception()) is not None and not decided.done():
        decided.set_exception(error)


async def _drain(
    desk: Desk,
    printer: Printer,
    waiter: Waiter,
    decide: Callable[[Decision | None], None],
    notifier: Notifier | None,
    *,
    lines: bool,
) -> None:
    # Lines are made of a log's bytes only where somebody wants to see them all.
    subscription = desk.hub.subscribe(lines=lines)
    before: tuple[ev.AnyEvent, ...] = (*subscription.view.warnings, *subscription.view.changes)
    for event in before:
        printer.event(event)
        decide(waiter.feed(event))
    async for batch in subscription.batches():
        for event in batch:
            if not isinstance(event, ev.Summary):  # a recording's own: it is printed once, at the end
                printer.event(event)
            decide(waiter.feed(event))
        printer.seen()
        if notifier is not None:
            notifier.take(batch)


async def _limits(
    desk: Desk, printer: Printer, waiter: Waiter, decide: Callable[[Decision | None], None], began_at: float
) -> None:
    while True:
        now = desk.clock.now()
        decide(waiter.tick(now))
        printer.live(desk, now - began_at)
        await desk.clock.sleep(min(max(0.001, waiter.deadline - now), LIVE_EVERY_S))


async def _work(
    work: Callable[[], Coroutine[Any, Any, None]], options: Options, decide: Callable[[Decision | None], None]
) -> None:
    """The session; whatever it raises for the user is an ending of its own."""
    try:
        await work()
    except RefusedError as error:
        decide(Decision(outcome=Outcome.REFUSED, exit_code=options.refused_exit_code, reason=sanitise(str(error))))
    except LinkError as error:
        decide(_ending(Outcome.UNREACHABLE, sanitise(str(error))))
    except SupervisorError as error:
        decide(Decision(outcome=Outcome.FAILED, exit_code=error.exit_code, reason=sanitise(str(error))))


def _ending(outcome: Outcome, reason: str) -> Decision:
    return Decision(outcome=outcome, exit_code=EXIT_CODES[outcome], reason=reason)
