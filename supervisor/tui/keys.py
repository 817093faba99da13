"""The user's own keys: `keys.toml` in the configuration folder, an id and its key (or keys) a line.

    "console.restart" = "R"            # or [console], then restart = "R"
    "log.search" = "slash,ctrl+f"      # or ["slash", "ctrl+f"]

What cannot be meant is told and left out; the rest of the file holds. `?` in the console shows every id.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path

from msgspec import Struct
from textual.keys import KEY_TO_UNICODE_NAME, REPLACED_KEYS, Keys

FILE = "keys.toml"
_MODIFIERS = ("ctrl", "shift", "alt", "super", "hyper", "meta")
_NAMED = {key.value for key in Keys if not key.value.startswith("<")} | {*KEY_TO_UNICODE_NAME, *REPLACED_KEYS}
_WORD = re.compile(r"[a-z0-9_]+", re.ASCII)


class Keymap(Struct, frozen=True):
    """What the file asks for: id → keys, as Textual takes them; and a sentence for each thing that was left out."""

    keys: dict[str, str] = {}
    problems: tuple[str, ...] = ()


def load(folder: Path | None, known_ids: Callable[[], Collection[str]]) -> Keymap:
    """The keymap of a configuration folder, an empty one where it has none. Never raises.

    Args:
        known_ids: the ids of every binding that there is; asked only where there is a file.
    """
    if folder is None:
        return Keymap()
    path = folder / FILE
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Keymap()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        return Keymap(problems=(f"{path}: {error}; the usual keys are used",))
    known = known_ids()
    keys: dict[str, str] = {}
    problems: list[str] = []
    for name, value in _flat(table):
        text, problem = _keys_of(value)
        if name not in known:
            problem = f"there is no {name!r}{_nearest(name, known)}"
        if problem:
            problems.append(f"{path}: {name}: {problem}")
        else:
            keys[name] = text
    problems += [f"{path}: {clash}" for clash in _clashes(keys)]
    return Keymap(keys, tuple(problems))


def _flat(table: Mapping[str, object], before: str = "") -> Iterator[tuple[str, object]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield before + name, value


def _keys_of(value: object) -> tuple[str, str]:
    """The keys, joined as Textual takes them, and what is wrong with them."""
    items = value if isinstance(value, list) else str(value).split(",") if isinstance(value, str) else []
    keys = [item.strip() if len(item) > 1 else item for item in items if isinstance(item, str)]
    if not keys or len(keys) < len(items):
        return "", "a key, or a list of keys, is wanted"
    for key in keys:
        if not is_key(key):
            return "", f"there is no key {key!r} (like R, f5, ctrl+r, slash, pagedown)"
    return ",".join("comma" if key == "," else key for key in keys), ""


def is_key(text: str) -> bool:
    """Whether a terminal could send it: a character, a named key, or either with modifiers."""
    *modifiers, key = text.split("+") if len(text) > 1 else [text]
    if any(modifier not in _MODIFIERS for modifier in modifiers) or len(set(modifiers)) < len(modifiers):
        return False
    if len(key) == 1:
        return key.isprintable()
    return bool(_WORD.fullmatch(key)) and (key in _NAMED or text in _NAMED or _is_character(key))


def _is_character(name: str) -> bool:
    """Whether it is a character's own name, as Textual writes it: comma, asterisk, left_square_bracket."""
    try:
        return unicodedata.lookup(name.replace("_", " ")).isprintable()
    except KeyError:
        return False


def _nearest(name: str, known: Collection[str]) -> str:
    found = get_close_matches(name, known, 1)
    return f"; did you mean {found[0]}?" if found else " (? in the console shows all)"


def _clashes(keys: Mapping[str, str]) -> Iterator[str]:
    """Two ids of the file that want the same key: the first has it."""
    owner: dict[str, str] = {}
    for name, text in keys.items():
        for key in text.split(","):
            if key in owner and owner[key].partition(".")[0] == name.partition(".")[0]:
                yield f"{name} and {owner[key]} both want {key}"
            owner.setdefault(key, name)
