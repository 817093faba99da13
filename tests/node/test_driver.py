"""The serve side of the NVML child, with children of the test's own: what it makes of their ends and of their silence.

Real children stand in test_snapshot.py; these here end in ways that NVIDIA's library cannot be told to.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from supervisor.node import driver, holders
from tests.real.processes import poll

SAMPLE = """
def sample(number, uuid):
    gpu = {"uuid": uuid, "index": 0, "uses": []}
    told = {"at": float(number), "ids": [number], "driver": {"state": "ok", "why": ""}, "gpus": [gpu]}
    print(json.dumps({"sample": told}), flush=True)
"""
PREAMBLE = "import json, os, sys\n" + SAMPLE + "orders = json.loads(sys.stdin.readline())\nlife = orders['life']\n"


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[driver.Driver]:
    """Drivers of the test, let go at its end."""
    (tmp_path / "nvidia0").touch()
    monkeypatch.setenv("INFERENCE_SUPERVISOR_DEV", str(tmp_path))
    return []


@pytest.fixture(autouse=True)
def nothing_is_left(made: list[driver.Driver]) -> Iterator[None]:
    """Wait for the children's ends: a pipe that is open then would be told as a leak."""
    yield
    poll(lambda: all(t.name != "nvml child" for t in threading.enumerate()), 10.0, "the end of every child")


def a_driver(code: str) -> tuple[driver.Driver, list[dict[str, object]]]:
    """A driver whose children run this code, and the orders that each of them got."""
    lives: list[dict[str, object]] = []

    def boot(orders: dict[str, object]) -> bytes:
        lives.append(orders)
        return json.dumps({"life": len(lives)}).encode() + b"\n"

    made = driver.Driver(boot, PREAMBLE + code)
    made.given("the source")
    return made, lives


def test_a_child_that_retires_is_followed_by_a_new_one_in_the_same_look(made: list[driver.Driver]) -> None:
    """Else its last sample would pass for a new one: a proof would count it twice."""
    one, lives = a_driver(
        "for line in sys.stdin:\n"
        "    number = json.loads(line)['id']\n"
        "    if life == 1 and number > 1:\n"
        "        print(json.dumps({'retire': 'it has grown'}), flush=True)\n"
        "        sys.exit()\n"
        "    sample(number, 'GPU-%d' % life)\n"
    )
    assert one.sample(20.0)["sampled_at"] == 1.0
    told = one.sample(20.0)
    assert (told["sampled_at"], told["gpus"][0]["uuid"], told["driver"]["state"]) == (2.0, "GPU-2", "ok")
    assert len(lives) == 2 and lives[1]["known"] == [
        {"uuid": "GPU-1", "index": 0, "name": None, "bus_id": None, "minor": None}
    ]
    one.close()


def test_a_child_that_dies_is_not_started_again_at_once(made: list[driver.Driver]) -> None:
    one, lives = a_driver("os.kill(os.getpid(), 11)")
    told = one.sample(20.0)
    assert told["driver"]["state"] == "unavailable" and "ended by signal 11" in told["driver"]["why"]
    assert one.sample(20.0)["driver"] == told["driver"]
    assert len(lives) == 1 and one.child_pid is None


def test_what_a_library_prints_is_no_answer(made: list[driver.Driver]) -> None:
    one, _ = a_driver(
        "print('WARNING: this is a stub', flush=True)\n"
        "sys.stdout.buffer.write(b'\\xff\\xfe{\\n[1]\\n'); sys.stdout.buffer.flush()\n"
        "for line in sys.stdin: sample(json.loads(line)['id'], 'GPU-1')\n"
    )
    assert one.sample(20.0)["sampled_at"] == 1.0
    one.close()


def test_without_the_source_it_says_what_is_missing(made: list[driver.Driver]) -> None:
    one, lives = a_driver("")
    one.given("")
    told = one.sample(20.0)
    assert told["driver"]["state"] == "unavailable" and "pip install nvidia-ml-py" in told["driver"]["why"]
    assert not lives


