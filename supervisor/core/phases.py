"""The phases' transition table. This is the only place where a phase changes.

RULES
 1. Every (phase, input) pair stands in `TRANSITIONS` or in `IGNORED`; a test counts them.
 2. This file does not know where an input comes from, what time it is, or which engine runs.
 3. `serving` is entered from `healthy` or `degraded` alone, and `healthy` by an accepted answer alone.
 4. Nothing leaves `failed` or `stopped` but a new run.
 5. The link has no row that moves anything: a lost connection says nothing about the server.

THEORY
 The machine (`machine.py`) turns each fact into one `Input`, counting where a rule needs a count: three bad
 answers in a row make `HEALTH_LOST`, an accepted answer after that makes `HEALTH_BACK`. The table then says where
 that leads. The phases before `healthy` follow what HTTP shows, back and forth: an engine may answer 503, refuse
 again (vLLM's dying core does) and come back. After `serving` a bad answer only degrades: it served, and the
 process lives.

WARNING to whoever edits: an engine that skips 503 is normal (`loading -> healthy`); a 503 may stand for ever (a
dead TensorRT-LLM rank); an accepted answer after `failed` is never silence: it is in `ALARMS`, and either a rule
is wrong or somebody else's server answers.
"""

from __future__ import annotations

from enum import StrEnum

from supervisor.core.events import Phase


class Input(StrEnum):
    """What the table reads. The names of facts, with answers split by verdict and counts applied."""

    RUN_BEGAN = "run_began"
    REFUSED = "refused"
    QUEUED = "queued"
    LAUNCHED = "launched"
    PROCESS_SEEN = "process_seen"
    ANSWER_READY = "answer_ready"
    ANSWER_NOT_YET = "answer_not_yet"
    ANSWER_REJECTED = "answer_rejected"
    ANSWER_REFUSED = "answer_refused"
    ANSWER_SILENT = "answer_silent"
    ANSWER_BROKEN = "answer_broken"
    HEALTH_LOST = "health_lost"
    HEALTH_BACK = "health_back"
    STAGE_SEEN = "stage_seen"
    READY_LINE_SEEN = "ready_line_seen"
    LOG_READ = "log_read"
    ENDED = "ended"
    ENDED_WANTED = "ended_wanted"
    CANNOT_COME_UP = "cannot_come_up"
    VERIFIED = "verified"
    VERIFY_FAILED = "verify_failed"
    STOP_BEGAN = "stop_began"
    STOP_INCOMPLETE = "stop_incomplete"
    TREE_GONE = "tree_gone"
    LINK_CHANGED = "link_changed"
    TICK = "tick"


P, I = Phase, Input  # noqa: E741 - the table is read by its columns, and short names make columns

