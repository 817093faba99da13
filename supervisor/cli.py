"""argv → command; exit codes. Grammar and help only; `commands.py` builds the parts, late.

Grammar (CONTRACT section 1): the first word decides. A command's name is that command, anything else means the
unnamed command, which is the console, or with `--headless` a wait.
"""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from collections.abc import Sequence
from typing import NoReturn

from supervisor.errors import SupervisorError, UsageError

EPILOG = """\
exit codes: 0 reached, 1 the server failed, 2 wrong command line or profile, 3 the node cannot be reached,
4 refused before anything was launched, 124 time ran out, 129/130/143 interrupted (the server is left running).
`status`: 0 serving, 1 failed or degraded, 5 any other. `zombies`: 0 none left, 1 some. `diagnose`: 0 whatever it found.

commands:
  supervisor [PROFILE…]                         the console; of several: a table of all; of none: a start screen
  supervisor --headless PROFILE                 launch, or take over the live run; wait; exit
  supervisor --headless --url URL [--via HOST]  wait for any endpoint, no profile needed
  supervisor [--headless] --replay FILE         play a record back; nothing is connected to
  supervisor status | logs [-f] | stop | restart PROFILE
  supervisor gpus HOST… [--watch]               GPU memory, and who holds it
  supervisor zombies HOST [--kill [PID…]]       left-over holders; end them and prove the release
  supervisor diagnose FILE|-                    the root cause in any launch log, offline
  supervisor demo                               all of it on this machine, nothing else needed
"""


