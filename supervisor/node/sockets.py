"""Who listens on a port: the kernel's listening sockets × /proc/*/fd. Facts and the owner class, with why.

The sockets come by netlink (`sock_diag`, as `ss` does): 0.1 ms where /proc/net/tcp takes 10 ms on a small machine and
more on a large one, since the kernel walks its whole table of connections for it. The file is what is left without.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from typing import Any, Callable, Dict, FrozenSet, List, Optional, Set, Tuple

from . import proc

_LISTEN = "0A"
UNSEEN_S = 1.0
_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_DUMP = 0x301  # a request, for all of them
_NLMSG_ERROR = 2
_NLMSG_DONE = 3
_TCP_LISTEN = 10
# They accept a connection before anything in the container listens, and their pid says nothing of the server.
_PROXIES = ("docker-proxy", "rootlessport", "slirp4netns", "pasta", "passt", "conmon")

Listener = Dict[str, Any]


def listening(port: Optional[int]) -> List[Listener]:
    """Every listening TCP socket on this port (None: on any) in our network namespace: address, port, inode, uid."""
    try:
        return by_netlink(port)
    except (OSError, struct.error):
        return by_file(port)  # a kernel without tcp_diag, or a sandbox that forbids the socket


def by_netlink(port: Optional[int]) -> List[Listener]:
    """The same, asked of the kernel. Raises `OSError` where it does not answer."""
    out: List[Listener] = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG) as sock:
        sock.settimeout(1.0)
        for family in (socket.AF_INET, socket.AF_INET6):
            wanted = struct.pack("=BBBxI48x", family, socket.IPPROTO_TCP, 0, 1 << _TCP_LISTEN)
            sock.send(struct.pack("=IHHII", 16 + len(wanted), _SOCK_DIAG_BY_FAMILY, _DUMP, family, 0) + wanted)
            while _take(sock.recv(1 << 16), port, out):
                pass
    return out


def _take(data: bytes, port: Optional[int], out: List[Listener]) -> bool:
    """Take the answers out of one message. False when it was the last one."""
    while data:
        length, kind = struct.unpack_from("=IH", data)
        if kind == _NLMSG_DONE:
            return False
        if kind == _NLMSG_ERROR:
            code = -struct.unpack_from("=i", data, 16)[0]
            raise OSError(code, os.strerror(code))
        family, own_port = struct.unpack_from("=Bxxx", data, 16)[0], struct.unpack_from(">H", data, 20)[0]
        uid, inode = struct.unpack_from("=II", data, 80)
        if port is None or own_port == port:
            raw = data[24 : 24 + (4 if family == socket.AF_INET else 16)]
            address = socket.inet_ntop(family, raw)
            out.append({"address": address, "port": own_port, "inode": inode, "uid": uid})
        data = data[(length + 3) & ~3 :]
    return True


def by_file(port: Optional[int]) -> List[Listener]:
    """The same from /proc/net/tcp and tcp6."""
    out: List[Listener] = []
    wanted = ":%04X" % port if port is not None else ""
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(path) as file:
                rows = file.read().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            fields = row.split()
            if len(fields) < 10 or fields[3] != _LISTEN or not fields[1].endswith(wanted):
                continue
            out.append(
                {
                    "address": _address(fields[1].split(":")[0]),
                    "port": int(fields[1].split(":")[1], 16),
                    "inode": int(fields[9]),
                    "uid": int(fields[7]),
                }
            )
    return out


def _address(text: str) -> str:
    raw = bytes.fromhex(text)
    if len(raw) == 4:
        return socket.inet_ntop(socket.AF_INET, struct.pack("=I", int(text, 16)))
    words = struct.unpack(">4I", raw)
    return socket.inet_ntop(socket.AF_INET6, struct.pack("=4I", *words))


class Owners:
    """Finds the processes behind sockets, and remembers them, so that asking at 13 Hz stays cheap."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # inode → pid, start ticks, the link under /proc/PID/fd, and the tree that was searched when it was found
        self._holders: Dict[int, Tuple[int, int, str, FrozenSet[int]]] = {}
        self._unseen: Dict[int, float] = {}

    def holder(self, inode: int, first: Set[int]) -> Optional[int]:
        """The pid that holds this socket, looked for in `first` before anywhere else; None where none is visible."""
        known = self._holders.get(inode)
        target = "socket:[%d]" % inode
        if known is not None:
            pid, ticks, link, searched = known
            # A process that another one's tree shares its socket with counts as ours: so look again when ours grew.
            if proc.alive(pid, ticks) and _readlink(link) == target and (pid in first or first <= searched):
                return pid
        if time.monotonic() < self._unseen.get(inode, 0.0):
            return None
        for group in (sorted(first), (pid for pid in proc.pids() if pid not in first)):
            for pid in group:
                found = _find(pid, target)
                described = proc.stat(pid) if found is not None else None
                if found is not None and described is not None:
                    self._forget_some()
                    self._holders[inode] = (pid, described["start_ticks"], found, frozenset(first))
                    return pid
        self._unseen[inode] = time.monotonic() + UNSEEN_S
        return None

    def _forget_some(self) -> None:
        if len(self._holders) + len(self._unseen) > 1000:
            self._holders.clear()
            self._unseen.clear()

    def classify(self, port: int, ours: Callable[[], Set[int]], run_id: Optional[str]) -> List[Listener]:
        """The listeners on a port, each with pid, title, owner (ours, other, unknown) and why."""
        with self._lock:
            rows = listening(port)
            mine = ours() if rows else set()
            for row in rows:
                pid = self.holder(row["inode"], mine)
                row["pid"], row["title"], row["start_ticks"] = pid, "", None
                described = proc.describe(pid) if pid is not None else None
                if described is not None:
                    row["title"], row["start_ticks"] = described["title"], described["start_ticks"]
                row["owner"], row["why"] = _owner(row, pid in mine, run_id)
            return rows


