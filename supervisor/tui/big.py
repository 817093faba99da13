"""Words in letters that are read from across a room: a small fixed font, drawn in half blocks. Pure.

Each letter is five dots high and three to five wide; a dot is as many cells wide as `scale`, and half as many high.
"""

from __future__ import annotations

_FONT = {
    "A": "010 101 111 101 101", "B": "110 101 110 101 110", "C": "011 100 100 100 011", "D": "110 101 101 101 110",
    "E": "111 100 110 100 111", "F": "111 100 110 100 100", "G": "0111 1000 1011 1001 0111",
    "H": "101 101 111 101 101", "I": "1 1 1 1 1", "J": "001 001 001 101 010", "K": "101 101 110 101 101",
    "L": "100 100 100 100 111", "M": "10001 11011 10101 10001 10001", "N": "1001 1101 1011 1001 1001",
    "O": "0110 1001 1001 1001 0110", "P": "110 101 110 100 100", "Q": "0110 1001 1001 1010 0101",
    "R": "110 101 110 101 101", "S": "011 100 010 001 110", "T": "111 010 010 010 010", "U": "101 101 101 101 111",
    "V": "101 101 101 101 010", "W": "10001 10001 10101 11011 10001", "X": "101 101 010 101 101",
    "Y": "101 101 010 010 010", "Z": "111 001 010 100 111",
    "0": "111 101 101 101 111", "1": "010 110 010 010 111", "2": "111 001 111 100 111", "3": "111 001 011 001 111",
    "4": "101 101 111 001 001", "5": "111 100 111 001 111", "6": "111 100 111 101 111", "7": "111 001 001 010 010",
    "8": "111 101 111 101 111", "9": "111 101 111 001 111",
    ":": "0 1 0 1 0", ".": "0 0 0 0 1", "%": "10001 00010 00100 01000 10001", "-": "00 00 11 00 00", " ": "0 0 0 0 0",
    "/": "001 001 010 100 100", "?": "110 001 010 000 010",
}  # fmt: skip
DOTS_HIGH = 5


def width(text: str) -> int:
    """Dots that a word takes from left to right."""
    glyphs = [_FONT.get(letter, _FONT["?"]) for letter in text.upper()]
    return sum(len(glyph.split()[0]) + 1 for glyph in glyphs) - 1 if glyphs else 0


def scale_for(text: str, cells: int, most: int = 4) -> int:
    """The largest scale in which a word fits into `cells`; 0: it does not fit."""
    dots = width(text)
    return min(most, cells // dots) if dots else most


def rows(text: str, scale: int) -> list[str]:
    """The rows of cells that draw the word."""
    glyphs = [_FONT.get(letter, _FONT["?"]).split() for letter in text.upper()]
    lines = ["0".join(glyph[row] for glyph in glyphs) for row in range(DOTS_HIGH)]
    wide = ["".join(dot * scale for dot in line) for line in lines]
    tall = [line for line in wide for _ in range(scale)]  # in half cells
    if len(tall) % 2:
        tall.append("0" * len(tall[0]))
    return ["".join(map(_cell, tall[row], tall[row + 1])) for row in range(0, len(tall), 2)]


def _cell(upper: str, lower: str) -> str:
    return {"00": " ", "10": "▀", "01": "▄", "11": "█"}[upper + lower]
