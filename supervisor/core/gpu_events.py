"""The two events about GPUs, a node's GPUs as they are and who holds their memory, and how a look becomes them. Pure.

They stand beside `events.py`, not in it, so that a wait for a plain URL need not load what a holder is. Titles are
bytes of somebody else's processes: nothing of them may drive a terminal, so they are made safe here, once.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from supervisor.core.events import Event
from supervisor.core.gpu import Coverage, Driver, Gpu, Snapshot
from supervisor.core.holder import Holder
from supervisor.core.lines import sanitise


class GpuEvent(Event, frozen=True, kw_only=True, tag="gpu"):
    """One look at the GPUs of one node."""

    host: str
    """As the user named it."""
    driver: Driver
    gpus: tuple[Gpu, ...] = ()
    sampled_at: float | None = None
    """When the driver told `gpus`: older than `at` where it does not answer."""
    ours_bytes: int | None = None
    """What the attended run holds by the driver's lists; None without a run, or where a figure is missing."""


class Holders(Event, frozen=True, kw_only=True, tag="holders"):
    """Who holds GPU memory on one node."""

    host: str
    coverage: Coverage
    """Whose descriptors could be read."""
    container: bool = False
    """Seen from inside a pid namespace of its own: who is outside has no name here."""
    holders: tuple[Holder, ...] = ()


def safe(snapshot: Snapshot) -> Snapshot:
    """The same look with every text of the node made safe to show."""
    return replace(
        snapshot,
        driver=replace(snapshot.driver, why=sanitise(snapshot.driver.why)),
        gpus=tuple(
            replace(gpu, name=sanitise(gpu.name), why=sanitise(gpu.why), bus_id=sanitise(gpu.bus_id))
            for gpu in snapshot.gpus
        ),
        processes=tuple(
            replace(
                item, title=_line(item.title), comm=_line(item.comm), user=_line(item.user), run_id=_id(item.run_id)
            )
            for item in snapshot.processes
        ),
        past=tuple(replace(item, title=_line(item.title), run_id=_id(item.run_id)) for item in snapshot.past),
    )


def _line(text: str) -> str:
    return sanitise(" ".join(text.split()))


def _id(run_id: str | None) -> str | None:
    """Anybody can set the variable that a run's id stands in; ours are short words."""
    return None if run_id is None else _line(run_id)[:64]


def ours_bytes(snapshot: Snapshot, run_id: str, tree: Iterable[int]) -> int | None:
    """What a run holds: by its tree's pids, and by the run that a process carries."""
    ours = {*tree, *(item.pid for item in snapshot.processes if item.run_id == run_id)}
    spaces = list(snapshot.spaces())
    amounts = [use.used_bytes for gpu in spaces for use in gpu.uses or () if use.pid in ours]
    if any(gpu.uses is None for gpu in spaces) or None in amounts:
        return None
    return sum(filter(None, amounts))


def gpu_event(snapshot: Snapshot, host: str, at: float, *, ours_bytes: int | None = None) -> GpuEvent:
    """The look at the GPUs as an event; node times become the operator's."""
    offset_s = snapshot.at - at
    sampled_at = None if snapshot.sampled_at is None else snapshot.sampled_at - offset_s
    return GpuEvent(
        at=at,
        host=host,
        driver=snapshot.driver,
        gpus=tuple(_here(gpu, offset_s) for gpu in snapshot.gpus),
        sampled_at=sampled_at,
        ours_bytes=ours_bytes,
    )


def holders_event(snapshot: Snapshot, holders: tuple[Holder, ...], host: str, at: float) -> Holders:
    """The holders of a look as an event."""
    offset_s = snapshot.at - at
    return Holders(
        at=at,
        host=host,
        coverage=snapshot.coverage,
        container=snapshot.container,
        holders=tuple(
            item if item.started_at is None else replace(item, started_at=item.started_at - offset_s)
            for item in holders
        ),
    )


def named(holders: tuple[Holder, ...], host: str) -> tuple[Holder, ...]:
    """The same with the node's name in the commands that the advice gives."""
    return tuple(replace(item, advice=item.advice.replace(" HOST ", f" {host} ")) for item in holders)


def _here(gpu: Gpu, offset_s: float) -> Gpu:
    return gpu if gpu.xid is None else replace(gpu, xid=replace(gpu.xid, at=gpu.xid.at - offset_s))
