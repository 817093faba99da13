"""What the console says of the processes on the GPUs: whose they are, what they hold, what is left over. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from supervisor.core.gpu import Coverage, gib
from supervisor.core.gpu_events import GpuEvent
from supervisor.core.holder import Holder, HolderClass
from supervisor.core.holder_words import alike, pids, words
from supervisor.tui.format import run_of
from supervisor.tui.model import SessionModel
from supervisor.tui.pieces import Piece, Pieces, age, cells, clip, fit, in_gib, joined, left, one_line, right, rows

OLD_S = 30.0
"""The holders are told again every 10 s at least."""
EVIDENCE_WIDTH = 140
Group = tuple[Holder, ...]

_SHORT = {
    HolderClass.OURS_LIVE: "ours",
    HolderClass.OURS_ORPHAN: "zombie",
    HolderClass.FOREIGN_ORPHAN: "zombie",
    HolderClass.ENGINE_LIVE: "server",
    HolderClass.OTHER_USER: "user",
    HolderClass.PROTECTED: "system",
    HolderClass.DEFUNCT: "dead",
    HolderClass.UNINTERRUPTIBLE: "stuck",
    HolderClass.OTHER_NAMESPACE: "outside",
    HolderClass.TEARDOWN: "going",
    HolderClass.HEIR: "heir",
    HolderClass.GHOST_MEMORY: "ghost",
    HolderClass.UTILISATION_LATCH: "latch",
    HolderClass.SHARED: "shared",
    HolderClass.PROCESS: "process",
}
_ZOMBIES = {
    HolderClass.DEFUNCT: "DEAD",
    HolderClass.UNINTERRUPTIBLE: "STUCK",
    HolderClass.TEARDOWN: "GOING",
    HolderClass.HEIR: "HEIR",
    HolderClass.GHOST_MEMORY: "GHOST",
}
_NO_PID = {
    HolderClass.GHOST_MEMORY: "memory that no process accounts for",
    HolderClass.TEARDOWN: "memory on its way back",
    HolderClass.OTHER_NAMESPACE: "memory of somebody who is not seen from here",
    HolderClass.UTILISATION_LATCH: "no memory: utilisation that stayed behind",
}
_WORTH_A_LOOK = (HolderClass.UNINTERRUPTIBLE, HolderClass.GHOST_MEMORY, HolderClass.HEIR, HolderClass.DEFUNCT)


class Columns(Struct, frozen=True):
    """Cells of each column; 0: it is not there."""

    gpu: int
    age: int
    who: int
    user: int
    long: bool


# ------------------------------------------------------------------------------------------------ the table


def table(model: SessionModel, now: float, width: int, height: int) -> Pieces:
    """A row a holder: this run's, what is left over, other servers, the rest. Left-overs are never among the unseen."""
    event = model.view.holders
    if event is None:
        return fit((("who holds GPU memory has not been looked at yet", "dim"),), width) if height > 0 else ()
    groups = _groups(model)
    if height <= 0:
        return ()
    if not groups:
        all_seen = event.coverage is Coverage.ALL and not event.container
        none = "no process holds GPU memory" + ("" if all_seen else ", as far as is seen")
        return fit(((none, "dim"),), width)
    labels = Labels(model.view.gpu)
    columns = _plan(groups, labels, width)
    room = height - (height > 2)
    shown, hidden = _chosen(groups, room)
    out: list[Pieces] = [_heading(columns, width)] if height > 2 else []
    out += [_row(group, model, labels, columns, now, width) for group in shown]
    if hidden:
        out.append(_hidden(hidden, model, width))
    return rows(out)


def rows_wanted(model: SessionModel) -> int:
    """Rows that the table would fill, with its heading."""
    return 0 if model.view.holders is None else 1 + max(1, len(_groups(model)))


def title(model: SessionModel, now: float) -> Pieces:
    """ "processes on the GPUs · 9", with what is left over."""
    event = model.view.holders
    if event is None:
        return (("processes on the GPUs", "plain"),)
    groups = [holder for group in _groups(model) for holder in group]
    parts: list[Pieces] = [(("processes on the GPUs", "plain"),)]
    if groups:
        parts.append(((f"{len(groups):,}", "plain"),))
    zombies = [holder for holder in groups if holder.zombie]
    if zombies:
        parts.append(((f"{len(zombies):,} left over{_with(zombies)}", "bad"),))
    if now - event.at > OLD_S:
        parts.append(((f"{age(now - event.at)} ago", "warn"),))
    return joined(parts)