def test_an_answer_to_an_older_question_is_not_taken_for_the_newest(made: list[driver.Driver]) -> None:
    """A look after a signal must have begun after it."""
    one, _ = a_driver(
        "import time\n"
        "for line in sys.stdin:\n"
        "    number = json.loads(line)['id']\n"
        "    time.sleep(0.5 if number == 1 else 0.0)\n"
        "    sample(number, 'GPU-1')\n"
    )
    first = one.sample(0.0)
    assert first["sampled_at"] is None and first["driver"]["state"] == "stuck"
    assert one.sample(20.0)["sampled_at"] == 2.0
    one.close()


def test_a_look_that_goes_on_while_the_driver_is_let_go_takes_it_no_second_time(made: list[driver.Driver]) -> None:
    """`gpu_end` comes while a watch waits for its sample: whoever wants to reset the GPU must find nobody on it."""
    one, lives = a_driver("sys.stdin.read()")
    told: list[dict[str, object]] = []
    looking = threading.Thread(target=lambda: told.append(one.sample(20.0)))
    looking.start()
    poll(lambda: one.child_pid is not None, 10.0, "the child")
    one.close()
    looking.join(10.0)
    assert told and len(lives) == 1 and one.child_pid is None


def test_what_a_child_says_after_it_was_let_go_is_not_heard(made: list[driver.Driver]) -> None:
    one, lives = a_driver(
        "for line in sys.stdin: sample(json.loads(line)['id'], 'GPU-%d' % life)\nif life == 1: sample(99, 'GPU-late')\n"
    )
    assert one.sample(20.0)["sampled_at"] == 1.0
    one.close()
    poll(lambda: all(t.name != "nvml child" for t in threading.enumerate()), 10.0, "the end of the child")
    told = one.sample(20.0)
    assert told["gpus"][0]["uuid"] == "GPU-2" and lives[1]["known"][0]["uuid"] == "GPU-1"  # type: ignore[index]
    one.close()


def test_the_same_figures_told_again_are_no_second_look(tmp_path: Path) -> None:
    """A driver that hangs, or two who ask at once: ghost memory is told after three looks of the driver's own."""
    memory = {"used_bytes": 8 << 30, "total_bytes": 80 << 30}

    class Source:
        child_pid = None
        sampled_at = 1.0

        def sample(self, wait_s: float) -> dict[str, object]:
            gpu = {"uuid": "GPU-0", "index": 0, "state": "ok", "memory": memory, "uses": []}
            return {"driver": {"state": "stuck", "why": ""}, "gpus": [gpu], "sampled_at": self.sampled_at}

    source = Source()
    looker = holders.Looker(str(tmp_path), source)  # type: ignore[arg-type]
    counts = []
    for sampled_at in (1.0, 1.0, 1.0, 2.0, 2.0):
        source.sampled_at = sampled_at
        counts.append(looker.look(wait_s=0.0, scan=False)["looks"])
    assert counts == [{"GPU-0": 1}, {"GPU-0": 1}, {"GPU-0": 1}, {"GPU-0": 2}, {"GPU-0": 2}]


@pytest.mark.parametrize(
    ("states", "orphan", "hangs"),
    [
        ("S", False, False),
        ("DDDDDS", False, False),  # somebody else's look wakes up a driver without persistence mode
        ("D", False, True),
        ("DDD", True, True),
        ("S", True, True),
        ("SS-", True, False),
    ],
)
def test_who_hangs_in_the_driver(monkeypatch: pytest.MonkeyPatch, states: str, orphan: bool, hangs: bool) -> None:
    """The last state stays; "-": it has ended."""
    told = list(states)
    now = [0.0]

    def describe(pid: int) -> dict[str, object] | None:
        state = told.pop(0) if len(told) > 1 else told[0]
        return None if state == "-" else {"pid": pid, "state": state, "age_s": 3.0}

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr("supervisor.node.driver.proc", SimpleNamespace(describe=describe))
    monkeypatch.setattr("supervisor.node.driver.time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    assert (driver._hangs(5, orphan=orphan) is not None) is hangs
    assert now[0] <= driver.STUCK_AFTER_S + 1.6
