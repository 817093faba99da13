"""Splits a launch command into words as POSIX sh does, without a shell. Pure: nothing is looked up or run here.

What a shell would work on (pipes, redirections, file name patterns, substitutions) is refused with a sentence that
names the character and its place; it is never passed on as plain text and never guessed at.

Two differences from sh, both wanted:
- The value of `$VAR` outside quotes is never split and never dropped when it is empty: one word stays one word,
  whatever stands in the variable.
- A newline is a blank, since a long command in a profile takes several lines. (`\\` at the end of a line works too.)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME_CHARACTER = re.compile(r"[A-Za-z0-9_]")
_TRAILING_BLANKS = re.compile(r"[ \t]+\n")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:\[[^\]\s]*\])?\+?=")
_BLANKS = " \t\n"
_SHELL = "use `shell = true`"
_OPEN = "opens a quote that is never closed"
_BLOT = "\0"
"""Stands for quoted text in the unquoted view of a word; no command can hold it."""

_REFUSED = {
    ";": f"ends a command, and a profile launches one: leave the rest out, or {_SHELL}",
    "|": f"is a pipe: the log is written by `log` under [launch] without one; else {_SHELL}",
    "&": f"needs a shell: the server is detached without it, so leave `&` and nohup out; else {_SHELL}",
    "<": f"is a redirection: {_SHELL}",
    ">": f"is a redirection: leave it out and give `log` under [launch]; else {_SHELL}",
    "(": f"needs a shell: put quotes around it if it is meant as it is, or {_SHELL}",
    ")": f"needs a shell: put quotes around it if it is meant as it is, or {_SHELL}",
    "`": f"runs another command: {_SHELL}",
    "*": f"stands for file names: put quotes around it if it is meant as it is, or {_SHELL}",
    "?": f"stands for file names: put quotes around it if it is meant as it is, or {_SHELL}",
    "[": f"stands for file names: put quotes around it if it is meant as it is, or {_SHELL}",
    "\0": "cannot be part of a command",
    "\r": "is a carriage return, which sh takes for text: take it out",
}
_ENV = f"write the variable into `env` under [launch], or {_SHELL}"
_NO_PROGRAM = f"a part of the shell, no program: {_SHELL}"
_SHELL_WORDS = {
    "cd": f"write the folder into `cwd` under [launch], or {_SHELL}",
    "export": _ENV,
    "set": _ENV,
    "unset": _ENV,
    "source": f"use `login_env = true` for the environment of a login shell, or {_SHELL}",
    ".": f"use `login_env = true` for the environment of a login shell, or {_SHELL}",
    "exec": "leave it out: no shell stays around the server",
    **dict.fromkeys(["!", "{", "}", "if", "for", "while", "until", "case", "select", "function"], _NO_PROGRAM),
    **dict.fromkeys(["do", "then", "eval", "ulimit", "umask", "alias", "trap", "wait"], _NO_PROGRAM),
}
_LOOK_ALIKES = {
    **dict.fromkeys("\u00a0\u2007\u2009\u202f\u3000\u200b\ufeff", "an invisible character that is no blank for sh"),
    **dict.fromkeys("“”„‘’", "a typographic quote, which quotes nothing"),
    **dict.fromkeys("–—−", "a typographic dash, which begins no option"),
}


class Literal(Struct, frozen=True):
    """Text that is meant as it is."""

    text: str


class Variable(Struct, frozen=True):
    """The value of an environment variable on the node."""

    name: str


class Home(Struct, frozen=True):
    """The home folder on the node."""


Part = Literal | Variable | Home


class Word(Struct, frozen=True):
    """One word of a command. `notes` are sentences about what may not be meant."""

    parts: tuple[Part, ...]
    notes: tuple[str, ...] = ()

    @property
    def is_literal(self) -> bool:
        """Whether the word is the same on every node."""
        return all(isinstance(part, Literal) for part in self.parts)

    @property
    def text(self) -> str:
        """For display: variables as ${NAME}, the home folder as ~."""
        return "".join(_shown(part) for part in self.parts)


class WordsError(ValueError):
    """The text cannot be split without a shell. `position` counts characters from 0, `line` from 1."""

    def __init__(self, text: str, position: int, character: str, advice: str) -> None:
        self.position = position
        self.line = text.count("\n", 0, position) + 1
        self.column = position - (text.rfind("\n", 0, position) + 1) + 1
        self.character = character
        self.advice = advice
        shown = character if character.isprintable() else ascii(character)[1:-1]
        place = f"character {self.column}"
        if "\n" in text.strip("\n"):
            place = f"line {self.line} of the text, {place}"  # a file that holds the text has lines of its own
        super().__init__(f"`{shown}` ({place}) {advice}")


def split(text: str, *, command: bool = True) -> list[Word]:
    """The words of a command, or of its arguments alone. Raises `WordsError`, which counts \\r\\n as one character."""
    return _Splitter(text.replace("\r\n", "\n"), command=command).words()


def literal(text: str) -> Word:
    """A word that is meant as it is: nothing in it is expanded."""
    return Word((Literal(text),))


def path_word(text: str) -> Word:
    """A path of a profile (cwd, log): `~/` and `$VAR` mean what they mean in a command, all else is itself."""
    return _Splitter(text).path()


def to_wire(word: Word) -> list[list[str]]:
    """The word as the node program expands it: [["lit", text] | ["var", NAME] | ["home"], …]."""
    out: list[list[str]] = []
    for part in word.parts:
        match part:
            case Literal(text):
                out.append(["lit", text])
            case Variable(name):
                out.append(["var", name])
            case Home():
                out.append(["home"])
    return out


def warnings(words: Iterable[Word]) -> list[str]:
    """What may not be meant, one sentence each, in the order of the words."""
    return [note for word in words for note in word.notes]


def variables(words: Iterable[Word]) -> tuple[str, ...]:
    """The names whose values the node must have, each once."""
    return tuple(dict.fromkeys(part.name for word in words for part in word.parts if isinstance(part, Variable)))


def texts(words: Sequence[Word]) -> list[str]:
    """All words for display."""
    return [word.text for word in words]


def _shown(part: Part) -> str:
    match part:
        case Literal(text):
            return text
        case Variable(name):
            return f"${{{name}}}"
        case Home():
            return "~"


class _Splitter:
    """Reads the text once from left to right. `_bare` is the present word with its quoted text blotted out."""

    def __init__(self, text: str, *, command: bool = False) -> None:
        self._text = text
        self._at = 0
        self._program_next = command
        self._words: list[Word] = []
        self._parts: list[Part] = []
        self._run: list[str] = []
        self._bare: list[str] = []
        self._brace_at: int | None = None

    def words(self) -> list[Word]:
        while self._skip_to_word():
            self._read_word()
        return self._words

    def path(self) -> Word:
        self._tilde()
        while here := self._here():
            if here == "$":
                self._dollar(quoted=True)
            elif here == "\0":
                raise self._refusal(self._at, here, _REFUSED[here])
            else:
                self._take(here)
        return Word(self._finished_parts())

    def _here(self, ahead: int = 0) -> str:
        return self._text[self._at + ahead : self._at + ahead + 1]

    def _refusal(self, position: int, character: str, advice: str) -> WordsError:
        return WordsError(self._text, position, character, advice)

    def _take(self, text: str, source: str | None = None) -> None:
        """Literal text, written as `source` where that is not the text itself."""
        self._run.append(text)
        self._at += len(text if source is None else source)

    def _add_part(self, part: Part) -> None:
        if self._run:
            self._parts.append(Literal("".join(self._run)))
            self._run = []
        self._parts.append(part)

    def _finished_parts(self) -> tuple[Part, ...]:
        if self._run or not self._parts:
            self._parts.append(Literal("".join(self._run)))
        parts, self._parts, self._run = tuple(self._parts), [], []
        return parts

    def _skip_to_word(self) -> bool:
        while here := self._here():
            if here in _BLANKS:
                self._at += 1
            elif self._text.startswith("\\\n", self._at):
                self._at += 2
            elif here == "#":
                end = self._text.find("\n", self._at)
                self._at = end if end >= 0 else len(self._text)
            else:
                return True
        return False

    def _read_word(self) -> None:
        start, self._bare, self._brace_at = self._at, [], None
        assignment = _ASSIGNMENT.match(self._text, start)
        if assignment and self._program_next:
            hint = f"before the command sets a variable: write env = {{ {assignment.group(1)} = … }} under [launch]"
            raise self._refusal(start, assignment.group(0), hint)
        self._tilde()
        while (here := self._here()) and here not in _BLANKS:
            self._step(here)
        bare, parts = "".join(self._bare), self._finished_parts()
        if self._program_next and bare in _SHELL_WORDS:
            raise self._refusal(start, bare, f"is for a shell: {_SHELL_WORDS[bare]}")
        self._program_next = False
        inside = bare[bare.find("{") + 1 : max(bare.rfind("}"), 0)]
        if self._brace_at is not None and ("," in inside or ".." in inside):
            # bash splits {a,b} and {1..3} into several words, sh does not: one text would launch two things.
            advice = "is taken as a list by some shells and as text by others: put single quotes around it"
            raise self._refusal(self._brace_at, "{", advice)
        self._words.append(Word(parts, _notes(Word(parts), bare)))

    def _step(self, here: str) -> None:
        if here == "'":
            self._single_quotes()
        elif here == '"':
            self._double_quotes()
        elif here == "\\":
            self._backslash()
        elif here == "$":
            self._dollar(quoted=False)
        elif here in _REFUSED:
            raise self._refusal(self._at, here, _REFUSED[here])
        else:
            if here == "{" and self._brace_at is None:
                self._brace_at = self._at
            self._bare.append(here)
            self._take(here)

    def _single_quotes(self) -> None:
        end = self._text.find("'", self._at + 1)
        if end < 0:
            raise self._refusal(self._at, "'", _OPEN)
        inside = self._text[self._at + 1 : end]
        if "\0" in inside:
            raise self._refusal(self._at, "\0", _REFUSED["\0"])
        self._take(inside, self._text[self._at : end + 1])
        self._bare.append(_BLOT)

    def _double_quotes(self) -> None:
        start = self._at
        self._take("", '"')
        self._bare.append(_BLOT)
        while (here := self._here()) != '"':
            after = self._here(1)
            if not here:
                raise self._refusal(start, '"', _OPEN)
            if here in "`\0":
                raise self._refusal(self._at, here, f"{_REFUSED[here]} (inside double quotes too)")
            if here == "$":
                self._dollar(quoted=True)
            elif here == "\\" and after and after in '\n$`"\\':
                self._take("" if after == "\n" else after, here + after)
            else:
                self._take(here)
        self._take("", '"')

    def _backslash(self) -> None:
        after = self._here(1)
        if after == "\n":
            self._take("", "\\\n")
            return
        if not after or after == "\0":
            raise self._refusal(self._at, "\\", "quotes nothing: it is the last character")
        if _TRAILING_BLANKS.match(self._text, self._at + 1):
            # sh would make a word of the blank and end the command here: half of the options would be lost.
            raise self._refusal(self._at, "\\", "is followed by blanks: it must be the last character of its line")
        self._take(after, "\\" + after)
        self._bare.append(_BLOT)

    def _past_continuations(self, position: int) -> int:
        while self._text.startswith("\\\n", position):
            position += 2
        return position

    def _dollar(self, *, quoted: bool) -> None:
        start = self._at
        position = self._past_continuations(start + 1)
        after = self._text[position : position + 1]
        self._bare.append(_BLOT)
        if after == "{":
            self._braced(start, position)
        elif _NAME.match(after):
            name = []
            while _NAME_CHARACTER.match(more := self._text[position : position + 1]):
                name.append(more)
                position = self._past_continuations(position + 1)
            self._add_part(Variable("".join(name)))
            self._at = position
        elif after == "(":
            raise self._refusal(start, "$(", _REFUSED["`"])
        elif after and (after in "0123456789@*#?$!-[" or (after in "'\"" and not quoted)):
            advice = f"has a meaning in a shell alone: put single quotes around it, or {_SHELL}"
            raise self._refusal(start, "$" + after, advice)
        else:
            self._take("$")

    def _braced(self, start: int, position: int) -> None:
        end = self._text.find("}", position)
        name = self._text[position + 1 : end].replace("\\\n", "") if end >= 0 else ""
        if not _NAME.fullmatch(name):
            raise self._refusal(start, "${", f"takes a plain name, as in ${{NAME}}, and nothing more: else {_SHELL}")
        self._add_part(Variable(name))
        self._at = end + 1

    def _tilde(self) -> None:
        if self._here() != "~":
            return
        position = self._past_continuations(self._at + 1)
        after = self._text[position : position + 1]
        if not after or after in _BLANKS or after == "/":
            self._add_part(Home())
            self._bare.append("~")
            self._at = position
        elif after.isalnum() or after in "_+-.":
            advice = "is another user's folder, which only a shell finds: write it out"
            raise self._refusal(self._at, "~" + after, advice)


def _notes(word: Word, bare: str) -> tuple[str, ...]:
    shown, notes = word.text, []
    if re.search(r"[=:]~(?:/|$)", bare):
        notes.append(f"{shown}: the ~ stays as it is, since it does not begin a word (write $HOME for the folder)")
    elif isinstance(word.parts[0], Literal) and word.parts[0].text.startswith("~/"):
        notes.append(f"{shown}: the ~ stays as it is, since it is quoted")
    if bare.startswith("{") and _BLOT in bare:
        notes.append(f"{shown}: the quotes inside the braces are gone, as in sh; put single quotes around it")
    for character in dict.fromkeys(bare):
        if character in _LOOK_ALIKES:
            notes.append(f"{shown}: U+{ord(character):04X} is {_LOOK_ALIKES[character]}")
    return tuple(notes)
