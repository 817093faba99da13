"""What a silent load is: at work, spinning, or dead still."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from supervisor.core.stillness import MOVING, SUSPECT_S, Look, State, Stillness, Watch, compilers, names

GIB = 1 << 30
QUIET = Look(at=0.0, voice=1, held_bytes=40 * GIB, rss_bytes=8 * GIB, read_bytes=0, cpu_s=100.0, gpu_percent=0)


def after(minutes: float, look: Look = QUIET, *, cores: float = 0.0, watch: Watch | None = None) -> Stillness:
    """How it stands after so long of the same, looked at every five seconds."""
    watch, said = watch or Watch(), MOVING
    for step in range(int(minutes * 12) + 1):
        at = step * 5.0
        cpu_s = None if look.cpu_s is None else look.cpu_s + cores * at
        said = watch.look(replace(look, at=at, cpu_s=cpu_s))
    return said


def test_a_short_silence_is_none() -> None:
    assert after(0.3) == MOVING


def test_a_silent_compilation_is_work_however_long_it_takes() -> None:
    look = replace(QUIET, compilers=("cicc",) * 16 + ("ninja",))
    said = after(15, look, cores=15.8)
    assert said.state is State.WORKING and not said.suspicious
    assert said.text == "silent for 15:00; children: 16 cicc, 1 ninja busy"


def test_compilers_that_stand_still_are_no_work() -> None:
    said = after(6, replace(QUIET, compilers=("nvcc", "ninja")))
    assert (said.state, said.suspicious) == (State.STILL, True)
    assert said.text == "nothing moves: CPU 0 %, memory flat, no compiler busy, log silent for 6:00"


def test_gpus_that_spin_while_nothing_else_moves_look_like_a_hang() -> None:
    """A collective that waits for a dead rank: the CPU spins with it."""
    look = replace(QUIET, gpu_percent=100)
    assert not after(2, look, cores=8.0).suspicious, "the set-up of NCCL can take a minute"
    said = after(6, look, cores=8.0)
    assert (said.state, said.suspicious) == (State.SPINNING, True)
    assert said.text.endswith("looks like a hang (NCCL?)") and "silent for 6:00" in said.text


def test_gpus_that_are_busy_in_part_are_at_work() -> None:
    said = after(6, replace(QUIET, gpu_percent=37))
    assert (said.state, said.text) == (State.WORKING, "silent for 6:00; GPUs at 37 %")


def test_a_processor_that_works_is_work() -> None:
    said = after(4, cores=3.1)
    assert said.state is State.WORKING and said.text == "silent for 4:00; CPU 310 %"


def test_nothing_moves_at_all() -> None:
    said = after(6, cores=0.01)
    assert (said.state, said.suspicious) == (State.STILL, True)
    assert said.text == "nothing moves: CPU 1 %, memory flat, log silent for 6:00"
    assert not after(SUSPECT_S / 60 - 0.5).suspicious


def test_what_is_not_seen_is_not_claimed() -> None:
    blind = Look(at=0.0, voice=1)
    said = after(30, blind)
    assert said == Stillness(state=State.UNKNOWN, silent_s=1800.0, text="silent for 30:00")


@pytest.mark.parametrize(
    "step",
    [
        {"voice": 2}, {"held_bytes": 41 * GIB}, {"held_bytes": 39 * GIB}, {"rss_bytes": 9 * GIB}, {"read_bytes": GIB},
        {"held_bytes": None},
    ],
)  # fmt: skip
def test_whatever_moves_ends_the_silence(step: dict[str, object]) -> None:
    watch = Watch()
    assert after(6, watch=watch).suspicious
    moved = replace(QUIET, at=365.0, **step)
    assert watch.look(moved) == MOVING
    assert watch.look(replace(moved, at=380.0)) == MOVING
    assert watch.look(replace(moved, at=430.0)).state is not State.MOVING


def test_a_slow_growth_counts_though_no_single_look_shows_it() -> None:
    watch, said = Watch(), MOVING
    for step in range(200):
        said = watch.look(replace(QUIET, at=step * 5.0, held_bytes=40 * GIB + step * (24 << 20)))
    assert said == MOVING


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("/usr/local/cuda/bin/../nvvm/bin/cicc --c++17 --orig_src_file_name x.cu", "cicc"),
        ("ninja -v -j 16", "ninja"),
        ("/usr/bin/x86_64-linux-gnu-g++-12 -c x.cpp", "g++"),
        ("/usr/libexec/gcc/x86_64-linux-gnu/13/cc1plus -quiet", "cc1plus"),
        ("clang-17 -O3", "clang"),
        ("/usr/bin/c++ -MMD", "c++"),
        ("python3 -m sglang.launch_server --tp 8", None),
        ("sglang::scheduler_TP0", None),
        ("sh -c nvcc --version", None),
        ("", None),
    ],
)
def test_compilers_are_known_by_their_program(title: str, name: str | None) -> None:
    assert compilers([title]) == (() if name is None else (name,))


def test_names_are_counted_the_most_first() -> None:
    assert names(["ninja", "cicc", "cicc", "as"]) == "2 cicc, 1 as, 1 ninja"


@given(
    st.lists(
        st.builds(
            Look,
            at=st.floats(0, 1e6),
            voice=st.integers(0, 2),
            held_bytes=st.one_of(st.none(), st.integers(0, 1 << 45)),
            rss_bytes=st.one_of(st.none(), st.integers(0, 1 << 45)),
            read_bytes=st.one_of(st.none(), st.integers(0, 1 << 60)),
            cpu_s=st.one_of(st.none(), st.floats(0, 1e9)),
            compilers=st.lists(st.sampled_from(["cicc", "ninja"]), max_size=3).map(tuple),
            gpu_percent=st.one_of(st.none(), st.integers(0, 100)),
        ),
        max_size=40,
    )
)
def test_any_looks_in_any_order_are_taken(looks: list[Look]) -> None:
    watch = Watch()
    for look in looks:
        said = watch.look(look)
        assert said.silent_s >= 0
        assert (said.text == "") == (said.state is State.MOVING)
        assert not (said.suspicious and said.state in (State.WORKING, State.MOVING))
