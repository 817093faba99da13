"""The rows of the start screen: known profiles with the live runs that were found of them, live runs without a profile,
the demonstration. Pure.

A run is told to be a profile's by its key and its node, as the node's records have them. That it lives is by those
records; what its health answered is one look, and never "serving".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from supervisor.supervise.live_runs import LiveRun, Told


class Entry(Struct, frozen=True, kw_only=True):
    """A known profile, or a file that means to be one and is broken (`error`)."""

    path: str
    typed: str
    """What would be typed for it."""
    name: str
    node: str = ""
    state_dir: str | None = None
    engine: str = ""
    model: str = ""
    command: str = ""
    """What would be launched, without secrets."""
    error: str = ""


class Item(Struct, frozen=True, kw_only=True):
    """One row. Either `entry` (with `run` where one lives), or `run` alone, or neither: the demonstration."""

    entry: Entry | None = None
    run: LiveRun | None = None
    told: Told | None = None
    """What is known of its node; None: not asked."""
    opened: bool = False
    """It is open in this console already."""

    @property
    def key(self) -> str:
        """Tells it from every other, over changes of the list."""
        if self.entry is not None:
            return self.entry.path
        return f"run {self.run.host} {self.run.run_id}" if self.run is not None else "demo"

    @property
    def can_open(self) -> bool:
        """Whether it can be opened from here."""
        return self.run is None if self.entry is None else not self.entry.error


def items(entries: Sequence[Entry], told: Mapping[str, Told], opened: Collection[str] = ()) -> list[Item]:
    """Profiles as they were found, then runs that none of them is the profile of, then the demonstration.

    Args:
        told: node → what it has told, or "asking" of it; a node that is missing was not asked.
        opened: paths of the profiles that are open already.
    """
    out: list[Item] = []
    claimed: set[tuple[str, str]] = set()
    for entry in entries:
        node = told.get(entry.node)
        run = None
        if not entry.error and node is not None:
            run = next((item for item in node.runs if _is_of(item, entry)), None)
        if run is not None:
            claimed.add((run.host, run.run_id))
        out.append(Item(entry=entry, run=run, told=node, opened=entry.path in opened))
    runs = [run for node in told.values() for run in node.runs if (run.host, run.run_id) not in claimed]
    out += [Item(run=run) for run in sorted(runs, key=lambda run: (run.host, run.key))]
    return [*out, Item()]


def _is_of(run: LiveRun, entry: Entry) -> bool:
    return run.key == entry.name and run.state_dir == entry.state_dir


def launches(chosen: Sequence[Item]) -> list[Entry]:
    """Of which profiles nothing is known to live: opening those launches them."""
    return [item.entry for item in chosen if item.entry is not None and item.run is None and not item.opened]
