"""The machine of one supervised server: `feed(fact)` returns events; `deadline` says when it wants to be woken.

Pure: no clock (every fact carries its time), no I/O. It counts what a rule needs counted, asks the table of
`phases.py` where that leads, and attaches the evidence. It never decides how long to wait for what: that is
`wait.py`. The link is a second, smaller machine in here, which never touches the phase.
"""

from __future__ import annotations

from collections import deque

from supervisor.core import events as ev
from supervisor.core.events import Phase, Verdict
from supervisor.core.lines import sanitise
from supervisor.core.phases import ALARMS, Input, successor

HEALTH_LOST_AFTER = 3
"""Bad answers in a row before a server that was healthy counts as lost: one slow look is no outage."""
DRAIN_S = 0.3
"""How long an end waits for the rest of the log, so that the verdict can show the last line."""
REPEAT_S = 1.0
"""Equal answers in a row are told at most once in this time."""

_SETTLING = {Input.RUN_BEGAN, Input.STOP_BEGAN, Input.TREE_GONE}
"""What cannot wait for the log: an end that still drains moves first, or these would be lost."""
_OF_A_LIVING_SERVER = {
    Input.ANSWER_READY, Input.ANSWER_NOT_YET, Input.ANSWER_REJECTED, Input.ANSWER_REFUSED, Input.ANSWER_SILENT,
    Input.ANSWER_BROKEN, Input.HEALTH_LOST, Input.HEALTH_BACK, Input.VERIFIED, Input.VERIFY_FAILED,
}  # fmt: skip
"""What moves nothing while an end drains: an answer that was under way must not make a dead server healthy."""

_ANSWER_INPUTS = {
    Verdict.READY: Input.ANSWER_READY,
    Verdict.NOT_YET: Input.ANSWER_NOT_YET,
    Verdict.REJECTED: Input.ANSWER_REJECTED,
    Verdict.REFUSED: Input.ANSWER_REFUSED,
    Verdict.SILENT: Input.ANSWER_SILENT,
    Verdict.BROKEN: Input.ANSWER_BROKEN,
}
_SIMPLE_INPUTS: dict[type[ev.Fact], Input] = {
    ev.RunBegan: Input.RUN_BEGAN,
    ev.Refused: Input.REFUSED,
    ev.Queued: Input.QUEUED,
    ev.Launched: Input.LAUNCHED,
    ev.ProcessSeen: Input.PROCESS_SEEN,
    ev.StageSeen: Input.STAGE_SEEN,
    ev.ReadyLineSeen: Input.READY_LINE_SEEN,
    ev.LogRead: Input.LOG_READ,
    ev.CannotComeUp: Input.CANNOT_COME_UP,
    ev.Verified: Input.VERIFIED,
    ev.VerifyFailed: Input.VERIFY_FAILED,
    ev.StopBegan: Input.STOP_BEGAN,
    ev.StopIncomplete: Input.STOP_INCOMPLETE,
    ev.TreeGone: Input.TREE_GONE,
    ev.LinkChanged: Input.LINK_CHANGED,
    ev.Tick: Input.TICK,
}


