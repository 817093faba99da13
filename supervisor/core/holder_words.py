"""How holders are called in one line: by the launch gate, and where many alike are told as one. Pure.

A GPU's label is `Snapshot.label`, an age `lineage.spell_age`: the same everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from supervisor.core.holders import Holder, HolderClass
from supervisor.core.lineage import spell_age

ALIKE_FROM = 9
"""So many holders that differ in nothing but their pid are told as one; the ranks of eight GPUs never are."""
PIDS_SHOWN = 3
_NUMBERS = re.compile(r"\d+", re.ASCII)

_WORDS = {
    HolderClass.TEARDOWN: "gone, its memory is being released",
    HolderClass.HEIR: "which has what a dead process held",
    HolderClass.FOREIGN_ORPHAN: "left over from a server that is not one of our runs",
    HolderClass.ENGINE_LIVE: "a live server that is not one of our runs",
    HolderClass.DEFUNCT: "dead, not reaped",
    HolderClass.UNINTERRUPTIBLE: "stuck in the kernel",
    HolderClass.OTHER_NAMESPACE: "in another container or on the host",
    HolderClass.SHARED: "a service that others share",
    HolderClass.PROCESS: "",
}


def words(class_: HolderClass) -> str:
    """What a class means, in a few words; empty for one that needs its run or its user beside it."""
    return _WORDS.get(class_, "")


def alike(holders: Iterable[Holder]) -> list[tuple[Holder, ...]]:
    """Holders in groups, in the order in which the first of each comes; most groups are of one."""
    found = [(_face(holder), holder) for holder in holders]
    groups: dict[object, list[Holder]] = {}
    for face, holder in found:
        groups.setdefault(face, []).append(holder)
    out: list[tuple[Holder, ...]] = []
    for face, holder in found:
        group = groups[face]
        if len(group) < ALIKE_FROM or holder.pid is None:
            out.append((holder,))
        elif group[0] is holder:
            out.append(tuple(group))
    return out


def _face(holder: Holder) -> object:
    """What is the same of holders that are told as one."""
    title = _NUMBERS.sub("#", holder.title or holder.comm)
    may = (holder.zombie, holder.killable, holder.preselected)
    return (holder.class_, title, holder.uid, holder.run_id, may, frozenset(holder.held))


def held_of(group: Sequence[Holder], uuid: str) -> int | None:
    """What a group holds of a GPU; None where any figure is missing."""
    amounts = [holder.held.get(uuid) for holder in group]
    return None if None in amounts else sum(amount or 0 for amount in amounts)


def pids(group: Sequence[Holder], most: int | None = PIDS_SHOWN) -> str:
    """ "pids 801, 802, 803 and 123 more"."""
    numbers = [str(holder.pid) for holder in group]
    if most is None or len(numbers) <= most + 1:
        return f"pids {', '.join(numbers)}"
    return f"pids {', '.join(numbers[:most])} and {len(numbers) - most} more"


def who(group: Sequence[Holder], now: float) -> str:
    """ "pid 4711 sglang::scheduler_TP3, orphan of run …, 2 h old"; of many alike: "126 processes pt_data_worker …"."""
    holder, many = group[0], len(group) > 1
    title = (holder.title or holder.comm)[:80]
    text = f"{len(group)} processes {title} ({pids(group)})" if many else f"pid {holder.pid} {title}".rstrip()
    if holder.class_ is HolderClass.OURS_ORPHAN:
        orphan = "orphans" if many else "orphan"
        text += f", {orphan} of run {holder.run_id}" if holder.run_id else f", {orphan} of ours"
    elif holder.class_ is HolderClass.OURS_LIVE:
        text += f", of the live run {holder.run_id}"
    elif holder.class_ is HolderClass.OTHER_USER:
        text += f", of user {holder.user or holder.uid}"
    elif words := _WORDS.get(holder.class_, str(holder.class_)):
        text += f" ({words})"
    started = [item.started_at for item in group if item.started_at]
    return f"{text}, {spell_age(now - min(started))} old" if started else text
