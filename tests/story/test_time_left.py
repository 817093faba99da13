"""How long a load still takes, through the whole program: nothing claimed at first, remembered, told the next time."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.story import kit

FLAGS = ("--sim-load", "4", "--sim-warm", "0.5", "--sim-health-delay", "0", "--sim-shards", "20")


@pytest.fixture
def stopped() -> Iterator[list[kit.Profile]]:
    """Profiles whose servers are stopped at the end."""
    made: list[kit.Profile] = []
    yield made
    for item in made:
        kit.run("stop", str(item))


def launch(item: kit.Profile, state: Path) -> kit.Result:
    env = {"XDG_STATE_HOME": str(state)}
    result = kit.run("--headless", str(item), "--json", "--until", "healthy", "--timeout", "60s", env=env)
    assert result.code == 0, result.out + result.err
    kit.run("stop", str(item), env=env)
    return result


@pytest.mark.parametrize("engine", ["sglang", "llamacpp"])
def test_the_second_launch_knows_what_the_first_one_took(
    engine: str, tmp_path: Path, stopped: list[kit.Profile]
) -> None:
    item = kit.simulated_profile(tmp_path, engine, *FLAGS)
    stopped.append(item)
    state = tmp_path / "operator"
    first = [line for line in launch(item, state).lines if line["kind"] == "progress"]
    assert not [line for line in first if line["rests_on"] == "history"]
    kept = state / "inference-supervisor" / "history" / "local" / f"{item.name}.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    run = json.loads(kept.read_bytes())["runs"][0]
    total_s = run["past"]["total_s"]
    assert 4.0 < total_s < 30.0 and "weights" in [mark["stage"] for mark in run["past"]["marks"]]

    result = launch(item, state)
    second = [line for line in result.lines if line["kind"] == "progress"]
    told = [line for line in second if line["eta_s"] is not None]
    assert told and {line["rests_on"] for line in told} == {"history"}
    assert 0.5 * total_s < told[0]["eta_s"] < 1.2 * total_s
    assert told[-1]["eta_s"] < 0.5 * told[0]["eta_s"]
    overall = [line["overall"] for line in told]
    assert overall == sorted(overall), "what is done stays done"
    assert len(json.loads(kept.read_bytes())["runs"]) == 2
    assert not [line for line in result.lines if line["kind"] == "warning" and "silen" in line["text"]]


def test_a_record_that_is_damaged_is_told_and_kept(tmp_path: Path, stopped: list[kit.Profile]) -> None:
    item = kit.simulated_profile(tmp_path, "vllm", "--sim-load", "0.5")
    stopped.append(item)
    state = tmp_path / "operator"
    kept = state / "inference-supervisor" / "history" / "local" / f"{item.name}.json"
    kept.parent.mkdir(parents=True)
    kept.write_text("nobody's record")
    result = launch(item, state)
    assert [line for line in result.lines if line["kind"] == "warning" and "was damaged" in line["text"]]
    assert kept.with_suffix(".damaged").read_text() == "nobody's record"
    assert len(json.loads(kept.read_bytes())["runs"]) == 1