class _Parser(argparse.ArgumentParser):
    """argparse that raises instead of exiting, so that every wrong command line ends in the same way."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see: {self.prog} --help)")


def _text(text: str) -> str:
    """What an option names. A script's variable that is not set must not turn a replay into a launch."""
    if not text:
        raise argparse.ArgumentTypeError("is empty")
    return text


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return _dispatch(words)
    except SupervisorError as error:
        from supervisor.core.lines import sanitise

        # A node's paths and titles, a server's words: nothing of them may drive the terminal.
        print("\n".join(sanitise(line) for line in f"supervisor: {error}".split("\n")), file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        return 1
    except KeyboardInterrupt:
        return 130


def entry() -> NoReturn:
    """The installed command. Leaves at once: who waits for this exit must not wait while Python takes itself apart.

    Everything of ours is closed by then; only what is buffered still has to go out.
    """
    code = main()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass  # the reader has gone
    os._exit(code)


def _dispatch(words: list[str]) -> int:
    if words[:1] == ["--version"]:
        from supervisor import __version__

        print(f"supervisor {__version__} (inference-supervisor)")
        return 0
    from supervisor.building import COMMANDS

    if words and words[0] in COMMANDS:
        return _named(words[0], words[1:])
    return _unnamed(words)


# ------------------------------------------------------------------------------------------- the unnamed command


def _unnamed(words: list[str]) -> int:
    parser = _unnamed_parser()
    options = parser.parse_args(words)
    from supervisor import commands

    if options.replay:
        return _replay(options)
    _only_without(options, "speed", "max_gap", of="--replay")
    if options.headless:
        if options.layout:
            raise UsageError("--layout belongs to the console, not to --headless (see: supervisor --help)")
        if options.url and options.profiles:
            raise UsageError("--headless takes one PROFILE or one --url, not both")
        if options.url:
            _only_without(options, "no_launch", "variant", "force", "clean", of="PROFILE")
            return commands.headless_url(options)
        _only_without(options, "via", of="--url")
        if len(options.profiles) != 1:
            raise UsageError("--headless needs one PROFILE or one --url (see: supervisor --help)")
        return commands.headless_profile(options)
    _only_without(options, "url", "json", "until", "timeout", "stall", "via", "events", of="--headless")
    from supervisor import consoles

    if options.profiles:
        return consoles.console(options)
    if not consoles.is_terminal():
        parser.print_help()
        return 2
    _only_without(options, "variant", "record", of="a PROFILE")
    code = consoles.start(options)
    return _named("demo", []) if code is None else code


def _replay(options: argparse.Namespace) -> int:
    if options.profiles:
        raise UsageError("--replay takes no PROFILE: whose record it is stands in it")
    of = "a server that is watched, not to --replay"
    _only_without(options, "url", "via", "until", "timeout", "stall", "link_timeout", "engine", "variant", of=of)
    _only_without(options, "no_launch", "force", "clean", "record", of=of)
    from supervisor import replays

    if options.headless:
        _only_without(options, "layout", of="the console, not to --headless")
        return replays.headless(options)
    _only_without(options, "json", "events", of="--headless")
    return replays.console(options)


def _only_without(options: argparse.Namespace, *names: str, of: str) -> None:
    for name in names:
        if getattr(options, name):
            raise UsageError(f"--{name.replace('_', '-')} belongs to {of} (see: supervisor --help)")


def _unnamed_parser() -> _Parser:
    parser = _Parser(
        prog="supervisor",
        description="Launch an inference server on a node, wait for it, and tell the truth about it.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("profiles", nargs="*", metavar="PROFILE", help="a profile: a path, or a name (./NAME.toml)")
    add("--version", action="store_true", help="print the version and exit")
    add("--headless", action="store_true", help="no console: wait, print what happens, exit with a code")
    add("--url", type=_text, metavar="URL", help="wait for this endpoint; no profile needed")
    add(
        "--via",
        type=_text,
        metavar="HOST",
        help="with --url: look from this node, through SSH, with no port opened here",
    )
    add("--no-launch", action="store_true", help="take over what runs, start nothing")
    add(
        "--layout",
        type=_text,
        metavar="NAME",
        help="console: console, compact, wall, or one of your own; by size when left out",
    )
    add("--replay", type=_text, metavar="FILE", help="play a record back, in the console or with --headless")
    add("--speed", type=_text, metavar="N", help="with --replay: 10 plays ten times as fast")
    add(
        "--max-gap", metavar="DURATION", help="with --replay: leave out what is longer than this and nothing happens in"
    )
    _add_wait(parser)
    return parser


def _add_wait(parser: _Parser) -> None:
    add = parser.add_argument
    add("--force", action="store_true", help="launch though GPU memory is surely too short, or not proved to be free")
    add("--clean", action="store_true", help="before a launch stop what is left of earlier runs of ours, with proof")
    add(
        "--until",
        choices=("healthy", "serving"),
        help="what to wait for (serving; healthy with --url, where serving needs --engine)",
    )
    add("--timeout", metavar="DURATION", help="give up after this long, from now (else the profile's, else 30m)")
    add("--stall", metavar="DURATION", help="give up when nothing moves for this long (default: off)")
    add("--link-timeout", metavar="DURATION", help="give up when the link is lost for this long (default 5m)")
    add("--engine", metavar="NAME", help="with --url: by whose rule answers are read (default: 200 is ready)")
    _add_output(parser)


def _add_output(parser: _Parser) -> None:
    add = parser.add_argument
    add("--variant", type=_text, metavar="NAME", help="a variant of the profile")
    add("--json", action="store_true", help="JSON lines on standard output")
    add("--events", choices=("all",), help="with --json: log lines and looks at the GPUs too")
    add("--record", type=_text, metavar="FILE", help="write the whole stream to FILE, which must not exist")


# ------------------------------------------------------------------------------------------- named commands


def _named(name: str, words: list[str]) -> int:
    parser = _Parser(prog=f"supervisor {name}", description=_DESCRIPTIONS[name], allow_abbrev=False)
    if name == "demo":
        _add_demo(parser)
    elif name in ("gpus", "zombies"):
        _add_nodes(parser, name)
    elif name == "diagnose":
        _add_diagnose(parser)
    else:
        parser.add_argument("profile", metavar="PROFILE", help="a profile: a path, or a name")
    if name == "restart":
        _add_wait(parser)
        parser.set_defaults(profiles=[], no_launch=False)
    elif name == "logs":
        parser.add_argument("-f", "--follow", action="store_true", help="go on as it grows, across lost connections")
        parser.add_argument("--variant", metavar="NAME", help="a variant of the profile")
    elif name in ("status", "stop"):
        _add_output(parser)
    options = parser.parse_args(words)
    if name == "stop":
        _only_without(options, "record", "events", of="a wait: a stop has no stream")
    from supervisor import commands

    handler: commands.Handler = getattr(commands, name)
    return handler(options)


_DESCRIPTIONS = {
    "status": "Where the run of a profile stands now: one look at its health, one generation if it is healthy.",
    "logs": "The log of the run that lives, else of the last one. Into a pipe the bytes go as they are.",
    "stop": "Stop the live run: TERM to its root, then to the rest, KILL at the grace; then what is gone and left.",
    "restart": "Stop the live run if there is one, then launch and wait.",
    "gpus": "GPU memory of nodes, and who holds it. Exit code 0 whatever is found, 3 when a node is not reached.",
    "zombies": "Left-over holders of GPU memory, with evidence. --kill ends them (TERM, KILL after 30 s) and proves "
    "that the memory is free. Exit code 0: none is left, 1: some are.",
    "diagnose": "Names the root cause in a log: its family, its line and number, how sure that is, what to do, and "
    "what was ruled out. Reads plain text and gzip, of any size, with the prefixes of containers, Kubernetes or Ray, "
    "newest first too; connects to nothing. Exit code 0 whatever it found, also where it does not know.",
    "demo": "The whole way to serving on this machine, in the console: a loopback SSH node with throw-away keys, eight "
    "SIMULATED GPUs, a left-over of yesterday on one of them, and a SIMULATED engine (or a real llama-server). "
    "Everything of it is gone afterwards.",
}


def _add_nodes(parser: _Parser, name: str) -> None:
    add = parser.add_argument
    what = "a node: an alias of ~/.ssh/config, user@host, ssh://user@host:port, local; or a PROFILE, for its node"
    if name == "gpus":
        add("hosts", metavar="HOST", nargs="+", help=what)
        add("--watch", action="store_true", help="go on each second until interrupted; into a pipe: what has changed")
    else:
        add("host", metavar="HOST", help=what)
        add(
            "--kill",
            metavar="PID",
            nargs="*",
            type=int,
            help="end what is pre-selected (what our own ended runs left), or these pids and no other; asks first",
        )
        add("--yes", action="store_true", help="with --kill: do not ask (never enough for another user's process)")
    add("--json", action="store_true", help="JSON lines on standard output")


def _add_diagnose(parser: _Parser) -> None:
    add = parser.add_argument
    add("log", metavar="FILE|-", type=_text, help="the log, plain or gzip; - reads it from standard input")
    add("--engine", metavar="NAME", help="whose log it is (left out: the log tells)")
    add("--json", action="store_true", help="JSON lines on standard output: a finding if there is one, then a summary")


def _add_demo(parser: _Parser) -> None:
    add = parser.add_argument
    add("--engine", metavar="NAME", default="sglang", help="whose ways are simulated, or llama.cpp for a real one")
    add("--fault", metavar="NAME", help="see a launch fail: one of the faults below, e.g. die-at-graphs")
    add("--fast", action="store_true", help="a launch of some ten seconds, not of a minute")
    add(
        "--headless", action="store_true", help="the headless wait, not the console (so too where there is no terminal)"
    )
    add(
        "--layout",
        type=_text,
        metavar="NAME",
        help="console: console, compact, wall, or one of your own; by size when left out",
    )
    add("--model", metavar="FILE", help="with --engine llama.cpp: the model file")
    add("--timeout", metavar="DURATION", default="5m", help="headless: give up after this long")
    add("--json", action="store_true", help="headless, with JSON lines on standard output")
    add("--events", choices=("all",), help="with --json: log lines and looks at the GPUs too")
    add("--record", type=_text, metavar="FILE", help="headless: write the whole stream to FILE, which must not exist")
    from supervisor.demo import faults

    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = textwrap.fill(parser.description or "", faults.WIDTH)
    parser.epilog = f"faults:\n{faults.listed()}"


if __name__ == "__main__":
    entry()
