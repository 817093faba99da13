"""A finding says its line once."""

from __future__ import annotations

from supervisor.core.diagnosis.saying import COMPARED_CHARS, says_its_line
from supervisor.core.events import Finding


def finding(cause: str, line: str) -> Finding:
    return Finding(at=0.0, category="config", detail="x", cause=cause, line=line)


def test_a_line_that_the_cause_quotes_needs_no_place_beside_it() -> None:
    assert says_its_line(finding("the log says: ValueError: too large", "ValueError: too large"))
    assert says_its_line(finding("x" * COMPARED_CHARS, "x" * 2000))


def test_a_line_that_the_cause_does_not_have_is_shown_beside_it() -> None:
    assert not says_its_line(finding("the flags contradict each other", "ValueError: --tp"))
    assert not says_its_line(finding("the server ended", ""))
