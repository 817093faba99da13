"""The serving mode's requests that have no file of their own, and that nothing said to it ends it."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import pwd
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.adapters.clock import SystemClock
from supervisor.adapters.node import NodeClient
from supervisor.errors import NodeRequestError
from supervisor.node import launch, records
from tests.node.conftest import PYTHON, Node

pytestmark = pytest.mark.asyncio


async def _code(node: Node, op: str, **args: Any) -> str:
    with pytest.raises(NodeRequestError) as caught:
        await node.client.request(op, **args)
    return caught.value.code


async def test_a_wrong_request_gets_an_error_and_the_next_one_an_answer(node: Node) -> None:
    assert await _code(node, "no_such_op") == "unknown_op"
    assert await _code(node, "signal") == "bad_request"
    assert await _code(node, "signal", targets=7, signal="TERM") == "bad_request"
    assert await _code(node, "signal", targets=[{"pid": "x", "start_ticks": 1}], signal="TERM") == "bad_request"
    assert await _code(node, "state", key="../../etc") == "key"
    assert await _code(node, "state", key="..") == "key"
    assert await _code(node, "watch", key="k", run_id="../x") == "run_id"
    assert await _code(node, "launch", **node.orders(["/bin/true"], run_id="a/b")) == "run_id"
    assert await _code(node, "watch_port", host="127.0.0.1", port="x") == "bad_request"
    assert await _code(node, "log_read", path="/no/such/file", offset=0, length=1) == "os"
    assert (await node.client.request("ping"))["now"] == pytest.approx(time.time(), abs=5)


@pytest.mark.parametrize(
    "line",
    [
        *[b"", b"{", b"[]", b"7", b'"x"', b"null", b"{}", b'{"id":999}', b'{"op":"ping"}', b"\xff\xfe", b"\x00"],
        *[b'{"id":999,"op":["ping"]}', b'{"id":999,"op":null}', b"[" * 100_000, b'{"id":[1],"op":"ping"}'],
    ],
)
async def test_no_line_ends_it(node: Node, line: bytes) -> None:
    await node.client._process.write(line + b"\n")
    assert await node.client.request("ping")


async def test_a_slow_request_does_not_hold_the_others_up(node: Node, tmp_path: Path) -> None:
    big = tmp_path / "big"
    with big.open("wb") as file:
        file.truncate(500_000_000)
    slow = asyncio.create_task(node.client.request("log_lines", path=str(big), until=500_000_000))
    waits = []
    for _ in range(10):
        begin = time.monotonic()
        await node.client.request("ping")
        waits.append(time.monotonic() - begin)
    assert not slow.done()
    assert sorted(waits)[5] < 0.05, waits
    assert await slow == {"lines": 0}


# ------------------------------------------------------------------------------------------------ expand


async def test_expand_takes_the_nodes_values(node: Node) -> None:
    words = [[["lit", "--home="], ["home"], ["lit", "/m"]], [["var", "PATH"]], [["lit", "$HOME"]], []]
    told = await node.client.request("expand", texts={"argv": words, "cwd": [[["home"]]]})
    hello = node.client.hello
    assert told == {"argv": [f"--home={hello.home}/m", hello.path, "$HOME", ""], "cwd": [hello.home]}


async def test_expand_names_every_variable_that_is_unset(node: Node) -> None:
    words = [[["var", "NO_SUCH_B"], ["var", "PATH"]], [["var", "NO_SUCH_A"]]]
    with pytest.raises(NodeRequestError) as caught:
        await node.client.request("expand", texts={"argv": words})
    assert caught.value.code == "unset" and caught.value.detail == {"names": ["NO_SUCH_A", "NO_SUCH_B"]}


@given(st.dictionaries(st.from_regex(r"[A-Z_]{1,8}", fullmatch=True), st.text(max_size=20), max_size=5), st.data())
async def test_expand_puts_values_in_as_they_are(env: dict[str, str], data: st.DataObject) -> None:
    names = sorted(env) or ["LIT"]
    parts = data.draw(st.lists(st.one_of(st.tuples(st.just("lit"), st.text()), st.sampled_from(names)), max_size=6))
    words = [list(part) if isinstance(part, tuple) else ["var", part] for part in parts]
    env = env or {"LIT": "x"}
    expected = "".join(part[1] if isinstance(part, tuple) else env[part] for part in parts)
    assert launch.expand([words], env) == [expected]


@pytest.mark.parametrize("shell", ["/bin/sh", "/bin/bash"])
async def test_the_login_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".profile").write_text(
        "echo Welcome to gpu1\nexport FROM_LOGIN='two\nlines = yes'\nexport PATH=/only/at/login:$PATH\n"
    )
    monkeypatch.setenv("HOME", str(home))
    entry = pwd.struct_passwd(("u", "x", os.getuid(), os.getgid(), "", str(home), shell))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: entry)
    env = launch.login_environment()
    assert env["FROM_LOGIN"] == "two\nlines = yes" and env["PATH"].startswith("/only/at/login:")
    assert "FROM_LOGIN" not in os.environ


async def test_a_login_shell_that_hangs_or_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = tmp_path / "shell"
    shell.write_text("#!/bin/sh\nsleep 60 & sleep 60\n")
    shell.chmod(0o755)
    entry = pwd.struct_passwd(("u", "x", os.getuid(), os.getgid(), "", "/", str(shell)))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: entry)
    monkeypatch.setattr(launch, "LOGIN_ENV_TIMEOUT_S", 0.2)
    begin = time.monotonic()
    with pytest.raises(records.Refusal, match="within"):
        launch.login_environment()
    assert time.monotonic() - begin < 5  # though a grandchild still holds the pipe
    shell.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(records.Refusal, match="ended with 3"):
        launch.login_environment()


async def test_a_launch_takes_the_login_environment_where_it_is_wanted(node: Node, tmp_path: Path) -> None:
    out = tmp_path / "env"
    run = await node.launch(["/bin/sh", "-c", f"env > {out}"], login_env=True, env={"EXTRA": "1"})
    await node.ended(run["run_id"])
    lines = out.read_text().splitlines()
    assert "EXTRA=1" in lines and f"INFERENCE_SUPERVISOR_RUN={run['run_id']}" in lines
    assert any(line.startswith("HOME=") for line in lines)


# ------------------------------------------------------------------------------------------------ fingerprint


async def test_the_fingerprint_tells_settings_apart_and_gives_no_secret_away(node: Node) -> None:
    async def of(argv: list[str], cwd: str = "/", **env: str) -> str:
        told = await node.client.request("fingerprint", argv=argv, cwd=cwd, env=env)
        assert set(told["env"]) == set(env)
        return str(told["fingerprint"])

    base = await of(["serve", "--api-key", "geheim"], A="1")
    assert base == await of(["serve", "--api-key", "geheim"], A="1") and len(base) == 64
    others = [
        await of(["serve", "--api-key", "other"], A="1"),
        await of(["serve", "--api-key geheim"], A="1"),
        await of(["serve", "--api-key", "geheim"], "/tmp", A="1"),
        await of(["serve", "--api-key", "geheim"], A="2"),
        await of(["serve", "--api-key", "geheim"], B="1"),
        await of(["serve", "--api-key", "geheim"]),
    ]
    assert len({base, *others}) == 7
    salt = Path(node.client.hello.state_dir) / "salt"
    assert len(salt.read_bytes()) == 16 and stat.S_IMODE(salt.stat().st_mode) == 0o600
    before = salt.read_bytes()
    again = await NodeClient.start(node.link, clock=SystemClock(), python=PYTHON, state_dir=str(node.state_dir))
    told = await again.request("fingerprint", argv=["serve", "--api-key", "geheim"], cwd="/", env={"A": "1"})
    await again.close()
    assert told["fingerprint"] == base and salt.read_bytes() == before


async def test_of_many_that_make_the_salt_at_once_all_get_the_same(tmp_path: Path) -> None:
    for number in range(20):
        base = str(tmp_path / str(number))
        with ThreadPoolExecutor(8) as pool:
            found = list(
                pool.map(lambda _, base=base: records.fingerprint(base, ["a"], "/", {})["fingerprint"], range(8))
            )
        assert len(set(found)) == 1


# ------------------------------------------------------------------------------------------------ the log


async def test_log_requests(node: Node, tmp_path: Path) -> None:
    path = tmp_path / "log"
    assert await node.client.request("log_stat", path=str(path)) == {"missing": True}
    path.write_bytes(b"one\ntwo\r\nthree\xff")
    info = path.stat()
    assert await node.client.request("log_stat", path=str(path)) == {
        "dev": info.st_dev,
        "ino": info.st_ino,
        "size": 15,
    }
    told = await node.client.request("log_read", path=str(path), offset=4, length=4)
    assert told == {"offset": 4, "data": base64.b64encode(b"two\r").decode(), "size": 15}
    told = await node.client.request("log_read", path=str(path), offset=100, length=4)
    assert told["data"] == ""
    for until, lines in ((0, 0), (3, 0), (4, 1), (15, 2), (1000, 2)):
        assert await node.client.request("log_lines", path=str(path), until=until) == {"lines": lines}
    with path.open("wb") as file:
        file.truncate(3_000_000)
    told = await node.client.request("log_read", path=str(path), offset=0, length=3_000_000)
    assert len(base64.b64decode(told["data"])) == 1024 * 1024


async def test_the_runs_of_this_machine(node: Node) -> None:
    assert await node.client.request("runs") == {"runs": []}
    ended = await node.launch(["/bin/true"])
    await node.ended(ended["run_id"])
    await node.lock_is_free()
    lives = await node.launch(["/bin/sleep", "600"])
    told = (await node.client.request("runs"))["runs"]
    assert {item["run_id"]: item["live"] for item in told} == {ended["run_id"]: False, lives["run_id"]: True}
    assert {item["key"] for item in told} == {node.key}


async def test_a_damaged_record_is_no_run_and_hides_no_other(node: Node) -> None:
    run = await node.launch(["/bin/sleep", "600"])
    for name, text in (("20270101T000000-aaaa", "{"), ("20270101T000000-bbbb", "[]"), ("20270101T000000-cccc", "")):
        node.folder(name).mkdir()
        (node.folder(name) / "run.json").write_text(text)
    assert (await node.state())["live"]["run"] == run


# ------------------------------------------------------------------------------------------------ preflight


async def test_preflight_tells_facts(node: Node, tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)

    async def ask(argv: list[str], **more: Any) -> dict[str, Any]:
        args: dict[str, Any] = {"cwd": str(tmp_path), "log": None, "key": node.key, "port": None, **more}
        return await node.client.request("preflight", argv=argv, **args)

    facts = await ask(["tool"], env={"PATH": str(tmp_path)})
    assert facts["command"] == {"word": "tool", "path": str(tool), "exists": True, "executable": True}
    facts = await ask(["tool"], env={"PATH": "/nowhere"})
    assert facts["command"] == {"word": "tool", "path": None, "exists": False, "executable": False}
    facts = await ask(
        ["./tool", "--model", "/no/such", f"--cache={tmp_path}/new", "/etc", "--x", "rel/ative"], cwd="/x"
    )
    assert facts["cwd"] == {"path": "/x", "exists": False}
    assert facts["missing_paths"] == [
        {"path": "/no/such", "option": "--model", "index": 2},
        {"path": f"{tmp_path}/new", "option": "--cache", "index": 3},
    ]
    facts = await ask(["/bin/true"], log=f"{tmp_path}/none/log")
    log = facts["log"]
    assert not log["folder_exists"] and log["folder"] == f"{tmp_path}/none"
    facts = await ask(["/bin/true"], log=f"{tmp_path}/log")
    log = facts["log"]
    assert log["folder_exists"] and log["writable"] and log["regular"]
    assert log["free_bytes"] > 0 and not log["foreign_link"]
    assert facts["linger"] and facts["leftovers"] == [] and facts["listeners"] == []
    json.dumps(facts)
