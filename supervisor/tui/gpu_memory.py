"""Whose the memory of a GPU is, and the bar that shows it. Pure.

By the last look at the holders, which may be a moment older than the figure of the GPU: what they are said to hold
never makes more than what is used.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from supervisor.core.gpu_events import GpuEvent
from supervisor.core.holder import HolderClass
from supervisor.supervise.hub import View
from supervisor.tui.format import run_of
from supervisor.tui.pieces import Piece, Pieces
from supervisor.tui.sparkline import EIGHTHS


class Shares(Struct):
    """Bytes of one GPU, by whose they are."""

    ours: int = 0
    others: int = 0
    left: int = 0


# Other glyphs beside other colours: it is told apart without any.
_LOOKS = {"ours": "█", "used": "█", "others": "▒", "left": "▓"}


def shares(event: GpuEvent, view: View) -> Mapping[str, Shares] | None:
    """GPU's or instance's UUID → whose its memory is. None while the holders are not known."""
    if view.holders is None:
        return None
    run_id = run_of(view)
    parents = {gpu.uuid: gpu.parent for gpu in event.gpus if gpu.parent is not None}
    out: dict[str, Shares] = {}
    for holder in view.holders.holders:
        ours = holder.class_ is HolderClass.OURS_LIVE and (not run_id or holder.run_id == run_id)
        kind = "left" if holder.zombie else "ours" if ours else "others"
        for uuid, amount in holder.held.items():
            for place in {uuid, parents.get(uuid, uuid)}:
                if place != uuid and place in holder.held:
                    continue  # it stands in the list of the GPU as well
                found = out.setdefault(place, Shares())
                # What is left over is seen even where nobody can tell how much it is.
                seen = max(0, amount or 0) or (kind == "left" and amount is None)
                setattr(found, kind, getattr(found, kind) + seen)
    return out


def memory_bar(used: int, total: int, of: Shares | None, width: int) -> Pieces:
    """Exactly `width` cells, in eighths at its end: ours, others', of nobody who is known, left over.

    Args:
        of: None while it is not known whose the memory is.
    """
    eighths = round(min(1.0, max(0, used) / max(1, total)) * width * 8)
    full, rest = divmod(eighths, 8)
    filled = full + bool(rest)
    segments = _segments(used, of, filled)
    out: list[Piece] = []
    for position, (role, count) in enumerate(segments):
        text = _LOOKS[role] * count
        if position == len(segments) - 1 and rest and _LOOKS[role] == "█":
            text = text[:-1] + EIGHTHS[rest]
        out.append((text, role))
    if filled < width:
        out.append((" " * (width - filled), "track"))
    return tuple(out)


def _segments(used: int, of: Shares | None, filled: int) -> list[tuple[str, int]]:
    """(role, cells): what is left over is seen however small it is."""
    if of is None or used <= 0 or not filled:
        return [("used", filled)] if filled else []
    known = of.ours + of.others + of.left
    scale = filled / max(used, known)
    left = min(filled, max(1, round(of.left * scale))) if of.left else 0
    ours = min(filled - left, round(of.ours * scale))
    others = min(filled - left - ours, round(of.others * scale))
    rest = filled - left - ours - others
    if rest and max(0, used - known) * scale < 0.5:
        # What rounding has left over goes to whoever holds the most: nobody unknown is made up.
        if of.ours >= of.others and (ours or not others):
            ours, rest = (ours + rest, 0) if of.ours else (ours, rest)
        else:
            others, rest = others + rest, 0
    segments = [("ours", ours), ("others", others), ("used", rest), ("left", left)]
    return [(role, count) for role, count in segments if count]
