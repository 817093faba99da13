"""From the candidates of a log and the facts of an end to a finding. Pure.

What the log names counts first. Where it names only an echo or nothing, the facts speak: who was killed by whom, who
died first, which memory was full. Nothing is claimed beyond that: without either it is not known, and says so.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from supervisor.core import events as ev
from supervisor.core.diagnosis import guesses
from supervisor.core.diagnosis.candidates import SURE_RANK, Candidate, Candidates
from supervisor.core.diagnosis.facts import EndFacts

LIKELY_RANK, NAMED_RANK, WEAK_RANK = 40, 36, 20
"""From which rank on a line is likely the cause, names an exception, and is worth naming at all where something has
died."""
WANTED_STOP = "it was asked to stop, and that is no failure"
LAST_LINES = 10
"""An error among so many last lines of a log that never came up are its last words."""
SHOWN_CANDIDATES = 4
MOST_RULED_OUT = 6


class Seen(Struct):
    """What else the log says of itself."""

    lines: int = 0
    """How many there were."""
    served: bool = False
    stop_asked: tuple[int, str] | None = None
    """Line number and text of the line that tells that somebody asked it to stop, the first one."""
    deaths: list[tuple[int, str]] = []
    """Line number and text of lines that tell of a dead process, the first ones."""
    ruled_out: list[str] = []

    def died(self, text: str, line_no: int) -> None:
        """A line that tells of a dead process; after a wish to stop that is what was wished."""
        if self.stop_asked is None and len(self.deaths) < SHOWN_CANDIDATES:
            self.deaths.append((line_no, text[:300]))

    def came_up(self) -> None:
        """It says that it is ready: an earlier start's stop and deaths in the same log are past."""
        self.stop_asked = None
        self.deaths.clear()

    def rules_out(self, why: str) -> None:
        """What looks like a cause in this log, and is none."""
        if why not in self.ruled_out and len(self.ruled_out) < MOST_RULED_OUT:
            self.ruled_out.append(why)


class Possible(Struct, frozen=True, kw_only=True):
    """A line that may name the cause, for whoever has to look."""

    line_no: int
    text: str
    category: str
    cause: str


class Diagnosis(Struct, frozen=True, kw_only=True):
    """What came of it. `finding` is None where no failure is seen, or none can be named: `reason` says which."""

    finding: ev.Finding | None = None
    candidates: tuple[Possible, ...] = ()
    ruled_out: tuple[str, ...] = ()
    reason: str = ""


def conclude(candidates: Candidates, seen: Seen, facts: EndFacts, at: float) -> Diagnosis:
    """Why it ended."""
    if facts.asked_to_stop and not _deadly(candidates):
        return Diagnosis(reason=WANTED_STOP)
    unasked_end = facts.exit is not None and not facts.asked_to_stop
    ended = bool(seen.deaths) or (unasked_end and seen.stop_asked is None)
    best = candidates.best(ended=ended)
    if seen.stop_asked is not None and (not best or best[0].rank < LIKELY_RANK):
        # What came after the wish is no failure, and before it nothing had failed.
        if unasked_end:
            return Diagnosis(finding=_stopped_by_others(seen.stop_asked, facts, at))
        return Diagnosis(reason=WANTED_STOP)
    possible = tuple(_possible(item) for item in best[:SHOWN_CANDIDATES])
    ruled_out = (*seen.ruled_out, *_ruled_out_by(facts))
    by_facts = guesses.by_facts(facts, [text for _, text in seen.deaths], at)
    named = best[0] if best and best[0].rank >= LIKELY_RANK else None
    if by_facts is not None and (named is None or named.rank < by_facts.rank):
        return Diagnosis(finding=_with(by_facts.finding, ruled_out, best), candidates=possible, ruled_out=ruled_out)
    if named is not None:
        return Diagnosis(finding=finding_of(named, at, seen, facts), candidates=possible, ruled_out=ruled_out)
    if best and (unasked_end or (ended and best[0].rank >= WEAK_RANK) or _breaks_off_at(best[0], seen)):
        # Something has died, and this is the nearest that the log has to a cause: told with little confidence.
        return Diagnosis(finding=finding_of(best[0], at, seen, facts), candidates=possible, ruled_out=ruled_out)
    if ended:
        return Diagnosis(
            finding=_unknown(seen, facts, at, ruled_out) if unasked_end else None,
            candidates=possible,
            ruled_out=ruled_out,
            reason="a process of it died, and the log does not tell why",
        )
    reason = "the log shows no failure" + (": the server came up" if seen.served else "")
    return Diagnosis(candidates=possible if not seen.served else (), ruled_out=ruled_out, reason=reason)


