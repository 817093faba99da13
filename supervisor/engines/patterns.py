"""What a regular expression of a rule needs of a line, and what it can cost at worst. Static: no line is matched.

Two questions are answered of a parsed pattern. Does every line that it fits hold one of these words (`lacking`)? And
how many steps can a hostile line of the matched length cost (`trouble`)? Both are answered carefully: where this cannot
tell, the answer is no. Used on files of users before they are trusted, and by the tests on our own.
"""

from __future__ import annotations

import re
import re._parser as sre  # type: ignore[import-not-found]  # private, and the only one that knows what a pattern needs
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

MATCHED_CHARS = 2000
"""As `core/progress.py`: this much of a line is matched."""
MOST_STEPS = 6_000_000
"""Of one pattern on one hostile line: some milliseconds."""
_MANY = 24
"""A repeat that may go on this often counts as one without an end."""
_MOST_WAYS = 400
_ASCII = 128
_LETTERS, _DIGITS, _SPACES = (1 << (_ASCII + index) for index in range(3))
_OTHERS = _LETTERS | _DIGITS | _SPACES
_ALL = (1 << _ASCII) - 1 | _OTHERS
"""A set of characters: a bit for each of ASCII, and one for all other letters and signs, digits, spaces."""


# ------------------------------------------------------------------------------------------------ the literals


def lacking(pattern: str, literals: Sequence[str]) -> bool:
    """Whether a line may fit without one of the literals in it, in this very case."""
    parsed = sre.parse(pattern)
    if parsed.state.flags & re.IGNORECASE:
        return True
    return bool(_open_ends({""}, parsed, [word for word in literals if word]))


def _open_ends(ends: set[str], parsed: Iterable[Any], words: Sequence[str]) -> set[str]:
    """What may stand right before this place on the ways on which no word has come. Empty: one has on each."""
    longest = max(map(len, words), default=1)
    for op, value in parsed:
        if not ends:
            return ends
        ends = _after(ends, op, value, words, longest)
        if len(ends) > _MOST_WAYS:
            ends = {""}
    return ends


def _after(ends: set[str], op: Any, value: Any, words: Sequence[str], longest: int) -> set[str]:
    if op is sre.LITERAL:
        grown = {end + chr(value) for end in ends}
        return {end[-longest:] for end in grown if not any(end.endswith(word) for word in words)}
    if op is sre.SUBPATTERN:
        # A flag within a pattern may make the case of no matter.
        return {""} if value[1] & re.IGNORECASE else _open_ends(ends, value[3], words)
    if op is sre.ATOMIC_GROUP:
        return _open_ends(ends, value, words)
    if op is sre.BRANCH:
        return {end for branch in value[1] for end in _open_ends(ends, branch, words)}
    if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        return _after_repeat(ends, value, words)
    if op in (sre.AT, sre.ASSERT, sre.ASSERT_NOT):
        return ends
    if op is sre.IN and (few := _few(value)):
        return {end for letter in few for end in _after(ends, sre.LITERAL, ord(letter), words, longest)}
    return {""}


def _after_repeat(ends: set[str], value: Any, words: Sequence[str]) -> set[str]:
    least, most, inner = value
    for _ in range(min(int(least), 8)):
        ends = _open_ends(ends, inner, words)
    if int(least) > 8:
        return {""} if ends else ends
    if not ends or most == least:
        return ends
    if most == 1:
        return ends | _open_ends(ends, inner, words)
    return ends | _open_ends({*ends, ""}, inner, words)  # of many, the last one comes behind anything


def _few(items: Any) -> str:
    """The characters of a small class of plain ones, else nothing."""
    if len(items) > 4 or any(op is not sre.LITERAL for op, _ in items):
        return ""
    return "".join(chr(value) for _, value in items)


# ------------------------------------------------------------------------------------------------ the cost

Atom = tuple[int, int, int]
"""A set of characters, how often it must stand there at least, and how often it may: 0 where that is not counted as a
repeat."""
Way = tuple[Atom, ...]
_CONDITION: Atom = ((1 << _ASCII) - 1, 0, 0)
"""Takes no character, and can fail: the end of a line, a border of a word, what must not follow."""
_BEGIN: Atom = (0, 0, 0)
"""The beginning of the line."""


