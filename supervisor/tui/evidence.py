"""What a phase stands on, in the fewest words that still say it: the machine's sentences made short. Pure.

The sentences are `core.machine`'s and `core.judge`'s own; one that is not known here is shown as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from supervisor.core.events import Evidence
from supervisor.tui.pieces import Mask, one_line

_ANSWER = re.compile(
    r"(?P<status>\d{3}) with (?P<size>an empty body|(?P<bytes>\d+) bytes|a body that was not read)"
    r" in (?P<ms>\d+) ms(?: from (?P<address>\S+?))?(?:: (?P<why>.*))?",
    re.DOTALL,
)
_HELD = re.compile(r"\S+ is held by pid (?P<pid>\d+)\b.*?(?P<ours>, ours)?", re.DOTALL)
_GENERATED = re.compile(r"generated (?P<text>'.*'|\".*\") in (?P<ms>\d+) ms", re.DOTALL)


def said(evidence: Sequence[Evidence], mask: Mask, *, terse: int = 0) -> list[tuple[str, str]]:
    """Texts with their roles, the answer before what was generated.

    Args:
        terse: for a line that has no room for all of it: 1 leaves out the model, 2 the figures of the answer as well.
    """
    out: list[tuple[str, str]] = []
    for item in sorted(evidence, key=lambda item: item.kind != "answered"):
        text = one_line(mask(item.text))
        if (answer := _ANSWER.fullmatch(text)) is not None:
            out += _answer(answer, terse)
        elif (made := _GENERATED.fullmatch(text)) is not None:
            out.append((f'"{made["text"][1:-1]}" in {int(made["ms"]):,} ms', "plain"))
        else:
            out.append((text, "warn" if text.startswith("not verified") or "release: unproved" in text else "dim"))
    return out


def _answer(found: re.Match[str], terse: int) -> list[tuple[str, str]]:
    size = "0 bytes" if found["size"] == "an empty body" else f"{int(found['bytes']):,} bytes" if found["bytes"] else ""
    figures = ", ".join(part for part in (size or "body not read", f"{int(found['ms']):,} ms") if part)
    text = found["status"] if terse > 1 else f"{found['status']} ({figures})"
    rest: list[str] = []
    holder = ""
    for part in (found["why"] or "").split("; "):
        held = _HELD.fullmatch(part)
        if held is not None:
            holder = f" from pid {held['pid']}{held['ours'] or ''}"
        elif part and not (terse and part.startswith("model ")):
            rest.append(part)
    return [(text + holder, "plain"), *((part, "dim") for part in rest)]