def _stopped_by_others(told: tuple[int, str], facts: EndFacts, at: float) -> ev.Finding:
    how = facts.exit.words() if facts.exit is not None else "nobody saw how"
    return ev.Finding(
        at=at,
        category="killed",
        detail="SIGTERM",
        cause=f"somebody else asked the server to stop, and it did ({how})",
        line=told[1],
        line_no=told[0],
        confidence="likely",
        advice="Look for who ends processes there: a scheduler's time limit, an orchestrator, another user.",
    )


def _breaks_off_at(item: Candidate, seen: Seen) -> bool:
    """Whether a log without a known end never came up, and says this as an exception or among its last words."""
    if seen.served or item.survived or item.went_on:
        return False
    return item.rank >= NAMED_RANK or (item.rank >= WEAK_RANK and item.order > seen.lines - LAST_LINES)


def _deadly(candidates: Candidates) -> bool:
    best = candidates.best(ended=False)
    return bool(best) and best[0].deadly


def finding_of(item: Candidate, at: float, seen: Seen, facts: EndFacts | None = None) -> ev.Finding:
    """The finding that names this line."""
    if item.cause is not None:
        rule = item.cause.rule
        category, detail = guesses.family_of(rule, item.body), rule.detail
        cause, advice = item.cause.fill(rule.cause), item.cause.fill(rule.advice)
    else:
        category, detail, cause, advice = guesses.by_form(item)
    if item.said_by:
        cause += f" ({len(item.said_by) + 1} processes say the same; this was the first)"
    confidence = "sure" if item.rank >= SURE_RANK else "likely" if item.rank >= LIKELY_RANK else "low"
    return ev.Finding(
        at=at,
        category=category,
        detail=detail,
        cause=cause,
        line=item.text,
        line_no=item.line_no,
        confidence=confidence,
        advice=advice,
        ruled_out=tuple(seen.ruled_out) + (_ruled_out_by(facts) if facts is not None else ()),
    )


def _with(finding: ev.Finding, ruled_out: tuple[str, ...], best: list[Candidate]) -> ev.Finding:
    if finding.line or not best:
        return replace(finding, ruled_out=ruled_out)
    return replace(finding, ruled_out=ruled_out, line=best[0].text, line_no=best[0].line_no)


def _unknown(seen: Seen, facts: EndFacts, at: float, ruled_out: tuple[str, ...]) -> ev.Finding:
    how = facts.exit.words() if facts.exit is not None else "nobody saw how"
    line_no, line = seen.deaths[0] if seen.deaths else (None, "")
    return ev.Finding(
        at=at,
        category="unknown",
        detail="silent exit",
        cause=f"the server ended ({how}), and its log does not tell why",
        line=line,
        line_no=line_no,
        confidence="low",
        advice=guesses.advice_of_silent(facts),
        ruled_out=ruled_out,
    )


def _possible(item: Candidate) -> Possible:
    if item.cause is not None:
        rule = item.cause.rule
        category, cause = guesses.family_of(rule, item.body), item.cause.fill(rule.cause)
    else:
        category, _, cause, _ = guesses.by_form(item)
    return Possible(line_no=item.line_no, text=item.text[:300], category=category, cause=cause)


def _ruled_out_by(facts: EndFacts) -> tuple[str, ...]:
    killed = facts.exit is not None and facts.exit.signal == "SIGKILL"
    if killed and facts.oom_looked_at and not any(kill.ours for kill in facts.oom_kills):
        return ("not the kernel's OOM killer: neither its log nor the cgroup's counter tells of one",)
    return ()
