"""Builds what one profile needs: the profile itself, links to its node, its session. For the commands and the console.

Nothing here touches a node, and every heavy import is late.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from supervisor.adapters.clock import SystemClock
from supervisor.errors import EngineError

if TYPE_CHECKING:
    from supervisor.adapters.base import Link
    from supervisor.core.known import Known
    from supervisor.profile import Profile
    from supervisor.supervise.plan import Plan
    from supervisor.supervise.session import Session

COMMANDS = ("status", "logs", "stop", "restart", "gpus", "zombies", "diagnose", "demo")
"""The commands that have a name; each is a function of commands.py."""
LOCAL = "local"


def who() -> str:
    """Who asks, for the records on the node."""
    import getpass

    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = str(os.getuid())
    return f"{user}@{os.uname().nodename}"


def link_maker(host: str, host_key: str | None = None, keepalive_s: float | None = None) -> Callable[[], Link]:
    """Makes links to a node; the target is checked here, before anything is done."""
    if host == LOCAL:
        from supervisor.adapters.local import LocalLink

        return LocalLink
    from supervisor.adapters.ssh_config import parse_target

    parse_target(host)  # a malformed target is told now

    def make() -> Link:
        from supervisor.adapters.ssh import SshLink  # asyncssh only now: a console is painted before it connects

        if keepalive_s is None:
            return SshLink(host, host_key=host_key)
        return SshLink(host, host_key=host_key, keepalive_s=keepalive_s)

    return make


def engines() -> tuple[str, ...]:
    """The names that `engine` of a profile may have.

    Every file of the user's own is read here: a wrong one is told before anything is launched. Raises `EngineError`.
    """
    from supervisor.engines import loader

    try:
        loader.load(loader.GENERIC)
        return (*loader.names(), loader.GENERIC)
    except ValueError as error:
        raise EngineError(str(error)) from error


def known_holders() -> Known:
    """Who holds GPU memory, by name. Raises `EngineError`."""
    from supervisor.engines import loader

    engines()
    return loader.known_holders()


def load_profile(text: str, variant: str | None) -> Profile:
    """Find and load a profile."""
    from supervisor import profile

    path = profile.find(text, cwd=Path.cwd(), config_dir=profile.config_dir(os.environ), commands=COMMANDS)
    return profile.load(path, variant=variant, engines=engines())


def make_session(loaded: Profile, name: str, clock: SystemClock, **more: Any) -> tuple[Session, Plan]:
    """The session of one profile. `name` is what the user typed."""
    from supervisor.supervise import history
    from supervisor.supervise.session import Session
    from supervisor.wiring import plan_of

    plan = plan_of(loaded, name)
    session = Session(plan, links_of(loaded), clock=clock, by=who(), history=history.folder(), **more)
    for text in loaded.warnings:
        session.desk.warn(text)
    if loaded.dropped:
        session.desk.warn(f"variant {loaded.variant} drops: {' '.join(loaded.dropped)}")
    return session, plan


def links_of(loaded: Profile) -> Callable[[], Link]:
    """Makes links to a profile's node."""
    return link_maker(loaded.node.host, loaded.node.host_key, loaded.node.keepalive_s)
