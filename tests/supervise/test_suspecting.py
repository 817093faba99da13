"""The log's verdict: what is certain at once, suspicions late, once for each cause and never to a healthy server."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from supervisor.core import events as ev
from supervisor.core.diagnosis.facts import DeadProcess, EndFacts
from supervisor.core.engine import Common, Engine, Root
from supervisor.core.events import Phase
from supervisor.supervise.desk import Desk
from supervisor.supervise.suspecting import STANDS_S, DeadRanks, LogVerdict
from supervisor.testing import ManualClock

pytestmark = pytest.mark.asyncio


def rule(word: str, *, certain: bool = False, rank: int = 80) -> Root:
    return Root(
        pattern=word,
        literals=(word,),
        category="engine_bug",
        detail=word,
        cause=f"the cause is {word}",
        advice="do",
        samples=(word,),
        rank=rank,
        certain=certain,
        recorded="here" if certain else "",
    )


ENGINE = Engine(
    name="e",
    title="E",
    titles=(r"^engine::rank",),
    roots=(rule("CERTAIN-END", certain=True, rank=50), rule("BAD-LUCK"), rule("WORSE-LUCK", rank=90)),
)


class Place:
    """A verdict at a desk whose phase and clock are the test's."""

    def __init__(self, phase: Phase) -> None:
        self.clock = ManualClock(1000.0)
        self.desk = Desk(clock=self.clock, verify=True, on_phase=lambda _change: None)
        self.desk.machine.phase = phase
        self.tasks: list[asyncio.Task[None]] = []
        self.subscription = self.desk.hub.subscribe()
        self.log = LogVerdict(ENGINE, Common(), self.desk, self.beside)
        self._offset, self._line_no = 0, 1

    def beside(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.create_task(work))

    def say(self, *lines: str, end: str = "\n") -> None:
        data = ("\n".join(lines) + end).encode()
        self.log.take(self.block(data, self._offset, self._line_no))
        self._offset += len(data)
        self._line_no += data.count(b"\n")

    def block(self, data: bytes, offset: int, line_no: int) -> ev.LogBlock:
        return ev.LogBlock(at=self.clock.now(), data=data, offset=offset, line_no=line_no, lines=data.count(b"\n"))

    async def advance(self, wait_s: float) -> None:
        await asyncio.sleep(0)
        await self.clock.advance(wait_s)

    def told(self, kind: type[ev.Event]) -> list[Any]:
        return [event for event in self.subscription.take() if isinstance(event, kind)]

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


async def test_what_is_certain_ends_the_load_at_its_line_and_is_the_finding() -> None:
    place = Place(Phase.LOADING)
    place.say("fine", "here comes CERTAIN-END of rank 3")
    assert place.desk.phase is Phase.FAILED
    change = place.told(ev.PhaseChanged)[0]
    assert change.evidence[0].text == "the cause is CERTAIN-END (line 2: here comes CERTAIN-END of rank 3)"
    found = place.log.finding(EndFacts(), 1001.0)
    assert (found.detail, found.line_no) == ("CERTAIN-END", 2)


async def test_a_takeover_reads_the_line_before_the_process_is_seen_and_nothing_is_lost() -> None:
    place = Place(Phase.PREFLIGHT)
    place.say("CERTAIN-END")
    assert place.told(ev.PhaseChanged) == []
    place.desk.machine.phase = Phase.LOADING
    place.log.settle()
    assert place.desk.phase is Phase.FAILED


async def test_a_certain_line_while_it_serves_degrades_and_tells_its_finding_once() -> None:
    place = Place(Phase.SERVING)
    place.say("CERTAIN-END", "CERTAIN-END")
    place.say("CERTAIN-END")
    assert place.desk.phase is Phase.DEGRADED
    assert [found.line_no for found in place.told(ev.Finding)] == [1]


async def test_a_surer_line_above_the_one_that_proves_it_is_named() -> None:
    place = Place(Phase.WARMING)
    place.say("BAD-LUCK of rank 3", "CERTAIN-END")
    assert place.desk.phase is Phase.FAILED
    assert place.log.finding(EndFacts(), 1001.0).line_no == 1


