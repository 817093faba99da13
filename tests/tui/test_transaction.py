"""An order shown live to its proof: what is written down of it, what is said of it, and the screen that shows it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from supervisor.core import events as ev
from supervisor.core.claim import Claim, Held
from supervisor.core.gpu import Coverage, Driver, DriverState, Snapshot, Use
from supervisor.core.gpu_events import GpuEvent
from supervisor.core.holder import Holder, HolderClass
from supervisor.errors import UnreachableError
from supervisor.supervise.left_overs import LeftOvers
from supervisor.supervise.stop import Stopped
from supervisor.tui import format_order
from supervisor.tui.order import Order
from supervisor.tui.pieces import Pieces, cells, text_of
from supervisor.tui.screens.run import RunScreen
from supervisor.tui.screens.transaction import TransactionScreen
from supervisor.tui.screens.zombies import ZombiesScreen
from tests.tui.consoles import GIB, SECRET, SMALL, TREE, USUAL, console, gpus, press, said, screen_text, shows, until
from tests.tui.consoles import watcher_of as make_watcher
from tests.tui.fakes import BEGAN, FakeSession, StandingClock

HELD = tuple(
    Held(
        uuid=f"GPU-{n}",
        label=f"GPU {n}",
        ours_bytes=70 * GIB,
        used_bytes=70 * GIB,
        baseline_bytes=GIB // 2,
        recorded=True,
    )
    for n in range(2)
)
CLAIM = Claim(at=1.0, spaces=HELD)
LEFT = "1 process is still there after 40.0 s: pid 48212 in state D: reset the GPU or reboot the node"


def order_of(clock: StandingClock, kind: str = "stop", *used_gib: int) -> Order:
    return Order(kind, clock.now, gpus=gpus(FakeSession(), *(used_gib or (70, 70))))


def rows(pieces: Pieces) -> list[str]:
    return text_of(pieces).splitlines()


def roles(pieces: Pieces, text: str) -> set[str]:
    return {role for piece, role in pieces if text in piece}


def walk(order: Order, clock: StandingClock) -> None:
    """TERM to the root, which goes; TERM to the rest, of which one goes and one is killed."""
    order.planned(TREE, CLAIM)
    clock.at += 0.5
    order.signalled("TERM", TREE[:1])
    clock.at += 1.2
    order.alive(TREE[1:])
    order.signalled("TERM", TREE[1:])
    clock.at += 0.6
    order.alive(TREE[2:])
    clock.at += 28.0
    order.signalled("KILL", TREE[2:])
    order.signalled("KILL", TREE[2:])  # sent again at each look
    clock.at += 0.3


# ------------------------------------------------------------------------------- what is written down


def test_an_order_knows_what_became_of_each_process() -> None:
    clock = StandingClock()
    order = order_of(clock)
    walk(order, clock)
    fates = [(fate.process.pid, fate.signal, fate.gone_at) for fate in order.fates.values()]
    assert fates == [(48190, "TERM", BEGAN + 1.7), (48211, "TERM", pytest.approx(BEGAN + 2.3)), (48212, "KILL", None)]
    order.alive([])
    assert order.fates[48212, 3].gone_at == clock.at and order.under_way
    assert [step.text for step in order.steps] == [
        "TERM sent to pid 48190", "TERM sent to 2 processes", "KILL sent to pid 48212",
    ]  # fmt: skip
    assert order.processes == tuple(TREE) and order.claim is CLAIM
    child = ev.Process(pid=50_000, start_ticks=77, title="forked meanwhile")
    order.alive([child])
    order.alive([replace(child, title="[forked]", state="Z")])
    assert order.processes[-1].title == "forked meanwhile"
    order.alive([child])
    assert order.processes[-1] == child and order.fates[48190, 1].gone_at == BEGAN + 1.7
    order.end("all gone", good=True)
    assert (order.text, order.good, order.under_way, order.ended_at) == ("all gone", True, False, clock.at)


def test_a_pid_that_is_another_process_by_now_is_no_old_one() -> None:
    clock = StandingClock()
    order = order_of(clock)
    order.alive(TREE[:1])
    clock.at += 1
    order.alive([replace(TREE[0], start_ticks=999)])
    assert [fate.gone_at for fate in order.fates.values()] == [clock.at, None]


# ------------------------------------------------------------------------------- what is said


def test_each_process_is_told_with_its_state_and_what_it_held() -> None:
    clock = StandingClock()
    order = order_of(clock)
    order.alive(TREE)
    shown = format_order.fates(order, str, clock.at, 100, 9)
    assert [row.split()[1:3] for row in rows(shown)[1:]] == [["●", "alive"]] * 3
    walk(order, clock)
    shown = format_order.fates(order, str, clock.at, 100, 9)
    assert "gone after 1.7 s" in rows(shown)[1] and "–" in rows(shown)[1]
    assert "gone after 2.3 s" in rows(shown)[2] and "70.0 GiB" in rows(shown)[2]
    assert "▲ KILL sent" in rows(shown)[3]
    order.alive([])
    assert "killed, gone at 31 s" in rows(format_order.fates(order, str, clock.at, 100, 9))[3]
    order.alive([replace(TREE[2], state="D")])
    stuck = format_order.fates(order, str, clock.at, 100, 9)
    assert "in the kernel (D)" in rows(stuck)[3] and roles(stuck, "in the kernel") == {"bad"}
    order.alive(TREE[2:])
    order.end(LEFT, good=False)
    assert "✘ still there" in text_of(format_order.fates(order, str, clock.at, 100, 9))
    first = rows(format_order.fates(order, str, clock.at, 100, 3))[1]
    assert "48212" in first  # where not all are seen at once, the living come first


def test_the_road_counts_signals_ends_and_the_proof() -> None:
    clock = StandingClock()
    order = order_of(clock)
    assert text_of(format_order.road(order, 30.0, clock.at, 100)) == "● looking ─ ○ memory released"
    order.planned(TREE, None)
    assert "○ TERM 0 of 3" in text_of(format_order.road(order, 30.0, clock.at, 100))
    order.signalled("TERM", TREE[:1])
    clock.at += 2
    assert "● TERM 1 of 3  KILL in 28 s ─ ○ gone 0 of 3" in text_of(format_order.road(order, 30.0, clock.at, 100))
    order.signalled("KILL", TREE[1:])
    order.alive([])
    road = format_order.road(order, 30.0, clock.at, 100)
    assert text_of(road) == "✔ TERM 3 of 3 ─ ▲ KILL 2 ─ ✔ gone 3 of 3 ─ ● memory released"
    order.end("released", good=True)
    assert text_of(format_order.road(order, 30.0, clock.at, 100)).endswith("✔ memory released")
    order.alive(TREE[2:])
    order.end(LEFT, good=False)
    road = format_order.road(order, 30.0, clock.at, 100)
    assert "✘ gone 2 of 3" in text_of(road) and text_of(road).endswith("✘ memory not proved to be released")
    empty = order_of(clock)
    empty.end("Nothing ran", good=True)
    assert "✔ nothing of it runs" in text_of(format_order.road(empty, 30.0, clock.at, 100))


def look(used_gib: Iterable[float]) -> GpuEvent:
    event = gpus(FakeSession(), 70, 70)
    found = tuple(
        replace(gpu, uses=(), memory=replace(gpu.memory, used_bytes=int(used * GIB)))
        for gpu, used in zip(event.gpus, used_gib, strict=True)
    )
    return replace(event, gpus=found)


def test_memory_falls_to_what_it_was_when_the_gpu_was_idle() -> None:
    order = order_of(StandingClock())
    order.planned(TREE, CLAIM)
    spaces = format_order.falling(order, look((70, 0.6)))
    assert [space.free for space in spaces] == [False, True]
    shared = look((40.6, 0.6))  # another server has taken the place: that is none of ours
    busy = replace(shared.gpus[0], uses=(Use(pid=7, used_bytes=40 * GIB),))
    shared = replace(shared, gpus=(busy, shared.gpus[1]))
    assert [space.free for space in format_order.falling(order, shared)] == [True, True]
    dark = replace(shared, gpus=(replace(busy, uses=None), shared.gpus[1]))
    assert format_order.falling(order, dark)[0].free is None
    shown = rows(format_order.memory(spaces, 100, 8))
    assert shown[0].startswith("● GPU 0") and "70.0 → 70.0 GiB" in shown[0] and "idle  0.5" in shown[0]
    assert shown[1].startswith("✔ GPU 1") and "70.0 →  0.6 GiB" in shown[1]
    assert shown[0].count("━") > 30 > 2 > shown[1].count("━") and shown[1].count("─") > 30
    summed = rows(format_order.memory(format_order.falling(order, look((0.6, 70))) * 3, 80, 3))
    assert len(summed) == 3 and summed[0].startswith("● GPU 1") and summed[2] == "… 4 more, 3 of them free"
    assert format_order.memory((), 100, 8) == ()


def test_memory_without_a_claim_or_a_figure_says_less_and_nothing_wrong() -> None:
    order = order_of(StandingClock())
    order.alive(TREE)
    (first, second) = format_order.falling(order, look((70, 0.6)))
    assert (first.label, first.idle_bytes, first.free, second.free) == ("GPU 0", None, None, None)
    assert rows(format_order.memory([first], 100, 8))[0].startswith("○ GPU 0")
    order.planned(TREE, CLAIM)
    blind = format_order.falling(order, None)
    assert [space.now_bytes for space in blind] == [None, None]
    assert "70.0 →    ? GiB" in rows(format_order.memory(blind, 100, 8))[0]


def test_steps_and_the_outcome_are_masked_whole_and_fit() -> None:
    clock = StandingClock()
    order = order_of(clock)
    for number in range(7):
        clock.at += 1.5
        order.told(f"step {number} {SECRET}")
    mask = make_watcher(FakeSession()).mask
    assert rows(format_order.steps(order, mask, 40, 2)) == ["   9.0 s  step 5 •••", "    10 s  step 6 •••"]
    assert format_order.steps(order, mask, 40, 0) == ()
    order.end(f"{LEFT} {SECRET}", good=False)
    for width in (40, 80, 120):
        told = rows(format_order.outcome(order, mask, width))
        assert all(cells(row) <= width for row in told) and told[0].startswith("✘ 1 process is still there")
        assert SECRET not in " ".join(told) and "•••" in told[-1]
    assert text_of(format_order.heading(order, "kimi", "gpu1", clock.at, 60)).endswith("✘ not proved after 10 s")


def test_before_an_order_it_is_told_whom_it_concerns_on_which_gpus_and_with_how_much_memory() -> None:
    shown = rows(format_order.plan(TREE, gpus(FakeSession(), 70, 10, 5), 3600.0, str, 110))
    assert shown[0].split() == ["pid", "uid", "age", "GPU", "memory", "what"]
    assert shown[1].split()[:5] == ["48190", "1003", "1:06:41", "–", "–"]  # ages go on while nothing is told
    assert shown[2].split()[3:6] == ["0,2", "75.0", "GiB"] and shown[4].split() == ["85.0", "GiB", "in", "all"]
    assert "memory" not in text_of(format_order.plan(TREE, None, 0.0, str, 110))
    assert rows(format_order.plan((), None, 0.0, str, 110)) == ["No process of the run is known to live."]


# ------------------------------------------------------------------------------- the watcher


@pytest.mark.asyncio
async def test_a_watcher_keeps_the_order_and_its_outcome_whatever_comes() -> None:
    session = FakeSession(tree=TREE)
    watcher = make_watcher(session)
    assert (await watcher.stop()).good and watcher.order is not None and watcher.order.processes == tuple(TREE)
    session.stopped = Stopped(gone=False, killed=1, left=(), text=LEFT)
    order = await watcher.restart()
    assert (order.kind, order.good, order.text) == ("restart", False, LEFT) and watcher.busy == ""
    session.stop_fails = UnreachableError("the link is down")
    order = await watcher.stop()
    assert order.good is False and order.text == "The stop could not be carried out: the link is down"
    session.stop_fails, session.stop_takes = None, asyncio.Event()
    working = asyncio.create_task(watcher.stop())
    await asyncio.sleep(0)
    assert watcher.busy == "stop" and watcher.order is session.witness
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    assert watcher.order is not None and watcher.order.good is False and "broken off" in watcher.order.text


# ------------------------------------------------------------------------------- the screen


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [SMALL, USUAL])
async def test_an_order_is_shown_live_can_be_left_and_comes_back_with_its_end(size: tuple[int, int]) -> None:
    session = FakeSession(tree=TREE)
    session.stop_takes = asyncio.Event()
    app = console(session)
    async with app.run_test(size=size, notifications=True) as pilot:
        session.serving()
        session.desk.tell(gpus(session, 70, 70))
        await until(pilot, shows(app, "✔ serving"))
        await press(pilot, "k")
        await until(pilot, shows(app, "stop (y)", "70.0 GiB"))
        await press(pilot, "y")
        await until(pilot, shows(app, "● alive", "Stop kimi @ gpu1", "background (esc)"))
        order = session.witness
        assert isinstance(order, Order)
        walk(order, session.clock)
        session.desk.tell(look((70, 0.6)))
        await until(pilot, shows(app, "gone after 1.7 s", "▲ KILL sent", "70.0 →  0.6 GiB", "KILL sent to pid 48212"))
        await press(pilot, "escape")
        await until(pilot, shows(app, "● stop under way 31 s: t shows it"))
        for key in ("r", "k", "z", "t"):  # nothing else is ordered meanwhile: each brings it back
            await press(pilot, key)
            await until(pilot, lambda: isinstance(app.screen, TransactionScreen))
            await press(pilot, "q")
            await until(pilot, lambda: isinstance(app.screen, RunScreen))
        assert session.orders == ["stop"]
        session.stopped = Stopped(gone=False, killed=1, left=(), text=LEFT)
        session.stop_takes.set()
        await until(pilot, said(app, LEFT))  # the end of one in the background is told
        await press(pilot, "t")
        await until(pilot, shows(app, "✘ not proved", "✘ still there", "reset the GPU", "close (enter)"))
        assert app.screen.has_class("-bad")
        await press(pilot, "enter")
        await until(pilot, lambda: isinstance(app.screen, RunScreen))


@pytest.mark.asyncio
async def test_a_restart_goes_on_to_the_launch_and_an_order_that_fails_says_why() -> None:
    session = FakeSession(tree=TREE)
    app = console(session)
    async with app.run_test(size=USUAL, notifications=True) as pilot:
        session.serving()
        await press(pilot, "r")
        await until(pilot, shows(app, "restart (y)"))
        await press(pilot, "y")
        await until(pilot, shows(app, "✔ done", "all 3 processes are gone after 1.2 s", "close (enter)"))
        session.desk.note(ev.StopBegan(at=session.clock.at, by="me"))
        session.desk.note(ev.TreeGone(at=session.clock.at, release="no gpu"))
        session.after(1).begin("1130-0500-ffff")
        session.launch()
        await until(pilot, lambda: isinstance(app.screen, RunScreen))  # it makes way for the launch
        await until(pilot, shows(app, "● launching"))
        await until(pilot, said(app, "all 3 processes are gone"))
        session.stop_fails = UnreachableError(f"the link is down {SECRET}")
        await press(pilot, "k")
        await until(pilot, shows(app, "stop (y)"))
        await press(pilot, "y")
        await until(pilot, shows(app, "could not be carried out", "the link is down •••"))


@pytest.mark.asyncio
async def test_zombies_are_cleared_by_the_same_transaction() -> None:
    session = FakeSession(tree=TREE)
    orphan = Holder(
        class_=HolderClass.OURS_ORPHAN, pid=31007, start_ticks=9, title="scheduler_TP7", run_id="1128", key="kimi",
        held={"GPU-0": 5 * GIB}, zombie=True, preselected=True, killable="yes",
    )  # fmt: skip
    driver = Driver(state=DriverState.OK)
    session.found = LeftOvers(Snapshot(at=BEGAN, driver=driver, coverage=Coverage.ALL), (orphan,))
    session.stop_takes = asyncio.Event()
    app = console(session)
    async with app.run_test(size=USUAL, notifications=True) as pilot:
        await press(pilot, "z")
        await until(pilot, lambda: isinstance(app.screen, ZombiesScreen))
        await until(pilot, shows(app, "31007"))
        await press(pilot, "y")
        await until(pilot, lambda: isinstance(app.screen, TransactionScreen))
        await until(pilot, lambda: session.orders == ["look", "clear 31007", "clear"])
        assert isinstance(session.witness, Order)
        session.witness.planned([ev.Process(pid=31007, start_ticks=9, title="scheduler_TP7")], None)
        await until(pilot, shows(app, "left-overs of kimi @ gpu1", "31007  ● alive"))
        session.stop_takes.set()
        await until(pilot, shows(app, "✔ done"))
        assert "31007" in screen_text(app)
