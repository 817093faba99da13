"""A look at who holds a node's GPU memory, for whoever asks what is left over there: the command and the console.

It looks and names, nothing else: what may be ended is `core/left_over.py`'s, the deed is `clear.py`'s.
"""

from __future__ import annotations

from msgspec import Struct

from supervisor.adapters import gpu
from supervisor.adapters.base import Clock
from supervisor.adapters.node import NodeClient
from supervisor.core.gpu import Snapshot
from supervisor.core.gpu_events import named, safe
from supervisor.core.holders import Holder, classify
from supervisor.core.known import Known

GRACE_S = 30.0
"""From TERM to KILL for a left-over: it has no engine that could know better."""


class LeftOvers(Struct, frozen=True):
    """One look, every text in it safe to show. `snapshot.at` and the ages are by the node's clock."""

    snapshot: Snapshot
    holders: tuple[Holder, ...]

    @property
    def zombies(self) -> tuple[Holder, ...]:
        """Those that belong to no living server."""
        return tuple(holder for holder in self.holders if holder.zombie)


async def look(client: NodeClient, *, clock: Clock, known: Known, name: str) -> LeftOvers:
    """Look until ghost memory can be told. `name`: of the node, for advice that can be typed.

    Raises `UnreachableError`, `NodeRequestError`.
    """
    snapshot = safe(await gpu.settled_look(client, clock=clock))
    return LeftOvers(snapshot, named(classify(snapshot, known), name))
