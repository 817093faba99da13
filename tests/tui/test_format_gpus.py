"""The GPU table: what stands at which width, what is wrong with a GPU, and more GPUs than rows."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from supervisor.core.gpu import GIB, Driver, DriverState, Gpu, GpuState, Memory, Use, Xid
from supervisor.core.holder import Holder, HolderClass
from supervisor.supervise.hub import View
from supervisor.tui import format_gpus
from supervisor.tui.gpu_memory import Shares, memory_bar, shares
from supervisor.tui.gpu_words import full_name, name_of
from supervisor.tui.pieces import clock_time, text_of
from supervisor.tui.sparkline import gauge, spark, thin
from tests.tui.fakes import BEGAN
from tests.tui.models import NAME, Told, gpu_event, gpus, holders_event, lines_of, rank, widest, zombie

LOST = "the GPU is lost (fallen off the bus, or to be reset): the node needs a reboot, or the GPU a reset"
STUCK = Driver(state=DriverState.STUCK, why="driver not responding since 14 s", stuck_s=14.0, call="nvmlDeviceGetName")


def told(found: Iterable[Gpu], holders: Iterable[Holder] | None = None, driver: Driver | None = None) -> Told:
    session = Told().loading()
    event = gpu_event(session.now, found)
    session.tell(event if driver is None else replace(event, driver=driver))
    return session.holds(*holders) if holders is not None else session


def table(session: Told, width: int, height: int = 8, later: float = 0.0) -> list[str]:
    pieces = format_gpus.table(session.model, session.now + later, width, height)
    assert widest(pieces) <= width
    shown = lines_of(pieces)
    assert len(shown) <= height
    return shown


def title(session: Told, width: int = 200, later: float = 0.0) -> str:
    return text_of(format_gpus.title(session.model, session.now + later, width))


def roles(session: Told, text: str, width: int = 100, height: int = 8) -> set[str]:
    return {role for shown, role in format_gpus.table(session.model, session.now, width, height) if text in shown}


def history(session: Told) -> Told:
    """Five minutes in which memory fills from 0 to 57 GiB."""
    end = session.now
    for step in range(60):
        session.clock.at = end - 295 + step * 5
        session.tell(gpu_event(session.now, gpus(57.0 * (step + 1) / 60, 0.0)))
    session.clock.at = end
    return session


# ------------------------------------------------------------------------------- widths


@pytest.mark.parametrize(
    ("width", "row"),
    [
        (24, "0 ▕██▍ ▏ 57.0/95.6   3 %"),
        (36, "0 ▕███▋  ▏ 57.0/95.6 GiB   3 %  48°"),
        (52, "0 ▕█████████▌      ▏ 57.0/95.6 GiB ▂▂▃▄▅▅   3 %  48°"),
        (66, "0 PRO 6000 ▕██████    ▏ 57.0/95.6 GiB ▂▂▃▄▅▅   3 %  48° 210/600 W"),
        (76, "0 PRO 6000 ▕█████████▌      ▏ 57.0/95.6 GiB ▁▂▂▃▃▄▄▅▅▅   3 %  48° 210/600 W"),
        (
            118,
            "0 PRO 6000 ▕█████████████▏        ▏ 57.0/95.6 GiB ▁▁▁▂▂▂▃▃▃▃▄▄▄▅▅▅   3 % ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁  48° "
            "210/600 W 2,100 MHz",
        ),
        (
            198,
            "0 PRO 6000 ▕█████████████████▉            ▏ 57.0/95.6 GiB "
            "▁▁▁▁▁▁▁▁▁▁▂▂▂▂▂▂▂▂▂▂▃▃▃▃▃▃▃▃▃▃▃▄▄▄▄▄▄▄▄▄▄▅▅▅▅▅▅▅▅▅   3 % ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁  48° 210/600 W 2,100 MHz "
            "00000000:01:00.0",
        ),
    ],
)
def test_the_essentials_first_and_more_with_more_room(width: int, row: str) -> None:
    assert table(history(Told().loading()), width)[0] == row


def test_columns_stand_still_while_figures_change() -> None:
    quiet = replace(gpus(0.0)[0], power_w=8.0, sm_clock_mhz=210, gpu_percent=0)
    busy = replace(gpus(95.0)[0], power_w=600.0, sm_clock_mhz=2100, gpu_percent=100)
    at_night, by_day = told([quiet]), told([busy])
    for width in range(24, 200):
        assert table(at_night, width)[0].find("/95.6") == table(by_day, width)[0].find("/95.6")


def test_different_gpus_have_their_names_first() -> None:
    mixed = [gpus(1.0)[0], replace(gpus(1.0, 1.0)[1], name="NVIDIA H100 80GB HBM3")]
    assert [row[:10] for row in table(told(mixed), 50)] == ["0 PRO 6000", "1 H100    "]
    assert table(told(gpus(1.0, 1.0)), 50)[0].startswith("0 ▕")  # the title tells it


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (NAME, "PRO 6000"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("Tesla T4", "T4"),
        ("NVIDIA GB10", "GB10"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000"),
        ("NVIDIA GH200 480GB", "GH200"),
        ("NVIDIA H100 PCIe", "H100"),
        ("Quadro RTX 8000", "RTX 8000"),
        ("", "GPU"),
    ],
)
def test_names_in_few_letters(name: str, short: str) -> None:
    assert name_of(Gpu(uuid="x", index=0, name=name)) == short
    assert full_name(Gpu(uuid="x", index=0, name=name)).startswith(short)


# ------------------------------------------------------------------------------- whose memory


def test_the_bar_tells_whose_the_memory_is() -> None:
    server = replace(rank(0, 10.0), class_=HolderClass.ENGINE_LIVE, run_id=None)
    session = told(gpus(60.0), [rank(0, 30.0), server, zombie(0, 18.0)])
    assert table(session, 52)[0].startswith("0 ▕█████▒▒▓▓▓      ▏ 60.0")
    assert roles(session, "▓") == {"left"} and roles(session, "▒") == {"others"}
    other_run = replace(rank(0, 57.0), run_id="1129-0000-ffff")
    assert "▒▒▒▒" in table(told(gpus(60.0), [other_run]), 60)[0]


@pytest.mark.parametrize(
    ("used", "of", "bar"),
    [
        (50, None, "█████     "),
        (57, None, "█████▊    "),
        (57, Shares(ours=57), "█████▊    "),
        (50, Shares(), "█████     "),
        (50, Shares(others=50), "▒▒▒▒▒     "),
        (50, Shares(ours=25, others=25), "███▒▒     "),
        (50, Shares(ours=50, left=1), "████▓     "),  # seen however small it is
        (50, Shares(left=50), "▓▓▓▓▓     "),
        (50, Shares(ours=510, left=490), "███▓▓     "),  # never more than what is used
        (1, Shares(left=1), "▓         "),
        (0, Shares(), "          "),
        (200, Shares(), "██████████"),
        (-5, None, "          "),
    ],
)
def test_bars(used: int, of: Shares | None, bar: str) -> None:
    assert text_of(memory_bar(used, 100, of, 10)) == bar


def test_memory_of_nobody_is_drawn_as_such_and_told() -> None:
    lonely = replace(gpus(40.0)[0], uses=(Use(pid=1, used_bytes=GIB),))
    session = told([lonely], [rank(0, 1.0)])
    assert [role for text, role in format_gpus.table(session.model, session.now, 60, 1) if "█" in text] == ["used"]
    assert table(session, 76)[1] == "   └ 39.0 GiB of no process in the list"
    assert len(table(session, 76, 1)) == 1
    ghost = replace(zombie(0, 39.0), class_=HolderClass.GHOST_MEMORY, pid=None)
    assert len(table(told([replace(lonely, uses=())], [ghost]), 76)) == 1  # that holder tells it


def test_a_left_over_of_an_unknown_amount_is_seen() -> None:
    heir = replace(zombie(0, 1.0), held={"GPU-0": None})
    assert "▓" in table(told(gpus(40.0), [heir]), 60)[0]


def test_memory_of_an_instance_counts_for_its_gpu_once() -> None:
    instance = Gpu(uuid="MIG-1", index=1, parent="GPU-0", memory=Memory(total_bytes=20 * GIB, used_bytes=20 * GIB))
    holder = replace(rank(0, 20.0), held={"MIG-1": 20 * GIB, "GPU-0": 20 * GIB})
    assert shares(gpu_event(0, [*gpus(40.0), instance]), View(holders=holders_event(0, [holder]))) == {
        "MIG-1": Shares(ours=20 * GIB),
        "GPU-0": Shares(ours=20 * GIB),
    }
    holder = replace(holder, held={"MIG-1": 20 * GIB})
    assert shares(gpu_event(0, [*gpus(40.0), instance]), View(holders=holders_event(0, [holder]))) == {
        "MIG-1": Shares(ours=20 * GIB),
        "GPU-0": Shares(ours=20 * GIB),
    }
    assert shares(gpu_event(0, gpus(40.0)), View()) is None


# ------------------------------------------------------------------------------- what is wrong


def test_what_is_wrong_has_a_line_where_there_is_one_and_a_word_where_there_is_none() -> None:
    at = BEGAN + 300
    found = list(gpus(57.0, 57.0, 57.0, 57.0))
    found[1] = replace(found[1], throttle=("sw_power_cap", "hw_thermal"))
    found[2] = replace(
        found[2], ecc_uncorrected=3, xid=Xid(code=79, at=at, bad=True, text="GPU has fallen off the bus")
    )
    found[3] = replace(found[3], state=GpuState.LOST, why=LOST)
    session = told(found)
    assert table(session, 60, 8) == [
        "0 ▕██████    ▏ 57.0/95.6 GiB   3 %  48°",
        "1 ▕██████    ▏ 57.0/95.6 GiB   3 %  48° ✘ slowed",
        "   └ slowed: far too hot",
        "2 ▕██████    ▏ 57.0/95.6 GiB   3 %  48° ✘ XID 79, ECC 3",
        f"   └ XID 79 at {clock_time(at)}: GPU has fallen off the bus · 3",
        "     uncorrected memory errors (ECC)",
        "3  ✘ LOST  reset it, or reboot the node",
    ]
    assert table(session, 118, 4)[1:] == [
        "1 PRO 6000 ▕██████    ▏ 57.0/95.6 GiB      ▅   3 %  48° ✘ slowed: far too hot",
        f"2 PRO 6000 ▕██████    ▏ 57.0/95.6 GiB      ▅   3 %  48° ✘ XID 79 at {clock_time(at)}: GPU has fallen off "
        "the bus, ECC 3",
        f"3 PRO 6000  ✘ LOST  {LOST}",
    ]
    assert roles(session, "LOST") == {"bad"} and roles(session, "slowed") == {"bad"}
    assert title(session) == "GPUs · 4 × PRO 6000 · 171.0 of 286.8 GiB · 1 lost"


def test_a_gpu_at_its_power_limit_is_well() -> None:
    limited = told([replace(gpus(57.0)[0], throttle=("sw_power_cap",), power_w=600.0)])
    assert table(limited, 76) == table(told([replace(gpus(57.0)[0], power_w=600.0)]), 76)
    assert "at its power limit" in table(limited, 240)[0] and roles(limited, "power limit", 240) == {"dim"}
    warm = told([replace(gpus(57.0)[0], throttle=("sw_thermal", "bits_0x800"))])
    assert "▲ slowed: too hot, bits_0x800" in table(warm, 100, 1)[0] and roles(warm, "slowed", 100, 1) == {"warn"}


def test_a_programs_error_is_no_hardwares() -> None:
    session = told([replace(gpus(57.0)[0], xid=Xid(code=13, at=BEGAN, bad=False))])
    assert roles(session, "XID 13", 118, 1) == {"warn"} and "a program's error" in table(session, 118, 1)[0]


def test_a_driver_that_hangs_makes_the_last_known_of_it() -> None:
    session = told(gpus(57.0), [rank(0, 57.0)], driver=STUCK)
    assert table(session, 80, 8, later=2)[0] == (
        "driver not responding since 16 s (nvmlDeviceGetName): last known figures"
    )
    assert table(session, 54, 8, later=2)[0] == "driver not responding since 16 s: last known figures"
    assert len(table(session, 54, 1)) == 1  # no row is lost to it: the title says it
    assert title(session, later=2).endswith("· driver not responding since 16 s")
    assert roles(session, "57.0/95.6") == roles(session, "█") == roles(session, " 3 %") == {"dim"}


def test_old_figures_say_how_old_they_are() -> None:
    session = told(gpus(57.0))
    assert "ago" not in title(session, later=4)
    assert title(session, later=12).endswith(" · 12 s ago") and len(table(session, 80, 8, later=12)) == 1
    old = format_gpus.table(session.model, session.now + 12, 80, 8)
    assert {role for text, role in old if "57.0/95.6" in text} == {"dim"}


def test_a_clock_that_was_set_back_makes_nothing_old() -> None:
    assert "ago" not in title(told(gpus(57.0)), later=-3600)


def test_gpus_that_are_gone_without_a_word_are_counted() -> None:
    session = told(gpus(1.0, 1.0), driver=Driver(state=DriverState.OK, count_before=8))
    assert title(session).endswith(" · 6 of 8 GPUs are gone") and len(table(session, 80)) == 2


def test_a_node_whose_driver_cannot_be_used_says_why() -> None:
    why = "nvidia-ml-py is not installed beside the supervisor: pip install nvidia-ml-py"
    session = told((), driver=Driver(state=DriverState.UNAVAILABLE, why=why))
    assert table(session, 60) == ["nvidia-ml-py is not installed beside the supervisor: pip", "install nvidia-ml-py"]
    assert title(session) == "GPUs · driver unavailable"
    assert table(told((), driver=Driver(state=DriverState.STUCK)), 60) == ["the driver is stuck"]
    assert table(Told(), 60) == ["no GPU has been looked at yet"] and title(Told()) == "GPUs"


def test_what_cannot_be_read_is_never_a_number() -> None:
    blind = Gpu(uuid="x", index=0, name=NAME, errors={"memory": "no_permission", "uses": "no_permission"}, uses=None)
    session = told([blind])
    assert table(session, 60) == [
        "0 memory unknown: no permission   – %   –°   – W ▲ list ?",
        "   └ its processes cannot be read: no permission",
    ]
    assert table(session, 120, 1)[0].endswith("   – W ▲ its processes cannot be read: no permission")
    assert "0/" not in table(session, 90)[0] and title(session) == "GPUs · 1 × PRO 6000 · memory unknown"
    unreadable = replace(blind, state=GpuState.UNREADABLE, why="the driver gives no memory to this user")
    assert table(told([unreadable]), 80) == ["0 PRO 6000  ? not readable  the driver gives no memory to this user"]


def test_instances_stand_below_their_gpu() -> None:
    parent = replace(gpus(None)[0], state=GpuState.UNREADABLE, mig=True, uses=None)
    parts = [
        Gpu(
            uuid=f"MIG-{n}",
            index=n,
            parent="GPU-0",
            memory=Memory(total_bytes=20 * GIB, used_bytes=n * GIB),
            uses=(Use(pid=7, used_bytes=n * GIB),),
        )
        for n in range(3)
    ]
    session = told([parent, *parts])
    assert table(session, 60) == [
        " 0  divided: its instances have the memory",
        "└0 ▕          ▏  0.0/20.0 GiB      ▁",
        "└1 ▕▌         ▏  1.0/20.0 GiB      ▁",
        "└2 ▕█         ▏  2.0/20.0 GiB      ▁",
    ]
    assert title(session) == "GPUs · 1 × PRO 6000 · 3.0 of 60.0 GiB"


def test_unified_memory_is_called_so() -> None:
    spark_box = replace(
        gpus(1.0)[0],
        name="NVIDIA GB10",
        memory=Memory(kind="unified", total_bytes=119 * GIB, used_bytes=89 * GIB),
    )
    assert title(told([spark_box])) == "GPUs · 1 × GB10 · 89.0 of 119.0 GiB unified"
    assert "no process" not in " ".join(table(told([spark_box]), 100))


def test_simulated_is_said_at_every_width() -> None:
    session = Told(title="demo (simulated)").loading()
    session.tell(gpu_event(session.now, gpus(57.0, 57.0), ours=57.0))
    assert title(session) == "GPUs · 2 × PRO 6000 · 114.0 of 191.2 GiB · this run 57.0 GiB · simulated"
    assert all("simulated" in title(session, width) for width in range(18, 120))


# ------------------------------------------------------------------------------- more GPUs than rows


def test_more_gpus_than_rows_stand_side_by_side() -> None:
    rows = table(told(gpus(*[50.0] * 16)), 80, 8)
    assert rows[0] == " 0 ▕███▏  ▏ 50.0/95.6 GiB   3 %  48°      8 ▕███▏  ▏ 50.0/95.6 GiB   3 %  48°"
    assert [row.split()[0] for row in rows] == [str(n) for n in range(8)] and "15 ▕" in rows[7]
    assert len(table(told(gpus(*[50.0] * 16)), 118, 4)) == 4


def test_even_more_are_summed_up_and_the_ones_with_a_trouble_are_shown() -> None:
    found = list(gpus(*[50.0] * 72))
    found[70] = replace(found[70], ecc_uncorrected=2)
    found[71] = replace(found[71], state=GpuState.LOST, why=LOST)
    rows = table(told(found), 80, 8)
    assert len(rows) == 8 and rows[-1] == "+ 51 more: 2,550 of 4,876 GiB · busiest 3 % · hottest 48°"
    assert rows[5].endswith("70✘▕██▏ ▏ 50.0/95.6   3 %") and rows[6].endswith("71  ✘ LOST  reset it")
    assert table(told(found), 80, 1) == [
        "72 GPUs: 3,550 of 6,788 GiB · 1 lost · 1 with a trouble · busiest 3 % · hottest…"
    ]
    assert format_gpus.table(told(found).model, 0, 80, 0) == ()


# ------------------------------------------------------------------------------- rows, the one line


def test_rows_that_are_wanted_are_those_that_are_filled() -> None:
    hot = replace(gpus(57.0)[0], throttle=("hw_thermal",))
    for session in (told(gpus(1.0, 2.0)), told([hot]), told(gpus(1.0), driver=STUCK), told(())):
        wanted = format_gpus.rows_wanted(session.model, session.now)
        assert len(table(session, 60, wanted)) == wanted == len(table(session, 60, wanted + 5))
    assert format_gpus.rows_wanted(Told().model) == 0


def line(session: Told, width: int = 0, later: float = 0.0) -> str:
    return text_of(format_gpus.memory(session.model, session.now + later, width))


def test_one_line_has_a_column_a_gpu_the_sums_and_ours() -> None:
    assert line(Told()) == ""
    session = Told()
    session.tell(gpu_event(session.now, gpus(0.0, 40.0, 95.6, None), ours=71.0))
    assert line(session) == "gpus    ▁▄█?  135.6 of 286.8 GiB · this run 71.0 GiB"


def test_one_line_tells_what_is_wrong_and_fits_where_it_has_to() -> None:
    session = told(gpus(57.0, 0.0), [zombie(0, 30.0), rank(0, 20.0)])
    assert line(session) == "gpus    ▅▁  57.0 of 191.2 GiB · z: 1 left over with 30.0 GiB"
    assert line(session, 30) == "gpus    ▅▁  57.0 of 191.2 GiB…"
    assert line(told(gpus(57.0)), later=12) == "gpus    ▅  57.0 of 95.6 GiB · 12 s ago"
    assert line(told(gpus(57.0), driver=STUCK), later=2).endswith(" · driver not responding since 16 s")
    lost = replace(gpus(0.0)[0], state=GpuState.LOST)
    assert line(told([lost, *gpus(0.0, 57.0)[1:]])) == "gpus    ✗▅  57.0 of 95.6 GiB · 1 lost"
    absent = Driver(state=DriverState.UNAVAILABLE, why="nvidia-ml-py is not installed")
    assert line(told((), driver=absent)) == "gpus    nvidia-ml-py is not installed"


def test_pictures() -> None:
    assert spark([0, None, 1, 50, 99, 100, 500], 100) == "▁ ▁▅███"
    assert spark([1.0], 0) == "▁" and gauge(0.5, 4) == "██  " and gauge(7, 2) == "██" and gauge(-1, 2) == "  "
    assert thin(0.5, 4) == ("━━", "──") and thin(0.4, 4) == ("━╸", "──") and thin(2, 2) == ("━━", "")