TRANSITIONS: dict[Phase, dict[Input, Phase]] = {
    P.IDLE: {
        I.RUN_BEGAN: P.PREFLIGHT,
        # With --url there is no run: the first look at the address is the first thing known.
        I.ANSWER_READY: P.HEALTHY,
        I.ANSWER_NOT_YET: P.WARMING,
        I.ANSWER_REJECTED: P.LOADING,
        I.ANSWER_REFUSED: P.LOADING,
        I.ANSWER_SILENT: P.LOADING,
        I.ANSWER_BROKEN: P.LOADING,
    },
    P.PREFLIGHT: {
        I.REFUSED: P.IDLE,
        I.QUEUED: P.QUEUED,
        I.LAUNCHED: P.LAUNCHING,
        I.PROCESS_SEEN: P.LOADING,  # takeover of a live run
        I.ENDED: P.FAILED,
        I.ENDED_WANTED: P.STOPPING,
        I.STOP_BEGAN: P.STOPPING,
    },
    P.QUEUED: {
        I.REFUSED: P.IDLE,
        I.LAUNCHED: P.LAUNCHING,
        I.PROCESS_SEEN: P.LOADING,
        I.ENDED: P.FAILED,
        I.ENDED_WANTED: P.STOPPING,
        I.CANNOT_COME_UP: P.FAILED,
        I.STOP_BEGAN: P.STOPPING,
    },
    P.LAUNCHING: {
        I.REFUSED: P.IDLE,  # the command could not be executed: nothing runs
        I.QUEUED: P.QUEUED,
        I.PROCESS_SEEN: P.LOADING,
        I.ANSWER_READY: P.HEALTHY,
        I.ANSWER_NOT_YET: P.WARMING,
        I.ENDED: P.FAILED,
        I.ENDED_WANTED: P.STOPPING,
        I.CANNOT_COME_UP: P.FAILED,
        I.STOP_BEGAN: P.STOPPING,
    },
    P.LOADING: {
        I.ANSWER_READY: P.HEALTHY,
        I.ANSWER_NOT_YET: P.WARMING,
        I.ENDED: P.FAILED,
        I.ENDED_WANTED: P.STOPPING,
        I.CANNOT_COME_UP: P.FAILED,
        I.STOP_BEGAN: P.STOPPING,
    },
    P.WARMING: {
        I.ANSWER_READY: P.HEALTHY,
        I.ANSWER_REFUSED: P.LOADING,
        I.ENDED: P.FAILED,
        I.ENDED_WANTED: P.STOPPING,
        I.CANNOT_COME_UP: P.FAILED,
        I.STOP_BEGAN: P.STOPPING,
    },
    P.HEALTHY: {
        I.VERIFIED: P.SERVING,
        I.ANSWER_NOT_YET: P.WARMING,
        I.ANSWER_REFUSED: P.LOADING,
        I.HEALTH_LOST: P.LOADING,
        I.ENDED: P.FAILED,
        I.ENDED_WANTED: P.STOPPING,
        I.CANNOT_COME_UP: P.FAILED,
        I.STOP_BEGAN: P.STOPPING,
    },
    P.SERVING: {
        I.HEALTH_LOST: P.DEGRADED,
        I.VERIFY_FAILED: P.DEGRADED,
        I.CANNOT_COME_UP: P.DEGRADED,  # it did come up: what the log proves now is that it is sick
        I.ENDED: P.FAILED,
        I.ENDED_WANTED: P.STOPPING,
        I.STOP_BEGAN: P.STOPPING,
    },
    P.DEGRADED: {
        I.HEALTH_BACK: P.SERVING,
        I.VERIFIED: P.SERVING,
        I.ENDED: P.FAILED,
        I.ENDED_WANTED: P.STOPPING,
        I.STOP_BEGAN: P.STOPPING,
    },
    P.FAILED: {I.RUN_BEGAN: P.PREFLIGHT},
    P.STOPPING: {I.TREE_GONE: P.STOPPED},
    P.STOPPED: {I.RUN_BEGAN: P.PREFLIGHT},
}

_NEVER_MOVES = {
    I.STAGE_SEEN, I.READY_LINE_SEEN, I.LOG_READ, I.LINK_CHANGED, I.TICK, I.STOP_INCOMPLETE,
}  # fmt: skip
_ANSWERS = {I.ANSWER_REJECTED, I.ANSWER_REFUSED, I.ANSWER_SILENT, I.ANSWER_BROKEN}
_ALL_ANSWERS = _ANSWERS | {I.ANSWER_READY, I.ANSWER_NOT_YET, I.HEALTH_LOST, I.HEALTH_BACK}
_RUN_STEPS = {I.REFUSED, I.QUEUED, I.LAUNCHED, I.PROCESS_SEEN}
_VERIFY = {I.VERIFIED, I.VERIFY_FAILED}
_COUNTS = {I.HEALTH_LOST, I.HEALTH_BACK}

