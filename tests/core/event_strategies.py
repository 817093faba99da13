"""Any event of the stream, made out of the Structs' own types; times are whole milliseconds, as a record keeps them."""

from __future__ import annotations

import types
from enum import Enum
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
from hypothesis import strategies as st
from msgspec import Struct

from supervisor.core import events as ev
from supervisor.core.gpu_events import GpuEvent, Holders

KINDS: tuple[type[ev.Event], ...] = (
    ev.PhaseChanged, ev.Health, ev.Progress, ev.LinkEvent, ev.Finding, ev.Warning_, ev.Log, ev.Metrics, ev.Summary,
    GpuEvent, Holders,
)  # fmt: skip
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
TIMES = st.integers(0, 4_000_000_000_000).map(lambda ms: ms / 1000)


def events(*kinds: type[ev.Event]) -> st.SearchStrategy[Any]:
    """An event of one of these kinds, of any where none is named."""
    return st.one_of([struct(kind) for kind in kinds or KINDS])


@cache
def struct(kind: type[Struct]) -> st.SearchStrategy[Any]:
    """A Struct with any values that its types allow."""
    hints = get_type_hints(kind)
    return st.builds(kind, **{field.name: of(hints[field.name]) for field in msgspec.structs.fields(kind)})


def of(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a type, as far as the events have such types."""
    plain = {str: TEXTS, int: st.integers(0, 2**53), bool: st.booleans(), float: TIMES, type(None): st.none()}
    if kind in plain:
        return plain[kind]
    arguments = get_args(kind)
    origin = get_origin(kind)
    if origin in (types.UnionType, Union):
        return st.one_of([of(one) for one in arguments])
    if origin is tuple:
        return st.lists(of(arguments[0]), max_size=3).map(tuple)
    if origin is dict:
        return st.dictionaries(TEXTS, of(arguments[1]), max_size=3)
    return st.sampled_from(list(kind)) if issubclass(kind, Enum) else struct(kind)
