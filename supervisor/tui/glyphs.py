"""What is drawn where the terminal has no Unicode: each character's stand-in of the same width, in one place.

The format functions, the borders, the scrollbars and the log all use what they like; `AsciiFilter` is laid over every
line of every widget just before it is drawn, so nothing can be forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

SWITCH = "SUPERVISOR_ASCII"
PYTHONS_OWN = "C.UTF-8"
"""What Python sets LC_CTYPE to by itself in the locale C."""

_STANDS_IN = {
    "-": "─╌╴╶–—‒−┄┅┈┉╍⎯",
    "|": "│┃║╎╏┆┇┊┋▏▕▐❘‖⏸",
    "+": "╭╮╰╯┌┐└┘├┤┬┴┼╔╗╚╝╠╣╦╩╬┏┓┗┛┣┫┳┻╋✚",
    "#": "█▉▊▇▆■▰▪◼",
    "=": "━╺╸╼╾═▅▄▀▎▍▌▋▒≡",
    ":": "▃",
    ".": "·…▂▁░⋯∙⠂▱□◻",
    "*": "●•◉★✦⬤∗✱",
    "o": "○◌◯∘°",
    "@": "◐◑◒◓",
    "v": "✔✓▾▼↓⬇⌄",
    "x": "✘✗×✕✖▓",
    "!": "▲△⚠",
    ">": "→▸▶›❯»↦⏵",
    "<": "←◂◀‹❮«⌫⏎",
    "^": "↑⬆",
    "~": "≈",
    "'": "‘’‛ʼ",
    '"': "“”„",
    "?": "�",
    " ": "\u00a0\u202f\u2009▔",
    "u": "µ",
    "_": "␣",
}
TABLE = {ord(glyph): plain for plain, glyphs in _STANDS_IN.items() for glyph in glyphs}


@lru_cache(4096)
def to_ascii(text: str) -> str:
    """The same text in ASCII, cell by cell: what has no stand-in is a question mark as wide as it was."""
    if text.isascii():
        return text
    known = text.translate(TABLE)
    if known.isascii():
        return known
    return "".join(glyph if glyph.isascii() else "?" * cell_len(glyph) for glyph in known)


def needs_ascii(environ: Mapping[str, str], encoding: str) -> bool:
    """Whether this terminal is one that shows no more than ASCII; the switch, where it is set, has the last word."""
    switch = environ.get(SWITCH, "")
    if switch:
        return switch.lower() not in ("0", "no", "false")
    if environ.get("TERM", "") in ("linux", "dumb"):
        return True
    said = environ.get("LC_ALL") or environ.get("LANG")
    if said in ("C", "POSIX") and environ.get("LC_CTYPE", PYTHONS_OWN) == PYTHONS_OWN:
        return True  # Python takes them for UTF-8; whoever set them meant what they say
    return encoding.lower().replace("-", "").replace("_", "") not in ("utf8", "utf16", "utf32", "gb18030")


class AsciiFilter(LineFilter):
    """Laid over every line that is drawn."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Textual's hook."""
        return [
            segment if segment.text.isascii() else Segment(to_ascii(segment.text), segment.style, segment.control)
            for segment in segments
        ]