def _owner(row: Listener, in_tree: bool, run_id: Optional[str]) -> Tuple[str, str]:
    pid = row["pid"]
    if pid is None:
        if row["uid"] != os.getuid():
            return "other", "another user's listener"
        return "unknown", "its process is not visible (another namespace, or hidepid)"
    if in_tree or (run_id is not None and proc.run_of(pid) == run_id):
        return "ours", ""
    found = proc.stat(pid)
    if found is not None and found["comm"] in _PROXIES:
        return "unknown", "%s is a container proxy" % found["comm"]
    return "other", ""


def _find(pid: int, target: str) -> Optional[str]:
    folder = "/proc/%d/fd" % pid
    try:
        names = os.listdir(folder)
    except OSError:
        return None
    for name in names:
        link = "%s/%s" % (folder, name)
        if _readlink(link) == target:
            return link
    return None


def _readlink(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


# ------------------------------------------------------------------------------------------- a port that opens


def addresses(host: str) -> List[str]:
    """The addresses that `host` is looked at by: localhost is both loopbacks, a wildcard the loopback of its family."""
    return {"localhost": ["127.0.0.1", "::1"], "0.0.0.0": ["127.0.0.1"], "::": ["::1"], "": ["127.0.0.1", "::1"]}.get(
        host, [host]
    )


def accepts(host: str, port: int, wait_s: float = 0.5) -> Optional[str]:
    """The first address of `host` where a connection is accepted, None when it is refused everywhere."""
    for address in addresses(host):
        try:
            with socket.create_connection((address, port), timeout=wait_s) as sock:
                if sock.getsockname()[:2] != sock.getpeername()[:2]:
                    return address
                # A port of the ephemeral range that nobody listens on can be given to ourselves as the source: the
                # kernel then connects the socket to itself. Reset, so that it is free again at once.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except OSError:
            continue
    return None


def visible(host: str, port: int) -> Optional[str]:
    """The same from the table of listeners alone: no connection that the server would see."""
    rows = {row["address"] for row in listening(port)}
    for address in addresses(host):
        wildcards = {"0.0.0.0", "::"} if "." in address else {"::"}
        mapped = {"::ffff:" + address} if "." in address else set()
        if rows & ({address} | wildcards | mapped):
            return address
    return None
