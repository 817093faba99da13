"""What the zombies dialog says: a line a holder, its evidence, and exactly what yes will end. Pure, as in `pieces.py`.

Texts of the node are masked before they are cut.
"""

from __future__ import annotations

from collections.abc import Sequence

from supervisor.core import left_over
from supervisor.core.gpu import Coverage, DriverState, Snapshot, gib
from supervisor.core.holder import Holder, HolderClass
from supervisor.core.holder_words import held_of, pids
from supervisor.supervise.left_overs import GRACE_S, LeftOvers
from supervisor.tui.choice import Choice, Line
from supervisor.tui.pieces import Mask, Piece, Pieces, age, clip, fit, left, one_line, right, rows, wrapped

_WITHOUT_PID = {
    HolderClass.GHOST_MEMORY: "memory that no process accounts for",
    HolderClass.TEARDOWN: "memory on its way back",
    HolderClass.OTHER_NAMESPACE: "memory of somebody who is not seen from here",
}
_WIDE_FROM = 90
HINT: Pieces = (("space marks · u looks again", "dim"),)


def heading(node: str, found: LeftOvers | None, why: str, width: int, *, looking: bool) -> Pieces:
    """What was looked at, and what came of it."""
    if found is None:
        text = f"looking at what holds memory on {node} …" if looking else why
        return rows(((line, "now" if looking else "warn"),) for line in wrapped(text, width))
    zombies = found.zombies
    first: list[Piece] = [(f"{node}: {left_over.count_words(zombies)}", "bad" if zombies else "good")]
    if found.snapshot.driver.simulated:
        first.append(("  SIMULATED GPUs", "warn"))
    if looking:
        first.append(("  looking again …", "now"))
    notes = [text for text in (why, _not_seen(found.snapshot)) if text]
    return rows([fit(first, width), *(((line, "warn"),) for text in notes for line in wrapped(text, width))])


def _not_seen(snapshot: Snapshot) -> str:
    if snapshot.driver.state is DriverState.ABSENT:
        return "There is no NVIDIA GPU on this node."
    if blind := left_over.not_seen(snapshot):
        return blind[0].upper() + blind[1:] + "."
    if snapshot.coverage is Coverage.OWN:
        return "Seen: the device files that our own user has open. Left-overs of others show as root."
    return ""


# ------------------------------------------------------------------------------------------------ the list


def lines(choice: Choice, mask: Mask, width: int) -> tuple[list[Pieces], list[int], list[Line | None]]:
    """The rows of the list, which of them are headings, and the line that each row shows."""
    out: list[Pieces] = []
    shown: list[Line | None] = []
    for title, found in (("left over", choice.left), ("alive, or somebody else's", choice.others)):
        if not found:
            continue
        out.append(((_columns(title, width), "dim"),))
        shown.append(None)
        for line in found:
            out.append(row(line, choice, mask, width))
            shown.append(line)
    return out, [number for number, line in enumerate(shown) if line is None], shown


def _columns(title: str, width: int) -> str:
    who = f"{left('who', 9)} " if width >= _WIDE_FROM else ""
    return clip(f"{left(title, 30)} {right('memory', 9)}  {left('GPU', 7)} {right('age', 5)}  {who}what", width)


def row(line: Line, choice: Choice, mask: Mask, width: int) -> Pieces:
    """ "[x]    31007  ours-orphan    33.9 GiB  7    2 d  ana  sglang::scheduler_TP7"."""
    holder, snapshot = line.holder, choice.found.snapshot
    marked = choice.is_marked(line)
    box = "[x]" if marked else " – " if line.why_not else "[ ]"
    pid = f"{len(line.group)}×" if len(line.group) > 1 else str(holder.pid) if holder.pid is not None else "–"
    amount, where = _held(line.group, snapshot)
    started = [item.started_at for item in line.group if item.started_at]
    old = age(snapshot.at - min(started)) if started else ""
    kind = "left" if holder.zombie else "ours" if holder.class_ is HolderClass.OURS_LIVE else "others"
    out: list[Piece] = [
        (f"{box} ", "bad" if marked else "dim" if line.why_not else "strong"),
        (f"{right(pid, 8)}  ", "dim" if line.why_not else "plain"),
        (f"{left(str(holder.class_), 16)} ", kind),
        (f"{right(amount, 9)}  {left(where, 7)} {right(old, 5)}  ", "plain"),
    ]
    if width >= _WIDE_FROM:
        out.append((f"{left(one_line(holder.user), 9)} ", "dim" if line.why_not else "plain"))
    out.append((title(holder, mask), "dim" if line.why_not else "strong"))
    return fit(out, width)


