"""Ends a set of processes: TERM, the rest later, KILL at the grace, listing them anew before every signal.

What it lists and signals is given from outside; it knows no run and no GPU. Every signal goes to an identity, and the
node program reads that again right before it signals.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec
from msgspec import Struct

from supervisor.adapters.base import Clock
from supervisor.adapters.node import NodeClient
from supervisor.core import events as ev
from supervisor.core.claim import Identity
from supervisor.supervise.witness import Blind, Witness

LOOK_EVERY_S = 0.1
AFTER_KILL_S = 10.0

Lister = Callable[[Iterable[Identity]], Awaitable[tuple[ev.Process, ...]]]
"""The living processes; the argument names those that were listed before, wherever they have gone since."""


class TakenDown(Struct, frozen=True, kw_only=True):
    """How it ended."""

    left: tuple[ev.Process, ...]
    killed: int
    took_s: float
    how: str
    """`pidfd`, or `identity` on an old kernel."""
    denied: frozenset[int]
    """Pids that we may not signal."""
    parents: dict[Identity, int]
    """The first parent that was seen of each."""


def processes(raw: list[dict[str, Any]]) -> tuple[ev.Process, ...]:
    """Processes of the node program's replies."""
    return tuple(msgspec.convert(item, ev.Process, strict=False) for item in raw)


def identities(tree: Iterable[ev.Process]) -> list[Identity]:
    """Who they are."""
    return [(item.pid, item.start_ticks) for item in tree]


def wire(known: Iterable[Identity]) -> list[dict[str, int]]:
    """Identities as the node program takes them."""
    return [{"pid": pid, "start_ticks": ticks} for pid, ticks in known]


async def take_down(
    client: NodeClient,
    plan: tuple[ev.Process, ...],
    *,
    clock: Clock,
    lister: Lister,
    root: ev.Process | None,
    grace_s: float,
    saw: Callable[[Iterable[Identity]], None],
    witness: Witness | None = None,
) -> TakenDown:
    """TERM to the root alone (to all where there is none), to the rest when it is gone or half the grace is over."""
    watched = witness or Blind()
    began = clock.now()
    seen: dict[Identity, int] = {(item.pid, item.start_ticks): item.ppid for item in plan}
    wanted = (root.pid, root.start_ticks) if root is not None else None
    first = [item for item in plan if (item.pid, item.start_ticks) == wanted] or list(plan)
    told = await signal(client, "TERM", first)
    watched.signalled("TERM", first)
    denied: set[int] = set(told["denied"])
    killed: set[Identity] = set()
    to_rest = len(first) == len(plan)
    left = plan
    while clock.now() - began < grace_s + AFTER_KILL_S:
        left = await lister(seen)
        for item in left:
            seen.setdefault((item.pid, item.start_ticks), item.ppid)
        saw(identities(left))
        watched.alive(left)
        if not left:
            break
        elapsed_s = clock.now() - began
        if elapsed_s >= grace_s:
            # Again at each look: a process that forks while it is being stopped has new children.
            reply = await signal(client, "KILL", left)
            watched.signalled("KILL", [item for item in left if item.pid in reply["sent"]])
            denied.update(reply["denied"])
            killed.update(item for item in identities(left) if item[0] in reply["sent"])
        elif not to_rest and (wanted not in identities(left) or elapsed_s >= grace_s / 2):
            to_rest = True
            rest = [item for item in left if (item.pid, item.start_ticks) != wanted]
            denied.update((await signal(client, "TERM", rest))["denied"])
            watched.signalled("TERM", rest)
        await clock.sleep(LOOK_EVERY_S)
    return TakenDown(
        left=left, killed=len(killed), took_s=clock.now() - began, how=told["how"], denied=frozenset(denied),
        parents=seen,
    )  # fmt: skip


async def signal(client: NodeClient, name: str, targets: Iterable[ev.Process]) -> dict[str, Any]:
    """Signal each whose identity still holds; the node's reply tells who got it."""
    return await client.request("signal", targets=wire(identities(targets)), signal=name)


def planned(process: ev.Process, held: dict[int, str]) -> str:
    """The line of the plan: who will be stopped, and what of the GPUs it holds."""
    memory = f", {held[process.pid]}" if process.pid in held else ""
    return f"will stop pid {process.pid} (uid {process.uid}, up {process.age_s:.0f} s{memory}): {process.title[:100]}"


def still_there(taken: TakenDown) -> str:
    """ "2 processes are still there"."""
    count = len(taken.left)
    return "1 process is still there" if count == 1 else f"{count} processes are still there"


def why_left(taken: TakenDown, held: dict[int, str]) -> str:
    """Who would not go, what it still holds, why, and the next sensible step."""
    parts = []
    for item in taken.left[:5]:
        memory = f" with {held[item.pid]}" if item.pid in held else ""
        parts.append(f"pid {item.pid} {item.title[:60]}{memory}: {_why(item, taken)}")
    more = f" and {len(taken.left) - 5} more" if len(taken.left) > 5 else ""
    return f"{still_there(taken)} after {taken.took_s:.1f} s: " + "; ".join(parts) + more


def _why(item: ev.Process, taken: TakenDown) -> str:
    if item.state == "D":
        return "in state D, it waits in the kernel and no signal reaches it: reset the GPU or reboot the node"
    if item.pid in taken.denied:
        return f"it belongs to uid {item.uid} and not to us; as root: kill -KILL {item.pid}"
    if item.state == "Z":
        return f"its main thread has ended and others live; its parent is pid {item.ppid}"
    parent = taken.parents.get((item.pid, item.start_ticks), item.ppid)
    moved = f", its parent is pid {item.ppid} now" if parent != item.ppid else ""
    return f"KILL was sent and it is still there (state {item.state}){moved}; look at what it waits for"
