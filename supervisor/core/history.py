"""What earlier launches of one profile on one node took: the record that is kept of them. Pure."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from supervisor.core.eta import Past

MOST_RUNS = 20
ASKED_OF = 5
"""As many earlier runs an estimate looks at: older ones were made with another driver, disk or version."""
MOST_BYTES = 4 << 20
VERSION = 1


class RunRecord(Struct, frozen=True, kw_only=True):
    """One launch that came up."""

    run_id: str
    at: float
    """When it was launched."""
    fingerprint: str = ""
    """Of its command, folder and environment."""
    weights_bytes: int | None = None
    past: Past


class History(Struct, frozen=True, kw_only=True):
    """The launches of one profile on one node that came up, the newest first."""

    version: int = VERSION
    runs: tuple[RunRecord, ...] = ()

    def with_run(self, record: RunRecord) -> History:
        """The same with one more; the oldest falls off."""
        others = [item for item in self.runs if item.run_id != record.run_id]
        newest_first = sorted([record, *others], key=lambda item: item.at, reverse=True)
        return History(runs=tuple(newest_first[:MOST_RUNS]))

    def pasts(self, fingerprint: str) -> tuple[Past, ...]:
        """What an estimate rests on: launches with the same settings where there are any, else the others."""
        same = [item.past for item in self.runs if item.fingerprint == fingerprint]
        return tuple((same or [item.past for item in self.runs])[:ASKED_OF])

    def weights_bytes(self, fingerprint: str) -> int | None:
        """Of the newest launch with the same settings that knew them."""
        found = (item.weights_bytes for item in self.runs if item.fingerprint == fingerprint and item.weights_bytes)
        return next(found, None)


def encode(history: History) -> bytes:
    """As it lies in its file."""
    return msgspec.json.format(msgspec.json.encode(history), indent=1) + b"\n"


def decode(data: bytes) -> History:
    """Raises `ValueError` with why it is no history."""
    try:
        history = msgspec.json.decode(data, type=History)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(str(error)[:160] or "it is no JSON") from None
    if history.version != VERSION:
        raise ValueError(f"it is of version {history.version}, and this program knows version {VERSION}")
    return history
