"""The serve side of the one process that talks to the NVIDIA driver (`gpu_child.py`): starts it, asks it for samples,
and says so when a call into the driver does not come back.

NVML can hang for ever, so it lives in a process of its own, and nothing here ever waits for it without a limit. The
child is never killed: a SIGKILL in the middle of a call has frozen GPUs. While one hangs (ours, or one that an earlier
connection left in the driver), no second one is started: they would pile up behind the same lock.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from typing import IO, Any, Callable, Dict, List, Optional, Sequence

from . import devices, proc

Json = Dict[str, Any]

MARKER = "INFERENCE_SUPERVISOR_NVML"
FIRST_WAIT_S = 30.0
"""A driver without persistence mode takes seconds for its first answer, and eight GPUs longer."""
STUCK_AFTER_S = 5.0
BEAT_S = 1.5
BACK_OFF_S = (5.0, 10.0, 30.0, 60.0)
_CHILDREN = 2
_D_LOOKS = 3
_IDENTITY = ("uuid", "index", "name", "bus_id", "minor")
_NVIDIA = "0x10de"


class Driver:
    """Asks the child, and keeps its last sample. Safe to be used from several threads.

    `boot(orders)` gives the bytes that start a mode of this program, `code` is the word after `-c`.
    """

    def __init__(self, boot: Callable[[Json], bytes], code: str) -> None:
        self._boot = boot
        self._code = code
        self._changed = threading.Condition()
        self._nvml: Optional[str] = None
        self._child: Optional["subprocess.Popen[bytes]"] = None
        self._heard_at = 0.0
        self._call = ""
        self._call_s = 0.0
        self._wanted = 0  # the newest question; `_open` is the one that the child has, `_answered` its last answer
        self._open: Optional[int] = None
        self._answered = 0
        self._driver: Optional[Json] = None
        self._gpus: List[Json] = []
        self._simulated = False
        self._sampled_at: Optional[float] = None
        self._left: List["subprocess.Popen[bytes]"] = []
        self._ends = 0
        self._closed = 0  # how often the driver was let go: a look that went on meanwhile takes it no second time
        self._not_before = 0.0
        self._last_words = ""

    @property
    def child_pid(self) -> Optional[int]:
        """The pid of the child that lives, None without one."""
        child = self._child
        return child.pid if child is not None and child.poll() is None else None

    # ------------------------------------------------------------------------------- asking

    def given(self, nvml: Optional[str]) -> bool:
        """Take nvidia-ml-py's source as it travels ("" where the operator has none). False: it has to be sent first."""
        if nvml is not None:
            self._nvml = nvml
        return self._nvml is not None or not worth_asking()

    def sample(self, wait_s: float) -> Json:
        """A new sample {driver, gpus}, or the last one with the state that says why there is no newer one.

        Args:
            wait_s: how long to wait for it; the first one is given 30 s if this is more than nothing.
        """
        if not worth_asking():
            return {
                "driver": {"state": "absent", "why": "no NVIDIA GPU, device file or driver is here"},
                "gpus": [],
                "sampled_at": None,
            }
        if not self._nvml:
            why = "nvidia-ml-py is not installed beside the supervisor: pip install nvidia-ml-py"
            return self._told("unavailable", why)
        with self._changed:
            self._wanted += 1
            mine, closed = self._wanted, self._closed
            for _ in range(_CHILDREN):
                problem = self._ensure(self._nvml)
                if problem is not None:
                    return problem
                self._wait(mine, wait_s)
                if self._answered >= mine or self._child is not None or self._closed != closed:
                    break  # else it has just retired, and its last sample is no new one
            return self._present()

    def _wait(self, mine: int, wait_s: float) -> None:
        """Ask, and wait for the answer to this question, the child's end, or the proof that it hangs."""
        self._ask()
        if wait_s > 0 and self._driver is None:
            wait_s = max(wait_s, FIRST_WAIT_S)
        began = time.monotonic()
        while self._answered < mine and self._child is not None:
            waited_s = time.monotonic() - began
            left = wait_s - waited_s
            # One that has hung may just have come back: it is given the time of a heartbeat to say so.
            if left <= 0 or (waited_s > BEAT_S and self._stuck_s() is not None):
                return
            self._changed.wait(min(left, 0.5))
            if self._driver is not None and self._driver["state"] != "ok":
                return

    def _present(self) -> Json:
        stuck_s = self._stuck_s()
        if self._child is not None and stuck_s is not None:
            told = dict(self._driver or {}, state="stuck", stuck_s=round(stuck_s, 1), call=self._call)
            told["why"] = "driver not responding since %.0f s%s" % (stuck_s, " (%s)" % self._call if self._call else "")
            return self._with(told)
        if self._driver is None:
            why = self._last_words or "the driver has given no first answer yet"
            return self._told("unavailable" if self._child is None else "stuck", why)
        return self._with(self._driver)

    def _told(self, state: str, why: str) -> Json:
        return self._with({"state": state, "why": why})

    def _with(self, told: Json) -> Json:
        if self._simulated:  # in every state: what is not real must never look real
            told = dict(told, simulated=True)
        return {"driver": told, "gpus": self._gpus, "sampled_at": self._sampled_at}

    def _stuck_s(self) -> Optional[float]:
        """For how long the child has not come back from the driver, None while it answers."""
        now = time.monotonic()
        silent_s = now - self._heard_at
        first = self._driver is None
        call_s = self._call_s + silent_s if self._call else 0.0
        limit_s = FIRST_WAIT_S if first else STUCK_AFTER_S
        longest_s = max(call_s, silent_s)
        return longest_s if longest_s >= limit_s else None

    # ------------------------------------------------------------------------------- the child

    def _ensure(self, nvml: str) -> Optional[Json]:
        """Have a child. A sample's worth of words where none may be started now."""
        if self._child is not None:
            return None
        now = time.monotonic()
        self._left = [child for child in self._left if child.poll() is None]
        if now < self._not_before:
            return self._told("unavailable", self._last_words)
        other = stuck_child([child.pid for child in self._left])
        if other is not None:
            # For how long is not known: its age is that of its connection, which may have worked for hours.
            why = "an earlier look (pid %d, state %s, %.0f s old) hangs in the driver; a second is not started"
            return self._told("stuck", why % (other["pid"], other["state"], other["age_s"]))
        env = dict(os.environ)
        mine = proc.stat(os.getpid())
        env[MARKER] = "%d:%d" % (os.getpid(), mine["start_ticks"] if mine else 0)
        self._child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", self._code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=env,
            close_fds=True,
            start_new_session=True,  # whoever ends our group must not hit it inside a call
        )
        self._heard_at = time.monotonic()
        self._driver, self._call, self._call_s, self._open = None, "", 0.0, None
        threading.Thread(target=self._hear, args=(self._child,), name="nvml child", daemon=True).start()
        # A new one keeps the place of a GPU that it cannot find any more (P8, P9).
        known = [{name: gpu.get(name) for name in _IDENTITY} for gpu in self._gpus if not gpu.get("parent")]
        self._write(self._boot({"mode": "gpu", "nvml": nvml, "interval_s": None, "known": known}))
        return None

    def _ask(self) -> None:
        """Put the newest question, unless one is open: questions must not pile up behind a hung call."""
        if self._open is None and self._child is not None and self._answered < self._wanted:
            self._open = self._wanted
            self._write(json.dumps({"op": "sample", "id": self._open}).encode() + b"\n")

    def _write(self, data: bytes) -> None:
        assert self._child is not None and self._child.stdin is not None
        try:
            self._child.stdin.write(data)
            self._child.stdin.flush()
        except OSError:
            pass  # it has ended: whoever hears it says so

    def _hear(self, child: "subprocess.Popen[bytes]") -> None:
        assert child.stdout is not None
        for line in child.stdout:
            try:
                told = json.loads(line.decode("utf-8", "replace"))
            except ValueError:
                continue  # a library's banner: ours are lines of JSON
            if isinstance(told, dict):
                with self._changed:
                    if child is self._child:  # else it was let go: what it still says is of no call of ours
                        self._take(told)
                    self._changed.notify_all()
        status = child.wait()
        with self._changed:
            _close(child.stdin)
            _close(child.stdout)
            self._over(child, status)
            self._changed.notify_all()

    def _take(self, told: Json) -> None:
        self._heard_at = time.monotonic()
        if (told.get("driver") or {}).get("simulated"):
            self._simulated = True
        if "beat" in told:
            self._call, self._call_s = told.get("call") or "", float(told.get("call_s") or 0.0)
        elif "driver" in told:
            self._driver = told["driver"]
        elif "sample" in told:
            self._driver, self._gpus = told["sample"]["driver"], told["sample"]["gpus"]
            self._sampled_at = told["sample"]["at"]
            self._call, self._call_s = "", 0.0
            self._ends = 0
            if self._open in told["sample"].get("ids", ()):
                self._answered, self._open = max(self._answered, self._open or 0), None
                self._ask()
        elif "retire" in told:
            self._last_words = str(told["retire"])

    def _over(self, child: "subprocess.Popen[bytes]", status: int) -> None:
        if self._child is not child:
            return
        self._child = None
        self._open = None
        if self._last_words and status == 0:
            self._last_words = ""  # it retired by itself: the next look starts a new one
            return
        self._driver = None
        self._last_words = "the look at the driver ended by %s" % (
            "signal %d" % -status if status < 0 else "status %d" % status
        )
        self._not_before = time.monotonic() + BACK_OFF_S[min(self._ends, len(BACK_OFF_S) - 1)]
        self._ends += 1

    def close(self) -> None:
        """Let the driver go (an open handle blocks a reset): the child ends by itself at the end of its stdin."""
        with self._changed:
            self._closed += 1
            child, self._child = self._child, None
            self._open = None
            if child is not None and child.stdin is not None:
                self._left.append(child)
                _close(child.stdin)
            self._changed.notify_all()


