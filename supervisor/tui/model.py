"""What the console knows of one session: the hub's view, the histories, this run's answers, where each phase began in
the log. Fed with batches of the stream; every `format_*` function draws from it.

It has no clock, does no I/O, decides nothing, and knows no Textual.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct

from supervisor.core import events as ev
from supervisor.core.events import Phase
from supervisor.core.trail import Trail
from supervisor.supervise.hub import View
from supervisor.tui.hints import Hints
from supervisor.tui.pieces import Mask

MARKS = 200


class Mark(Struct, frozen=True):
    """Where something began in the log: at the first line that was written after it, which may be still to come."""

    line_no: int
    text: str


class SessionModel:
    """One session as the console shows it.

    Begin with `take(blocks, subscription.view, answers)`: the first call also takes what the view knows already.

    Args:
        title: the profile's name.
        node: what the user calls the node.
        mask: takes secrets out of a text. The format functions call it before they cut anything.
    """

    def __init__(self, title: str = "", node: str = "", mask: Mask = str) -> None:
        self.title = title
        self.node = node
        self.mask = mask
        self.view = View()
        self.trail = Trail()
        self.answers: Mapping[str, int] = {}
        """Of this run, by status or kind."""
        self.marks: list[Mark] = []
        """In the order of the log; phases that began at the same line share one."""
        self.error = ""
        """Why supervision has ended, empty while it goes on. Whoever supervises sets it."""
        self.hints = Hints()
        """What the user calls the keys. Whoever shows the session sets it."""
        self.read: ev.Warning_ | None = None
        """The last warning that the user has put away."""
        self.rtt_ms: float | None = None
        """The link's round-trip time. Whoever supervises sets it."""
        self._begun = False
        self._before: Counter[str] = Counter()  # the answers of earlier runs
        self._seen: Counter[str] = Counter()
        self._line: int | None = None  # where the log's next line begins, None while that is not known for this run
        self._pending: list[str] = []

    def take(self, batch: Sequence[ev.AnyEvent], view: View, answers: Mapping[str, int]) -> None:
        """One batch of the stream, the view that it came to, and the session's answers up to now."""
        if not self._begun:
            self._begun = True
            self.trail.begin(view.gpu, view.health, view.progress)
        for event in batch:
            match event:
                case ev.LogBlock():
                    self._position(event.line_no, event.line_no + event.lines, fresh=event.fresh)
                case ev.Log():
                    if event.line_no is not None:
                        self._position(event.line_no, event.line_no + (not event.living))
                case ev.PhaseChanged():
                    self._phase(event)
                case _:
                    pass
            self.trail.take(event)
        self._seen = Counter(answers)
        self.answers = self._seen - self._before
        self.view = view

    def warnings(self, *, unread: bool = False) -> Sequence[ev.Warning_]:
        """Those of this run; `unread`: without those that were put away."""
        every, changes = self.view.warnings, self.view.changes
        if unread and self.read in every:
            every = every[len(every) - every[::-1].index(self.read) :]
        return [warning for warning in every if not changes or warning.at >= changes[0].at]

    def put_away(self) -> bool:
        """The warnings up to now were read; False: there are none to be put away."""
        found = self.warnings(unread=True)
        if found:
            self.read = found[-1]
        return bool(found)

    def _phase(self, event: ev.PhaseChanged) -> None:
        if event.to is Phase.PREFLIGHT:
            # As they stood after the batch before: this one may already have answers of the new run.
            self._before = self._seen
            self.marks, self._pending = [], []
            self._line = None  # the new run may write another file
        self._pending.append(ev.LABELS[event.to])
        if self._line is not None:
            self._mark(self._line)

    def _position(self, line_no: int, after: int, *, fresh: bool = False) -> None:
        """The log has been read from `line_no` on, and goes on at `after`."""
        if fresh or (self._line is not None and line_no < self._line - 1):
            # Another file, or the same one from its start: numbers begin anew, for what began after the old one's end.
            after_the_end = [mark.text for mark in self.marks if self._line is not None and mark.line_no >= self._line]
            self.marks, self._pending = [], [*after_the_end, *self._pending]
        if self._pending:
            self._mark(line_no)
        self._line = after

    def _mark(self, line_no: int) -> None:
        text = " · ".join(self._pending)
        self._pending = []
        if self.marks and self.marks[-1].line_no == line_no:
            text = f"{self.marks.pop().text} · {text}"
        self.marks.append(Mark(line_no, text))
        del self.marks[:-MARKS]
