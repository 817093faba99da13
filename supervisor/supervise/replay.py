"""Plays a record back: the same events, at their own pace, through a desk and a hub as a session has them.

For a front end it is a session (`Supervised` of the console's watcher) on which nothing can be ordered. Records of
older versions, without a first line of their own, are played too; lines that cannot be read are left out and told with
their numbers. Nothing but the file is touched, and nothing in it drives the terminal: anybody may have written it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import msgspec
from msgspec import Struct

from supervisor.adapters.base import Clock
from supervisor.core import events as ev
from supervisor.core.event_json import RECORD, DecodeError, document_of, from_object, harmless, seconds
from supervisor.core.events import Evidence, Outcome, Phase
from supervisor.core.holder import Holder
from supervisor.core.tally import Tally
from supervisor.core.wait import EXIT_CODES, Decision, Limits, Waiter
from supervisor.errors import RefusedError, UsageError
from supervisor.supervise.clear import Cleared
from supervisor.supervise.desk import Desk
from supervisor.supervise.left_overs import LeftOvers
from supervisor.supervise.record import VERSION
from supervisor.supervise.replay_clock import ReplayClock
from supervisor.supervise.stop import Stopped
from supervisor.supervise.witness import Witness

REFUSAL = "this is a recording: nothing can be stopped, restarted or cleared in it"
MAX_LINE_BYTES = 16 << 20
LOOKED_AT_LINES = 200
"""Where none of the first lines is one of ours, the file is no record."""
TOLD_BAD_LINES = 5
MOST_EXIT_CODE = 255
EVENTS_AT_A_TIME = 512
TURNS = 3
"""Of the loop after an event that a newer one may take the place of: a reader that waits has each of them."""
REST_S = 0.01
"""After so many events without a pause of their own: a front end that draws must keep up, or lines fall out."""


class Head(Struct, frozen=True, kw_only=True):
    """Whose record it is. An older one says nothing of it."""

    at: float
    profile: str = ""
    node: str = ""
    title: str = ""
    version: int = VERSION


class Line(Struct, frozen=True):
    """One line of the file: an event, or why it is none."""

    number: int
    event: ev.AnyEvent | None = None
    why: str = ""


class ReplaySettings(Struct, frozen=True):
    """What a front end reads of a plan."""

    grace_s: float = 0.0


class ReplayTally(Tally):
    """Adds up as ever, but the ending is the record's own."""

    recorded: ev.Summary | None = None
    mark: Evidence | None = None

    def summary(self, decision: Decision, now: float) -> ev.Summary:
        """The record's summary, with the note that it is one."""
        summary = self.recorded or super().summary(decision, now)
        evidence = summary.evidence if self.mark is None else (*summary.evidence, self.mark)
        return msgspec.structs.replace(summary, evidence=evidence)


class ReplayDesk(Desk):
    """A desk whose machine and tally follow the events, where in a session the events follow them."""

    tally: ReplayTally

    def __init__(self, clock: ReplayClock) -> None:
        super().__init__(clock=clock, verify=True, on_phase=lambda _change: None)
        self.tally = ReplayTally(began_at=clock.now())

    def tell(self, event: ev.AnyEvent) -> None:
        """Publish, and have the machine stand where it stood."""
        match event:
            case ev.PhaseChanged():
                self.machine.phase, self.machine.run_id = event.to, event.run_id
            case ev.LinkEvent():
                self.machine.link = event.state
            case ev.Health():
                answer = ev.Answer(
                    verdict=event.verdict,
                    why=event.why,
                    status=event.status,
                    bytes=event.bytes,
                    ms=event.ms,
                    address=event.address,
                    owner=event.owner,
                )
                for _ in range(min(event.count, 1000)):
                    self.tally.fact(ev.Answered(at=event.at, answer=answer))
            case _:
                pass
        super().tell(event)


