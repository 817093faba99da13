"""What a transaction says while it goes on, and what it came to. Pure, as the rest of `format_*`.

Every process with what became of it, every GPU with its memory falling to what it was when it was idle, the steps with
their times, then the proof, or who still holds what and the next sensible step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from supervisor.core import events as ev
from supervisor.core.durations import spell
from supervisor.core.gpu import GIB, Gpu, gib
from supervisor.core.gpu_events import GpuEvent
from supervisor.tui.order import Fate, Order, Step, held_by
from supervisor.tui.pieces import (
    Mask,
    Piece,
    Pieces,
    clip,
    fit,
    left,
    one_line,
    right,
    rows,
    running,
    spread,
    wrapped,
)  # fmt: skip
from supervisor.tui.sparkline import thin

NAMES = {"stop": "Stop", "restart": "Restart", "clear": "Clear the left-overs of"}
TITLE_WIDTH_LEAST = 16
_BAR_MOST = 40


class Falling(Struct, frozen=True):
    """One GPU of a transaction: what was used at its start, now, and when it is idle."""

    label: str
    total_bytes: int | None
    before_bytes: int | None
    now_bytes: int | None
    idle_bytes: int | None
    rest_bytes: int | None
    """What is used now and nobody else accounts for; None where a figure is missing."""
    slack_bytes: int

    @property
    def free(self) -> bool | None:
        """Whether what nobody else uses is no more than when it is idle; None where that cannot be told."""
        if self.rest_bytes is None or self.idle_bytes is None:
            return None
        return self.rest_bytes <= self.idle_bytes + self.slack_bytes


def heading(order: Order, title: str, node: str, now: float, width: int) -> Pieces:
    """What is done to whom, and for how long."""
    name: list[Piece] = [
        (f"{NAMES.get(order.kind, order.kind.capitalize())} {one_line(f'{title} @ {node}')}", "strong")
    ]
    if order.ended_at is None:
        end: list[Piece] = [(f"● {running(now - order.began_at)}", "now")]
    else:
        mark, role = ("✔ done", "good") if order.good else ("✘ not proved", "bad")
        end = [(f"{mark} after {spell(order.ended_at - order.began_at)}", role)]
    return spread(name, end, width)


def road(order: Order, grace_s: float, now: float, width: int) -> Pieces:
    """planned ─ TERM ─ gone ─ memory released: where the transaction stands."""
    fates = list(order.fates.values())
    count, gone = len(fates), sum(fate.gone_at is not None for fate in fates)
    sent = sum(bool(fate.signal) for fate in fates)
    killed = sum(fate.signal == "KILL" for fate in fates)
    out: list[Piece] = []
    if count:
        _add(out, sent == count or gone == count, bool(sent), f"TERM {sent} of {count}")
        if killed:
            out += [(" ─ ", "dim"), (f"▲ KILL {killed}", "warn")]
        elif sent and gone < count and order.under_way:
            out.append((f"  KILL in {running(max(0.0, grace_s - (now - order.began_at)))}", "dim"))
        _add(out, gone == count, bool(gone), f"gone {gone} of {count}")
        if gone < count and not order.under_way:
            out[-1] = (f"✘ gone {gone} of {count}", "bad")
    else:
        _add(out, not order.under_way, True, "nothing of it runs" if not order.under_way else "looking")
    released = bool(order.good) and not order.under_way
    _add(out, released, bool(count) and gone == count and order.under_way, "memory released")
    if not order.under_way and not order.good:
        out[-1] = ("✘ memory not proved to be released", "bad")
    return fit(out, width)


def _add(out: list[Piece], done: bool, here: bool, text: str) -> None:
    mark, role = ("✔", "good") if done else ("●", "now") if here else ("○", "dim")
    if out:
        out.append((" ─ ", "dim"))
    out.append((f"{mark} {text}", role))


# ------------------------------------------------------------------------------------------------ before it


def question(order: str, title: str, node: str) -> Pieces:
    """The dialog's heading."""
    return ((f"{NAMES.get(order, order.capitalize())} {one_line(f'{title} @ {node}')}?", "strong"),)


