"""Hands the terminal to the user's pager or editor, at a line of a file. No shell; nothing is left behind.

What lies on a node is not opened itself: a part of it is written down masked, for as long as it is looked at, in a file
that nobody else can read. Whoever calls has given the terminal away before, and takes it back after.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

PAGERS = ("less", "more")
EDITORS = ("vi", "nano")

_PLUS = {
    "less",
    "more",
    "most",
    "vi",
    "vim",
    "nvim",
    "view",
    "gvim",
    "nano",
    "emacs",
    "emacsclient",
    "micro",
    "mg",
    "ne",
}
_PLUS |= {"joe", "jed", "kak", "lv", "w3m", "ed", "pico"}
_COLON = {"hx", "helix", "subl", "zed"}
_CODE = {"code", "codium", "cursor", "code-insiders", "windsurf"}
_WAITS = {"code": "--wait", "codium": "--wait", "cursor": "--wait", "code-insiders": "--wait", "windsurf": "--wait"}
_WAITS |= {"subl": "--wait", "zed": "--wait", "gvim": "-f"}


class NoProgramError(Exception):
    """Neither what the environment names nor any of the usual ones is there; the text says which."""


def program(environ: Mapping[str, str], *, editor: bool) -> list[str]:
    """The words of $PAGER, or of $VISUAL or $EDITOR; else one that is installed. Raises `NoProgramError`."""
    names = ("VISUAL", "EDITOR") if editor else ("PAGER",)
    asked = [value for name in names if (value := environ.get(name, "").strip())]
    usual = EDITORS if editor else PAGERS
    for text in (*asked, *usual):
        try:
            words = shlex.split(text)
        except ValueError:
            continue  # an open quote: the usual ones will do
        if words and shutil.which(words[0], path=environ.get("PATH")):
            return words
    what = " or ".join(f"${name}" for name in names)
    raise NoProgramError(
        f"no program to open it with: {what} names none that is there, nor is there {' or '.join(usual)}"
    )


def at_line(words: list[str], path: str, line_no: int, *, last: bool = False) -> list[str]:
    """The whole command: the program's way of saying a line, none where it is not known.

    Args:
        last: it is the file's last line: a pager would show it above an empty screen.
    """
    name = Path(words[0]).name
    if name == "less" and last:
        return [*words, "+G", path]
    waits = [_WAITS[name]] if name in _WAITS and _WAITS[name] not in words else []
    if name in _CODE:
        return [*words, *waits, "-g", f"{path}:{line_no}"]
    if name in _COLON:
        return [*words, *waits, f"{path}:{line_no}"]
    if name in ("bat", "batcat"):
        return [*words, f"--pager=less -R +{line_no}", path]
    return [*words, *waits, *([f"+{line_no}"] if name in _PLUS else []), path]


@contextmanager
def excerpt(lines: Iterable[str], name: str) -> Iterator[str]:
    """A file with these lines for as long as the block lasts: mode 0600, in a folder of its own."""
    folder = tempfile.mkdtemp(prefix="supervisor-log-")  # 0700
    path = os.path.join(folder, name)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.writelines(f"{line}\n" for line in lines)
        yield path
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # the editor's backup and swap files too


async def show(command: list[str]) -> int:
    """Run it on this terminal until the user leaves it; returns its exit code.

    The event loop goes on meanwhile: a link that is not served for ten minutes is lost.
    """
    # Ctrl+C goes to everybody on the terminal. A handler, not "ignore": that would be inherited by the program.
    before = signal.signal(signal.SIGINT, lambda _number, _frame: None)
    try:
        process = await asyncio.create_subprocess_exec(*command)
        return await process.wait()
    finally:
        signal.signal(signal.SIGINT, before)
