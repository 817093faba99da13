"""How the node program comes to run somewhere, and what is told when it does not."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from supervisor.adapters import program
from supervisor.adapters.base import ByteProcess, ByteStream
from supervisor.adapters.clock import SystemClock
from supervisor.adapters.local import LocalLink
from supervisor.adapters.node import NodeClient, open_tail
from supervisor.errors import NodeProgramError, NodeRequestError, UnreachableError
from supervisor.node import proc
from tests.node.conftest import PYTHON, need_python

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def link() -> AsyncIterator[LocalLink]:
    """This machine, as a node."""
    local = LocalLink()
    await local.connect()
    yield local
    await local.close()


async def _start(link: Any, tmp_path: Path, **more: Any) -> NodeClient:
    settings = {"python": PYTHON, "state_dir": str(tmp_path), **more}
    return await NodeClient.start(link, clock=SystemClock(), **settings)


def _script(path: Path, text: str) -> str:
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return str(path)


# ------------------------------------------------------------------------------------------------ it runs


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.11", "3.12", "3.13"])
async def test_hello_and_a_whole_launch_under_every_python(link: LocalLink, tmp_path: Path, version: str) -> None:
    client = await _start(link, tmp_path, python=need_python(version))
    hello = client.hello
    assert hello.protocol == 1 and hello.python.startswith(version + ".") and hello.linux and hello.pidfd
    assert (hello.uid, hello.boot_id, hello.home) == (os.getuid(), proc.boot_id(), os.path.expanduser("~"))
    assert hello.path == os.environ["PATH"] and len(hello.machine) == 8
    assert hello.state_dir == f"{tmp_path}/{hello.machine}"
    assert abs(hello.clock_offset_s) < 0.5 and abs(hello.now - time.time()) < 5
    assert client.banner == b""
    run_id = f"20260101T000000-{os.urandom(4).hex()}"
    key = f"t-{os.getpid()}-{os.urandom(4).hex()}"
    orders: dict[str, Any] = {"run_id": run_id, "key": key, "cwd": "/", "env": {}, "fingerprint": "", "log": None}
    run = (await client.request("launch", argv=["/bin/sleep", "600"], **orders))["run"]
    notices = client.notices()
    await client.request("watch", key=key, run_id=run_id)
    tail = await open_tail(link, python=client.python, path=run["log"]["path"], offset=0)
    assert (await tail.frame()).ino == run["log"]["ino"]
    await tail.close()
    assert (await client.request("signal", targets=[run["root"]], signal="TERM"))["sent"] == [run["root"]["pid"]]
    async for notice in notices:
        if notice["notice"] == "exit":
            assert notice["exit"]["signal"] == "SIGTERM"
            break
    await client.close()


async def test_it_is_small_constant_and_quick(link: LocalLink, tmp_path: Path) -> None:
    assert len(program.stdin_of("python3", {"mode": "serve"})) < 72 * 1024
    for mode in ("tail", "relay"):  # a relay is started for each exchange with the server
        assert len(program.stdin_of("python3", {"mode": mode})) < 8 * 1024
    assert "\n" not in program.EXEC and "!" not in program.EXEC  # csh knows both inside of quotes
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(3):
        await (await _start(link, tmp_path)).close()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / 3
    assert cpu_s < 0.24, "80 ms on an idle machine"


@pytest.mark.parametrize("shell", ["sh", "bash", "dash", "zsh", "fish", "csh", "tcsh", "ksh"])
async def test_the_string_means_the_same_in_every_login_shell(shell: str) -> None:
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"no {shell} on this machine")
    process = await asyncio.create_subprocess_exec(
        path, "-c", program.EXEC, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate(program.stdin_of(PYTHON, {"mode": "serve", "nonce": "n0"}))
    assert said.startswith(b'ISUP1 n0\n{"') and process.returncode == 0


async def test_a_tilde_means_the_nodes_home(link: LocalLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "my env").mkdir()
    (tmp_path / "my env" / "python3").symlink_to(os.path.realpath(PYTHON))
    client = await _start(link, tmp_path, python="~/my env/python3", state_dir="~/state")
    assert client.python == "~/my env/python3"
    assert client.hello.state_dir.startswith(f"{tmp_path}/state/")
    await client.close()


async def test_the_banner_is_kept_and_skipped(link: LocalLink, tmp_path: Path) -> None:
    noisy = _script(tmp_path / "py", f'printf "Welcome\\n{{}}\\nno newline: "\nexec {PYTHON} "$@"\n')
    client = await _start(link, tmp_path, python=noisy)
    assert client.banner == b"Welcome\n{}\nno newline: "
    assert await client.request("ping")
    await client.close()


async def test_it_ends_when_its_stdin_ends(link: LocalLink, tmp_path: Path) -> None:
    client = await _start(link, tmp_path)
    pid = client._process._process.pid  # type: ignore[attr-defined]
    await client.close()
    assert not os.path.exists(f"/proc/{pid}")
    with pytest.raises(UnreachableError):
        await client.request("ping")


async def test_what_libraries_print_does_not_reach_the_protocol(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    process = await asyncio.create_subprocess_exec(
        "/bin/sh",
        "-c",
        program.EXEC.replace("import os;", "import os;os.write(1,bytes(3));"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await process.communicate(program.stdin_of(PYTHON, {"mode": "serve", "nonce": "n"}))
    assert said.startswith(b"\0\0\0ISUP1 n\n")


# ------------------------------------------------------------------------------------------------ it does not


async def test_the_first_fit_interpreter_is_taken(
    link: LocalLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _script(tmp_path / "python3", "echo not a python >&2; exit 9\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    client = await _start(link, tmp_path, python=None, command_python=PYTHON)
    assert client.python in ("/usr/bin/python3", PYTHON)
    await client.close()


async def test_when_none_is_fit_each_ones_words_are_told(link: LocalLink, tmp_path: Path) -> None:
    loud = _script(tmp_path / "loud", "echo I am no python >&2; exit 9\n")
    with pytest.raises(NodeProgramError) as caught:
        await _start(link, tmp_path, python=loud)
    assert "I am no python" in str(caught.value) and not caught.value.retriable
    with pytest.raises(NodeProgramError, match=r"not found|No such file"):
        await _start(link, tmp_path, python="/no/such/python3")
    with pytest.raises(NodeProgramError, match="ended with status 0 and no word"):
        await _start(link, tmp_path, python=_script(tmp_path / "dumb", "exit 0\n"))


@pytest.mark.parametrize("version", ["3.6", "3.7"])
async def test_an_old_python_says_so(link: LocalLink, tmp_path: Path, version: str) -> None:
    with pytest.raises(NodeProgramError, match=rf"Python {version} is too old, 3\.8 is needed"):
        await _start(link, tmp_path, python=need_python(version))


async def test_python_2_is_no_traceback(link: LocalLink, tmp_path: Path) -> None:
    with pytest.raises(NodeProgramError) as caught:
        await _start(link, tmp_path, python=need_python("2.7"))
    assert "Traceback" not in str(caught.value)


async def test_one_that_says_nothing_is_given_up(link: LocalLink, tmp_path: Path) -> None:
    begin = time.monotonic()
    with pytest.raises(NodeProgramError, match="no word within"):
        await _start(link, tmp_path, python=_script(tmp_path / "mute", "exec sleep 60\n"), timeout_s=0.3)
    assert time.monotonic() - begin < 5


@pytest.mark.parametrize("flood", ["yes | head -c 200000", "head -c 200000 /dev/zero"])
async def test_one_that_never_stops_talking_is_given_up(link: LocalLink, tmp_path: Path, flood: str) -> None:
    with pytest.raises(NodeProgramError, match="more than 64 KiB"):
        await _start(link, tmp_path, python=_script(tmp_path / "py", f"{flood}; sleep 60\n"))


@pytest.mark.parametrize("words", ["{", "[]", '{\\"notice\\":\\"hello\\"}', "7"])
async def test_first_words_that_are_not_ours(link: LocalLink, tmp_path: Path, words: str) -> None:
    # It takes our program, finds the nonce and says the marker, then something else.
    fake = (
        "import os, re, sys, zlib, json\n"
        "d = b''\n"
        "while True:\n"
        "    d += os.read(0, 65536)\n"
        f"    rest = d[{program.BOOT_BYTES}:]\n"
        "    head, nl, body = rest.partition(b'\\n')\n"
        "    if nl and len(body) >= int(head): break\n"
        "nonce = json.loads(zlib.decompress(body))['args']['nonce']\n"
        "print('ISUP1', nonce)\n"
        f'print("{words}", flush=True)\n'
        "os.read(0, 1)\n"
    )
    (tmp_path / "fake.py").write_text(fake)
    with pytest.raises(NodeProgramError, match="not ours"):
        await _start(link, tmp_path, python=_script(tmp_path / "py", f"exec {PYTHON} {tmp_path}/fake.py\n"))


async def test_an_interpreters_name_cannot_carry_a_second_line(link: LocalLink, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a path"):
        await _start(link, tmp_path, python="python3\nrm -rf /")


# ------------------------------------------------------------------------------------------------ the link goes


class CutLink:
    """A link whose connection is cut when its program has just been started."""

    name = "gpu1"

    def __init__(self, inner: LocalLink) -> None:
        self._inner = inner
        self._cut: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def connect(self) -> None:
        """It stands."""

    async def execute(self, command: str, *, window_bytes: int | None = None) -> ByteProcess:
        if self._cut.done():
            raise UnreachableError("the connection is gone")
        process = await self._inner.execute("exec cat >/dev/null", window_bytes=window_bytes)
        asyncio.get_running_loop().call_later(0.05, self._end, process)
        return process

    def _end(self, process: ByteProcess) -> None:
        process._process.kill()  # type: ignore[attr-defined]
        asyncio.get_running_loop().call_later(0.05, self._cut.set_result, "no answer for 40 s")

    async def dial(self, host: str, port: int, *, timeout_s: float) -> ByteStream:
        raise UnreachableError

    async def wait_closed(self) -> str:
        return await asyncio.shield(self._cut)

    async def round_trip_s(self) -> float | None:
        return None

    async def close(self) -> None:
        """Nothing to close."""


async def test_a_link_that_dies_meanwhile_is_no_fault_of_the_interpreter(link: LocalLink, tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match="no answer for 40 s") as caught:
        await _start(CutLink(link), tmp_path)
    assert caught.value.retriable


async def test_what_waits_when_the_program_dies(link: LocalLink, tmp_path: Path) -> None:
    client = await _start(link, tmp_path)
    big = tmp_path / "big"
    with big.open("wb") as file:
        file.truncate(1_000_000_000)
    asked = asyncio.create_task(client.request("log_lines", path=str(big), until=1_000_000_000))
    told = asyncio.create_task(_all(client))
    await client.request("ping")
    client._process._process.kill()  # type: ignore[attr-defined]
    with pytest.raises(UnreachableError):
        await asked
    assert await told == [] and await _all(client) == []
    with pytest.raises(UnreachableError):
        await client.request("ping")
    await client.close()


async def _all(client: NodeClient) -> list[dict[str, Any]]:
    async with asyncio.timeout(5):
        return [notice async for notice in client.notices()]


async def test_a_request_that_gets_no_reply_in_time(link: LocalLink, tmp_path: Path) -> None:
    client = await _start(link, tmp_path)
    big = tmp_path / "big"
    with big.open("wb") as file:
        file.truncate(1_000_000_000)
    with pytest.raises(UnreachableError, match=r"log_lines.* within 0\.05 s"):
        await client.request("log_lines", path=str(big), until=1_000_000_000, timeout_s=0.05)
    assert await client.request("ping")  # a late reply finds nobody and hurts nobody
    await client.close()


async def test_a_refusal_carries_code_and_figures(link: LocalLink, tmp_path: Path) -> None:
    client = await _start(link, tmp_path)
    with pytest.raises(NodeRequestError) as caught:
        await client.request("expand", texts={"a": [[["var", "NO_SUCH_NAME"]]]})
    assert (caught.value.op, caught.value.code, caught.value.detail) == ("expand", "unset", {"names": ["NO_SUCH_NAME"]})
    assert "NO_SUCH_NAME" in str(caught.value) and caught.value.exit_code == 1
    await client.close()


# ------------------------------------------------------------------------------------------------ its modules


async def test_its_modules_compile_with_the_oldest_python() -> None:
    folder = Path(program.__file__).parents[1] / "node"
    names = [str(path) for path in sorted(folder.glob("*.py"))]
    code = (
        "import ast, sys\nfor name in sys.argv[1:]:\n    ast.parse(open(name).read(), name, feature_version=(3, 8))\n"
    )
    for python, text in (
        (sys.executable, code),
        (need_python("3.8"), code.replace(", feature_version=(3, 8)", "")),
    ):
        process = await asyncio.create_subprocess_exec(python, "-c", text, *names)
        assert await process.wait() == 0
