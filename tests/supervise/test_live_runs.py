"""Asking nodes for live runs: real runs on the local node, and nodes that cannot be asked."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from supervisor.adapters.base import Link
from supervisor.adapters.clock import SystemClock
from supervisor.adapters.local import LocalLink
from supervisor.core.events import Owner, Verdict
from supervisor.errors import LoginError
from supervisor.supervise import live_runs
from supervisor.supervise.live_runs import Asked, Told, ask
from tests.main_job.kit import LOADS, QUICK, Site
from tests.real.processes import Tracker

pytestmark = pytest.mark.asyncio


class ClosedLink(LocalLink):
    """A node that lets nobody in."""

    async def connect(self) -> None:
        raise LoginError("gpu2: \x1b[31mPermission denied (tried id_ed25519)")


class SilentLink(LocalLink):
    """A node from which nothing ever comes back."""

    async def connect(self) -> None:
        await asyncio.Event().wait()


class OddLink(LocalLink):
    """A node on whose way something breaks that nobody has thought of."""

    async def connect(self) -> None:
        raise KeyError("odd")


def asked(host: str, make_link: Callable[[], Link], *state_dirs: Path | None) -> Asked:
    places = tuple(None if place is None else str(place) for place in state_dirs) or (None,)
    return Asked(host=host, make_link=make_link, python=sys.executable, state_dirs=places)


async def told_by(*nodes: Asked) -> dict[str, list[Told]]:
    heard: dict[str, list[Told]] = {node.host: [] for node in nodes}
    await ask(nodes, clock=SystemClock(), on_told=lambda told: heard[told.host].append(told))
    return heard


@pytest.fixture
def sites(tmp_path: Path, tracker: Tracker) -> Iterator[tuple[Site, Site, Site]]:
    """A profile that serves, one that loads, and one whose run has ended."""
    made = tuple(Site(tmp_path / name, tracker, *flags) for name, flags in (("a", QUICK), ("b", LOADS), ("c", QUICK)))
    try:
        serving, loads, ended = made
        yield serving, loads, ended
    finally:
        for one in made:
            one.end()


async def test_runs_that_live_are_found_with_what_their_health_answers(sites: tuple[Site, Site, Site]) -> None:
    serving, loads, ended = sites
    commands = [serving.headless(), ended.headless(), loads.headless()]
    await asyncio.to_thread(commands[0].exit_code)
    await asyncio.to_thread(commands[1].exit_code)
    await asyncio.to_thread(commands[2].until_phase, "loading")
    stopped = ended.start("stop", str(ended.file))
    assert await asyncio.to_thread(stopped.exit_code) == 0, stopped.said

    node = asked("local", LocalLink, *(site.state_dir for site in sites))
    heard = (await told_by(node))["local"]
    first, last = heard[0], heard[-1]
    assert first.reached and {run.key for run in first.runs} == {serving.key, loads.key}
    assert all(run.answer is None for run in first.runs), "the list comes before the looks"
    assert last.done and not last.why
    runs = {run.key: run for run in last.runs}
    for site in (serving, loads):
        record = site.records()[-1]
        run = runs[site.key]
        assert (run.run_id, run.engine, run.port) == (record["run_id"], "sglang", site.port)
        assert abs(run.started_at - record["started_at"]) < 1.0
        assert run.state_dir == str(site.state_dir)
    answers = {key: run.answer for key, run in runs.items()}
    served, loading = answers[serving.key], answers[loads.key]
    assert served is not None and (served.verdict, served.status, served.owner) == (Verdict.READY, 200, Owner.OURS)
    assert loading is not None and loading.verdict is Verdict.REFUSED
    commands[2].kill()


async def test_a_node_that_cannot_be_asked_says_so_and_disturbs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last: dict[str, Told] = {}
    others_done = asyncio.Event()

    def on_told(told: Told) -> None:
        last[told.host] = told
        if len(last) == 3 and all(one.done for one in last.values()):
            others_done.set()

    nodes = [asked("silent", SilentLink), asked("closed", ClosedLink), asked("odd", OddLink)]
    nodes.append(asked("local", LocalLink, tmp_path / "state"))
    asking = asyncio.create_task(ask(nodes, clock=SystemClock(), on_told=on_told))
    await asyncio.wait_for(others_done.wait(), 15)
    assert not asking.done(), "it waits for the silent one alone"
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert last["closed"].why == "gpu2: Permission denied (tried id_ed25519)"
    assert last["odd"].why == "KeyError: 'odd'"
    assert (last["local"].reached, last["local"].why, last["local"].runs) == (True, "", ())
    assert not last["closed"].reached and not last["odd"].reached

    monkeypatch.setattr(live_runs, "NODE_LIMIT_S", 0.05)
    silent = (await told_by(asked("silent", SilentLink)))["silent"][-1]
    assert (silent.why, silent.done, silent.reached) == ("no answer within 0 s", True, False)
