"""Starts a keeper, and hears from it how the launch went. Also the environment that a launch gets."""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from . import preflight, proc, records

Json = Dict[str, Any]
LOGIN_ENV_TIMEOUT_S = 20.0
LOCK_WAIT_S = 3.0


def login_environment() -> Dict[str, str]:
    """The environment of the user's login shell, read once; no shell stays around the server."""
    try:
        shell = pwd.getpwuid(os.getuid()).pw_shell or "/bin/sh"
    except KeyError:
        shell = os.environ.get("SHELL") or "/bin/sh"
    # `env -0` cannot be confused by values with newlines; what the profile scripts print comes before the mark.
    mark = "ISUP-ENV-%d" % os.getpid()
    status, said = _ask_shell(shell, "echo %s; exec /usr/bin/env -0" % mark)
    _, found, text = said.rpartition(mark.encode() + b"\n")
    if not found:
        raise records.Refusal("login_env", "the login shell %s ended with %d and no environment" % (shell, status))
    pairs = (item.partition(b"=") for item in text.split(b"\0") if b"=" in item)
    return {
        name.decode("utf-8", "surrogateescape"): value.decode("utf-8", "surrogateescape") for name, _, value in pairs
    }


def _ask_shell(shell: str, command: str) -> Tuple[int, bytes]:
    """Status and output of a command in a login shell. A leading dash in its name is what every shell understands."""
    try:
        process = subprocess.Popen(
            ["-" + os.path.basename(shell), "-c", command],
            executable=shell,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise records.Refusal("login_env", "the login shell %s cannot be run: %s" % (shell, error.strerror)) from error
    try:
        said, _ = process.communicate(timeout=LOGIN_ENV_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # its own session: what its scripts started goes too
        process.communicate()
        text = "the login shell %s gave no environment within %g s" % (shell, LOGIN_ENV_TIMEOUT_S)
        raise records.Refusal("login_env", text) from None
    return process.returncode, said


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
    folder = records.run_dir(base, request["key"], request["run_id"])
    if not request["argv"] or not all(isinstance(word, str) for word in request["argv"]):
        raise ValueError("argv is no list of words")
    log = request.get("log")
    if log is not None:
        _check_log(preflight.log(log) or {})
    orders = dict(request, base=base, base_env=dict(base_env), mode="keeper")
    command = [sys.executable, "-I", "-S", "-c", code]
    facts = preflight.linger()
    if facts["kill_user_processes"] and facts["linger"] and facts["systemd_run"]:
        command = ["systemd-run", "--user", "--scope", "--quiet", "--collect", "--", *command]
    records.make_private(records.key_dir(base, request["key"]))
    end = time.monotonic() + LOCK_WAIT_S
    while True:
        told = _start_keeper(command, boot(orders), request["run_id"])
        if "failed" in told:
            failed = told["failed"]
            raise records.Refusal(failed["code"], failed["text"], **failed.get("detail", {}))
        if "lost" not in told:
            return {"won": True, "run": told["started"], "dir": folder}
        live = records.state(base, request["key"])["live"]
        if live is not None or time.monotonic() > end:
            return {"won": False, "run": live["run"] if live else None}
        time.sleep(0.05)  # the holder was about to let go (its run has just ended, or could not start): once more


def _start_keeper(command: Sequence[str], orders: bytes, run_id: str) -> Json:
    """What a keeper that got these orders says first: started, lost, or failed."""
    # Ours may be a server's environment (a node program that runs inside of a supervised one); the keeper is no part
    # of that run.
    env = {name: value for name, value in os.environ.items() if name != proc.MARKER}
    env[proc.KEEPER_MARKER] = run_id
    keeper = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/",
        env=env,
        close_fds=True,
        start_new_session=True,
    )
    assert keeper.stdin is not None and keeper.stdout is not None and keeper.stderr is not None
    try:
        with keeper.stdin:
            keeper.stdin.write(orders)
    except BrokenPipeError:
        pass  # its word on stdout, or the lack of one, tells why
    with keeper.stdout, keeper.stderr:
        line = keeper.stdout.readline()
        try:
            told: Json = json.loads(line.decode("utf-8"))
        except ValueError:
            said = keeper.stderr.read(4096).decode("utf-8", "replace").strip()
            keeper.wait()
            raise records.Refusal("keeper", "the keeper ended without a word: %s" % (said[-300:] or "-")) from None
    if "started" in told:
        threading.Thread(target=keeper.wait, daemon=True).start()  # it outlives us, or is reaped
    else:
        keeper.wait()
    return told


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
