"""When a wait is over, and how: pure, fed with events, told the time.

It knows the target phase and the limits of one command. It does not know what is waited for, nor how that is shown.
Every limit is named in words when it fires, since "timeout" alone has sent users after the wrong cause.
"""

from __future__ import annotations

from msgspec import Struct

from supervisor.core import events as ev
from supervisor.core.events import LinkState, Outcome, Phase

EXIT_CODES = {
    Outcome.REACHED: 0,
    Outcome.FAILED: 1,
    Outcome.REFUSED: 4,
    Outcome.TIMEOUT: 124,
    Outcome.UNREACHABLE: 3,
    Outcome.INTERRUPTED: 130,
}
MEMORY_STEP_BYTES = 64 << 20
"""Less than this is no sign of life: a server that hangs still allocates a little."""
VERIFICATION = "verification"
"""`Finding.detail` of a verification that used up its tries."""
_REACHED = {
    Phase.HEALTHY: {Phase.HEALTHY, Phase.SERVING},
    Phase.SERVING: {Phase.SERVING},
}


class Decision(Struct, frozen=True, kw_only=True):
    """How a wait ended."""

    outcome: Outcome
    exit_code: int
    reason: str


class Limits(Struct, frozen=True, kw_only=True):
    """The limits of one wait, in seconds, each with the words that name where it came from."""

    timeout_s: float
    timeout_from: str = "--timeout"
    stall_s: float | None = None
    link_timeout_s: float = 300.0


class Waiter:
    """Feed it the events of a run in order, and ask it at `deadline`.

    Args:
        until: `healthy` or `serving`.
        began_at: when this command started; the timeout counts from there.
    """

    def __init__(self, *, until: Phase, limits: Limits, began_at: float) -> None:
        self.until = until
        self.limits = limits
        self._began_at = began_at
        self._moved_at = began_at
        self._moved_what = "nothing was seen yet"
        self._held_bytes = 0
        self._link: ev.LinkEvent | None = None
        self._answer: tuple[object, ...] = ()
        self._place: tuple[object, ...] = ()

    @property
    def deadline(self) -> float:
        """The next time at which a limit can fire."""
        return min(self._timeout_at, self._stall_at or self._timeout_at, self._link_at or self._timeout_at)

    @property
    def _timeout_at(self) -> float:
        return self._began_at + self.limits.timeout_s

    @property
    def _stall_at(self) -> float | None:
        # Nothing is seen over a lost link, so nothing can be said to stand still: the limit for that is the link's.
        if self.limits.stall_s is None or self._link_at is not None:
            return None
        return self._moved_at + self.limits.stall_s

    @property
    def _link_at(self) -> float | None:
        lost = self._link is not None and self._link.state is not LinkState.UP
        return self._link.at + self.limits.link_timeout_s if lost and self._link is not None else None

    def feed(self, event: ev.AnyEvent) -> Decision | None:
        """Take one event; the decision if it ends the wait."""
        match event:
            case ev.PhaseChanged():
                self._moved(event.at, f"the phase became {event.to.value}")
                return self._on_phase(event)
            case ev.LinkEvent():
                if event.state is LinkState.UP:
                    self._moved(event.at, "the link came up")
                if self._link is None or self._link.state is LinkState.UP or event.state is LinkState.UP:
                    self._link = event  # the time of the loss stays while reconnecting
            case ev.Log() | ev.LogBlock():
                self._moved(event.at, "the log grew")
            case ev.Progress():
                self._on_progress(event)
            case ev.Finding():
                return self._on_finding(event)
            case ev.Health():
                kind = (event.verdict, event.status)
                if kind != self._answer:
                    self._answer = kind
                    self._moved(event.at, "the answer changed")
            case _ if (held := getattr(event, "ours_bytes", None)) is not None:
                if abs(held - self._held_bytes) >= MEMORY_STEP_BYTES:
                    self._held_bytes = held
                    self._moved(event.at, "its GPU memory changed")
            case _:
                pass
        return None

    def _on_progress(self, event: ev.Progress) -> None:
        """A new estimate of a stage that stands still is no movement; compilers that work in its silence are one."""
        place = (event.stage, event.done, event.fraction)
        if place != self._place:
            self._place = place
            self._moved(event.at, f"{event.stage} went on")
        elif event.signs:
            self._moved(event.at, event.signs)

    def _moved(self, at: float, what: str) -> None:
        self._moved_at, self._moved_what = at, what

    def _on_phase(self, event: ev.PhaseChanged) -> Decision | None:
        text = "; ".join(item.text for item in event.evidence)
        if event.to in _REACHED[self.until]:
            return _decision(Outcome.REACHED, f"{event.to.value}: {text}")
        if event.to is Phase.FAILED:
            return _decision(Outcome.FAILED, f"the server failed: {text}")
        if event.to is Phase.STOPPED:
            return _decision(Outcome.FAILED, f"the server was stopped while this command waited: {text}")
        if event.from_ is not Phase.IDLE and event.to is Phase.IDLE:
            return _decision(Outcome.REFUSED, f"refused before anything was launched: {text}")
        return None

    def _on_finding(self, finding: ev.Finding) -> Decision | None:
        """Verification used up its tries: the end of a wait for `serving`, nothing to one for `healthy`."""
        if finding.detail != VERIFICATION or self.until is not Phase.SERVING:
            return None
        return _decision(Outcome.FAILED, f"it answers its health endpoint, and verification failed: {finding.cause}")

    def tick(self, now: float) -> Decision | None:
        """The decision if a limit has fired at `now`."""
        link_at, stall_at = self._link_at, self._stall_at
        if link_at is not None and now >= min(link_at, self._timeout_at):
            assert self._link is not None
            which = f"--link-timeout {_seconds(self.limits.link_timeout_s)}"
            if self._timeout_at < link_at:
                which = f"{self.limits.timeout_from} {_seconds(self.limits.timeout_s)}"
            text = f"the link is {self._link.state.value} since {now - self._link.at:.0f} s ({self._link.why})"
            return _decision(Outcome.UNREACHABLE, f"{text}, and {which} fired; what the server does now is not known")
        if now >= self._timeout_at:
            limit = f"{self.limits.timeout_from} {_seconds(self.limits.timeout_s)}"
            return _decision(Outcome.TIMEOUT, f"not {self.until.value} in time: {limit} fired")
        if stall_at is not None and now >= stall_at:
            assert self.limits.stall_s is not None
            text = f"nothing moved for {_seconds(self.limits.stall_s)}: --stall fired (last: {self._moved_what})"
            return _decision(Outcome.TIMEOUT, text)
        return None


