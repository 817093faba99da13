"""Builds the concrete parts for one command, and runs it. Called by cli.py alone; every heavy import is late.

A command here is a function from its parsed options to an exit code. What a wait means is `core/wait.py`'s.
"""

from __future__ import annotations

import asyncio
import os
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from supervisor.adapters.clock import SystemClock
from supervisor.beside import masker, notifier_of, secrets_of
from supervisor.building import engines, known_holders, link_maker, links_of, load_profile, make_session, who
from supervisor.core import durations
from supervisor.core import events as ev
from supervisor.core.wait import Limits, StatusWaiter
from supervisor.errors import UsageError

if TYPE_CHECKING:
    from supervisor.adapters.base import Link
    from supervisor.core.engine import Engine
    from supervisor.headless.nodes import Node
    from supervisor.headless.run import Options
    from supervisor.supervise.connection import Connection

Handler = Callable[[Namespace], int]

DEFAULT_TIMEOUT_S = 1800.0
DEFAULT_LINK_TIMEOUT_S = 300.0
STATUS_TIMEOUT_S = 45.0


# ------------------------------------------------------------------------------------------- shared parts


def engine_of(name: str | None) -> Engine:
    """An engine by its name. Raises `UsageError` with the nearest one."""
    from supervisor.engines import loader

    if name is None:
        return loader.plain()
    known = engines()
    try:
        return loader.load(name)
    except KeyError:
        import difflib

        near = difflib.get_close_matches(name, known, n=1)
        hint = f", did you mean {near[0]}?" if near else ""
        raise UsageError(f"no engine is called {name!r} (known: {', '.join(known)}){hint}") from None


def duration(options: Namespace, name: str) -> float | None:
    """A duration option in seconds. Raises `UsageError` that names it."""
    text = getattr(options, name.replace("-", "_"))
    if text is None:
        return None
    try:
        return durations.parse(text)
    except ValueError as error:
        raise UsageError(f"--{name}: {error}") from error


def limits_of(options: Namespace, profile_timeout_s: float | None = None) -> Limits:
    """The limits of a wait, each with the words that name where it came from."""
    given = duration(options, "timeout")
    source = "--timeout" if given else ("ready.timeout of the profile" if profile_timeout_s else "the default timeout")
    return Limits(
        timeout_s=given or profile_timeout_s or DEFAULT_TIMEOUT_S,
        timeout_from=source,
        stall_s=duration(options, "stall"),
        link_timeout_s=duration(options, "link-timeout") or DEFAULT_LINK_TIMEOUT_S,
    )


def shown(options: Namespace, until: ev.Phase, limits: Limits, mask: Callable[[str], str], **more: Any) -> Options:
    """How a wait is shown."""
    from supervisor.headless.run import Options

    if options.events and not options.json:
        raise UsageError("--events belongs to --json")
    if options.record and Path(options.record).exists():
        raise UsageError(f"--record: {options.record} exists, and nothing is overwritten: give another name")
    return Options(
        until=until,
        limits=limits,
        json=options.json,
        all_events=options.events == "all",
        record=options.record,
        mask=mask,
        **more,
    )


# ------------------------------------------------------------------------------------------- --url


def headless_url(options: Namespace) -> int:
    """Wait for any endpoint."""
    from supervisor.core import url as urls

    try:
        url = urls.parse(options.url)
    except urls.UrlError as error:
        raise UsageError(f"--url: {error}") from error
    serving = options.until == "serving"
    if serving and (not options.engine or options.via):
        raise UsageError("--url with --until serving needs --engine, and is not looked at --via a node: give a PROFILE")
    engine = engine_of(options.engine)
    if serving and engine.completion is None:
        raise UsageError(f"--engine {engine.name} has no known way to generate: --until healthy")
    limits = limits_of(options)
    view = shown(options, ev.Phase(options.until or "healthy"), limits, masker(()))
    make_link = link_maker(*_host(options.via)) if options.via else None
    clock = SystemClock()
    began_at = clock.now()

    async def run() -> int:
        from supervisor.adapters import sockets
        from supervisor.adapters.http import Http, environment_proxy
        from supervisor.headless.run import wait
        from supervisor.supervise.desk import Desk
        from supervisor.supervise.probe import Prober
        from supervisor.supervise.watch_url import UrlWatch

        desk = Desk(clock=clock, verify=True, on_phase=lambda _change: None)
        if make_link is not None:
            from supervisor.supervise.watch_via import ViaWatch

            via = ViaWatch(desk, lambda: _connection(make_link, clock, desk.note), url, engine)
            return await wait(desk, via.run, view, began_at=began_at)
        http = Http(sockets.dial, proxy=environment_proxy(url))
        try:
            verifier = None
            if serving and engine.completion is not None:
                from supervisor.supervise.plan import VerifyPlan
                from supervisor.supervise.verify import Verifier

                verifier = Verifier(http, engine.completion, VerifyPlan(), clock=clock, api_key=None)
            watch = UrlWatch(desk, Prober(http, url, engine, ask_models=serving), verifier)
            return await wait(desk, watch.run, view, began_at=began_at)
        finally:
            await http.close()

    return asyncio.run(run())


def _connection(make_link: Callable[[], Link], clock: SystemClock, note: Callable[[ev.AnyFact], None]) -> Connection:
    from supervisor.supervise.connection import Connection

    def on_link(state: ev.LinkState, why: str) -> None:
        note(ev.LinkChanged(at=clock.now(), state=state, why=why))

    return Connection(make_link, clock=clock, on_link=on_link)