def foot(model: SessionModel, width: int) -> Pieces:
    """The key that clears what is left over; what may be missing from the table."""
    event = model.view.holders
    if event is None:
        return ()
    parts: list[Pieces] = []
    zombies = [holder for holder in event.holders if holder.zombie]
    if zombies:
        can = any(holder.killable != "no" for holder in zombies)
        key = model.hints.of("console.zombies")
        parts.append(((f"{key}: clear, with proof" if can else f"{key}: what can be done", "bad"),))
    if event.container:
        parts.append((("seen from inside a container", "dim"),))
    if event.coverage is Coverage.OWN:
        parts.append((("only our own user's files are seen", "dim"),))
    elif event.coverage is Coverage.PARTIAL:
        parts.append((("not all was seen", "dim"),))
    elif event.coverage is Coverage.NONE:
        parts.append((("by the driver's list alone", "dim"),))
    return fit(joined(parts), width)


# ------------------------------------------------------------------------------------------------ who is shown


def _groups(model: SessionModel) -> list[Group]:
    """In the order in which they stand; many alike as one. What is of the system and holds nothing has no row."""
    event = model.view.holders
    run_id = run_of(model.view)
    found = [
        holder
        for holder in (event.holders if event is not None else ())
        if holder.held or holder.class_ is not HolderClass.PROTECTED
    ]
    groups = alike(found)
    return [group for _, _, group in sorted((_rank(group[0], run_id), n, group) for n, group in enumerate(groups))]


def _rank(holder: Holder, run_id: str) -> int:
    if holder.class_ is HolderClass.OURS_LIVE:
        return 0 if not run_id or holder.run_id == run_id else 3
    if holder.zombie:
        return 1
    if holder.class_ in _WORTH_A_LOOK:
        return 2
    if holder.class_ is HolderClass.ENGINE_LIVE:
        return 4
    return 6 if holder.class_ is HolderClass.PROTECTED else 5


def _chosen(groups: Sequence[Group], room: int) -> tuple[list[Group], list[Group]]:
    """Who has a row, and who has not: left-overs have one first, then this run's, then the rest by their order."""
    if len(groups) <= room:
        return list(groups), []
    by_need = sorted(range(len(groups)), key=lambda n: (not groups[n][0].zombie, n))
    kept = set(by_need[: max(0, room - 1)])
    return [group for n, group in enumerate(groups) if n in kept], [g for n, g in enumerate(groups) if n not in kept]


def _hidden(groups: Sequence[Group], model: SessionModel, width: int) -> Pieces:
    run_id = run_of(model.view)
    holders = [holder for group in groups for holder in group]
    counts = {"of this run": 0, "left over": 0, "others": 0}
    for holder in holders:
        kind = {0: "of this run", 1: "left over"}.get(_rank(holder, run_id), "others")
        counts[kind] += 1
    told = ", ".join(f"{count:,} {kind}" for kind, count in counts.items() if count)
    return fit(((f"+ {len(holders):,} more: {told}{_with(holders)}", "bad" if counts["left over"] else "dim"),), width)


def _with(holders: Iterable[Holder]) -> str:
    """ " with 84.0 GiB", " with at least 84.0 GiB"; empty where nothing is known of it."""
    amounts = [amount for holder in holders for amount in holder.held.values()]
    known = sum(filter(None, amounts))
    return f" with {'at least ' if None in amounts else ''}{gib(known)}" if known else ""


# ------------------------------------------------------------------------------------------------ columns


class Labels:
    """GPUs for people, by NVML's index: "0", "0-7", "1:2" for a MIG instance."""

    def __init__(self, event: GpuEvent | None) -> None:
        gpus = event.gpus if event is not None else ()
        index = {gpu.uuid: gpu.index for gpu in gpus}
        self._whole = {gpu.uuid: gpu.index for gpu in gpus if gpu.parent is None}
        self._parts = {gpu.uuid: f"{index.get(gpu.parent, '?')}:{gpu.index}" for gpu in gpus if gpu.parent is not None}

    def of(self, uuids: Iterable[str]) -> str:
        """All of them in a few cells."""
        numbers = sorted({self._whole[uuid] for uuid in uuids if uuid in self._whole})
        parts: list[str] = []
        for number in numbers:
            if parts and self._ends(parts[-1]) == number - 1:
                parts[-1] = f"{parts[-1].partition('-')[0]}-{number}"
            else:
                parts.append(str(number))
        parts += [self._parts.get(uuid, "?") for uuid in uuids if uuid not in self._whole]
        return ",".join(parts) or "–"

    @staticmethod
    def _ends(part: str) -> int:
        return int(part.rpartition("-")[2])


