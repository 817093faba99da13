"""The takeover table of the contract, row by row, and what it says of differences."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.events import Exit
from supervisor.core.takeover import Action, KnownRun, Wanted, decide, differences

RUN = KnownRun(
    run_id="20260801T101112Z-abcd",
    fingerprint="f" * 64,
    by="alice@laptop",
    started_at=1.0,
    argv=("python3", "-m", "sglang.launch_server", "--tp", "8"),
    cwd="/home/alice",
    env={"HF_HOME": "sha256:aaaa"},
    keeper_alive=True,
    root_alive=True,
)
SAME = Wanted(fingerprint=RUN.fingerprint, argv=RUN.argv, cwd=RUN.cwd, env=dict(RUN.env))
OTHER = msgspec.structs.replace(SAME, fingerprint="0" * 64, argv=(*RUN.argv[:-1], "4"))
ENDED = msgspec.structs.replace(RUN, keeper_alive=False, root_alive=False, exit=Exit(signal="SIGKILL"))
STOPPED = msgspec.structs.replace(ENDED, stopped_by="bob")


def row(live: KnownRun | None, last: KnownRun | None, wanted: Wanted, *, launch: bool) -> Action:
    return decide(live, last, msgspec.structs.replace(wanted, launch=launch), "kimi")


@pytest.mark.parametrize("launch", [True, False])
def test_a_live_run_with_the_same_fingerprint_is_taken_over(launch: bool) -> None:
    action = row(RUN, None, SAME, launch=launch)
    assert (action.do, action.run, action.warnings, action.reasons) == ("take_over", RUN, (), ())


def test_a_live_run_with_another_fingerprint_is_refused_with_the_difference_and_the_way_out() -> None:
    action = row(RUN, None, OTHER, launch=True)
    assert action.do == "refuse"
    assert "restart kimi" in action.reasons[0]
    assert "alice@laptop" in action.reasons[0]
    assert [text for text in action.reasons[1:] if "only here: 4" in text or "only there: 8" in text]


def test_without_launch_another_fingerprint_is_a_warning() -> None:
    action = row(RUN, None, OTHER, launch=False)
    assert (action.do, action.run) == ("take_over", RUN)
    assert "other settings" in action.warnings[0]
    assert "only here: 4" in action.warnings[0]


@pytest.mark.parametrize("launch", [True, False])
def test_a_dead_keeper_and_a_live_root_are_taken_over_with_a_word_on_the_exit_code(launch: bool) -> None:
    orphan = msgspec.structs.replace(RUN, keeper_alive=False)
    action = row(orphan, None, SAME, launch=launch)
    assert (action.do, action.run) == ("take_over", orphan)
    assert "exit code will be unknown" in action.warnings[0]


def test_a_run_that_ended_is_told_and_then_launched() -> None:
    action = row(None, ENDED, SAME, launch=True)
    assert action.do == "launch"
    assert "SIGKILL" in action.warnings[0]
    assert ENDED.run_id in action.warnings[0]


def test_a_run_whose_end_nobody_saw_is_told_as_that() -> None:
    unseen = msgspec.structs.replace(ENDED, exit=None)
    assert "nobody saw how" in row(None, unseen, SAME, launch=True).warnings[0]


def test_without_launch_a_run_that_ended_is_taken_for_its_finding() -> None:
    action = row(None, ENDED, SAME, launch=False)
    assert (action.do, action.run) == ("take_over", ENDED)


def test_a_wanted_stop_is_no_failure_to_tell() -> None:
    assert row(None, STOPPED, SAME, launch=True) == Action(do="launch")
    action = row(None, STOPPED, SAME, launch=False)
    assert action.do == "refuse"
    assert "stopped by bob" in action.reasons[0]


def test_nothing_there_is_launched_or_refused() -> None:
    assert row(None, None, SAME, launch=True) == Action(do="launch")
    action = row(None, None, SAME, launch=False)
    assert action.do == "refuse"
    assert "nothing runs for kimi" in action.reasons[0]


def test_a_live_run_counts_before_one_that_ended() -> None:
    assert row(RUN, ENDED, SAME, launch=True).run is RUN


# ------------------------------------------------------------------------------------------------- differences


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        (msgspec.structs.replace(SAME, cwd="/tmp"), ["folder: /home/alice there, /tmp here"]),
        (msgspec.structs.replace(SAME, env={}), ["environment: HF_HOME only there"]),
        (
            msgspec.structs.replace(SAME, env={**SAME.env, "X": "sha256:1"}),
            ["environment: X only here"],
        ),
        (msgspec.structs.replace(SAME, env={"HF_HOME": "sha256:b"}), ["environment: HF_HOME has another value"]),
        (
            msgspec.structs.replace(SAME, argv=(*SAME.argv, "--x")),
            ["command: only here: --x"],
        ),
        (
            msgspec.structs.replace(SAME, argv=tuple(reversed(SAME.argv))),
            ["command: the same words in another order or number"],
        ),
        (
            msgspec.structs.replace(SAME, argv=(*SAME.argv, "8")),
            ["command: the same words in another order or number"],
        ),
        (SAME, ["only a secret in the command differs"]),
    ],
)
def test_each_difference_is_told(wanted: Wanted, told: list[str]) -> None:
    assert differences(RUN, wanted) == told


HASH = st.text("0123456789abcdef", min_size=16, max_size=16).map("sha256:".__add__)
ENV = st.dictionaries(st.sampled_from(["HF_TOKEN", "API_KEY", "PATH"]), HASH)


@given(ENV, ENV, st.booleans())
def test_no_text_shows_a_value_not_even_its_hash(there: dict[str, str], here: dict[str, str], launch: bool) -> None:
    live = msgspec.structs.replace(RUN, env=there)
    wanted = msgspec.structs.replace(OTHER, env=here, launch=launch)
    action = decide(live, None, wanted, "kimi")
    text = "\n".join([*differences(live, wanted), *action.reasons, *action.warnings])
    for value in (*there.values(), *here.values()):
        assert value not in text
        assert value.removeprefix("sha256:") not in text
    assert live.fingerprint not in text and wanted.fingerprint not in text
