"""The endpoint table, each row by a real wait against a real socket server."""

from __future__ import annotations

import asyncio
import io
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from supervisor.adapters import sockets
from supervisor.adapters.clock import SystemClock
from supervisor.adapters.http import Http, environment_proxy
from supervisor.core import events as ev
from supervisor.core import url as urls
from supervisor.core.wait import Limits
from supervisor.headless.run import Options, wait
from supervisor.supervise.desk import Desk
from supervisor.supervise.probe import Prober
from supervisor.supervise.watch_url import UrlWatch
from tests.endpoints import certificates
from tests.endpoints.servers import accepts_only, serving
from tests.endpoints.table import NEVER, READY, ROWS, Row
from tests.schema import checked, stream

AT_ONCE = 12
"""Rows that run at a time: more would be slow by themselves on a small machine."""
SEEN_WITHIN_S = 4.0
"""From the moment an endpoint is ready, or the limit fires, to the end of the wait. The pace is 0.1 s; the rest is for
a machine with five times as much to do as it can, and still far below any limit or `Retry-After` that could hide."""


@dataclass(frozen=True)
class Outcome:
    """How one wait ended."""

    row: Row
    code: int
    lines: list[dict[str, Any]]
    err: str
    wall_s: float
    seen_after_s: float | None
    complaint: str

    def problems(self) -> list[str]:
        """Everything about it that is not as the row says."""
        summary = self.lines[-1]
        said = " ".join([summary["reason"], *(item["text"] for item in summary["evidence"])])
        out = [] if self.code == (0 if self.row.ready else 124) else [f"exit {self.code}"]
        out += [f"it does not say {word!r}" for word in self.row.words if word not in said]
        out += [f"no answer counted as {kind}" for kind in self.row.answers if kind not in summary["answers"]]
        out += [self.complaint] if self.complaint else []
        if summary["exit_code"] != self.code:
            out.append(f"the summary says exit {summary['exit_code']}")
        if not self.row.ready and f"--timeout {self.row.timeout_s:g}s fired" not in summary["reason"]:
            out.append("it does not say which limit fired")
        if not self.row.ready and self.wall_s > self.row.timeout_s + SEEN_WITHIN_S:
            out.append(f"the wait took {self.wall_s:.1f} s")
        if not self.row.ready and any(line.get("verdict") == "ready" for line in self.lines):
            out.append("an answer counted as ready")
        if self.seen_after_s is not None and self.seen_after_s > SEEN_WITHIN_S:
            out.append(f"ready was seen after {self.seen_after_s:.2f} s")
        return [f"{self.row.name}: {problem} ({said})" for problem in out]


async def _wait_for(row: Row, certificate_files: dict[str, Path]) -> Outcome:
    tls = certificates.server_context(certificate_files[row.tls]) if row.tls else None
    async with serving(row.behave, host=row.host, tls=tls, closed_for_s=row.closed_for_s) as server:
        out, err = io.StringIO(), io.StringIO()
        clock = SystemClock()
        url = urls.parse(row.url.format(port=server.port))
        desk = Desk(clock=clock, verify=True, on_phase=lambda _change: None)
        http = Http(sockets.dial, proxy=environment_proxy(url))
        watch = UrlWatch(desk, Prober(http, url, row.engine, expected_models=row.models))
        options = Options(until=ev.Phase.HEALTHY, limits=Limits(timeout_s=row.timeout_s), json=True)
        began = time.monotonic()
        try:
            async with asyncio.timeout(row.timeout_s + 10):
                code = await wait(desk, watch.run, options, began_at=clock.now(), out=out, err=err)
        finally:
            await http.close()
        ended = time.monotonic()
        seen_after_s = ended - server.ready_at if server.ready_at is not None and row.ready else None
        return Outcome(
            row, code, stream(out.getvalue()), err.getvalue(), ended - began, seen_after_s, row.check(server)
        )


async def _wait_for_all(rows: tuple[Row, ...], certificate_files: dict[str, Path]) -> list[Outcome | str]:
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(row: Row) -> Outcome | str:
        async with turns:
            try:
                outcome = await _wait_for(row, certificate_files)
                if outcome.problems() and not outcome.row.ready and not outcome.lines[-1]["answers"]:
                    # Not one look came to its end: this machine was busy with other things. What has to be seen then
                    # is seen in a longer wait. An answer that was misjudged is never given a second one.
                    outcome = await _wait_for(replace(row, never_s=12 * row.never_s), certificate_files)
                return outcome
            except Exception as error:
                return f"{row.name}: {type(error).__name__}: {error}"

    # The longest first, so that the end is not one slow row alone.
    order = sorted(rows, key=lambda row: "6 s" not in row.name and row.never_s < 6)
    return await asyncio.gather(*map(one, order))


@pytest.fixture(scope="module")
def certificate_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """One certificate that this process trusts, one that nobody does."""
    folder = tmp_path_factory.mktemp("certificates")
    files = {name: certificates.make(folder, name) for name in ("trusted", "unknown")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(files["trusted"]))
        yield files


def _told(outcomes: list[Outcome | str]) -> list[str]:
    crashed = [outcome for outcome in outcomes if isinstance(outcome, str)]
    return crashed + [text for outcome in outcomes if isinstance(outcome, Outcome) for text in outcome.problems()]


@pytest.mark.asyncio
async def test_every_endpoint_ends_as_the_table_says(
    certificate_files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With proxy variables set all the time: for loopback nobody may ask the proxy."""
    async with serving(accepts_only) as proxy:
        for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        # A name that is not this machine's would be the proxy's to resolve, and that row is about ours.
        monkeypatch.setenv("no_proxy", ".invalid")
        monkeypatch.setenv("NO_PROXY", ".invalid")
        outcomes = await _wait_for_all(ROWS, certificate_files)
        assert proxy.connections == 0, "a proxy was asked for a loopback address"
    problems = _told(outcomes)
    assert not problems, f"{len(problems)} problems:\n" + "\n".join(problems)
    codes = [outcome.code for outcome in outcomes if isinstance(outcome, Outcome)]
    assert codes.count(0) == len(READY), "false ready or false timeout"
    assert codes.count(124) == len(NEVER), "false ready or false timeout"


def test_the_table_is_as_long_as_promised() -> None:
    names = [row.name for row in ROWS]
    assert len(names) >= 40
    assert len(set(names)) == len(names)
    assert all(row.words for row in ROWS)
    assert not [row.name for row in READY if math.isinf(row.closed_for_s)]


def test_the_schema_tells_a_wrong_line() -> None:
    """The check itself can fail: a line with a field missing, an unknown kind, a time that is none."""
    good = '{"kind":"link","at":"2026-01-01T00:00:00.000Z","state":"up","why":""}'
    assert checked(good)["state"] == "up"
    for bad in (
        good.replace('"state":"up",', ""),
        good.replace('"link"', '"links"'),
        good.replace(".000Z", "Z"),
        good.replace('"up"', '"fine"'),
    ):
        with pytest.raises(jsonschema.ValidationError):
            checked(bad)
