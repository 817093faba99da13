"""Sessions for the format functions: a real desk with its machine and hub, fed as a node feeds it, without an app."""

from __future__ import annotations

from collections.abc import Iterable

from supervisor.core import events as ev
from supervisor.core.events import LinkState, Owner, Verdict
from supervisor.core.gpu import GIB, Coverage, Driver, DriverState, Gpu, Memory, Use
from supervisor.core.gpu_events import GpuEvent, Holders
from supervisor.core.holder import Holder, HolderClass
from supervisor.supervise.desk import Desk
from supervisor.tui.model import SessionModel
from supervisor.tui.pieces import Mask, Pieces, cells, text_of
from tests.tui.fakes import BEGAN, StandingClock

RUN = "1130-0412-a3f1"
WHY_OURS = "127.0.0.1:30000 is held by pid 48190 python3 -m sglang.launch_server --tp 8, ours; model kimi-k2.5-int4"
NAME = "NVIDIA RTX PRO 6000 Blackwell Server Edition"


class Told:
    """One session: tell it things, then look at `model` at `now`."""

    def __init__(self, *, title: str = "kimi-k25-eagle3", node: str = "gpu1", mask: Mask = str) -> None:
        self.clock = StandingClock()
        self.desk = Desk(clock=self.clock, verify=True, on_phase=lambda _change: None)
        self.model = SessionModel(title, node, mask)
        self._subscription = self.desk.hub.subscribe()
        self.model.take((), self._subscription.view, {})

    @property
    def now(self) -> float:
        """The operator's clock."""
        return self.clock.at

    def after(self, seconds: float) -> Told:
        """Time goes on."""
        self.clock.at += seconds
        return self

    def note(self, fact: ev.AnyFact) -> Told:
        """A fact."""
        self.desk.note(fact)
        return self._taken()

    def tell(self, *events: ev.AnyEvent) -> Told:
        """Events that are no consequence of a fact."""
        for event in events:
            self.desk.tell(event)
        return self._taken()

    def _taken(self) -> Told:
        self.model.take(self._subscription.take(), self.desk.hub.view, self.desk.tally.answers)
        return self

    # ------------------------------------------------------------------------------- what a node tells

    def link(self, state: LinkState = LinkState.UP, why: str = "gpu1 (gpu1), Python 3.10.12, uid 0") -> Told:
        return self.note(ev.LinkChanged(at=self.clock.at, state=state, why=why))

    def begin(self, run_id: str = RUN) -> Told:
        return self.note(ev.RunBegan(at=self.clock.at, run_id=run_id, why="nothing runs: launch"))

    def launch(self) -> Told:
        return self.note(ev.Launched(at=self.clock.at, text="keeper 48180 started python3 -m sglang.launch_server"))

    def seen(self) -> Told:
        root = ev.Process(pid=48190, start_ticks=99, title="python3 -m sglang.launch_server")
        return self.note(ev.ProcessSeen(at=self.clock.at, root=root))

    def stage(self, done: int, total: int, stage: str = "weights") -> Told:
        fact = ev.StageSeen(at=self.clock.at, stage=stage, done=done, total=total, fraction=done / total)
        return self.note(fact)

    def answer(self, verdict: Verdict, status: int | None = None, why: str = "", ms: float = 12.0) -> Told:
        found = ev.Answer(
            verdict=verdict,
            why=why,
            status=status,
            bytes=0 if status is not None else None,
            ms=ms,
            owner=Owner.OURS if status is not None else Owner.UNKNOWN,
            cause=str(status),
            address="127.0.0.1:30000",
        )
        return self.note(ev.Answered(at=self.clock.at, answer=found))

    def refused(self, seconds: int) -> Told:
        """Nothing listens, for that long."""
        for _ in range(seconds):
            self.after(1).answer(Verdict.REFUSED, why="nothing listens on localhost:30000 (looked at on the node)")
        return self

    def loading(self) -> Told:
        """Up to the middle of the load."""
        self.link().begin().after(0.8).launch().after(2.0).seen()
        self.refused(30)
        for done in range(1, 42):
            self.after(9.0).stage(done, 64)
        return self.answer(Verdict.REFUSED, why="nothing listens on localhost:30000 (looked at on the node)")

    def warming(self) -> Told:
        self.loading()
        return self.after(200).answer(Verdict.NOT_YET, 503, "by the engine's rule: not ready yet")

    def healthy(self) -> Told:
        return self.warming().after(8).answer(Verdict.READY, 200, WHY_OURS, ms=1003)

    def serving(self) -> Told:
        self.healthy().after(0.412)
        return self.note(ev.Verified(at=self.clock.at, text="generated 'Paris' in 412 ms"))

    def failed(self) -> Told:
        self.loading().after(10)
        return self.note(ev.Ended(at=self.clock.at, exit=ev.Exit(code=1)))

    def look(self, *used_gib: float, holders: Iterable[Holder] | None = None, ours: float | None = None) -> Told:
        """The node tells its GPUs, and who holds what of them."""
        self.tell(gpu_event(self.clock.at, gpus(*used_gib), ours=ours))
        return self.holds(*holders) if holders is not None else self

    def holds(self, *holders: Holder) -> Told:
        """The node tells who holds what."""
        return self.tell(holders_event(self.clock.at, holders))