def _close(pipe: Optional[IO[bytes]]) -> None:
    try:
        if pipe is not None:
            pipe.close()
    except OSError:
        pass  # what was not written yet: nobody is there to read it


# ------------------------------------------------------------------------------------------- before it is asked


def worth_asking() -> bool:
    """Whether there is a GPU or a driver to ask: else no process is started at all."""
    return bool(os.environ.get("NVML_LIBRARY")) or devices.present() or _on_the_bus()


def _on_the_bus() -> bool:
    """Whether an NVIDIA GPU is on the PCI bus, be there a driver or not."""
    base = "/sys/bus/pci/devices"
    try:
        names = os.listdir(base)
    except OSError:
        return False
    for name in names:
        if proc.read("%s/%s/vendor" % (base, name)).strip() != _NVIDIA.encode():
            continue
        if proc.read("%s/%s/class" % (base, name)).startswith(b"0x03"):
            return True
    return False


def stuck_child(left: Sequence[int]) -> Optional[Json]:
    """A process of this kind that nobody reads any more and that does not end, or one in state D. None: none.

    `left` are pids of such that this program has let go itself.
    """
    marker = (MARKER + "=").encode()
    for pid in proc.pids():
        for item in proc.read("/proc/%d/environ" % pid).split(b"\0"):
            if item.startswith(marker):
                parent = item[len(marker) :].decode("utf-8", "replace")
                found = _hangs(pid, orphan=pid in left or not _lives(parent))
                if found is not None:
                    return found
    return None


def _lives(identity: str) -> bool:
    pid, _, ticks = identity.partition(":")
    return pid.isdigit() and ticks.isdigit() and proc.alive(int(pid), int(ticks))


def _hangs(pid: int, *, orphan: bool) -> Optional[Json]:
    """How a process of this kind stands, if it hangs. One that somebody reads hangs only in state D, and not before it
    is there for as long as our own may be silent: without persistence mode a driver's start takes seconds in D."""
    end = time.monotonic() + STUCK_AFTER_S + (1.5 if orphan else 0.0)
    looks = 0
    while time.monotonic() < end:
        described = proc.describe(pid)
        if described is None:
            return None  # it was about to end
        looks = looks + 1 if described["state"] == "D" else 0
        if orphan and looks >= _D_LOOKS:
            return described
        if not orphan and not looks:
            return None
        time.sleep(0.1)
    return proc.describe(pid)
