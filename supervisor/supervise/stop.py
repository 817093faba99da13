"""Stops a run: the root first, the rest later, KILL at the grace; then says what is gone and what is left.

The tree is listed before the root is touched, and every signal goes to an identity, never to a bare pid.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from supervisor.adapters.base import Clock
from supervisor.adapters.node import NodeClient
from supervisor.core import events as ev

LOOK_EVERY_S = 0.1
AFTER_KILL_S = 10.0
WRITTEN_WAIT_S = 3.0
WRITTEN_EVERY_S = 0.02
RELEASE = "unproved (GPU not looked at)"


class Stopped(Struct, frozen=True, kw_only=True):
    """How a stop ended. `left` are processes that would not go."""

    gone: bool
    killed: int
    left: tuple[ev.Process, ...]
    text: str
    release: str = RELEASE


def processes(raw: list[dict[str, Any]]) -> tuple[ev.Process, ...]:
    """Processes of the node program's replies."""
    return tuple(msgspec.convert(item, ev.Process, strict=False) for item in raw)


async def stop_run(
    client: NodeClient,
    *,
    clock: Clock,
    key: str,
    run_id: str,
    root: ev.Process | None,
    by: str,
    grace_s: float,
    tell: Callable[[str], None],
) -> Stopped:
    """The transaction of CONTRACT section 6, without the proof of released memory, which it says."""
    plan = await _tree(client, key, run_id)
    for process in plan:
        tell(f"will stop pid {process.pid} (uid {process.uid}, up {process.age_s:.0f} s): {process.title[:100]}")
    await client.request("write_stop", key=key, run_id=run_id, by=by)
    began = clock.now()
    how = await _signal(client, "TERM", [p for p in plan if root is not None and p.pid == root.pid] or plan)
    to_rest, killed = False, 0
    left = plan
    while clock.now() - began < grace_s + AFTER_KILL_S:
        left = await _tree(client, key, run_id)
        if not left:
            break
        elapsed_s = clock.now() - began
        root_lives = root is not None and any(p.pid == root.pid and p.start_ticks == root.start_ticks for p in left)
        if elapsed_s >= grace_s:
            # Again at each look: a process that forks while it is being stopped has new children.
            killed += len((await _signal(client, "KILL", left))["sent"])
        elif not to_rest and (not root_lives or elapsed_s >= grace_s / 2):
            to_rest = True
            await _signal(client, "TERM", left)
        await clock.sleep(LOOK_EVERY_S)
    seconds = clock.now() - began
    if left:
        pids = ", ".join(f"{p.pid} (state {p.state}) {p.title[:60]}" for p in left)
        text = f"{len(left)} processes are still there after {seconds:.1f} s: {pids}"
        return Stopped(gone=False, killed=killed, left=left, text=text)
    await _written_down(client, clock, key, run_id)
    text = f"all {len(plan)} processes are gone after {seconds:.1f} s (signals by {how['how']}"
    text += f", {killed} by KILL)" if killed else ")"
    return Stopped(gone=True, killed=killed, left=(), text=text)


async def _written_down(client: NodeClient, clock: Clock, key: str, run_id: str) -> None:
    """Wait until the keeper has written the end down: till then the next launch would take a dead run over."""
    end = clock.now() + WRITTEN_WAIT_S
    while clock.now() < end:
        live = (await client.request("state", key=key))["live"]
        if live is None or live["run"]["run_id"] != run_id:
            return
        await clock.sleep(WRITTEN_EVERY_S)


async def _tree(client: NodeClient, key: str, run_id: str) -> tuple[ev.Process, ...]:
    return processes((await client.request("tree", key=key, run_id=run_id))["tree"])


async def _signal(client: NodeClient, name: str, targets: tuple[ev.Process, ...] | list[ev.Process]) -> dict[str, Any]:
    wire = [{"pid": item.pid, "start_ticks": item.start_ticks} for item in targets]
    return await client.request("signal", targets=wire, signal=name)
