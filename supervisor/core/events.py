"""The vocabulary of the whole program: facts go into the machine, events come out. No behaviour.

Every `at` is a time of the operator's clock in seconds since the epoch (`adapters.base.Clock`); what the node
observed is converted by the offset that its hello told. Facts and events are frozen Structs tagged by `kind`;
the events are what `--json` prints (CONTRACT section 2), so their fields are added, never renamed.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Union

from msgspec import Struct

if TYPE_CHECKING:
    from supervisor.core.gpu_events import GpuEvent, Holders


class Phase(StrEnum):
    """Where a run stands. DESIGN section 3 says when each is entered; `phases.py` has the table."""

    IDLE = "idle"
    PREFLIGHT = "preflight"
    QUEUED = "queued"
    LAUNCHING = "launching"
    LOADING = "loading"
    WARMING = "warming"
    HEALTHY = "healthy"
    SERVING = "serving"
    DEGRADED = "degraded"
    FAILED = "failed"
    STOPPING = "stopping"
    STOPPED = "stopped"


LABELS: dict[Phase, str] = {phase: phase.value for phase in Phase} | {
    Phase.WARMING: "503",
    Phase.HEALTHY: "200",
}
"""What the console shows for a phase: the two that are HTTP states are shown as the status an operator knows."""


class Verdict(StrEnum):
    """What one look at the health endpoint came to, by the engine's rule."""

    READY = "ready"
    """By status (and body), owner and model this is our server, and it is ready."""
    NOT_YET = "not_yet"
    """HTTP answers, and by the engine's rule this answer means "not yet"."""
    REJECTED = "rejected"
    """HTTP answers, but what it says is neither: 401, 404, a redirect, a port that is not ours …"""
    REFUSED = "refused"
    """Nothing listens there."""
    SILENT = "silent"
    """Connected (or tried to), and no answer within the time that the engine may take."""
    BROKEN = "broken"
    """Something answered that is not HTTP, or the connection broke; or the name does not resolve."""


class Owner(StrEnum):
    """Whose process listens on the port (CONTRACT section 5)."""

    OURS = "ours"
    OTHER = "other"
    UNKNOWN = "unknown"
    NOT_CHECKED = "not_checked"


class LinkState(StrEnum):
    """Our connection to the node. A lost link says nothing about the server."""

    CONNECTING = "connecting"
    UP = "up"
    LOST = "lost"
    DOWN = "down"


# ------------------------------------------------------------------------------------------------ parts


class Evidence(Struct, frozen=True, kw_only=True):
    """One fact that a verdict rests on, in words."""

    kind: str
    at: float
    text: str


class Answer(Struct, frozen=True, kw_only=True):
    """One look at an HTTP endpoint, with the verdict and why."""

    verdict: Verdict
    why: str
    """One sentence: what was seen and by which rule it means what the verdict says."""
    status: int | None = None
    bytes: int | None = None
    """Body length: what Content-Length says, else what was read (64 KiB at most); None without an answer."""
    ms: float = 0.0
    """Milliseconds from the request to the header block (or to the failure)."""
    address: str = ""
    owner: Owner = Owner.NOT_CHECKED
    model: str | None = None
    """The served model's id, where it was looked at."""
    cause: str = ""
    """A stable word that groups answers which were rejected or broken for the same reason."""


class Process(Struct, frozen=True, kw_only=True):
    """One process on the node. Identity is (boot id, pid, start ticks), never a bare pid."""

    pid: int
    start_ticks: int
    ppid: int = 0
    uid: int = 0
    title: str = ""
    state: str = ""
    rss_bytes: int = 0
    age_s: float = 0.0


class Exit(Struct, frozen=True, kw_only=True):
    """How the root process ended. Both None: it is gone, and nobody saw how."""

    code: int | None = None
    signal: str | None = None

    def words(self) -> str:
        """For people: "exit code 1", "signal SIGKILL", "gone, exit code unknown"."""
        if self.signal is not None:
            return f"signal {self.signal}"
        if self.code is not None:
            return f"exit code {self.code}"
        return "gone, exit code unknown"


# ------------------------------------------------------------------------------------------------ facts


class Fact(Struct, frozen=True, kw_only=True, tag_field="kind"):
    """Something observed, with its time."""

    at: float


