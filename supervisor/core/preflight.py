"""What the facts found on the node before a launch mean: refusals (only what is certain) and warnings. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

LOW_DISK_BYTES = 1 << 30
# At the beginning of a part of the option's name: "temp" is no part of --chat-template, nor "log" of --logits.
_MADE_BY_THE_SERVER = re.compile(
    r"(?:^|[-_])(?:log(?!it)|out|cache|download|save|dir|profil|trace|sock|pid|tmp|temp(?!lat)|record|dump)",
    re.IGNORECASE,
)
_WILDCARDS = {"0.0.0.0", "::", ""}


class Launching(Struct, frozen=True, kw_only=True):
    """What of the launch the rules need."""

    argv: tuple[str, ...]
    model_options: tuple[str, ...]
    port: int | None
    bind_host: str


class Checked(Struct, frozen=True, kw_only=True):
    """Whole sentences."""

    refusals: tuple[str, ...]
    warnings: tuple[str, ...]


def check(facts: dict[str, Any], launching: Launching) -> Checked:
    """Refuse only what is certain: a false refusal is as bad as a false timeout."""
    refusals: list[str] = []
    warnings: list[str] = []
    _command(facts["command"], refusals)
    if not facts["cwd"]["exists"]:
        refusals.append(f"launch.cwd does not exist on the node: {facts['cwd']['path']}")
    _log(facts["log"], refusals, warnings)
    _disk(facts, warnings)
    _paths(facts["missing_paths"], launching, refusals, warnings)
    _port(facts["listeners"], facts["leftovers"], launching, refusals, warnings)
    for process in facts["leftovers"]:
        warnings.append(
            f"pid {process['pid']} ({process['title'][:60]}) is left over from run {process['run_id']} of this profile"
        )
    linger = facts["linger"]
    if linger["kill_user_processes"] and not (linger["linger"] and linger["systemd_run"]):
        refusals.append(
            "logind on the node ends this user's processes at logout (KillUserProcesses), and lingering is off: "
            "the server would die with the connection. Once, on the node: loginctl enable-linger"
        )
    return Checked(refusals=tuple(refusals), warnings=tuple(warnings))


def _command(command: dict[str, Any], refusals: list[str]) -> None:
    word = command["word"]
    if not command["exists"]:
        where = (
            ""
            if "/" in word
            else " in the PATH of the node's ssh environment (login_env = true takes the login shell's)"
        )
        refusals.append(f"launch.command: {word} was not found{where}")
    elif not command["executable"]:
        refusals.append(f"launch.command: {command['path']} is not executable")


def _log(log: dict[str, Any] | None, refusals: list[str], warnings: list[str]) -> None:
    if log is None:
        return
    path = log["path"]
    if not log["folder_exists"]:
        refusals.append(f"launch.log: the folder {log['folder']} does not exist on the node")
    elif log["foreign_link"]:
        refusals.append(f"launch.log: {path} is a link that belongs to another user, which is not followed")
    elif not log["regular"]:
        refusals.append(f"launch.log: {path} is no plain file")
    elif not log["writable"]:
        refusals.append(f"launch.log: {path} cannot be written by this user")
    elif log["free_bytes"] is not None and log["free_bytes"] < LOW_DISK_BYTES:
        warnings.append(f"launch.log: only {log['free_bytes'] / 1e6:.0f} MB are free in {log['folder']}")


def _disk(facts: dict[str, Any], warnings: list[str]) -> None:
    """The run's own folder (and its log, where the profile names none), and what is compiled into."""
    free = facts.get("state_free_bytes")
    if free is not None and free < LOW_DISK_BYTES:
        warnings.append(f"only {free / 1e6:.0f} MB are free where the run's records are kept")
    for folder in facts.get("folders") or ():
        free = folder.get("free_bytes")
        if free is not None and free < LOW_DISK_BYTES:
            named = f" ({folder['source']})" if folder.get("source") else ""
            warnings.append(f"only {free / 1e6:.0f} MB are free in {folder['path']}{named}")


def _paths(missing: Sequence[dict[str, Any]], launching: Launching, refusals: list[str], warnings: list[str]) -> None:
    for item in missing:
        path, option, index = item["path"], item["option"], item["index"]
        if index == 0:
            continue  # the command itself: told already
        script = index == 1 and re.search(r"python[\d.]*$|/(?:ba|z)?sh$", launching.argv[0])
        if option in launching.model_options or script:
            refusals.append(f"launch.command: {path} does not exist on the node" + (f" ({option})" if option else ""))
        elif not _MADE_BY_THE_SERVER.search(option):
            warnings.append(
                f"launch.command names {path}, which does not exist on the node" + (f" ({option})" if option else "")
            )


def _port(
    listeners: Sequence[dict[str, Any]],
    leftovers: Sequence[dict[str, Any]],
    launching: Launching,
    refusals: list[str],
    warnings: list[str],
) -> None:
    left = {process["pid"]: process["run_id"] for process in leftovers}
    for item in listeners:
        who = f"pid {item['pid']} {item['title'][:80]}".strip() if item["pid"] else f"a process of uid {item['uid']}"
        if item["pid"] in left:
            who += f", left over from run {left[item['pid']]} of this profile"
        text = f"port {launching.port} is taken: {who} listens on {item['address']}"
        if _clash(launching.bind_host, item["address"]):
            refusals.append(
                f"{text}. It is not this profile's live run: stop it, choose another port, or wait for it as it is "
                "with `supervisor --headless --url …` (`supervisor attach` will take it over once it is built)"
            )
        else:
            warnings.append(text + f", another address than {launching.bind_host}")


def _clash(ours: str, theirs: str) -> bool:
    if ours in _WILDCARDS or theirs in _WILDCARDS:
        return True
    loopback = {"localhost": {"127.0.0.1", "::1"}}
    return theirs in loopback.get(ours, {ours})