class ReplayWaiter(Waiter):
    """For a headless replay: over when the record is, and as that was."""

    def __init__(self) -> None:
        super().__init__(until=Phase.SERVING, limits=Limits(timeout_s=float("inf")), began_at=0.0)

    def feed(self, event: ev.AnyEvent) -> Decision | None:
        """The record's ending, and nothing before it."""
        if not isinstance(event, ev.Summary):
            return None
        return Decision(outcome=event.verdict, exit_code=event.exit_code, reason=event.reason)

    def tick(self, now: float) -> Decision | None:
        """No limit fires in a recording."""
        return None


class ReplaySession:
    """A recording as a session. Raises `UsageError` where the file is none.

    Args:
        clock: the time of whoever looks on.
        speed: 10 plays ten times as fast.
        max_gap_s: where nothing happened for longer (in the record's time), the rest of that is left out.
        each: have a reader that waits take each event by itself; else a sample gives way to a newer one, as it does
            in a session.
    """

    def __init__(
        self, path: str, *, clock: Clock, speed: float = 1.0, max_gap_s: float | None = None, each: bool = False
    ) -> None:
        self._path = path
        self._max_gap_s = max_gap_s
        self._each = each
        self.head = _head(path)
        self.clock = ReplayClock(clock, start=self.head.at, speed=speed)
        self.desk: Desk = ReplayDesk(self.clock)
        self.plan = ReplaySettings()
        self.bad_lines = 0
        self.over = False
        """Played to its end."""

    def __repr__(self) -> str:
        return f"<ReplaySession {self._path}>"

    @property
    def attendance(self) -> None:
        """Nothing lives here."""
        return None

    @property
    def title(self) -> str:
        """For the header: the profile, and that it is a recording."""
        return f"{self.head.title or self.head.profile or Path(self._path).name} (recording)"

    @property
    def node(self) -> str:
        """What the user called the node then."""
        return self.head.node or "recorded"

    # ------------------------------------------------------------------------------- playing

    async def run(self) -> None:
        """Play it, then stand still at its end until cancelled."""
        await self.play()
        await asyncio.Event().wait()

    async def play(self) -> None:
        """Play it to its end; the last event is a summary, the record's own where it has one."""
        desk, clock = self.desk, self.clock
        assert isinstance(desk, ReplayDesk)
        desk.tally.mark = Evidence(kind="replay", at=self.head.at, text=self.said)
        clock.begin()
        clock.next_at = self.head.at
        last_at, at_once, summary = self.head.at, 0, None
        with closing(_lines(self._path)) as lines:
            for line in lines:
                if line.event is None:
                    self._bad(line)
                    continue
                last_at = max(last_at, line.event.at)
                at_once = await self._wait_until(last_at, at_once)
                if isinstance(line.event, ev.Summary):
                    if 0 <= line.event.exit_code <= MOST_EXIT_CODE:
                        summary = line.event
                    else:
                        self._bad(Line(line.number, why="no command ends with such an exit code"))
                    continue
                desk.tell(line.event)
                if self._each and (not isinstance(line.event, ev.Log) or line.event.living):
                    for _ in range(TURNS):
                        await asyncio.sleep(0)
        if self.bad_lines > TOLD_BAD_LINES:
            desk.warn(f"{self.bad_lines} lines of the recording could not be read")
        clock.stand(last_at)
        desk.tally.recorded = summary
        self.over = True
        desk.hub.publish(summary or self._ending(last_at))

    async def _wait_until(self, at: float, at_once: int) -> int:
        """Let the record's time come to `at`; returns how many events came without a pause."""
        clock = self.clock
        clock.next_at = at
        gap_s = at - clock.now()
        if self._max_gap_s is not None and gap_s > self._max_gap_s:
            await clock.sleep(self._max_gap_s)
            clock.arrive(at)
            return 0
        if gap_s > 0:
            await clock.sleep(gap_s)
            clock.arrive(at)
            if gap_s / clock.speed >= REST_S:
                return 0
        else:
            clock.arrive(at)
        if at_once + 1 < EVENTS_AT_A_TIME:
            return at_once + 1
        await clock.rest(REST_S)
        return 0

    def _bad(self, line: Line) -> None:
        self.bad_lines += 1
        if self.bad_lines <= TOLD_BAD_LINES:
            self.desk.warn(f"line {line.number} of the recording is left out: {line.why}")

    def _ending(self, at: float) -> ev.Summary:
        """For a record that was broken off, or is a console's, which has no verdict."""
        phase = self.desk.phase
        outcome = {Phase.SERVING: Outcome.REACHED, Phase.FAILED: Outcome.FAILED}.get(phase, Outcome.INTERRUPTED)
        reason = f"the recording ends here, without a verdict of its own; the phase is {phase.value}"
        decision = Decision(outcome=outcome, exit_code=EXIT_CODES[outcome], reason=reason)
        return Tally.summary(self.desk.tally, decision, at)

    @property
    def said(self) -> str:
        """That it is a recording, and of what."""
        speed = "" if self.clock.speed == 1 else f", played {self.clock.speed:g} times as fast"
        whose = f" of {self.head.profile} on {self.head.node}" if self.head.profile else ""
        return f"a recording{whose} ({Path(self._path).name}){speed}: nothing of it happens now"

    # ------------------------------------------------------------------------------- what cannot be

    async def stop(self, by: str | None = None, *, witness: Witness | None = None) -> Stopped | None:
        """Refused."""
        self._refuse()

    async def restart(self, *, witness: Witness | None = None) -> Stopped | None:
        """Refused."""
        self._refuse()

    async def left_overs(self) -> LeftOvers:
        """Refused."""
        self._refuse()

    async def clear(
        self, targets: Sequence[Holder], spared: Sequence[Holder], *, witness: Witness | None = None
    ) -> Cleared:
        """Refused."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise RefusedError(REFUSAL)

    async def ping(self) -> float | None:
        """There is no link."""
        return None

    async def read_log(self, offset: int, length: int) -> bytes:
        """What is not in the record cannot be had."""
        return b""

    async def count_log_lines(self, offset: int) -> int:
        """Nobody can be asked."""
        self._refuse()


# ------------------------------------------------------------------------------------------------- the file


def _open(path: str) -> BinaryIO:
    try:
        return open(path, "rb")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"--replay: {path} cannot be read: {reason}") from error


def _lines(path: str) -> Generator[Line, None, None]:
    """The events of a file, in order, and what is none. A last line that was cut off is no mistake of anybody's."""
    with _open(path) as file:
        number = 0
        while raw := file.readline(MAX_LINE_BYTES):
            number += 1
            whole = raw.endswith(b"\n")
            if not whole and len(raw) == MAX_LINE_BYTES:
                while raw and not raw.endswith(b"\n"):
                    raw = file.readline(MAX_LINE_BYTES)
                yield Line(number, why="it is too long")
                continue
            if not raw.strip():
                continue
            try:
                document = harmless(document_of(raw))
                if document.get("kind") != RECORD:
                    yield Line(number, from_object(document))
            except DecodeError as error:
                if whole:
                    yield Line(number, why=str(error))


def _head(path: str) -> Head:
    """What the file says of itself, else the time of its first event. Raises `UsageError` where it is no record."""
    with _open(path) as file:
        first = ""
        for number in range(1, LOOKED_AT_LINES + 1):
            raw = file.readline(MAX_LINE_BYTES)
            if not raw:
                break
            try:
                document = harmless(document_of(raw))
                if number == 1 and document.get("kind") == RECORD:
                    return _head_of(document)
                return Head(at=from_object(document).at)
            except DecodeError as error:
                first = first or f"line {number}: {error}"
    raise UsageError(f"--replay: {path} is no recording" + (f" ({first})" if first else ": it is empty"))


def _head_of(document: dict[str, Any]) -> Head:
    at = document.get("at")
    if not isinstance(at, str):
        raise DecodeError("it has no time")
    fields = {**document, "at": seconds(at)}
    try:
        head = msgspec.convert(fields, Head)
    except msgspec.ValidationError as error:
        raise DecodeError(str(error)) from None
    if head.version > VERSION:
        raise UsageError(f"--replay: this recording is of version {head.version}: a newer supervisor wrote it")
    return head
