"""Reads a log line by line and keeps what may be the cause of its end. Pure, bounded.

It never decides that a server has failed: whoever asks it to conclude knows that, or wants to know what the log alone
tells. A certain rule is the exception (`certain`): its line proves that this server will never serve.
"""

from __future__ import annotations

import re
from enum import Enum

from msgspec import Struct

from supervisor.core import events as ev
from supervisor.core.diagnosis.candidates import Candidate, Candidates
from supervisor.core.diagnosis.conclude import LIKELY_RANK, Diagnosis, Seen, conclude, finding_of
from supervisor.core.diagnosis.facts import EndFacts
from supervisor.core.diagnosis.rulebook import Cause, Header, Hits, Noise, Rulebook
from supervisor.core.diagnosis.tracebacks import BEGIN, Ending, Inside, Tracebacks
from supervisor.core.diagnosis.unwrap import Said, unwrap
from supervisor.core.engine import Common, Engine, Line

TEXT_CHARS = 1000
BODY_CHARS = 2000
SERVED_LINES = 5
"""Lines of a serving server after an error: it has survived it. One or two may be another rank's last ones."""
HEADER_LINES = 200
"""How far the cause may follow its header."""
MOST_HEADERS = 64
RANK_HEADED, RANK_TRACEBACK, RANK_NAMED, RANK_WARNED, RANK_ERROR, RANK_WORD = 48, 44, 36, 30, 24, 14
"""Of lines that no rule knows: an exception under a header, one that ends a traceback, one that stands alone, a line
whose logger or form calls it an error, a line with a word of that kind. A warning that a rule knows is among them."""
RANK_MUTE = 40
"""Of an exception whose message, if it has one, begins on the next line."""
QUIET_LEVELS = frozenset({"INFO", "DEBUG", "TRACE", "NOTICE"})

ERROR_FORM = re.compile(
    r"^\s*(?:fatal|error|FATAL|ERROR|Error|panic|CRITICAL|terminate called|[\w./-]+: (?:fatal )?error)\b[: ]|"
    r"\berror: |\bfatal error: |^E\s"
)
ERROR_WORD = re.compile(
    r"(?<![\w.'\"=/-])(?:[A-Z]\w*(?:Error|Exception)|ERROR|FATAL|Fatal|fatal|CRITICAL|Killed|failed|Failed|cannot|"
    r"could not|couldn't|Couldn't|unable to|not found|No such file|denied|refused|Aborted)(?![\w=])"
)
PROSE = re.compile(
    r"(?:I|I'm|We|When|After|My|The|This|It|If|Then|Hi|Hello|But|And|For|In|With|There|Running|Trying|Here|You|Sorry)\b"
    r"(?: \S+){7}"
)
"""What somebody wrote above the log that he pasted: it tells of the error, and is not its line."""
WHAT = re.compile(r"\s*what\(\): +\S")
"""Of a C++ exception that nobody caught: all that it says."""
WORDS = (
    BEGIN, "what(): ", "rror", "RROR", "xcept", "ailed", "ailure", "annot", "ould not", "ouldn't", "nable to",
    "ot found", "bort", "No such", "enied", "refused", "anic", "Kill", "kill", "imed out", "imeout", "memory", "NCCL",
    "nccl", "CUDA", "cuda", "signal", "SIG", "nvalid", "supported", "equire", "issing", "atal", "ersion", "died",
    "dead", "rash", "erminat", "exit", "Exit", "xited", "ssert", "nstall", "arning: ", "CRITICAL", "Interrupt",
    "Expired", "Died", "Fault", "OutOfResources", "Unavailable", "NotFound", "Unsupported", "Iteration", "Empty",
)  # fmt: skip
"""A line that no rule knows can matter only with one of these. Broad ones: many words of the rules have one in them,
and need not be looked for by themselves."""


class Told(Enum):
    """What a line came to, for whoever wants to know whether others like it need be read."""

    NOTHING = "nothing"
    """It says nothing, and neither will a line that differs in its digits alone."""
    ECHO = "echo"
    """The same was told before: it says nothing as long as the server has not come up or served since (`epoch`)."""
    SERVING = "serving"
    """Only a server that takes requests writes it."""
    SOMETHING = "something"


class Certainty(Struct, frozen=True, kw_only=True):
    """This server will never serve: why, and the line that proves it, which is often the last word and no cause."""

    finding: ev.Finding
    line_no: int
    line: str


