"""Who held GPU memory in the last minutes, so that "no such process" can be told as "was a worker of run X".

Kept beside the runs' records, so that it outlives the connection that saw it: written when something changed, at most
every few seconds. An entry is a fact of the past, never a reason to signal anybody.
"""

from __future__ import annotations

import os
import time
from typing import Any, Dict, Iterable, List, Mapping, Optional, Set, Tuple

from . import proc, records

Json = Dict[str, Any]
Key = Tuple[int, int]

KEPT_S = 15 * 60.0
ENTRIES_MAX = 4096
WRITE_EVERY_S = 5.0
REFRESH_S = 60.0
_FILE = "gpu-holders.json"


class Ring:
    """The ring of one machine's records."""

    def __init__(self, base: str) -> None:
        self._path = os.path.join(base, _FILE)
        self._entries: Dict[Key, Json] = {}
        self._changed = True
        self._written_at = float("-inf")
        self._load()

    def _load(self) -> None:
        document = records.read(self._path) or {}
        if document.get("boot_id") != proc.boot_id():
            return  # pids of another boot are other processes
        entries = document.get("entries")
        for told in entries if isinstance(entries, list) else []:
            entry = _checked(told)
            if entry is None:
                continue
            key = (entry["pid"], entry["start_ticks"])
            known = self._entries.get(key)
            if known is None or known["last_at"] < entry["last_at"]:
                self._entries[key] = entry
        self._forget(time.time())  # what was forgotten here stands in the file still

    def see(self, holders: Iterable[Mapping[str, Any]], held: Mapping[int, Dict[str, Optional[int]]]) -> None:
        """Remember the processes of a look, with what each holds on which GPU."""
        now = time.time()
        for process in holders:
            amounts = held.get(process["pid"])
            if amounts is None:
                continue
            key = (process["pid"], process["start_ticks"])
            entry = self._entries.get(key)
            if entry is None:
                entry = self._entries[key] = {"pid": key[0], "start_ticks": key[1], "title": "", "run_id": None}
                entry["held"] = None
            self._changed = self._changed or entry["held"] is None or entry["held"].keys() != amounts.keys()
            # A zombie has no command line any more, and no environment.
            entry["title"] = process["title"] or entry["title"] or process["comm"]
            entry["run_id"] = process["run_id"] or entry["run_id"]
            entry["uid"], entry["held"], entry["last_at"] = process["uid"], amounts, now
        self._forget(now)
        self._write()

    def gone(self, living: Set[Key]) -> List[Json]:
        """The entries whose process is gone, newest first. `living`: identities that were just seen alive."""
        out = [entry for key, entry in self._entries.items() if key not in living and not proc.alive(*key)]
        return sorted(out, key=lambda entry: -entry["last_at"])

    def _forget(self, now: float) -> None:
        old = [key for key, entry in self._entries.items() if now - entry["last_at"] > KEPT_S]
        for key in old:
            del self._entries[key]
        if len(self._entries) > ENTRIES_MAX:
            newest = sorted(self._entries.items(), key=lambda item: -item[1]["last_at"])
            self._entries = dict(newest[:ENTRIES_MAX])

    def _write(self) -> None:
        now = time.monotonic()
        due = now - self._written_at
        if due < WRITE_EVERY_S or not (self._changed or due >= REFRESH_S) or not self._entries:
            return
        self._load()  # another connection's looks are kept too
        self._written_at, self._changed = now, False
        try:
            records.make_private(os.path.dirname(self._path))
            entries = list(self._entries.values())
            records.write(self._path, {"boot_id": proc.boot_id(), "entries": entries}, sync=False)
        except OSError:
            pass  # a full disk must not hold up the look; what is in memory still tells


def _checked(told: Any) -> Optional[Json]:
    """An entry as we write it; None for one that a foreign hand made, which must not end every look from then on."""
    try:
        held = {str(uuid): None if amount is None else int(amount) for uuid, amount in (told["held"] or {}).items()}
        last_at = float(told["last_at"])
        run_id = told["run_id"]
        if not (last_at <= time.time() + KEPT_S):  # NaN, too
            return None
        return {
            "pid": int(told["pid"]),
            "start_ticks": int(told["start_ticks"]),
            "title": str(told["title"]),
            "uid": int(told["uid"]),
            "run_id": None if run_id is None else str(run_id),
            "held": held,
            "last_at": last_at,
        }
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None
