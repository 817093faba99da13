"""Servers that will not go, for the tests of stopping: `python -I -S nasty_tree.py KIND TREE CLAIMS DEVICE BYTES`.

Every process of one holds memory of the stub's GPU by a file TREE.PID.TICKS in the folder of claims (see nvml.py), and
the device file open, so that a test knows them all, wherever they have gone. With $NASTY_BYSTANDER, a path, it is one
process of the same command line that holds memory too, goes on whatever comes, and writes down every signal.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

_BREEDS = 40


class Tree:
    """What one launch is made of."""

    def __init__(self, tree: str, claims: str, device: str, held_bytes: int) -> None:
        self.tree, self.claims, self.device, self.held_bytes = tree, claims, device, held_bytes

    def hold(self) -> None:
        """Hold memory of the GPU from now on, under the present pid."""
        pid = os.getpid()
        with open(f"/proc/{pid}/stat") as file:
            ticks = file.read().rpartition(")")[2].split()[19]
        os.set_inheritable(os.open(self.device, os.O_RDONLY), True)
        unfinished = os.path.join(self.claims, f".{self.tree}.{pid}")
        with open(unfinished, "w") as file:
            file.write(f"proc {self.device.rpartition('nvidia')[2]} {pid} C {self.held_bytes}\n")
        os.rename(unfinished, os.path.join(self.claims, f"{self.tree}.{pid}.{ticks}"))

    def child(self, work: Callable[[], None]) -> int:
        """A child that does this and nothing after it."""
        pid = os.fork()
        if pid == 0:
            try:
                work()
            finally:
                os._exit(0)
        return pid

    def holder(self, *, deaf: bool = True) -> None:
        """Hold memory and stay."""
        if deaf:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self.hold()
        stay()

    # ------------------------------------------------------------------------------- kinds

    def obedient(self) -> None:
        """Goes at the first TERM, and so do its children."""
        for _ in range(2):
            self.child(lambda: self.holder(deaf=False))

    def ignores_term(self) -> None:
        """Root and children."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for _ in range(2):
            self.child(self.holder)

    def double_fork(self) -> None:
        """The middle one ends: its child has another parent."""

        def middle() -> None:
            self.child(self.holder)

        os.waitpid(self.child(middle), 0)

    def setsid_grandchild(self) -> None:
        """A worker's child in a session of its own."""

        def own_session() -> None:
            os.setsid()
            self.holder()

        def worker() -> None:
            self.child(own_session)
            self.holder(deaf=False)

        self.child(worker)

    def daemon(self) -> None:
        """Double fork and a session of its own: nothing but its mark leads back."""

        def middle() -> None:
            os.setsid()
            self.child(self.holder)

        os.waitpid(self.child(middle), 0)

    def respawns(self) -> None:
        """At each TERM it goes on as a new process."""

        def again(_number: int, _frame: object) -> None:
            if os.fork() > 0:
                os._exit(0)
            os.setsid()
            self.hold()

        def worker() -> None:
            signal.signal(signal.SIGTERM, again)
            self.hold()
            stay()

        self.child(worker)

    def breeds(self) -> None:
        """From the first TERM on it gets children that stay."""

        def breed(_number: int, _frame: object) -> None:
            for _ in range(_BREEDS):
                self.child(self.holder)
                time.sleep(0.01)

        def worker() -> None:
            signal.signal(signal.SIGTERM, breed)
            self.hold()
            stay()

        self.child(worker)

    def many(self) -> None:
        """Sixty-four children, every other one deaf."""
        for number in range(64):
            self.child(lambda deaf=bool(number % 2): self.holder(deaf=deaf))  # type: ignore[misc]

    def frozen(self) -> None:
        """Its children are stopped: no TERM is ever seen."""

        def work() -> None:
            self.hold()
            os.kill(os.getpid(), signal.SIGSTOP)
            stay()

        for _ in range(2):
            self.child(work)

    def disguised(self) -> None:
        """It closes all that it has open, and calls itself something else."""

        def work() -> None:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            self.hold()
            os.closerange(0, 64)
            ctypes.CDLL(None).prctl(15, b"kworker/u8:2", 0, 0, 0)
            os.execv("/bin/sleep", ["[kworker/u8:2]", "600"])

        self.child(work)

    def nameless(self) -> None:
        """No mark, no session, no parent of ours: only the keeper, which takes the orphans in, knows it."""

        def work() -> None:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            self.child(exec_clean)

        def exec_clean() -> None:
            self.hold()
            os.execve("/usr/bin/env", ["env", "-i", "/bin/sleep", "600"], {})

        os.waitpid(self.child(work), 0)

    def headless(self) -> None:
        """A zombie leader whose threads live, and hold what it held."""

        def work() -> None:
            self.hold()
            threading.Thread(target=stay_quietly).start()
            ctypes.CDLL(None).pthread_exit(None)

        self.child(work)

    def vllm(self) -> None:
        """An API server with a core and two workers, by the names that vLLM gives them."""
        for title in ("VLLM::EngineCore", "VLLM::Worker_TP0", "VLLM::Worker_TP1"):

            def work(title: str = title) -> None:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                self.hold()
                os.execv("/bin/sleep", [title, "600"])

            self.child(work)

    def dies_first(self) -> None:
        """The root is gone before anybody can ask it, and leaves its workers."""
        signal.signal(signal.SIGTERM, lambda _number, _frame: os._exit(3))
        for _ in range(2):
            self.child(self.holder)


KINDS: dict[str, int] = {
    "obedient": 3,
    "ignores_term": 3,
    "double_fork": 2,
    "setsid_grandchild": 3,
    "daemon": 2,
    "respawns": 2,
    "breeds": 2,
    "many": 65,
    "frozen": 3,
    "disguised": 2,
    "nameless": 2,
    "headless": 2,
    "vllm": 4,
    "dies_first": 3,
}
"""How many processes hold memory once it is up."""


def stay() -> None:
    """For ever, taking signals."""
    while True:
        signal.pause()


def stay_quietly() -> None:
    """For ever, in a thread."""
    threading.Event().wait()


def bystander(tree: Tree, path: str) -> None:
    """Like a server by every outward sign, and nobody's business."""

    def note(number: int, _frame: object) -> None:
        with open(path, "a") as file:
            file.write(f"{number}\n")

    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
        signal.signal(number, note)
    tree.hold()
    stay()


def main() -> None:
    kind, name, claims, device, held_bytes = sys.argv[1:]
    tree = Tree(name, claims, device, int(held_bytes))
    quiet = os.environ.get("NASTY_BYSTANDER")
    if quiet:
        tree.tree = f"bystander-{name}"
        bystander(tree, quiet)
    getattr(tree, kind)()
    tree.hold()
    stay()


if __name__ == "__main__":
    main()
