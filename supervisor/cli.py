"""argv → profile → front end; exit codes. The only place that builds the concrete parts; all heavy imports are late.

Grammar (CONTRACT section 1): the first word decides. A command's name is that command, anything else means the
unnamed command, which is the console, or with `--headless` a wait.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

from supervisor.errors import SupervisorError, UsageError

if TYPE_CHECKING:
    from supervisor.core.engine import Engine

USAGE_EXIT = 2


class _Parser(argparse.ArgumentParser):
    """argparse that raises instead of exiting, so that every wrong command line ends in the same way."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see: {self.prog} --help)")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return _dispatch(words)
    except SupervisorError as error:
        print(f"supervisor: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        return 1
    except KeyboardInterrupt:
        return 130


def _dispatch(words: list[str]) -> int:
    if words[:1] == ["--version"]:
        from supervisor import __version__

        print(f"supervisor {__version__} (inference-supervisor)")
        return 0
    command = _commands().get(words[0]) if words else None
    if command is not None:
        return command(words[1:])
    return _unnamed(words)


def _commands() -> dict[str, Callable[[list[str]], int]]:
    """The commands that have a name. One that is not built yet does not stand here."""
    return {}


# ------------------------------------------------------------------------------------------- the unnamed command


def _unnamed(words: list[str]) -> int:
    options = _unnamed_parser().parse_args(words)
    if options.headless:
        return _headless(options)
    for name in ("url", "json", "record", "until", "timeout", "stall", "via"):
        if getattr(options, name):
            raise UsageError(f"--{name} belongs to --headless: supervisor --headless …")
    raise UsageError("give --headless and a --url (see: supervisor --help)")


def _unnamed_parser() -> _Parser:
    parser = _Parser(
        prog="supervisor",
        description="Launch an inference server on a node, wait for it, and tell the truth about it.",
        epilog="Exit codes of a wait: 0 reached, 1 the server failed, 2 wrong command line or profile, 3 the node "
        "cannot be reached, 4 refused before anything was launched, 124 time ran out, 129/130/143 interrupted "
        "(the server is left running).",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("profiles", nargs="*", metavar="PROFILE", help="a profile: a path, or a name")
    add("--version", action="store_true", help="print the version and exit")
    add("--headless", action="store_true", help="no console: wait, print what happens, exit with a code")
    add("--url", metavar="URL", help="wait for this endpoint; no profile needed")
    add("--until", choices=("healthy", "serving"), help="what to wait for (healthy with --url)")
    add("--timeout", metavar="DURATION", help="give up after this long, from now (default 30m)")
    add("--stall", metavar="DURATION", help="give up when nothing moves for this long (default: off)")
    add("--link-timeout", metavar="DURATION", help="give up when the link is lost for this long (default 5m)")
    add("--engine", metavar="NAME", help="by whose rule answers are read (default with --url: 200 is ready)")
    add("--json", action="store_true", help="JSON lines on standard output")
    add("--events", choices=("all",), help="with --json: log lines too")
    add("--record", metavar="FILE", help="write the whole stream to FILE, which must not exist")
    return parser


def _headless(options: argparse.Namespace) -> int:
    if options.url and options.profiles:
        raise UsageError("--headless takes one PROFILE or one --url, not both")
    if options.url:
        return _headless_url(options)
    raise UsageError("--headless needs a --url")


def _duration(options: argparse.Namespace, name: str) -> float | None:
    from supervisor.core import durations

    text = getattr(options, name.replace("-", "_"))
    if text is None:
        return None
    try:
        return durations.parse(text)
    except ValueError as error:
        raise UsageError(f"--{name}: {error}") from error


def _headless_url(options: argparse.Namespace) -> int:
    import asyncio

    from supervisor.adapters.clock import SystemClock
    from supervisor.core import events as ev
    from supervisor.core import url as urls
    from supervisor.core.wait import Limits
    from supervisor.headless.run import Options, wait
    from supervisor.supervise.desk import Desk

    clock = SystemClock()
    try:
        url = urls.parse(options.url)
    except urls.UrlError as error:
        raise UsageError(f"--url: {error}") from error
    if options.until == "serving" and not options.engine:
        raise UsageError("--url with --until serving needs --engine: a generation is asked for in its way")
    engine = _engine(options.engine)
    limits = Limits(
        timeout_s=_duration(options, "timeout") or 1800.0,
        timeout_from="--timeout" if options.timeout else "the default timeout",
        stall_s=_duration(options, "stall"),
        link_timeout_s=_duration(options, "link-timeout") or 300.0,
    )
    shown = Options(
        until=ev.Phase(options.until or "healthy"),
        limits=limits,
        json=options.json,
        all_events=options.events == "all",
        record=options.record,
    )

    async def run() -> int:
        from supervisor.adapters import sockets
        from supervisor.adapters.http import Http, environment_proxy
        from supervisor.supervise.probe import Prober
        from supervisor.supervise.watch_url import UrlWatch

        desk = Desk(clock=clock, verify=True, on_phase=lambda _change: None)
        http = Http(sockets.dial, proxy=environment_proxy(url))
        watch = UrlWatch(desk, Prober(http, url, engine))
        try:
            return await wait(desk, watch.run, shown, began_at=clock.now())
        finally:
            await http.close()

    return asyncio.run(run())


def _engine(name: str | None) -> Engine:
    import difflib

    from supervisor.engines import loader

    try:
        return loader.load(name or loader.GENERIC)
    except KeyError:
        near = difflib.get_close_matches(name or "", loader.names(), n=1)
        hint = f", did you mean {near[0]}?" if near else ""
        raise UsageError(f"--engine: no engine is called {name!r} (known: {', '.join(loader.names())}){hint}") from None


if __name__ == "__main__":
    sys.exit(main())