class StatusWaiter(Waiter):
    """For the status command: over as soon as it is known where the run stands, whatever that is."""

    OTHER = 5

    def feed(self, event: ev.AnyEvent) -> Decision | None:
        """Serving ends it with 0, failed and degraded with 1, any other certainty with 5."""
        match event:
            case ev.PhaseChanged() if event.to in (Phase.STOPPED, Phase.STOPPING):
                return self._other(f"{event.to.value}: " + "; ".join(item.text for item in event.evidence))
            case ev.PhaseChanged() if event.to is Phase.DEGRADED:
                return _decision(Outcome.FAILED, "degraded: " + "; ".join(item.text for item in event.evidence))
            case ev.Health() if event.verdict is not ev.Verdict.READY:
                status = f"{event.status}: " if event.status is not None else ""
                return self._other(f"not ready: {status}{event.why}")
            case _:
                return super().feed(event)

    def tick(self, now: float) -> Decision | None:
        """Its own time limit is no failure of the server."""
        decision = super().tick(now)
        if decision is not None and decision.outcome is Outcome.TIMEOUT:
            return self._other(f"no answer yet: {decision.reason}")
        return decision

    def _other(self, reason: str) -> Decision:
        return Decision(outcome=Outcome.TIMEOUT, exit_code=self.OTHER, reason=reason)


def _decision(outcome: Outcome, reason: str) -> Decision:
    return Decision(outcome=outcome, exit_code=EXIT_CODES[outcome], reason=reason)


def _seconds(value: float) -> str:
    if value >= 60 and value % 60 == 0:
        return f"{value / 60:g}m"
    return f"{value:g}s"
