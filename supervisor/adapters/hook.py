"""Tells somebody outside: runs a command of the user's, or posts to a webhook. Each says what went wrong, or nothing.

The command gets the event on its standard input and has no terminal: what it prints goes nowhere, but the last line
of its errors into the message about its failure. No shell stands between. A webhook's URL is a secret: it never
stands in a message, nor does what its server answers.
"""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from supervisor.adapters import sockets
from supervisor.adapters.http import Http, NoReply, environment_proxy
from supervisor.core.lines import sanitise
from supervisor.core.url import Url
from supervisor.errors import DialError, LinkError

LIMIT_S = 10.0
_ERROR_BYTES = 2048
_GONE_S = 1.0


async def run_command(
    argv: Sequence[str], document: bytes, env: Mapping[str, str], *, limit_s: float = LIMIT_S
) -> str | None:
    """Run `argv` with `document` on its input; None when it ended with 0, else what went wrong.

    Input and errors are files, not pipes: a command that leaves something running in the background is over when it
    has ended itself, and one that never reads its input is none the worse for it.
    """
    with ExitStack() as files:
        try:
            given, errors = (files.enter_context(tempfile.TemporaryFile(buffering=0)) for _ in range(2))
            given.write(document)
            given.seek(0)
        except OSError as error:
            return f"it could not be started: no file can be written for it: {error.strerror or error}"
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=given,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=errors,
                env={**os.environ, **env},
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is no command"
            return f"it could not be started: {reason}"
        try:
            async with asyncio.timeout(limit_s):
                code = await process.wait()
        except TimeoutError:
            return f"it took more than {limit_s:g} s, and was ended"
        finally:
            await _end(process)
        return None if code == 0 else _failure(code, _last_line(errors.fileno()))


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the command, where it still runs, and what it started in its own group."""
    if process.returncode is not None:
        return
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it ended in this very moment
    try:
        async with asyncio.timeout(_GONE_S):
            await process.wait()
    except TimeoutError:
        pass  # it hangs in the kernel: nobody can end it


def _last_line(file: int) -> str:
    size = os.fstat(file).st_size
    text = os.pread(file, _ERROR_BYTES, max(0, size - _ERROR_BYTES)).decode("utf-8", "replace")
    lines = [line for line in map(sanitise, text.splitlines()) if line.strip()]
    return lines[-1].strip()[:200] if lines else ""


def _failure(code: int, said: str) -> str:
    how = f"exit code {code}" if code >= 0 else f"signal {_signal_name(-code)}"
    return f"{how} ({said})" if said else how


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


async def post(url: Url, document: Mapping[str, object], *, limit_s: float = LIMIT_S) -> str | None:
    """POST `document` as JSON; None when it was taken (2xx), else what went wrong, without the URL."""
    http = Http(sockets.dial, proxy=environment_proxy(url))
    why = "no answer"
    try:
        async with asyncio.timeout(limit_s):
            for address in url.addresses:
                reply = await http.look(url, address, timeout_s=limit_s, method="POST", json=document)
                if not isinstance(reply, NoReply):
                    return None if 200 <= reply.status < 300 else f"it answers {reply.status}"
                why = reply.cause
    except TimeoutError:
        return f"no answer within {limit_s:g} s"
    except (DialError, LinkError):
        return "no connection"
    finally:
        await http.close()
    return why
