"""Hooks outside: real commands with a limit and no terminal, a real webhook server, nothing secret in a complaint."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from supervisor.adapters.hook import post, run_command
from supervisor.core import url as urls
from tests.endpoints.servers import Peer, closes, hangs, reply, says, serving

DOCUMENT = b'{"event": "served"}\n'


async def run(code: str, *, limit_s: float = 10.0, env: dict[str, str] | None = None) -> str | None:
    return await run_command([sys.executable, "-c", code], DOCUMENT, env or {}, limit_s=limit_s)


@pytest.mark.asyncio
async def test_a_command_gets_the_event_and_its_variables(tmp_path: Path) -> None:
    told = tmp_path / "told"
    code = (
        f"import os, sys; open({str(told)!r}, 'w').write(sys.stdin.read() + os.environ['INFERENCE_SUPERVISOR_EVENT'])"
    )
    assert await run(code, env={"INFERENCE_SUPERVISOR_EVENT": "served"}) is None
    assert told.read_text() == DOCUMENT.decode() + "served"


@pytest.mark.asyncio
async def test_its_output_reaches_no_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Neither by its streams nor by opening the terminal itself."""
    code = (
        "import sys; print('out'); print('err', file=sys.stderr)\n"
        "try: open('/dev/tty', 'w')\n"
        "except OSError: sys.exit(0)\n"
        "sys.exit(9)"
    )
    assert await run(code) is None
    assert capfd.readouterr() == ("", "")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import sys; sys.exit(3)", "exit code 3"),
        (
            r"import sys; print('a\n\x1b]0;x\x07\x1b[31mno route\n', file=sys.stderr); sys.exit(1)",
            "exit code 1 (no route)",
        ),
        ("import sys; sys.stderr.write('x' * 5000); sys.exit(1)", f"exit code 1 ({'x' * 200})"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "signal SIGSEGV"),
    ],
)
async def test_a_failure_is_one_sentence(code: str, why: str) -> None:
    assert await run(code) == why


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("argv", "why"),
    [(["/no/such/program"], "No such file"), (["/etc"], "Permission denied"), (["a\0b"], "it is no command")],
)
async def test_what_cannot_be_started_is_told(argv: list[str], why: str) -> None:
    told = await run_command(argv, DOCUMENT, {})
    assert told is not None and "could not be started" in told and why in told


@pytest.mark.asyncio
async def test_one_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    code = (
        "import os, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen(['sleep', '300'])\n"
        f"open({str(pids) + '.new'!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        f"os.rename({str(pids) + '.new'!r}, {str(pids)!r})\n"
        "time.sleep(300)"
    )
    working = asyncio.create_task(run(code, limit_s=2.0))
    assert await working == "it took more than 2 s, and was ended"
    for pid in map(int, pids.read_text().split()):
        deadline = time.monotonic() + 5
        while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline, f"{pid} lives on"
            await asyncio.sleep(0.01)


@pytest.mark.asyncio
async def test_what_it_leaves_running_in_the_background_holds_nobody_up() -> None:
    """`curl … &` in a script is over with the script, though the child has its streams still open."""
    began = time.monotonic()
    code = "import subprocess; subprocess.Popen(['sleep', '2'])"
    assert await run(code) is None
    assert time.monotonic() - began < 1.9


@pytest.mark.asyncio
async def test_a_wait_that_is_cancelled_ends_the_command(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    code = (
        f"import os, time; open({str(pid_file) + '.new'!r}, 'w').write(str(os.getpid()))\n"
        f"os.rename({str(pid_file) + '.new'!r}, {str(pid_file)!r}); time.sleep(300)"
    )
    working = asyncio.create_task(run(code))
    for _ in range(1000):
        if pid_file.exists():
            break
        await asyncio.sleep(0.01)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert not psutil.pid_exists(int(pid_file.read_text()))


# ------------------------------------------------------------------------------------------- the webhook


@pytest.mark.asyncio
async def test_a_webhook_is_posted_to_as_json() -> None:
    bodies: list[bytes] = []

    async def behave(peer: Peer) -> None:
        await peer.request()
        length = int(peer.server.heads[-1].lower().partition("content-length:")[2].split()[0])
        bodies.append(await peer._reader.readexactly(length))
        await peer.send(reply(204))

    async with serving(behave) as server:
        url = urls.parse(f"http://localhost:{server.port}/services/T0/secret?x=1")
        assert await post(url, {"text": "kimi serves", "größe": "ß"}) is None
    assert server.methods == {"POST"} and server.paths == ["/services/T0/secret?x=1"]
    assert json.loads(bodies[0]) == {"text": "kimi serves", "größe": "ß"}
    assert "content-type: application/json" in server.heads[0].lower()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("answer", "why"),
    [(reply(404), "it answers 404"), (reply(302, "Location: /x"), "it answers 302"), (reply(500), "it answers 500")],
)
async def test_an_answer_that_is_no_yes_is_told(answer: bytes, why: str) -> None:
    async with serving(says(answer)) as server:
        assert await post(urls.parse(f"http://127.0.0.1:{server.port}/secret"), {}) == why


@pytest.mark.asyncio
async def test_no_complaint_shows_the_url() -> None:
    async with serving(hangs) as slow, serving(closes) as rude, serving(says(reply(200)), closed_for_s=1e9) as shut:
        told = [
            await post(urls.parse(f"http://127.0.0.1:{port}/secret"), {}, limit_s=0.3)
            for port in (slow.port, rude.port, shut.port)
        ]
        told.append(await post(urls.parse(f"https://127.0.0.1:{rude.port}/secret"), {}, limit_s=0.3))
        told.append(await post(urls.parse("http://no-such-host.invalid/secret"), {}, limit_s=5))
    assert told[0] in ("no answer within 0.3 s", "no answer") and told[2] == "refused"
    for one in told:
        assert one and "secret" not in one and "127.0.0.1" not in one and "invalid" not in one


@pytest.mark.asyncio
async def test_the_environment_of_the_command_is_the_operators() -> None:
    name = "SUPERVISOR_TEST_OF_A_HOOK"
    os.environ[name] = "here"
    try:
        assert await run(f"import os, sys; sys.exit(os.environ.get({name!r}) != 'here')") is None
    finally:
        del os.environ[name]


@pytest.mark.asyncio
async def test_a_disk_that_takes_no_file_is_told_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    assert await run("pass") == ("it could not be started: no file can be written for it: No such file or directory")
