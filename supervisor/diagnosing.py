"""The diagnose command: from a file or standard input to a report. Offline, with nothing of a node, HTTP or a console.

The log is read once; a log that stands newest first is spooled and read from its end. Exit code 0 whatever was found.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import IO

from msgspec import json, structs

from supervisor.adapters import log_file
from supervisor.adapters.clock import SystemClock
from supervisor.core import events as ev
from supervisor.core.diagnosis.blocks import BlockDiagnoser
from supervisor.core.diagnosis.conclude import Diagnosis
from supervisor.core.diagnosis.facts import EndFacts
from supervisor.core.diagnosis.log_order import LOOKED_AT_LINES, Order, order_of
from supervisor.core.diagnosis.which_engine import which_engine
from supervisor.core.engine import Common, Engine
from supervisor.engines import loader
from supervisor.headless import diagnosis_text
from supervisor.headless.text import Style


class Reader:
    """Feeds a log to a diagnoser, and counts what it was."""

    def __init__(self, engine: Engine, common: Common, at: float) -> None:
        self._diagnoser = BlockDiagnoser(engine, common)
        self._at = at
        self._offset = 0
        self._newlines = 0
        self._last = b"\n"

    @property
    def lines(self) -> int:
        """How many have been read, the one without a newline at the end too."""
        return self._newlines + (self._last != b"\n")

    def feed(self, blocks: Iterable[bytes]) -> None:
        """More of the log, in order, cut anywhere."""
        for data in blocks:
            lines = data.count(b"\n")
            self._diagnoser.feed(
                ev.LogBlock(at=self._at, data=data, offset=self._offset, line_no=self._newlines + 1, lines=lines)
            )
            self._offset += len(data)
            self._newlines += lines
            self._last = data[-1:] or self._last

    def conclude(self) -> Diagnosis:
        """What the log alone tells."""
        return self._diagnoser.conclude(EndFacts(), self._at)


def run(options: Namespace, engine: Engine | None, *, out: IO[str] | None = None) -> int:
    """The whole command. `engine`: by --engine; else the log tells whose it is. Raises `UsageError`."""
    stream = out or sys.stdout
    at = SystemClock().now()
    common = loader.common()
    with log_file.opened(options.log) as reading:
        head, _all = log_file.head_of(reading.blocks)
        chosen = engine or _engine_of(head)
        order = order_of(log_file.lines_of(head, LOOKED_AT_LINES))
        reader = Reader(chosen, common, at)
        blocks = chain(head, reading.blocks)
        if order is Order.AS_WRITTEN:
            reader.feed(blocks)
            diagnosis = reader.conclude()
        else:
            diagnosis = _backwards(reader, blocks, order)
            reading.notes.append(f"it stands with the {order.value}, and was read from its end")
    read = diagnosis_text.Read(
        engine="" if chosen.name == loader.GENERIC else chosen.title,
        chosen=engine is not None,
        lines=reader.lines,
        notes=tuple(reading.notes),
    )
    for line in _told(diagnosis_text.safe(diagnosis), read, at, stream, as_json=options.json):
        stream.write(line + "\n")
    stream.flush()
    return 0


def _engine_of(head: Iterable[bytes]) -> Engine:
    engines = {name: loader.load(name) for name in loader.names()}
    return loader.load(which_engine(head, engines) or loader.GENERIC)


def _backwards(reader: Reader, blocks: Iterable[bytes], order: Order) -> Diagnosis:
    """The diagnosis of a log from its end, with the numbers that its lines have in the log as it is."""
    spool = log_file.Backwards(blocks, order)
    try:
        reader.feed(spool.blocks())
        diagnosis = reader.conclude()
        finding = diagnosis.finding
        given = [item.line_no for item in diagnosis.candidates]
        given += [finding.line_no] if finding is not None and finding.line_no is not None else []
        numbers = spool.numbers(given)
    finally:
        spool.close()
    candidates = tuple(structs.replace(item, line_no=numbers[item.line_no]) for item in diagnosis.candidates)
    if finding is not None and finding.line_no is not None:
        finding = structs.replace(finding, line_no=numbers[finding.line_no])
    return structs.replace(diagnosis, finding=finding, candidates=candidates)


def _told(
    diagnosis: Diagnosis, read: diagnosis_text.Read, at: float, stream: IO[str], *, as_json: bool
) -> Iterator[str]:
    if as_json:
        for document in diagnosis_text.events(diagnosis, read, at):
            yield json.encode(document).decode()
        return
    colour = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    yield from diagnosis_text.report(diagnosis, read, Style(colour=colour))
