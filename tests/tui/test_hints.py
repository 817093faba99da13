"""The keys that texts name are the keys that there are."""

from __future__ import annotations

from textual.binding import Binding

from supervisor.tui.app import ConsoleApp
from supervisor.tui.hints import USUAL, Hints
from supervisor.tui.log_keys import KEYS
from supervisor.tui.screens.run import RunScreen
from supervisor.tui.screens.start import StartScreen

WORDS = {"escape": "esc", "enter": "enter"}


def test_the_usual_keys_are_those_of_the_bindings() -> None:
    every = (*RunScreen.BINDINGS, *StartScreen.BINDINGS, *ConsoleApp.BINDINGS, *KEYS)
    bound = {item.id: item.key for item in every if isinstance(item, Binding)}
    assert {name: WORDS.get(bound[name], bound[name]) for name in USUAL} == USUAL


def test_the_users_own_key_is_named() -> None:
    hints = Hints({"console.stop": "^k"})
    assert (hints.of("console.stop"), hints.of("console.restart")) == ("^k", "r")
