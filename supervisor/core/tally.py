"""What was seen in one wait, added up, so that every ending can explain itself. Pure."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, cast

import msgspec

from supervisor.core import events as ev
from supervisor.core.events import Evidence, Outcome, Phase, Verdict
from supervisor.core.lines import sanitise
from supervisor.core.log_lines import LogLines
from supervisor.core.machine import describe_answer
from supervisor.core.wait import Decision

if TYPE_CHECKING:  # a wait for a plain URL has no GPUs
    from supervisor.core.gpu_events import GpuEvent

UNANSWERED_S = 2.0
"""Twice the slowest pace of the looks while something is waited for."""
LAST_BLOCKS_BYTES = 64 * 1024
"""Of a log that comes in blocks: where its last line is looked for, once it is asked for."""
LAST_BLOCKS = 4096
"""And among how many: some hold one byte each."""
_LOOKED_AT = {Phase.IDLE, Phase.LAUNCHING, Phase.LOADING, Phase.WARMING}


class Tally:
    """Feed it every fact and every event of a session; ask it for the `Summary`."""

    def __init__(self, *, began_at: float) -> None:
        self._phase = Phase.IDLE
        self._phase_since = began_at
        self._times: list[ev.PhaseTime] = []
        self._evidence: tuple[Evidence, ...] = ()
        self._answers: Counter[str] = Counter()
        self._rejections: Counter[tuple[str, str]] = Counter()
        self._last_answer: tuple[float, ev.Answer] | None = None
        self._max_ms = 0.0
        self._last_line: tuple[float, str] | None = None
        self._blocks: deque[ev.LogBlock] = deque()
        self._blocks_bytes = 0
        self._blocks_new = self._blocks_cut = False
        self._process: tuple[float, str] | None = None
        self._link: ev.LinkEvent | None = None
        self._finding: ev.Finding | None = None
        self._suspicion: tuple[float, str] | None = None
        self._gpus: GpuEvent | None = None

    def fact(self, fact: ev.AnyFact) -> None:
        """Count one fact."""
        match fact:
            case ev.Answered():
                self._answered(fact)
            case ev.ProcessSeen():
                self._process = (fact.at, f"process {fact.root.pid} lived: {fact.root.title[:120]}")
            case ev.Ended():
                self._process = (fact.at, f"the process ended: {fact.exit.words()}")
            case _:
                pass

    def _answered(self, fact: ev.Answered) -> None:
        answer = fact.answer
        self._answers[str(answer.status) if answer.status is not None else answer.verdict.value] += 1
        self._last_answer = (fact.at, answer)
        if answer.status is not None:
            self._max_ms = max(self._max_ms, answer.ms)
        if answer.verdict in (Verdict.REJECTED, Verdict.BROKEN):
            kind = str(answer.status) if answer.status is not None else answer.cause
            self._rejections[kind, answer.why] += 1

    def event(self, event: ev.AnyEvent) -> None:
        """Take one event of the stream."""
        match event:
            case ev.PhaseChanged():
                self._times.append(ev.PhaseTime(phase=event.from_, s=round(event.at - self._phase_since, 3)))
                self._phase, self._phase_since = event.to, event.at
                self._evidence = event.evidence
                if event.to is Phase.PREFLIGHT:
                    self._finding = self._suspicion = None  # it was the run's before
            case ev.Log() if event.text:
                self._last_line = (event.at, event.text)
            case ev.LogBlock():
                self._keep_block(event)
            case ev.LinkEvent():
                self._link = event
            case ev.Finding():
                self._finding = event
            case ev.Warning_() if "suspicion" in event.facts:
                self._suspicion = (event.at, event.text)
            case _ if type(event).__struct_config__.tag == "gpu":
                self._gpus = cast("GpuEvent", event)
            case _:
                pass

    def _keep_block(self, block: ev.LogBlock) -> None:
        self._blocks.append(block)
        self._blocks_bytes += len(block.data)
        self._blocks_new = True
        while self._blocks_bytes - len(self._blocks[0].data) >= LAST_BLOCKS_BYTES or len(self._blocks) > LAST_BLOCKS:
            self._blocks_bytes -= len(self._blocks.popleft().data)
            self._blocks_cut = True

    @property
    def last_line(self) -> tuple[float, str] | None:
        """The newest line of the log that says anything, and when it came. Made when it is asked for."""
        if self._blocks_new:
            self._blocks_new = False
            reader = LogLines(clean=not self._blocks_cut)
            lines = [line for block in self._blocks for line in reader.take(block) if line.text]
            if lines:
                self._last_line = (lines[-1].at, lines[-1].text)
        return self._last_line

    @property
    def answers(self) -> dict[str, int]:
        """Answers by status, or by kind where no HTTP came back."""
        return dict(self._answers)

    def summary(self, decision: Decision, now: float) -> ev.Summary:
        """The last line of the command."""
        times = [*self._times, ev.PhaseTime(phase=self._phase, s=round(now - self._phase_since, 3))]
        return ev.Summary(
            at=now,
            verdict=decision.outcome,
            exit_code=decision.exit_code,
            phase=self._phase,
            reason=sanitise(decision.reason + self._hint(decision) + self._unanswered(decision, now)),
            phases=tuple(times),
            answers=self.answers,
            finding=self._finding,
            evidence=(*self._evidence, *self._seen(decision)),
        )

    def _hint(self, decision: Decision) -> str:
        """Where answers came that the rule rejected: in words, since that is the likeliest cause of a timeout."""
        if decision.outcome is not Outcome.TIMEOUT:
            return ""
        if self._rejections:
            (kind, why), count = self._rejections.most_common(1)[0]
            answers = "1 answer was" if count == 1 else f"{count} answers were"
            return f"; {answers} not accepted ({kind}): {why}"
        if self._last_answer is not None and self._last_answer[1].verdict is Verdict.NOT_YET:
            return f"; it went on answering {describe_answer(self._last_answer[1])}"
        if self._last_answer is not None and self._last_answer[1].status is None:
            return f"; {self._last_answer[1].why}"
        return ""

    def _unanswered(self, decision: Decision, now: float) -> str:
        """A look that has no answer yet is no fact, and can be all that there is to tell."""
        if decision.outcome is not Outcome.TIMEOUT or self._phase not in _LOOKED_AT:
            return ""
        if self._last_answer is not None:
            silent_s = now - self._last_answer[0]
            return f"; no answer for the last {silent_s:.1f} s" if silent_s > UNANSWERED_S else ""
        if self._phase is Phase.IDLE and (self._link is None or self._link.state is ev.LinkState.UP):
            return "; no answer came at all: the first look was still waiting for one"
        return ""

    def _seen(self, decision: Decision) -> list[Evidence]:
        """What an ending shows beside the evidence of its phase."""
        out: list[Evidence] = []
        if decision.outcome is not Outcome.REACHED and self._last_answer is not None:
            at, answer = self._last_answer
            out.append(Evidence(kind="answer", at=at, text=f"last answer: {describe_answer(answer)}"))
        if self._max_ms and decision.outcome is not Outcome.REACHED:
            text = f"slowest answer: {self._max_ms:.0f} ms"
            out.append(Evidence(kind="latency", at=self._last_answer[0] if self._last_answer else 0.0, text=text))
        if self._process is not None:
            out.append(Evidence(kind="process", at=self._process[0], text=self._process[1]))
        if self._gpus is not None:
            out.append(Evidence(kind="memory", at=self._gpus.at, text=memory_words(self._gpus)))
        if decision.outcome is Outcome.TIMEOUT and self._suspicion is not None:
            out.append(Evidence(kind="suspicion", at=self._suspicion[0], text=self._suspicion[1]))
        if (last := self.last_line) is not None:
            out.append(Evidence(kind="log", at=last[0], text=f"last log line: {last[1]}"))
        if self._link is not None and self._link.state is not ev.LinkState.UP:
            text = f"link {self._link.state.value}: {self._link.why}"
            out.append(Evidence(kind="link", at=self._link.at, text=text))
        # A process gives itself its title, and an answer is somebody else's: neither may drive the terminal.
        return [msgspec.structs.replace(item, text=sanitise(item.text)) for item in out]


def memory_words(event: GpuEvent) -> str:
    """The GPU memory of a look, for people: in one line, and with the driver's trouble where it has one."""
    from supervisor.core.gpu import DriverState, gib

    spaces = [gpu for gpu in event.gpus if gpu.memory.used_bytes is not None and gpu.memory.total_bytes is not None]
    used = sum(gpu.memory.used_bytes or 0 for gpu in spaces)
    total = sum(gpu.memory.total_bytes or 0 for gpu in spaces)
    kind = "SIMULATED GPU" if event.driver.simulated else "GPU"
    text = f"{gib(used)} of {gib(total)} of GPU memory used on {len(spaces)} {kind}{'s' if len(spaces) != 1 else ''}"
    if event.ours_bytes is not None:
        text += f", {gib(event.ours_bytes)} of it by this run"
    if event.driver.state is DriverState.OK:
        return text
    return f"{event.driver.why}; last known: {text}" if spaces else event.driver.why
