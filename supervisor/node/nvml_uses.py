"""NVML's lists of processes: one row a pid, of three lists, in two versions, with garbage dropped.

Of the rows it believes only that the driver named a pid; whether that pid means anything here is for others to say.
"""

from __future__ import annotations

import time
from typing import Any, Dict, List, Optional, Tuple

from .nvml_calls import REFUSED_S

Json = Dict[str, Any]

KINDS = (("C", "Compute"), ("G", "Graphics"), ("M", "MPSCompute"))
LARGEST_PID = 1 << 22  # the kernel's own limit, which the machine's pids obey even where our namespace has a lower one
NOT_AVAILABLE = (1 << 64) - 1
SAMPLES_BACK_US = 2_000_000
PERCENT_GARBAGE = 1000
"""Above it a percentage is no overshoot but no figure at all."""

Problems = Dict[str, str]


class Lists:
    """The lists of any GPU. Remembers which version this driver has."""

    def __init__(self, nvml: Any, calls: Any) -> None:
        self.nvml = nvml
        self.calls = calls
        self._versions: Dict[str, List[str]] = {}
        self._no_samples: Dict[str, Tuple[float, str]] = {}

    def read(self, device: Any) -> Tuple[Optional[List[Json]], Problems]:
        """Rows by pid and what went wrong. None where the compute list cannot be had: the others alone mislead."""
        problems: Problems = {}
        rows: Dict[int, Dict[Tuple[Any, Any], Tuple[str, Optional[int]]]] = {}
        for letter, kind in KINDS:
            told, word = self._list(kind, device.handle, problems)
            if word and letter == "C":
                return None, {"uses": word}
            if word and word not in ("not_supported", "no_symbol"):
                problems["uses_" + kind.lower()] = word
            for row in told:
                of_pid = rows.setdefault(row.pid, {})
                # A pid stands in several lists with the same memory, but once for each instance with its own.
                place = (getattr(row, "gpuInstanceId", None), getattr(row, "computeInstanceId", None))
                types, used = of_pid.get(place, ("", None))
                of_pid[place] = (types + letter, _larger(used, _bytes(row.usedGpuMemory)))
        percents = self._percents(device, rows, problems) if rows else {}
        return [_use(pid, list(of_pid.values()), percents.get(pid)) for pid, of_pid in rows.items()], problems

    def _list(self, kind: str, handle: Any, problems: Problems) -> Tuple[List[Any], str]:
        versions = self._versions.setdefault(kind, ["_v3", "_v2"])
        dropped: Optional[List[Any]] = None
        word = "no_symbol"
        for version in list(versions):
            symbol = "nvmlDeviceGet%sRunningProcesses%s" % (kind, version)
            function = getattr(self.nvml, symbol, None)
            told, word = self.calls.ask(symbol, function, handle) if function else (None, "no_symbol")
            if word == "no_data":  # the list grew meanwhile
                told, word = self.calls.ask(symbol, function, handle)
            if word in ("no_symbol", "old_version"):
                versions.remove(version)
                continue
            if word or told is None:
                break
            sane = [row for row in told if 0 < row.pid <= LARGEST_PID]
            if len(sane) == len(told):
                if dropped is not None:
                    versions.remove("_v3")  # of another layout than its header says: drivers 535.43 to 535.86
                return sane, ""
            dropped = sane if dropped is None else dropped
        if dropped is None:
            return [], word
        problems["uses_" + kind.lower()] = "absurd_rows"
        return dropped, ""

    def _percents(self, device: Any, pids: Any, problems: Problems) -> Dict[int, int]:
        """Share of the GPU's time by pid, of those that have a sample since the last look."""
        until, word = self._no_samples.get(device.uuid, (0.0, ""))
        if time.monotonic() < until:
            problems["sm_percent"] = word
            return {}
        now_us = int(time.time() * 1e6)
        since = max(device.sample_us, now_us - SAMPLES_BACK_US)
        symbol = "nvmlDeviceGetProcessUtilization"
        samples, word = self.calls.ask(symbol, self.nvml.nvmlDeviceGetProcessUtilization, device.handle, since)
        if word in ("not_supported", "no_symbol", "no_permission"):
            self._no_samples[device.uuid] = (time.monotonic() + REFUSED_S, word)
        if word and word != "no_data":
            problems["sm_percent"] = word
        newest: Dict[int, Tuple[int, int]] = {}
        for sample in samples or ():
            pid, stamp, percent = sample.pid, sample.timeStamp, sample.smUtil
            if pid in pids and percent <= PERCENT_GARBAGE and stamp >= newest.get(pid, (0, 0))[0]:
                newest[pid] = (stamp, min(100, percent))
        if newest:
            device.sample_us = min(now_us, max(stamp for stamp, _ in newest.values()))
        return {pid: percent for pid, (_, percent) in newest.items()}


def _bytes(told: Any) -> Optional[int]:
    """None for "not available", which some versions leave as all ones."""
    return None if told is None or told < 0 or told >= NOT_AVAILABLE else int(told)


def _larger(one: Optional[int], other: Optional[int]) -> Optional[int]:
    return other if one is None else one if other is None else max(one, other)


def _use(pid: int, parts: List[Tuple[str, Optional[int]]], percent: Optional[int]) -> Json:
    figures = [used for _, used in parts]
    types = "".join(letter for letter, _ in KINDS if any(letter in types for types, _ in parts))
    used = None if None in figures else sum(figure or 0 for figure in figures)
    return {"pid": pid, "used_bytes": used, "types": types, "sm_percent": percent}
