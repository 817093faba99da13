"""Lines of a log read by an engine's rules: stages with their progress, and ready lines. Pure."""

from __future__ import annotations

import re

from msgspec import Struct

from supervisor.core.block_lines import BlockLines
from supervisor.core.engine import Engine
from supervisor.core.engine import Line as RuleLine
from supervisor.core.engine import Stage as RuleStage
from supervisor.core.events import LogBlock
from supervisor.core.kinds import LONGEST, KnownKinds, blurred, kind_of_word, kinds_of
from supervisor.core.lines import MAX_LINE_BYTES, Line, shown

MATCHED_CHARS = 2000
"""Rules look at this much of a line: a log can hold lines of megabytes, and no rule needs more."""

MAX_DIGITS = 15


class Read(Struct, frozen=True, kw_only=True):
    """What one line tells. `stage` "" where it tells none."""

    stage: str = ""
    done: int | None = None
    total: int | None = None
    fraction: float | None = None
    ready: bool = False


NOTHING = Read()


class LineReader:
    """One engine's rules, compiled once. Most lines are noise: one combined pattern tells that quickly."""

    def __init__(self, engine: Engine) -> None:
        self._stages = [(stage.name, re.compile(stage.pattern)) for stage in engine.stages]
        self._ready = [re.compile(line.pattern) for line in engine.ready_lines]
        patterns = [*(stage.pattern for stage in engine.stages), *(line.pattern for line in engine.ready_lines)]
        # Named groups may stand once in a pattern: the combined one only asks whether anything fits.
        unnamed = [re.sub(r"\(\?P<\w+>", "(?:", pattern) for pattern in patterns]
        self._any = re.compile("|".join(f"(?:{pattern})" for pattern in unnamed)) if unnamed else None

    def read(self, text: str) -> Read:
        """What this line tells."""
        text = text[:MATCHED_CHARS]
        if self._any is None or self._any.search(text) is None:
            return NOTHING
        if any(pattern.search(text) for pattern in self._ready):
            return Read(ready=True)
        for name, pattern in self._stages:
            match = pattern.search(text)
            if match is not None:
                return _progress(name, match.groupdict())
        return NOTHING


def _progress(stage: str, groups: dict[str, str | None]) -> Read:
    done, total = _count(groups.get("done")), _count(groups.get("total"))
    fraction = None
    if groups.get("percent"):
        fraction = float(groups["percent"] or 0) / 100
    if done is not None and total:
        fraction = done / total  # the printed percentage is rounded, the counts are not
    return Read(stage=stage, done=done, total=total, fraction=None if fraction is None else min(1.0, fraction))


def _count(digits: str | None) -> int | None:
    """None for what no counter says: a log may hold any number of digits, and a float does not."""
    return int(digits) if digits and len(digits) <= MAX_DIGITS else None


class BlockReader:
    """The same for blocks of a log, across their borders: what `LineReader` tells of every line of `LineSplitter`.

    A line that lies whole in a block is only looked at where it has one of the rules' literals, and where none of its
    kind is known to say nothing. Where a rule has no literals, every line is.
    """

    def __init__(self, engine: Engine) -> None:
        self._reader = LineReader(engine)
        self._lines = BlockLines()
        rules: list[RuleStage | RuleLine] = [*engine.stages, *engine.ready_lines]
        words = {word for rule in rules for word in rule.literals}
        self._every = not all(rule.literals for rule in rules) or any(
            not word or not word.isascii() or not word.isprintable() for word in words
        )
        self._nothing = KnownKinds()
        self._literals = [] if self._every else sorted({kind_of_word(word.encode()) for word in words})
        # A tab becomes as many spaces as its column wants: any number of either may be a space of a literal.
        spaced = (re.sub(rb"(?:\\ )+", rb"[ \\t]+", re.escape(word)) for word in self._literals)
        self._with_tabs = re.compile(b"|".join(spaced))
        patterns = (blurred(rule.pattern) for rule in rules)
        self._by_digits = [re.compile(pattern) for pattern in patterns if pattern is not None]

    def read(self, block: LogBlock) -> list[tuple[int, int, str, Read]]:
        """Line number, offset, text and meaning of the lines that tell something, in order."""
        parts = self._lines.take(block)
        out = self._told(parts.before)
        if parts.inner:
            out += self._inner(parts.inner, parts.offset, parts.line_no)
        return out + self._told(parts.after)

    def _told(self, lines: list[Line]) -> list[tuple[int, int, str, Read]]:
        reads = ((line, self._reader.read(line.text)) for line in lines)
        return [(line.line_no, line.offset, line.text, read) for line, read in reads if read is not NOTHING]

    def _inner(self, data: bytes, offset: int, line_no: int) -> list[tuple[int, int, str, Read]]:
        kinds = kinds_of(data)
        fresh = set(kinds)
        fresh -= self._nothing.all
        huge = _huge(data)
        wanted = fresh if self._every else self._with_words(fresh)
        if not wanted and not huge:
            return []
        out, start = [], 0
        for index, raw in enumerate(data.split(b"\n")[:-1]):
            if kinds[index] in wanted or start in huge:
                text = shown(raw)
                read = self._reader.read(text)
                if read is not NOTHING:
                    out.append((line_no + index, offset + start, text, read))
                elif len(raw) <= LONGEST and not any(pattern.search(text) for pattern in self._by_digits):
                    self._nothing.add(kinds[index])
            start += len(raw) + 1
        return out

    def _with_words(self, kinds: set[bytes]) -> set[bytes]:
        """Those of the kinds that have one of the words. What has none of them says nothing, and is remembered."""
        if not kinds:
            return kinds
        joined = b"\n".join(kinds) + b"\n"
        starts = self._found_with_tabs(joined) if b"\t" in joined else self._found(joined)
        found = {joined[start : joined.find(b"\n", start)] for start in starts}
        for kind in kinds - found:
            self._nothing.add(kind)
        return found

    def _found(self, plain: bytes) -> set[int]:
        out = set()
        for word in self._literals:
            at = plain.find(word)
            while at != -1:
                out.add(plain.rfind(b"\n", 0, at) + 1)
                at = plain.find(word, plain.find(b"\n", at))
        return out

    def _found_with_tabs(self, plain: bytes) -> set[int]:
        return {plain.rfind(b"\n", 0, match.start()) + 1 for match in self._with_tabs.finditer(plain)}


def _huge(data: bytes) -> set[int]:
    """Where lines begin that are cut when they are shown: the cut may fall into an escape sequence."""
    out = set()
    step = MAX_LINE_BYTES // 2  # of a longer line, one of these lies in it whole
    for at in range(0, len(data), step):
        if data.find(b"\n", at, at + step) == -1:
            start = data.rfind(b"\n", 0, at) + 1
            if data.find(b"\n", at) - start > MAX_LINE_BYTES:
                out.add(start)
    return out