def gpus(*used_gib: float | None, total_gib: float = 95.6, name: str = NAME) -> tuple[Gpu, ...]:
    """Healthy ones, each with one process."""
    return tuple(
        Gpu(
            uuid=f"GPU-{index}",
            index=index,
            name=name,
            bus_id=f"00000000:{index + 1:02X}:00.0",
            memory=Memory(total_bytes=round(total_gib * GIB), used_bytes=None if used is None else round(used * GIB)),
            uses=(Use(pid=48211 + index, used_bytes=round(used * GIB)),) if used else (),
            gpu_percent=3,
            temperature_c=48,
            power_w=210.4,
            power_limit_w=600.0,
            sm_clock_mhz=2100,
            throttle=(),
        )
        for index, used in enumerate(used_gib)
    )


WELL = Driver(state=DriverState.OK)


def gpu_event(at: float, found: Iterable[Gpu], *, ours: float | None = None, driver: Driver = WELL) -> GpuEvent:
    ours_bytes = None if ours is None else round(ours * GIB)
    return GpuEvent(at=at, host="gpu1", driver=driver, gpus=tuple(found), sampled_at=at, ours_bytes=ours_bytes)


def holders_event(
    at: float, found: Iterable[Holder], *, coverage: Coverage = Coverage.ALL, container: bool = False
) -> Holders:
    return Holders(at=at, host="gpu1", coverage=coverage, container=container, holders=tuple(found))


def rank(index: int, gib: float, *, age_s: float = 399.0, now: float = BEGAN + 400) -> Holder:
    """A scheduler of this run."""
    return Holder(
        class_=HolderClass.OURS_LIVE,
        pid=48211 + index,
        start_ticks=index,
        uid=1003,
        user="ana",
        title=f"sglang::scheduler_TP{index}",
        run_id=RUN,
        key="kimi-k25-eagle3",
        started_at=now - age_s,
        held={f"GPU-{index}": round(gib * GIB)},
    )


def zombie(index: int, gib: float, *, now: float = BEGAN + 400) -> Holder:
    """What a run of the day before yesterday has left."""
    return Holder(
        class_=HolderClass.OURS_ORPHAN,
        pid=31007,
        start_ticks=7,
        uid=1003,
        user="ana",
        title="sglang::scheduler_TP7",
        run_id="1128-1903-0b77",
        started_at=now - 2 * 86400 - 3600,
        held={f"GPU-{index}": round(gib * GIB)},
        zombie=True,
        killable="yes",
        preselected=True,
    )


def lines_of(pieces: Pieces) -> list[str]:
    """The text of each line, without blanks at its end."""
    return [line.rstrip() for line in text_of(pieces).split("\n")]


def widest(pieces: Pieces) -> int:
    """Cells of the longest line."""
    return max(cells(line) for line in text_of(pieces).split("\n"))
