"""What the three voices have in common: the script of a start, as points in time between which they speak.

A voice only writes; it never waits. life.py plays its scripts, and decides at the marks whether a fault strikes.
"""

from __future__ import annotations

import time
from typing import Iterator, Tuple

from . import output
from .options import Options
from .workers import Crew

# A script yields (when, mark): it goes on once `when`, a fraction of the phase, is reached. Marks are the places where
# a fault may strike: "weights", "graphs" and "warmup" lie amid their stage.
Point = Tuple[float, str]
Script = Iterator[Point]


class Voice:
    """One engine's way to talk. What a subclass leaves out is silent."""

    def __init__(self, options: Options, crew: Crew) -> None:
        self.options = options
        self.crew = crew
        self.load_began = time.monotonic()
        self.held_gb = 0.0

    def elapsed_s(self) -> float:
        return time.monotonic() - self.load_began

    def hold(self, gb: float, percent: int = 0) -> None:
        """From now on each rank holds so much of its GPU, and keeps it busy."""
        self.held_gb = gb
        self.crew.hold(gb, percent)

    def busy(self, percent: int) -> None:
        """As much as before, and so busy."""
        self.crew.hold(self.held_gb, percent)

    def avail_gb(self, rank: int) -> float:
        """What is free on a rank's GPU."""
        return max(0.0, self.options.card_gb - self.held_gb - self.crew.gpus.taken_gb(rank))

    def loading(self) -> Script:
        """The load, up to where the engine's HTTP side comes up."""
        raise NotImplementedError

    def http_up(self) -> None:
        """It listens (SGLang), or is about to (vLLM)."""

    def warming(self) -> Script:
        """The phase in which health is 503."""
        yield 0.0, "warmup"

    def ready(self) -> None:
        """Health is 200 from now on."""

    def port_taken(self) -> None:
        raise NotImplementedError

    def death(self, stage: str) -> None:
        """The traceback of a death at "weights", "graphs", "warmup" or "serving", with the noise around it."""
        raise NotImplementedError

    def child_died(self, title: str, pid: int, code: int, serving: bool) -> None:
        """A child ended unasked."""

    def child_death_settled(self) -> None:
        """The last words after it."""

    def stopping(self, number: int) -> None:
        """The first words of a graceful stop."""

    def stopped(self) -> None:
        """The last ones."""

    def access(self, client: str, method: str, path: str, status: int, reason: str) -> None:
        """A request was answered."""

    def generation(self, prompt_tokens: int, running: int) -> None:
        """A request went to the model."""

    def generated(self, prompt_tokens: int, tokens: int, seconds: float) -> None:
        """It came back."""

    def batch(self, running: int, queued: int, tokens_s: float, used_tokens: int) -> None:
        """The traffic of the last moments."""

    def health_gave_up(self) -> None:
        """No sign of the model within the health timeout."""

    def tick(self) -> None:
        """Called every ten seconds while it serves."""

    def cause(self, usual: str) -> str:
        """The root line of a death."""
        return self.options.cause or usual


def frames(*places: str) -> list[str]:
    """Lines of a traceback from "file:line:function" places."""
    lines = []
    for place in places:
        file, number, function = place.rsplit(":", 2)
        lines.append(f'  File "{file}", line {number}, in {function}')
    return lines


def say_all(lines: list[str], prefix: str = "") -> None:
    """All of them in one write, so that no other process's line comes between."""
    output.write("".join(f"{prefix}{line}\n" for line in lines))
