"""Bytes come back as they were written, bounded, under no name, and whatever happens to the disk."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from supervisor.adapters import spool as module
from supervisor.adapters.spool import Spool, cache_folder

WRITES = st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 700)), max_size=20)


def small(folder: Path, limit_bytes: int = 1 << 30, memory_bytes: int = 1 << 30) -> Spool:
    return Spool(
        folder, limit_bytes=limit_bytes, segment_bytes=512, memory_bytes=memory_bytes, memory_segment_bytes=128
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spool")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(writes=WRITES, fails_at=st.integers(0, 25))
def test_what_was_written_is_read(writes: list[tuple[int, int]], fails_at: int, folder: Path) -> None:
    """On the disk, in memory, and over the place where one became the other."""
    there: dict[int, int] = {}
    spool = small(folder)
    for number, (offset, length) in enumerate(writes):
        if number == fails_at:
            spool._fail(OSError(errno.EIO, "gone"))  # what was written before stays
        data = bytes((offset + number + place) % 251 for place in range(length))
        spool.write(offset, data)
        there |= {offset + place: byte for place, byte in enumerate(data)}
        if spool.warning:
            spool._disk.forget(offset, offset + length)  # nobody writes what is there already; this test does
    for offset in range(0, 3700, 97):
        end = offset
        while end in there:
            end += 1
        assert spool.run_end(offset) == end
        assert spool.read(offset, 10_000) == bytes(there[place] for place in range(offset, end))
        assert spool.read(offset, 5) == bytes(there[place] for place in range(offset, min(end, offset + 5)))
        start = offset
        while start - 1 in there:
            start -= 1
        assert spool.run_start(offset) == start
    missing = [place for place in range(3700) if place not in there]
    assert [place for a, b in spool.gaps(0, 3700) for place in range(a, b)] == missing
    spool.close()


def test_the_oldest_goes_when_the_bound_is_reached_and_what_is_used_stays(tmp_path: Path) -> None:
    spool = small(tmp_path, limit_bytes=2048)
    for offset in range(0, 2048, 512):
        spool.write(offset, b"x" * 512)
    assert spool.read(0, 1) == b"x"
    spool.write(2048, b"y")
    assert list(spool._disk.held) == [(0, 512), (1024, 2049)]
    for offset in range(2049, 100_000, 100):
        spool.write(offset, b"z" * 100)
    assert spool._disk.held.total <= 2048
    assert len(spool._disk._segments) <= 5
    assert spool.read(99_900, 10) == b"z" * 10
    spool.close()


def test_nothing_lies_about_and_nobody_else_may_read(tmp_path: Path) -> None:
    spool = small(tmp_path / "a" / "b")
    spool.write(0, b"x" * 2000)
    assert list((tmp_path / "a" / "b").iterdir()) == []
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700
    segment = spool._disk._segments[0]
    assert isinstance(segment, module._File)
    info = os.fstat(segment._descriptor)
    assert (stat.S_IMODE(info.st_mode), info.st_nlink) == (0o600, 0)
    descriptor = segment._descriptor
    spool.close()
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(descriptor)


def test_a_folder_that_cannot_be_written_leaves_the_newest_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    spool = small(tmp_path / "file", memory_bytes=1024)
    for offset in range(0, 4096, 100):
        spool.write(offset, b"%4d" % offset * 25)
    assert str(tmp_path / "file") in spool.warning and "in memory" in spool.warning
    assert spool.read(4000, 8) == b"40004000"
    assert spool.read(0, 8) == b""
    assert spool._memory.held.total <= 1024
    spool.clear()
    assert spool.read(4000, 8) == b""
    assert spool.warning


def test_a_disk_that_fills_up_lets_the_oldest_go_and_keeps_what_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = {"bytes": 1 << 40}

    def statvfs(_path: object) -> SimpleNamespace:
        return SimpleNamespace(f_bavail=free["bytes"], f_frsize=1)

    monkeypatch.setattr(os, "statvfs", statvfs)
    spool = small(tmp_path)
    for offset in range(0, 2048, 512):
        spool.write(offset, b"x" * 512)
    free["bytes"] = 1 << 20
    monkeypatch.setattr(module._Layer, "_let_go", _let_go_and_free(module._Layer._let_go, free))
    spool.write(2048, b"y" * 10)
    assert not spool.warning
    assert list(spool._disk.held) == [(512, 2058)]
    spool.close()


def _let_go_and_free(let_go: object, free: dict[str, int]) -> object:
    def both(layer: object) -> None:
        let_go(layer)  # type: ignore[operator]
        free["bytes"] = 1 << 40

    return both


def test_a_write_that_fails_is_kept_in_memory_and_what_was_written_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = small(tmp_path)
    spool.write(0, b"a" * 700)

    def pwrite(_descriptor: int, _data: object, _offset: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", pwrite)
    spool.write(700, b"b" * 700)
    monkeypatch.undo()
    spool.write(1400, b"c" * 700)
    assert "No space left" in spool.warning
    assert spool.read(0, 9999) == b"a" * 700 + b"b" * 700 + b"c" * 700
    assert spool._disk.held.total == 700
    spool.close()


def test_a_disk_that_cannot_be_read_any_more_is_an_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = small(tmp_path)
    spool.write(0, b"a" * 700)

    def pread(_descriptor: int, _length: int, _offset: int) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pread", pread)
    assert spool.read(0, 9) == b""
    assert "Input/output error" in spool.warning
    spool.write(0, b"b")
    assert spool.read(0, 9) == b"b"
    spool.close()


def test_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/inference-supervisor")
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert cache_folder() == Path("/home/somebody/.cache/inference-supervisor")
