"""What the health strip says: the last probes as coloured cells, the last answer, the counts of this run. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from supervisor.core import events as ev
from supervisor.core.events import Owner, Phase, Verdict
from supervisor.core.trail import Probe
from supervisor.tui.model import SessionModel
from supervisor.tui.pieces import Piece, Pieces, age, clip, first_fitting, fit, joined, length, one_line, rows

LABEL = "health  "
OLD_S = 10.0
"""Looks come each second or faster until it serves, and every few seconds from then on."""
LEAST_WHY = 20
"""Fewer cells of a sentence than this say nothing."""
LATE_S = 3.0
"""While it is waited for: a look that is older than this is one that hangs."""
_LOOKED_AT = (Phase.LAUNCHING, Phase.LOADING, Phase.WARMING, Phase.HEALTHY, Phase.SERVING, Phase.DEGRADED)
_VERDICTS = {
    Verdict.READY: ("ready", "good"),
    Verdict.NOT_YET: ("not yet", "waiting"),
    Verdict.REJECTED: ("not accepted", "bad"),
    Verdict.REFUSED: ("refused", "dim"),
    Verdict.SILENT: ("no answer", "warn"),
    Verdict.BROKEN: ("broken", "bad"),
}
# Signs that differ without their colours as well.
_CELLS = {
    Verdict.READY: "■",
    Verdict.NOT_YET: "▄",
    Verdict.REJECTED: "✘",
    Verdict.REFUSED: "·",
    Verdict.SILENT: "○",
    Verdict.BROKEN: "✘",
}
_WORDS = {"refused": "refused", "silent": "no answer", "broken": "broken"}


def cells(model: SessionModel, now: float, width: int, height: int = 1) -> Pieces:
    """The last probes, one character each and the newest at the right end; the last answer; the counts.

    Args:
        height: with 2 lines, the second one says by which rule the answer means what it is called.
    """
    event = of_this_run(model)
    if event is None:
        return fit(((LABEL, "dim"), ("○ not looked at yet", "dim")), width)
    strip = _strip(tuple(model.trail.probes), _cell_count(width))
    room = width - length(strip) - len(LABEL) - 2
    told = first_fitting(_summaries(event, model, now, room if height < 2 else 0), room)
    line: Pieces = fit(((LABEL, "dim"), *strip, ("  ", "plain"), *told), width)
    if height < 2:
        return line
    why = one_line(model.mask(event.why)) or "…"
    return rows((line, fit(((" " * len(LABEL), "plain"), (why, "dim")), width)))


def of_this_run(model: SessionModel) -> ev.Health | None:
    """The last answer, None where it was the run's before."""
    event, changes = model.view.health, model.view.changes
    return event if event is not None and (model.trail.probes or not changes or event.at >= changes[0].at) else None


def verdict(event: ev.Health) -> Piece:
    """ "200 ready", "refused"."""
    word, role = _VERDICTS[event.verdict]
    return (f"{event.status} {word}" if event.status is not None else word, role)


def _cell_count(width: int) -> int:
    """By the width alone: a strip whose length hangs on the words beside it jumps."""
    return max(6, min(120, width // 3 if width >= 140 else width // 4 if width >= 100 else width // 5))


def _strip(probes: Sequence[Probe], count: int) -> Pieces:
    """It fills from the left, then moves."""
    out: list[Piece] = []
    shown = probes[-count:]
    for probe in shown:
        sign, role = _CELLS[probe.verdict], _VERDICTS[probe.verdict][1]
        if out and out[-1][1] == role:
            out[-1] = (out[-1][0] + sign, role)
        else:
            out.append((sign, role))
    return (*out, (" " * (count - len(shown)), "plain"))


def _summaries(event: ev.Health, model: SessionModel, now: float, why_room: int) -> Iterator[Pieces]:
    """From the fullest to the barest.

    Args:
        why_room: cells for all of it together with why the answer means what it is called; 0: without that.
    """
    text, role = verdict(event)
    answers = model.answers
    kind = str(event.status) if event.status is not None else event.verdict.value
    alone = list(answers) == [kind]
    over = model.view.phase not in _LOOKED_AT
    if over:  # nobody looks any more: it is told as what it was
        text, role = f"last {text}", "dim"
    head: Pieces = ((f"{text} {answers[kind]:,}" if alone and answers[kind] > 1 else text, role),)
    counts: Pieces = () if alone else _counts(answers)
    ms: Pieces = ((f"{event.ms:,.0f} ms", "plain"),) if event.status is not None else ()
    size: Pieces = ()
    if event.status is not None:
        size = ((f"{event.bytes:,} bytes" if event.bytes is not None else "body not read", "plain"),)
    owner: Pieces = ()
    if event.owner in (Owner.OURS, Owner.OTHER):
        owner = ((event.owner.value, "plain" if event.owner is Owner.OURS else "bad"),)
    old_s = now - event.at
    late: Pieces = ((f"{age(old_s)} ago", "dim" if over or old_s < OLD_S else "warn"),)
    when = late if event.verdict is Verdict.READY or old_s >= LATE_S else ()
    late = late if old_s >= OLD_S and not over else ()
    alarm = owner if event.owner is Owner.OTHER else ()
    full = joined((head, ms, size, owner, when, counts))
    rest = why_room - length(full) - 3
    if event.why and rest >= LEAST_WHY:
        yield (*full, ("   ", "plain"), (clip(one_line(model.mask(event.why)), rest), "dim"))
    yield full
    yield joined((head, ms, owner, when, counts))
    yield joined((head, ms, alarm, late, counts))
    yield joined((head, alarm, late, counts))
    yield joined((head, alarm, late, ms))
    yield joined((head, alarm, late))
    yield head


def _counts(answers: Mapping[str, int]) -> Pieces:
    """ "refused 1,204 · 503 38 · 200 1", with the roles that the cells have."""
    parts: list[Pieces] = []
    for kind, count in answers.items():
        parts.append(((f"{_WORDS.get(kind, kind)} {count:,}", "plain"),))
    return joined(parts)
