"""From the command of a profile to the words that are launched; and what in them must not be shown.

Complaints are `ProfileError`s at the key that was written wrongly. Nothing is launched or looked up here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from supervisor.core import command as commands
from supervisor.core import words as w
from supervisor.core.words import Word, WordsError
from supervisor.node import redact
from supervisor.tables import KeyPath, Source, nearest

SHELL = ("/bin/bash", "-lc")
"""What `shell = true` gives the text to, as one argument."""

_ONE_TEXT = "cannot be used with shell = true, where the command is one text: give a whole command instead"
_REFERENCE = re.compile(r"^~/|\$(?:[A-Za-z_]|\{)")
_MIN_SECRET_LENGTH = 4
"""Shorter values are not masked in warnings: every text would be full of ***."""


class Reading(Struct, frozen=True):
    """Reads the commands of one file."""

    source: Source
    shell: bool

    def command(self, command: str | tuple[str, ...], path: KeyPath) -> list[Word]:
        """The words of a command; there is at least one."""
        self._no_nul(command, path)
        if isinstance(command, tuple):
            if self.shell:
                raise self.source.error(path, "is an array, and shell = true takes one text")
            words = [w.literal(word) for word in command]
        elif self.shell:
            words = [w.literal(word) for word in (*SHELL, command)] if command.strip() else []
        else:
            words = self._split(command, path, command=True)
        if not words or not words[0].text.strip():
            raise self.source.error(path, "is empty: there is nothing to launch")
        if words[0].text.startswith("-"):
            raise self.source.error(path, "begins with an option, not with a program")
        return words

    def dropped(self, words: list[Word], drop: Sequence[str], path: KeyPath) -> tuple[list[Word], list[str]]:
        """The words without these flags and their values, and what is gone, for display."""
        if drop and self.shell:
            raise self.source.error(path, _ONE_TEXT)
        dropped: list[str] = []
        for flag in dict.fromkeys(drop):
            if not flag.startswith("-") or re.search(r"[=\s]", flag):
                raise self.source.error(path, "takes flags alone, like --name, without their values")
            kept, gone = commands.without(words, flag)  # the program stays: it is no flag, as command() checks
            if not gone:
                near = nearest(flag, commands.flag_names(kept))
                hint = f"; did you mean {near}?" if near else ""
                raise self.source.error(path, f"the command has no {flag}{hint}")
            words = kept
            dropped += w.texts(gone)
        return words, dropped

    def added(self, add: str | tuple[str, ...], path: KeyPath) -> list[Word]:
        """Words for the end of the command."""
        if add and self.shell:
            raise self.source.error(path, _ONE_TEXT)
        self._no_nul(add, path)
        return [w.literal(word) for word in add] if isinstance(add, tuple) else self._split(add, path, command=False)

    def _no_nul(self, command: str | tuple[str, ...], path: KeyPath) -> None:
        if "\0" in "".join(command):
            raise self.source.error(path, "has a NUL character, which no command can hold")

    def _split(self, text: str, path: KeyPath, *, command: bool) -> list[Word]:
        try:
            return w.split(text, command=command)
        except WordsError as error:
            raise self.source.error(path, str(error), line=self._line(error, text, path)) from None

    def _line(self, error: WordsError, text: str, path: KeyPath) -> int | None:
        """The file's line of what was refused, if it really stands there; else the key's."""
        first = self.source.line(path)
        if first is None:
            return None
        lines = self.source.text.split("\n")
        opening = lines[first - 1].rstrip()
        # TOML drops the newline right behind the opening quotes.
        begins = first + 1 if opening.endswith(('"""', "'''")) and opening.count(opening[-3:]) == 1 else first
        number = begins + error.line - 1
        refused = text.replace("\r\n", "\n").split("\n")[error.line - 1].strip()
        return number if number <= len(lines) and refused and refused in lines[number - 1] else first


def program(words: Sequence[Word], shell: bool) -> str:
    """The program that the command begins with, for `shell = true` that of its text."""
    argv = w.texts(words)
    return commands.program(commands.shell_words(argv[-1]) if shell else argv)


def unexpanded(command: str | tuple[str, ...], env: Mapping[str, str]) -> Iterator[str]:
    """Notes on ~ and $ where nothing is expanded."""
    if isinstance(command, tuple):
        for word in command:
            if _REFERENCE.search(word):
                yield f"{word}: stays as it is, since the words of an array are not expanded"
    for name, value in env.items():
        if _REFERENCE.search(value):
            yield f"launch.env.{name}: ~ and $ stay as they are in an environment"


def secrets(words: Sequence[Word], env: Mapping[str, str]) -> list[str]:
    """Values that must not be shown. What a variable of the node gives is not known here."""
    flat = commands.flatten(w.texts(words))
    open_words = {word.text for word in words if not word.is_literal}
    found = redact.secret_words(flat).items()
    values = [value for index, listed in found if flat[index] not in open_words for value in listed]
    values += [value for name, value in env.items() if redact.secret_name(name)]
    return [value for value in dict.fromkeys(values) if value and not commands.VARIABLE.fullmatch(value)]


def veiled(text: str, secret_values: Sequence[str]) -> str:
    """The text with secrets taken out."""
    for secret in sorted(secret_values, key=len, reverse=True):
        if len(secret) >= _MIN_SECRET_LENGTH:
            text = text.replace(secret, redact.HIDDEN)
    return text


def veiled_fields(launch: Struct) -> list[tuple[str, Any]]:
    """The fields for a repr: `command`, `add` and `env` without secrets; a text by its words, to judge each."""
    shown: list[tuple[str, Any]] = []
    for name, value in msgspec.structs.asdict(launch).items():
        if name == "env":
            value = {key: redact.HIDDEN if redact.secret_name(key) else text for key, text in value.items()}
        elif name in ("command", "add") and value:
            value = redact.redact_argv(commands.shell_words(value) if isinstance(value, str) else value)
        shown.append((name, value))
    return shown


def veiled_repr(launch: Struct) -> str:
    """What `repr` gives."""
    return f"{type(launch).__name__}({', '.join(f'{name}={value!r}' for name, value in veiled_fields(launch))})"
