"""An engine's rules and those that all have in common, made ready for reading single lines. Pure.

A line is asked for the words of all rules at once; only rules of which a word was found are tried. Which of several
fitting rules counts: noise before headers before roots; of roots the one of the highest rank.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property

from msgspec import Struct

from supervisor.core.engine import Common, Engine, Line, Root, Stage
from supervisor.core.kinds import blurred
from supervisor.core.progress import LineReader

READ_CHARS = 2000
"""Rules look at this much of a line."""


class Noise(Struct, frozen=True):
    """The line is never a cause. `rule` tells what else it says."""

    rule: Line


class Header(Struct, frozen=True):
    """The cause follows."""

    rule: Line


class Cause(Struct, frozen=True):
    """The line names a cause: the rule, and what its groups found."""

    rule: Root
    groups: dict[str, str]

    def fill(self, text: str) -> str:
        """A sentence of the rule with what was found put in."""
        for name, value in self.groups.items():
            text = text.replace("{" + name + "}", value)
        return text


class _Lazy:
    """A rule whose patterns are compiled when a line has one of its words: few of the hundreds ever meet one."""

    def __init__(self, order: int, kind: str, rule: Line | Root | Stage) -> None:
        self.order = order
        self.kind = kind
        self.rule = rule

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(self.rule.pattern)

    @cached_property
    def where(self) -> re.Pattern[str] | None:
        return re.compile(self.rule.where) if isinstance(self.rule, Root) and self.rule.where else None

    @cached_property
    def blurred(self) -> re.Pattern[str] | None:
        """The pattern for any digits, where it is one that looks at them."""
        any_digits = None if self.kind in ("stage", "serving") else blurred(self.rule.pattern)
        return re.compile(any_digits) if any_digits else None


class Hits(Struct, frozen=True):
    """The rules of which a line has a word, by kind, in the order in which they count."""

    noise: tuple[_Lazy, ...] = ()
    headers: tuple[_Lazy, ...] = ()
    roots: tuple[_Lazy, ...] = ()
    stages: bool = False
    serving: tuple[_Lazy, ...] = ()
    by_digits: bool = False
    """With other digits one of them might fit."""


class Rulebook:
    """The rules of one engine together with the common ones.

    Args:
        words: words that matter beside those of the rules.
    """

    def __init__(self, engine: Engine, common: Common, words: Iterable[str] = ()) -> None:
        self._stages = LineReader(engine)
        roots = sorted((*engine.roots, *common.roots), key=lambda rule: -rule.rank)  # stable: the engine's own first
        self._by_word: dict[str, list[_Lazy]] = {}
        kinds: tuple[tuple[str, tuple[Line | Root | Stage, ...]], ...] = (
            ("noise", (*engine.noise_lines, *common.noise_lines)),
            ("header", (*engine.headers, *common.headers)),
            ("root", tuple(roots)),
            ("stage", (*engine.stages, *engine.ready_lines)),
            ("serving", engine.serving_lines),
        )
        for order, (kind, rule) in enumerate((kind, rule) for kind, rules in kinds for rule in rules):
            lazy = _Lazy(order, kind, rule)
            for word in rule.literals:
                self._by_word.setdefault(word, []).append(lazy)
        every = sorted({*self._by_word, *words}, key=lambda word: (len(word), word))
        self._gate = _shortest(every)

    def hits(self, text: str) -> Hits | None:
        """Which rules to try on this line; None where it has none of the words, so that it says nothing at all."""
        text = text[:READ_CHARS]
        gates = [longer for word, longer in self._gate if word in text]
        if not gates:
            return None
        found = {
            item.order: item
            for longer in gates
            for word in longer
            if word in text
            for item in self._by_word.get(word, ())
        }
        kinds: dict[str, list[_Lazy]] = {}
        for order in sorted(found):
            kinds.setdefault(found[order].kind, []).append(found[order])
        return Hits(
            noise=tuple(kinds.get("noise", ())),
            headers=tuple(kinds.get("header", ())),
            roots=tuple(kinds.get("root", ())),
            stages="stage" in kinds,
            serving=tuple(kinds.get("serving", ())),
            by_digits=any(item.blurred and item.blurred.search(text) for item in found.values()),
        )

    def stage(self, text: str) -> tuple[str, bool]:
        """The stage that the line tells, "" for none, and whether it is a ready line."""
        read = self._stages.read(text)
        return read.stage, read.ready

    def form(self, body: str, hits: Hits) -> Noise | Header | None:
        """What the line is, if it is no cause by its form."""
        body = body[:READ_CHARS]
        for item in hits.noise:
            if item.pattern.search(body) and isinstance(item.rule, Line):
                return Noise(item.rule)
        for item in hits.headers:
            if item.pattern.search(body) and isinstance(item.rule, Line):
                return Header(item.rule)
        return None

    def serving(self, text: str, hits: Hits) -> bool:
        """Whether only a server that takes requests writes this."""
        return any(item.pattern.search(text[:READ_CHARS]) for item in hits.serving)

    def cause(self, body: str, hits: Hits, frames: tuple[str, ...] = ()) -> Cause | None:
        """The root rule that fits best."""
        body = body[:READ_CHARS]
        for item in hits.roots:
            if item.where is not None and not any(item.where.search(frame) for frame in frames):
                continue
            match = item.pattern.search(body)
            if match is not None and isinstance(item.rule, Root):
                return Cause(item.rule, {name: value or "" for name, value in match.groupdict().items()})
        return None


def _shortest(words: Sequence[str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The words that have no other one in them, each with all that it is a part of.

    A line without the short one has none of the longer ones either. `words` comes with the shortest first.
    """
    longer: dict[str, list[str]] = {}
    for word in words:
        known = next((short for short in longer if short in word), None)
        longer.setdefault(word if known is None else known, []).append(word)
    return tuple((word, tuple(group)) for word, group in longer.items())
