"""The mode "gpu": the one process that calls NVML, for as long as somebody keeps its stdin open.

A call into the driver can hang for ever, so it hangs here, and a heartbeat tells which. It owns exactly one nvmlInit,
samples in its main thread alone, and leaves by nvmlShutdown at the end of stdin. Standard output carries JSON lines on
a private descriptor (a library may print to the other). It looks at no process, signals none, starts none.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from typing import Any, Dict, List, Optional

from . import nvml, nvml_calls, nvml_library, xid

Json = Dict[str, Any]

BEAT_S = 1.0
FLOOR_S = 0.4
"""Never sample more often: NVML's own latency makes it pointless, and it slows what runs there."""

LEAVE_S = 5.0
"""How long a call that hangs may still come back after the end of stdin."""

RETRIES_S = (5.0, 10.0, 30.0, 60.0)
RETIRE_AFTER_S = 6 * 3600.0
RETIRE_GROWTH_BYTES = 200 << 20
DEAD_WORDS = ("uninitialized", "driver_not_loaded")


def main(args: Json) -> None:
    """Serve until stdin ends, or until it is time to be replaced."""
    out = os.dup(1)
    os.dup2(2, 1)
    child = Child(args, out)
    try:
        child.run()
    except BrokenPipeError:
        pass  # nobody reads: as the end of stdin
    finally:
        child.close()
    # At once: the thread that reads stdin must not hold us, and nothing else is open.
    os._exit(0)


