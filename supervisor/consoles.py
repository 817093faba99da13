"""The commands on a console: of one profile, of several, the start screen. Called by cli.py alone, as commands.py is.

Every profile is found and checked before anything of any is launched.
"""

from __future__ import annotations

import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from supervisor.adapters.clock import SystemClock
from supervisor.beside import masker, notifier_of, recorder_of, secrets_of
from supervisor.building import engines, links_of, load_profile, make_session
from supervisor.core.command import learn
from supervisor.errors import ProfileError, SupervisorError, UsageError

if TYPE_CHECKING:
    from supervisor.profile import Profile
    from supervisor.profiles import Known
    from supervisor.supervise.live_runs import Asked, Told
    from supervisor.supervise.plan import Plan
    from supervisor.tui.start_list import Entry
    from supervisor.tui.watcher import Watcher


def is_terminal() -> bool:
    """Whether there is one to show a console on."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def console(options: Namespace) -> int:
    """The console on the given profiles: one screen, or the table of all."""
    if not is_terminal():
        raise UsageError("the console needs a terminal; for scripts: supervisor --headless PROFILE")
    if len(options.profiles) > 1:
        for name in ("variant", "record"):
            if getattr(options, name):
                raise UsageError(f"--{name} belongs to one PROFILE, not to {len(options.profiles)}")
    _check_layout(options)
    loaded = _every(options.profiles, options.variant)
    distinct([(name, profile.name, profile.node.host) for name, profile in loaded])
    clock = SystemClock()
    launch = not options.no_launch
    watchers = [watcher(name, profile, options, clock, launch=launch) for name, profile in loaded]
    return _run(watchers, None, options)


def start(options: Namespace) -> int | None:
    """The start screen. None: the demonstration was chosen there."""
    from supervisor.tui.screens.start import DEMO_WANTED

    code = _run((), StartPoint(options), options)
    return None if code == DEMO_WANTED else code


def _check_layout(options: Namespace) -> None:
    """Before anything is made: a record of a console that never opened would stand in the way of the next one."""
    from supervisor import profile
    from supervisor.tui.layout import check_name

    if options.layout:
        check_name(options.layout, profile.config_dir(os.environ))


def _run(watchers: Sequence[Watcher], begin: StartPoint | None, options: Namespace) -> int:
    from supervisor import profile
    from supervisor.tui.app import run_console

    return run_console(watchers, start=begin, layout_name=options.layout, config=profile.config_dir(os.environ))


def _every(names: Sequence[str], variant: str | None) -> list[tuple[str, Profile]]:
    """All profiles, or the complaints about all that cannot be used."""
    out: list[tuple[str, Profile]] = []
    wrong: list[UsageError] = []
    for name in names:
        try:
            out.append((name, load_profile(name, variant)))
        except UsageError as error:
            wrong.append(error)
    if len(wrong) == 1:
        raise wrong[0]
    if wrong:
        raise UsageError("\n".join(map(str, wrong)))
    return out


def distinct(profiles: Sequence[tuple[str, str, str]]) -> None:
    """Raises `UsageError` where two of (typed, name, node) cannot be watched side by side."""
    seen: dict[str, tuple[str, str]] = {}
    for typed, name, node in profiles:
        if name not in seen:
            seen[name] = (typed, node)
            continue
        other, where = seen[name]
        if other == typed:
            raise UsageError(f"{typed} is given twice")
        if where == node:
            text = f"{other} and {typed} are both called {name!r} on {node}: they would be one run there, not two"
        else:
            text = f"{other} and {typed} are both called {name!r}: side by side they could not be told apart"
        raise UsageError(f"{text}; give one of them another name")


def watcher(typed: str, loaded: Profile, options: Namespace, clock: SystemClock, *, launch: bool) -> Watcher:
    """A session of a profile as the console sees it, not begun. Raises `ProfileError`, `UsageError`."""
    from supervisor.tui.watcher import Watcher

    session, plan = make_session(
        loaded, typed, clock, launch=launch, stays=True, force=options.force, clean=options.clean
    )
    notifier, mask = notifier_of(loaded, session.desk, plan)
    return Watcher(
        session,
        title=loaded.name,
        node=loaded.node.host,
        mask=mask,
        path=str(loaded.file),
        notifier=notifier,
        recorder=recorder_of(options, loaded, mask),
    )


# ------------------------------------------------------------------------------------------- the start screen


class StartPoint:
    """Implements `tui.screens.start.Start`: the profiles of this folder and of the configuration folder."""

    def __init__(self, options: Namespace) -> None:
        self.clock = SystemClock()
        self._options = options
        self._asked: list[Asked] = []
        self._unasked: list[Told] = []

    def entries(self) -> Sequence[Entry]:
        """The profiles as their files stand now."""
        from supervisor import profile, profiles

        found = profiles.known(cwd=Path.cwd(), config_dir=profile.config_dir(os.environ), engines=engines())
        out: list[Entry] = []
        usable: list[tuple[Profile, Plan]] = []
        for item in found:
            entry, plan = _entry(item)
            out.append(entry)
            if plan is not None and item.profile is not None:
                usable.append((item.profile, plan))
        self._asked, self._unasked = _nodes(usable)
        return out

    async def ask(self, on_told: Callable[[Told], None]) -> None:
        """Ask the nodes of the profiles that were read last."""
        from supervisor.supervise.live_runs import ask

        for told in self._unasked:
            on_told(told)
        await ask(self._asked, clock=self.clock, on_told=on_told)

    def open(self, path: str, *, launch: bool) -> Watcher:
        """A session of this profile. `--no-launch` holds here too."""
        loaded = load_profile(path, None)
        return watcher(path, loaded, self._options, self.clock, launch=launch and not self._options.no_launch)


def _entry(item: Known) -> tuple[Entry, Plan | None]:
    """What the start screen shows of a file, and its plan where it can be used."""
    from supervisor.node.redact import redact_argv
    from supervisor.profiles import problem
    from supervisor.tui.start_list import Entry
    from supervisor.wiring import notify_plan, plan_of

    loaded, path = item.profile, str(item.path)
    if loaded is None:
        return Entry(path=path, typed=item.typed, name=item.path.stem, error=item.error), None
    try:
        plan = plan_of(loaded, item.typed)
        notify_plan(loaded)
    except ProfileError as error:
        return Entry(path=path, typed=item.typed, name=loaded.name, error=problem(error)), None
    mask = masker(secrets_of(plan))
    try:
        model = learn(loaded.argv, plan.engine.flags).model or ""
    except ValueError:
        model = ""  # the launch says what is wrong with the command
    words = [word if word.isprintable() else ascii(word) for word in redact_argv(loaded.argv)]
    entry = Entry(
        path=path,
        typed=item.typed,
        name=loaded.name,
        node=loaded.node.host,
        state_dir=loaded.node.state_dir,
        engine=plan.engine.name,
        model=mask(model),
        command=mask(" ".join(word if "$" in word else shlex.quote(word) for word in words)),
    )
    return entry, plan


def _nodes(usable: Sequence[tuple[Profile, Plan]]) -> tuple[list[Asked], list[Told]]:
    """Each node once, as the first of its profiles reaches it; and those to which there is no way at all."""
    from supervisor.supervise.live_runs import Asked, Told

    groups: dict[str, list[tuple[Profile, Plan]]] = {}
    for loaded, plan in usable:
        groups.setdefault(loaded.node.host, []).append((loaded, plan))
    asked: list[Asked] = []
    unasked: list[Told] = []
    for host, group in groups.items():
        try:
            make_link = links_of(group[0][0])
        except SupervisorError as error:
            unasked.append(Told(host=host, why=str(error), done=True))
            continue
        asked.append(
            Asked(
                host=host,
                make_link=make_link,
                python=next((plan.python for _, plan in group if plan.python), None),
                command_python=next((plan.command_python for _, plan in group if plan.command_python), None),
                state_dirs=tuple(dict.fromkeys(plan.state_dir for _, plan in group)),
            )
        )
    return asked, unasked