class Machine:
    """Drives one server through its phases.

    Args:
        verify: False moves on from `healthy` to `serving` at once, with the evidence saying "not verified".
    """

    def __init__(self, *, verify: bool) -> None:
        self.verify = verify
        self.phase = Phase.IDLE
        self.run_id = ""
        self.link = ev.LinkState.CONNECTING
        self._entered_at = float("-inf")
        self._bad_answers = 0
        self._health_was_lost = False
        self._last_answer: ev.Answer | None = None
        self._told_answer_at = float("-inf")
        self._untold_answers = 0
        self._log_read = 0
        self._ended: ev.Ended | None = None
        self._stage: ev.Progress | None = None
        self._root: deque[ev.Evidence] = deque(maxlen=1)
        self._accepted: ev.Evidence | None = None

    def __repr__(self) -> str:
        return f"<Machine {self.phase.value}, link {self.link.value}, run {self.run_id or '-'}>"

    @property
    def deadline(self) -> float | None:
        """The time of the next `Tick` that could change anything, None when time alone changes nothing."""
        return self._ended.at + DRAIN_S if self._ended is not None else None

    def feed(self, fact: ev.AnyFact) -> list[ev.AnyEvent]:
        """Take one fact; return what it changed, in order."""
        out: list[ev.AnyEvent] = []
        match fact:
            case ev.Ended():
                if self._ended is None and successor(self.phase, Input.ENDED) is not None:
                    self._ended = fact
            case ev.LogRead():
                self._log_read = max(self._log_read, fact.offset)
            case ev.LinkChanged():
                out += self._link_changed(fact)
            case ev.StageSeen():
                out += self._stage_seen(fact)
            case ev.ProcessSeen():
                self._root.append(_evidence_of(fact))
            case ev.Answered():
                out += self._health(fact)
            case _:
                pass
        if not isinstance(fact, ev.Ended):
            given = self._input_of(fact)
            if given in _SETTLING and not self._waits_for_last_words(given):
                out += self._settle()
            if self._ended is None or given not in _OF_A_LIVING_SERVER:
                out += self._move(given, fact)
        if self._ended is not None and self._drained(self._ended, fact.at):
            out += self._settle()
        return out

    def _waits_for_last_words(self, given: Input) -> bool:
        """A tree that goes with its root is no reason to judge an unwanted end before its log is read."""
        return given is Input.TREE_GONE and self._ended is not None and self._ended.stopped_by is None

    def _settle(self) -> list[ev.AnyEvent]:
        """Move on the end that was held back for its log, if there is one."""
        ended, self._ended = self._ended, None
        if ended is None:
            return []
        return self._move(Input.ENDED if ended.stopped_by is None else Input.ENDED_WANTED, ended)

    # ------------------------------------------------------------------------------------ what a fact means

    def _input_of(self, fact: ev.AnyFact) -> Input:
        if not isinstance(fact, ev.Answered):
            return _SIMPLE_INPUTS[type(fact)]
        answer = fact.answer
        if answer.verdict is Verdict.READY:
            self._bad_answers = 0
            if self._health_was_lost and self.phase is Phase.DEGRADED:
                return Input.HEALTH_BACK
            return Input.ANSWER_READY
        self._bad_answers += 1
        # Before `healthy`, each kind of bad answer has its own meaning; after it, only their number counts.
        if self._bad_answers >= HEALTH_LOST_AFTER and self.phase in (Phase.HEALTHY, Phase.SERVING):
            if self.phase is Phase.HEALTHY and answer.verdict in (Verdict.NOT_YET, Verdict.REFUSED):
                return _ANSWER_INPUTS[answer.verdict]
            return Input.HEALTH_LOST
        return _ANSWER_INPUTS[answer.verdict]

    def _drained(self, ended: ev.Ended, now: float) -> bool:
        return ended.log_size is None or self._log_read >= ended.log_size or now >= ended.at + DRAIN_S

    # ------------------------------------------------------------------------------------ moving

    def _move(self, given: Input, fact: ev.AnyFact) -> list[ev.AnyEvent]:
        target = successor(self.phase, given)
        if target is None:
            return self._alarm(given, fact)
        evidence = [_evidence_of(fact)]
        if given is Input.ANSWER_READY:
            self._accepted = evidence[0]
        if target is Phase.SERVING and self._accepted is not None and given is Input.VERIFIED:
            evidence.append(self._accepted)
        if target is Phase.LOADING and given is not Input.PROCESS_SEEN and self._root:
            evidence.append(self._root[0])
        if target is Phase.PREFLIGHT and isinstance(fact, ev.RunBegan):
            self._begin_run(fact)  # first, so that the change bears the new run's id
        out: list[ev.AnyEvent] = [self._enter(target, fact.at, tuple(evidence))]
        if given is Input.HEALTH_LOST:
            self._health_was_lost = True
        if target is Phase.SERVING:
            self._health_was_lost = False
            self._bad_answers = 0
        if target is Phase.HEALTHY and not self.verify:
            unverified = ev.Verified(at=fact.at, text="not verified (verification is off)", checked=False)
            out += self._move(Input.VERIFIED, unverified)
        return out

    def _enter(self, phase: Phase, at: float, evidence: tuple[ev.Evidence, ...]) -> ev.PhaseChanged:
        before, self.phase = self.phase, phase
        # An end that waited for its log is older than what came meanwhile; a phase never lasts less than no time.
        self._entered_at = at = max(at, self._entered_at)
        return ev.PhaseChanged(
            at=at, from_=before, to=phase, label=ev.LABELS[phase], evidence=evidence, run_id=self.run_id
        )

    def _begin_run(self, fact: ev.RunBegan) -> None:
        self.run_id = fact.run_id
        self._bad_answers = self._untold_answers = 0
        self._health_was_lost = False
        self._last_answer = None
        self._log_read = 0
        self._ended = None
        self._stage = None
        self._accepted = None
        self._root.clear()

    def _alarm(self, given: Input, fact: ev.AnyFact) -> list[ev.AnyEvent]:
        if (self.phase, given) not in ALARMS:
            return []
        what = _evidence_of(fact).text
        text = f"the run has {self.phase.value}, and yet: {what}. Another server may answer on that address."
        return [ev.Warning_(at=fact.at, text=text, facts={"phase": self.phase.value, "input": given.value})]

    # ------------------------------------------------------------------------------------ beside the phase

    def _link_changed(self, fact: ev.LinkChanged) -> list[ev.AnyEvent]:
        if fact.state is self.link:
            return []
        self.link = fact.state
        # A node's name, and what its shell says before our program begins, are anybody's words.
        return [ev.LinkEvent(at=fact.at, state=fact.state, why=sanitise(fact.why))]

    def _stage_seen(self, fact: ev.StageSeen) -> list[ev.AnyEvent]:
        progress = ev.Progress(
            at=fact.at,
            stage=fact.stage,
            done=fact.done,
            total=fact.total,
            fraction=fact.fraction,
            eta_s=fact.eta_s,
            overall=fact.overall,
            rests_on=fact.rests_on,
        )
        last, self._stage = self._stage, progress
        if last is not None and (last.stage, last.done, last.fraction) == (
            progress.stage,
            progress.done,
            progress.fraction,
        ):
            return []
        return [progress]

    def _health(self, fact: ev.Answered) -> list[ev.AnyEvent]:
        """Tell an answer, except the second and third of the same kind within a second: count those."""
        answer, last = fact.answer, self._last_answer
        self._last_answer = answer
        same = last is not None and (last.verdict, last.status, last.cause) == (
            answer.verdict,
            answer.status,
            answer.cause,
        )
        # The untold ones before another kind of answer were that other kind's: this line must not stand for them.
        self._untold_answers = self._untold_answers + 1 if same else 1
        if same and fact.at - self._told_answer_at < REPEAT_S:
            return []
        count, self._untold_answers = self._untold_answers, 0
        self._told_answer_at = fact.at
        return [
            ev.Health(
                at=fact.at,
                status=answer.status,
                bytes=answer.bytes,
                ms=round(answer.ms, 1),
                verdict=answer.verdict,
                why=sanitise(answer.why),
                owner=answer.owner,
                address=answer.address,
                count=count,
            )
        ]


