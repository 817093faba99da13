"""The same stop of the same server by process supervisors and by ours: who survives it, and what each of them says.

    .venv/bin/python scripts/bench/stops.py [--runs 1] [--peers FOLDER] [--json FILE]

The server is a leader that answers HTTP, a child in its group, and a middle process that starts a grandchild in a
session of its own which ignores SIGTERM, as workers of inference engines come to do. `nested`: the middle process
lives; `daemon`: it has ended, and the grandchild has another parent; `nested +INT`: the grandchild ignores SIGINT too.
Beside `supervisor stop` (its default grace, and 2 s): PyPI's supervisord (default; stopasgroup and killasgroup), npm's
pm2, npm's mprocs in tmux (keys x, X and q). Survivors are looked for until --settle seconds after the stop has ended,
by a mark in their environment, and are ended here, by identity. The peers are installed into a temporary folder (or
FOLDER, which is kept for the next run); one that cannot be had is left out by name.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT))

import peers  # noqa: E402 - beside this file
import psutil  # noqa: E402

from tests.real import processes  # noqa: E402 - the checkout's own parts, found above
from tests.real.ports import free_port  # noqa: E402
from tests.real.tmux import Tmux  # noqa: E402
from tests.real.tmux import missing as no_tmux  # noqa: E402

UP_S = 60.0
KEY_S = 10.0
"""How long a key of mprocs is waited for."""
VARIANTS = ("nested", "daemon", "nested +INT")
ROLES = ("leader", "child", "middle", "grandchild")

SERVER = """
import http.server, pathlib, signal, subprocess, sys, time
role, folder, port, variant = sys.argv[1:5]

def start(other, **more):
    return subprocess.Popen([sys.executable, __file__, other, folder, port, variant], **more)

if role == "grandchild":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if variant == "nested +INT":
        signal.signal(signal.SIGINT, signal.SIG_IGN)
if role == "middle":
    start("grandchild", start_new_session=True)
if role == "leader":
    start("child")
    middle = start("middle")
    if variant == "daemon":
        middle.wait()

    class Healthy(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    http.server.ThreadingHTTPServer.daemon_threads = True
    server = http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Healthy)
pathlib.Path(folder, role + ".up").touch()
if role == "leader":
    server.serve_forever()
elif role != "middle" or variant != "daemon":
    time.sleep(600)
