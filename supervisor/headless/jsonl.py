"""Events as JSON lines (CONTRACT section 2): which are printed. How they are written: `core/event_json.py`."""

from __future__ import annotations

from supervisor.core import events as ev
from supervisor.core.event_json import iso, to_line, to_object

__all__ = ["iso", "to_line", "to_object", "wanted"]

_ONLY_ALL = frozenset({"log", "log_block", "gpu", "holders", "metrics"})


def wanted(event: ev.Event, *, everything: bool) -> bool:
    """Whether an event is printed: `log` and the samples only with `--events all`."""
    return everything or type(event).__struct_config__.tag not in _ONLY_ALL