def _evidence_of(fact: ev.AnyFact) -> ev.Evidence:
    """The fact in words, as evidence for a move."""
    kind = type(fact).__struct_config__.tag
    match fact:
        case ev.RunBegan():
            text = f"run {fact.run_id}: {fact.why}"
        case ev.Refused():
            text = "; ".join(fact.reasons)
        case ev.Queued():
            text = f"the scheduler holds job {fact.job}"
        case ev.ProcessSeen():
            text = fact.text or f"process {fact.root.pid} lives: {fact.root.title}"
        case ev.Answered():
            text = describe_answer(fact.answer)
            if fact.answer.verdict is not Verdict.READY and fact.answer.owner is ev.Owner.NOT_CHECKED:
                text += " (no process is seen from here)"
        case ev.Ended():
            text = f"the server ended: {fact.exit.words()}"
            if fact.stopped_by is not None:
                text += f", stopped by {fact.stopped_by}"
            if fact.left:
                text += f"; {len(fact.left)} of its processes are left: " + _pids(fact.left)
        case ev.StopBegan():
            text = f"stop asked for by {fact.by}"
        case ev.TreeGone():
            text = f"no process of the run is left; release: {fact.release}"
        case ev.StageSeen():
            text = f"stage {fact.stage}"
        case ev.ReadyLineSeen():
            text = f"the log says ready: {fact.line}"
        case ev.LogRead():
            text = f"log read to byte {fact.offset}"
        case ev.LinkChanged():
            text = f"link {fact.state.value}: {fact.why}"
        case ev.Tick():
            text = "time passed"
        case ev.Launched() | ev.CannotComeUp() | ev.Verified() | ev.VerifyFailed() | ev.StopIncomplete():
            text = fact.text
    # Titles, answers and names come from elsewhere: none of them may drive a terminal.
    return ev.Evidence(kind=str(kind), at=fact.at, text=sanitise(text))


def describe_answer(answer: ev.Answer) -> str:
    """One answer in words: status, body length, milliseconds, owner and model where they are known."""
    if answer.status is None:
        return answer.why
    size = "an empty body" if answer.bytes == 0 else f"{answer.bytes} bytes"
    if answer.bytes is None:
        size = "a body that was not read"
    text = f"{answer.status} with {size} in {answer.ms:.0f} ms"
    if answer.address:
        text += f" from {answer.address}"
    return f"{text}: {answer.why}" if answer.why else text


def _pids(processes: tuple[ev.Process, ...]) -> str:
    shown = ", ".join(f"{p.pid} {p.title[:40]}".strip() for p in processes[:5])
    return shown + (" …" if len(processes) > 5 else "")
