"""How late each waiter is: from "the first 200 was possible" to its exit, beside what a user would do instead.

    .venv/bin/python scripts/bench/detect.py [--runs 20] [--handler 1.0] [--json FILE]

A simulated SGLang refuses, answers 503, then 200 with an empty body after the handler's time. Ours:
`--headless PROFILE` locally and over a real sshd, and `--headless --url`. Beside them, on the same server as `--url`:
the old loop of the founding story (sleep 1.5 for 15), a corrected curl loop, and npm's wait-on (installed by npm into
a temporary folder; left out by name where there is no npm). Ratios within one run mean something, milliseconds of a
shared machine do not.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT))

from tests.real.ports import free_port  # noqa: E402 - the checkout's own parts, found above
from tests.real.sshd import Sshd  # noqa: E402
from tests.story import kit  # noqa: E402

NEVER_S = 5.0


def waiters(url: str, wait_on: str | None) -> dict[str, list[str]]:
    """Name → command, all on the same URL."""
    old = f'for i in $(seq 40); do b=$(curl -s {url}); [ -n "$b" ] && exit 0; sleep 1.5; done; exit 1'
    curl = f"until curl -sf {url} >/dev/null; do sleep 1; done"
    out = {
        "ours --url": [*kit.SUPERVISOR, "--headless", "--url", url, "--timeout", "60s"],
        "old loop (body not empty)": ["bash", "-c", old],
        "curl -sf; sleep 1": ["bash", "-c", curl],
    }
    if wait_on is not None:
        out["wait-on http-get (250 ms)"] = [wait_on, "http-get:" + url.removeprefix("http:")]
    return out


def flip_of(path: Path) -> float:
    """The monotonic time when the first 200 was possible; waits for it."""
    while not path.exists():
        time.sleep(0.01)
    return float(path.read_text().split()[0])


def by_url(folder: Path, times: list[str], wait_on: str | None, turn: int) -> dict[str, float | None]:
    """All the waiters at once on one server; None for one that had not ended within 8 s of the flip."""
    port, flip = free_port(), folder / f"flip-url-{turn}"
    command = kit.simulated("sglang", port, *times, "--sim-flip-file", str(flip))
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}/health"
    running = {
        name: subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for name, words in waiters(url, wait_on).items()
    }
    late: dict[str, float | None] = {}
    flipped = flip_of(flip)
    while len(late) < len(running) and time.monotonic() - flipped < NEVER_S:
        for name, process in running.items():
            if name not in late and process.poll() is not None:
                late[name] = time.monotonic() - flipped
        time.sleep(0.002)
    for name, process in running.items():
        if process.poll() is None:
            process.kill()
            late[name] = None
        process.wait()
    server.terminate()
    server.wait()
    return late


def by_profile(folder: Path, times: list[str], host: str, env: dict[str, str], turn: int) -> float:
    """One launch and wait, to `healthy` as the others; the server is stopped afterwards."""
    flip = folder / f"flip-{host}-{turn}"
    item = kit.simulated_profile(folder, "sglang", *times, "--sim-flip-file", str(flip), host=host)
    result = kit.run("--headless", str(item), "--until", "healthy", "--timeout", "60s", env=env)
    late = result.ended_at - flip_of(flip)
    kit.run("stop", str(item), env=env)
    if result.code != 0:
        raise SystemExit(f"{host}: exit {result.code}\n{result.out}{result.err}")
    return late


def install_wait_on(folder: Path) -> str | None:
    """npm's wait-on, None where it cannot be had."""
    npm = shutil.which("npm")
    if npm is None:
        return None
    done = subprocess.run([npm, "install", "--silent", "wait-on@9"], cwd=folder, check=False, capture_output=True)
    path = folder / "node_modules" / ".bin" / "wait-on"
    return str(path) if done.returncode == 0 and path.exists() else None


def main() -> int:
    """Run and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--handler", type=float, default=1.0, help="seconds that a healthy answer takes")
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    figures: dict[str, list[float | None]] = {}
    with tempfile.TemporaryDirectory(prefix="supervisor-bench-") as name, Sshd(Path(name) / "sshd") as sshd:
        folder = Path(name)
        wait_on = install_wait_on(folder)
        if wait_on is None:
            print("wait-on could not be installed: left out", file=sys.stderr)
        env = {"SUPERVISOR_SSH_CONFIG": str(sshd.ssh_config)}
        for turn in range(options.runs):
            load, warm = random.uniform(1.2, 2.0), random.uniform(1.0, 2.5)
            times = ["--sim-load", str(load), "--sim-warm", str(warm), "--sim-health-delay", str(options.handler)]
            # Side by side, each on a server of its own, so that a noisy moment meets all of them.
            with ThreadPoolExecutor() as pool:
                url = pool.submit(by_url, folder, times, wait_on, turn)
                local = pool.submit(by_profile, folder, times, "local", env, turn)
                ssh = pool.submit(by_profile, folder, times, "node", env, turn)
            for key, late in url.result().items():
                figures.setdefault(key, []).append(late)
            figures.setdefault("ours, local profile", []).append(local.result())
            figures.setdefault("ours, over SSH", []).append(ssh.result())
            print(f"run {turn + 1} of {options.runs}", file=sys.stderr)
    print(f"first possible 200 to exit, ms; handler {options.handler:g} s; {options.runs} runs")
    for key, values in figures.items():
        print(f"  {key:28} {_words(values)}")
    if options.json:
        Path(options.json).write_text(json.dumps(figures))
    return 0


def _words(values: list[float | None]) -> str:
    seen = [value * 1000 for value in values if value is not None]
    never = len(values) - len(seen)
    text = f"median {statistics.median(seen):6.0f}  worst {max(seen):6.0f}" if seen else ""
    return text + (f"  never {never} of {len(values)}" if never else "")


if __name__ == "__main__":
    os.environ.setdefault("NO_COLOR", "1")
    sys.exit(main())
