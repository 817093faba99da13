"""How a finding is said where it is shown. Pure."""

from __future__ import annotations

from supervisor.core import events as ev

COMPARED_CHARS = 300


def says_its_line(finding: ev.Finding) -> bool:
    """Whether the cause has the line in its words, so that it need not stand beside it once more."""
    line = finding.line.strip()[:COMPARED_CHARS]
    return bool(line) and line in finding.cause
