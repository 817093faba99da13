"""The faults that the demonstration can have, for `--help` and for a name that is not known. Imports nearly nothing."""

from __future__ import annotations

import textwrap

from supervisor.demo.simulated.options import FAULTS

WIDTH = 100


def listed() -> str:
    """Each fault's name, and what happens."""
    names = {name + (f"[:{value}]" if value else ""): text for name, (value, _, text) in FAULTS.items()}
    column = max(map(len, names)) + 4
    lines = []
    for name, text in names.items():
        head = f"  {name}".ljust(column)
        lines.append(textwrap.fill(text, WIDTH, initial_indent=head, subsequent_indent=" " * column))
    return "\n".join(lines)


def problem(text: str) -> str:
    """What is wrong with the value of --fault; empty when nothing is."""
    name, _, value = text.partition(":")
    if name not in FAULTS:
        from difflib import get_close_matches

        near = get_close_matches(name, FAULTS, n=1)
        hint = f", did you mean {near[0]}?" if near else ""
        return f"there is no fault {name!r}{hint}\nthe faults are:\n{listed()}"
    kind, default, _ = FAULTS[name]
    if kind and not value and default is None:
        return f"{name} needs a value, {name}:{kind}"
    return f"{name} takes no value" if value and not kind else ""