class _TooHard(Exception):
    """The text says what is wrong with the pattern."""


def trouble(pattern: str) -> str | None:
    """Why a line could hold this pattern up for long, in words; None for a pattern that is quick on any line."""
    try:
        parsed = sre.parse(pattern)
        aside: list[Way] = []
        worst = max(_steps(way) for way in [*_ways(parsed, aside), *aside])
    except _TooHard as error:
        return str(error)
    except RecursionError:
        return "it is nested too deeply"
    if worst > MOST_STEPS:
        return (
            "its repeats can share out the same text in too many ways: begin with a plain word, take `[^…]*` for `.*`, "
            "or leave a `.*` or `\\s*` out"
        )
    return None


def _ways(parsed: Iterable[Any], aside: list[Way]) -> list[Way]:
    """Every way through a pattern; in one where there are too many of them.

    `aside` takes what is only looked at, ahead or back: it is left for good once it is known whether it fits.
    """
    out: list[Way] = [()]
    for op, value in parsed:
        more = _part(op, value, aside)
        if len(out) * len(more) > _MOST_WAYS:
            more = [tuple(atom for way in more for atom in way)]  # dearer than any of them
        out = list(dict.fromkeys(way + end for way in out for end in more))
    return out


def _part(op: Any, value: Any, aside: list[Way]) -> list[Way]:
    if op is sre.SUBPATTERN:
        return _ways(value[3], aside)
    if op is sre.ATOMIC_GROUP:
        return _ways(value, aside)
    if op is sre.BRANCH:
        return list(dict.fromkeys(way for branch in value[1] for way in _ways(branch, aside)))
    if op is sre.AT:
        return [(_BEGIN,) if value in (sre.AT_BEGINNING, sre.AT_BEGINNING_STRING) else (_CONDITION,)]
    if op in (sre.ASSERT, sre.ASSERT_NOT):
        aside += [(*way, _CONDITION) for way in _ways(value[1], aside)]
        return [(_CONDITION,)]
    if op is sre.GROUPREF:
        raise _TooHard("it refers back to what a group found: write it without")
    if op is sre.GROUPREF_EXISTS:
        raise _TooHard("it asks whether a group was found: write it without")
    if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        return _repeat(value, aside)
    return [((_set(op, value), 1, 0),)]


def _repeat(value: Any, aside: list[Way]) -> list[Way]:
    least, most, inner = value
    ways = _ways(inner, aside)
    endless = int(most) > _MANY
    if not endless:
        if int(most) == 1:
            return [*([()] if least == 0 else []), *ways]
        # Once is enough to see what stands in it; the rest of it is as one more place for each.
        whole = tuple(atom for way in ways for atom in way)
        if any(atom[2] for atom in whole):
            raise _TooHard(f"a repeat of up to {most} times holds a repeat without an end: write one of them out")
        return [*([()] if least == 0 else []), whole * (int(most) if len(whole) == 1 else 2)]
    longest = min(int(most), MATCHED_CHARS)
    if len(ways) == 1 and len(ways[0]) == 1 and not ways[0][0][2]:
        return [((ways[0][0][0], int(least), longest),)]
    if not all(_is_parted(way) for way in ways):
        raise _TooHard("a repeat without an end holds another one (as in `(a+)+`): some lines would cost for ever")
    if not _begin_apart(ways):
        raise _TooHard("a repeat without an end holds parts that can begin alike (as in `(a|ab)*`)")
    every = 0
    for way in ways:
        for atom in way:
            every |= atom[0]
    return [((every, int(least), longest * max(map(len, ways))),)]


def _is_parted(way: Way) -> bool:
    """Whether each repeat within a repeated part ends where something begins that it cannot be (as in `(a+,)+`)."""
    for index, atom in enumerate(way):
        after = way[(index + 1) % len(way)]
        if atom[2] and (after[0] & atom[0] or not after[1]):
            return False
    return True


def _begin_apart(ways: Sequence[Way]) -> bool:
    """Whether the first character decides which of them it is."""
    seen = 0
    for way in ways:
        if not way or way[0][0] & seen:
            return False
        seen |= way[0][0]
    return True


