"""The console's log pane while a log floods through a real sshd; lnav and Textual's stock Log beside it, on the file.

    .venv/bin/python scripts/bench/pane.py [--rate 50] [--seconds 10] [--lines 10000000] [--only keys,lag,whole,idle]

keys   milliseconds from a key written to a pty until what it must bring has come out of it, during the flood
lag    how far the newest line on the screen (tmux capture-pane, 120x40) is behind the file, during the flood
whole  a log of --lines lines that is written as fast as it goes: MB/s into the pane beside `ssh HOST cat FILE`, and
       what is resident when its last line is shown
idle   share of a core of a console that watches a serving server with 8 GPUs (a stub of NVML) at 1 Hz; first paint

Ours comes over SSH (sshd, node program, channel); lnav and the stock Log read the local file, which is easier.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT))

import flooding  # noqa: E402 - beside this file
import psutil  # noqa: E402
from flooding import Pty, latencies  # noqa: E402

from tests.real import nvml  # noqa: E402 - the checkout's own, found above
from tests.real.sshd import Sshd  # noqa: E402
from tests.real.tmux import Tmux  # noqa: E402
from tests.story import kit  # noqa: E402

LETTERS = "ЖЩЮЯДФЦЭ"
"""Typed during the flood: no line of it has one of them."""
PATIENCE_S = 30.0


class Viewer(NamedTuple):
    """One program that shows the flood."""

    name: str
    words: Sequence[str]
    environment: Mapping[str, str]
    ready: str
    open_prompt: bytes
    """Keys after which letters are typed into a line of its own."""


class Site:
    """A folder with a real sshd, a flood that waits for its sign, and who looks at it."""

    def __init__(self, folder: Path, sshd: Sshd) -> None:
        self.folder, self.sshd = folder, sshd
        self.go = folder / "go"
        self.file = folder / "flood.log"
        self.program = folder / "flood.py"
        self.program.write_text(flooding.FLOOD)
        self._stock = folder / "stock.py"
        self._stock.write_text(flooding.STOCK_LOG)

    def flood(self, rate: float, amount_mb: float, out: str) -> list[str]:
        """The command that floods; `rate` in MB/s, 0 for as fast as it goes."""
        return [sys.executable, str(self.program), str(rate), str(amount_mb), out, str(self.go)]

    def ours(self, rate: float, amount_mb: float) -> Viewer:
        """The console on a profile whose server is the flood."""
        more = f'log = "{self.file}"\n[ready]\nurl = "http://127.0.0.1:9/health"\n[stop]\ngrace = "2s"\n'
        command = self.flood(rate, amount_mb, "-")
        profile = kit.profile(self.folder, command, port=9, host="node", engine="sglang", more=more)
        words = [*kit.SUPERVISOR, str(profile)]
        environment = {"SUPERVISOR_SSH_CONFIG": str(self.sshd.ssh_config), "XDG_CACHE_HOME": str(self.folder / "cache")}
        return Viewer("ours, over SSH", words, environment, "Decode batch", b"/")

    def others(self) -> Iterator[Viewer]:
        """Who can be had."""
        if lnav := shutil.which("lnav"):
            home = self.folder / "lnav-home"
            home.mkdir(exist_ok=True)
            yield Viewer("lnav, local file", [lnav, str(self.file)], {"HOME": str(home)}, "Decode batch", b"/")
        else:
            print("lnav: not to be had (Debian: lnav)")
        words = [sys.executable, str(self._stock), str(self.file)]
        yield Viewer("Textual Log, local file", words, {}, "Decode batch", b"")

    def stop_servers(self) -> None:
        """End the floods that were launched."""
        for process in psutil.process_iter(["cmdline"]):
            if str(self.program) in (process.info["cmdline"] or []):
                process.kill()
        self.go.unlink(missing_ok=True)
        self.file.unlink(missing_ok=True)


@contextmanager
def flooded(site: Site, viewer: Viewer, rate: float, amount_mb: float) -> Iterator[None]:
    """For a viewer of the local file somebody has to write it; ours launches its own."""
    if viewer.name.startswith("ours"):
        yield
        return
    import subprocess

    writer = subprocess.Popen(site.flood(rate, amount_mb, str(site.file)))
    deadline = time.monotonic() + PATIENCE_S
    while not site.file.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    try:
        yield
    finally:
        writer.kill()
        writer.wait()


def cpu_percent(pid: int, seconds: float, work: Callable[[], object] | None = None) -> float:
    """Share of a core of one process over a time, or while `work` is done."""
    process = psutil.Process(pid)
    before, began = process.cpu_times(), time.monotonic()
    if work is not None:
        work()
    else:
        time.sleep(seconds)
    after = process.cpu_times()
    return 100 * (after.user + after.system - before.user - before.system) / (time.monotonic() - began)


def spread(values: Sequence[float], unit: str) -> str:
    """Median, 99th percentile and worst."""
    ordered = sorted(values)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return f"p50 {statistics.median(ordered):.0f}, p99 {p99:.0f}, worst {ordered[-1]:.0f} {unit} ({len(ordered)})"


# ------------------------------------------------------------------------------------------- the measures


def keys(site: Site, options: argparse.Namespace) -> None:
    """Key to screen during the flood."""
    amount = options.rate * (options.seconds + 10)
    for viewer in (site.ours(options.rate, amount), *site.others()):
        with flooded(site, viewer, options.rate, amount), Pty(viewer.words, environment=viewer.environment) as terminal:
            if terminal.until(viewer.ready.encode(), PATIENCE_S) is None:
                print(f"{viewer.name}: never showed the log")
                continue
            time.sleep(1.0)
            site.go.touch()
            time.sleep(1.0)
            rounds = max(20, int(options.seconds / 0.15))
            cpu = psutil.Process(terminal.process.pid)
            cpu.cpu_percent()
            if viewer.name.startswith("ours"):
                scrolls = [(b"\x1b[A", b"paused"), (b"f", b"following")]
                print(f"  {viewer.name}, scroll and follow: {spread(latencies(terminal, scrolls, rounds, 0.1), 'ms')}")
            if viewer.open_prompt:
                terminal.press(viewer.open_prompt)
                time.sleep(0.3)
            letters = [(letter.encode(), letter.encode()) for letter in LETTERS]
            print(f"  {viewer.name}, a letter typed: {spread(latencies(terminal, letters, rounds, 0.1), 'ms')}")
            rss = psutil.Process(terminal.process.pid).memory_info().rss / 1e6
            print(f"  {viewer.name}: {cpu.cpu_percent():.0f} % of a core, {rss:.0f} MB")
        site.stop_servers()


def lag(site: Site, options: argparse.Namespace) -> None:
    """Screen behind file during the flood."""
    amount = options.rate * options.seconds
    for viewer in (site.ours(options.rate, amount), *site.others()):
        with (
            flooded(site, viewer, options.rate, amount),
            Tmux(viewer.words, width=120, height=40, environment=viewer.environment) as terminal,
        ):
            terminal.wait_for(viewer.ready, PATIENCE_S)
            if viewer.name.startswith("lnav"):
                terminal.send_keys("G")
            time.sleep(1.0)
            site.go.touch()
            behind: list[float] = []
            ended_at = time.monotonic() + options.seconds
            while (now := time.monotonic()) < ended_at:
                marks = flooding.MARK.findall(terminal.capture())
                if marks:
                    behind.append(now - float(max(marks)))
                time.sleep(0.02)
            caught_up = _until_end(terminal, 20.0)
        site.stop_servers()
        told = spread([value * 1000 for value in behind], "ms") if behind else "no mark was ever seen"
        print(f"  {viewer.name}: behind {told}; caught up {caught_up} after the end")


def _until_end(terminal: Tmux, patience_s: float) -> str:
    began = time.monotonic()
    while time.monotonic() - began < patience_s:
        if "END OF THE FLOOD" in terminal.capture():
            return f"{time.monotonic() - began:.1f} s"
        time.sleep(0.05)
    return f"not in {patience_s:.0f} s"


def whole(site: Site, options: argparse.Namespace) -> None:
    """As fast as it goes, beside `ssh cat` of the same file."""
    amount = options.lines * flooding.LINE_BYTES / 1e6
    viewer = site.ours(0, amount)
    with Tmux(viewer.words, width=120, height=40, environment=viewer.environment) as terminal:
        terminal.wait_for(viewer.ready, PATIENCE_S)
        began = time.monotonic()
        site.go.touch()
        while "END OF THE FLOOD" not in terminal.capture():
            if time.monotonic() - began > 300:
                print("  ours: the end was not shown in 300 s")
                break
            time.sleep(0.05)
        took_s = time.monotonic() - began
        rss = psutil.Process(terminal.pid).memory_info().rss / 1e6
        size = site.file.stat().st_size / 1e6
        ssh = ["ssh", "-F", str(site.sshd.ssh_config), "node"]
        cat = statistics.median(flooding.ssh_cat_mb_s(ssh, site.file) for _ in range(3))
    print(
        f"  {options.lines:,} lines, {size:.0f} MB: {size / took_s:.0f} MB/s into the pane (written meanwhile), "
        f"ssh cat {cat:.0f} MB/s: {100 * size / took_s / cat:.0f} % of it; resident {rss:.0f} MB"
    )
    site.stop_servers()


def idle(site: Site, options: argparse.Namespace) -> None:
    """A console that looks at a serving server and 8 GPUs, and how soon it paints."""
    stub = nvml.StubNvml(site.folder / "nvml")
    for _ in range(8):
        stub.gpu()
    stub.write()
    profile = kit.simulated_profile(site.folder, "sglang", "--sim-load", "1", more="")
    words = [*kit.SUPERVISOR, str(profile)]
    with Pty(words, environment=stub.environment()) as terminal:
        painted_at = terminal.until(profile.name.encode(), PATIENCE_S)
        assert painted_at is not None, "no first paint"
        print(f"  first paint {1000 * (painted_at - terminal.began_at):.0f} ms after the start of the process")
    with Tmux(words, width=120, height=40, environment=stub.environment()) as screen:
        screen.wait_for("serving since", PATIENCE_S)
        time.sleep(10.0)
        print(f"  idle at 1 Hz, 8 GPUs: {cpu_percent(screen.pid, options.idle_seconds):.1f} % of a core")
    kit.run("stop", str(profile), env=stub.environment())


MEASURES = {"keys": keys, "lag": lag, "whole": whole, "idle": idle}


def main() -> int:
    """Run what is asked for and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=50.0, help="MB/s of the flood")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--lines", type=int, default=10_000_000)
    parser.add_argument("--idle-seconds", type=float, default=30.0)
    parser.add_argument("--only", default=",".join(MEASURES))
    options = parser.parse_args()
    print(f"load average before: {os.getloadavg()[0]:.1f}")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="supervisor-bench-")))
        sshd = stack.enter_context(Sshd(folder / "sshd"))
        site = Site(folder, sshd)
        stack.callback(site.stop_servers)
        for name in options.only.split(","):
            print(f"{name}:")
            MEASURES[name](site, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
