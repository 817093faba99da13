"""What can be learnt from a launch command, by flags that an engine's data names. Pure.

It reads words and guesses nothing: a value that a variable gives on the node is `unresolved`, a number that is none
is an error. It does not know any engine; which flag means what comes in as `core.engine.Flags`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from supervisor.core.engine import Flags
from supervisor.core.words import Literal, Word

CONTAINER_PROGRAMS = frozenset({"docker", "podman", "nerdctl"})
FOREIGN_TREE_PROGRAMS = CONTAINER_PROGRAMS | {"srun", "ssh"}
"""Commands that begin with one of these start the server outside our process tree."""

_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
_SHELL_COMMAND_FLAG = re.compile(r"-[a-z]*c")
VARIABLE = re.compile(r"\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*\})")
_PUBLISHED = re.compile(r"(?:\[[^\]]*\]:|[^:\[\]]*:)?(\d+):(\d+)(?:/tcp)?", re.ASCII)
_NEGATIVE_NUMBER = re.compile(r"-\d+(?:\.\d+)?", re.ASCII)
_MAX_PORT = 65535


class Secret:
    """A value that no repr, log or JSON shows. Only `reveal()` gives it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The value, for the one place that sends or masks it."""
        return self._value

    def __repr__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)


class Learnt(Struct, frozen=True):
    """What the command says; None for what it does not say."""

    host: str | None = None
    port: int | None = None
    """Where the server is told to listen. In a container that is inside: see `node_port`."""
    model: str | None = None
    served_model_name: str | None = None
    tp: int | None = None
    api_key: Secret | None = None
    published: tuple[tuple[int, int], ...] = ()
    """(port on the node, port inside) of a container command."""
    unresolved: tuple[str, ...] = ()
    """Flags whose value is a variable of the node."""

    def node_port(self, default: int | None) -> int | None:
        """The port as seen from the node. `default` is the engine's own."""
        inside = self.port if self.port is not None else default
        for outside, published in self.published:
            if published == inside:
                return outside
        if self.port is None and len(self.published) == 1:
            return self.published[0][0]
        return inside


def learn(argv: Sequence[str], flags: Flags) -> Learnt:
    """Read a command, its words as `Word.text` gives them. Raises `ValueError` that names the word."""
    words = flatten(argv)
    unresolved: list[str] = []

    def value_of(names: Sequence[str]) -> tuple[str, str] | None:
        found = _value(words, names)
        if found is None or not VARIABLE.fullmatch(found[1]):
            return found
        unresolved.append(found[0])
        return None

    model, served, host = value_of(flags.model), value_of(flags.served_model_name), value_of(flags.host)
    port, tp, key = value_of(flags.port), value_of(flags.tp), value_of(flags.api_key)
    return Learnt(
        host=host[1] if host else None,
        port=_number(port, 1, _MAX_PORT, "port number (1 to 65535)") if port else None,
        model=model[1] if model else _positional(words, flags),
        served_model_name=served[1] if served else None,
        tp=_number(tp, 1, 1 << 20, "whole number above 0") if tp else None,
        api_key=Secret(key[1]) if key else None,
        published=tuple(_published(words)),
        unresolved=tuple(unresolved),
    )


def value(words: Sequence[str], names: Sequence[str]) -> str | None:
    """The value of the first of these flags that has one, in words that `flatten` gave; a variable is none."""
    found = _value(words, names)
    return None if found is None or VARIABLE.fullmatch(found[1]) else found[1]


def has_flag(words: Sequence[str], name: str) -> bool:
    """Whether a flag is given; `--name*` is any that begins so."""
    wanted, star, _ = _plain(name).partition("*")
    flags = [_plain(word.partition("=")[0]) for word in words]
    return any(flag.startswith(wanted) if star else flag == wanted for flag in flags)


def unabbreviated(words: Sequence[str], known: Sequence[str]) -> list[str]:
    """The words with long flags written out that were cut short, as most argument parsers take them."""
    plain = [_plain(name) for name in known if name.startswith("--") and "*" not in name]
    out = []
    for word in words:
        flag, equals, rest = word.partition("=")
        flag = _plain(flag)
        whole = flag
        if flag.startswith("--") and len(flag) > 4 and flag not in plain:
            whole = next((name for name in plain if name.startswith(flag)), flag)
        out.append(word if whole == flag else whole + equals + rest)
    return out


def flatten(argv: Sequence[str]) -> list[str]:
    """The words with the text of `sh -c TEXT` taken apart too, as well as that goes without a shell."""
    out: list[str] = []
    for index, word in enumerate(argv):
        if index > 1 and _SHELL_COMMAND_FLAG.fullmatch(argv[index - 1]) and _program(argv[index - 2]) in _SHELLS:
            out += shell_words(word)
        else:
            out.append(word)
    return out


def shell_words(text: str) -> list[str]:
    """Roughly the words of a text for a shell: for reading flags out of it, never for launching."""
    try:
        return shlex.split(text, comments=True)
    except ValueError:  # an open quote: the shell on the node will say so
        return text.split()


