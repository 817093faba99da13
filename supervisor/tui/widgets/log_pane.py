"""The tail of the log: bounded, drawn by the line, following until somebody scrolls up.

Not built on Textual's own Log: 8.2.8's `Log(max_lines=N)` stops redrawing once it holds N lines, and RichLog costs 2 KB
a line. Only the lines on the screen are ever masked and styled, so a flood costs what is appended and no more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from msgspec import Struct
from rich.cells import cell_len
from rich.segment import Segment
from textual import events
from textual.geometry import Size
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from supervisor.core import events as ev

MAX_LINES = 10_000
NUMBERS_FROM_WIDTH = 100
"""Line numbers are worth their columns on a wide screen alone."""


class Entry(Struct, frozen=True):
    """One row: a line of the log, or a note of ours."""

    text: str
    line_no: int | None = None
    living: bool = False
    note: bool = False


class LogPane(ScrollView, can_focus=True):
    """Rows of the log. `following` keeps the newest in sight."""

    ALLOW_SELECT = False
    COMPONENT_CLASSES = {"log-pane--note", "log-pane--number", "log-pane--living"}

    following: reactive[bool] = reactive(True)

    def __init__(self, mask: Callable[[str], str], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._mask = mask
        self._rows: deque[Entry] = deque(maxlen=MAX_LINES)
        self._widest = 0
        self._seen = 0
        self._unseen = 0
        self.border_title = "log"

    def __len__(self) -> int:
        return len(self._rows)

    def __bool__(self) -> bool:
        return True  # an empty pane is a pane

    # ------------------------------------------------------------------------------- rows

    def extend(self, lines: Sequence[ev.Log]) -> None:
        """Take lines of the log, oldest first."""
        rows: list[Entry] = []
        for line in lines:
            if line.dropped:
                rows.append(
                    Entry(f"… {line.dropped:,} lines came too fast to be shown; the log file has them", note=True)
                )
            row = Entry(line.text, line.line_no, line.living)
            if rows and _continues(rows[-1], row):
                rows[-1] = row
            else:
                rows.append(row)
        self._append(rows)

    def note(self, text: str) -> None:
        """Put a sentence of our own between the lines."""
        self._append([Entry(text, note=True)])

    def _append(self, rows: list[Entry]) -> None:
        if not rows:
            return
        if self._rows and _continues(self._rows[-1], rows[0]):
            self._rows.pop()
            self._seen -= 1
        evicted = max(0, len(self._rows) + len(rows) - MAX_LINES)
        self._rows.extend(rows)
        self._seen += sum(not row.note for row in rows)
        self._widest = max(self._widest, *(_cells(row.text) for row in rows))
        following = self.following
        self.virtual_size = Size(self._widest + self._gutter, len(self._rows))
        if following:
            self._to_end()
        else:
            self._unseen += len(rows)
            if evicted:
                self.scroll_to(y=max(0, self.scroll_offset.y - evicted), animate=False, force=True)
        self._tell()
        self.refresh()

    @property
    def _gutter(self) -> int:
        return 9 if self.size.width >= NUMBERS_FROM_WIDTH else 0

    # ------------------------------------------------------------------------------- following

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Textual's hook: whoever scrolls up pauses the following, whoever comes to the end resumes it."""
        super().watch_scroll_y(old_value, new_value)
        self.following = round(new_value) >= self.max_scroll_y

    def watch_following(self, following: bool) -> None:
        """Textual's hook: `following` changed."""
        if following:
            self._unseen = 0
            self._to_end()
        self._tell()

    def on_resize(self, _event: events.Resize) -> None:
        """Textual's hook: a smaller pane must not lose sight of the newest line."""
        self.virtual_size = Size(self._widest + self._gutter, len(self._rows))
        if self.following:
            self._to_end()

    def pan(self, steps: int) -> None:
        """Move sideways by half a screen a step: by single columns nobody reaches the end of a long line."""
        self.scroll_to(x=self.scroll_offset.x + steps * self.size.width // 2, animate=False, force=True)

    def _to_end(self) -> None:
        # By force: the first lines beyond the screen come before the layout has allowed to scroll.
        self.scroll_to(y=self.max_scroll_y, animate=False, force=True)

    def _tell(self) -> None:
        state = "following" if self.following else "paused, f follows"
        new = f" · {self._unseen:,} new" if self._unseen and not self.following else ""
        self.border_subtitle = f"{state}{new} · {self._seen:,} {'line' if self._seen == 1 else 'lines'}"

    # ------------------------------------------------------------------------------- drawing

    def render_line(self, y: int) -> Strip:
        """Textual's hook: one row of the screen."""
        scroll_x, scroll_y = self.scroll_offset
        width, style = self.size.width, self.rich_style
        if scroll_y + y >= len(self._rows):
            return Strip.blank(width, style)
        row = self._rows[scroll_y + y]
        # Masked whole, cut afterwards: half a secret would pass the mask.
        text = self._mask(row.text)[: scroll_x + width]
        kind = "note" if row.note else ("living" if row.living else "")
        body = self.get_component_rich_style(f"log-pane--{kind}") if kind else style
        segments = [Segment(text, body)]
        if self._gutter:
            number = f"{row.line_no:>7}  " if row.line_no is not None else " " * self._gutter
            segments.insert(0, Segment(number, self.get_component_rich_style("log-pane--number")))
        return Strip(segments).crop_extend(scroll_x, scroll_x + width, style)


def _continues(before: Entry, after: Entry) -> bool:
    """A progress bar that is redrawn replaces its last state, by its line's number."""
    return before.living and before.line_no == after.line_no


def _cells(text: str) -> int:
    return len(text) if text.isascii() else cell_len(text)
