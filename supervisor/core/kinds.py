"""Kinds of lines: a server writes few of them, and what it says differs in numbers alone. Pure.

Two lines are of one kind where they differ in the values of their digits and in nothing else. Whoever knows that a line
says nothing, whatever its digits are, need not read another one of its kind: in a log that floods that is nearly all.
"""

from __future__ import annotations

import re

from supervisor.core.lines import plain_bytes

LONGEST = 4096
"""Bytes of a line whose kind is remembered: longer ones hold somebody's text, and hardly come again."""
MOST_BYTES = 4 << 20
"""Of all kinds that are remembered; then it begins anew, which costs reading them once more."""
ONE_BYTES = 150
"""What remembering one costs beside its own bytes."""

_ANY_DIGIT = bytes.maketrans(b"123456789", b"000000000")
_PIECE = re.compile(r"\\.|\{\d*,?\d*\}|\[\^?\]?(?:\\.|[^\]\\])*\]|\d+|.", re.DOTALL)


def kinds_of(data: bytes) -> list[bytes]:
    r"""The kind of each line of these whole lines, and an empty one behind the last `\n`."""
    return plain_bytes(data).translate(_ANY_DIGIT).split(b"\n")


def kind_of_word(word: bytes) -> bytes:
    """What a word looks like in a kind."""
    return word.translate(_ANY_DIGIT)


def blurred(pattern: str) -> str | None:
    """A pattern that fits whatever the given one fits with other digits in its place. None: it is the same."""
    out = []
    for piece in _PIECE.findall(pattern):
        if piece[0] == "[":
            piece = re.sub(r"(?<!\\)\d(?:-\d)?", r"\\d", piece)
        elif piece.isdigit():
            piece = r"\d+"
        out.append(piece)
    text = "".join(out)
    return None if text == pattern else text


class KnownKinds:
    """A bounded set of kinds."""

    def __init__(self) -> None:
        self.all: set[bytes] = set()
        self._bytes = 0

    def add(self, kind: bytes) -> None:
        """One more, unless it is a long one."""
        if len(kind) > LONGEST or kind in self.all:
            return
        self._bytes += len(kind) + ONE_BYTES
        if self._bytes > MOST_BYTES:
            self.all.clear()
            self._bytes = len(kind) + ONE_BYTES
        self.all.add(kind)
