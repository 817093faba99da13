"""What must hold of an engine's rules beyond their types: patterns, literals, samples, families, names in sentences.

For the files of users before anything is launched, and for the tests of our own. A problem names the place in the
document, so that whoever reads the file can be told the line.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from supervisor.core.diagnosis.unwrap import unwrap
from supervisor.core.engine import Common, Engine, LogSign, Root, Stage
from supervisor.core.families import FAMILIES
from supervisor.core.progress import MATCHED_CHARS
from supervisor.engines import patterns

Path = tuple[str | int, ...]

KINDS = ("stages", "ready_lines", "noise_lines", "headers", "roots")
"""The lists of rules, as the Structs name them."""
NEED_LITERALS = frozenset({"stages", "ready_lines", "noise_lines", "headers", "roots"})
"""Every line of a flowing log is asked for these."""
UNWRAPPED = frozenset({"noise_lines", "headers", "roots"})
"""They are asked of what is said, without the prefixes of whoever says it."""
PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)\}")
_LEAST = 2
"""A single character stands in nearly every line: it saves nothing."""
_COUNTS = ("done", "total", "percent")


class Problem(Struct, frozen=True):
    """What is wrong, and where in the document."""

    path: Path
    text: str


def problems(engine: Engine | Common) -> Iterator[Problem]:
    """Everything that is wrong with the rules, in the order of the document."""
    for kind in KINDS:
        for index, rule in enumerate(getattr(engine, kind, ())):
            yield from of_rule(kind, rule, (kind, index))
    if isinstance(engine, Engine):
        for name in ("detect", "titles"):
            for index, pattern in enumerate(getattr(engine, name)):
                yield from _expression(pattern, (name, index), dear=True)
        for index, sign in enumerate(engine.log_signs):
            yield from _sign(sign, ("log_signs", index))


def of_rule(kind: str, rule: Any, path: Path) -> Iterator[Problem]:
    """Everything that is wrong with one rule."""
    wrong = list(_expression(rule.pattern, (*path, "pattern")))
    yield from wrong
    yield from _literals(rule, path, needed=kind in NEED_LITERALS, readable=not wrong)
    if not rule.samples:
        yield Problem((*path, "samples"), "a rule needs at least one sample line, taken from a real log")
    if wrong:
        return
    fits = re.compile(rule.pattern)
    if isinstance(rule, Stage):
        yield from _stage_samples(rule, fits, path)
    else:
        for index, line in enumerate(rule.samples):
            said = unwrap(line).body if kind in UNWRAPPED else line
            yield from _sample(rule, fits, said, (*path, "samples", index))
    if isinstance(rule, Root):
        yield from _root(rule, fits, path)


# ------------------------------------------------------------------------------------------------ parts of a rule


def _expression(pattern: str, path: Path, *, dear: bool = False) -> Iterator[Problem]:
    """`dear`: asked of titles and commands, not of every line of a log."""
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        yield Problem(path, f"is no regular expression: {error}")
        return
    if compiled.match(""):
        yield Problem(path, "fits an empty line, so it fits every line")
        return
    why = patterns.trouble(pattern)
    if why is not None and not dear:
        yield Problem(path, f"some lines would hold it up for long: {why}")


def _literals(rule: Any, path: Path, *, needed: bool, readable: bool) -> Iterator[Problem]:
    if not rule.literals:
        if needed:
            yield Problem(path, "needs `literals`: words of which every line that the pattern fits has at least one")
        return
    for index, word in enumerate(rule.literals):
        if not word.isascii() or not word.isprintable():
            yield Problem((*path, "literals", index), "a literal is printable ASCII text")
            return
        if len(word.strip()) < _LEAST:
            why = f"a literal of fewer than {_LEAST} characters stands in nearly every line"
            yield Problem((*path, "literals", index), why)
            return
    if readable and patterns.lacking(rule.pattern, rule.literals):
        yield Problem(
            (*path, "literals"),
            "the pattern can fit a line that has none of these in it, and such a line is never looked at: take words "
            "that stand in the pattern as they are, in this very case, one for each way through it",
        )


def _sample(rule: Any, fits: re.Pattern[str], line: str, path: Path) -> Iterator[Problem]:
    seen = line[:MATCHED_CHARS]
    if fits.search(seen) is None:
        yield Problem(path, "the pattern does not fit this sample")
    elif rule.literals and not any(word in seen for word in rule.literals):
        yield Problem(path, "this sample has none of the literals in it")


def _stage_samples(rule: Stage, fits: re.Pattern[str], path: Path) -> Iterator[Problem]:
    for index, sample in enumerate(rule.samples):
        here = (*path, "samples", index)
        wrong = list(_sample(rule, fits, sample.line, here))
        yield from wrong
        match = fits.search(sample.line[:MATCHED_CHARS])
        if wrong or match is None:
            continue
        found = match.groupdict()
        for name in _COUNTS:
            text, wanted = found.get(name), getattr(sample, name)
            try:
                value = None if text is None else float(text)
            except ValueError:
                yield Problem((*path, "pattern"), f"its group {name} finds {text!r}, which is no number")
                continue
            if value != wanted:
                yield Problem(here, f"{name} is {_number(wanted)} here, and the pattern finds {_number(value)}")


def _number(value: float | None) -> str:
    return "not given" if value is None else f"{value:g}"


def _root(rule: Root, fits: re.Pattern[str], path: Path) -> Iterator[Problem]:
    for index, line in enumerate(rule.not_samples):
        if fits.search(unwrap(line).body[:MATCHED_CHARS]):
            yield Problem((*path, "not_samples", index), "the pattern fits this line, which it should not")
    if rule.category not in FAMILIES:
        near = difflib.get_close_matches(rule.category, FAMILIES, n=1)
        hint = f"; did you mean {near[0]}?" if near else f" (known: {', '.join(FAMILIES)})"
        yield Problem((*path, "category"), f"{rule.category!r} is no family of failures{hint}")
    if rule.certain and not rule.recorded:
        yield Problem(
            (*path, "certain"),
            "ends a wait at once, so it needs `recorded`: which recorded log shows that nothing serves after this line",
        )
    if not 0 <= rule.rank <= 100:
        yield Problem((*path, "rank"), "is a number from 0 to 100")
    for name in ("cause", "advice"):
        text = getattr(rule, name)
        if not text.strip():
            yield Problem((*path, name), "is empty: write one sentence")
        for group in PLACEHOLDER.findall(text):
            if group not in fits.groupindex:
                yield Problem((*path, name), f"{{{group}}} is no named group of the pattern: (?P<{group}>…)")
    if rule.where:
        yield from _expression(rule.where, (*path, "where"))


def _sign(sign: LogSign, path: Path) -> Iterator[Problem]:
    if not sign.literals:
        yield Problem((*path, "literals"), "is empty: give words that only this engine's logs have")
    for index, word in enumerate(sign.literals):
        if len(word.strip()) < _LEAST or not word.isascii() or not word.isprintable():
            yield Problem(
                (*path, "literals", index), f"a literal is printable ASCII text of {_LEAST} or more characters"
            )
    if not 1 <= sign.weight <= 100:
        yield Problem((*path, "weight"), "is a number from 1 to 100")
