"""What a stop tells of itself while it goes on, for whoever shows it live. A Protocol and the one who sees nothing.

The proof never depends on it: a witness is told, and asked nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from supervisor.core import events as ev
from supervisor.core.claim import Claim


class Witness(Protocol):
    """Sees one stop (or one clearing of left-overs). Called in order; none of it may wait or raise."""

    def told(self, text: str) -> None:
        """A sentence: what is done now, or waited for."""

    def planned(self, processes: Collection[ev.Process], claim: Claim | None) -> None:
        """Who will be signalled, and what of the GPUs it holds (None: the driver has not said it yet)."""

    def signalled(self, name: str, processes: Collection[ev.Process]) -> None:
        """TERM or KILL was sent to these."""

    def alive(self, processes: Collection[ev.Process]) -> None:
        """Who lives, by a look of this moment."""


class Blind:
    """A witness that sees nothing: for a stop that nobody watches."""

    def told(self, text: str) -> None:
        """Nothing."""

    def planned(self, processes: Collection[ev.Process], claim: Claim | None) -> None:
        """Nothing."""

    def signalled(self, name: str, processes: Collection[ev.Process]) -> None:
        """Nothing."""

    def alive(self, processes: Collection[ev.Process]) -> None:
        """Nothing."""
