"""A load whose log is silent: does it work, does it hang, does nothing move at all? Pure; fed with looks.

A just-in-time compilation writes no line for 10 to 20 minutes, and its compilers are busy. A collective that waits for
a dead rank spins: the GPUs stand at 100 %, no child works, no byte moves. What is said here is a suspicion, with what
it rests on; it never ends anything.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from supervisor.core.durations import spell

SILENT_S = 20.0
"""A shorter silence is nothing to speak of; from here on what shows that it works keeps `--stall` away."""
SUSPECT_S = 180.0
"""A silence is suspicious from here on; NCCL's own set-up can spin for a minute."""
LOOKED_BACK_S = 45.0
"""What is judged is how it stood in this time, not at one moment."""
STEP_BYTES = 64 << 20
READ_STEP_BYTES = 4 << 20
IDLE_CORES = 0.15
"""A server that waits polls a little; below this it does nothing."""
SPINNING_PERCENT = 95
COMPILERS = frozenset({
    "nvcc", "cicc", "ptxas", "fatbinary", "nvlink", "cudafe++", "tileiras", "hipcc", "ninja", "make", "cmake",
    "cc1", "cc1plus", "collect2", "gcc", "g++", "c++", "cc", "clang", "clang++", "as", "ld", "ld.lld",
})  # fmt: skip


class State(StrEnum):
    """What a silence is."""

    MOVING = "moving"
    """It is none: something goes on."""
    WORKING = "working"
    """The log is silent, and something else shows that it works."""
    SPINNING = "spinning"
    """The GPUs are busy and nothing else moves: it may hang in a collective."""
    STILL = "still"
    """Nothing moves."""
    UNKNOWN = "unknown"
    """Silent, and what else it does is not seen."""


class Look(Struct, frozen=True, kw_only=True):
    """What was seen at one moment. None: not known."""

    at: float
    voice: object = None
    """The log's offset and the stage's place: another value is a voice."""
    held_bytes: int | None = None
    """GPU memory of the run."""
    rss_bytes: int | None = None
    read_bytes: int | None = None
    cpu_s: float | None = None
    """Of all of its processes together, since they began."""
    compilers: tuple[str, ...] = ()
    """Names of the compilers below it."""
    gpu_percent: int | None = None
    """The busiest of its GPUs."""


class Stillness(Struct, frozen=True, kw_only=True):
    """What a silence comes to, in words."""

    state: State
    silent_s: float = 0.0
    text: str = ""
    suspicious: bool = False


MOVING = Stillness(state=State.MOVING)


class Watch:
    """One load's."""

    def __init__(self) -> None:
        self._looks: deque[Look] = deque()
        self._last: Look | None = None
        self._moved_at = 0.0
        self._moved = Look(at=0.0)

    def look(self, look: Look) -> Stillness:
        """Take one look; say how it stands."""
        if self._last is None or look.at < self._last.at or self._moves(look):
            self._moved_at, self._moved = look.at, look
            self._looks.clear()
        self._last = look
        self._looks.append(look)
        while look.at - self._looks[0].at > LOOKED_BACK_S:
            self._looks.popleft()
        silent_s = look.at - self._moved_at
        return MOVING if silent_s < SILENT_S else self._silent(look, silent_s)

    def _moves(self, look: Look) -> bool:
        then = self._moved
        return (
            look.voice != then.voice
            or _stepped(look.held_bytes, then.held_bytes, STEP_BYTES)
            or _stepped(look.rss_bytes, then.rss_bytes, STEP_BYTES)
            or _stepped(look.read_bytes, then.read_bytes, READ_STEP_BYTES)
        )

    def _silent(self, look: Look, silent_s: float) -> Stillness:
        cores, gpus = self._cores(), [item.gpu_percent for item in self._looks if item.gpu_percent is not None]
        said = f"silent for {spell(silent_s)}"
        if look.compilers and (cores is None or cores >= IDLE_CORES):
            text = f"{said}; children: {names(look.compilers)} busy"
            return Stillness(state=State.WORKING, silent_s=silent_s, text=text)
        suspicious = silent_s >= SUSPECT_S
        if gpus and min(gpus) >= SPINNING_PERCENT and look.held_bytes is not None:
            text = f"{said} with GPUs at {max(gpus)} %, memory flat, no compiler below it: looks like a hang (NCCL?)"
            return Stillness(state=State.SPINNING, silent_s=silent_s, text=text, suspicious=suspicious)
        if gpus and max(gpus) > 0:
            return Stillness(state=State.WORKING, silent_s=silent_s, text=f"{said}; GPUs at {max(gpus)} %")
        if cores is None:
            return Stillness(state=State.UNKNOWN, silent_s=silent_s, text=said)
        if cores >= IDLE_CORES:
            return Stillness(state=State.WORKING, silent_s=silent_s, text=f"{said}; CPU {cores * 100:.0f} %")
        idle = ", no compiler busy" if look.compilers else ""
        text = f"nothing moves: CPU {cores * 100:.0f} %, memory flat{idle}, log silent for {spell(silent_s)}"
        return Stillness(state=State.STILL, silent_s=silent_s, text=text, suspicious=suspicious)

    def _cores(self) -> float | None:
        """How many cores it used lately, None where that is not seen."""
        known = [item for item in self._looks if item.cpu_s is not None]
        if len(known) < 2 or known[-1].at <= known[0].at:
            return None
        # A process that ended takes its time with it.
        return max(0.0, (known[-1].cpu_s or 0.0) - (known[0].cpu_s or 0.0)) / (known[-1].at - known[0].at)


def _stepped(now: int | None, then: int | None, step: int) -> bool:
    if now is None or then is None:
        return (now is None) != (then is None)
    return abs(now - then) >= step


def compilers(titles: Iterable[str]) -> tuple[str, ...]:
    """The compilers among these command lines, by the names of their programs."""
    found = (title.split(" ", 1)[0].rpartition("/")[2] for title in titles)
    return tuple(sorted(name for name in map(_plain, found) if name in COMPILERS))


def _plain(name: str) -> str:
    """ "x86_64-linux-gnu-gcc-12" is a gcc."""
    stem = name.rpartition("linux-gnu-")[2]
    head, _, version = stem.rpartition("-")
    return head if head and version.replace(".", "").isdigit() else stem


def names(compilers: Iterable[str]) -> str:
    """ "16 cicc, 1 ninja", the most first."""
    counts = Counter(compilers)
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])))
