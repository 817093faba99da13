"""`supervisor --headless --url` as users run it: a process of its own, its exit code, its two streams."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.core.test_url import MALFORMED
from tests.endpoints.servers import OK, accepts_only, reply, says, serving
from tests.schema import checked, stream

COMMAND = (sys.executable, "-m", "supervisor.cli")
HEADLESS = ("--headless", "--url")


async def start(*words: str, code: Sequence[str] = COMMAND) -> asyncio.subprocess.Process:
    environment = {name: text for name, text in os.environ.items() if not name.lower().endswith("_proxy")}
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        *code, *words, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=environment
    )


async def run(*words: str, code: Sequence[str] = COMMAND) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    process = await start(*words, code=code)
    try:
        async with asyncio.timeout(30):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    assert b"Traceback" not in err, err.decode()
    return process.returncode, out.decode(), err.decode()


@pytest.mark.asyncio
async def test_reached_is_0_and_the_result_stands_on_standard_output() -> None:
    async with serving(says(reply(503), reply(503), OK)) as server:
        code, out, err = await run(*HEADLESS, f"http://127.0.0.1:{server.port}/health", "--timeout", "20s")
    assert code == 0
    first = out.splitlines()[0]
    assert first.startswith("reached (exit 0): healthy: 200 with an empty body in ")
    assert "503 2, 200 1" in out
    assert "warming (503)" in err and "healthy (200)" in err
    assert "\x1b" not in out + err, "colour on what is no terminal"


@pytest.mark.asyncio
async def test_a_timeout_is_124_and_tells_which_limit_and_what_came() -> None:
    async with serving(says(reply(401))) as server:
        code, out, _ = await run(*HEADLESS, f"http://127.0.0.1:{server.port}/health", "--timeout", "2.5")
    assert code == 124
    assert out.startswith("timeout (exit 124): not healthy in time: --timeout 2.5s fired; ")
    assert "asks for a key" in out and "answers: 401 " in out and "slowest answer" in out


@pytest.mark.asyncio
async def test_a_stall_is_124_and_says_so() -> None:
    async with serving(says(reply(503))) as server:
        url = f"http://127.0.0.1:{server.port}/health"
        code, out, _ = await run(*HEADLESS, url, "--timeout", "1m", "--stall", "2s")
    assert code == 124
    assert "nothing moved for 2s: --stall fired" in out and "503" in out


@pytest.mark.asyncio
async def test_json_is_lines_of_the_schema_and_ends_with_the_summary() -> None:
    async with serving(says(reply(503), OK)) as server:
        code, out, _ = await run(*HEADLESS, f"http://127.0.0.1:{server.port}/health", "--json", "--timeout", "20")
    lines = stream(out)
    assert code == lines[-1]["exit_code"] == 0
    assert lines[-1]["verdict"] == "reached"
    assert [line["to"] for line in lines if line["kind"] == "phase"] == ["warming", "healthy"]
    assert [line["at"] for line in lines] == sorted(line["at"] for line in lines)


@pytest.mark.asyncio
async def test_a_record_is_the_same_stream(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    async with serving(says(reply(503), OK)) as server:
        url = f"http://127.0.0.1:{server.port}/health"
        code, out, _ = await run(*HEADLESS, url, "--json", "--timeout", "20", "--record", str(path))
    assert code == 0
    head, _, rest = path.read_text().partition("\n")
    assert rest == out
    assert checked(head)["kind"] == "record" and checked(head)["version"] == 1
    assert path.stat().st_mode & 0o777 == 0o600  # a log may hold anything


@pytest.mark.asyncio
async def test_a_record_that_cannot_be_made_is_2_before_anything_is_asked(tmp_path: Path) -> None:
    there = tmp_path / "there.jsonl"
    there.write_text("mine")
    async with serving(says(OK)) as server:
        url = f"http://127.0.0.1:{server.port}/health"
        for path, why in ((there, "nothing is overwritten"), (tmp_path / "no" / "x.jsonl", "cannot be made")):
            code, out, err = await run(*HEADLESS, url, "--record", str(path))
            assert (code, out) == (2, "") and why in err
        assert server.connections == 0 and there.read_text() == "mine"


_LIMITED = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))
os.execv(sys.executable, [sys.executable, "-m", "supervisor.cli", *sys.argv[1:]])
"""


