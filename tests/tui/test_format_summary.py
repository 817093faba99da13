"""One session in a few words: each phase, and the gravest of several troubles."""

from __future__ import annotations

from msgspec.structs import replace

from supervisor.core import events as ev
from supervisor.core.events import LinkState, Verdict
from supervisor.core.gpu import Driver, DriverState, GpuState
from supervisor.tui.format_summary import Summary, summary
from supervisor.tui.pieces import text_of
from tests.tui.models import Told, gpu_event, gpus, rank, zombie


def told(session: Told) -> Summary:
    return summary(session.model, session.now)


def test_nothing_is_known_yet() -> None:
    found = told(Told())
    assert found.phase == ("○ idle", "dim") and found.run_s is None and found.since_s == 0
    assert (found.memory, found.used_bytes, found.gpus, found.health, found.stage) == ("", None, (), ("", "dim"), "")
    assert found.link == ("connecting", "now") and found.trouble == ("", "dim") and found.left_s is None


def test_a_load() -> None:
    session = Told().loading()
    session.tell(gpu_event(session.now, gpus(57.0, 0.0), ours=57.0))
    found = told(session)
    assert (found.title, found.node, found.phase) == ("kimi-k25-eagle3", "gpu1", ("● loading", "now"))
    assert found.stage == "weights 41/64" and found.fraction == 41 / 64 and round(found.left_s or 0) == 207
    assert round(found.since_s) == 399 and round(found.run_s or 0) == 401
    assert found.memory == "57.0 of 191.2 GiB" and text_of(found.gpus) == "▅▁"
    assert found.health == ("refused", "dim") and found.link == ("", "good") and found.trouble == ("", "dim")
    assert not found.simulated


def test_what_is_over_keeps_how_long_it_took() -> None:
    failed = told(Told().failed().after(1000))
    assert failed.phase == ("✘ failed", "bad") and round(failed.run_s or 0) == 411 and failed.since_s == 1000
    assert failed.trouble == ("the server ended: exit code 1", "bad") and failed.stage == ""
    served = told(Told().serving().after(5))
    assert served.phase == ("✔ serving", "good") and served.health == ("200 ready", "good")
    assert told(Told().serving().after(60)).health == ("200 ready, 1:00 ago", "warn")


def test_the_gravest_trouble_is_told() -> None:
    session = Told(mask=lambda text: text.replace("sk-hunter2", "***")).serving()
    session.desk.warn("a warning with sk-hunter2")
    session.tell()
    assert told(session).trouble == ("a warning with ***", "warn")
    session.tell(gpu_event(session.now, gpus(57.0, 57.0))).holds(rank(0, 20.0), zombie(1, 30.0))
    assert told(session).trouble == ("1 left over, 30.0 GiB", "warn")
    stuck = Driver(state=DriverState.STUCK, why="driver not responding since 14 s", stuck_s=14.0)
    session.tell(gpu_event(session.now, gpus(57.0), driver=stuck))
    assert told(session).trouble == ("driver not responding since 14 s", "bad")
    session.tell(gpu_event(session.now, [replace(gpus(57.0)[0], state=GpuState.LOST)]))
    assert told(session).trouble == ("1 GPU lost", "bad")
    since_s = told(session).since_s
    session.link(LinkState.LOST, "reset").after(12)
    assert told(session).trouble == told(session).link == ("link lost 12 s", "warn")
    assert told(session).since_s == since_s, "nothing is known to go on meanwhile"
    for _ in range(3):
        session.answer(Verdict.SILENT, why="no answer within 20 s")
    assert told(session).trouble == ("no answer within 20 s", "warn")
    session.tell(ev.Finding(at=session.now, category="x", detail="", cause="the cause"))
    assert told(session).trouble == ("the cause", "bad")
    session.model.error = "gpu1 refused every key"
    assert told(session).trouble == ("gpu1 refused every key", "bad")


def test_simulated_is_told() -> None:
    session = Told().loading()
    session.tell(gpu_event(session.now, gpus(1.0), driver=Driver(state=DriverState.OK, simulated=True)))
    assert told(session).simulated
