"""Events as JSON objects and back: the one codec of `--json`, of records and of replays (CONTRACT section 2). Pure.

Fields are added, never renamed, so what an older version wrote is read here: a field that it did not know has its
default, one that is not known here is left out. Times go as text with milliseconds; all else comes back as it was.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import cache
from typing import Any, cast

import msgspec

from supervisor.core import events as ev
from supervisor.core.lines import sanitise

RECORD = "record"
"""The kind of a record's first line, which is no event."""

_TIMES = frozenset({"at", "started_at", "sampled_at"})
_OPEN = frozenset({"facts", "errors", "held", "answers"})
"""Tables whose keys anybody chooses: no time is looked for in them."""
_MOST = 1 << 53
_LAST_S = 253_402_200_000.0
"""The last days of the year 9999 are no times for a calendar that reckons a time zone, nor are those before 1970."""
_ISO = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{1,6})?(?:Z|\+00:00)", re.ASCII)
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class DecodeError(ValueError):
    """What stands there is no event; the text says why, and may quote a word of it."""


def iso(at: float) -> str:
    """UTC, ISO 8601, milliseconds."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def seconds(text: str) -> float:
    """The time that `iso` wrote. Raises `DecodeError`."""
    if not _ISO.fullmatch(text):
        raise DecodeError("a time is written as 2026-11-30T08:00:00.000Z")
    try:
        at = datetime.fromisoformat(text).timestamp()
    except ValueError as error:
        raise DecodeError(f"no such time: {error}") from None
    return _shown(at)


def _shown(at: float) -> float:
    if not 0 <= at <= _LAST_S:
        raise DecodeError("no such time: it is before 1970, or after 9999")
    return at


def to_object(event: ev.Event) -> dict[str, Any]:
    """The JSON object of one event: `kind`, `at`, and its fields; every time in it as text."""
    fields = _with_times(msgspec.to_builtins(event))
    out: dict[str, Any] = {"kind": fields.pop("kind"), "at": fields.pop("at")}
    for name, value in fields.items():
        out[name.rstrip("_")] = value
    return out


def to_line(event: ev.Event) -> str:
    """One line, without its newline."""
    return _encode(to_object(event)).decode()


def from_object(document: dict[str, Any]) -> ev.AnyEvent:
    """The event that `to_object` made it of. Raises `DecodeError`, also for a kind that is not known here."""
    kind = document.get("kind")
    found = _kinds().get(kind) if isinstance(kind, str) else None
    if found is None:
        raise DecodeError("its kind is not known here" if isinstance(kind, str) else "it has no kind")
    event, names = found
    try:
        fields = {names.get(name, name): _without_times(name, value) for name, value in document.items()}
        return cast("ev.AnyEvent", msgspec.convert(fields, event))
    except msgspec.ValidationError as error:
        raise DecodeError(f"it is no event of its kind: {str(error)[:160]}") from None
    except (RecursionError, OverflowError):
        raise DecodeError("it cannot be read") from None


def document_of(line: bytes) -> dict[str, Any]:
    """The JSON object of a line. Raises `DecodeError`."""
    try:
        document = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise DecodeError("it is no JSON") from None
    except RecursionError:
        raise DecodeError("it is nested too deeply") from None
    if not isinstance(document, dict):
        raise DecodeError("it is no object")
    return document


def from_line(line: bytes) -> ev.AnyEvent:
    """The event of a line. Raises `DecodeError`."""
    return from_object(document_of(line))


def harmless(value: Any) -> Any:
    """A JSON value that somebody else wrote, without what drives a terminal in its texts.

    Raises `DecodeError`, also for a number that nobody counts to: what reckons with it would break.
    """
    try:
        return _harmless(value)
    except RecursionError:
        raise DecodeError("it is nested too deeply") from None


def _harmless(value: Any) -> Any:
    if isinstance(value, str):
        return sanitise(value)
    if isinstance(value, int | float) and abs(value) > _MOST:
        raise DecodeError("a number in it is too large")
    if isinstance(value, dict):
        return {sanitise(key): _harmless(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_harmless(item) for item in value]
    return value


def _with_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: iso(item)
            if key in _TIMES and isinstance(item, float)
            else (item if key in _OPEN else _with_times(item))
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_with_times(item) for item in value]
    return value


def _without_times(key: str, value: Any) -> Any:
    if key in _OPEN:
        return value
    if key in _TIMES and isinstance(value, str):
        return seconds(value)
    if key in _TIMES and isinstance(value, int | float):
        return value if isinstance(value, bool) else _shown(value)
    if isinstance(value, dict):
        return {name: _without_times(name, item) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_times("", item) for item in value]
    return value


@cache
def _kinds() -> dict[str, tuple[type[ev.Event], dict[str, str]]]:
    """Kind → its Struct, and the names that are keywords of Python without the dash that they bear in it.

    `LogBlock` is none of them: it never leaves the program.
    """
    from supervisor.core.gpu_events import GpuEvent, Holders  # late: a wait for a plain URL reads no record

    events: tuple[type[ev.Event], ...] = (
        ev.PhaseChanged, ev.Health, ev.Progress, ev.LinkEvent, ev.Finding, ev.Warning_, ev.Log, ev.Metrics, ev.Summary,
        GpuEvent, Holders,
    )  # fmt: skip
    return {
        str(event.__struct_config__.tag): (
            event,
            {
                field.encode_name.rstrip("_"): field.encode_name
                for field in msgspec.structs.fields(event)
                if field.encode_name.endswith("_")
            },
        )
        for event in events
    }
