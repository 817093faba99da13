"""The profile: which node, what to launch, how to know that it serves. Found, loaded, checked, a variant applied.

Everything wrong is a `ProfileError` that names the file, the key and what to write instead; nothing is launched from a
bad profile, so every variant is checked, also those that are not asked for. No node is asked anything here.
Secrets (an API key in the command or the environment) never stand in a repr or an error.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct, field

from supervisor import launch_words, notify_table, tables
from supervisor import profile_checks as check
from supervisor.core import words as w
from supervisor.core.command import FOREIGN_TREE_PROGRAMS, Secret
from supervisor.core.words import Word
from supervisor.errors import ProfileError, UsageError
from supervisor.notify_table import Notify
from supervisor.places import config_dir
from supervisor.tables import KeyPath, Source


class Node(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the server runs."""

    host: str
    """An alias of ~/.ssh/config, user@host, ssh://user@host:port, or "local"."""
    python: str | None = None
    """Interpreter (3.8 or newer) for the node program."""
    host_key: str | None = None
    """SHA256:… of the only host key to accept."""
    state_dir: str | None = None
    """Where runs are written down on the node."""
    keepalive_s: float | None = field(name="keepalive", default=None)


class Launch(Struct, frozen=True, forbid_unknown_fields=True):
    """What is launched. `Profile.words` is the command after splitting and after the variant."""

    command: str | tuple[str, ...]
    """A text that is split as sh does, or words that are taken as they are."""
    env: dict[str, str] = {}
    cwd: str | None = None
    """Left out: the home folder."""
    login_env: bool = False
    shell: bool = False
    detaches: bool = False
    log: str | None = None
    """Left out: in the run's own folder."""
    log_from: str | None = None
    """A log that the server writes by itself."""

    def __repr__(self) -> str:
        return launch_words.veiled_repr(self)

    def __rich_repr__(self) -> list[tuple[str, Any]]:  # msgspec's own would show the secrets to Textual
        return launch_words.veiled_fields(self)


class Ready(Struct, frozen=True, forbid_unknown_fields=True):
    """How readiness is known; None where the engine's default holds. A loaded profile always has an owner."""

    url: str | None = None
    owner: Literal["tree", "any"] | None = None
    timeout_s: float | None = field(name="timeout", default=None)
    model: str | None = None
    """The model id that the server must list."""


class Verify(Struct, frozen=True, forbid_unknown_fields=True):
    """The generation that proves `serving`; `verify = false` in the file is `enabled=False` here."""

    prompt: str | None = None
    expect: str | None = None
    timeout_s: float | None = field(name="timeout", default=None)
    api_key_env: str | None = None
    """Name of the variable, on the operator's side, that holds the key."""
    enabled: bool = True


class Stop(Struct, frozen=True, forbid_unknown_fields=True):
    """How it is stopped."""

    grace_s: float | None = field(name="grace", default=None)
    """From the first signal to KILL; the engine's when left out."""


class VariantLaunch(Struct, frozen=True, forbid_unknown_fields=True):
    """What a variant launches differently: the command replaced, then flags dropped, then words added."""

    drop: tuple[str, ...] = ()
    add: str | tuple[str, ...] = ()
    env: dict[str, str] = {}
    command: str | tuple[str, ...] | None = None

    def __repr__(self) -> str:
        return launch_words.veiled_repr(self)

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return launch_words.veiled_fields(self)


class Variant(Struct, frozen=True, forbid_unknown_fields=True):
    """Only what differs from the profile."""

    launch: VariantLaunch = VariantLaunch()
    ready: Ready = Ready()
    verify: Verify | bool | None = None


class Profile(Struct, frozen=True):
    """A profile that can be launched, with the variant already in `launch`, `ready`, `verify` and `words`."""

    name: str
    engine: str | None
    node: Node
    launch: Launch
    ready: Ready
    verify: Verify
    stop: Stop
    variants: dict[str, Variant]
    file: str
    variant: str | None
    words: tuple[Word, ...]
    """The truth about the command: `launch.command` does not know of drop and add."""
    dropped: tuple[str, ...]
    """What the variant's `drop` took out, for display."""
    secrets: tuple[Secret, ...]
    warnings: tuple[str, ...]
    notify: Notify = Notify()
    notify_words: tuple[Word, ...] = ()
    """The command of [notify], split."""

    @property
    def argv(self) -> list[str]:
        """The command for reading and learning: variables as ${NAME}. It holds the secrets."""
        return w.texts(self.words)

    def __repr__(self) -> str:
        return f"Profile(name={self.name!r}, variant={self.variant!r}, file={self.file!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("name", self.name), ("variant", self.variant), ("file", self.file)]


