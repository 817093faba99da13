"""What the log does not say of an end: exit status, the kernel's record, memory, who died first, the silence."""

from __future__ import annotations

from msgspec import Struct

from supervisor.core.events import Exit


class DeadProcess(Struct, frozen=True, kw_only=True):
    """A process of the run that ended while others lived. `how` is None where nobody saw it."""

    at: float
    pid: int
    title: str
    how: Exit | None = None


class OomKill(Struct, frozen=True, kw_only=True):
    """A process that the kernel killed for memory, as its record says it (kernel log, or a cgroup's counter)."""

    text: str
    """The record itself, or what was counted where."""
    pid: int | None = None
    """None where only a counter tells of it."""
    ours: bool = False
    """The record names a process of this run, or the counter is of a cgroup that holds this run alone."""


class EndFacts(Struct, frozen=True, kw_only=True):
    """All of an end but the log. Every field may be unknown."""

    exit: Exit | None = None
    """None: it has not ended, or nothing is known of its end (a log file alone)."""
    served: bool = False
    """It had answered with health or a generation before."""
    asked_to_stop: bool = False
    dead: tuple[DeadProcess, ...] = ()
    """In the order in which they were missed."""
    oom_kills: tuple[OomKill, ...] = ()
    oom_looked_at: bool = False
    """False: nobody could look for such records, so that none being there says nothing."""
    host_free_bytes: int | None = None
    """The least of the host's or cgroup's available memory that was seen in the last seconds."""
    host_total_bytes: int | None = None
    gpus: tuple[str, ...] = ()
    """GPUs that were nearly full at the end, in words with figures: `GPU 3: 94.9 of 95.6 GiB`."""
    gpu_faults: tuple[str, ...] = ()
    """What the driver told of bad hardware while the run lived: `GPU 3: XID 79, the GPU has fallen off the bus`."""
    silent_s: float | None = None
    """How long the log had been silent at the end."""
