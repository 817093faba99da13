"""When Python's garbage collector goes through everything: in a pause of the user's, not between a key and its picture.

A full collection walks every object of the process. With Textual and asyncssh loaded that is 100 ms, and in a flood one
came every two seconds, in the middle of whatever was done. What has been there since the start is therefore taken out
of its way, and the full collections are made where nobody waits. The young generations are left to themselves.
"""

from __future__ import annotations

import gc

SETTLED_S = 3.0
"""After so long all that is loaded at the start is loaded."""
QUIET_S = 1.0
"""No key for so long: nobody waits for a picture."""
DUE, OVERDUE = 5, 30
"""Collections of the middle generation since the last full one: time for one, and time whoever waits."""
NEVER = 1_000_000


class Sweeper:
    """Tell it when somebody is at the keyboard; let it look now and then. `begin` changes the whole process."""

    def __init__(self) -> None:
        self._usual: tuple[int, int, int] | None = None
        self._settle_at: float | None = None
        self._busy_at = float("-inf")

    def begin(self, now: float) -> None:
        """From now on the full collections are this one's."""
        self._usual = gc.get_threshold()
        gc.set_threshold(self._usual[0], self._usual[1], NEVER)
        self._settle_at = now + SETTLED_S

    def busy(self, now: float) -> None:
        """A key was pressed. Another thread may tell it."""
        self._busy_at = now

    def look(self, now: float) -> bool:
        """Collect, where it is due. True where it was done."""
        if self._usual is None:
            return False
        due = gc.get_count()[2]
        settling = self._settle_at is not None and now >= self._settle_at
        quiet = now - self._busy_at >= QUIET_S
        if not (quiet and (settling or due >= DUE)) and due < OVERDUE:
            return False
        gc.collect()
        if settling:
            gc.freeze()
            self._settle_at = None
        return True

    def end(self) -> None:
        """As it was before `begin`."""
        if self._usual is not None:
            gc.set_threshold(*self._usual)
            gc.unfreeze()
            self._usual = None
