"""The keys that texts name, as they are called on this console: a user may have others. Pure.

The usual ones stand here a second time since the texts know no screens; a test holds them to the bindings.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

USUAL: Mapping[str, str] = {
    "console.restart": "r",
    "console.stop": "k",
    "console.zombies": "z",
    "console.pause": "p",
    "console.transaction": "t",
    "console.finding": "enter",
    "console.copy": "y",
    "console.dismiss": "x",
    "log.follow": "f",
    "log.leave": "esc",
    "log.fetch": "F",
    "log.next_match": "n",
    "log.previous_match": "N",
    "log.next_error": "e",
    "log.previous_error": "E",
    "app.quit": "q",
    "start.open": "enter",
    "start.watch": "w",
}


class Hints(Struct, frozen=True):
    """What the user calls them."""

    own: Mapping[str, str] = {}
    """Those that are not the usual ones: id → key."""

    def of(self, binding_id: str) -> str:
        """The key of a binding."""
        return self.own.get(binding_id) or USUAL[binding_id]


USUAL_HINTS = Hints()
