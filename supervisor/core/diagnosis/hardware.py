"""What a broken GPU does to a finding: the crash that the log names is then its consequence. Pure."""

from __future__ import annotations

import msgspec

from supervisor.core import events as ev
from supervisor.core.diagnosis.facts import EndFacts

_CONSEQUENCES = {"native_crash", "communication", "hang", "killed", "engine_bug", "unknown"}
"""Families that a GPU's end shows itself as. A missing file is none: that stands, whatever a GPU did."""
ADVICE = (
    "Look at that GPU before the next launch: `nvidia-smi -q`, NVRM lines of `dmesg -T`. It wants a reset or a reboot; "
    "if it comes again, it is the card, its slot or its power."
)


def with_gpu_faults(found: ev.Finding | None, facts: EndFacts, at: float) -> ev.Finding | None:
    """The finding, or the broken GPU in its place, with the line that shows it."""
    if not facts.gpu_faults or (found is not None and found.category not in _CONSEQUENCES):
        return found
    cause = "the driver told of broken hardware: " + "; ".join(facts.gpu_faults[:4])
    if found is None:
        return ev.Finding(
            at=at, category="hardware", detail="gpu fault", cause=cause, confidence="likely", advice=ADVICE
        )
    return msgspec.structs.replace(
        found, category="hardware", detail="gpu fault", cause=f"{cause}; in the log it shows as: {found.cause}",
        confidence="likely", advice=ADVICE,
    )  # fmt: skip
