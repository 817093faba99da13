"""What of the holders may be ended by hand, and how that is told: for the zombies command and the console. Pure.

Who is what was decided before (`holders.py`); here it is only read. Protected means never, pre-selected means ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from supervisor.core.gpu import Coverage, DriverState, Snapshot, gib
from supervisor.core.holder import Holder, HolderClass
from supervisor.core.lines import sanitise


def why_not(holder: Holder, uid: int) -> str:
    """Why a holder may not be ended by its pid, with what else to do; empty where it may. `uid`: ours on the node."""
    if holder.pid is None:
        return f"there is no process that could be ended: {holder.advice}".rstrip(": ")
    if holder.class_ is HolderClass.PROTECTED:
        return f"pid {holder.pid} is protected, and never touched: {sanitise(' '.join(holder.evidence[-1:]))}"
    if holder.killable == "no":
        return f"pid {holder.pid} ({holder.class_}) is not to be ended by its pid: {holder.advice}"
    if holder.killable == "root" and uid != 0:
        owner = holder.user or f"uid {holder.uid}"
        return f"pid {holder.pid} belongs to {owner}: ask, or as root: sudo kill {holder.pid}"
    return ""


def by_hand(holder: Holder) -> bool:
    """Whether its pid has to be typed: it is another user's."""
    return holder.killable == "root"


def runs_of(targets: Iterable[Holder]) -> list[str]:
    """The ended runs of ours of which everything goes with them."""
    return sorted({item.run_id for item in targets if item.class_ is HolderClass.OURS_ORPHAN and item.run_id})


def places(holder: Holder, snapshot: Snapshot) -> list[str]:
    """["70.8 GiB on GPU 0"], empty for one that holds nothing."""
    return [f"{gib(amount)} on {snapshot.label(uuid)}" for uuid, amount in holder.held.items()]


def count_words(zombies: Sequence[Holder]) -> str:
    """ "no left-over holders", "2 left-over holders with 84.0 GiB"."""
    if not zombies:
        return "no left-over holders"
    known = [amount for holder in zombies for amount in holder.held.values() if amount is not None]
    unknown = any(amount is None for holder in zombies for amount in holder.held.values())
    amount = f" with {'at least ' if unknown else ''}{gib(sum(known))}" if known else ""
    return f"{len(zombies)} left-over holder{'' if len(zombies) == 1 else 's'}{amount}"


def not_seen(snapshot: Snapshot) -> str:
    """What "none" would not cover; empty where everything was looked at."""

    if snapshot.driver.state in (DriverState.OK, DriverState.ABSENT):
        return ""
    files = (
        "every process's device files were looked at"
        if snapshot.coverage is Coverage.ALL
        else "only our own processes' device files could be looked at"
    )
    return f"{files}, and memory without a process was not ({snapshot.driver.why})"
