"""Whose log it is, by words that the engines' files name. Pure.

Engines quote each other (SGLang has run vLLM's layers, all of them run torch): each word counts once with its weight,
and an engine must be clearly ahead. Where none is, the log is nobody's, and only what all have in common is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from supervisor.core.engine import Engine

LEAST = 3
"""The weight of a single strong word, or of three that are often quoted."""
AHEAD = 1.3
DECIDED = 40
"""So far ahead that nothing that comes later changes it."""


class WhichEngine:
    """Tell it bytes of a log until it is `decided` or there are no more.

    Args:
        engines: name → engine.
    """

    def __init__(self, engines: Mapping[str, Engine]) -> None:
        self._scores = dict.fromkeys(engines, 0)
        self._open = [
            (word.encode(), name, sign.weight)
            for name, engine in engines.items()
            for sign in engine.log_signs
            for word in sign.literals
        ]

    def __repr__(self) -> str:
        return f"<WhichEngine {self._scores}>"

    def feed(self, data: bytes) -> None:
        """More of the log. Words that a border cuts are not seen, and stand elsewhere again."""
        left = []
        for word, name, weight in self._open:
            if word in data:
                self._scores[name] += weight
            else:
                left.append((word, name, weight))
        self._open = left

    @property
    def decided(self) -> bool:
        """Whether more of the log would change nothing."""
        first, second = self._two()
        return first[0] >= second[0] + DECIDED and first[0] >= 2 * second[0]

    @property
    def name(self) -> str | None:
        """The engine, None where it is not clear."""
        first, second = self._two()
        return first[1] if first[0] >= LEAST and first[0] >= AHEAD * second[0] else None

    def _two(self) -> tuple[tuple[int, str], tuple[int, str]]:
        found = sorted(((score, name) for name, score in self._scores.items()), reverse=True)
        found += [(0, ""), (0, "")]
        return found[0], found[1]


def which_engine(blocks: Iterable[bytes], engines: Mapping[str, Engine]) -> str | None:
    """The engine whose log this is, None where that is not clear."""
    which = WhichEngine(engines)
    for data in blocks:
        which.feed(data)
        if which.decided:
            break
    return which.name