def candidates(argv: Sequence[str], patterns: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Every name one of whose regular expressions is found in the joined command."""
    joined = " ".join(argv)
    return tuple(name for name, listed in patterns.items() if any(re.search(pattern, joined) for pattern in listed))


def detect(argv: Sequence[str], patterns: Mapping[str, Sequence[str]]) -> str | None:
    """The one name that fits; None for none or several (`candidates` tells which)."""
    found = candidates(argv, patterns)
    return found[0] if len(found) == 1 else None


def program(argv: Sequence[str]) -> str:
    """The name of the program that the command begins with, without its folder ("" for an empty one)."""
    return _program(argv[0]) if argv else ""


def without(words: Sequence[Word], flag: str) -> tuple[list[Word], list[Word]]:
    """The words that stay and those that go when a flag is dropped: it and what follows up to the next flag."""
    kept: list[Word] = []
    gone: list[Word] = []
    dropping = False
    for word in words:
        name, has_value = _flag_of(word)
        if name == flag:
            dropping = not has_value
            gone.append(word)
        elif dropping and name is None:
            gone.append(word)
        else:
            dropping = False
            kept.append(word)
    return kept, gone


def flag_names(words: Sequence[Word]) -> list[str]:
    """The flags of a command, each once."""
    return list(dict.fromkeys(name for name, _ in map(_flag_of, words) if name is not None))


def _flag_of(word: Word) -> tuple[str | None, bool]:
    """The flag that a word is (None for a value), and whether it carries its value behind `=`."""
    first = word.parts[0] if word.parts else None
    if not isinstance(first, Literal) or not first.text.startswith("-"):
        return None, False
    if word.is_literal and _NEGATIVE_NUMBER.fullmatch(first.text):
        return None, False
    name, equals, _ = first.text.partition("=")
    return name, bool(equals)


def _value(words: Sequence[str], names: Sequence[str]) -> tuple[str, str] | None:
    """(flag, value) of the first of these flags that has one; of a repeated flag the last wins."""
    for wanted in names:
        found: tuple[str, str] | None = None
        for index, word in enumerate(words):
            flag, equals, value = word.partition("=")
            if _plain(flag) != _plain(wanted):
                continue
            if not equals:
                value = words[index + 1] if index + 1 < len(words) else ""
                equals = "" if value.startswith("-") or _is_publish(words, word, value) else "="
            if equals and value:
                found = (flag, value)
        if found:
            return found
    return None


def _plain(flag: str) -> str:
    """Underscores and dashes inside a long flag mean the same to most argument parsers."""
    return flag.replace("_", "-") if flag.startswith("-") else flag


def _number(found: tuple[str, str], least: int, most: int, what: str) -> int:
    flag, text = found
    if not re.fullmatch(r"\+?\d{1,9}", text, re.ASCII) or not least <= int(text) <= most:
        raise ValueError(f"{flag}: {text!r} is no {what}")
    return int(text)


def _positional(words: Sequence[str], flags: Flags) -> str | None:
    """The first word after a marker that is no option and no option's value; None where that cannot be told."""
    marks = flags.positional_after
    start = next((index for index, word in enumerate(words) if _program(word) in marks), None)
    if start is None:
        return None
    valued = {_plain(name) for names in (flags.port, flags.host, flags.tp, flags.api_key) for name in names}
    many = {_plain(name) for name in flags.served_model_name}
    unsure: list[str] = []
    before, option = words[start], ""
    for word in words[start + 1 :]:
        if word.startswith("-"):
            option = "" if "=" in word else _plain(word)
        elif _program(word) in marks and not before.startswith("-"):
            pass
        elif not option:
            return None if VARIABLE.fullmatch(word) else word
        elif option not in many:
            if option not in valued and not word.isdigit():
                unsure.append(word)  # the option's value, or the model behind an option that takes none
            option = ""
        before = word
    likely = [word for word in unsure if "/" in word] if len(unsure) > 1 else unsure
    return likely[0] if len(likely) == 1 and not VARIABLE.fullmatch(likely[0]) else None


def _program(word: str) -> str:
    return word.rpartition("/")[2]


def _is_publish(words: Sequence[str], flag: str, value: str) -> bool:
    return flag == "-p" and _program(words[0]) in CONTAINER_PROGRAMS and ":" in value


def _published(words: Sequence[str]) -> Iterator[tuple[int, int]]:
    if not words or _program(words[0]) not in CONTAINER_PROGRAMS:
        return
    for index, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if not equals and flag in ("-p", "--publish"):
            value = words[index + 1] if index + 1 < len(words) else ""
        elif not (equals and flag in ("-p", "--publish")):
            value = word[2:] if word.startswith("-p") else ""
        match = _PUBLISHED.fullmatch(value)
        if match and all(0 < int(port) <= _MAX_PORT for port in match.groups()):
            yield int(match.group(1)), int(match.group(2))
