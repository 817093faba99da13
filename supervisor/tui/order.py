"""One order of the user's (stop, restart, clear, verify) and what is known of it, from its first step to its proof.

It is the witness of what the session does. It decides nothing and draws nothing; times are the operator's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from msgspec import Struct
from msgspec.structs import replace

from supervisor.core import events as ev
from supervisor.core.claim import Claim, Identity
from supervisor.core.gpu_events import GpuEvent


class Step(Struct, frozen=True):
    """A sentence, and when it was said."""

    at: float
    text: str


class Fate(Struct):
    """One process of the order, and what became of it."""

    process: ev.Process
    seen_at: float
    held: Mapping[str, int | None] = {}
    """GPU's UUID → bytes at the start; None where the driver gives no figure."""
    signal: str = ""
    """The last one that it was sent."""
    gone_at: float | None = None


class Order:
    """What was asked for, when, and how it went.

    Args:
        kind: `stop`, `restart`, `clear` or `verify`.
        gpus: the GPUs as they were when it was given.
    """

    def __init__(self, kind: str, now: Callable[[], float], *, gpus: GpuEvent | None = None) -> None:
        self.kind = kind
        self.began_at = now()
        self.ended_at: float | None = None
        self.steps: list[Step] = []
        self.fates: dict[Identity, Fate] = {}
        self.gpus = gpus
        self.claim: Claim | None = None
        """What was held, and the idle baseline of each GPU."""
        self.text = ""
        """How it ended: the proof, or who still holds what and the next sensible step."""
        self.good: bool | None = None
        """None while it is under way."""
        self._now = now

    @property
    def under_way(self) -> bool:
        """Whether it has not ended."""
        return self.ended_at is None

    @property
    def processes(self) -> tuple[ev.Process, ...]:
        """Everybody that it concerned, in the order of their first sight."""
        return tuple(fate.process for fate in self.fates.values())

    def end(self, text: str, *, good: bool) -> None:
        """It is over; where it is proved, nobody of it is left, whatever was known of them before."""
        if good:
            self.alive(())
        self.text, self.good, self.ended_at = text, good, self._now()

    # ------------------------------------------------------------------------------- the witness

    def told(self, text: str) -> None:
        """A sentence of the transaction."""
        self.steps.append(Step(self._now(), text))

    def planned(self, processes: Collection[ev.Process], claim: Claim | None) -> None:
        """Who will be signalled."""
        if claim is not None:
            self.claim = claim
        self.alive((*self._living(), *processes))

    def signalled(self, name: str, processes: Collection[ev.Process]) -> None:
        """TERM or KILL was sent; the same once more (to children that were forked meanwhile) is no news."""
        fates = [self._fate(process) for process in processes]
        news = [fate for fate in fates if fate.signal != name]
        for fate in news:
            fate.signal = name
        if news:
            who = f"pid {news[0].process.pid}" if len(news) == 1 else f"{len(news)} processes"
            self.told(f"{name} sent to {who}")

    def alive(self, processes: Collection[ev.Process]) -> None:
        """Who lives. Whoever was there before and is not any more has gone at this moment."""
        now = self._now()
        for process in processes:
            fate = self._fate(process)
            # One that is dying loses its title: by the first one it is known.
            fate.process = replace(process, title=fate.process.title or process.title)
            fate.gone_at = None
        living = {(process.pid, process.start_ticks) for process in processes}
        for identity, fate in self.fates.items():
            if identity not in living and fate.gone_at is None:
                fate.gone_at = now

    def _living(self) -> list[ev.Process]:
        return [fate.process for fate in self.fates.values() if fate.gone_at is None]

    def _fate(self, process: ev.Process) -> Fate:
        identity = (process.pid, process.start_ticks)
        if identity not in self.fates:
            self.fates[identity] = Fate(process, self._now(), held=held_by(self.gpus, process.pid))
        return self.fates[identity]


def held_by(event: GpuEvent | None, pid: int) -> dict[str, int | None]:
    """GPU's UUID → bytes, by the driver's lists; None where one gives no figure."""
    return {
        gpu.uuid: use.used_bytes
        for gpu in (event.gpus if event is not None else ())
        for use in gpu.uses or ()
        if use.pid == pid
    }
