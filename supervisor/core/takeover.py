"""The takeover table of CONTRACT section 1: what is on the node × what was asked for → what is done. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from supervisor.core.events import Exit


class KnownRun(Struct, frozen=True, kw_only=True):
    """A run as the node's records tell it."""

    run_id: str
    fingerprint: str
    by: str
    started_at: float
    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str]
    """Name → salted hash of the value: enough to name what differs, never the value."""
    keeper_alive: bool
    root_alive: bool
    exit: Exit | None = None
    stopped_by: str | None = None


class Wanted(Struct, frozen=True, kw_only=True):
    """What this command would launch."""

    fingerprint: str
    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str]
    launch: bool = True
    """False with --no-launch."""


class Action(Struct, frozen=True, kw_only=True):
    """`do`: take_over, launch or refuse. `run` is the run that is taken over (ended ones too: to tell their end)."""

    do: str
    run: KnownRun | None = None
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def decide(live: KnownRun | None, last: KnownRun | None, wanted: Wanted, name: str) -> Action:
    """One row of the table. The row "another process listens on the port" is preflight's."""
    if live is not None:
        return _live(live, wanted, name)
    unwanted_end = last is not None and last.stopped_by is None
    if wanted.launch:
        told = (_told(last),) if last is not None and unwanted_end else ()
        return Action(do="launch", warnings=told)
    if last is not None and unwanted_end:
        return Action(do="take_over", run=last)
    reason = f"nothing runs for {name} on the node, and this command starts nothing"
    if last is not None:
        reason += f" (run {last.run_id} was stopped by {last.stopped_by})"
    return Action(do="refuse", reasons=(reason,))


def _live(live: KnownRun, wanted: Wanted, name: str) -> Action:
    warnings = []
    if not live.keeper_alive:
        warnings.append(f"the keeper of run {live.run_id} is gone: its exit code will be unknown")
    if live.fingerprint == wanted.fingerprint:
        return Action(do="take_over", run=live, warnings=tuple(warnings))
    changes = differences(live, wanted)
    if not wanted.launch:
        text = f"run {live.run_id} lives with other settings than the profile's: " + "; ".join(changes)
        return Action(do="take_over", run=live, warnings=(*warnings, text))
    return Action(
        do="refuse",
        run=live,
        reasons=(
            f"run {live.run_id} of {name} lives with other settings (started by {live.by or 'somebody'}); "
            f"to replace it: supervisor restart {name}; to wait for it as it is: --no-launch",
            *changes,
        ),
    )


def _told(last: KnownRun) -> str:
    how = last.exit.words() if last.exit is not None else "gone, nobody saw how (a reboot, or its keeper was killed)"
    return f"the run before, {last.run_id}, ended by itself: {how}"


def differences(live: KnownRun, wanted: Wanted) -> list[str]:
    """What differs, in words. Secrets stand in neither: commands are redacted, values are hashes."""
    out = [f"command: {text}" for text in _words(live.argv, wanted.argv)]
    if live.cwd != wanted.cwd:
        out.append(f"folder: {live.cwd} there, {wanted.cwd} here")
    there, here = set(live.env), set(wanted.env)
    out += [f"environment: {name} only there" for name in sorted(there - here)]
    out += [f"environment: {name} only here" for name in sorted(here - there)]
    same = sorted(there & here)
    out += [f"environment: {name} has another value" for name in same if live.env[name] != wanted.env[name]]
    return out or ["only a secret in the command differs"]


def _words(there: Sequence[str], here: Sequence[str]) -> list[str]:
    if list(there) == list(here):
        return []
    gone = [word for word in there if word not in here]
    new = [word for word in here if word not in there]
    if not gone and not new:
        return ["the same words in another order or number"]
    parts = []
    if gone:
        parts.append("only there: " + " ".join(gone))
    if new:
        parts.append("only here: " + " ".join(new))
    return parts