@pytest.mark.asyncio
async def test_a_full_disk_ends_the_record_and_not_the_wait(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    async with serving(says(*[reply(503)] * 8, OK)) as server:
        url = f"http://127.0.0.1:{server.port}/health"
        words = ("--headless", "--url", url, "--json", "--timeout", "20", "--record", str(path))
        code, out, err = await run(*words, code=(sys.executable, "-c", _LIMITED))
    assert code == 0 and stream(out)[-1]["verdict"] == "reached"
    assert err.count("ends here") == 1 and str(path) in err
    assert path.stat().st_size <= 300


_ALL_OF_THEM = """
import contextlib, io, json, sys
from supervisor import cli
for url in sys.argv[1:]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main(["--headless", f"--url={url}"])
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""


@pytest.mark.asyncio
async def test_every_malformed_url_is_2_and_says_what_is_wrong() -> None:
    """One interpreter for all of them; that its exit code is the process's is shown below."""
    assert len(MALFORMED) >= 10
    code, told, _ = await run(*MALFORMED, code=(sys.executable, "-c", _ALL_OF_THEM))
    assert code == 0
    problems = []
    for (url, reason), line in zip(MALFORMED.items(), told.splitlines(), strict=True):
        code, out, err = json.loads(line)
        # An empty one cannot be told from none given.
        wanted = reason if url else "--url"
        if code != 2 or out or wanted not in err or not err.startswith("supervisor: ") or "secret" in err:
            problems.append(f"{url!r}: exit {code}, {out!r}, {err!r}")
    assert not problems, "\n".join(problems)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--headless",), "--url"),
        (("--headless", "--url", "127.0.0.1:1"), "begins with http"),
        (("--headless", "--url", "http://127.0.0.1:1/", "./p.toml"), "not both"),
        (("--headless", "--url", "http://127.0.0.1:1/", "--timeout", "soon"), "--timeout: not a duration"),
        (("--headless", "--url", "http://127.0.0.1:1/", "--timeout", "0"), "more than nothing"),
        (("--headless", "--url", "http://127.0.0.1:1/", "--until", "serving"), "--engine"),
        (("--headless", "--url", "http://127.0.0.1:1/", "--engine", "vlm"), "did you mean vllm"),
        (("--headless", "--url", "http://127.0.0.1:1/", "--until", "loaded"), "invalid choice"),
        (("--headless", "--url", "http://127.0.0.1:1/", "--time", "1s"), "--time"),
    ],
)
async def test_a_wrong_command_line_is_2_and_says_what_is_wrong(words: tuple[str, ...], said: str) -> None:
    code, out, err = await run(*words)
    assert (code, out) == (2, "")
    assert said in err


@pytest.mark.asyncio
@pytest.mark.parametrize(("name", "code"), [("SIGHUP", 129), ("SIGINT", 130), ("SIGTERM", 143)])
async def test_a_signal_ends_the_command_alone_and_says_so(name: str, code: int) -> None:
    """The moment of the signal is the first line of the stream: from then on it is surely waited."""
    async with serving(says(reply(503))) as server:
        process = await start(*HEADLESS, f"http://127.0.0.1:{server.port}/health", "--json")
        assert process.stdout is not None
        async with asyncio.timeout(20):
            first = checked((await process.stdout.readline()).decode())
            assert first["kind"] in ("phase", "health")
            process.send_signal(getattr(signal, name))
            out, err = await process.communicate()
        summary = json.loads(out.decode().splitlines()[-1])
        assert process.returncode == code == summary["exit_code"], err.decode()
        assert summary["verdict"] == "interrupted"
        assert name in summary["reason"] and "left running" in summary["reason"]
        assert b"Traceback" not in err


@pytest.mark.asyncio
async def test_a_signal_while_nothing_answers_ends_at_once() -> None:
    async with serving(accepts_only) as server:
        process = await start(*HEADLESS, f"http://127.0.0.1:{server.port}/health")
        while not server.connections:  # noqa: ASYNC110 - the other end of it is another process
            await asyncio.sleep(0.01)
        process.terminate()
        async with asyncio.timeout(5):
            out, _ = await process.communicate()
    assert process.returncode == 143
    assert b"left running" in out


_SHOW_MODULES = """
import sys
from supervisor import cli
code = cli.main(sys.argv[1:])
print(*sorted(sys.modules), file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.asyncio
async def test_a_wait_for_a_url_loads_neither_console_nor_ssh() -> None:
    """They cost a second of start-up, and a machine without a terminal needs neither."""
    async with serving(says(OK)) as server:
        url = f"http://127.0.0.1:{server.port}/health"
        code, _, err = await run(*HEADLESS, url, code=(sys.executable, "-c", _SHOW_MODULES))
    modules = set(err.split())
    assert code == 0
    assert "supervisor.supervise.probe" in modules, "this is not the list of modules"
    assert not modules & {"textual", "asyncssh", "pynvml", "psutil"}


@pytest.mark.asyncio
async def test_a_proxy_of_the_environment_is_not_asked_for_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(accepts_only) as proxy, serving(says(OK)) as server:
        variables = {name: f"http://127.0.0.1:{proxy.port}" for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY")}
        shown = {name: text for name, text in os.environ.items() if name.lower() != "no_proxy"}
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            *HEADLESS,
            f"http://localhost:{server.port}/health",
            "--timeout",
            "20",
            stdout=asyncio.subprocess.DEVNULL,
            env={**shown, **variables},
        )
        assert await process.wait() == 0
        assert (proxy.connections, server.connections) == (0, 1)