def _plan(groups: Sequence[Group], labels: Labels, width: int) -> Columns:
    gpu = min(9, max(3, *(cells(labels.of(group[0].held)) for group in groups)))
    who = max(cells(_who(group[0])) for group in groups)
    return Columns(
        gpu=gpu if width >= 34 else 0,
        age=5 if width >= 44 else 0,
        who=max(4, min(10, who)),
        user=10 if width >= 84 else 0,
        long=width >= 110,
    )


def _heading(columns: Columns, width: int) -> Pieces:
    text = f"{'pid':>7}"
    text += f"  {'GPU':<{columns.gpu}}" if columns.gpu else ""
    text += f" {'GiB':>6}"
    text += f" {'age':>{columns.age}}" if columns.age else ""
    text += f"  {'user':<{columns.user}}" if columns.user else ""
    text += f"  {'who':<{columns.who}}  what"
    return fit(((text, "dim"),), width)


def _row(group: Group, model: SessionModel, labels: Labels, columns: Columns, now: float, width: int) -> Pieces:
    holder, many = group[0], len(group) > 1
    pid = f"{len(group)}×" if many else str(holder.pid) if holder.pid is not None else "–"
    role = _role(holder, run_of(model.view))
    text = right(pid, 7)
    text += f"  {left(labels.of(holder.held), columns.gpu)}" if columns.gpu else ""
    text += f" {right(_amount(group), 6)}"
    if columns.age:
        started = [item.started_at for item in group if item.started_at]
        text += f" {right(age(now - min(started)) if started else '–', columns.age)}"
    if columns.user:
        user = one_line(model.mask(holder.user)) or ("" if holder.uid is None else f"uid {holder.uid}")
        text += f"  {left(user, columns.user)}"
    plain = "dim" if role == "dim" else "plain"
    out: list[Piece] = [(text, plain), (f"  {left(_who(holder), columns.who)}", role), ("  ", "plain")]
    room = width - sum(cells(part) for part, _role in out)
    out.append((clip(_what(group, model), max(0, room)), role if holder.zombie else plain))
    if columns.long and (told := _why(holder, model, width)):
        out.append((f"  ({told})", "dim"))
    return fit(out, width)


def _why(holder: Holder, model: SessionModel, width: int) -> str:
    """What its class means; where there is room and somebody has to act, what shows it."""
    if holder.zombie and holder.evidence and width >= EVIDENCE_WIDTH:
        return one_line(model.mask(holder.evidence[-1])).rstrip(".")
    return words(holder.class_)


def _amount(group: Group) -> str:
    amounts = [holder.held_bytes for holder in group if holder.held]
    if not amounts:
        return "–"
    return in_gib(None if None in amounts else sum(filter(None, amounts)))


def _who(holder: Holder) -> str:
    if not holder.zombie:
        return _SHORT[holder.class_]
    return _ZOMBIES.get(holder.class_, "ZOMBIE")


def _role(holder: Holder, run_id: str) -> str:
    if holder.zombie:
        return "bad"
    if holder.class_ is HolderClass.OURS_LIVE:
        return "now" if not run_id or holder.run_id == run_id else "plain"
    if holder.class_ in _WORTH_A_LOOK:
        return "warn"
    return "dim" if holder.class_ is HolderClass.PROTECTED else "plain"


def _what(group: Group, model: SessionModel) -> str:
    holder = group[0]
    text = one_line(model.mask(holder.title or holder.comm))
    if not text:
        text = _NO_PID[holder.class_] if holder.pid is None and holder.class_ in _NO_PID else words(holder.class_)
    if len(group) > 1:
        text = f"{pids(group)}: {text}"
    if holder.zombie and (holder.key or holder.run_id):
        text += f" of {one_line(model.mask(holder.key or holder.run_id or ''))}"
    return text or "(no title)"
