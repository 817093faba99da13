"""What a user asks of a server, from the question to the transaction: the same from every screen that shows one.

Each asks before it signals anything, carries the order out as a worker of the app, and shows it live to its proof.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from textual.app import App

from supervisor.tui.order import Order
from supervisor.tui.screens.confirm import ConfirmScreen
from supervisor.tui.screens.transaction import TransactionScreen
from supervisor.tui.watcher import Watcher

SUPERVISING = "supervising"
"""The group of the workers that run sessions."""
_WORK = {"stop": Watcher.stop, "restart": Watcher.restart}


def supervise(app: App[Any], watcher: Watcher) -> None:
    """Run the watcher's session beside the screens."""
    app.run_worker(watcher.supervise(), group=SUPERVISING)


def stop(app: App[Any], watcher: Watcher) -> None:
    """Ask, then stop the server."""
    if _refused(app, watcher):
        return
    if watcher.session.attendance is None:
        say(app, watcher, "No run is attended: there is nothing to stop.")
    else:
        _ask(app, watcher, "stop")


def restart(app: App[Any], watcher: Watcher) -> None:
    """Ask, then stop and launch; where supervision has ended, take it up again, which signals nothing."""
    if _refused(app, watcher):
        return
    if watcher.error:
        supervise(app, watcher)
    else:
        _ask(app, watcher, "restart")


def zombies(app: App[Any], watcher: Watcher) -> None:
    """Show what is left over on the node, and end what is marked."""
    from supervisor.tui.screens.zombies import Chosen, ZombiesScreen

    def answered(chosen: Chosen | None) -> None:
        if chosen is not None and chosen.targets and not show(app, watcher):
            _carry_out(app, watcher, watcher.clear(chosen.targets, chosen.spared))

    if not _refused(app, watcher) and not show(app, watcher):
        app.push_screen(ZombiesScreen(watcher.mask, node=watcher.node, look=watcher.session.left_overs), answered)


def verify(app: App[Any], watcher: Watcher) -> None:
    """Ask the server for a generation now."""
    if _refused(app, watcher):
        return

    async def work() -> None:
        say(app, watcher, await watcher.verify())

    app.run_worker(work(), group="order")


def show(app: App[Any], watcher: Watcher, *, ended: bool = False) -> bool:
    """Bring the transaction of an order back; False: there is none. `ended`: one that is over as well."""
    order = watcher.order
    if order is None or not (order.under_way or ended):
        return False
    app.push_screen(TransactionScreen(watcher, order))
    return True


def say(app: App[Any], watcher: Watcher, text: str, *, bad: bool = False) -> None:
    """A sentence for the moment."""
    app.notify(watcher.mask(text), severity="error" if bad else "information", markup=False)


def _refused(app: App[Any], watcher: Watcher) -> bool:
    """Whether nothing can be ordered here; that is said."""
    if watcher.refusal:
        say(app, watcher, watcher.refusal)
    return bool(watcher.refusal)


def _ask(app: App[Any], watcher: Watcher, kind: str) -> None:
    def answered(yes: bool | None) -> None:
        if yes and not show(app, watcher):
            _carry_out(app, watcher, _WORK[kind](watcher))

    if not show(app, watcher):
        app.push_screen(ConfirmScreen(watcher, kind), answered)


def _carry_out(app: App[Any], watcher: Watcher, work: Coroutine[None, None, Order]) -> None:
    async def carry_out() -> None:
        working = asyncio.create_task(work)
        try:
            await asyncio.sleep(0)  # its order stands from its first step on
            show(app, watcher, ended=True)
            order = await working
        finally:
            working.cancel()
        seen = any(isinstance(screen, TransactionScreen) and screen.order is order for screen in app.screen_stack)
        if not seen:
            say(app, watcher, order.text, bad=not order.good)

    app.run_worker(carry_out(), group="order")
