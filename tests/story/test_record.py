"""A real launch is recorded and played back by the real command; a profile's hook runs when the verdict is out."""

from __future__ import annotations

import io
import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor import cli
from tests.main_job.kit import PATIENCE_S
from tests.real.processes import Tracker, poll
from tests.schema import checked, stream
from tests.story import kit

QUICK = ("--sim-load", "0.2", "--sim-warm", "0.2", "--sim-health-delay", "0", "--sim-speed", "4")


@pytest.fixture
def stopped(tracker: Tracker) -> Iterator[list[kit.Profile]]:
    """What a test launched is stopped at its end."""
    launched: list[kit.Profile] = []
    yield launched
    for item in launched:
        kit.run("stop", str(item))


def without(line: dict[str, Any]) -> dict[str, Any]:
    """A summary without the mark of a replay."""
    evidence = [item for item in line.get("evidence", ()) if item["kind"] != "replay"]
    return {**line, "evidence": evidence} if "evidence" in line else line


@pytest.mark.parametrize(
    ("flags", "code"), [((), 0), (("--sim-fault", "die-at-graphs"), 1)], ids=["serves", "dies at its graphs"]
)
def test_a_record_plays_back_as_it_was(
    tmp_path: Path, stopped: list[kit.Profile], flags: tuple[str, ...], code: int
) -> None:
    item = kit.simulated_profile(tmp_path, "sglang", *QUICK, *flags)
    stopped.append(item)
    path = tmp_path / "record.jsonl"
    then = kit.run("--headless", str(item), "--json", "--events", "all", "--record", str(path))
    assert then.code == code, then.out + then.err
    recorded = path.read_text().splitlines()
    head = checked(recorded[0])
    assert (head["kind"], head["profile"], head["node"]) == ("record", item.name, "local")
    words = ("--headless", "--replay", str(path), "--speed", "1000", "--json", "--events", "all")
    now = kit.run(*words)
    assert now.code == code and now.err == ""
    mark, *lines = stream(now.out)
    assert mark["kind"] == "warning" and f"a recording of {item.name} on local" in mark["text"]
    assert lines[-1]["evidence"][-1]["kind"] == "replay"
    assert [without(line) for line in lines] == [json.loads(line) for line in recorded[1:]]
    told = kit.run("--headless", "--replay", str(path), "--speed", "1000")
    assert told.code == code and "replay: a recording of" in told.out and "launching" in told.err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--replay", "x", "kimi.toml"), "takes no PROFILE"),
        (("--headless", "--replay", "/no/such"), "cannot be read"),
        (("--headless", "--replay", "/etc/hostname", "--timeout", "3s"), "--timeout belongs to"),
        (("--headless", "--replay", "/etc/hostname", "--record", "y"), "--record belongs to"),
        (("--headless", "--replay", "/etc/hostname", "--speed", "fast"), "is no speed"),
        (("--headless", "--replay", "/etc/hostname", "--speed", "0"), "is no speed"),
        (("--headless", "--replay", "/etc/hostname", "--max-gap", "x"), "--max-gap"),
        (("--headless", "--url", "http://h/", "--speed", "2"), "--speed belongs to --replay"),
        (("--replay", "/etc/hostname"), "needs a terminal"),
        (("stop", "kimi.toml", "--record", "x"), "--record belongs to a wait"),
        (("--replay", "/etc/hostname", "--json"), "--json belongs to --headless"),
        (("--headless", "--replay", "/etc/hostname", "--layout", "wall"), "--layout belongs to the console"),
    ],
)
def test_what_makes_no_sense_is_refused(
    words: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())  # no terminal, whoever runs the tests
    assert cli.main(words) == 2
    assert why in capsys.readouterr().err


# ------------------------------------------------------------------------------------------- the hook


def hooked(folder: Path) -> kit.Profile:
    """A profile whose hook is under way until the file `go` is there."""
    script = f'cat > "{folder}/told"; while [ ! -e "{folder}/go" ]; do sleep 0.02; done; touch "{folder}/done"'
    more = f"[notify]\ncommand = {json.dumps(['sh', '-c', script])}\n"
    return kit.simulated_profile(folder, "vllm", *QUICK, more=more)


def text_of(path: Path) -> str | None:
    """A whole line of a file, None while there is none."""
    text = path.read_text() if path.exists() else ""
    return text if text.endswith("\n") else None


def begun(item: kit.Profile) -> subprocess.Popen[str]:
    """A headless wait that has printed its verdict and waits for its hook."""
    wait = subprocess.Popen(
        [*kit.SUPERVISOR, "--headless", str(item), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert wait.stdout is not None
    for line in wait.stdout:
        if '"kind":"summary"' in line:
            assert json.loads(line)["exit_code"] == 0
            return wait
    raise AssertionError(wait.stderr.read() if wait.stderr else "")


def test_the_verdict_is_out_before_the_hook_and_the_command_waits_for_it(
    tmp_path: Path, stopped: list[kit.Profile]
) -> None:
    item = hooked(tmp_path)
    stopped.append(item)
    with begun(item) as wait:
        document = json.loads(poll(lambda: text_of(tmp_path / "told"), PATIENCE_S, "the hook"))
        assert (document["event"], document["profile"], document["phase"]) == ("served", item.name, "serving")
        assert wait.poll() is None and not (tmp_path / "done").exists()
        (tmp_path / "go").touch()
        assert wait.wait(PATIENCE_S) == 0
        assert wait.stdout is not None and wait.stdout.read() == ""
    assert (tmp_path / "done").exists()
    again = kit.run("--headless", str(item), "--json")
    assert again.code == 0
    assert json.loads((tmp_path / "told").read_text()) == document, "what served already is no news"


def test_a_second_signal_ends_the_wait_for_the_hook(tmp_path: Path, stopped: list[kit.Profile]) -> None:
    item = hooked(tmp_path)
    stopped.append(item)
    with begun(item) as wait:
        poll(lambda: (tmp_path / "told").exists(), PATIENCE_S, "the hook")
        wait.send_signal(signal.SIGINT)
        assert wait.wait(5) == 0, "the verdict stands"
    assert not (tmp_path / "done").exists()


def test_a_hook_that_fails_is_one_warning_behind_the_verdict(tmp_path: Path, stopped: list[kit.Profile]) -> None:
    more = '[notify]\ncommand = ["sh", "-c", "echo no route >&2; exit 7"]\non = ["served"]\n'
    item = kit.simulated_profile(tmp_path, "vllm", *QUICK, more=more)
    stopped.append(item)
    result = kit.run("--headless", str(item), "--json")
    assert result.code == 0 and stream(result.out)
    assert result.err.count("the command of [notify] failed: exit code 7 (no route)") == 1
