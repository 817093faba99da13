"""GPU memory in the console: the line below the health, and the column of the dialog."""

from __future__ import annotations

from supervisor.core.gpu import Coverage, Driver, DriverState, Gpu, GpuState, Memory, Use
from supervisor.core.gpu_events import GpuEvent, Holders
from supervisor.core.holder import Holder, HolderClass
from supervisor.tui import format, format_gpus
from tests.tui.consoles import TREE

GIB = 1 << 30


def look(at: float, *used_gib: int | None, ours_gib: int | None = None, why: str = "") -> GpuEvent:
    gpus = tuple(
        Gpu(
            uuid=f"GPU-{index}",
            index=index,
            memory=Memory(total_bytes=80 * GIB, used_bytes=None if used is None else used * GIB),
            uses=(Use(pid=TREE[1].pid, used_bytes=used * GIB if used else None),),
        )
        for index, used in enumerate(used_gib)
    )
    driver = Driver(state=DriverState.STUCK if why else DriverState.OK, why=why)
    return GpuEvent(at=at, host="gpu1", driver=driver, gpus=gpus, ours_bytes=ours_gib * GIB if ours_gib else None)


def text(event: GpuEvent | None, holders: Holders | None = None, now: float = 0.0) -> str:
    return "".join(piece for piece, _role in format_gpus.memory(event, holders, now))


def test_the_line_tells_each_gpu_the_sums_and_ours() -> None:
    assert text(None) == ""
    assert text(look(0, 0, 40, 80, None, ours_gib=71)) == "gpus    ▁▅█?  120.0 GiB of 240.0 GiB · this run 71.0 GiB"


def test_what_is_wrong_is_told() -> None:
    event = look(0, 10, 10)
    lost = GpuEvent(
        at=0, host="h", driver=event.driver, gpus=(event.gpus[0], Gpu(uuid="x", index=1, state=GpuState.LOST))
    )
    assert text(lost) == "gpus    ▂✗  10.0 GiB of 80.0 GiB · 1 lost"
    orphan = Holder(class_=HolderClass.OURS_ORPHAN, pid=1, held={"GPU-0": 5 * GIB}, zombie=True)
    alive = Holder(class_=HolderClass.OURS_LIVE, pid=2, held={"GPU-0": 5 * GIB})
    holders = Holders(at=0, host="h", coverage=Coverage.ALL, holders=(orphan, alive))
    assert text(event, holders).endswith(" · 1 left over with 5.0 GiB (supervisor zombies)")
    stuck = look(0, 10, 10, why="driver not responding since 14 s")
    assert text(stuck).endswith("20.0 GiB of 160.0 GiB · driver not responding since 14 s")
    assert text(look(0, 10), now=12.0).endswith(" · 12 s ago")


def test_a_process_on_several_gpus_holds_their_sum_and_a_missing_figure_is_none() -> None:
    assert format_gpus.held_by_pid(look(0, 10, 20)) == {TREE[1].pid: 30 * GIB}
    assert format_gpus.held_by_pid(look(0, 10, None)) == {TREE[1].pid: None}
    assert format_gpus.held_by_pid(None) == {}


def test_ages_go_on_while_nothing_is_told() -> None:
    """The node tells the tree when it changes: a dialog after an hour of serving said "1 s"."""
    said = "".join(piece for piece, _role in format.victims(TREE, older_s=3600.0))
    assert "1:06:41" in said and "1:00:07" in said and "GPU memory" not in said
