"""Hooks of a profile at work: one message a change, real commands, and a failure that is one warning."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.adapters import hook
from supervisor.core import events as ev
from supervisor.core.command import Secret
from supervisor.core.events import Phase
from supervisor.core.notices import BURST, QUIET_S, Notice
from supervisor.supervise.notify import Notifier, NotifyPlan, environment
from supervisor.testing import ManualClock, settle
from tests.endpoints.servers import Peer, reply, says, serving

P = Phase
LAUNCH = (P.PREFLIGHT, P.LAUNCHING, P.LOADING, P.HEALTHY, P.SERVING)


def way(*phases: Phase, at: float = 100.0, text: str = "seen") -> list[ev.AnyEvent]:
    """A run through these phases."""
    evidence = (ev.Evidence(kind="x", at=at, text=text),)
    return [
        ev.PhaseChanged(at=at, from_=before, to=to, label=to.value, evidence=evidence, run_id="r1")
        for before, to in zip((P.IDLE, *phases), phases, strict=False)
    ]


class Place:
    """A notifier, and all that it says."""

    def __init__(self, plan: NotifyPlan, mask: Callable[[str], str] = str) -> None:
        self.clock = ManualClock(0.0)
        self.warnings: list[str] = []
        self.notices: list[Notice] = []
        self.notifier = Notifier(
            plan, profile="kimi", node="gpu1", clock=self.clock, mask=mask, warn=self.warnings.append
        )
        self.notifier.on_notice(self.notices.append)


def writer(path: Path) -> tuple[str, ...]:
    """A command that adds what it is given to a file."""
    return (sys.executable, "-c", f"import sys; open({str(path)!r}, 'a').write(sys.stdin.read())")


@pytest.mark.asyncio
async def test_each_change_runs_the_command_once(tmp_path: Path) -> None:
    path = tmp_path / "told"
    place = Place(NotifyPlan(argv=writer(path)))
    place.notifier.take(way(*LAUNCH))
    await place.notifier.finish()
    place.notifier.take(way(P.SERVING, P.FAILED)[1:])
    await place.notifier.finish()
    first, second = map(json.loads, path.read_text().splitlines())
    assert first == {
        "kind": "notice", "at": "1970-01-01T00:01:40.000Z", "event": "served", "profile": "kimi", "node": "gpu1",
        "phase": "serving", "run_id": "r1", "title": "kimi serves", "cause": "seen",
        "text": "kimi serves on gpu1: seen",
    }  # fmt: skip
    assert (second["event"], place.warnings) == ("failed", [])
    assert [notice.title for notice in place.notices] == ["kimi serves", "kimi failed"]


@pytest.mark.asyncio
async def test_only_what_the_profile_names_is_told(tmp_path: Path) -> None:
    path = tmp_path / "told"
    place = Place(NotifyPlan(argv=writer(path), on=frozenset({"degraded"})))
    place.notifier.take(way(*LAUNCH, P.DEGRADED, P.SERVING, P.FAILED))
    await place.notifier.finish()
    assert sorted(json.loads(line)["event"] for line in path.read_text().splitlines()) == ["degraded", "recovered"]
    assert len(place.notices) == 2


@pytest.mark.asyncio
async def test_command_and_webhook_are_told_alike_and_a_failure_is_one_warning(tmp_path: Path) -> None:
    bodies: list[bytes] = []

    async def behave(peer: Peer) -> None:
        await peer.request()
        length = int(peer.server.heads[-1].lower().partition("content-length:")[2].split()[0])
        bodies.append(await peer._reader.readexactly(length))
        await peer.send(reply(200))

    path = tmp_path / "told"
    async with serving(behave) as good, serving(says(reply(410))) as gone:
        for server in (good, gone):
            hook = Secret(f"http://127.0.0.1:{server.port}/opensesame")
            place = Place(NotifyPlan(argv=writer(path), webhook=hook))
            place.notifier.take(way(*LAUNCH))
            await place.notifier.finish()
    assert json.loads(bodies[0]) == json.loads(path.read_text().splitlines()[0])
    assert place.warnings == ["the webhook of [notify] failed: it answers 410"]


@pytest.mark.asyncio
async def test_whatever_a_hook_comes_to_is_one_warning_without_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    async def breaks(*_: object) -> str:
        raise LookupError("sesame")

    monkeypatch.setattr(hook, "run_command", breaks)
    place = Place(NotifyPlan(argv=("true",)), lambda text: text.replace("sesame", "***"))
    place.notifier.take(way(*LAUNCH))
    await place.notifier.finish()
    assert place.warnings == ["the command of [notify] failed: LookupError: ***"]


@pytest.mark.asyncio
async def test_what_is_secret_goes_out_masked(tmp_path: Path) -> None:
    path = tmp_path / "told"
    place = Place(NotifyPlan(argv=writer(path)), lambda text: text.replace("sesame", "***"))
    place.notifier.take(way(*LAUNCH, text="generated 'sesame'"))
    await place.notifier.finish()
    assert "sesame" not in path.read_text() + repr(place.notices) and "***" in path.read_text()


@pytest.mark.asyncio
async def test_the_end_waits_for_a_hook_and_can_be_hurried() -> None:
    place = Place(NotifyPlan(argv=(sys.executable, "-c", "import time; time.sleep(300)")))
    place.notifier.take(way(*LAUNCH))
    hurry = asyncio.Event()
    ending = asyncio.create_task(place.notifier.finish(hurry))
    await settle()
    assert not ending.done()
    hurry.set()
    async with asyncio.timeout(5):
        await ending


@pytest.mark.asyncio
async def test_what_was_held_back_comes_by_itself() -> None:
    place = Place(NotifyPlan())
    for number in range(BURST):
        place.notifier.take(way(*LAUNCH, P.FAILED, at=float(number)))
    place.notifier.take(way(*LAUNCH, at=10.0))
    assert len(place.notices) == BURST
    await place.clock.advance(QUIET_S + 9.0)
    assert len(place.notices) == BURST
    await place.clock.advance(2.0)
    assert place.notices[-1].title == "kimi serves"
    await place.notifier.finish()


def test_no_variable_of_a_hook_makes_it_a_part_of_the_run() -> None:
    """By INFERENCE_SUPERVISOR_RUN a node knows whose a process is: a hook on a local node would be killed with it."""
    document = {"event": "served", "profile": "kimi", "node": "local", "text": "a\0b"}
    given = environment(document)
    assert set(given) == {f"INFERENCE_SUPERVISOR_{name}" for name in ("EVENT", "PROFILE", "NODE", "TEXT")}
    assert given["INFERENCE_SUPERVISOR_TEXT"] == "ab"
