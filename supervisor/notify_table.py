"""The profile's `[notify]` table: who is told, and of what. Read and checked here; nothing is looked up or run.

A webhook's URL is a secret, and a command may hold one: neither ever stands in a repr or an error.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from supervisor import profile_checks as check
from supervisor.core import url as urls
from supervisor.core import words as w
from supervisor.core.notices import WANTED
from supervisor.core.words import Word, WordsError
from supervisor.tables import KeyPath, Source, nearest

KINDS = tuple(kind.value for kind in WANTED)
_HIDDEN = "***"
_AT: KeyPath = ("notify",)


class Notify(Struct, frozen=True, forbid_unknown_fields=True):
    """What is done when a server comes to serve, fails, degrades, or is stopped by somebody else."""

    command: str | tuple[str, ...] | None = None
    """Run on the operator's side, with the event as JSON on its input; split as launch.command."""
    webhook: str | None = None
    """A URL that the event is posted to, as JSON."""
    webhook_env: str | None = None
    """Name of the variable, on the operator's side, that holds that URL."""
    bell: bool = True
    terminal: bool = True
    """A notification of the terminal's own."""
    title: bool = True
    """The terminal's title tells the phase."""
    on: tuple[str, ...] = KINDS

    def __repr__(self) -> str:
        return f"Notify({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:  # msgspec's own would show the secrets to Textual
        hidden = ("command", "webhook")
        fields = msgspec.structs.asdict(self).items()
        return [(name, _HIDDEN if name in hidden and value is not None else value) for name, value in fields]


def checked(notify: Notify, source: Source) -> tuple[Word, ...]:
    """The words of the command, none where there is none. Raises `ProfileError` for what cannot be meant."""
    for kind in notify.on:
        if kind not in KINDS:
            near = nearest(kind, KINDS)
            hint = f"; did you mean {near}?" if near else ""
            raise source.error((*_AT, "on"), f"knows {', '.join(KINDS)}, and not {kind[:40]!r}{hint}")
    if notify.webhook is not None and notify.webhook_env is not None:
        raise source.error((*_AT, "webhook_env"), "stands beside webhook: give one of them")
    if notify.webhook is not None and (problem := webhook_problem(notify.webhook)):
        raise source.error((*_AT, "webhook"), problem)
    if notify.webhook_env is not None and (problem := check.env_name(notify.webhook_env)):
        raise source.error((*_AT, "webhook_env"), problem)
    return _words(notify.command, source)


def webhook_problem(text: str) -> str | None:
    """What is wrong with a webhook's URL, without a word of it."""
    try:
        urls.parse(text)
    except urls.UrlError:
        return "is no URL that can be posted to: https://HOST/PATH (it is not shown here, since it is a secret)"
    return None


def _words(command: str | tuple[str, ...] | None, source: Source) -> tuple[Word, ...]:
    path = (*_AT, "command")
    if command is None:
        return ()
    if "\0" in "".join(command):
        raise source.error(path, "has a NUL character, which no command can hold")
    try:
        words = [w.literal(word) for word in command] if isinstance(command, tuple) else w.split(command)
    except WordsError as error:
        if "shell" not in error.advice and "[launch]" not in error.advice:
            raise source.error(path, str(error)) from None
        shown = error.character if error.character.isprintable() else ascii(error.character)[1:-1]
        problem = f"is run without a shell, which `{shown}` needs: name a script, or write " + '["sh", "-c", "…"]'
        raise source.error(path, problem) from None
    if not words or not words[0].text.strip():
        raise source.error(path, "is empty: leave the key out instead")
    if words[0].text.startswith("-"):
        raise source.error(path, "begins with an option, not with a program")
    return tuple(words)
