"""The zombies dialog: what it lists in every recorded situation, what can be marked, and what yes hands on."""

from __future__ import annotations

import asyncio

import pytest

from supervisor.core.holders import HolderClass, classify
from supervisor.engines import loader
from supervisor.errors import UnreachableError
from supervisor.supervise.left_overs import LeftOvers
from supervisor.tui import format_zombies
from supervisor.tui.choice import Choice
from supervisor.tui.pieces import length, text_of
from supervisor.tui.screens.zombies import Chosen, ZombiesScreen
from supervisor.tui.widgets.row_list import RowList
from tests.core import snapshots
from tests.tui.host import Host, picture, said, screen_text, until, until_shown

KNOWN = loader.known_holders()


def found_in(name: str) -> LeftOvers:
    snapshot = snapshots.load(name).snapshot()
    return LeftOvers(snapshot, classify(snapshot, KNOWN))


def dialog(*looks: LeftOvers | Exception) -> Host:
    """The dialog on a node that is looked at with these results, one after the other."""
    left = list(looks)

    async def look() -> LeftOvers:
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, Exception):
            raise found
        return found

    return Host(ZombiesScreen(lambda text: text.replace("s3cret", "•••"), node="gpu1", look=look))


# ------------------------------------------------------------------------------------------------ the choice


@pytest.mark.parametrize("name", snapshots.names())
def test_every_situation_is_listed_and_nothing_forbidden_can_be_marked(name: str) -> None:
    found = found_in(name)
    choice = Choice(found)
    assert {holder.class_ for holder in choice.targets} <= {HolderClass.OURS_ORPHAN}
    assert list(choice.targets) == [holder for line in choice.lines for holder in line.group if holder.preselected]
    listed = [holder for line in choice.lines for holder in line.group]
    assert all(holder in listed for holder in found.zombies), "whatever is left over is listed"
    for line in choice.lines:
        choice.mark(line, True)
    for holder in choice.targets:
        assert holder.class_ is not HolderClass.PROTECTED and holder.killable != "no"
        assert holder.killable == "yes" or found.snapshot.uid == 0
    for width in (60, 76, 120):
        rows, _headings, shown = format_zombies.lines(choice, str, width)
        assert all(length(row) <= width for row in rows)
        for chosen in filter(None, shown):
            told = text_of(format_zombies.detail(chosen, choice, str, width))
            assert all(word in told for word in " ".join(chosen.holder.evidence).split())
        for text in text_of(format_zombies.plan(choice, str, width)).splitlines():
            assert len(text) <= width
    again = Choice(found, before=choice)
    assert again.targets == choice.targets
    for line in again.lines:
        again.mark(line, False)
    assert again.targets == ()


def test_gpus_in_short() -> None:
    assert format_zombies.ranges([7, 0, 1, 2, 5, 4]) == "0-2,4-5,7"


# ------------------------------------------------------------------------------------------------ the dialog


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_what_our_run_left_is_marked_and_yes_hands_it_on(size: tuple[int, int]) -> None:
    found = found_in("02-our-workers-stuck-in-loading")
    app = dialog(found)
    async with app.run_test(size=size) as pilot:
        await until_shown(
            pilot, "gpu1: 2 left-over holders with 80.0 GiB", "[x]      501  ours-orphan", "sglang::sched"
        )
        assert said(app, "holder-detail").startswith("pid 501, 40.0 GiB on GPU 0\nIt holds 40.0 GiB on GPU 0.")
        await pilot.press("down")
        await until(pilot, lambda: said(app, "holder-detail").startswith("pid 502, 40.0 GiB on GPU 1"))
        plan = " ".join(said(app, "plan").split())
        assert plan == (
            "To be ended: 2 processes (pids 501, 502) with 40.0 GiB on GPU 0, 40.0 GiB on GPU 1, and every other "
            "process that is left of run 1128-0300-aaaa. TERM, KILL after 30 s; then it is proved that the memory "
            "came back."
        )
        picture(app, f"zombies-{size[0]}x{size[1]}")
        await pilot.press("space")
        await until_shown(pilot, "[ ]      502")
        await pilot.press("y")
        await until(pilot, lambda: app.answers)
        answer = app.answers[0]
        assert isinstance(answer, Chosen)
        assert [holder.pid for holder in answer.targets] == [501]
        assert answer.spared == found.holders


@pytest.mark.asyncio
async def test_another_users_process_needs_its_pid_typed_and_a_protected_one_never_goes() -> None:
    found = found_in("38b-another-user-while-we-are-root")
    choice = Choice(found)
    line = next(line for line in choice.lines if line.by_hand)
    pid = str(line.holder.pid)
    app = dialog(found)
    async with app.run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, f"[ ] {pid:>8}")
        rows = app.screen.query_one(RowList)
        rows.cursor = next(number for number, row in enumerate(rows.rows) if f"{pid:>8}" in text_of(row))
        await pilot.press("y")
        assert not app.answers, "nothing is marked: yes does nothing"
        await pilot.press("space", *"99", "enter")
        await until_shown(pilot, f"That was not the pid {pid}: it is not marked.", "Nothing is marked.")
        await pilot.press("space", *"1", "escape")
        await until(pilot, lambda: app.screen.query_one(RowList).has_focus)
        assert not app.answers, "escape ends the typing, not the dialog"
        picture(app, "zombies-by-hand")
        await pilot.press("space", *pid, "enter")
        await until_shown(pilot, f"[x] {pid:>8}", f"(pids {pid})")
        await pilot.press("y")
        await until(pilot, lambda: app.answers)
        assert [str(holder.pid) for holder in app.answers[0].targets] == [pid]


@pytest.mark.asyncio
async def test_a_protected_process_is_shown_with_why_and_stays_unmarked() -> None:
    app = dialog(found_in("03-desktop-beside-an-orphan"))
    async with app.run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, " –       900")
        rows = app.screen.query_one(RowList)
        rows.cursor = next(number for number, row in enumerate(rows.rows) if "     900" in text_of(row))
        await until(pilot, lambda: "Not here: pid 900 is protected, and never touched" in said(app, "holder-detail"))
        await pilot.press("space")
        await pilot.pause()
        assert " –       900" in screen_text(app) and "900" not in said(app, "plan")


@pytest.mark.asyncio
async def test_marks_stay_over_a_new_look_and_a_node_that_is_gone_says_so() -> None:
    found = found_in("02-our-workers-stuck-in-loading")
    app = dialog(found, found, UnreachableError("the link is down"))
    async with app.run_test(size=(100, 30)) as pilot:
        await until_shown(pilot, "[x]      501")
        await pilot.press("space")
        await until_shown(pilot, "[ ]      501")
        await pilot.press("u")
        await pilot.pause()
        await until_shown(pilot, "[ ]      501", "[x]      502")
        await pilot.press("u")
        await until_shown(pilot, "It could not be looked at: the link is down", "[x]      502")
        await pilot.press("n")
        await until(pilot, lambda: app.answers == [None])


@pytest.mark.asyncio
async def test_before_the_look_is_over_and_with_nothing_left_it_says_that() -> None:
    gate = asyncio.Event()
    empty = found_in("31b-residual-floor")

    async def look() -> LeftOvers:
        await gate.wait()
        return empty

    app = Host(ZombiesScreen(str, node="gpu1", look=look))
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, "looking at what holds memory on gpu1")
        await pilot.press("y", "space")
        gate.set()
        await until_shown(pilot, "gpu1: no left-over holders", "Nothing is marked.")
        await pilot.press("y", "escape")
        await until(pilot, lambda: app.answers == [None])
