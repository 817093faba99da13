"""The console on a recorded stream that stands still at one moment, for pictures of it: no node, no passing of time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct
from textual.app import App
from textual.pilot import Pilot

from supervisor.core import events as ev
from supervisor.core.event_json import seconds
from supervisor.core.events import Evidence, LinkState, Outcome, Owner, Phase, Verdict
from supervisor.supervise.replay import ReplaySession
from supervisor.tui.app import ConsoleApp
from supervisor.tui.watcher import OnChange, Watcher
from tests.tui.consoles import screen_text

STREAMS = Path(__file__).resolve().parents[1] / "corpora" / "streams"
PATIENCE_S = 30.0
Told = Callable[[float], Sequence[ev.AnyEvent]]
"""What the recording has not got, told at this time."""


class Moment(Struct, frozen=True, kw_only=True):
    """Where a recording stands still, and what must be on every screen of it."""

    stream: str
    after: str = ""
    """The phase that it has come to; empty: none yet."""
    plus_s: float = 0.0
    """So long after that."""
    shows: tuple[str, ...] = ()
    """On every screen."""
    reads: tuple[str, ...] = ()
    """On every screen that has room for evidence."""
    told: Told | None = None
    then_s: float = 0.0
    """Seconds that go by after what was told."""
    memory: bool = True


def until_s(path: Path, moment: Moment) -> float:
    """Seconds from the recording's beginning to the moment."""
    documents = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    times = {document.get("to", ""): seconds(document["at"]) for document in documents if document["kind"] == "phase"}
    began = seconds(documents[0]["at"])
    return times.get(moment.after, began) - began + moment.plus_s


class HeldClock:
    """Implements `adapters.base.Clock`: time goes by when somebody waits for it, up to a moment; then it stands.

    It waits for whoever looks on: where nobody falls behind no sample is left out, and every run shows the same.
    """

    def __init__(self, until_s: float, caught_up: Callable[[], bool]) -> None:
        self._now = 0.0
        self._until_s = until_s
        self._caught_up = caught_up
        self.stands = asyncio.Event()

    def now(self) -> float:
        return self._now

    async def sleep(self, wait_s: float) -> None:
        while not self._caught_up():  # noqa: ASYNC110 - a watcher tells nobody that it has taken everything
            await asyncio.sleep(0)
        if self._now + wait_s > self._until_s:
            self._now = self._until_s
            self.stands.set()
            await asyncio.Event().wait()
        self._now += wait_s

    def go_on(self, seconds: float) -> None:
        """What waits for the recording to go on waits still."""
        self._now += seconds


class PromptWatcher(Watcher):
    """Takes the stream as it comes, and has nothing drawn meanwhile."""

    async def drain(self, on_change: OnChange, pace_s: float) -> None:
        await super().drain(lambda _watcher, _events: None, 0.0)


class Still:
    """One recording, held at its moment."""

    def __init__(self, moment: Moment) -> None:
        self._moment = moment
        path = STREAMS / f"{moment.stream}.jsonl"
        self._clock = HeldClock(until_s(path, moment), self._taken)
        self.session = ReplaySession(str(path), clock=self._clock)
        head = self.session.head
        self.watcher = PromptWatcher(self.session, title=head.profile, node=head.node, mask=str)

    async def held(self) -> None:
        """Until it has come there, and what is told on top of it has been taken."""
        desk = self.session.desk
        async with asyncio.timeout(PATIENCE_S):
            await self._clock.stands.wait()
            if self._moment.told is not None:
                self.session.clock.next_at = float("inf")  # what was recorded next does not come
                for event in self._moment.told(desk.clock.now()):
                    desk.tell(event)
                self._clock.go_on(self._moment.then_s)
            while not self._taken():  # noqa: ASYNC110 - as above
                await asyncio.sleep(0)

    def _taken(self) -> bool:
        hub, book = self.session.desk.hub, self.watcher.book
        tail = hub.log_tail()
        last = tail[-1].line_no if tail else None
        assert book is not None
        return self.watcher.model.view is hub.view and (last is None or book.last_line == last)


