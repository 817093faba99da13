"""A followed log: every byte once, whatever happens to the file and to the connection."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from supervisor.adapters.local import LocalLink
from supervisor.adapters.node import Frame, LogTail, open_tail
from supervisor.errors import UnreachableError
from tests.node.conftest import PYTHON

pytestmark = pytest.mark.asyncio


async def _follow(link: LocalLink, path: Path, offset: int = 0, **more: Any) -> LogTail:
    return await open_tail(link, python=PYTHON, path=str(path), offset=offset, **{"dev": None, "ino": None, **more})


async def _data(tail: LogTail, count: int) -> tuple[bytes, list[Frame]]:
    """Frames until `count` bytes have come."""
    data, frames = b"", []
    async with asyncio.timeout(20):
        while len(data) < count:
            frame = await tail.frame()
            frames.append(frame)
            data += frame.data
    return data, frames


async def _marked(tail: LogTail, what: str) -> Frame:
    """The next frame that says rotated, or missing."""
    async with asyncio.timeout(10):
        while True:
            frame = await tail.frame()
            if getattr(frame, what):
                return frame
            assert not frame.data


async def test_what_is_there_and_what_comes(link: LocalLink, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\ntwo\n")
    tail = await _follow(link, path, 4)
    data, (frame,) = await _data(tail, 4)
    assert data == b"two\n"
    info = path.stat()
    assert (frame.dev, frame.ino, frame.offset, frame.size) == (info.st_dev, info.st_ino, 4, 8)
    begin = time.monotonic()
    with path.open("ab") as file:
        file.write(b"three\xff\x00\n")
    data, frames = await _data(tail, 8)
    assert data == b"three\xff\x00\n" and frames[-1].offset == 8
    assert time.monotonic() - begin < 0.5  # 20 ms where nothing else runs
    await tail.close()


async def test_a_heartbeat_each_second(link: LocalLink, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x")
    tail = await _follow(link, path, 1)
    first = await tail.frame()
    begin = time.monotonic()
    second = await tail.frame()
    assert first.data == second.data == b"" and second.offset == 1 and second.size == 1
    assert 0.5 < time.monotonic() - begin < 2.0
    await tail.close()


async def test_every_byte_once_under_a_fast_writer(link: LocalLink, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.touch()
    whole = random.Random(1).randbytes(30_000_000)

    def write() -> None:
        with path.open("ab", buffering=0) as file:
            at, chance = 0, random.Random(2)
            while at < len(whole):
                at += file.write(whole[at : at + chance.choice([1, 100, 5_000, 200_000])])

    tail = await _follow(link, path)
    writer = threading.Thread(target=write)
    writer.start()
    data, frames = await _data(tail, len(whole))
    writer.join()
    assert data == whole
    at = 0
    for frame in frames:
        assert frame.offset == at and len(frame.data) <= 65536
        at += len(frame.data)
    await tail.close()


async def test_a_new_connection_goes_on_where_the_last_one_was(link: LocalLink, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a" * 100_000)
    tail = await _follow(link, path)
    data, frames = await _data(tail, 1)
    await tail.close()
    with path.open("ab") as file:
        file.write(b"b" * 10)
    last = frames[-1]
    tail = await _follow(link, path, last.offset + len(last.data), dev=last.dev, ino=last.ino)
    rest, frames = await _data(tail, 100_010 - len(data))
    assert data + rest == b"a" * 100_000 + b"b" * 10
    assert not any(frame.rotated for frame in frames)
    await tail.close()


async def test_a_new_connection_to_another_file_begins_anew(link: LocalLink, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"old old old")
    info = path.stat()
    path.rename(tmp_path / "log.1")
    path.write_bytes(b"new new new new")
    tail = await _follow(link, path, 11, dev=info.st_dev, ino=info.st_ino)
    assert (await _marked(tail, "rotated")).offset == 0
    assert (await _data(tail, 15))[0] == b"new new new new"
    await tail.close()


async def test_rotation_loses_nothing_of_the_old_file(link: LocalLink, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\n")
    tail = await _follow(link, path)
    assert (await _data(tail, 4))[0] == b"one\n"
    for number in range(3):
        writer = path.open("ab")
        path.rename(tmp_path / f"log.{number}")
        writer.write(b"late\n")  # written after the rename, as every logger does until it reopens
        writer.flush()
        path.write_bytes(b"fresh\n")
        assert (await _data(tail, 5))[0] == b"late\n"
        turned = await _marked(tail, "rotated")
        assert (turned.offset, turned.ino) == (0, path.stat().st_ino)
        assert (await _data(tail, 6))[0] == b"fresh\n"
        writer.close()
    await tail.close()


async def test_a_file_that_was_cut_begins_anew(link: LocalLink, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"0123456789")
    tail = await _follow(link, path)
    assert (await _data(tail, 10))[0] == b"0123456789"
    os.truncate(path, 0)
    assert (await _marked(tail, "rotated")).offset == 0
    path.write_bytes(b"abc")
    assert (await _data(tail, 3))[0] == b"abc"
    await tail.close()


async def test_an_offset_beyond_the_end_begins_anew(link: LocalLink, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"short")
    tail = await _follow(link, path, 100)
    assert (await _marked(tail, "rotated")).offset == 0
    assert (await _data(tail, 5))[0] == b"short"
    await tail.close()


@pytest.mark.parametrize("what", ["nothing", "a folder", "a pipe"])
async def test_what_is_no_file_is_missing_until_it_is_one(link: LocalLink, tmp_path: Path, what: str) -> None:
    path = tmp_path / "log"
    if what == "a folder":
        path.mkdir()
    elif what == "a pipe":
        os.mkfifo(path)
    tail = await _follow(link, path)
    assert (await _marked(tail, "missing")).data == b""
    if what == "a folder":
        path.rmdir()
    elif what == "a pipe":
        path.unlink()
    path.write_bytes(b"there")
    assert (await _data(tail, 5))[0] == b"there"
    await tail.close()


async def test_a_file_that_is_removed_and_comes_back(link: LocalLink, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one")
    tail = await _follow(link, path)
    assert (await _data(tail, 3))[0] == b"one"
    path.unlink()
    await asyncio.sleep(0.7)
    path.write_bytes(b"two!")
    assert (await _data(tail, 4))[0] == b"two!"
    await tail.close()


async def test_a_reader_that_is_slow_holds_the_tail_back_not_memory(link: LocalLink, tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb") as file:
        file.truncate(200_000_000)
    tail = await _follow(link, path, window_bytes=65536)
    pid = tail._process._process.pid  # type: ignore[attr-defined]
    await tail.frame()
    await asyncio.sleep(0.3)
    resident_pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    assert resident_pages * os.sysconf("SC_PAGE_SIZE") < 40_000_000
    second = await tail.frame()
    assert second.offset == 65536  # nothing was dropped meanwhile
    await tail.close()
    assert not os.path.exists(f"/proc/{pid}")


async def test_the_end_of_the_channel_is_told(link: LocalLink, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x")
    tail = await _follow(link, path)
    await _data(tail, 1)
    tail._process._process.kill()  # type: ignore[attr-defined]
    with pytest.raises(UnreachableError):
        while True:
            await tail.frame()
    await tail.close()
