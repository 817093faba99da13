"""Reads GPUs through nvidia-ml-py's module: one dict a GPU, with the names of the operator's `Gpu` struct.

Every call goes through `Calls`, which tells the heartbeat what is being waited for and turns every failure into a word.
A field that cannot be read is null and its word stands in `errors`; one bad GPU never hides another; a lost one keeps
its place. It knows no processes but NVML's rows, looks into no `/proc/PID`, and starts nothing.
"""

from __future__ import annotations

import re
import time
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple

from . import nvml_uses
from .nvml_calls import Calls

Json = Dict[str, Any]

SLOW_S = 10.0
"""Age at which fields that hardly change, the MIG instances and the count are read again."""

ABSENT = ("not_supported", "no_symbol", "of_the_parent")
"""Words for what a GPU has not: without it, what was read is still complete."""

LOST_WHY = "the GPU is lost (fallen off the bus, or to be reset): the node needs a reboot, or the GPU a reset"

# Parts that have no memory of their own: by compute capability (Tegra X1, X2, Xavier, Orin, Thor as 10.1 and 11.0,
# GB10), which no discrete part shares, or by name where a driver does not tell that. NOT_SUPPORTED alone is no proof:
# taken as one, a discrete GPU in trouble would show the machine's memory as its own.
INTEGRATED = {(5, 3), (6, 2), (7, 2), (8, 7), (10, 1), (11, 0), (12, 1)}
INTEGRATED_NAMES = re.compile(r"\b(GB10|Thor|Orin|Xavier|Tegra|Jetson)\b", re.IGNORECASE)

REASONS = {
    0x2: "applications_clocks",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
    0x100: "display_clocks",
}
IDLE_REASON = 0x1  # an idle GPU is not slowed


class Figure(NamedTuple):
    """A number of a GPU: field, how to make it of the answer, functions to try with their arguments."""

    name: str
    make: Callable[[Any], Any]
    steps: Tuple[Tuple[str, Tuple[Any, ...]], ...]


def _reasons(bits: int) -> List[str]:
    named = [name for bit, name in REASONS.items() if bits & bit]
    other = bits & ~sum(REASONS) & ~IDLE_REASON
    return [*named, "bits_%#x" % other] if other else named


def _watts(milliwatts: int) -> float:
    return milliwatts / 1000.0


FAST = (
    Figure("temperature_c", int, (("nvmlDeviceGetTemperatureV", (0,)), ("nvmlDeviceGetTemperature", (0,)))),
    Figure("power_w", _watts, (("nvmlDeviceGetPowerUsage", ()),)),
    Figure("sm_clock_mhz", int, (("nvmlDeviceGetClockInfo", (1,)),)),
    Figure("memory_clock_mhz", int, (("nvmlDeviceGetClockInfo", (2,)),)),
    Figure(
        "throttle",
        _reasons,
        (("nvmlDeviceGetCurrentClocksEventReasons", ()), ("nvmlDeviceGetCurrentClocksThrottleReasons", ())),
    ),
)
SLOW = (
    Figure(
        "power_limit_w", _watts, (("nvmlDeviceGetEnforcedPowerLimit", ()), ("nvmlDeviceGetPowerManagementLimit", ()))
    ),
    Figure("sm_clock_max_mhz", int, (("nvmlDeviceGetMaxClockInfo", (1,)),)),
    Figure("ecc_uncorrected", int, (("nvmlDeviceGetTotalEccErrors", (1, 0)),)),
    Figure("persistence", bool, (("nvmlDeviceGetPersistenceMode", ()),)),
    Figure("mig", lambda modes: bool(modes[0]), (("nvmlDeviceGetMigMode", ()),)),
)
OF_THE_PARENT = ("gpu_percent", "memory_percent", *(figure.name for figure in FAST + SLOW))