class RunBegan(Fact, frozen=True, kw_only=True, tag="run_began"):
    """A new run of the profile was chosen (launch, takeover or restart); the node is being looked at."""

    run_id: str
    why: str


class Refused(Fact, frozen=True, kw_only=True, tag="refused"):
    """Preflight refused: nothing was launched."""

    reasons: tuple[str, ...]


class Queued(Fact, frozen=True, kw_only=True, tag="queued"):
    """A cluster scheduler holds the job."""

    job: str


class Launched(Fact, frozen=True, kw_only=True, tag="launched"):
    """The keeper was started on the node."""

    text: str


class ProcessSeen(Fact, frozen=True, kw_only=True, tag="process_seen"):
    """The root process of the run lives."""

    root: Process
    text: str = ""


class Answered(Fact, frozen=True, kw_only=True, tag="answered"):
    """One look at the health endpoint is over."""

    answer: Answer


class StageSeen(Fact, frozen=True, kw_only=True, tag="stage_seen"):
    """A line of the log tells a stage of the load, with its progress where the line has one."""

    stage: str
    done: int | None = None
    total: int | None = None
    fraction: float | None = None
    line: str = ""
    eta_s: float | None = None
    """What is left of the whole load, by all that was known when the line came. The next two belong to it."""
    overall: float | None = None
    rests_on: str = ""


class ReadyLineSeen(Fact, frozen=True, kw_only=True, tag="ready_line_seen"):
    """The engine's log says that it is ready. A hint to look, never proof."""

    line: str


class LogRead(Fact, frozen=True, kw_only=True, tag="log_read"):
    """The run's log was read up to this offset of the file."""

    offset: int


class Ended(Fact, frozen=True, kw_only=True, tag="ended"):
    """The run ended: its root process (or, where it detaches, its whole tree) is gone."""

    exit: Exit
    log_size: int | None = None
    left: tuple[Process, ...] = ()
    stopped_by: str | None = None
    """Who wanted it (from stop.json), None when nobody did."""


class CannotComeUp(Fact, frozen=True, kw_only=True, tag="cannot_come_up"):
    """The log or the ranks prove that this launch will never serve."""

    text: str


class Verified(Fact, frozen=True, kw_only=True, tag="verified"):
    """A generation came back and passed its check."""

    text: str
    checked: bool = True


class VerifyFailed(Fact, frozen=True, kw_only=True, tag="verify_failed"):
    """Verification used up its tries or its time."""

    text: str


class StopBegan(Fact, frozen=True, kw_only=True, tag="stop_began"):
    """Somebody wants the server stopped: stop.json stands, before the first signal."""

    by: str


class StopIncomplete(Fact, frozen=True, kw_only=True, tag="stop_incomplete"):
    """The stop is over, and something is left."""

    text: str
    left: tuple[Process, ...] = ()


class TreeGone(Fact, frozen=True, kw_only=True, tag="tree_gone"):
    """No process of the run is left on the node."""

    release: str
    """`proved`, `unproved (why)` or `no gpu`."""


class LinkChanged(Fact, frozen=True, kw_only=True, tag="link_changed"):
    """Our connection changed its state."""

    state: LinkState
    why: str


class Tick(Fact, frozen=True, kw_only=True, tag="tick"):
    """Time passed; nothing else."""


# ------------------------------------------------------------------------------------------------ events


class Event(Struct, frozen=True, kw_only=True, tag_field="kind"):
    """One line of the stream. `at` is the operator's clock at the observation."""

    at: float


class PhaseChanged(Event, frozen=True, kw_only=True, tag="phase"):
    """The phase changed, on this evidence."""

    from_: Phase
    to: Phase
    label: str
    evidence: tuple[Evidence, ...]
    run_id: str = ""


class Health(Event, frozen=True, kw_only=True, tag="health"):
    """The health endpoint was looked at. Equal answers in a row are told at most once a second."""

    status: int | None
    bytes: int | None
    ms: float
    verdict: Verdict
    why: str = ""
    owner: Owner = Owner.NOT_CHECKED
    address: str = ""
    count: int = 1
    """How many answers in a row this line stands for."""


