"""The codec of the stream: what is written comes back, and what is no event is told and never raises otherwise."""

from __future__ import annotations

import json

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core import events as ev
from supervisor.core.event_json import DecodeError, from_line, from_object, harmless, iso, seconds, to_line, to_object
from supervisor.core.events import Phase
from tests.core.event_strategies import KINDS, TIMES, events
from tests.schema import checked

PHASE = ev.PhaseChanged(
    at=1_000_000_000.25,
    from_=Phase.IDLE,
    to=Phase.LOADING,
    label="loading",
    evidence=(ev.Evidence(kind="answered", at=1_000_000_000.0, text="refused"),),
)


@given(events())
def test_every_event_comes_back_as_it_was(event: ev.AnyEvent) -> None:
    line = to_line(event)
    assert "\n" not in line
    assert from_line(line.encode()) == event


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.__struct_config__.tag))
def test_every_kind_is_known(kind: type[ev.Event]) -> None:
    with pytest.raises(DecodeError, match="no event of its kind"):
        from_object({"kind": kind.__struct_config__.tag})


def test_metrics_are_of_the_schema_with_figures_or_with_a_reason() -> None:
    told = ev.Metrics(at=1.5, running=3, queued=0, generated_tokens_s=91.25, cache_share=0.5)
    assert checked(to_line(told))["generated_tokens_s"] == 91.25
    assert checked(to_line(ev.Metrics(at=1.5, why="launched without --metrics")))["running"] is None
    for wrong in (ev.Metrics(at=1.5, running=3, why="and yet"), ev.Metrics(at=1.5, cache_share=2.0)):
        with pytest.raises(jsonschema.ValidationError):
            checked(to_line(wrong))


@given(TIMES)
def test_a_time_comes_back_to_the_millisecond(at: float) -> None:
    assert seconds(iso(at)) == at


def test_a_time_among_what_anybody_may_name_is_left_alone() -> None:
    event = ev.Warning_(at=1.5, text="x", facts={"at": 2.0, "started_at": "2026-11-30T08:00:00.000Z"})
    assert to_object(event)["facts"] == event.facts
    assert from_line(to_line(event).encode()) == event


def test_an_older_and_a_newer_version_are_read() -> None:
    document = to_object(PHASE)
    assert document["from"] == "idle"
    del document["run_id"]  # an older one did not tell it
    assert from_object({**document, "of_a_newer_version": {"at": "2026-11-30T08:00:00.000Z"}}) == PHASE


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"", "no JSON"),
        (b"{", "no JSON"),
        (b"\xff\xfe", "no JSON"),
        (b"[1]", "no object"),
        (b"null", "no object"),
        (b"{}", "no kind"),
        (b'{"kind": 3}', "no kind"),
        (b'{"kind": "dance", "at": "2026-11-30T08:00:00.000Z"}', "not known here"),
        (b'{"kind": "log_block", "at": "2026-11-30T08:00:00.000Z"}', "not known here"),
        (b'{"kind": "link", "at": "yesterday", "state": "up", "why": ""}', "a time is written as"),
        (b'{"kind": "link", "at": "2026-13-30T08:00:00.000Z", "state": "up", "why": ""}', "no such time"),
        (b'{"kind": "link", "at": "2026-11-30T08:00:00.000Z", "state": "sideways", "why": ""}', "no event of its kind"),
        (b'{"kind": "link", "at": "2026-11-30T08:00:00.000Z", "why": ""}', "no event of its kind"),
        (b'{"kind": "link", "at": "0001-01-01T00:00:00.000Z", "state": "up", "why": ""}', "before 1970"),
        (b'{"kind": "link", "at": "9999-12-31T23:59:59.999Z", "state": "up", "why": ""}', "after 9999"),
        (b'{"kind": "link", "at": 1e20, "state": "up", "why": ""}', "after 9999"),
        (b'{"kind": "link", "at": true, "state": "up", "why": ""}', "no event of its kind"),
        (b'{"kind": "link", "x": ' + b"[" * 700 + b"]" * 700 + b"}", "cannot be read|too deeply"),
        (b"[" * 100_000, "no JSON|too deeply"),
        (b'{"kind": "warning", "facts":' + b"[" * 100_000, "no JSON|too deeply"),
    ],
)
def test_what_is_no_event_is_told(line: bytes, why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        from_line(line)


def test_what_somebody_else_wrote_is_made_harmless_all_through() -> None:
    wild = {"a\x1b[2J": ["b\x1b]0;title\x07c", {"d": "\x9b31m\u202ee\r"}], "n": 3, "none": None}
    assert harmless(wild) == {"a": ["bc", {"d": "e"}], "n": 3, "none": None}
    for number in (2**53 + 2, -(2**64), 1e300):
        with pytest.raises(DecodeError, match="too large"):
            harmless({"kind": "log", "line_no": number})
    nested: object = "x"
    for _ in range(5000):
        nested = [nested]
    with pytest.raises(DecodeError, match="too deeply"):
        harmless(nested)


@given(st.binary(max_size=60) | st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["at", "kind", "x"]), inner),
).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_no_line_raises_anything_else(line: bytes) -> None:
    try:
        from_line(line)
    except DecodeError:
        pass