async def test_a_suspicion_is_shown_when_it_has_stood_and_once_for_each_cause() -> None:
    place = Place(Phase.LOADING)
    place.say("BAD-LUCK")
    await place.advance(STANDS_S / 2)
    assert place.told(ev.Warning_) == []
    await place.advance(STANDS_S)
    assert [item.text for item in place.told(ev.Warning_)] == [
        "the log hints at trouble, and the server goes on: the cause is BAD-LUCK (line 1: BAD-LUCK)"
    ]
    place.say("BAD-LUCK", "BAD-LUCK")
    await place.advance(3 * STANDS_S)
    assert place.told(ev.Warning_) == []
    place.say("WORSE-LUCK")
    await place.advance(3 * STANDS_S)
    assert ["WORSE-LUCK" in item.text for item in place.told(ev.Warning_)] == [True]
    assert place.desk.phase is Phase.LOADING, "a suspicion never ends anything"
    await place.end()


@pytest.mark.parametrize("phase", [Phase.HEALTHY, Phase.SERVING, Phase.DEGRADED, Phase.STOPPING, Phase.FAILED])
async def test_a_server_that_came_up_or_ended_hears_of_no_suspicion(phase: Phase) -> None:
    place = Place(Phase.LOADING)
    place.say("BAD-LUCK")
    place.desk.machine.phase = phase
    await place.advance(3 * STANDS_S)
    place.say("WORSE-LUCK")
    await place.advance(3 * STANDS_S)
    assert place.told(ev.Warning_) == []
    await place.end()


async def test_words_that_only_sound_bad_are_no_suspicion() -> None:
    place = Place(Phase.LOADING)
    place.say("ERROR: failed to open /etc/x", "could not find it, cannot go on, Aborted")
    await place.advance(5 * STANDS_S)
    assert place.told(ev.Warning_) == []
    await place.end()


@pytest.mark.parametrize("cut", [0, 3, 9, 10, 12, 21])
async def test_last_words_that_were_fetched_are_not_read_twice(cut: int) -> None:
    """The stream has come as far as `cut`, the rest is fetched, and then the stream brings it once more."""
    data = b"fine\nfine\nBAD-LUCK a\n"
    place = Place(Phase.STOPPING)
    take = place.log.take
    if cut:
        take(place.block(data[:cut], 0, 1))
    take(place.block(data[cut:], cut, 1 + data[:cut].count(b"\n")))
    take(place.block(data[: cut + 5], 0, 1))
    take(place.block(data[cut:] + b"WORSE-LUCK b\n", cut, 1 + data[:cut].count(b"\n")))
    assert place.log.read_to == len(data) + 13
    found = place.log.finding(EndFacts(exit=ev.Exit(code=1)), 1001.0)
    assert (found.detail, found.line_no, found.line) == ("WORSE-LUCK", 4, "WORSE-LUCK b")


async def test_an_end_that_nothing_explains_says_how_and_that_it_is_not_known() -> None:
    place = Place(Phase.LOADING)
    place.say("fine")
    found = place.log.finding(EndFacts(exit=ev.Exit(code=0)), 1001.0)
    assert (found.category, found.confidence) == ("unknown", "low")
    assert "exit code 0" in found.cause


# ------------------------------------------------------------------------------- dead ranks


def dead(title: str, how: ev.Exit | None, pid: int = 7) -> DeadProcess:
    return DeadProcess(at=1000.0, pid=pid, title=title, how=how)


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (dead("engine::rank_3", ev.Exit(code=1)), "process 7 engine::rank_3 ended by exit code 1"),
        (dead("engine::rank_3", None), "process 7 engine::rank_3 ended, nobody saw how"),
        (dead("python x.py", ev.Exit(signal="SIGSEGV")), "process 7 python x.py ended by signal SIGSEGV"),
        (dead("gcc -v", ev.Exit(code=1)), None),
        (dead("/bin/true", None), None),
    ],
)
async def test_a_rank_or_a_crash_is_told_and_a_helper_is_not(item: DeadProcess, words: str | None) -> None:
    place = Place(Phase.LOADING)
    DeadRanks(ENGINE, place.desk, place.beside).take(item)
    await place.advance(2.0)
    told = [warning.text for warning in place.told(ev.Warning_)]
    assert told == ([] if words is None else [f"{words}, while the server itself goes on"])


async def test_many_at_once_are_one_warning_and_an_end_makes_it_needless() -> None:
    place = Place(Phase.SERVING)
    ranks = DeadRanks(ENGINE, place.desk, place.beside)
    for pid in (7, 8, 9):
        ranks.take(dead("engine::rank", ev.Exit(signal="SIGKILL"), pid))
    await place.advance(2.0)
    assert ["and 2 more after it" in item.text for item in place.told(ev.Warning_)] == [True]
    ranks.take(dead("engine::rank", ev.Exit(signal="SIGKILL"), 10))
    place.desk.machine.phase = Phase.FAILED
    await place.advance(2.0)
    assert place.told(ev.Warning_) == []
