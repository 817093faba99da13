"""What is worth a message: served, failed, degraded, recovered, stopped by somebody else. Pure.

RULES
 1. At most one message a change, and none for what the user himself has just ordered.
 2. A server that served already when we came is no news; one that was seen coming up is.
 3. What changes again and again does not spam: after `BURST` messages within `WINDOW_S` it is silent until things have
    stayed as they are for `QUIET_S`, and then tells how they stand, if that is not what was told last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from supervisor.core import events as ev
from supervisor.core.events import Phase, Verdict
from supervisor.core.lines import sanitise
from supervisor.core.wait import VERIFICATION

BURST = 4
WINDOW_S = 600.0
QUIET_S = 300.0
MAX_TEXT = 400
"""Characters: a notification of a desktop shows less, a chat's message not much more."""


class NoticeKind(StrEnum):
    """What happened."""

    SERVED = "served"
    FAILED = "failed"
    DEGRADED = "degraded"
    RECOVERED = "recovered"
    STOPPED = "stopped"


WANTED = (NoticeKind.SERVED, NoticeKind.FAILED, NoticeKind.DEGRADED, NoticeKind.STOPPED)
"""What may be asked for by name; who hears of `degraded` hears of the recovery too."""

_TITLES = {
    NoticeKind.SERVED: "{} serves",
    NoticeKind.FAILED: "{} failed",
    NoticeKind.DEGRADED: "{} is degraded",
    NoticeKind.RECOVERED: "{} serves again",
    NoticeKind.STOPPED: "{} was stopped",
}
_UP = {NoticeKind.SERVED, NoticeKind.RECOVERED}


class Notice(Struct, frozen=True, kw_only=True):
    """One message. Safe to show: nothing in it drives a terminal."""

    at: float
    kind: NoticeKind
    title: str
    """A few words, with the profile's name."""
    text: str
    """Why it is known: the evidence, or the cause of the failure."""
    phase: Phase
    run_id: str = ""


class Notices:
    """Feed it the stream of one profile, in order; it gives messages.

    Args:
        name: the profile's, for the titles.
    """

    def __init__(self, name: str) -> None:
        self._name = _short(name, 80)
        self._own_stop = False
        self._seen_coming = False
        self._phase = Phase.IDLE
        self._run_id = ""
        self._stop_why = ""
        self._failure: ev.PhaseChanged | None = None
        self._last: NoticeKind | None = None
        self._times: deque[float] = deque(maxlen=BURST)
        self._held: Notice | None = None
        self._held_count = 0

    # ------------------------------------------------------------------------------- what the user does

    def ordered(self, kind: str) -> None:
        """The user has just given an order (stop, restart, clear): its own consequence is no news to him."""
        self._own_stop = kind in ("stop", "restart")
        self._times.clear()
        self._held = None

    def order_over(self) -> None:
        """The order has ended, or failed: from here on a stop is somebody else's."""
        self._own_stop = False

    # ------------------------------------------------------------------------------- the stream

    def take(self, events: Iterable[ev.AnyEvent]) -> list[Notice]:
        """The messages that a batch is worth. A failure and its finding come in one batch, and are one message."""
        out: list[Notice] = []
        for event in events:
            if self._failure is not None:
                cause = event.cause if isinstance(event, ev.Finding) else ""
                out += self._failed(cause)
            match event:
                case ev.PhaseChanged():
                    out += self._changed(event)
                case ev.Health() if event.verdict is not Verdict.READY:
                    self._seen_coming = True
                case ev.Finding() if event.detail == VERIFICATION and self._phase is Phase.HEALTHY:
                    out += self._news(NoticeKind.FAILED, event.at, f"it answers, and {event.cause}")
                case _:
                    pass
        if self._failure is not None:
            out += self._failed("")
        return out

    def _changed(self, change: ev.PhaseChanged) -> list[Notice]:
        before, self._phase = self._phase, change.to
        self._run_id = change.run_id or self._run_id
        text = "; ".join(item.text for item in change.evidence)
        match change.to:
            case Phase.PREFLIGHT:
                self._seen_coming, self._own_stop, self._stop_why = False, False, ""
            case Phase.LAUNCHING | Phase.QUEUED | Phase.WARMING:
                self._seen_coming = True
            case Phase.SERVING if before is Phase.DEGRADED:
                return self._news(NoticeKind.RECOVERED, change.at, text)
            case Phase.SERVING if self._seen_coming:
                return self._news(NoticeKind.SERVED, change.at, text)
            case Phase.SERVING:
                self._last = NoticeKind.SERVED  # not told, and known
            case Phase.DEGRADED:
                return self._news(NoticeKind.DEGRADED, change.at, text)
            case Phase.FAILED:
                self._failure = change
            case Phase.STOPPING:
                self._stop_why = text
            case Phase.STOPPED if not self._own_stop:
                return self._news(NoticeKind.STOPPED, change.at, "; ".join(filter(None, (self._stop_why, text))))
            case _:
                pass
        return []

    def _failed(self, cause: str) -> list[Notice]:
        change, self._failure = self._failure, None
        assert change is not None
        text = "; ".join(item.text for item in change.evidence)
        return self._news(NoticeKind.FAILED, change.at, f"{cause} ({text})" if cause else text)

    # ------------------------------------------------------------------------------- not too many

    @property
    def deadline(self) -> float | None:
        """When `tick` may have something to say, None when time alone brings nothing."""
        return self._held.at + QUIET_S if self._held is not None else None

    def tick(self, now: float) -> list[Notice]:
        """What was held back and has become true for good."""
        held, count = self._held, self._held_count
        if held is None or now < held.at + QUIET_S:
            return []
        self._held = None
        self._times.clear()
        if _state(held.kind) == _state(self._last):
            return []
        self._last = held.kind
        self._times.append(now)
        more = f"{held.text} (since {QUIET_S / 60:.0f} min; {count} changes were not told)"
        return [replace(held, text=_short(more))]

    def _news(self, kind: NoticeKind, at: float, text: str) -> list[Notice]:
        notice = Notice(
            at=at,
            kind=kind,
            title=_TITLES[kind].format(self._name),
            text=_short(text),
            phase=self._phase,
            run_id=self._run_id,
        )
        if self._held is not None and at >= self._held.at + QUIET_S:
            self._held = None
            self._times.clear()
        while self._times and at - self._times[0] >= WINDOW_S:
            self._times.popleft()
        if self._held is not None or len(self._times) >= BURST:
            self._held_count = self._held_count + 1 if self._held is not None else 1
            self._held = notice
            return []
        self._times.append(at)
        self._last, self._held = kind, None
        if len(self._times) == BURST:
            hint = f"It changes often: the next news comes when it has stayed as it is for {QUIET_S / 60:.0f} min."
            return [replace(notice, text=f"{_short(text, MAX_TEXT - len(hint) - 1)} {hint}")]
        return [notice]


def _state(kind: NoticeKind | None) -> str:
    return "up" if kind in _UP else str(kind)


def _short(text: str, length: int = MAX_TEXT) -> str:
    text = " ".join(sanitise(text).split())
    return text if len(text) <= length else text[: length - 1] + "…"