def colours(app: App[Any]) -> set[str]:
    """Colours of the screen that are no shade of grey, with what stands there."""
    found: set[str] = set()
    for strip in app.screen._compositor.render_strips():
        for segment in strip:
            for colour in (segment.style.color, segment.style.bgcolor) if segment.style is not None else ():
                if colour is not None and (told := colour.get_truecolor()) and max(told) - min(told) > 1:
                    found.add(f"{told} of {segment.text!r}")
    return found


@asynccontextmanager
async def console_on(
    moments: Sequence[Moment], *, environ: Mapping[str, str] | None = None, layout: str | None = None
) -> AsyncIterator[Scene]:
    """The console on all of these, each held at its moment."""
    stills = [Still(moment) for moment in moments]
    app = ConsoleApp([still.watcher for still in stills], environ=environ or {}, layout_name=layout)
    async with app.run_test(size=(120, 40)) as pilot:
        for still in stills:
            await still.held()
        yield Scene(app, pilot)


class Scene:
    """What is looked at: the table of all, or the screen of one."""

    def __init__(self, app: ConsoleApp, pilot: Pilot[Any]) -> None:
        self.app = app
        self.looks_at_colours = False
        self.colours: set[str] = set()
        """Of the screen that was looked at last, where that is wanted: those that are no shade of grey."""
        self._pilot = pilot

    async def resize(self, width: int, height: int) -> None:
        """Another size of the terminal."""
        await self._pilot.resize_terminal(width, height)

    async def table(self) -> str:
        """All of them."""
        return await self._drawn()

    async def one(self, number: int) -> str:
        """The screen of one of them, as enter opens it."""
        self.app.open_one(self.app.watchers[number])
        text = await self._drawn()
        self.app.pop_screen()
        return text

    async def _drawn(self) -> str:
        """The screen when it changes no more, without the blanks at the ends of its rows."""
        before = ""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                await self._pilot.pause()
                self.app._look()
                await self._pilot.pause()
                text = screen_text(self.app)
                if text == before:
                    self.colours = colours(self.app) if self.looks_at_colours else set()
                    return "".join(row.rstrip() + "\n" for row in text.split("\n"))
                before = text


# ------------------------------------------------------------------------------------------- what was not recorded


def change(at: float, before: Phase, to: Phase, kind: str, text: str) -> ev.PhaseChanged:
    """Into another phase, as the machine says it."""
    evidence = (Evidence(kind=kind, at=at, text=text),)
    return ev.PhaseChanged(
        at=at, from_=before, to=to, label=ev.LABELS[to], evidence=evidence, run_id="20261130-031200-a3f1"
    )


def lost(at: float) -> Sequence[ev.AnyEvent]:
    """The link."""
    why = "gpu1: no answer to 3 keepalives in 9 s"
    return (ev.LinkEvent(at=at, state=LinkState.LOST, why=why),)


def degraded(at: float) -> Sequence[ev.AnyEvent]:
    """Its health fails while its process lives."""
    why = "no answer within 21 s"
    health = ev.Health(
        at=at, status=None, bytes=None, ms=21_000.0, verdict=Verdict.SILENT, why=why, owner=Owner.OURS, count=3
    )
    return (health, change(at, Phase.SERVING, Phase.DEGRADED, "answered", why))


def stopping(at: float) -> Sequence[ev.AnyEvent]:
    """By somebody else: this console shows no transaction of its own."""
    return (change(at, Phase.SERVING, Phase.STOPPING, "stop_began", "stop asked for by ana@desk"),)


def stopped(at: float) -> Sequence[ev.AnyEvent]:
    """With its proof."""
    text = "no process of the run is left; release: proved"
    return (*stopping(at - 4.0), change(at, Phase.STOPPING, Phase.STOPPED, "tree_gone", text))


def refused(at: float) -> Sequence[ev.AnyEvent]:
    """Before anything was launched."""
    text = "port 30000 is taken by pid 4711 python3 -m vllm.entrypoints.openai.api_server, not ours"
    return (
        change(at, Phase.PREFLIGHT, Phase.IDLE, "refused", text),
        ev.Summary(
            at=at,
            verdict=Outcome.REFUSED,
            exit_code=4,
            phase=Phase.IDLE,
            reason=text,
            phases=(),
            answers={},
            evidence=(),
        ),
    )
