"""The processes on the GPUs: who comes first, who is never hidden, and what is said of each at which width."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from supervisor.core.gpu import GIB, Coverage, Gpu
from supervisor.core.gpu_events import gpu_event as look_at
from supervisor.core.gpu_events import holders_event as held_by
from supervisor.core.holder import Holder, HolderClass
from supervisor.core.holders import classify
from supervisor.engines import loader
from supervisor.tui import format_gpus, format_holders
from supervisor.tui.format_holders import Labels
from supervisor.tui.pieces import text_of
from tests.core import snapshots
from tests.tui.models import Told, gpu_event, gpus, holders_event, lines_of, rank, widest, zombie

SERVER = Holder(
    class_=HolderClass.ENGINE_LIVE,
    pid=7101,
    user="ben",
    title="VLLM::EngineCore",
    held={"GPU-0": 5 * GIB},
    started_at=1_764_400_000.0,
)
XORG = Holder(class_=HolderClass.PROTECTED, pid=900, user="root", title="/usr/lib/xorg/Xorg", held={"GPU-0": GIB})
DAEMON = replace(XORG, pid=901, title="nvidia-persistenced", held={})


def told(*holders: Holder, mask: bool = False) -> Told:
    session = Told(mask=(lambda text: text.replace("sk-hunter2", "***")) if mask else str).loading()
    session.tell(gpu_event(session.now, gpus(*[60.0] * 8)))
    return session.holds(*holders)


def ranks(count: int, now: float) -> list[Holder]:
    return [rank(index, 55.0, now=now) for index in range(count)]


def table(session: Told, width: int, height: int = 12, later: float = 0.0) -> list[str]:
    pieces = format_holders.table(session.model, session.now + later, width, height)
    assert not pieces or widest(pieces) <= width
    shown = lines_of(pieces)
    assert len(shown) <= max(1, height)
    return shown


def roles(session: Told, text: str, width: int = 100) -> set[str]:
    return {role for shown, role in format_holders.table(session.model, session.now, width, 12) if text in shown}


def now() -> float:
    return Told().loading().now


# ------------------------------------------------------------------------------- columns


@pytest.mark.parametrize(
    ("width", "rows"),
    [
        (30, ["    pid    GiB  who     what", "  48211   55.0  ours    sglan…", "  31007   33.9  ZOMBIE  sglan…"]),
        (
            54,
            [
                "    pid  GPU    GiB   age  who     what",
                "  48211  0     55.0  6:39  ours    sglang::scheduler_…",
                "  31007  7     33.9   2 d  ZOMBIE  sglang::scheduler_…",
            ],
        ),
        (
            90,
            [
                "    pid  GPU    GiB   age  user        who     what",
                "  48211  0     55.0  6:39  ana         ours    sglang::scheduler_TP0",
                "  31007  7     33.9   2 d  ana         ZOMBIE  sglang::scheduler_TP7 of 1128-1903-0b77",
            ],
        ),
        (
            150,
            [
                "    pid  GPU    GiB   age  user        who     what",
                "  48211  0     55.0  6:39  ana         ours    sglang::scheduler_TP0",
                "  31007  7     33.9   2 d  ana         ZOMBIE  sglang::scheduler_TP7 of 1128-1903-0b77  "
                "(The run has ended)",
            ],
        ),
    ],
)
def test_more_of_each_with_more_room(width: int, rows: list[str]) -> None:
    left_over = replace(zombie(7, 33.9, now=now()), evidence=("It holds 33.9 GiB.", "The run has ended."))
    assert table(told(rank(0, 55.0, now=now()), left_over), width) == rows


def test_ages_go_on_between_two_looks() -> None:
    session = told(rank(0, 55.0, now=now()))
    assert " 6:39 " in table(session, 60)[1] and " 6:44 " in table(session, 60, later=5)[1]
    assert " 3 h " in table(session, 60, later=10_000)[1]
    assert "  0 s " in table(session, 60, later=-10_000)[1]  # a clock that was set back
    assert "     –  " in table(told(replace(rank(0, 1.0), started_at=None)), 60)[1]


def test_a_command_line_is_masked_before_it_is_cut() -> None:
    secret = replace(rank(0, 1.0), title="python3 -m vllm --api-key sk-hunter2 --port 30000")
    session = told(secret, mask=True)
    for width in range(24, 120):
        assert "sk-" not in " ".join(table(session, width))


def test_wide_characters_keep_the_columns() -> None:
    rows = table(told(replace(rank(0, 1.0), user="深度求索深度求索", title="深" * 99), rank(1, 1.0)), 90)
    assert rows[1].index("ours") + 4 == rows[2].index("ours") and "深度求索…" in rows[1]  # each takes two cells


# ------------------------------------------------------------------------------- the order


def test_this_run_then_what_is_left_over_then_servers_then_the_rest() -> None:
    other_run = replace(rank(0, 1.0), pid=3, run_id="1129-0000-ffff")
    training = replace(SERVER, pid=5, class_=HolderClass.PROCESS)
    rows = table(told(XORG, training, SERVER, other_run, zombie(7, 33.9), rank(0, 55.0)), 100)
    assert [row.split()[0] for row in rows[1:]] == ["48211", "31007", "3", "7101", "5", "900"]
    session = told(XORG, SERVER, zombie(7, 33.9), rank(0, 55.0))
    assert (
        roles(session, "ZOMBIE") == {"bad"} and roles(session, "ours") == {"now"} and roles(session, "Xorg") == {"dim"}
    )


def test_what_is_left_over_is_never_among_the_unseen() -> None:
    session = told(*ranks(8, now()), zombie(7, 33.9, now=now()))
    for height in range(3, 11):
        assert "ZOMBIE" in " ".join(table(session, 60, height)), height
    assert table(session, 60, 5)[1:] == [
        "  48211  0     55.0  6:39  ours    sglang::scheduler_TP0",
        "  48212  1     55.0  6:39  ours    sglang::scheduler_TP1",
        "  31007  7     33.9   2 d  ZOMBIE  sglang::scheduler_TP7 of…",
        "+ 6 more: 6 of this run with 330.0 GiB",
    ]
    assert table(session, 60, 2)[-1] == "+ 8 more: 8 of this run with 440.0 GiB"  # no heading where each row counts
    assert table(session, 80, 1) == ["+ 9 more: 8 of this run, 1 left over with 473.9 GiB"]
    assert format_holders.table(session.model, session.now, 60, 0) == ()


def test_who_holds_nothing_and_is_of_the_system_has_no_row() -> None:
    assert table(told(DAEMON), 60) == ["no process holds GPU memory"]
    assert len(table(told(DAEMON, XORG), 60)) == 2


def test_many_alike_are_told_as_one() -> None:
    workers = [
        replace(zombie(0, 0.0), pid=800 + n, title=f"pt_data_worker {n}", class_=HolderClass.HEIR, held={"GPU-0": GIB})
        for n in range(126)
    ]
    rows = table(told(*workers), 100)
    assert rows[1].startswith("   126×  0    126.0   2 d  ana         HEIR  pids 800, 801, 802 and 123 more: pt_data")
    assert text_of(format_holders.title(told(*workers).model, now())) == (
        "processes on the GPUs · 126 · 126 left over with 126.0 GiB"
    )


def test_an_amount_that_is_not_known_is_none() -> None:
    blind = replace(SERVER, held={"GPU-0": None, "GPU-1": GIB})
    empty = replace(SERVER, pid=2, held={})
    rows = table(told(blind, empty), 60)
    assert rows[1][:26].split() == ["7101", "0-1", "?", rows[1].split()[3], rows[1].split()[4]]
    assert rows[2].split()[:3] == ["2", "–", "–"]
    hidden = table(told(blind, *[replace(SERVER, pid=n, title=str(n)) for n in range(10, 16)]), 60, 1)
    assert hidden == ["+ 7 more: 7 others with at least 31.0 GiB"]


# ------------------------------------------------------------------------------- GPUs by their number


def test_gpus_in_few_cells() -> None:
    instance = Gpu(uuid="MIG-5", index=5, parent="GPU-1")
    labels = Labels(gpu_event(0, [*gpus(*[1.0] * 12), instance]))
    assert labels.of([f"GPU-{n}" for n in range(12)]) == "0-11"
    assert labels.of(["GPU-3", "GPU-0", "GPU-1", "GPU-11", "GPU-10"]) == "0-1,3,10-11"
    assert labels.of(["MIG-5"]) == "1:5" and labels.of(["GPU-99"]) == "?" and labels.of([]) == "–"
    assert Labels(None).of(["GPU-0"]) == "?"


# ------------------------------------------------------------------------------- title, foot, nothing


def test_title_and_foot_say_what_can_be_done_and_what_may_be_missing() -> None:
    session = told(rank(0, 55.0, now=now()), zombie(7, 33.9, now=now()))
    model = session.model
    assert text_of(format_holders.title(model, session.now)) == (
        "processes on the GPUs · 2 · 1 left over with 33.9 GiB"
    )
    assert text_of(format_holders.title(model, session.now + 31)).endswith(" · 31 s ago")
    assert text_of(format_holders.foot(model, 60)) == "z: clear, with proof"
    stuck = replace(zombie(0, 1.0), killable="no")
    assert text_of(format_holders.foot(told(stuck).model, 60)) == "z: what can be done"
    session.tell(holders_event(session.now, [], coverage=Coverage.OWN, container=True))
    assert (
        text_of(format_holders.foot(model, 80)) == "seen from inside a container · only our own user's files are seen"
    )
    assert table(session, 60) == ["no process holds GPU memory, as far as is seen"]
    assert text_of(format_holders.title(model, session.now)) == "processes on the GPUs"


def test_before_the_first_look() -> None:
    assert table(Told(), 60) == ["who holds GPU memory has not been looked at yet"]
    assert format_holders.foot(Told().model, 60) == () and format_holders.rows_wanted(Told().model) == 0


def test_rows_that_are_wanted_are_those_that_are_filled() -> None:
    for holders in ([], [DAEMON], ranks(8, 0), [*ranks(8, 0), zombie(1, 2.0), XORG]):
        session = told(*holders)
        wanted = format_holders.rows_wanted(session.model)
        assert len(table(session, 60, wanted)) == (wanted if any(item.held for item in holders) else 1)
        assert table(session, 60, wanted + 9) == table(session, 60, wanted) or wanted < 3


# ------------------------------------------------------------------------------- the recorded situations


def recorded(name: str) -> tuple[Told, tuple[Holder, ...]]:
    snapshot = snapshots.load(name).snapshot()
    holders = classify(snapshot, loader.known_holders())
    session = Told()
    session.clock.at = snapshot.at
    session.tell(look_at(snapshot, "gpu1", snapshot.at), held_by(snapshot, holders, "gpu1", snapshot.at))
    return session, holders


@pytest.mark.parametrize("name", snapshots.names())
def test_every_recorded_situation_is_drawn_and_no_left_over_of_it_is_missed(name: str) -> None:
    session, holders = recorded(name)
    zombies = [holder for holder in holders if holder.zombie]
    for width in (30, 54, 80, 118, 198):
        for height in (4, 12):
            text = "\n".join(table(session, width, height))
            shown = len(re.findall(r"ZOMBIE|DEAD|STUCK|GOING|HEIR|GHOST", text))
            assert shown >= min(len(zombies), height - 2), text
            assert (not zombies) == (shown == 0)
            pieces = format_gpus.table(session.model, session.now, width, height)
            assert widest(pieces) <= width and len(lines_of(pieces)) <= height
    assert ("z: " in text_of(format_holders.foot(session.model, 100))) is bool(zombies)


@pytest.mark.parametrize("class_", list(HolderClass))
@pytest.mark.parametrize("left_over", [False, True])
def test_every_class_has_a_word_and_a_row_without_a_title_says_something(class_: HolderClass, left_over: bool) -> None:
    nameless = replace(SERVER, class_=class_, title="", zombie=left_over)
    row = table(told(nameless), 60)[1]
    who = row.split()[5]
    assert who.isupper() is left_over and who.isalpha() and len(row.split()) > 6