def title(holder: Holder, mask: Mask) -> str:
    """What it is, and of which run."""
    if holder.pid is None:
        return mask(holder.title) or _WITHOUT_PID.get(holder.class_, "no process")
    what = one_line(mask(holder.title or holder.comm)) or "(no title)"
    return f"{what} of {holder.key or holder.run_id}" if holder.run_id else what


def _held(group: Sequence[Holder], snapshot: Snapshot) -> tuple[str, str]:
    """The sum, and the GPUs in short: "0-3,7"."""
    held = dict.fromkeys(uuid for holder in group for uuid in holder.held)
    if not held:
        return "–", ""
    amounts = [held_of([holder for holder in group if uuid in holder.held], uuid) for uuid in held]
    known = [amount for amount in amounts if amount is not None]
    text = gib(sum(known)) if len(known) == len(amounts) else f"≥{gib(sum(known))}" if known else "?"
    return text, ranges([gpu.index for gpu in snapshot.gpus if gpu.uuid in held])


def ranges(numbers: Sequence[int]) -> str:
    """ "0-3,7"."""
    out: list[str] = []
    ordered = sorted(set(numbers))
    begin = 0
    for at, number in enumerate(ordered):
        if at + 1 < len(ordered) and ordered[at + 1] == number + 1:
            continue
        first = ordered[begin]
        out.append(str(first) if first == number else f"{first}-{number}")
        begin = at + 1
    return ",".join(out)


# ------------------------------------------------------------------------------------------------ below the list


def detail(line: Line | None, choice: Choice | None, mask: Mask, width: int) -> Pieces:
    """The chosen line in full: which GPUs with how much, on what evidence, and what can be done."""
    if line is None or choice is None:
        return ()
    holder = line.holder
    places = "; ".join(left_over.places(holder, choice.found.snapshot)) or "no GPU memory that is known"
    who = f"pid {holder.pid}" if holder.pid is not None else "no process"
    out: list[Pieces] = [((text, "strong"),) for text in wrapped(f"{who}, {places}", width)]
    if len(line.group) > 1:
        out += [((text, "plain"),) for text in wrapped(f"{pids(line.group, most=None)}: alike, each of them", width)]
    for sentence in holder.evidence:
        out += [((text, "plain"),) for text in wrapped(mask(sentence), width)]
    if line.why_not:
        out += [((text, "warn"),) for text in wrapped(f"Not here: {mask(line.why_not)}", width)]
    elif line.by_hand and not choice.is_marked(line):
        owner = holder.user or f"uid {holder.uid}"
        out += [((text, "warn"),) for text in wrapped(f"It belongs to {owner}: space asks you to type its pid.", width)]
    return rows(out)


def plan(choice: Choice | None, mask: Mask, width: int) -> Pieces:
    """Exactly what yes will end, and how."""
    if choice is None:
        return ()
    targets = choice.targets
    if not targets:
        marks = "Nothing is marked. " + ("space marks a line." if choice.lines else "Nothing is there to be ended.")
        return ((marks, "dim"),)
    sums: dict[str, int | None] = {}
    for holder in targets:
        for uuid, amount in holder.held.items():
            before = sums.get(uuid, 0)
            sums[uuid] = None if before is None or amount is None else before + amount
    label = choice.found.snapshot.label
    places = ", ".join(f"{gib(amount)} on {label(uuid)}" for uuid, amount in sums.items()) or "no GPU memory"
    count = "1 process" if len(targets) == 1 else f"{len(targets)} processes"
    text = f"To be ended: {count} ({pids(targets, most=6)}) with {places}"
    if runs := left_over.runs_of(targets):
        text += f", and every other process that is left of run {', '.join(runs)}"
    text += f". TERM, KILL after {GRACE_S:.0f} s; then it is proved that the memory came back."
    return rows(((line, "strong"),) for line in wrapped(mask(text), width))


def typing(line: Line) -> str:
    """What is asked before another user's process is marked."""
    return f"type the pid {line.holder.pid} to mark this process of {line.holder.user or line.holder.uid}"
