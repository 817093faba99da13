"""Every screen and pane with keys of its own: what keys.toml may name. Imported only where there is such a file."""

from __future__ import annotations

from textual.binding import Binding
from textual.dom import DOMNode

from supervisor.tui.screens import confirm, help, run, start, table, transaction, zombies
from supervisor.tui.widgets import find_bar, log_pane

OWNERS: tuple[type[DOMNode], ...] = (
    run.RunScreen,
    confirm.ConfirmScreen,
    help.HelpScreen,
    table.TableScreen,
    start.StartScreen,
    start.LaunchScreen,
    transaction.TransactionScreen,
    zombies.ZombiesScreen,
    log_pane.LogPane,
    find_bar.FindBar,
)


def binding_ids(*more: type[DOMNode]) -> set[str]:
    """The ids of every binding of the console."""
    return {item.id for owner in (*OWNERS, *more) for item in owner.BINDINGS if isinstance(item, Binding) and item.id}
