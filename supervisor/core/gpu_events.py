"""The two events about GPUs: a node's GPUs as they are, and who holds their memory. No behaviour.

They stand beside `events.py`, not in it, so that a wait for a plain URL need not load what a holder is.
"""

from __future__ import annotations

from supervisor.core.events import Event
from supervisor.core.gpu import Coverage, Driver, Gpu
from supervisor.core.holder import Holder


class GpuEvent(Event, frozen=True, kw_only=True, tag="gpu"):
    """One look at the GPUs of one node."""

    host: str
    """As the user named it."""
    driver: Driver
    gpus: tuple[Gpu, ...] = ()
    sampled_at: float | None = None
    """When the driver told `gpus`: older than `at` where it does not answer."""


class Holders(Event, frozen=True, kw_only=True, tag="holders"):
    """Who holds GPU memory on one node."""

    host: str
    coverage: Coverage
    """Whose descriptors could be read."""
    container: bool = False
    """Seen from inside a pid namespace of its own: who is outside has no name here."""
    holders: tuple[Holder, ...] = ()