class Device:
    """What is remembered of a GPU or an instance: it keeps its place when it is lost."""

    def __init__(self, index: int, uuid: str, handle: Any = None, parent: Optional["Device"] = None) -> None:
        self.index = index
        self.uuid = uuid
        self.handle = handle
        self.parent = parent
        self.name: str = parent.name if parent else ""
        self.bus_id: str = parent.bus_id if parent else ""
        self.minor: Optional[int] = parent.minor if parent else None
        self.integrated = False
        self.slow: Json = {}
        self.slow_errors: Dict[str, str] = {}
        self.instances: List["Device"] = []
        self.sample_us = 0
        self.why = ""

    def identity(self) -> Json:
        return {
            "uuid": self.uuid,
            "index": self.index,
            "name": self.name,
            "bus_id": self.bus_id,
            "minor": self.minor,
            "parent": self.parent.uuid if self.parent else None,
        }


class Reader:
    """All GPUs of the node. One thread alone may use it, after nvmlInit."""

    def __init__(self, nvml: Any, calls: Calls, known: Iterable[Json] = (), slow_s: float = SLOW_S) -> None:
        """`known`: identities that an earlier reader saw; a GPU that is not found again is shown as lost."""
        self.nvml = nvml
        self.calls = calls
        self.devices: List[Device] = []
        self.count_before: Optional[int] = None
        """How many GPUs there were, where that is more than NVML counts now."""
        self.xids: Dict[str, Json] = {}
        self._slow_at = -slow_s
        self._slow_s = slow_s
        self._lists = nvml_uses.Lists(nvml, calls)
        for item in known:
            device = Device(int(item["index"]), str(item["uuid"]))
            device.name, device.bus_id = str(item.get("name", "")), str(item.get("bus_id", ""))
            device.minor, device.why = item.get("minor"), LOST_WHY
            self.devices.append(device)
        self._most = len(self.devices)
        self.find()

    # ------------------------------------------------------------------------------- who is there

    def find(self) -> None:
        """Look for GPUs that we have no handle of."""
        count, word = self.calls.ask("nvmlDeviceGetCount_v2", self.nvml.nvmlDeviceGetCount)
        if word:
            return
        self._most = max(self._most, count)
        self.count_before = self._most if count < self._most else None
        if count == sum(1 for device in self.devices if device.handle is not None):
            return
        for index in range(count):
            self._find(index)

    def _find(self, index: int) -> None:
        handle, word = self.calls.ask("nvmlDeviceGetHandleByIndex_v2", self.nvml.nvmlDeviceGetHandleByIndex, index)
        uuid = ""
        if not word:
            uuid, word = self.calls.ask("nvmlDeviceGetUUID", self.nvml.nvmlDeviceGetUUID, handle)
        place = next((device for device in self.devices if device.uuid == uuid), None) if not word else None
        if word:
            if not any(device.index == index for device in self.devices):
                self.devices.append(Device(index, "unknown-%d" % index))
            for device in self.devices:
                if device.index == index and device.handle is None:
                    device.why = LOST_WHY if word == "lost" else "no handle can be had (%s)" % word
            return
        if place is None:  # one of which only the index was known, or a new one
            place = next((device for device in self.devices if device.uuid == "unknown-%d" % index), None)
            if place is None:
                place = Device(index, uuid)
                self.devices.append(place)
                self.devices.sort(key=lambda device: device.index)
            place.uuid = uuid
        if place.handle is None:
            place.handle, place.why = handle, ""
            self._identify(place)

    def _identify(self, device: Device) -> None:
        ask, nvml, handle = self.calls.ask, self.nvml, device.handle
        device.name = ask("nvmlDeviceGetName", nvml.nvmlDeviceGetName, handle)[0] or device.name
        pci, word = ask("nvmlDeviceGetPciInfo_v3", nvml.nvmlDeviceGetPciInfo, handle)
        if not word:
            device.bus_id = _decoded(pci.busId)
        minor, word = ask("nvmlDeviceGetMinorNumber", nvml.nvmlDeviceGetMinorNumber, handle)
        if not word:
            device.minor = int(minor)
        symbol = "nvmlDeviceGetCudaComputeCapability"
        capability, word = ask(symbol, nvml.nvmlDeviceGetCudaComputeCapability, handle)
        by_number = not word and tuple(capability) in INTEGRATED
        device.integrated = by_number or INTEGRATED_NAMES.search(device.name) is not None

    def _find_instances(self, device: Device) -> None:
        """The MIG instances of a divided GPU. Their places may be empty in between."""
        ask, nvml = self.calls.ask, self.nvml
        most, word = ask("nvmlDeviceGetMaxMigDeviceCount", nvml.nvmlDeviceGetMaxMigDeviceCount, device.handle)
        known = {instance.uuid: instance for instance in device.instances}
        found = []
        for number in range(0 if word else most):
            symbol = "nvmlDeviceGetMigDeviceHandleByIndex"
            handle, word = ask(symbol, nvml.nvmlDeviceGetMigDeviceHandleByIndex, device.handle, number)
            if word:
                continue
            uuid, word = ask("nvmlDeviceGetUUID", nvml.nvmlDeviceGetUUID, handle)
            if word:
                continue
            instance = known.get(uuid) or Device(number, uuid, parent=device)
            instance.handle = handle
            instance.name = ask("nvmlDeviceGetName", nvml.nvmlDeviceGetName, handle)[0] or device.name
            found.append(instance)
        device.instances = found

    # ------------------------------------------------------------------------------- a look

    def sample(self, stop: Callable[[], bool]) -> List[Json]:
        """All GPUs, each followed by its instances. Ends early when `stop` says so."""
        slow = time.monotonic() - self._slow_at >= self._slow_s
        if slow:
            self._slow_at = time.monotonic()
            self.find()
        out: List[Json] = []
        for device in self.devices:
            if stop():
                break
            gpu = self._gpu(device, slow)
            out.append(gpu)
            out.extend(self._instance(instance, gpu["state"] == "lost") for instance in device.instances)
        return out

    def _gpu(self, device: Device, slow: bool) -> Json:
        out = dict(device.identity(), state="ok", why="", xid=self.xids.get(device.uuid))
        errors: Dict[str, str] = {}
        if device.handle is None:
            return self._lost(device, out)
        uses, memory, word = self._memory_and_uses(device, errors)
        if word == "lost":
            return self._lost(device, out)
        if slow or not device.slow:
            device.slow_errors = {}
            device.slow = self._figures(SLOW, device, device.slow_errors)
            device.instances = device.instances if device.slow["mig"] else []
            if device.slow["mig"]:
                self._find_instances(device)
        out.update(device.slow, memory=memory, uses=uses)
        errors.update(device.slow_errors)
        if word:
            out.update(state="unreadable", why=_why_unreadable(word, bool(device.slow["mig"])))
        rates, word = self._ladder(device, (("nvmlDeviceGetUtilizationRates", ()),))
        if word:
            errors["gpu_percent"] = errors["memory_percent"] = word
        out["gpu_percent"] = None if word else min(100, rates.gpu)
        out["memory_percent"] = None if word else min(100, rates.memory)
        out.update(self._figures(FAST, device, errors))
        if "lost" in errors.values():  # it went while we read
            return self._lost(device, out)
        return _finished(out, errors)

    def _instance(self, instance: Device, lost: bool) -> Json:
        out = dict(instance.identity(), state="ok", why="")
        if lost or instance.handle is None:
            return self._lost(instance, out)
        errors = dict.fromkeys(OF_THE_PARENT, "of_the_parent")
        uses, memory, word = self._memory_and_uses(instance, errors)
        if word == "lost":
            return self._lost(instance, out)
        if word:
            out.update(state="unreadable", why=_why_unreadable(word, False))
            if word != "no_permission":
                self._slow_at = -self._slow_s  # divided anew, as it seems: look for instances at the next sample
        out.update(dict.fromkeys(OF_THE_PARENT), memory=memory, uses=uses)
        return _finished(out, errors)

    def _lost(self, device: Device, out: Json) -> Json:
        """Its place, and nothing of what was read while it went. Its handle is not used again: see `find`."""
        device.handle = None
        out.update(dict.fromkeys(OF_THE_PARENT), state="lost", why=device.why or LOST_WHY, memory={}, uses=None)
        return _finished(out, dict.fromkeys(("memory", "uses", *OF_THE_PARENT), "lost"))

    def _figures(self, figures: Iterable[Figure], device: Device, errors: Dict[str, str]) -> Json:
        out: Json = {}
        for figure in figures:
            value, word = self._ladder(device, figure.steps)
            if word:
                errors[figure.name] = word
            out[figure.name] = None if word else figure.make(value)
            if word == "lost":
                return dict(dict.fromkeys(each.name for each in figures), **out)
        return out

    def _ladder(self, device: Device, steps: Iterable[Tuple[str, Tuple[Any, ...]]]) -> Tuple[Any, str]:
        return self.calls.ladder(self.nvml, device.uuid, steps, device.handle)

    # ------------------------------------------------------------------------------- memory

    def _memory_and_uses(self, device: Device, errors: Dict[str, str]) -> Tuple[Optional[List[Json]], Json, str]:
        """Uses, memory, and the word where the memory is unknown."""
        memory, word = self._memory(device, errors)
        if word == "lost":
            return None, memory, word
        uses, problems = self._lists.read(device)
        if "lost" in problems.values():
            return None, memory, "lost"
        errors.update(problems)
        if memory.get("kind") == "unified":
            figures = [use["used_bytes"] for use in uses] if uses is not None else [None]
            memory["used_bytes"] = None if None in figures else sum(figures)
            if memory["used_bytes"] is None:
                errors["used_bytes"] = "no_data"
        if word:
            errors["memory"] = word
        return uses, memory, word

    def _memory(self, device: Device, errors: Dict[str, str]) -> Tuple[Json, str]:
        nvml, handle = self.nvml, device.handle
        whole = device.parent or device
        version = getattr(nvml, "nvmlMemory_v2", 0x02000028)
        info, word = self.calls.ask("nvmlDeviceGetMemoryInfo_v2", nvml.nvmlDeviceGetMemoryInfo, handle, version)
        reserved: Optional[int] = None
        if not word:
            reserved = int(info.reserved)
        elif word in ("no_symbol", "old_version", "not_supported"):
            info, word = self.calls.ask("nvmlDeviceGetMemoryInfo", nvml.nvmlDeviceGetMemoryInfo, handle)
            if not word and info.total:  # this version counts the driver's own as used
                errors["reserved_bytes"] = "no_symbol"
        if whole.integrated and word in ("", "not_supported"):
            # With success too: what such a part's driver then tells as its total is no size of any memory.
            errors.pop("reserved_bytes", None)
            return _machine_memory(), ""
        if word or not info.total:
            return {}, word or "no_data"
        total, used, free = int(info.total), int(info.used), int(info.free)
        return {
            "kind": "device",
            "total_bytes": total,
            "reserved_bytes": reserved,
            "used_bytes": used,
            "free_bytes": free,
        }, ""


def _machine_memory() -> Json:
    sizes: Dict[str, int] = {}
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            name, _, rest = line.partition(":")
            if name in ("MemTotal", "MemAvailable"):
                sizes[name] = int(rest.split()[0]) * 1024
    total, free = sizes.get("MemTotal"), sizes.get("MemAvailable")
    return {"kind": "unified", "total_bytes": total, "reserved_bytes": None, "used_bytes": None, "free_bytes": free}


def _why_unreadable(word: str, divided: bool) -> str:
    if divided:
        return "divided by MIG, and the whole is not told to us (%s): see its instances" % word
    return "its memory cannot be read (%s)" % word


def _finished(out: Json, errors: Dict[str, str]) -> Json:
    out["errors"] = errors
    out["complete"] = all(word in ABSENT for word in errors.values())
    return out


def _decoded(text: Any) -> str:
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