class Progress(Event, frozen=True, kw_only=True, tag="progress"):
    """Where the load stands. `eta_s` is None as long as nothing supports an estimate."""

    stage: str
    done: int | None = None
    total: int | None = None
    fraction: float | None = None
    """Of the stage: by its bar, or by memory where the log has none."""
    eta_s: float | None = None
    """Until the first accepted answer."""
    overall: float | None = None
    """Of the whole load, None without an estimate."""
    rests_on: str = ""
    """What the estimate rests on: `history`, `log bar`, `memory` or `typical`."""
    still_s: float = 0.0
    """For how long the stage had told nothing when this was: estimates are told anew while a stage is silent."""
    signs: str = ""
    """What shows that it works, where its log is silent ("16 cicc busy"). Empty while the log tells it."""


class LinkEvent(Event, frozen=True, kw_only=True, tag="link"):
    """The link changed. The phase never changes with it."""

    state: LinkState
    why: str


class Finding(Event, frozen=True, kw_only=True, tag="finding"):
    """A diagnosis: cause, the line that shows it, advice. `category` is a family of failures."""

    category: str
    detail: str
    cause: str
    line: str = ""
    line_no: int | None = None
    confidence: str = "low"
    advice: str = ""
    ruled_out: tuple[str, ...] = ()


class Warning_(Event, frozen=True, kw_only=True, tag="warning"):
    """Something that the user should know; it stops nothing."""

    text: str
    facts: dict[str, str | int | float | bool | None] = {}


class Log(Event, frozen=True, kw_only=True, tag="log"):
    """One line of the server's log, safe to show. Only with `--events all` in JSON."""

    text: str
    line_no: int | None
    offset: int
    living: bool = False
    """A progress bar that is still being redrawn: it replaces the living line before it."""
    dropped: int = 0
    """Lines that a slow reader missed just before this one."""


class LogBlock(Event, frozen=True, kw_only=True, tag="log_block"):
    """Bytes of the server's log as they came, cut anywhere: at 50 MB/s nobody can make an object of each line.

    It never leaves the program: whoever wants lines takes `Log`s out of it (`core/log_lines.py`).
    """

    data: bytes
    offset: int
    """The file's offset of the first byte."""
    line_no: int
    """1-based number of the line that the first byte belongs to."""
    lines: int
    """How many `\\n` are in `data`."""
    fresh: bool = False
    """The log is another file from here on (it was rotated): offsets and numbers begin anew."""
    run_offset: int = 0
    """Where the run began in its file: what is before belongs to somebody else."""
    run_line: int = 1
    """The number of the line at `run_offset`."""


class Metrics(Event, frozen=True, kw_only=True, tag="metrics"):
    """What a serving engine tells of its load. None where it does not tell it. Only with `--events all` in JSON."""

    running: int | None = None
    queued: int | None = None
    generated_tokens_s: float | None = None
    prompt_tokens_s: float | None = None
    cache_share: float | None = None
    """Of the KV cache in use, 0 to 1."""
    why: str = ""
    """Why nothing is known, where nothing is (the engine was launched without its metrics, …)."""


class PhaseTime(Struct, frozen=True, kw_only=True):
    """Seconds spent in one phase; a phase that was entered twice stands twice."""

    phase: Phase
    s: float


class Outcome(StrEnum):
    """The verdict of a whole command."""

    REACHED = "reached"
    FAILED = "failed"
    REFUSED = "refused"
    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    INTERRUPTED = "interrupted"


class Summary(Event, frozen=True, kw_only=True, tag="summary"):
    """The last line of every command that waits."""

    verdict: Outcome
    exit_code: int
    phase: Phase
    reason: str
    phases: tuple[PhaseTime, ...] = ()
    answers: dict[str, int] = {}
    finding: Finding | None = None
    evidence: tuple[Evidence, ...] = ()


AnyFact = (
    RunBegan | Refused | Queued | Launched | ProcessSeen | Answered | StageSeen | ReadyLineSeen | LogRead | Ended
    | CannotComeUp | Verified | VerifyFailed | StopBegan | StopIncomplete | TreeGone | LinkChanged | Tick
)  # fmt: skip
AnyEvent = Union[  # two of them are names alone until somebody needs them: see gpu_events.py
    PhaseChanged, Health, Progress, LinkEvent, Finding, Warning_, Log, LogBlock, Metrics, Summary,
    "GpuEvent", "Holders",
]  # fmt: skip
