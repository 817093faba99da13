"""What the node's facts mean before a launch: refuse what is certain, warn of what may be."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.preflight import LOW_DISK_BYTES, Checked, Launching, check

LAUNCHING = Launching(
    argv=("/opt/venv/bin/python3", "serve.py", "--model-path", "/m"),
    model_options=("--model-path",),
    port=30000,
    bind_host="127.0.0.1",
)


def facts(**changed: Any) -> dict[str, Any]:
    """A node where all is well, but for what is changed."""
    good: dict[str, Any] = {
        "command": {"word": "python3", "path": "/opt/venv/bin/python3", "exists": True, "executable": True},
        "cwd": {"path": "/home/alice", "exists": True},
        "log": None,
        "missing_paths": [],
        "listeners": [],
        "leftovers": [],
        "linger": {"kill_user_processes": False, "linger": False, "systemd_run": True},
    }
    return good | changed


def log(**changed: Any) -> dict[str, Any]:
    good = {
        "path": "/data/logs/a.log", "folder": "/data/logs", "folder_exists": True, "foreign_link": False,
        "regular": True, "writable": True, "free_bytes": 10 * LOW_DISK_BYTES,
    }  # fmt: skip
    return good | changed


def listener(address: str = "127.0.0.1", **changed: Any) -> dict[str, Any]:
    return {"address": address, "pid": 99, "uid": 1000, "title": "nginx: master"} | changed


def missing(option: str, index: int = 3, path: str = "/m") -> dict[str, Any]:
    return {"path": path, "option": option, "index": index}


def checked(*, launching: Launching = LAUNCHING, **changed: Any) -> Checked:
    return check(facts(**changed), launching)


def test_a_good_node_is_neither_refused_nor_warned_of() -> None:
    assert checked(log=log()) == Checked(refusals=(), warnings=())


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"command": {"word": "vllm", "path": "", "exists": False, "executable": False}}, "login_env = true"),
        ({"command": {"word": "/x/vllm", "path": "/x/vllm", "exists": False, "executable": False}}, "/x/vllm was not"),
        ({"command": {"word": "x", "path": "/x", "exists": True, "executable": False}}, "/x is not executable"),
        ({"cwd": {"path": "/gone", "exists": False}}, "/gone"),
        ({"log": log(folder_exists=False)}, "/data/logs does not exist"),
        ({"log": log(foreign_link=True)}, "another user"),
        ({"log": log(regular=False)}, "no plain file"),
        ({"log": log(writable=False)}, "cannot be written"),
        ({"missing_paths": [missing("--model-path")]}, "/m does not exist on the node (--model-path)"),
        ({"missing_paths": [missing("", 1, "serve.py")]}, "serve.py does not exist"),
        ({"listeners": [listener()]}, "pid 99 nginx: master listens on 127.0.0.1"),
        ({"listeners": [listener(pid=None)]}, "a process of uid 1000"),
        ({"linger": {"kill_user_processes": True, "linger": False, "systemd_run": True}}, "enable-linger"),
        ({"linger": {"kill_user_processes": True, "linger": True, "systemd_run": False}}, "enable-linger"),
    ],
)
def test_what_is_certain_is_refused_by_name(changed: dict[str, Any], words: str) -> None:
    result = checked(**changed)
    assert len(result.refusals) == 1
    assert words in result.refusals[0]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"log": log(free_bytes=5_000_000)}, "only 5 MB are free"),
        ({"missing_paths": [missing("--chat-template")]}, "--chat-template"),
        ({"missing_paths": [missing("--logits-processors")]}, "--logits-processors"),
        ({"listeners": [listener("10.0.0.1")]}, "another address than 127.0.0.1"),
        ({"leftovers": [{"pid": 7, "run_id": "r1", "title": "worker"}]}, "pid 7 (worker) is left over from run r1"),
    ],
)
def test_what_may_be_meant_is_a_warning(changed: dict[str, Any], words: str) -> None:
    result = checked(**changed)
    assert result.refusals == ()
    assert len(result.warnings) == 1
    assert words in result.warnings[0]


@pytest.mark.parametrize(
    "changed",
    [
        {"log": log(free_bytes=None)},
        {"log": log(free_bytes=LOW_DISK_BYTES)},
        {"missing_paths": [missing("--log-file"), missing("--download-dir"), missing("--kv_cache_path")]},
        {"missing_paths": [missing("--logfile"), missing("--outdir"), missing("--temp-dir"), missing("--socket")]},
        {"missing_paths": [missing("", 0, "python3")]},
        {"linger": {"kill_user_processes": True, "linger": True, "systemd_run": True}},
        {"linger": {"kill_user_processes": False, "linger": False, "systemd_run": False}},
    ],
)
def test_a_false_refusal_is_as_bad_as_a_false_timeout(changed: dict[str, Any]) -> None:
    assert checked(**changed) == Checked(refusals=(), warnings=())


def test_a_first_word_that_takes_no_script_makes_the_second_no_file() -> None:
    launching = Launching(argv=("vllm", "serve"), model_options=(), port=1, bind_host="")
    assert checked(launching=launching, missing_paths=[missing("", 1, "serve")]).refusals == ()


@pytest.mark.parametrize(
    ("ours", "theirs", "clash"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "0.0.0.0", True),
        ("127.0.0.1", "::", True),
        ("0.0.0.0", "127.0.0.1", True),
        ("", "127.0.0.1", True),
        ("::", "::1", True),
        ("localhost", "127.0.0.1", True),
        ("localhost", "::1", True),
        ("localhost", "10.0.0.1", False),
        ("127.0.0.1", "127.0.0.2", False),
        ("127.0.0.1", "::1", False),
        ("10.0.0.1", "127.0.0.1", False),
    ],
)
def test_which_addresses_clash(ours: str, theirs: str, clash: bool) -> None:
    launching = Launching(argv=LAUNCHING.argv, model_options=(), port=30000, bind_host=ours)
    result = checked(launching=launching, listeners=[listener(theirs)])
    assert (len(result.refusals), len(result.warnings)) == ((1, 0) if clash else (0, 1))


def test_a_left_over_that_holds_the_port_is_named_as_one() -> None:
    leftover = {"pid": 99, "run_id": "20260801T101112Z-abcd", "title": "scheduler"}
    result = checked(listeners=[listener()], leftovers=[leftover])
    assert "left over from run 20260801T101112Z-abcd" in result.refusals[0]
    assert len(result.warnings) == 1