def plan(processes: Sequence[ev.Process], event: GpuEvent | None, older_s: float, mask: Mask, width: int) -> Pieces:
    """Every process that will be signalled: since when it lives, on which GPUs it is, and what it holds of them.

    Args:
        older_s: how long ago the processes were told.
    """
    if not processes:
        return (("No process of the run is known to live.", "plain"),)
    held = {process.pid: held_by(event, process.pid) for process in processes}
    labels = {gpu.uuid: str(gpu.index) for gpu in (event.gpus if event is not None else ())}
    wide = max([3, *(len(_on(item, labels)) for item in held.values())])
    memory = any(held.values())
    head = f"{'pid':>8} {'uid':>6} {'age':>8}  " + (f"{'GPU':<{wide}}  {'memory':>10}  " if memory else "") + "what"
    lines: list[Sequence[Piece]] = [[(head, "dim")]]
    for process in processes:
        mine = held[process.pid]
        text = f"{process.pid:>8} {process.uid:>6} {running(process.age_s + older_s):>8}  "
        text += f"{_on(mine, labels):<{wide}}  {_sum(mine):>10}  " if memory else ""
        lines.append([(text, "plain"), (one_line(mask(process.title)) or "(no title)", "strong")])
    if memory:
        lines.append([(" " * 26 + f"{'':<{wide}}  {_sum_of_all(held.values()):>10}  ", "strong"), ("in all", "dim")])
    return rows(fit(line, width) for line in lines)


def _on(held: Mapping[str, int | None], labels: Mapping[str, str]) -> str:
    return ",".join(labels.get(uuid, "?") for uuid in held) or "–"


def _sum(held: Mapping[str, int | None]) -> str:
    known = [amount for amount in held.values() if amount is not None]
    return gib(sum(known)) if known else "?" if held else "–"


def _sum_of_all(every: Iterable[Mapping[str, int | None]]) -> str:
    amounts = [amount for held in every for amount in held.values()]
    return f"{'≥ ' if None in amounts else ''}{gib(sum(filter(None, amounts)))}"


def consequence(order: str, processes: Sequence[ev.Process], grace_s: float, width: int) -> Pieces:
    """What yes will do."""
    if processes:
        who = "This process" if len(processes) == 1 else f"These {len(processes)} processes"
        text = (
            f"{who} and any later child will be signalled: TERM to the root first, TERM to the rest when it is gone, "
        )
        text += f"KILL after {spell(grace_s)}. Then it is proved that the GPU memory came back."
    else:
        text = "The node is asked once more; what it then names is signalled, else nothing."
    if order == "restart":
        text += " Then the profile is launched anew, unless something is left."
    return rows(((line, "plain"),) for line in wrapped(text, width))


# ------------------------------------------------------------------------------------------------ processes


def fates(order: Order, mask: Mask, now: float, width: int, height: int) -> Pieces:
    """A process a line; those that are still there come first where not all fit into `height`."""
    every = list(order.fates.values())
    if not every:
        asked = "The node is asked who of it lives." if order.under_way else "No process of it was there."
        return ((clip(asked, width), "dim"),)
    held = any(fate.held for fate in every)
    if len(every) >= height:  # the rest is scrolled to
        every.sort(key=lambda fate: fate.gone_at is not None)
    memory = f"{'GPU memory':>11}  " if held else ""
    lines: list[Sequence[Piece]] = [[(f"{'pid':>8}  {'state':<24}{memory}what", "dim")]]
    lines += [_fate(fate, order, mask, now, width, held=held) for fate in every]
    return rows(fit(line, width) for line in lines)


def _fate(fate: Fate, order: Order, mask: Mask, now: float, width: int, *, held: bool) -> list[Piece]:
    state, role = _state(fate, order, now)
    column = f"{_sum(fate.held):>11}  " if held else ""
    title = clip(one_line(mask(fate.process.title)) or "(no title)", max(TITLE_WIDTH_LEAST, width - 34 - len(column)))
    gone = fate.gone_at is not None
    return [
        (f"{fate.process.pid:>8}  ", "dim" if gone else "plain"),
        (left(state, 24), role),
        (column + title, "dim" if gone else "plain"),
    ]


def _state(fate: Fate, order: Order, now: float) -> tuple[str, str]:
    if fate.gone_at is not None:
        after = spell(max(0.0, fate.gone_at - order.began_at))
        return (f"✔ killed, gone at {after}", "warn") if fate.signal == "KILL" else (f"✔ gone after {after}", "good")
    if fate.process.state == "D":
        return "▲ in the kernel (D)", "bad"
    if not order.under_way:
        return "✘ still there", "bad"
    match fate.signal:
        case "KILL":
            return "▲ KILL sent", "warn"
        case "TERM":
            return "● TERM sent", "now"
        case _:
            return "● alive", "plain"


# ------------------------------------------------------------------------------------------------ GPU memory


