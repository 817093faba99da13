"""What the log pane says of itself: its two border texts and how a search stands. Pure."""

from __future__ import annotations

from msgspec import Struct

from supervisor.core.log_levels import Level
from supervisor.tui.hints import USUAL_HINTS, Hints

LEVELS = {Level.ALL: "all levels", Level.WARNING: "warnings and errors", Level.ERROR: "errors"}


class Standing(Struct, frozen=True, kw_only=True):
    """How a search, or a walk from error to error, stands."""

    text: str = ""
    """What is searched for."""
    noun: str = "match"
    nouns: str = "matches"
    number: int | None = None
    """Which of them is the current one, from 1; None while that is not known."""
    count: int = 0
    fraction: float = 1.0
    """How much of the log has been looked at."""
    unseen_lines: int = 0
    """On the node alone, and so not looked at."""
    fetching: bool = False
    slow_lines: int = 0
    given_up: bool = False
    passed: str = ""
    """Which end was passed on the way: `start` or `end`."""


def subtitle(
    *,
    following: bool,
    new_lines: int,
    lines: int,
    passing: int | None = None,
    passing_as: str = "filtered",
    fraction: float = 1.0,
    lost_lines: int = 0,
    hints: Hints = USUAL_HINTS,
) -> str:
    """The lower border: whether it follows, what came meanwhile, how much there is."""
    parts = ["following" if following else f"paused, {hints.of('log.follow')} follows"]
    if new_lines:
        parts.append(f"{new_lines:,} new")
    if passing is not None:
        looking = "" if fraction >= 1 else f", still looking {fraction:.0%}"
        parts.append(f"{passing_as}: {passing:,} of {_lines(lines)}{looking}, {hints.of('log.leave')} shows all")
    else:
        parts.append(_lines(lines))
    if lost_lines:
        parts.append(f"{lost_lines:,} lost")
    return " · ".join(parts)


def filter_name(text: str, level: Level) -> str:
    """What a filter is called in the lower border."""
    return "filtered" if text or level is Level.ALL else LEVELS[level]


def walking(walk: str, hints: Hints = USUAL_HINTS) -> str:
    """What keys go on with a search (`search`), or from error to error (`errors`)."""
    noun = "match" if walk == "search" else "error"
    there, back, end = (hints.of(f"log.{name}") for name in (f"next_{noun}", f"previous_{noun}", "leave"))
    return f"{there} next, {back} previous, {end} ends"


def standing(now: Standing, keys: str = "", hints: Hints = USUAL_HINTS) -> str:
    """The bar's status, and what keys do where nothing else is to be said."""
    noun = now.noun if now.count == 1 else now.nouns
    if now.given_up:
        return f"the pattern takes too long: given up after {now.slow_lines} lines, {now.count:,} {noun} until there"
    if not now.count:
        how_many = f"no {now.noun}"
    elif now.number is None:
        how_many = f"{now.count:,} {noun}"
    else:
        how_many = f"{now.noun} {now.number:,} of {now.count:,}"
    if now.fraction < 1 and not now.fetching:
        how_many += f", still searching {now.fraction:.0%}"
    parts = [f"“{now.text}”", how_many] if now.text else [how_many]
    if now.fetching and now.unseen_lines:
        parts.append(f"fetching {_lines(now.unseen_lines)} from the node")
    elif now.unseen_lines and now.fraction >= 1:
        parts.append(f"{_lines(now.unseen_lines)} on the node not searched, {hints.of('log.fetch')} fetches them")
    if now.passed:
        parts.append("went on from the start" if now.passed == "end" else "went on from the end")
    if now.slow_lines:
        parts.append(f"{_lines(now.slow_lines)} left out: the pattern takes too long")
    if keys and now.fraction >= 1 and len(parts) < 4:
        parts.append(keys)
    return " · ".join(parts)


def _lines(count: int) -> str:
    return f"{count:,} {'line' if count == 1 else 'lines'}"
