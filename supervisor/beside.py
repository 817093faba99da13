"""What goes along with a session on the operator's side: what is masked, who is told, what is recorded.

Built for commands.py from a profile and its options; nothing here touches a node.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from supervisor.adapters.clock import SystemClock

if TYPE_CHECKING:
    from supervisor.profile import Profile
    from supervisor.supervise.desk import Desk
    from supervisor.supervise.notify import Notifier
    from supervisor.supervise.plan import Plan
    from supervisor.supervise.record import Recorder

Mask = Callable[[str], str]


def masker(secrets: Iterable[str]) -> Mask:
    """Takes known secrets out of a line: engines print their arguments, keys and all."""
    values = sorted({value for value in secrets if len(value) >= 4}, key=len, reverse=True)

    def mask(line: str) -> str:
        for value in values:
            if value in line:
                line = line.replace(value, "***")
        return line

    return mask


def secrets_of(plan: Plan) -> list[str]:
    """What must not be shown of a plan."""
    found = [secret.reveal() for secret in plan.secrets]
    return [*found, plan.api_key.reveal()] if plan.api_key is not None else found


def notifier_of(loaded: Profile, desk: Desk, plan: Plan) -> tuple[Notifier, Mask]:
    """Who is told of what happens to a profile's server, and what takes every secret out of a text.

    Raises `ProfileError` for a variable of [notify] that is not set here.
    """
    from supervisor.supervise.notify import Notifier
    from supervisor.wiring import notify_plan

    notify = notify_plan(loaded)
    mask = masker([*secrets_of(plan), *(secret.reveal() for secret in notify.secrets)])
    told = Notifier(notify, profile=loaded.name, node=loaded.node.host, clock=desk.clock, mask=mask, warn=desk.warn)
    return told, mask


def recorder_of(options: Namespace, loaded: Profile, mask: Mask) -> Recorder | None:
    """What `--record` of a console writes to. Raises `UsageError` for a file that exists."""
    if not options.record:
        return None
    from supervisor.supervise.record import Recorder

    now = SystemClock().now()
    return Recorder(options.record, at=now, mask=mask, profile=loaded.name, node=loaded.node.host)
