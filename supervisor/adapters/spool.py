"""Bytes of a log by their offset in its file, on the disk of the operator's machine, bounded. Never raises.

Kept in segment files that have no name any more (mode 0600, unlinked as soon as they are open), so that nothing is
left behind whatever ends the program. When the bound is reached, or the disk is nearly full, the segment goes that was
used least lately. A folder that cannot be written leaves the newest bytes in memory, and `warning` says so.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections import OrderedDict
from pathlib import Path
from typing import Protocol

from supervisor.core.ranges import Ranges

LIMIT_BYTES = 2 << 30
SEGMENT_BYTES = 64 << 20
MEMORY_BYTES = 32 << 20
MEMORY_SEGMENT_BYTES = 1 << 20
"""What is let go is let go in multiples of this, in memory and on the disk: whoever keeps marks sets them there."""
SPARE_BYTES = 256 << 20
"""A disk with less than this left is full for us: it is somebody's home."""


def cache_folder() -> Path:
    """Where this program may keep what can be had again."""
    for base in (os.environ.get("XDG_CACHE_HOME") or "", os.path.expanduser("~/.cache")):
        if os.path.isabs(base):
            return Path(base) / "inference-supervisor"
    return Path(os.devnull) / "nowhere"  # nobody's home, and not even root can make one: the log stays in memory


class _Segment(Protocol):
    def write(self, at: int, data: memoryview) -> None: ...

    def read(self, at: int, length: int) -> bytes: ...

    def close(self) -> None: ...


class _File:
    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        free = os.statvfs(folder)
        if free.f_bavail * free.f_frsize < SPARE_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with tempfile.TemporaryFile(buffering=0, dir=folder, prefix="log-") as file:
            self._descriptor = os.dup(file.fileno())

    def write(self, at: int, data: memoryview) -> None:
        while data:
            written = os.pwrite(self._descriptor, data, at)
            at, data = at + written, data[written:]

    def read(self, at: int, length: int) -> bytes:
        return os.pread(self._descriptor, length, at)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        if getattr(self, "_descriptor", -1) >= 0:
            self.close()


class _Memory:
    def __init__(self) -> None:
        self._bytes = bytearray()

    def write(self, at: int, data: memoryview) -> None:
        if len(self._bytes) < at:
            self._bytes.extend(bytes(at - len(self._bytes)))
        self._bytes[at : at + len(data)] = data

    def read(self, at: int, length: int) -> bytes:
        return bytes(self._bytes[at : at + length])

    def close(self) -> None:
        self._bytes = bytearray()


class _Layer:
    """Segments of one size; `folder` None: in memory."""

    def __init__(self, folder: Path | None, segment_bytes: int, limit_bytes: int) -> None:
        self._folder = folder
        self.segment_bytes = segment_bytes
        self._limit_bytes = limit_bytes
        self._segments: OrderedDict[int, _Segment] = OrderedDict()  # the one that was used last is last
        self.held = Ranges()

    def write(self, offset: int, data: memoryview) -> None:
        """Raises `OSError`; what was written before it counts."""
        while data:
            number, at = divmod(offset, self.segment_bytes)
            piece = data[: self.segment_bytes - at]
            self._segment(number).write(at, piece)
            self.held.add(offset, offset + len(piece))
            offset, data = offset + len(piece), data[len(piece) :]
            while self.held.total > self._limit_bytes and len(self._segments) > 1:
                self._let_go()

    def _segment(self, number: int) -> _Segment:
        segment = self._segments.get(number)
        if segment is None:
            segment = self._segments[number] = self._open()
        else:
            self._segments.move_to_end(number)
        return segment

    def _open(self) -> _Segment:
        if self._folder is None:
            return _Memory()
        while True:
            try:
                return _File(self._folder)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not self._segments:
                    raise
                self._let_go()

    def _let_go(self) -> None:
        number, segment = self._segments.popitem(last=False)
        segment.close()
        self.held.remove(number * self.segment_bytes, (number + 1) * self.segment_bytes)

    def read(self, offset: int, length: int) -> bytes:
        """What is held in a row from `offset` on. Raises `OSError`."""
        out = []
        end = min(offset + length, self.held.run_end(offset))
        while offset < end:
            number, at = divmod(offset, self.segment_bytes)
            data = self._segment(number).read(at, min(end - offset, self.segment_bytes - at))
            if not data:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            out.append(data)
            offset += len(data)
        return out[0] if len(out) == 1 else b"".join(out)

    def forget(self, start: int, end: int) -> None:
        self.held.remove(start, end)

    def clear(self) -> None:
        for segment in self._segments.values():
            segment.close()
        self._segments.clear()
        self.held = Ranges()


