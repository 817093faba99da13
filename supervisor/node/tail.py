"""Follows a file and writes frames: a JSON header line (device, inode, offset, length), then that many bytes.

A reader that comes back with its last inode and offset gets neither a gap nor a repeat. Rotation is told.
"""

from __future__ import annotations

import json
import os
import select
import stat
import time
from typing import Any, Dict, Optional

FRAME_BYTES = 65536
HEARTBEAT_S = 1.0
PATH_EVERY_S = 0.5
QUIET_AFTER_S = 5.0
QUIET_POLL_S = 0.05

Json = Dict[str, Any]


class Tail:
    """One followed file."""

    def __init__(self, args: Json, out: int) -> None:
        self._path = args["path"]
        self._offset = int(args.get("offset") or 0)
        self._want = (args.get("dev"), args.get("ino"))
        self._poll_s = float(args.get("poll_s") or 0.02)
        self._out = out
        self._file: Optional[int] = None
        self._identity = (0, 0)

    def run(self) -> None:
        """Until stdin closes or nobody reads."""
        beat = path_at = moved_at = 0.0
        while True:
            now = time.monotonic()
            if self._file is None:
                self._open()
            progressed = self._file is not None and self._pump()
            if self._file is not None and not progressed and now >= path_at:
                path_at = now + PATH_EVERY_S
                progressed = self._rotated()
            if progressed:
                beat = now + HEARTBEAT_S
                moved_at = now
            elif now >= beat:
                beat = now + HEARTBEAT_S
                self._header(**({} if self._file is not None else {"missing": True}))
            # A log that has been silent for long is looked at less often: it costs a core's third of a percent.
            pause_s = self._poll_s if now - moved_at < QUIET_AFTER_S else max(self._poll_s, QUIET_POLL_S)
            if _stdin_closed(0.0 if progressed else pause_s):
                return

    def _open(self) -> None:
        try:
            # Not blocking: opening a pipe would wait for a writer.
            opened = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return
        info = os.fstat(opened)
        if not stat.S_ISREG(info.st_mode):
            os.close(opened)
            return
        self._file = opened
        self._identity = (info.st_dev, info.st_ino)
        other = self._want[1] is not None and self._want != self._identity
        if other or info.st_size < self._offset:
            self._offset = 0
            self._header(rotated=True)
        self._want = self._identity

    def _pump(self) -> bool:
        """Send what is there, one frame. True when there was something."""
        assert self._file is not None
        data = os.pread(self._file, FRAME_BYTES, self._offset)
        if not data:
            if os.fstat(self._file).st_size < self._offset:
                self._offset = 0
                self._header(rotated=True, truncated=True)
                return True
            return False
        self._header(len(data))
        _write(self._out, data)
        self._offset += len(data)
        return True

    def _rotated(self) -> bool:
        """Whether another file stands at the path; the old one was read to its end before this is asked."""
        try:
            info = os.stat(self._path)
        except OSError:
            return False  # moved away, and nothing new yet: the open file may still grow
        if (info.st_dev, info.st_ino) == self._identity:
            return False
        assert self._file is not None
        if self._pump():
            return True
        os.close(self._file)
        self._file = None
        return True

    def _header(self, length: int = 0, **more: Any) -> None:
        size = os.fstat(self._file).st_size if self._file is not None else 0
        header = {
            "dev": self._identity[0],
            "ino": self._identity[1],
            "offset": self._offset,
            "len": length,
            "size": size,
        }
        header.update(more)
        _write(self._out, (json.dumps(header) + "\n").encode())


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _stdin_closed(wait_s: float) -> bool:
    ready, _, _ = select.select([0], [], [], wait_s)
    return bool(ready) and not os.read(0, 4096)
