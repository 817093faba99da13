"""A log that comes in blocks, as a headless wait shows it: every line, or none but the last."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path

import pytest

from supervisor.core import events as ev
from supervisor.core.events import Phase
from supervisor.core.wait import Limits
from supervisor.headless.run import Options, Printer, wait
from supervisor.supervise.desk import Desk
from supervisor.testing import ManualClock
from tests.core.test_block_reader import blocks_of

DATA = b"first\n  0%|  |\r100%|####|\nsecret and \xe2\x96\x88\nlast\n"
LINES = ["first", "100%|####|", "*** and █", "last"]


def run(*, everything: bool, as_json: bool, record: Path | None = None) -> tuple[int, str, str]:
    """A wait that runs out of time after the log; its exit code and what it printed."""
    out, err, clock = io.StringIO(), io.StringIO(), ManualClock()
    desk = Desk(clock=clock, verify=True, on_phase=lambda _change: None)
    options = Options(
        until=Phase.SERVING,
        limits=Limits(timeout_s=5.0),
        json=as_json,
        all_events=everything,
        record=str(record) if record else None,
        mask=lambda line: line.replace("secret", "***"),
    )

    async def work() -> None:
        for block in blocks_of(DATA, range(0, len(DATA), 5)):
            desk.tell(block)
        await asyncio.Event().wait()

    async def main() -> int:
        task = asyncio.create_task(wait(desk, work, options, began_at=clock.now(), out=out, err=err))
        await clock.advance(6.0)
        return await task

    return asyncio.run(main()), out.getvalue(), err.getvalue()


def test_every_line_is_told_in_json_where_all_is_wanted() -> None:
    code, out, _ = run(everything=True, as_json=True)
    events = [json.loads(line) for line in out.splitlines()]
    assert code == 124
    assert {event["kind"] for event in events} == {"log", "summary"}
    logs = [event for event in events if event["kind"] == "log" and not event["living"]]
    assert [event["text"] for event in logs] == LINES
    assert [event["line_no"] for event in logs] == [1, 2, 3, 4]
    assert [event["offset"] for event in logs] == [0, 6, DATA.index(b"secret"), DATA.index(b"last")]


def test_none_is_told_where_not_and_the_ending_has_the_last() -> None:
    code, out, _ = run(everything=False, as_json=True)
    (summary,) = (json.loads(line) for line in out.splitlines())
    assert (code, summary["kind"]) == (124, "summary")
    assert {"log": "last log line: last"}.items() <= {
        item["kind"]: item["text"] for item in summary["evidence"]
    }.items()


@pytest.mark.parametrize("everything", [False, True])
def test_text_for_people(everything: bool) -> None:
    _, out, err = run(everything=everything, as_json=False)
    assert "last log line: last" in out
    assert [text in err for text in LINES] == [everything] * 4


def test_a_record_has_every_line_whatever_is_printed(tmp_path: Path) -> None:
    run(everything=False, as_json=True, record=tmp_path / "record")
    events = [json.loads(line) for line in (tmp_path / "record").read_text(encoding="utf-8").splitlines()]
    assert [event["text"] for event in events if event["kind"] == "log" and not event["living"]] == LINES
    assert "log_block" not in {event["kind"] for event in events}


def test_the_live_line_has_the_logs_last_line() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    err = Terminal()
    desk = Desk(clock=ManualClock(), verify=True, on_phase=lambda _change: None)
    printer = Printer(Options(until=Phase.SERVING, limits=Limits(timeout_s=5.0)), io.StringIO(), err, began_at=0.0)
    printer.live(desk, 3.0)
    desk.tell(ev.LogBlock(at=1.0, data=b"one\ntwo\nthr", offset=0, line_no=1, lines=2))
    printer.live(desk, 4.0)
    before, after = err.getvalue().split("\r\x1b[K")[1:]
    assert ("two" in before, "two" in after) == (False, True)