class Spool:
    """What is kept of one log.

    Args:
        folder: where the segments are; None: the cache folder of the user.
        limit_bytes: of all of them together.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        limit_bytes: int = LIMIT_BYTES,
        segment_bytes: int = SEGMENT_BYTES,
        memory_bytes: int = MEMORY_BYTES,
        memory_segment_bytes: int = MEMORY_SEGMENT_BYTES,
    ) -> None:
        self._folder = folder or cache_folder()
        self._disk = _Layer(self._folder, segment_bytes, limit_bytes)
        self._memory = _Layer(None, memory_segment_bytes, memory_bytes)
        self.unit_bytes = memory_segment_bytes
        self.warning = ""
        """What the user has to know: why the log is not kept as it should be."""

    def __repr__(self) -> str:
        return f"<Spool {self._folder}: {self._disk.held} on disk, {self._memory.held} in memory>"

    def write(self, offset: int, data: bytes) -> None:
        """Keep these bytes of the file."""
        if not self.warning:
            try:
                self._disk.write(offset, memoryview(data))
                return
            except OSError as error:
                self._fail(error)
                self._disk.forget(offset, offset + len(data))
        self._memory.write(offset, memoryview(data))

    def _fail(self, error: OSError) -> None:
        megabytes = self._memory._limit_bytes >> 20
        self.warning = (
            f"the log is not kept on this machine's disk ({self._folder}: {error.strerror or error}): "
            f"the newest {megabytes} MiB of it are, in memory"
        )

    def read(self, offset: int, length: int) -> bytes:
        """What is held in a row from `offset` on, at most `length` bytes; empty where that byte is not held."""
        out: list[bytes] = []
        while length > 0:
            data = self._read(offset, length)
            if not data:
                break
            out.append(data)
            offset, length = offset + len(data), length - len(data)
        return out[0] if len(out) == 1 else b"".join(out)

    def _read(self, offset: int, length: int) -> bytes:
        try:
            data = self._disk.read(offset, length)
        except OSError as error:
            self._fail(error)
            self._disk.clear()
            data = b""
        return data or self._memory.read(offset, length)

    def run_end(self, offset: int) -> int:
        """Up to where the bytes are held in a row from `offset` on; `offset` itself where that byte is not."""
        while (end := max(self._disk.held.run_end(offset), self._memory.held.run_end(offset))) > offset:
            offset = end
        return offset

    def run_start(self, offset: int) -> int:
        """From where on the bytes are held in a row up to `offset`."""
        while (start := min(self._disk.held.run_start(offset), self._memory.held.run_start(offset))) < offset:
            offset = start
        return offset

    def next_start(self, offset: int) -> int | None:
        """The first byte at or after `offset` that is held and begins a row."""
        found = [layer.held.next_start(offset) for layer in (self._disk, self._memory)]
        return min((start for start in found if start is not None), default=None)

    def gaps(self, start: int, end: int) -> list[tuple[int, int]]:
        """What of [start, end) is not held."""
        return [gap for a, b in self._disk.held.gaps(start, end) for gap in self._memory.held.gaps(a, b)]

    def clear(self) -> None:
        """Let go of everything: the log is another file now."""
        self._disk.clear()
        self._memory.clear()

    def close(self) -> None:
        """Let go of everything, for good."""
        self.clear()
