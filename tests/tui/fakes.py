"""A session without a node, and a clock that stands: the desk, its machine and its hub are the real ones."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import Struct

from supervisor.core import events as ev
from supervisor.core.events import Owner, Verdict
from supervisor.core.gpu import Driver, DriverState, Snapshot
from supervisor.core.holder import Holder
from supervisor.errors import SupervisorError
from supervisor.supervise.clear import Cleared
from supervisor.supervise.desk import Desk
from supervisor.supervise.left_overs import LeftOvers
from supervisor.supervise.stop import Stopped
from supervisor.supervise.witness import Witness

BEGAN = 1_764_500_000.0


class StandingClock:
    """Implements `adapters.base.Clock`; only the test moves it."""

    def __init__(self) -> None:
        self.at = BEGAN

    def now(self) -> float:
        return self.at

    async def sleep(self, wait_s: float) -> None:
        self.at += wait_s


class FakePlan(Struct):
    grace_s: float = 30.0


class FakeAttendance:
    def __init__(self, tree: Sequence[ev.Process], clock: StandingClock) -> None:
        self.tree = tuple(tree)
        self._clock = clock
        self.verified_again = 0
        self.log_path = "/data/logs/kimi.log"

    @property
    def tree_at(self) -> float:
        """Just now."""
        return self._clock.now()

    async def verify_again(self) -> None:
        self.verified_again += 1


class FakeSession:
    """Stands for `supervise.session.Session`. The test feeds facts; orders are written down and answered."""

    def __init__(self, *, verify: bool = True, tree: Sequence[ev.Process] = ()) -> None:
        self.clock = StandingClock()
        self.desk = Desk(clock=self.clock, verify=verify, on_phase=lambda _change: None)
        self.plan = FakePlan()
        self.attendance: FakeAttendance | None = FakeAttendance(tree, self.clock) if tree else None
        self.orders: list[str] = []
        self.runs = 0
        self.cancelled = 0
        self.stop_fails: SupervisorError | None = None
        self.stop_takes: asyncio.Event | None = None
        text = "all 3 processes are gone after 1.2 s (signals by pidfd)"
        self.stopped = Stopped(gone=True, killed=0, left=(), text=text, release="no gpu")
        self.witness: Witness | None = None
        self.rtt_ms: float | None = 12.3
        self.found = LeftOvers(Snapshot(at=BEGAN, driver=Driver(state=DriverState.OK)), ())
        self.end: asyncio.Future[None] | None = None

    async def run(self) -> None:
        self.runs += 1
        self.end = asyncio.get_running_loop().create_future()
        try:
            await self.end
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def stop(self, by: str | None = None, *, witness: Witness | None = None) -> Stopped | None:
        return await self._order("stop", witness)

    async def restart(self, *, witness: Witness | None = None) -> Stopped | None:
        return await self._order("restart", witness)

    async def left_overs(self) -> LeftOvers:
        self.orders.append("look")
        return self.found

    async def clear(
        self, targets: Sequence[Holder], spared: Sequence[Holder], *, witness: Witness | None = None
    ) -> Cleared:
        self.orders.append("clear " + " ".join(str(target.pid) for target in targets))
        stopped = await self._order("clear", witness)
        assert stopped is not None
        return Cleared(gone=True, left=(), text=stopped.text, release="no gpu")

    async def _order(self, order: str, witness: Witness | None) -> Stopped | None:
        self.orders.append(order)
        self.witness = witness
        if self.stop_takes is not None:
            await self.stop_takes.wait()
        if self.stop_fails is not None:
            raise self.stop_fails
        return self.stopped

    async def read_log(self, offset: int, length: int) -> bytes:
        return b""

    async def count_log_lines(self, offset: int) -> int:
        return 0

    async def ping(self) -> float | None:
        return self.rtt_ms

    # ------------------------------------------------------------------------------- what a test feeds

    def after(self, seconds: float) -> FakeSession:
        self.clock.at += seconds
        return self

    def link(self, state: ev.LinkState, why: str = "gpu1 (gpu1), Python 3.10.12, uid 0") -> None:
        self.desk.note(ev.LinkChanged(at=self.clock.at, state=state, why=why))

    def begin(self, run_id: str = "1130-0412-a3f1") -> None:
        self.desk.note(ev.RunBegan(at=self.clock.at, run_id=run_id, why="nothing runs: launch"))

    def launch(self) -> None:
        self.desk.note(ev.Launched(at=self.clock.at, text="keeper 48180 started python3 -m sglang.launch_server"))

    def seen(self) -> None:
        root = ev.Process(pid=48190, start_ticks=99, title="python3 -m sglang.launch_server")
        self.desk.note(ev.ProcessSeen(at=self.clock.at, root=root))

    def stage(self, done: int, total: int, stage: str = "weights") -> None:
        fraction = done / total
        self.desk.note(ev.StageSeen(at=self.clock.at, stage=stage, done=done, total=total, fraction=fraction))

    def answer(self, verdict: Verdict, status: int | None = None, why: str = "", ms: float = 12.0) -> None:
        size = 0 if status is not None else None
        owner = Owner.OURS if status is not None else Owner.UNKNOWN
        found = ev.Answer(verdict=verdict, why=why, status=status, bytes=size, ms=ms, owner=owner, cause=str(status))
        self.desk.note(ev.Answered(at=self.clock.at, answer=found))

    def log(self, text: str, line_no: int, *, living: bool = False) -> None:
        self.desk.tell(ev.Log(at=self.clock.at, text=text, line_no=line_no, offset=line_no * 80, living=living))

    def loading(self) -> None:
        """Up to the middle of the load."""
        self.link(ev.LinkState.UP)
        self.begin()
        self.after(0.8).launch()
        self.after(2.0).seen()
        self.after(396.0).stage(41, 64)

    def serving(self) -> None:
        """All the way."""
        self.loading()
        self.after(2).answer(Verdict.NOT_YET, 503, "503 means that it loads")
        self.after(8).answer(Verdict.READY, 200, "200 from our own process", ms=1003)
        self.after(0.4)
        self.desk.note(ev.Verified(at=self.clock.at, text="generated 'Paris' in 412 ms"))
