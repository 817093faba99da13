"""Writes the stream of one session to a file: the lines of `--json --events all`, behind one that tells whose they are.

    {"kind":"record","at":…,"version":1,"profile":"kimi","node":"gpu1","title":"kimi","supervisor":"0.1.0"}

A file that exists is never touched. Secrets are taken out of every text. A disk that is full ends the recording, is
told once, and harms nothing else.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from supervisor import __version__
from supervisor.core import events as ev
from supervisor.core.event_json import RECORD, iso, to_object
from supervisor.errors import UsageError
from supervisor.supervise.desk import Desk
from supervisor.supervise.hub import Subscription, View

VERSION = 1
_encode = msgspec.json.Encoder().encode


class Recorder:
    """One record. Raises `UsageError` where the file cannot be made anew.

    Args:
        path: must not exist; made 0600, since a server's log may hold anything.
        at: the time of its beginning.
        mask: takes secrets out of a text.
    """

    def __init__(
        self,
        path: str,
        *,
        at: float,
        mask: Callable[[str], str],
        profile: str = "",
        node: str = "",
        title: str = "",
    ) -> None:
        self.problem = ""
        """Why it has ended before its time; empty while all is well."""
        self._path = path
        self._mask = mask
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            raise UsageError(f"--record: {path} exists, and nothing is overwritten: give another name") from None
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise UsageError(f"--record: {path} cannot be made: {reason}") from error
        self._file = os.fdopen(file, "wb")
        head = {"kind": RECORD, "at": iso(at), "version": VERSION, "profile": profile, "node": node}
        self._write({**head, "title": title or profile, "supervisor": __version__})
        self.flush()

    def write(self, event: ev.AnyEvent) -> None:
        """Add one event; it is in the file after the next `flush`."""
        if not self._file.closed:
            self._write(to_object(event))

    def before(self, view: View) -> Iterable[ev.AnyEvent]:
        """What a subscription begins with, as events that may be written: who subscribes late misses no phase."""
        log: tuple[ev.AnyEvent, ...] = view.log
        return (*view.warnings, *view.changes, *log)

    def flush(self) -> None:
        """Have everything in the file: a program that is killed leaves what it has seen."""
        if not self._file.closed:
            self._try(self._file.flush)

    def close(self) -> None:
        """The end of the record."""
        if not self._file.closed:
            self._try(self._file.close)

    def _write(self, document: dict[str, Any]) -> None:
        line = _encode(_masked(document, self._mask)) + b"\n"
        self._try(lambda: self._file.write(line))

    def _try(self, step: Callable[[], object]) -> None:
        try:
            step()
        except OSError as error:
            self.problem = f"--record: {self._path} ends here: {error.strerror or error}"
            try:
                self._file.close()
            except OSError:
                pass  # what it still had to write has nowhere to go


async def record(desk: Desk, recorder: Recorder) -> None:
    """Record a session until its hub closes or this is cancelled; for a front end that has no drain of its own."""
    subscription = desk.hub.subscribe()
    try:
        for event in recorder.before(subscription.view):
            recorder.write(event)
        async for batch in subscription.batches():
            for event in batch:
                recorder.write(event)
            recorder.flush()
            if recorder.problem:
                desk.warn(recorder.problem)
                return
    except asyncio.CancelledError:
        _rest(subscription, recorder)
        raise
    finally:
        desk.hub.unsubscribe(subscription)
        recorder.close()


def _rest(subscription: Subscription, recorder: Recorder) -> None:
    """What is queued when the console is closed was seen, and belongs to the record."""
    for event in subscription.take():
        recorder.write(event)


def _masked(value: Any, mask: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, dict):
        return {mask(key): _masked(item, mask) for key, item in value.items()}
    if isinstance(value, list):
        return [_masked(item, mask) for item in value]
    return value
