"""Tells the user's own hooks of what happened: once a change, whichever front end shows the run.

What is worth a message is `core/notices.py`'s; how a hook is run is `adapters/hook.py`'s. Bell, title and the
terminal's own notification belong to a front end that has a terminal: it gets the notices from `take`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from supervisor.adapters.base import Clock
from supervisor.core import events as ev
from supervisor.core import url as urls
from supervisor.core.command import Secret
from supervisor.core.event_json import iso
from supervisor.core.notices import WANTED, Notice, NoticeKind, Notices

HOOKS_S = 12.0
"""How long whoever ends waits for hooks under way; each has its own, shorter limit."""


class NotifyPlan(Struct, frozen=True, kw_only=True):
    """What a profile asks for, with the operator's own variables filled in."""

    argv: tuple[str, ...] = ()
    """The command; empty: none."""
    webhook: Secret | None = None
    bell: bool = True
    terminal: bool = True
    title: bool = True
    on: frozenset[str] = frozenset(kind.value for kind in WANTED)
    secrets: tuple[Secret, ...] = ()
    """What must not be shown of it, the webhook too."""

    def __repr__(self) -> str:
        return f"NotifyPlan(command={bool(self.argv)}, webhook={self.webhook is not None}, on={sorted(self.on)})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:  # a command may hold a secret
        return [("command", bool(self.argv)), ("webhook", self.webhook is not None), ("on", sorted(self.on))]

    def wants(self, kind: NoticeKind) -> bool:
        """Whether the profile names this kind; a recovery goes with `degraded`."""
        return (NoticeKind.DEGRADED if kind is NoticeKind.RECOVERED else kind).value in self.on


class Notifier:
    """The notices of one profile, and its hooks.

    Args:
        profile: its name.
        node: as the user named it.
        mask: takes secrets out of a text.
        warn: is told of a hook that failed.
    """

    def __init__(
        self,
        plan: NotifyPlan,
        *,
        profile: str,
        node: str,
        clock: Clock,
        mask: Callable[[str], str],
        warn: Callable[[str], None],
    ) -> None:
        self.plan = plan
        self._notices = Notices(profile)
        self._profile = profile
        self._node = node
        self._clock = clock
        self._mask = mask
        self.warn = warn
        self._hooks: set[asyncio.Task[None]] = set()
        self._later: asyncio.Task[None] | None = None
        self._on_notice: Callable[[Notice], None] = lambda _notice: None

    def on_notice(self, told: Callable[[Notice], None]) -> None:
        """Have each notice told to a front end with a terminal, also those that come later by themselves."""
        self._on_notice = told

    def ordered(self, kind: str) -> None:
        """The user has just given an order (`stop`, `restart`, `clear`)."""
        self._notices.ordered(kind)

    def order_over(self) -> None:
        """The order has ended."""
        self._notices.order_over()

    def take(self, events: Iterable[ev.AnyEvent]) -> None:
        """Feed it each batch of the stream. Starts the hooks of what is news; never waits."""
        self._tell(self._notices.take(events))

    async def finish(self, hurry: asyncio.Event | None = None, *, limit_s: float = HOOKS_S) -> None:
        """Wait for the hooks under way, each of which has its limit; `hurry` ends that, and them."""
        if self._later is not None:
            self._later.cancel()
        if not self._hooks:
            return
        hurried = asyncio.create_task((hurry or asyncio.Event()).wait())
        ended = asyncio.gather(*self._hooks, return_exceptions=True)
        try:
            await asyncio.wait((ended, hurried), timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (hurried, *self._hooks):
                task.cancel()
            await asyncio.gather(hurried, *self._hooks, return_exceptions=True)

    # ------------------------------------------------------------------------------- each notice

    def _tell(self, notices: Iterable[Notice]) -> None:
        for notice in notices:
            if not self.plan.wants(notice.kind):
                continue
            masked = msgspec.structs.replace(notice, title=self._mask(notice.title), text=self._mask(notice.text))
            self._on_notice(masked)
            self._start_hooks(masked)
        if self._notices.deadline is not None and (self._later is None or self._later.done()):
            self._later = asyncio.create_task(self._wait_for_quiet())

    async def _wait_for_quiet(self) -> None:
        while (deadline := self._notices.deadline) is not None:
            await self._clock.sleep(max(0.01, deadline - self._clock.now()))
            self._tell(self._notices.tick(self._clock.now()))

    def _start_hooks(self, notice: Notice) -> None:
        if not self.plan.argv and self.plan.webhook is None:
            return
        from supervisor.adapters import hook  # late: most profiles have none

        document = self.document(notice)
        if self.plan.argv:
            given = msgspec.json.encode(document) + b"\n"
            env = environment(document)
            self._beside("command", lambda: hook.run_command(self.plan.argv, given, env))
        if self.plan.webhook is not None:
            url = urls.parse(self.plan.webhook.reveal())
            self._beside("webhook", lambda: hook.post(url, document))

    def _beside(self, what: str, work: Callable[[], Awaitable[str | None]]) -> None:
        async def run() -> None:
            try:
                problem = await work()
            except Exception as error:  # a hook is beside the matter: it must neither end a console nor write over it
                problem = f"{type(error).__name__}: {error}"
            if problem is not None:
                self.warn(self._mask(f"the {what} of [notify] failed: {problem}"))

        task = asyncio.create_task(run())
        self._hooks.add(task)
        task.add_done_callback(self._hooks.discard)

    def document(self, notice: Notice) -> dict[str, object]:
        """What a hook is told. `text` holds all of it in words, as chat services want it."""
        return {
            "kind": "notice",
            "at": iso(notice.at),
            "event": notice.kind.value,
            "profile": self._profile,
            "node": self._node,
            "phase": notice.phase.value,
            "run_id": notice.run_id,
            "title": notice.title,
            "cause": notice.text,
            "text": f"{notice.title} on {self._node}: {notice.text}",
        }


def environment(document: Mapping[str, object]) -> dict[str, str]:
    """The few variables that a command is given beside its input.

    None of them may be called INFERENCE_SUPERVISOR_RUN: by that one a node knows the processes of a run, and a hook on
    a local node would be taken for a part of the server.
    """
    names = {"EVENT": "event", "PROFILE": "profile", "NODE": "node", "TEXT": "text"}
    return {f"INFERENCE_SUPERVISOR_{name}": str(document[key]).replace("\0", "") for name, key in names.items()}