IGNORED: dict[Phase, set[Input]] = {
    P.IDLE: _NEVER_MOVES | _COUNTS | _RUN_STEPS | _VERIFY
    | {I.ENDED, I.ENDED_WANTED, I.CANNOT_COME_UP, I.STOP_BEGAN, I.TREE_GONE},
    # No answer can prove anything while the node is still being looked at.
    P.PREFLIGHT: _NEVER_MOVES | _ALL_ANSWERS | _VERIFY | {I.RUN_BEGAN, I.CANNOT_COME_UP, I.TREE_GONE},
    P.QUEUED: _NEVER_MOVES | _ALL_ANSWERS | _VERIFY | {I.RUN_BEGAN, I.QUEUED, I.TREE_GONE},
    P.LAUNCHING: _NEVER_MOVES | _ANSWERS | _COUNTS | _VERIFY | {I.RUN_BEGAN, I.LAUNCHED, I.TREE_GONE},
    P.LOADING: _NEVER_MOVES | _ANSWERS | _COUNTS | _RUN_STEPS | _VERIFY | {I.RUN_BEGAN, I.TREE_GONE},
    P.WARMING: _NEVER_MOVES | (_ANSWERS - {I.ANSWER_REFUSED}) | _COUNTS | _RUN_STEPS | _VERIFY
    | {I.RUN_BEGAN, I.ANSWER_NOT_YET, I.TREE_GONE},
    # A failed verification leaves `healthy` as it is: 200 was seen and is true. The finding tells the rest.
    P.HEALTHY: _NEVER_MOVES | (_ANSWERS - {I.ANSWER_REFUSED}) | _RUN_STEPS
    | {I.RUN_BEGAN, I.ANSWER_READY, I.HEALTH_BACK, I.VERIFY_FAILED, I.TREE_GONE},
    P.SERVING: _NEVER_MOVES | (_ALL_ANSWERS - {I.HEALTH_LOST}) | _RUN_STEPS
    | {I.RUN_BEGAN, I.VERIFIED, I.TREE_GONE},
    P.DEGRADED: _NEVER_MOVES | (_ALL_ANSWERS - {I.HEALTH_BACK}) | _RUN_STEPS
    | {I.RUN_BEGAN, I.VERIFY_FAILED, I.CANNOT_COME_UP, I.TREE_GONE},
    P.FAILED: _NEVER_MOVES | _ALL_ANSWERS | _RUN_STEPS | _VERIFY
    | {I.ENDED, I.ENDED_WANTED, I.CANNOT_COME_UP, I.STOP_BEGAN, I.TREE_GONE},
    P.STOPPING: _NEVER_MOVES | _ALL_ANSWERS | _RUN_STEPS | _VERIFY
    | {I.RUN_BEGAN, I.ENDED, I.ENDED_WANTED, I.CANNOT_COME_UP, I.STOP_BEGAN},
    P.STOPPED: _NEVER_MOVES | _ALL_ANSWERS | _RUN_STEPS | _VERIFY
    | {I.ENDED, I.ENDED_WANTED, I.CANNOT_COME_UP, I.STOP_BEGAN, I.TREE_GONE},
}  # fmt: skip

ALARMS: set[tuple[Phase, Input]] = {
    (P.FAILED, I.ANSWER_READY),
    (P.STOPPED, I.ANSWER_READY),
    (P.FAILED, I.VERIFIED),
    (P.STOPPED, I.VERIFIED),
}
"""Ignored by the table, but never in silence: the machine tells a warning."""

ENDED_PHASES = {P.FAILED, P.STOPPED}
"""Phases that only a new run leaves."""


def successor(phase: Phase, given: Input) -> Phase | None:
    """The phase that `given` leads to, None where it is ignored. A pair in neither table is a bug: KeyError."""
    target = TRANSITIONS[phase].get(given)
    if target is None and given not in IGNORED[phase]:
        raise KeyError(f"({phase}, {given}) stands neither in the table nor among the ignored")
    return target
