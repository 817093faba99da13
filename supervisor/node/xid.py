"""XID errors, from NVML's events and from the kernel's log, as far as we may: none seen is never "none happened".

The events wait in a thread of their own, which calls NVML beside the reader's; it never holds up a sample.
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
import time
from typing import Any, Dict, Iterable, List, Optional, Tuple

from .nvml_calls import word_of

Json = Dict[str, Any]

WAIT_MS = 200
"""Short, because the end of the process waits for it."""
XID_CRITICAL = 0x8
SAME_S = 5.0

TEXTS: Dict[int, Tuple[bool, str]] = {
    13: (False, "the program: graphics engine exception"),
    31: (False, "the program: it touched memory that it has not"),
    43: (False, "the program: it was stopped by the driver after a fault"),
    45: (False, "the program: it was ended, its channel was taken away"),
    48: (True, "memory error that could not be corrected"),
    62: (True, "the GPU's own controller halted"),
    64: (True, "a bad row of memory could not be replaced"),
    74: (True, "NVLink error"),
    79: (True, "the GPU has fallen off the bus"),
    94: (True, "memory error that could not be corrected, contained in one program"),
    95: (True, "memory error that could not be corrected, not contained"),
    119: (True, "the GPU's own processor (GSP) did not answer"),
    120: (True, "the GPU's own processor (GSP) failed"),
}
"""Code → whether hardware or driver is bad, and what it means. 45 comes with every kill."""

_XID_LINE = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)")
_OFF_BUS_LINE = re.compile(r"NVRM: GPU (?:at )?(?:PCI:)?([0-9a-fA-F:.]+?)[:.]? .*has fallen off the bus")


def told(code: int, at: float) -> Json:
    """As the operator's `Xid` struct."""
    bad, text = TEXTS.get(code, (False, ""))
    return {"code": code, "at": at, "bad": bad, "text": text}


class Events:
    """The thread that waits for NVML's events. Ends with `close`, before nvmlShutdown."""

    def __init__(self, nvml: Any, devices: Iterable[Any], found: Dict[str, Json]) -> None:
        """`found`: GPU's UUID → its last XID, written by the thread."""
        self._nvml = nvml
        self._found = found
        self._by_address: Dict[Optional[int], str] = {}
        self._closing = False
        self._thread: Optional[threading.Thread] = None
        self._set: Any = None
        try:
            self._set = nvml.nvmlEventSetCreate()
        except Exception:
            return  # not to be had: the fields stay null
        for device in devices:
            try:
                nvml.nvmlDeviceRegisterEvents(device.handle, XID_CRITICAL, self._set)
            except Exception:
                continue  # this GPU tells no events
            self._by_address[ctypes.cast(device.handle, ctypes.c_void_p).value] = device.uuid
        if self._by_address:
            self._thread = threading.Thread(target=self._wait, daemon=True)
            self._thread.start()

    def _wait(self) -> None:
        while not self._closing:
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._set, WAIT_MS)
            except Exception as error:
                if word_of(error) == "timeout":
                    continue
                return  # a lost GPU ends the events of all
            if event.eventType & XID_CRITICAL:
                uuid = self._by_address.get(ctypes.cast(event.device, ctypes.c_void_p).value)
                if uuid is not None:
                    self._found[uuid] = told(int(event.eventData), time.time())

    def close(self) -> None:
        self._closing = True
        if self._thread is not None:
            self._thread.join(10 * WAIT_MS / 1000.0)
        if self._set is not None and (self._thread is None or not self._thread.is_alive()):
            try:
                self._nvml.nvmlEventSetFree(self._set)
            except Exception:
                pass  # we are leaving


class KernelLog:
    """New lines of /dev/kmsg, where it may be read."""

    def __init__(self, path: str) -> None:
        self._file = -1
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._file, 0, os.SEEK_END)
        except OSError:
            pass  # no permission, or a container: unknown

    def read(self, found: Dict[str, Json], devices: Iterable[Any]) -> None:
        """What came since the last time, into `found`, where NVML's events have not told it already."""
        if self._file < 0:
            return
        for bus_id, code in parse(self._lines()):
            for device in devices:
                if device.bus_id and _same_bus(device.bus_id, bus_id):
                    known = found.get(device.uuid)
                    if known is None or known["code"] != code or time.time() - known["at"] > SAME_S:
                        found[device.uuid] = told(code, time.time())

    def _lines(self) -> List[str]:
        data = b""
        for _ in range(2000):  # a flood is read on at the next sample
            try:
                record = os.read(self._file, 8192)
            except BrokenPipeError:
                continue  # records were overwritten before we came: it goes on with the oldest
            except OSError:
                break
            if not record:
                break
            data += record
        return data.decode("utf-8", "replace").split("\n")


def parse(lines: Iterable[str]) -> List[Tuple[str, int]]:
    """Bus id and code of every XID; a GPU that fell off the bus without one counts as 79."""
    out = []
    for line in lines:
        if "NVRM" not in line:
            continue
        found = _XID_LINE.search(line)
        if found:
            out.append((found.group(1), int(found.group(2))))
            continue
        found = _OFF_BUS_LINE.search(line)
        if found:
            out.append((found.group(1), 79))
    return out


def _same_bus(one: str, other: str) -> bool:
    """NVML writes 00000000:10:00.0, the kernel 0000:10:00 or 0000:10:00.0."""

    def parts(bus_id: str) -> List[int]:
        return [int(part, 16) for part in bus_id.split(".")[0].split(":")]

    try:
        return parts(one) == parts(other)
    except ValueError:
        return False