def _steps(way: Way) -> float:
    """What a line that was made for it could cost: how many ways there are to share it out among the repeats."""
    atoms: Way = way if way[:1] == (_BEGIN,) else ((_ALL, 0, MATCHED_CHARS), *way)
    while atoms and atoms[-1][2]:  # what stands at the end never fails once it has begun
        least = atoms[-1][1]
        atoms = (*atoms[:-1], *([(atoms[-1][0], least, 0)] if least else []))
    repeats = [index for index, atom in enumerate(atoms) if atom[2]]
    ways: dict[int, tuple[float, int]] = {}  # in how many ways a place is reached, and behind how many repeats
    worst = 0.0
    for index in repeats:
        ways[index] = (1.0, 1)
        for before in repeats:
            if before >= index:
                break
            if unit := _shared(atoms, before, index):
                reached, depth = ways[before]
                ways[index] = max(ways[index], (reached * _room(atoms[before], depth) / unit, depth + 1))
        reached, depth = ways[index]
        worst = max(worst, reached * _room(atoms[index], depth))
    return worst


def _room(atom: Atom, depth: int) -> float:
    """How many characters one of several repeats may take that share a line."""
    return min(atom[2], MATCHED_CHARS / depth)


def _shared(atoms: Way, first: int, second: int) -> int | None:
    """How long what lies between two repeats is, where a text may be of either; None where it never is."""
    common = atoms[first][0] & atoms[second][0]
    between = [atom for atom in atoms[first + 1 : second] if atom[1]]
    if not common or any(not atom[0] & common for atom in between):
        return None
    return max(1, sum(atom[1] for atom in between))


def _set(op: Any, value: Any) -> int:
    if op in (sre.LITERAL, sre.NOT_LITERAL):
        if op is sre.LITERAL:
            return 1 << value if value < _ASCII else _other(value)
        return _ALL & ~(1 << value) if value < _ASCII else _ALL
    if op is sre.ANY:
        return _ALL & ~(1 << 10)
    if op is sre.IN:
        return _class(value)
    return _ALL


def _other(code: int) -> int:
    letter = chr(code)
    return _DIGITS if letter.isdecimal() else (_SPACES if letter.isspace() else _LETTERS)


def _class(items: Any) -> int:
    negated, found, whole = False, 0, 0
    for op, value in items:
        if op is sre.NEGATE:
            negated = True
        elif op is sre.RANGE:
            low, high = value
            for code in range(low, min(high, _ASCII - 1) + 1):
                found |= 1 << code
            found |= _OTHERS if high >= _ASCII else 0
        elif op is sre.CATEGORY:
            found |= _category(value)
            whole |= _category(value) & _OTHERS
        else:
            found |= _set(op, value)
    if not negated:
        return found
    return (_ALL & ~found) | (_OTHERS & ~whole)  # a class without one foreign letter still has all the others


def _category(name: Any) -> int:
    kinds = {
        sre.CATEGORY_DIGIT: (r"\d", _DIGITS),
        sre.CATEGORY_NOT_DIGIT: (r"\D", _LETTERS | _SPACES),
        sre.CATEGORY_SPACE: (r"\s", _SPACES),
        sre.CATEGORY_NOT_SPACE: (r"\S", _LETTERS | _DIGITS),
        sre.CATEGORY_WORD: (r"\w", _LETTERS | _DIGITS),
        sre.CATEGORY_NOT_WORD: (r"\W", _LETTERS | _SPACES),
    }
    if name not in kinds:
        return _ALL
    text, others = kinds[name]
    fits = re.compile(text)
    return sum(1 << code for code in range(_ASCII) if fits.match(chr(code))) | others


def words_of(pattern: str) -> Iterator[str]:
    """The runs of plain characters that stand in a pattern, for making lines that half fit it."""
    for way in _runs(sre.parse(pattern)):
        yield from (run for run in way if run)


def _runs(parsed: Iterable[Any]) -> list[list[str]]:
    out = [""]
    found: list[list[str]] = []
    for op, value in parsed:
        if op is sre.LITERAL:
            out[-1] += chr(value)
            continue
        if op is sre.SUBPATTERN:
            found += _runs(value[3])
        elif op is sre.BRANCH:
            found += [runs for branch in value[1] for runs in _runs(branch)]
        elif op in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            found += _runs(value[2])
        out.append("")
    return [out, *found]