"""


class Said(NamedTuple):
    """What a stop came to by its own word."""

    text: str
    code: int | None
    """Exit code; None where there is none (a key)."""
    seconds: float | None
    """None: it had not ended when we gave up."""


class Row(NamedTuple):
    """One stop."""

    tool: str
    variant: str
    survivors: tuple[str, ...]
    said: Said


class Peers(NamedTuple):
    """The commands of those that could be installed."""

    supervisor: Path | None
    pm2: Path | None
    mprocs: Path | None


class Place:
    """One server to be: its folder, port and command, and a mark by which its processes are found again."""

    def __init__(self, folder: Path, variant: str) -> None:
        self.folder, self.variant, self.port = folder, variant, free_port()
        self.mark = secrets.token_hex(8)
        self.server = folder / "server.py"
        self.server.write_text(SERVER, encoding="utf-8")
        self.words = [sys.executable, str(self.server), "leader", str(folder), str(self.port), variant]
        # A home of its own: no tool reads or leaves anything in the user's. No look for a newer version either.
        home = {"HOME": str(folder), "PM2_HOME": str(folder / ".pm2"), "XDG_CONFIG_HOME": str(folder / ".config")}
        quiet = {"PM2_DISABLE_VERSION_CHECK": "true", "PM2_DISCRETE_MODE": "true", "NO_COLOR": "1"}
        self.env = {**os.environ, **home, **quiet, processes.MARK: self.mark}

    def run(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """A command of a tool, to its end."""
        command = [str(word) for word in words]
        return subprocess.run(command, env=self.env, cwd=self.folder, capture_output=True, text=True, timeout=120)

    def timed(self, *words: str | Path) -> Said:
        """The same as a stop: its words are its standard output, or its standard error where that is empty."""
        began = time.monotonic()
        done = self.run(*words)
        return Said(_one_line(done.stdout) or _one_line(done.stderr), done.returncode, time.monotonic() - began)

    def roles(self) -> dict[str, psutil.Process]:
        """The server's living processes by what they are in it."""
        found = {}
        for process in processes.marked(self.mark):
            try:
                words = process.cmdline()
            except psutil.Error:
                continue
            if str(self.server) in words[1:2] and words[2] in ROLES:
                found[words[2]] = process
        return found

    def wait_up(self) -> None:
        """Until it answers and every process of the variant has come to its last line."""
        wanted = set(ROLES) - ({"middle"} if self.variant == "daemon" else set())

        def look() -> bool:
            up = all((self.folder / f"{role}.up").exists() for role in wanted)
            return up and set(self.roles()) == wanted and self._answers()

        processes.poll(look, UP_S, f"the server ({self.variant}), there are {sorted(self.roles())}", pause_s=0.1)

    def _answers(self) -> bool:
        asked = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            asked.request("GET", "/")
            return asked.getresponse().status == 200
        except (http.client.HTTPException, OSError):
            return False
        finally:
            asked.close()

    def survivors(self, settle_s: float) -> dict[str, psutil.Process]:
        """Who lives when the time is over; earlier when nobody does."""
        deadline = time.monotonic() + settle_s
        while (left := self.roles()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return left

    def end(self) -> None:
        """Whatever bears the mark, by identity: first the server's, then the tool's own."""
        processes.end(self.roles().values(), 0.2)
        processes.end(processes.marked(self.mark), 3)


class Stopper(NamedTuple):
    """A tool that has started the server: how it is asked to stop, and what it does once the survivors are gone."""

    stop: Callable[[], Said]
    afterwards: Callable[[], str] = lambda: ""


# ------------------------------------------------------------------------------------------------ the tools


@contextmanager
def ours(place: Place, grace: str) -> Iterator[Stopper]:
    """`supervisor --headless`, then `supervisor stop`."""
    item = place.folder / "profile.toml"
    lines = ['[node]\nhost = "local"', f"state_dir = {json.dumps(str(place.folder / 'state'))}"]
    lines += [f"python = {json.dumps(sys.executable)}", "[launch]", f"command = {json.dumps(place.words)}"]
    lines += ["[ready]", f'url = "http://127.0.0.1:{place.port}/"', f'[stop]\ngrace = "{grace}"' if grace else ""]
    item.write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "supervisor.cli"]
    place.env["PYTHONPATH"] = str(CHECKOUT)
    up = place.run(*command, "--headless", item, "--until", "healthy", "--timeout", "60s")
    assert up.returncode == 0, up.stdout + up.stderr
    yield Stopper(lambda: place.timed(*command, "stop", item))