class _Document(Struct, frozen=True, forbid_unknown_fields=True):
    """The file as it stands."""

    node: Node
    launch: Launch
    name: str | None = None
    engine: str | None = None
    ready: Ready = Ready()
    verify: Verify | bool = Verify()
    stop: Stop = Stop()
    notify: Notify = Notify()
    variants: dict[str, Variant] = {}


# --------------------------------------------------------------------------------------------------- find and load


def find(text: str, *, cwd: Path, config_dir: Path, commands: Sequence[str] = ()) -> Path:
    """The file that PROFILE on the command line means. Raises `UsageError` with the nearest names.

    A path is taken as it is, whether it exists or not: `load` tells about that.
    """
    if not text.strip():
        raise UsageError("PROFILE is empty: give a path, or the name of a profile")
    if "/" in text or text.endswith(".toml"):
        return cwd / Path(text).expanduser() if text.startswith("~/") else cwd / text
    folder = config_dir / "profiles"
    places = (cwd / f"{text}.toml", folder / f"{text}.toml")
    for place in places:
        try:
            if place.is_file():
                return place
        except (OSError, ValueError):  # a name that no file can have
            continue
    raise UsageError(_not_found(text, places, [*tables.siblings(cwd), *tables.siblings(folder)], commands))


def load(path: Path, *, variant: str | None = None, engines: Collection[str] | None = None) -> Profile:
    """Read and check a profile, with a variant applied. Raises `ProfileError`.

    `engines` are the names that `engine` may have; None lets any pass.
    """
    table, source = tables.load(path)
    return build(table, source, stem=path.stem, variant=variant, engines=engines)


def build(
    table: Mapping[str, Any],
    source: Source,
    *,
    stem: str = "",
    variant: str | None = None,
    engines: Collection[str] | None = None,
) -> Profile:
    """A profile from a TOML table. `stem` is the name when the table gives none. Raises `ProfileError`."""
    source = msgspec.structs.replace(source, homes=_homes())
    document = tables.read(_Document, dict(table), (), source)
    _check_document(document, source, stem, engines)
    plain = _resolve(document, source, stem, None)
    resolved = {name: _resolve(document, source, stem, name) for name in document.variants}
    if variant is None:
        return plain
    if variant not in resolved:
        near = tables.nearest(variant, resolved)
        known = f" (known: {', '.join(resolved)})" if resolved else ": the profile has none"
        hint = f"; did you mean {near}?" if near else known
        raise source.error(("variants",), f"there is no variant {variant!r}{hint}")
    return resolved[variant]


def _not_found(text: str, places: Sequence[Path], files: Sequence[Path], commands: Sequence[str]) -> str:
    profiles = list(dict.fromkeys(file.stem for file in files))
    command, near = tables.nearest(text, commands), tables.nearest(text, profiles)
    hints = [f"the nearest command is {command}"] if command else []
    hints += [f"the nearest profile is {near}"] if near else []
    looked = " and ".join(map(str, places))
    return "; ".join([f"no command and no profile is called {text!r} (looked for {looked})", *hints])


# --------------------------------------------------------------------------------------------------------- checks


def _homes() -> dict[str, str]:
    """Key → the table that it belongs to, for keys that belong to one table alone."""
    homes: dict[str, list[str]] = {}
    for outer in msgspec.structs.fields(_Document):
        homes.setdefault(outer.encode_name, []).append("")
    for name, kind in (("node", Node), ("launch", Launch), ("ready", Ready), ("verify", Verify), ("stop", Stop)):
        for inner in msgspec.structs.fields(kind):
            homes.setdefault(inner.encode_name, []).append(name)
    for inner in msgspec.structs.fields(Notify):
        homes.setdefault(inner.encode_name, ["notify"])  # not `command`: whoever misplaces one means what is launched
    for key in ("drop", "add"):
        homes[key] = ["variants.NAME.launch"]
    return {key: found[0] for key, found in homes.items() if len(found) == 1}


def _check_document(document: _Document, source: Source, stem: str, engines: Collection[str] | None) -> None:
    if document.name is None and check.key(stem):
        raise source.error(("name",), f"is missing, and the file's name is no key: a key {check.key(stem)}")
    if engines is not None and document.engine is not None and document.engine not in engines:
        near = tables.nearest(document.engine, engines)
        hint = f"; did you mean {near}?" if near else f" (known: {', '.join(sorted(engines))})"
        raise source.error(("engine",), f"no engine is called {document.engine!r}{hint}")
    for path, text, rule in _ruled(document):
        problem = rule(text) if text is not None else None
        if problem:
            raise source.error(path, problem)
    launch = document.launch
    if launch.log is not None and launch.log == launch.log_from:
        problem = "is the same file as log: give log_from alone for a log that the server writes by itself"
        raise source.error(("launch", "log_from"), problem)


class _Ruled(NamedTuple):
    path: KeyPath
    text: str | None
    rule: Callable[[str], str | None]


