"""Which keys stand at a screen's foot, and what its help says of all of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from supervisor.tui.pieces import Pieces, cells, left, right, rows, wrapped

GAP = 2
LEAST = 7
"""Fewer keys than these are not given for long words."""
GROUPS = {
    "console": "this server",
    "table": "the servers",
    "start": "the profiles",
    "log": "the log",
    "app": "the console",
}


class Key(Struct, frozen=True):
    """One key of a bar."""

    key: str
    shown: str
    what: str
    """`quit (the server goes on)`: what stands in parentheses falls away where there is no room."""
    always: bool = False


class Known(Struct, frozen=True):
    """One binding of a help."""

    keys: tuple[str, ...]
    what: str
    id: str


def fitting(keys: Sequence[Key], width: int) -> list[Key]:
    """Those that fit: the ones that must stand there, then from the front as many as there is room for.

    That the server goes on is worth the last keys of a row, but never the first ones.
    """
    short = [_short(key) for key in keys]
    if _width(keys) <= width:
        return list(keys)
    others = [key for key in keys if not key.always]
    for count in range(len(others), LEAST - 1, -1):
        kept = [key if key.always else _short(key) for key in keys if key.always or key in others[:count]]
        if _width(kept) <= width:
            return kept
    fit = [key for key in short if key.always]
    for key in short:
        if not key.always and _width([*fit, key]) <= width:
            fit.append(key)
    return [key for key in short if key in fit]


def _short(key: Key) -> Key:
    return Key(key.key, key.shown, key.what.split(" (")[0], key.always)


def _width(keys: Sequence[Key]) -> int:
    return sum(cells(f"{key.shown} {key.what}") for key in keys) + GAP * max(0, len(keys) - 1)


def help_rows(known: Iterable[Known]) -> Pieces:
    """All keys in groups, with the ids that keys.toml takes."""
    groups: dict[str, list[Known]] = {name: [] for name in GROUPS}
    for item in known:
        groups.setdefault(item.id.partition(".")[0], []).append(item)
    wide = max((cells(" ".join(item.keys)) for group in groups.values() for item in group), default=0)
    what = max((cells(item.what) for group in groups.values() for item in group), default=0)
    lines: list[Pieces] = []
    for name, items in groups.items():
        if not items:
            continue
        if lines:
            lines.append((("", "plain"),))
        lines.append(((GROUPS.get(name, name), "strong"),))
        for item in items:
            keys = right(" ".join(item.keys), wide)
            lines.append(((f"  {keys}", "now"), (f"  {left(item.what, what)}", "plain"), (f"   {item.id}", "dim")))
    return rows(lines)


def help_foot(folder: str) -> Pieces:
    """Where the keys and the looks can be changed."""
    text = (
        f'Keys are yours: {folder}/keys.toml, a line like "console.restart" = "R"; layouts: {folder}/layouts/NAME.tcss.'
    )
    return rows(((line, "dim"),) for line in wrapped(text, 76))
