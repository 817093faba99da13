"""A network of its own, joined to this machine by one virtual cable that can be cut, muted or slowed. Needs root.

    with NetworkNamespace() as network, Sshd(tmp, address=network.address, prefix=network.prefix) as server:
        ...                       # connect to server as always
        network.drop()            # packets vanish, nobody is told
        network.restore()

Its addresses exist on this machine alone, in a range for private use; no packet leaves the machine.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from functools import cache
from typing import Self

import psutil

from tests.real import processes


@cache
def missing() -> str | None:
    """Why no network namespace can be made here, None when it can. Makes one to know: containers forbid it."""
    if os.geteuid() != 0:
        return "not root"
    for tool, package in (("ip", "iproute2"), ("tc", "iproute2"), ("iptables", "iptables")):
        if shutil.which(tool) is None:
            return f"no {tool} (Debian: {package})"
    try:
        with NetworkNamespace() as network:
            network.drop()
    except AssertionError as error:
        return f"not allowed here: {error}"
    return None


class NetworkNamespace:
    """From `open` to `close`; `close` also ends what still runs inside."""

    def __init__(self) -> None:
        number = secrets.randbelow(2**14)  # of a /30 in 10.213.0.0/16: two workers hardly ever meet
        self.name = f"isup{secrets.token_hex(4)}"
        self._outside = f"{self.name}o"
        self._inside = f"{self.name}i"
        first = number * 4
        self.gateway = f"10.213.{first >> 8}.{(first & 255) + 1}"
        """This machine, as seen from inside."""
        self.address = f"10.213.{first >> 8}.{(first & 255) + 2}"
        """The place inside, as seen from this machine."""
        self.prefix = ("ip", "netns", "exec", self.name)
        """Words before a command that is to run inside. They exec it, so the pid is the command's."""

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        _run("ip", "netns", "add", self.name)
        try:
            _run("ip", "link", "add", self._outside, "type", "veth", "peer", "name", self._inside, "netns", self.name)
            _run("ip", "addr", "add", f"{self.gateway}/30", "dev", self._outside)
            _run("ip", "link", "set", self._outside, "up")
            self.run("ip", "addr", "add", f"{self.address}/30", "dev", self._inside)
            self.run("ip", "link", "set", self._inside, "up")
            self.run("ip", "link", "set", "lo", "up")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Nothing of it is left, whatever happened before."""
        inside = subprocess.run(["ip", "netns", "pids", self.name], capture_output=True, text=True, check=False)
        processes.end([psutil.Process(int(pid)) for pid in inside.stdout.split() if psutil.pid_exists(int(pid))])
        subprocess.run(["ip", "link", "del", self._outside], capture_output=True, check=False)
        _run("ip", "netns", "del", self.name)

    def run(self, *words: str) -> str:
        """One command inside, to its end; its output."""
        return _run(*self.prefix, *words)

    # ------------------------------------------------------------------------------------------------ faults

    def drop(self, port: int | None = None) -> None:
        """What comes in vanishes silently: all of it, or what is meant for one TCP port. Ends with `restore`."""
        self.run("iptables", "-I", "INPUT", *_to(port), "-j", "DROP")

    def reset(self, port: int) -> None:
        """Whoever sends to this TCP port is told at once that the connection is gone. Ends with `restore`."""
        self.run("iptables", "-I", "INPUT", *_to(port), "-j", "REJECT", "--reject-with", "tcp-reset")

    def lose(self, fraction: float) -> None:
        """This part of what comes in is lost at random. Ends with `restore`."""
        chance = ("-m", "statistic", "--mode", "random", "--probability", str(fraction))
        self.run("iptables", "-I", "INPUT", *chance, "-j", "DROP")

    def restore(self) -> None:
        """Everything passes again, as fast as it can."""
        self.run("iptables", "-F", "INPUT")
        for prefix, device in (((), self._outside), (self.prefix, self._inside)):
            # There is none to delete where `slow` was not called.
            subprocess.run([*prefix, "tc", "qdisc", "del", "dev", device, "root"], capture_output=True, check=False)

    def slow(self, bytes_per_s: int) -> None:
        """No more than this passes, either way. Ends with `restore`."""
        shape = ("root", "tbf", "rate", f"{bytes_per_s * 8}bit", "burst", "16kb", "latency", "300ms")
        _run("tc", "qdisc", "replace", "dev", self._outside, *shape)
        self.run("tc", "qdisc", "replace", "dev", self._inside, *shape)

    def unplug(self) -> None:
        """The cable is out; both ends see it. `plug` ends it."""
        _run("ip", "link", "set", self._outside, "down")

    def plug(self) -> None:
        _run("ip", "link", "set", self._outside, "up")


def _to(port: int | None) -> tuple[str, ...]:
    return () if port is None else ("-p", "tcp", "--dport", str(port))


def _run(*words: str) -> str:
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{' '.join(words)}: {result.stderr.strip()}"
    return result.stdout