class Child:
    """State of the process. The main thread calls NVML; others read stdin, beat, and wait for XID events."""

    def __init__(self, args: Json, out: int) -> None:
        self.calls = nvml_calls.Calls()
        self.driver: Json = {"state": "unavailable", "why": "not asked yet"}
        self.reader: Optional[nvml.Reader] = None
        self._module = nvml_library.load_module(args.pop("nvml"))
        self._known = args.get("known") or []
        self._slow_s = float(args.get("slow_s") or nvml.SLOW_S)
        self._retire_after_s = float(args.get("retire_after_s") or RETIRE_AFTER_S)
        self._retire_growth = int(args.get("retire_growth_bytes") or RETIRE_GROWTH_BYTES)
        self._out = out
        self._write_lock = threading.Lock()
        self._changed = threading.Condition()
        self._asked: List[Any] = []
        self._interval_s = _interval(args.get("interval_s"))
        self._closing = False
        self._events: Optional[xid.Events] = None
        self._kernel_log = xid.KernelLog(os.path.join(nvml_library.device_folder(), "kmsg"))
        self._began = time.monotonic()
        self._rss_at_first = 0
        self._tries = 0
        self._retry_at = 0.0
        self._last = -FLOOR_S
        self._next = self._began

    # ------------------------------------------------------------------------------- talking

    def say(self, document: Json) -> None:
        """One line to the parent."""
        data = (json.dumps(document) + "\n").encode()
        with self._write_lock:
            view = memoryview(data)
            while view:
                view = view[os.write(self._out, view) :]

    def _beat(self) -> None:
        number = 0
        while not self._closing:
            waiting = self.calls.waiting
            number += 1
            beat: Json = {"beat": number, "call": None, "call_s": 0.0}
            if waiting is not None:
                beat.update(call=waiting[0], call_s=round(time.monotonic() - waiting[1], 3))
            try:
                self.say(beat)
            except OSError:
                return  # nobody reads
            time.sleep(BEAT_S)

    def _read(self) -> None:
        pending = b""
        while True:
            try:
                data = os.read(0, 65536)
            except OSError:
                data = b""
            if not data:
                break
            lines = (pending + data).split(b"\n")
            pending = lines.pop()
            for line in lines:
                self._line(line)
        with self._changed:
            self._closing = True
            self._changed.notify()
        # The main thread leaves by _exit, unless it hangs in a call. Then TERM, which ends what can be ended: whoever
        # is in the kernel for good stays, and is found by its marker. Never KILL: it has frozen GPUs.
        time.sleep(LEAVE_S)
        os.kill(os.getpid(), signal.SIGTERM)

    def _line(self, line: bytes) -> None:
        try:
            request = json.loads(line.decode("utf-8"))
            op = request["op"]
            with self._changed:
                if op == "sample":
                    self._asked.append(request["id"])
                elif op == "interval":
                    self._interval_s = _interval(request["interval_s"])
                    self._next = time.monotonic()
                self._changed.notify()
        except Exception as error:  # whatever is wrong with a line, the look goes on
            sys.stderr.write("not a request: %s\n" % error)

    # ------------------------------------------------------------------------------- the loop

    def run(self) -> None:
        """Until stdin ends or we retire."""
        threading.Thread(target=self._beat, daemon=True).start()
        threading.Thread(target=self._read, daemon=True).start()
        while not self._closing:
            if self.reader is None and time.monotonic() >= self._retry_at:
                self._start()
            if not self._wait():
                continue
            self._sample()
            why = self._retire_why()
            if why:
                self.say({"retire": why})
                return

    def _wait(self) -> bool:
        """Until a sample is due (true), or something else has to be looked at."""
        with self._changed:
            now = time.monotonic()
            due = now if self._asked else self._next if self._interval_s is not None else None
            if due is not None:
                due = max(due, self._last + FLOOR_S)
                if due <= now:
                    return not self._closing
            wakes = [moment for moment in (due, self._retry_at if self.reader is None else None) if moment is not None]
            if not self._closing:
                self._changed.wait(max(0.0, min(wakes) - now) if wakes else None)
            return False

    def _sample(self) -> None:
        with self._changed:
            asked, self._asked = self._asked, []
            self._last = time.monotonic()
            if self._interval_s is not None and self._next <= self._last:
                # The grid is kept, and what was missed of it is not made up for.
                self._next += self._interval_s * (int((self._last - self._next) / self._interval_s) + 1)
        gpus: List[Json] = []
        if self.reader is not None:
            self._kernel_log.read(self.reader.xids, self.reader.devices)
            gpus = self.reader.sample(lambda: self._closing)
            self.driver["count_before"] = self.reader.count_before
        if not self._closing:
            self.say({"sample": {"at": time.time(), "ids": asked, "driver": self.driver, "gpus": gpus}})
        dead = [gpu for gpu in gpus if gpu["errors"].get("memory") in DEAD_WORDS]
        if dead and len(dead) == len(gpus):
            self._retire_after_s = 0.0  # the driver was unloaded under us, and one init is all that a life has

    def _start(self) -> None:
        """Try to initialise, once; what fails is tried again later, never in a loop."""
        path, said, code = nvml_library.initialise(self._module, self.calls)
        if path is None:
            self.driver = nvml_library.why_not(code, said)
            self._retry_at = time.monotonic() + RETRIES_S[min(self._tries, len(RETRIES_S) - 1)]
            self._tries += 1
        else:
            self.driver = {"state": "ok", "why": "", **self._versions()}
            if nvml_library.simulated(self._module):
                self.driver["simulated"] = True
            self.reader = nvml.Reader(self._module, self.calls, self._known, self._slow_s)
            self.driver["count_before"] = self.reader.count_before
            there = [device for device in self.reader.devices if device.handle is not None]
            self._events = xid.Events(self._module, there, self.reader.xids)
        self.say({"driver": self.driver})

    def _versions(self) -> Json:
        ask, module = self.calls.ask, self._module
        cuda = ask("nvmlSystemGetCudaDriverVersion_v2", module.nvmlSystemGetCudaDriverVersion_v2)[0]
        return {
            "version": ask("nvmlSystemGetDriverVersion", module.nvmlSystemGetDriverVersion)[0],
            "nvml_version": ask("nvmlSystemGetNVMLVersion", module.nvmlSystemGetNVMLVersion)[0],
            "cuda_version": "%d.%d" % (cuda // 1000, cuda % 1000 // 10) if cuda else None,
        }

    def _retire_why(self) -> str:
        if time.monotonic() - self._began >= self._retire_after_s:
            return "a new one takes over every %g h, or when the driver was reset" % (RETIRE_AFTER_S / 3600)
        rss = _rss_bytes()
        self._rss_at_first = self._rss_at_first or rss
        if rss - self._rss_at_first > self._retire_growth:
            return "it grew from %d to %d MiB" % (self._rss_at_first >> 20, rss >> 20)
        return ""

    def close(self) -> None:
        """Give the GPUs back: an open handle blocks a reset or an unbind."""
        self._closing = True
        if self._events is not None:
            self._events.close()
        if self.reader is not None:
            self.calls.ask("nvmlShutdown", self._module.nvmlShutdown)


def _interval(told: Any) -> Optional[float]:
    return None if told is None else max(FLOOR_S, float(told))


def _rss_bytes() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