def _ruled(document: _Document) -> Iterator[_Ruled]:
    """Every text of the file with the rule that it must keep."""
    node, launch = document.node, document.launch
    yield _Ruled(("name",), document.name, check.key)
    yield _Ruled(("engine",), document.engine, check.plain)
    yield _Ruled(("node", "host"), node.host, check.host)
    yield _Ruled(("node", "host_key"), node.host_key, check.host_key)
    yield _Ruled(("node", "python"), node.python, check.python)
    yield _Ruled(("node", "state_dir"), node.state_dir, check.fixed_path)
    yield _Ruled(("launch", "cwd"), launch.cwd, check.path)
    yield _Ruled(("launch", "log"), launch.log, check.file_path)
    yield _Ruled(("launch", "log_from"), launch.log_from, check.file_path)
    yield from _ruled_env(launch.env, ("launch", "env"))
    yield from _ruled_proofs(document.ready, document.verify, ())
    for name, variant in document.variants.items():
        yield _Ruled(("variants", name), name, check.key)
        yield from _ruled_env(variant.launch.env, ("variants", name, "launch", "env"))
        yield from _ruled_proofs(variant.ready, variant.verify, ("variants", name))


def _ruled_env(env: Mapping[str, str], path: KeyPath) -> Iterator[_Ruled]:
    for name, value in env.items():
        yield _Ruled((*path, name), name, check.env_name)
        yield _Ruled((*path, name), value, check.env_value)


def _ruled_proofs(ready: Ready, verify: Verify | bool | None, path: KeyPath) -> Iterator[_Ruled]:
    yield _Ruled((*path, "ready", "url"), ready.url, check.url)
    yield _Ruled((*path, "ready", "model"), ready.model, check.plain)
    if isinstance(verify, Verify):
        yield _Ruled((*path, "verify", "prompt"), verify.prompt, check.some)
        yield _Ruled((*path, "verify", "expect"), verify.expect, check.some)
        yield _Ruled((*path, "verify", "api_key_env"), verify.api_key_env, check.env_name)


# ------------------------------------------------------------------------------------------ the variant, the words


def _resolve(document: _Document, source: Source, stem: str, name: str | None) -> Profile:
    """The profile with one variant applied (None: as it stands)."""
    variant = document.variants[name] if name is not None else Variant()
    at: KeyPath = ("variants", name, "launch") if name is not None else ("launch",)
    launch, changes = document.launch, variant.launch
    command = launch.command if changes.command is None else changes.command
    written = ("launch", "command") if changes.command is None else (*at, "command")
    reading = launch_words.Reading(source, launch.shell)
    words = reading.command(command, written)
    words, dropped = reading.dropped(words, changes.drop, (*at, "drop"))
    words += reading.added(changes.add, (*at, "add"))
    launch = msgspec.structs.replace(launch, command=command, env={**launch.env, **changes.env})
    notify_words = notify_table.checked(document.notify, source)
    secrets = launch_words.secrets(words, launch.env)
    notes = [*w.warnings(words), *launch_words.unexpanded(command, launch.env)]
    outside = launch_words.program(words, launch.shell) in FOREIGN_TREE_PROGRAMS
    owner = document.ready.owner or ("any" if outside else "tree")
    return Profile(
        name=document.name if document.name is not None else stem,
        engine=document.engine,
        node=document.node,
        launch=launch,
        ready=_over(msgspec.structs.replace(document.ready, owner=owner), variant.ready),
        verify=_verify(document.verify, variant.verify),
        stop=document.stop,
        variants=document.variants,
        file=source.file,
        variant=name,
        words=tuple(words),
        dropped=tuple(dropped),
        secrets=tuple(map(Secret, secrets)),
        warnings=tuple(launch_words.veiled(note, secrets) for note in notes),
        notify=document.notify,
        notify_words=notify_words,
    )


def _over(base: Ready, changes: Ready) -> Ready:
    given = {name: value for name, value in msgspec.structs.asdict(changes).items() if value is not None}
    return msgspec.structs.replace(base, **given)


def _verify(base: Verify | bool, changes: Verify | bool | None) -> Verify:
    verify = base if isinstance(base, Verify) else Verify(enabled=base)
    if changes is None:
        return verify
    if isinstance(changes, bool):
        return msgspec.structs.replace(verify, enabled=changes)
    given = {name: value for name, value in msgspec.structs.asdict(changes).items() if value is not None}
    return msgspec.structs.replace(verify, **given)


__all__ = [
    "Launch",
    "Node",
    "Notify",
    "Profile",
    "ProfileError",
    "Ready",
    "Stop",
    "Variant",
    "VariantLaunch",
    "Verify",
    "build",
    "config_dir",
    "find",
    "load",
]
