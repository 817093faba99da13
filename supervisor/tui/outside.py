"""The log in another program: the app steps aside for a pager or an editor, at the line that is looked at.

A screen with a log calls `open_log` in a worker when its pane asks (`LogPane.Open`). The sessions go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from textual.app import App, SuspendNotSupported

from supervisor.adapters import open_at
from supervisor.tui.log_view import LogView

AROUND_LINES = 20_000
"""So much before and after the line is written down."""


async def open_log(
    app: App[Any], view: LogView, line_no: int, *, editor: bool, environ: Mapping[str, str], local: Path | None = None
) -> str:
    """Open it, wait until the user comes back; a sentence where it could not be opened, else nothing.

    Args:
        local: the file itself, where it lies on this machine.
    """
    try:
        words = open_at.program(environ, editor=editor)
    except open_at.NoProgramError as error:
        return str(error)
    try:
        with app.batch_update(), app.suspend():  # nothing is painted while the terminal is another's
            try:
                if local is not None and local.is_file():
                    await open_at.show(open_at.at_line(words, str(local), line_no))
                else:
                    await _show_excerpt(words, view, line_no)
            except OSError as error:
                return f"{words[0]} could not be started: {error.strerror or error}"
    except SuspendNotSupported:
        return "this terminal cannot be handed to another program"
    return ""


async def _show_excerpt(words: list[str], view: LogView, line_no: int) -> None:
    lines = view.lines.around(line_no, AROUND_LINES)
    first, last = (lines[0][0], lines[-1][0]) if lines else (line_no, line_no)
    width = len(str(last))
    head = (
        f"# Lines {first:,} to {last:,} of the log as the console shows them: secrets masked, numbers in front. "
        "This file goes when you leave it."
    )
    texts = [head, *(f"{number:>{width}}  {text}" for number, text in lines)]
    with open_at.excerpt(texts, "log.txt") as path:
        await open_at.show(open_at.at_line(words, path, line_no - first + 2, last=line_no >= last))