def falling(order: Order, event: GpuEvent | None) -> list[Falling]:
    """The GPUs that the order concerns: by what was claimed, else all that its processes hold memory of."""
    latest = {gpu.uuid: gpu for gpu in event.gpus} if event is not None else {}
    before = {gpu.uuid: gpu for gpu in order.gpus.gpus} if order.gpus is not None else {}
    ours = {pid for pid, _ticks in order.fates}
    claim = order.claim
    if claim is not None and claim.spaces:
        return [
            _falling(
                space.label,
                latest.get(space.uuid),
                before.get(space.uuid),
                ours,
                space.used_bytes,
                space.baseline_bytes,
            )
            for space in claim.spaces
        ]
    held = {uuid for fate in order.fates.values() for uuid in fate.held}
    return [
        _falling(f"GPU {gpu.index}", latest.get(uuid), gpu, ours, None, None)
        for uuid, gpu in before.items()
        if uuid in held
    ]


def _falling(
    label: str, latest: Gpu | None, before: Gpu | None, ours: Collection[int], used: int | None, idle: int | None
) -> Falling:
    at_start = before.memory.used_bytes if before is not None else None
    gpu = latest or before
    return Falling(
        label=label,
        total_bytes=gpu.memory.total_bytes if gpu is not None else None,
        before_bytes=at_start if at_start is not None else used,
        now_bytes=latest.memory.used_bytes if latest is not None else None,
        idle_bytes=idle,
        rest_bytes=_rest(latest, ours) if latest is not None else None,
        slack_bytes=gpu.slack_bytes if gpu is not None else 0,
    )


def _rest(gpu: Gpu, ours: Collection[int]) -> int | None:
    others = [use.used_bytes for use in gpu.uses or () if use.pid not in ours]
    if gpu.memory.used_bytes is None or gpu.uses is None or None in others:
        return None
    return gpu.memory.used_bytes - sum(filter(None, others))


def memory(spaces: Sequence[Falling], width: int, height: int) -> Pieces:
    """A bar a GPU; the sum of those that there is no room for."""
    if not spaces:
        return ()
    if len(spaces) > height:
        spaces = sorted(spaces, key=lambda space: space.free is True)
    shown = spaces if len(spaces) <= height else spaces[: max(0, height - 1)]
    bar = max(6, min(_BAR_MOST, width - 46))
    wide = max(len(space.label) for space in spaces)
    lines = [_bar(space, wide, bar) for space in shown]
    if hidden := spaces[len(shown) :]:
        done = sum(space.free is True for space in hidden)
        lines.append([(f"… {len(hidden)} more, {done} of them free", "dim")])
    return rows(fit(line, width) for line in lines)


def _bar(space: Falling, wide: int, bar: int) -> list[Piece]:
    share = (space.now_bytes or 0) / space.total_bytes if space.total_bytes else 0.0
    was = (space.before_bytes or 0) / space.total_bytes if space.total_bytes else 0.0
    full, had = thin(share, bar)[0], round(was * bar)
    free = space.free
    rest = max(0, had - len(full))
    mark, role = ("✔", "good") if free else ("●", "now") if free is False else ("○", "dim")
    numbers = f" {_figure(space.before_bytes)} → {_figure(space.now_bytes)} GiB"
    idle = f"   idle {_figure(space.idle_bytes)}" if space.idle_bytes is not None else ""
    return [
        (f"{mark} {left(space.label, wide)}  ", role),
        (full, "good" if free else "now"),
        ("─" * rest, "track"),
        (" " * max(0, bar - len(full) - rest), "plain"),
        (numbers, "plain"),
        (idle, "dim"),
    ]


def _figure(count: int | None) -> str:
    return "   ?" if count is None else right(f"{count / GIB:.1f}", 4)


# ------------------------------------------------------------------------------------------------ steps and the end


def steps(order: Order, mask: Mask, width: int, height: int) -> Pieces:
    """The newest sentences, each with its time since the order."""
    lines: list[list[Piece]] = []
    for step in order.steps[-height:] if height > 0 else []:
        lines.append(_step(step, order, mask))
    return rows(fit(line, width) for line in lines)


def _step(step: Step, order: Order, mask: Mask) -> list[Piece]:
    return [(f"{spell(max(0.0, step.at - order.began_at)):>8}  ", "dim"), (one_line(mask(step.text)), "plain")]


def outcome(order: Order, mask: Mask, width: int) -> Pieces:
    """The proof, or who still holds what and what to do; before the end, what is waited for."""
    if order.under_way:
        return ((clip("It goes on in the background too, and its end is told.", width), "dim"),)
    role = "good" if order.good else "bad"
    mark = "✔ " if order.good else "✘ "
    lines = wrapped(mask(order.text), width - 2, rest="")
    out: list[Sequence[Piece]] = [[((mark if number == 0 else "  ") + line, role)] for number, line in enumerate(lines)]
    return rows(out)
