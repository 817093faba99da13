"""Starts a keeper, and hears from it how the launch went. Also the environment that a launch gets."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from . import preflight, records

Json = Dict[str, Any]
LOGIN_ENV_TIMEOUT_S = 20.0


def login_environment() -> Dict[str, str]:
    """The environment of the user's login shell, read once; no shell stays around the server."""
    shell = pwd.getpwuid(os.getuid()).pw_shell or "/bin/sh"
    # `env -0` cannot be confused by values with newlines; what the profile scripts print comes before the mark.
    mark = "ISUP-ENV-%d" % os.getpid()
    try:
        done = subprocess.run(
            [shell, "-lc", "printf '%s\\0' " + mark + "; env -0"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=LOGIN_ENV_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise records.Refusal("login_env", "the login shell %s gave no environment: %s" % (shell, error)) from error
    _, found, text = done.stdout.partition(mark.encode() + b"\0")
    if not found:
        raise records.Refusal(
            "login_env", "the login shell %s ended with %d and no environment" % (shell, done.returncode)
        )
    pairs = (item.partition(b"=") for item in text.split(b"\0") if b"=" in item)
    return {
        name.decode("utf-8", "surrogateescape"): value.decode("utf-8", "surrogateescape") for name, _, value in pairs
    }


def expand(words: Sequence[Sequence[Sequence[str]]], env: Mapping[str, str]) -> List[str]:
    """Words of literals, variables and homes as strings. Refuses with every name that is unset."""
    unset: List[str] = []
    out: List[str] = []
    for parts in words:
        text = ""
        for part in parts:
            if part[0] == "lit":
                text += part[1]
            elif part[0] == "home":
                text += env.get("HOME") or os.path.expanduser("~")
            elif part[1] in env:
                text += env[part[1]]
            else:
                unset.append(part[1])
        out.append(text)
    if unset:
        names = sorted(set(unset))
        listed = ", ".join("$" + name for name in names)
        raise records.Refusal(
            "unset", "not set on the node: %s (SSH's environment is not your terminal's)" % listed, names=names
        )
    return out


def launch(request: Json, base: str, base_env: Mapping[str, str], boot: Callable[[Json], bytes], code: str) -> Json:
    """Start the keeper of one run; `won` is false where another one holds the lock."""
    log = request.get("log")
    if log is not None:
        _check_log(preflight.log(log) or {})
    orders = dict(request, base=base, base_env=dict(base_env), mode="keeper")
    command = [sys.executable, "-I", "-S", "-c", code]
    facts = preflight.linger()
    if facts["kill_user_processes"] and facts["linger"] and facts["systemd_run"]:
        command = ["systemd-run", "--user", "--scope", "--quiet", "--collect", *command]
    records.make_private(records.key_dir(base, request["key"]))
    keeper = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        close_fds=True,
        start_new_session=True,
    )
    assert keeper.stdin is not None and keeper.stdout is not None
    try:
        keeper.stdin.write(boot(orders))
        keeper.stdin.close()
    except BrokenPipeError:
        pass  # its word on stdout, or the lack of one, tells why
    line = keeper.stdout.readline()
    keeper.stdout.close()
    keeper.returncode = 0  # it outlives us: nobody waits for it
    return _outcome(line, request, base)


def _outcome(line: bytes, request: Json, base: str) -> Json:
    try:
        told = json.loads(line.decode("utf-8"))
    except ValueError:
        raise records.Refusal("keeper", "the keeper ended without a word") from None
    if "failed" in told:
        failed = told["failed"]
        raise records.Refusal(failed["code"], failed["text"], **failed.get("detail", {}))
    if "lost" in told:
        live = records.state(base, request["key"])["live"]
        return {"won": False, "run": live["run"] if live else None}
    return {"won": True, "run": told["started"], "dir": records.run_dir(base, request["key"], request["run_id"])}


def _check_log(found: Json) -> None:
    path = found["path"]
    if not found["folder_exists"]:
        raise records.Refusal("log_folder", "the log's folder does not exist: %s" % found["folder"])
    if found["foreign_link"]:
        raise records.Refusal(
            "log_foreign_link", "%s is a link that belongs to another user: it is not followed" % path
        )
    if not found["regular"]:
        raise records.Refusal("log_open", "%s is no plain file" % path)
    if not found["writable"]:
        raise records.Refusal("log_open", "%s cannot be written" % path)


def ready_environment(login: bool, cache: Dict[str, Optional[Dict[str, str]]]) -> Mapping[str, str]:
    """The environment that words are expanded in and a launch starts from; the login shell's is read once."""
    if not login:
        return os.environ
    if cache.get("login") is None:
        cache["login"] = login_environment()
    return cache["login"] or {}
