"""Events as JSON lines (CONTRACT section 2). Fields are added, never renamed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from supervisor.core import events as ev

_ONLY_ALL = frozenset({"log", "gpu", "holders"})
_TIMES = frozenset({"at", "started_at", "sampled_at"})
_encode = msgspec.json.Encoder().encode


def iso(at: float) -> str:
    """UTC, ISO 8601, milliseconds."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def to_object(event: ev.Event) -> dict[str, Any]:
    """The JSON object of one event: `kind`, `at`, and its fields; every time in it as text."""
    fields = _with_times(msgspec.to_builtins(event))
    out: dict[str, Any] = {"kind": fields.pop("kind"), "at": fields.pop("at")}
    for name, value in fields.items():
        out[name.rstrip("_")] = value
    return out


def _with_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: iso(item) if key in _TIMES and isinstance(item, float) else _with_times(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_with_times(item) for item in value]
    return value


def to_line(event: ev.Event) -> str:
    """One line, without its newline."""
    return _encode(to_object(event)).decode()


def wanted(event: ev.Event, *, everything: bool) -> bool:
    """Whether an event is printed: `log` and the samples only with `--events all`."""
    return everything or type(event).__struct_config__.tag not in _ONLY_ALL