def _host(text: str) -> tuple[str, str | None]:
    """A host, or the node of a profile: where HOST stands, a PROFILE may stand."""
    if not _names_a_profile(text):
        return text, None
    loaded = load_profile(text, None)
    return loaded.node.host, loaded.node.host_key


def _names_a_profile(text: str) -> bool:
    from supervisor import profile

    if text.startswith("ssh://") or "@" in text:
        return False
    places = (Path(text), Path(f"{text}.toml"), profile.config_dir(os.environ) / "profiles" / f"{text}.toml")
    return text.endswith(".toml") or any(place.is_file() for place in places)


# ------------------------------------------------------------------------------------------- profiles


def headless_profile(options: Namespace, *, replace: bool = False) -> int:
    """Launch, or take over the live run; wait; exit."""
    clock = SystemClock()
    began_at = clock.now()
    name = options.profiles[0] if options.profiles else options.profile
    loaded = load_profile(name, options.variant)
    session, plan = make_session(
        loaded, name, clock, launch=not options.no_launch, replace=replace, force=options.force, clean=options.clean
    )
    limits = limits_of(options, loaded.ready.timeout_s)
    notifier, mask = notifier_of(loaded, session.desk, plan)
    whose = {"profile": loaded.name, "node": loaded.node.host}
    view = shown(options, ev.Phase(options.until or "serving"), limits, mask, **whose)

    async def run() -> int:
        from supervisor.headless.run import wait

        return await wait(session.desk, session.run, view, began_at=began_at, notifier=notifier)

    return asyncio.run(run())


def status(options: Namespace) -> int:
    """Where a profile's run stands now."""
    clock = SystemClock()
    loaded = load_profile(options.profile, options.variant)
    session, plan = make_session(loaded, options.profile, clock, launch=False)
    limits = Limits(timeout_s=STATUS_TIMEOUT_S, timeout_from="the limit of status", link_timeout_s=20.0)
    view = shown(options, ev.Phase.SERVING, limits, masker(secrets_of(plan)), refused_exit_code=StatusWaiter.OTHER)

    async def run() -> int:
        from supervisor.headless.run import wait

        waiter = StatusWaiter(until=ev.Phase.SERVING, limits=limits, began_at=clock.now())
        return await wait(session.desk, session.run, view, began_at=clock.now(), waiter=waiter)

    return asyncio.run(run())


def restart(options: Namespace) -> int:
    """Stop what runs, then launch and wait."""
    return headless_profile(options, replace=True)


def stop(options: Namespace) -> int:
    """Stop the live run; say what is gone and what is left."""
    from supervisor.headless.stop import run_stop

    clock = SystemClock()
    loaded = load_profile(options.profile, options.variant)
    _, plan = make_session(loaded, options.profile, clock)
    maker = links_of(loaded)
    return asyncio.run(
        run_stop(plan, maker, clock=clock, by=who(), as_json=options.json, mask=masker(secrets_of(plan)))
    )


def logs(options: Namespace) -> int:
    """The log of the run that lives, else of the last one."""
    from supervisor.headless.logs import run_logs

    clock = SystemClock()
    loaded = load_profile(options.profile, options.variant)
    _, plan = make_session(loaded, options.profile, clock)
    maker = links_of(loaded)
    mask = masker(secrets_of(plan))
    return asyncio.run(run_logs(plan, maker, clock=clock, follow=options.follow, mask=mask))


# ------------------------------------------------------------------------------------------- nodes


def node_of(text: str) -> Node:
    """The node that HOST names; of a profile with its interpreter and its records."""
    from supervisor.headless.nodes import Node

    if not _names_a_profile(text):
        return Node(name=text, make_link=link_maker(text))
    loaded = load_profile(text, None)
    place = loaded.node
    return Node(name=text, make_link=links_of(loaded), python=place.python, state_dir=place.state_dir)


def gpus(options: Namespace) -> int:
    """GPU memory and holders of nodes, once or watched."""
    from supervisor.headless.gpus import run_gpus

    nodes = [node_of(text) for text in dict.fromkeys(options.hosts)]
    known = known_holders()
    return asyncio.run(run_gpus(nodes, clock=SystemClock(), known=known, as_json=options.json, watch=options.watch))


def zombies(options: Namespace) -> int:
    """What is left over on a node's GPUs; on demand its end, with proof."""
    from supervisor.headless.zombies import run_zombies, terminal

    if options.yes and options.kill is None:
        raise UsageError("--yes belongs to --kill (see: supervisor zombies --help)")
    work = run_zombies(
        node_of(options.host),
        clock=SystemClock(),
        known=known_holders(),
        as_json=options.json,
        kill=options.kill,
        yes=options.yes,
        ask=None if options.json else terminal(),
    )
    return asyncio.run(work)


# ------------------------------------------------------------------------------------------- logs


def diagnose(options: Namespace) -> int:
    """The root cause in a log, offline."""
    from supervisor import diagnosing

    engines()  # a wrong file of the user's own is told here
    return diagnosing.run(options, engine_of(options.engine) if options.engine else None)


# ------------------------------------------------------------------------------------------- the demonstration


def demo(options: Namespace) -> int:
    """The main job on this machine, nothing else needed; everything of it is gone afterwards."""
    from supervisor.demo.show import run_demo

    return asyncio.run(run_demo(options))