class Diagnoser:
    """Tell it the lines of a log, in the order in which they were written.

    A line that came to nothing need not be told again, nor one that differs in its digits alone, as long as nothing is
    followed and `epoch` is the same.
    """

    def __init__(self, engine: Engine, common: Common) -> None:
        self._book = Rulebook(engine, common, WORDS)
        self.epoch = 0
        """Counts how often the server has come up or served after an error: what was an echo before is news then."""
        self._tracebacks = Tracebacks()
        self._candidates = Candidates()
        self._seen = Seen()
        self._headed: dict[str, tuple[int, Line]] = {}
        self._order = self._passed = 0
        self._stages: list[str] = []
        self._batches = 0
        self._last_aside: Line | None = None
        self._unsaid: tuple[str, Ending] | None = None
        """An exception whose message begins on the next line, and who told it."""
        self._proof: Candidate | None = None

    def __repr__(self) -> str:
        return f"<Diagnoser {self._order} lines, {len(self._candidates)} candidates>"

    @property
    def read_lines(self) -> int:
        """How many lines it was told."""
        return self._order - self._passed

    @property
    def following(self) -> bool:
        """A traceback is open: the next lines matter whatever words they have."""
        return self._tracebacks.following or self._unsaid is not None

    def certain(self, at: float) -> Certainty | None:
        """That it will never serve, as soon as a line that proves it was read."""
        proof = self._proof
        if proof is None:
            return None
        best = self._candidates.best(ended=True)
        named = best[0] if best and best[0].rank >= min(LIKELY_RANK, proof.rank) else proof
        return Certainty(finding=finding_of(named, at, self._seen), line_no=proof.line_no, line=proof.text)

    def suspicion(self, at: float) -> ev.Finding | None:
        """What would be named if it ended now. It proves nothing."""
        best = self._candidates.best(ended=False)
        return finding_of(best[0], at, self._seen) if best else None

    def conclude(self, facts: EndFacts, at: float) -> Diagnosis:
        """Why it ended, as far as the log and the facts tell."""
        self._seen.lines = self._order
        return conclude(self._candidates, self._seen, facts, at)

    # ------------------------------------------------------------------------------- reading

    def feed(self, text: str, line_no: int) -> Told:
        """One line, whole and without escape sequences (`core.lines.shown`)."""
        self._order += 1
        following = self.following
        hits = None if following else self._book.hits(text)
        if (hits is None and not following) or not text or text.isspace():
            return Told.NOTHING
        said = unwrap(text)
        taken = self._tracebacks.take(said.speaker, said.body, line_no)
        if taken is Inside.FRAME:
            return Told.SOMETHING
        taken = self._message_of(taken, said)
        hits = hits or self._book.hits(text) or Hits()
        moved = hits.stages and self._progress(text)
        ending = taken if isinstance(taken, Ending) else None
        kind = self._book.form(said.body, hits)
        if isinstance(kind, Noise):
            told = self._noise(kind.rule, text, line_no)
            if kind.rule.chain and self._last_aside is not None:  # the traceback goes on, and its header with it
                self._headed[said.speaker] = (self._order, self._last_aside)
        elif said.level in QUIET_LEVELS and not (ending is not None and ending.frames):
            # A logger's plain information, whatever words it has.
            told = Told.NOTHING
        else:
            if isinstance(kind, Header):
                self._header(kind.rule, said, text, line_no)
            quoted = kind is not None or taken is Inside.HEAD
            told = self._candidate(text, line_no, said, ending, hits, head=quoted)
        if moved or taken is not None or isinstance(kind, Header) or hits.by_digits:
            return Told.SOMETHING
        if isinstance(kind, Noise) and kind.rule.chain:
            return Told.SOMETHING
        if told is Told.NOTHING and hits.serving and self._book.serving(text, hits):
            return Told.SERVING
        return told

    def pass_over(self, lines: int) -> None:
        """So many lines came that say nothing."""
        self._order += lines
        self._passed += lines

    def serving(self) -> None:
        """A line came that only a server that takes requests writes: one or two may be another rank's last ones."""
        if len(self._candidates) and self._batches < SERVED_LINES:
            self._batches += 1
            if self._batches == SERVED_LINES:
                self._served()

    def _progress(self, text: str) -> bool:
        stage, ready = self._book.stage(text)
        if ready:
            self._seen.came_up()
            self._served()
        elif stage and stage not in self._stages:
            self._stages.append(stage)
            self._candidates.went_on()
        else:
            return False
        return True

    def _served(self) -> None:
        self._seen.served = True
        if self._candidates.survived():
            self.epoch += 1

    def _noise(self, rule: Line, text: str, line_no: int) -> Told:
        if rule.stop and self._seen.stop_asked is None:
            self._seen.stop_asked = (line_no, text[:TEXT_CHARS])
        if rule.death:
            self._seen.died(text, line_no)
        if rule.why:
            self._seen.rules_out(rule.why)
        if rule.certain and self._proof is None:
            self._proof = Candidate(
                line_no=line_no, order=self._order, text=text[:TEXT_CHARS], body=text, rank=RANK_WORD
            )
        return Told.SOMETHING if rule.stop or rule.death else Told.NOTHING

    def _header(self, rule: Line, said: Said, text: str, line_no: int) -> None:
        self._noise(rule, text, line_no)
        self._headed[said.speaker] = (self._order, rule)
        while len(self._headed) > MOST_HEADERS:
            self._headed.pop(next(iter(self._headed)))

    def _message_of(self, taken: Ending | Inside | None, said: Said) -> Ending | Inside | None:
        """What a line is taken for: of an exception that said nothing yet, the next line is the message."""
        unsaid, self._unsaid = self._unsaid, None
        if isinstance(taken, Ending) and taken.frames and said.body.rstrip().endswith(":"):
            self._unsaid = said.speaker, taken
        elif taken is None and unsaid is not None and unsaid[0] == said.speaker:
            return unsaid[1]
        return taken

    def _rank(self, said: Said, ending: Ending | None, cause: Cause | None) -> int | None:
        if cause is not None:
            prose = ending is None and not cause.rule.deadly and PROSE.match(said.body) is not None
            return min(cause.rule.rank, RANK_WARNED) if prose or said.level == "WARNING" else cause.rule.rank
        if ending is not None and said.body.rstrip().endswith(":"):
            return RANK_MUTE
        if ending is not None:
            if (said.level == "WARNING" or ending.name.endswith("Warning")) and not ending.frames:
                return None
            if ending.frames:
                return RANK_HEADED if self._header_of(said) is not None else RANK_TRACEBACK
            return RANK_NAMED
        if said.level in QUIET_LEVELS or said.level == "WARNING":
            return None
        if WHAT.match(said.body):
            return RANK_TRACEBACK
        if ERROR_FORM.search(said.body) or said.level in ("ERROR", "CRITICAL", "FATAL"):
            return RANK_ERROR if ERROR_WORD.search(said.body) or ERROR_FORM.search(said.body) else RANK_WORD
        return RANK_WORD if ERROR_WORD.search(said.body) else None

    def _header_of(self, said: Said) -> Line | None:
        for speaker in (said.speaker, ""):
            known = self._headed.get(speaker)
            if known is not None and self._order - known[0] <= HEADER_LINES:
                return known[1]
        if not said.speaker and self._headed:  # the header has a logger's prefix, and its traceback none
            order, rule = next(reversed(self._headed.values()))
            return rule if self._order - order <= HEADER_LINES else None
        return None

    def _candidate(self, text: str, line_no: int, said: Said, ending: Ending | None, hits: Hits, *, head: bool) -> Told:
        cause = self._book.cause(said.body, hits, ending.frames if ending is not None else ())
        rank = self._rank(said, ending, cause)
        if rank is None or (head and cause is None):  # it may quote the cause (`Capture … failed: X`)
            return Told.NOTHING
        under = self._header_of(said)
        if under is not None and under.request and ending is not None:
            self._headed.pop(said.speaker, None)  # it is about one traceback
            self._last_aside = under
        elif ending is not None:
            self._last_aside = None
        candidate = Candidate(
            line_no=line_no,
            order=self._order,
            text=text.strip()[:TEXT_CHARS],
            body=said.body.strip()[:BODY_CHARS],
            rank=rank,
            speaker=said.speaker,
            name=ending.name if ending is not None else "",
            frames=ending.frames if ending is not None else (),
            cause=cause,
            request=under is not None and under.request,
            while_serving=self._seen.served,
            after_stop=self._seen.stop_asked is not None,
        )
        if not self._candidates.add(candidate):
            return Told.ECHO
        self._batches = 0
        if cause is not None and cause.rule.death:
            self._seen.died(text, line_no)
        if cause is not None and cause.rule.certain:
            self._proof = self._proof or candidate
        return Told.SOMETHING
