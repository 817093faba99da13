"""Launches under the circumstances of other machines: another user, a logind that ends what is left, no room."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.adapters import program
from supervisor.adapters.clock import SystemClock
from supervisor.adapters.local import LocalLink
from supervisor.adapters.node import NodeClient
from supervisor.errors import NodeRequestError
from supervisor.node import launch, preflight, proc, records
from tests.node.conftest import Node, until

pytestmark = pytest.mark.asyncio
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")

NOBODY = 65534
SYSTEM_PYTHON = "/usr/bin/python3"


@contextlib.asynccontextmanager
async def _as_nobody(state_dir: Path) -> AsyncIterator[NodeClient]:
    """A node program that runs as nobody."""
    if shutil.which("setpriv") is None or not os.path.exists(SYSTEM_PYTHON):
        pytest.skip("no setpriv or no /usr/bin/python3 on this machine")
    state_dir.mkdir()
    os.chown(state_dir, NOBODY, NOBODY)
    for folder in state_dir.parents:
        if str(folder).startswith("/tmp/"):
            folder.chmod(folder.stat().st_mode | 0o011)  # pytest's own folders let nobody through

    class AsNobody(LocalLink):
        async def execute(self, command: str, *, window_bytes: int | None = None) -> Any:
            # The command reaches the inner shell by its environment: it holds quotes of both kinds.
            os.environ["ISUP_TEST_COMMAND"] = command
            try:
                become = f"exec setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups"
                return await super().execute(f'{become} /bin/sh -c "$ISUP_TEST_COMMAND"', window_bytes=window_bytes)
            finally:
                del os.environ["ISUP_TEST_COMMAND"]

    link = AsNobody()
    await link.connect()
    client = await NodeClient.start(link, clock=SystemClock(), python=SYSTEM_PYTHON, state_dir=str(state_dir))
    try:
        yield client
    finally:
        await client.close()
        await link.close()


@needs_root
async def test_a_user_without_rights_launches_is_kept_apart_and_told_what_it_may_not(
    tmp_path: Path, node: Node
) -> None:
    async with _as_nobody(tmp_path / "nobody") as client:
        assert client.hello.uid == NOBODY and client.hello.user == "nobody"
        orders = node.orders(["/bin/sleep", "600"])
        told = await client.request("launch", **orders)
        assert told["won"]
        root = told["run"]["root"]
        assert os.stat(f"/proc/{root['pid']}").st_uid == NOBODY
        assert not (await node.state())["locked"]  # the same key of another user is another lock
        ours = await node.launch(["/bin/sleep", "600"])
        answer = await client.request("signal", targets=[ours["root"]], signal="KILL")
        assert answer["denied"] == [ours["root"]["pid"]] and proc.alive(**ours["root"])
        with pytest.raises(NodeRequestError) as caught:
            await client.request("launch", **node.orders(["/bin/true"], key=node.key + "x", log="/etc/log"))
        assert caught.value.code == "log_open"
        # Root may signal nobody's server, and hears of its end through its lock.
        assert (await node.client.request("signal", targets=[root], signal="TERM"))["sent"] == [root["pid"]]
        await until(lambda: not proc.alive(root["pid"], root["start_ticks"]))


@needs_root
async def test_a_lock_that_another_user_has_taken_is_told_not_believed(node: Node) -> None:
    code = (
        "import socket, os, sys\n"
        f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        "s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1].replace('@', '\\0')); s.listen()\n"
        "print('bound', flush=True); held = []\n"
        "while True: held.append(s.accept())"
    )
    name = "@" + records.lock_name(node.key)[1:]
    process = subprocess.Popen([sys.executable, "-c", code, name], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"bound\n"
        for op, args in (("state", {"key": node.key}), ("launch", node.orders(["/bin/sleep", "600"]))):
            with pytest.raises(NodeRequestError) as caught:
                await node.client.request(op, **args)
            assert caught.value.code == "foreign_lock"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def test_where_logind_ends_what_users_leave_the_launch_goes_through_a_scope(
    tmp_path: Path, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "systemd-run"
    tool.write_text(
        f'#!/bin/sh\necho "$@" > {tmp_path}/called\nwhile [ "$1" != -- ]; do shift; done; shift\nexec "$@"\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    facts = {"kill_user_processes": True, "linger": True, "systemd_run": True}
    monkeypatch.setattr(preflight, "linger", lambda: facts)

    def boot(orders: dict[str, Any]) -> bytes:
        return program.stdin_of("-", orders).split(b"\n", 1)[1]

    base = node.client.hello.state_dir
    orders = node.orders(["/bin/sleep", "600"])
    told = await asyncio.to_thread(launch.launch, orders, base, dict(os.environ), boot, program.CODE)
    assert told["won"] and (await node.state())["live"]["run"]["run_id"] == orders["run_id"]
    assert (tmp_path / "called").read_text().startswith("--user --scope ")
    tool.write_text("#!/bin/sh\necho Failed to connect to bus: No medium found >&2; exit 1\n")
    with pytest.raises(records.Refusal, match="No medium found"):
        await asyncio.to_thread(launch.launch, node.orders(["/bin/true"]), base, dict(os.environ), boot, program.CODE)


@needs_root
async def test_a_full_disk_refuses_a_launch_and_keeps_a_run_that_lives(tmp_path: Path, node: Node) -> None:
    room = tmp_path / "small"
    room.mkdir()
    if subprocess.call(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(room)]):  # noqa: ASYNC221
        pytest.skip("no tmpfs can be mounted here")
    try:
        client = await NodeClient.start(node.link, clock=SystemClock(), python=sys.executable, state_dir=str(room))
        run = (await client.request("launch", **node.orders(["/bin/sleep", "600"])))["run"]
        filler = room / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        with pytest.raises(NodeRequestError) as caught:
            await client.request("launch", **node.orders(["/bin/true"], key=node.key + "x"))
        assert caught.value.code in ("state_dir", "os") and os.strerror(errno.ENOSPC) in str(caught.value)
        notices = client.notices()
        await client.request("watch", key=node.key, run_id=run["run_id"])
        await client.request("signal", targets=[run["root"]], signal="TERM")
        async with asyncio.timeout(5):
            async for notice in notices:
                if notice["notice"] == "exit":
                    break
        assert notice["exit"]["signal"] == "SIGTERM"  # by the lock, since no file could be written
        filler.unlink()
        path = Path(client.hello.state_dir) / node.key / "runs" / run["run_id"] / "exit.json"
        await until(path.exists, 15)  # written as soon as there is room
        await until(lambda: not proc.alive(**run["keeper"]))
        await client.close()
    finally:
        node.end_everything()
        subprocess.call(["umount", "-l", str(room)])  # noqa: ASYNC221
