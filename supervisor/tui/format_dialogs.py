"""What the dialogs before an order say, and the sentence after the console has closed. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from supervisor.core import events as ev
from supervisor.core.durations import spell
from supervisor.core.events import Phase
from supervisor.core.gpu import gib
from supervisor.supervise.hub import View
from supervisor.tui.pieces import Piece, Pieces, running


def question(order: str, title: str, node: str) -> Pieces:
    """The dialog's heading."""
    return ((f"{order.capitalize()} {title} @ {node}?", "strong"),)


def victims(
    processes: Sequence[ev.Process], held: Mapping[int, int | None] | None = None, older_s: float = 0.0
) -> Pieces:
    """Every process that will be signalled, one a line.

    Args:
        held: pid → bytes of GPU memory, None for no figure.
        older_s: how long ago the processes were told.
    """
    if not processes:
        return (("No process of the run is known to live.", "plain"),)
    held = held or {}
    out: list[Piece] = [(f"    pid    uid      age  {'GPU memory  ' if held else ''}what", "dim")]
    for process in processes:
        amount = (gib(held[process.pid]) if process.pid in held else "–") if held else ""
        column = f"{amount:>10}  " if held else ""
        out.append((f"\n{process.pid:>7} {process.uid:>6} {running(process.age_s + older_s):>8}  {column}", "plain"))
        out.append((process.title or "(no title)", "strong"))
    return tuple(out)


def consequence(order: str, processes: Sequence[ev.Process], grace_s: float) -> Pieces:
    """What yes will do."""
    out: list[Piece] = []
    if processes:
        one = len(processes) == 1
        count = "This process" if one else f"These {len(processes)} processes"
        out.append((f"{count} and any later child will be signalled: TERM to the root first", "plain"))
        out.append((f", TERM to the rest when it is gone, KILL after {spell(grace_s)}.", "plain"))
    else:
        out.append(("The node is asked once more; what it then names is signalled, else nothing.", "plain"))
    if order == "restart":
        out.append((" Then the profile is launched anew, unless something is left.", "plain"))
    return tuple(out)


def farewell(view: View, title: str, node: str, order: str) -> str:
    """The sentence that stands on the terminal after the console has closed."""
    name = f"{title} @ {node}"
    if order:
        return f"{name}: a {order} was under way and goes no further from here. Look with: supervisor status"
    match view.phase:
        case Phase.IDLE:
            return f"{name}: nothing was launched."
        case Phase.FAILED | Phase.STOPPED:
            return f"{name}: the run has {view.phase.value}."
        case _:
            return f"{name}: the server goes on ({ev.LABELS[view.phase]}). This console has only stopped looking."