@contextmanager
def supervisord(place: Place, tools: Path, more: str) -> Iterator[Stopper]:
    """In the foreground, with one program in its configuration."""
    config, sock = place.folder / "supervisord.conf", place.folder / "s.sock"
    words = " ".join(f'"{word}"' for word in place.words)
    config.write_text(
        f"[supervisord]\nnodaemon=true\nlogfile=/dev/null\nlogfile_maxbytes=0\npidfile={place.folder}/s.pid\n"
        f"[unix_http_server]\nfile={sock}\n[supervisorctl]\nserverurl=unix://{sock}\n"
        "[rpcinterface:supervisor]\n"
        "supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface\n"
        f"[program:srv]\ncommand={words}\n{more}",
        encoding="utf-8",
    )
    control = (tools / "supervisorctl", "-c", config)
    command = [str(tools / "supervisord"), "-c", str(config)]
    daemon = subprocess.Popen(command, env=place.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def status() -> str:
        return " ".join(place.run(*control, "status", "srv").stdout.split()[1:2])

    def stop() -> Said:
        said = place.timed(*control, "stop", "srv")
        return said._replace(text=f"{said.text}; status {status()}")

    try:
        processes.poll(lambda: status() == "RUNNING", UP_S, "supervisord's RUNNING", pause_s=0.5)
        yield Stopper(stop)
    finally:
        daemon.terminate()
        daemon.wait(30)


@contextmanager
def pm2(place: Place, program: Path) -> Iterator[Stopper]:
    """With its daemon in a home of its own."""
    flags = ("--name", "srv", "--interpreter", place.words[0], "--no-autorestart", "--no-vizion", "--no-pmx")
    up = place.run(program, "start", place.server, *flags, "--", *place.words[2:])
    assert up.returncode == 0, up.stdout + up.stderr

    def stop() -> Said:
        said = place.timed(program, "stop", "srv")
        told = re.search(r"\[PM2\] \[srv\]\(\d+\) \S+", said.text)
        listed = place.run(program, "jlist").stdout
        status = json.loads(listed[listed.index("[{") :])[0]["pm2_env"]["status"]
        return said._replace(text=f"{told[0] if told else said.text}; status {status}")

    try:
        yield Stopper(stop)
    finally:
        place.run(program, "kill")


@contextmanager
def mprocs(place: Place, program: Path, key: str) -> Iterator[Stopper]:
    """In a terminal; x ends softly, X hard, q leaves."""
    config = place.folder / "mprocs.json"
    config.write_text(json.dumps({"procs": {"srv": {"cmd": place.words}}}), encoding="utf-8")
    changed = {name: value for name, value in place.env.items() if os.environ.get(name) != value}
    with Tmux([str(program), "--config", str(config)], environment=changed, cwd=place.folder) as terminal:
        terminal.wait_for(re.compile(r"srv +UP"), UP_S)
        left_at_once: list[bool] = []

        def shown() -> str:
            found = re.search(r"srv +(\S+(?: \(\d+\))?)|QUITTING", terminal.capture())
            return f"shows {found[1] or found[0]}" if found else "shows nothing"

        def over() -> bool:
            return terminal.exit_status() is not None or "DOWN" in shown()

        def stop() -> Said:
            began = time.monotonic()
            terminal.send_keys(key)
            try:
                processes.poll(over, KEY_S, f"the end by {key}")
            except AssertionError:
                return Said(shown(), None, None)
            seconds, code = time.monotonic() - began, terminal.exit_status()
            left_at_once.append(True)
            return Said(shown() if code is None else "left", code, seconds)

        def afterwards() -> str:
            if key != "q" or left_at_once:
                return ""
            try:
                return f"left with {terminal.wait_exit(KEY_S)} once the survivors were killed"
            except AssertionError:
                return "stays even when the survivors are killed"

        yield Stopper(stop, afterwards)


Tool = Callable[[Place], AbstractContextManager[Stopper]]


def tools_of(found: Peers) -> dict[str, Tool]:
    """Name → how the server is put under it; the slowest first, since they run side by side."""
    out: dict[str, Tool] = {
        "ours, grace 30 s (default)": partial(ours, grace=""),
        "ours, grace 2 s": partial(ours, grace="2s"),
    }
    if found.mprocs is not None:
        out |= {f"mprocs key {key}": partial(mprocs, program=found.mprocs, key=key) for key in "xXq"}
    if found.pm2 is not None:
        out["pm2 stop"] = partial(pm2, program=found.pm2)
    if found.supervisor is not None:
        group = "stopasgroup=true\nkillasgroup=true\n"
        out["supervisorctl stop (default)"] = partial(supervisord, tools=found.supervisor, more="")
        out["supervisorctl stop (as group)"] = partial(supervisord, tools=found.supervisor, more=group)
    return out


def one(name: str, tool: Tool, variant: str, settle_s: float) -> Row:
    """One server under one tool, stopped; everything that was started is gone at the return."""
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder:
        place = Place(Path(folder), variant)
        try:
            with tool(place) as stopper:
                place.wait_up()
                said = stopper.stop()
                left = place.survivors(settle_s)
                processes.end(left.values(), 0.2)
                more = stopper.afterwards()
                if more:
                    said = said._replace(text=f"{said.text}; {more}")
        finally:
            place.end()
    return Row(name, variant, tuple(role for role in ROLES if role in left), said)


# ------------------------------------------------------------------------------------------------ installing


def install(folder: Path) -> Peers:
    """All into this folder; what is there already is used as it is."""
    tools = peers.python_tools(folder / "venv", "supervisor")
    absent = no_tmux()
    if absent is not None:
        print(f"mprocs cannot be driven: {absent}", file=sys.stderr)
    return Peers(
        tools if (tools / "supervisord").exists() else None,
        peers.npm_tool(folder / "pm2", "pm2"),
        peers.npm_tool(folder / "mprocs", "mprocs") if absent is None else None,
    )


def versions(found: Peers) -> str:
    """Of those that are there, and the names of those that are not."""
    told = {
        "ours": version("inference-supervisor"),
        "supervisord": found.supervisor and peers.python_version(found.supervisor, "supervisor"),
        # Not asked for: pm2 --version starts its daemon.
        "pm2": found.pm2 and _npm_version(found.pm2),
        "mprocs": found.mprocs and _npm_version(found.mprocs),
    }
    return "; ".join(f"{name} {text or 'could not be had: left out'}" for name, text in told.items())


def _npm_version(command: Path) -> str:
    package = command.parent.parent / command.name / "package.json"
    return str(json.loads(package.read_text(encoding="utf-8"))["version"])


def _one_line(text: str) -> str:
    return " ".join(re.sub(r"\x1b\[[0-9;]*m", "", text).split())


# ------------------------------------------------------------------------------------------------ the table


def table(rows: list[Row]) -> str:
    """One line for each tool and variant; where runs differ, each that differs."""
    lines = [f"{'tool':30} {'server':12} {'survivors':32} {'exit':>4} {'stop s':>12}  says"]
    same: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        same.setdefault((row.tool, row.variant, row.survivors, row.said.code), []).append(row)
    for (tool, variant, survivors, code), group in same.items():
        assert isinstance(survivors, tuple)
        times = sorted(row.said.seconds for row in group if row.said.seconds is not None)
        span = f"{times[0]:.2f}" + (f"-{times[-1]:.2f}" if len(times) > 1 else "") if times else "no end"
        left, shown = ", ".join(survivors) or "none", "-" if code is None else code
        more = f" ({len(group)} runs)" if len(group) > 1 else ""
        lines.append(f"{tool:30} {variant:12} {left:32} {shown:>4} {span:>12}  {group[0].said.text}{more}")
    return "\n".join(lines)


def main() -> int:
    """Run and print a table; exit code 1 when ours left a survivor."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--settle", type=float, default=4.0, help="seconds after the stop in which a survivor may go")
    parser.add_argument("--jobs", type=int, default=3, help="how many stops run side by side")
    parser.add_argument("--peers", metavar="FOLDER", help="install the peers there and keep them")
    parser.add_argument("--only", metavar="TEXT", default="", help="only tools with this in their name")
    parser.add_argument("--json", metavar="FILE", help="write the rows there too")
    options = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="bench-peers-") as temporary:
        found = install(Path(options.peers or temporary).absolute())
        print(versions(found), flush=True)
        with ThreadPoolExecutor(options.jobs) as pool:
            running = [
                pool.submit(one, name, tool, variant, options.settle)
                for name, tool in tools_of(found).items()
                if options.only in name
                for variant in VARIANTS
                for _ in range(options.runs)
            ]
            for future in running:
                rows.append(future.result())
                print(f"{len(rows)} of {len(running)}", file=sys.stderr)
    print(table(rows))
    for who, own in (("ours", True), ("the others", False)):
        stops = [row for row in rows if row.tool.startswith("ours") is own]
        left = [row for row in stops if row.survivors]
        well = sum(row.said.code == 0 for row in left)
        if stops:
            print(f"{who}: {len(left)} of {len(stops)} stops left survivors; {well} of these ended with exit code 0")
    if options.json:
        Path(options.json).write_text(json.dumps([{**row._asdict(), "said": row.said._asdict()} for row in rows]))
    return 1 if any(row.survivors for row in rows if row.tool.startswith("ours")) else 0


if __name__ == "__main__":
    sys.exit(main())
