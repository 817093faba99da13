"""Watches one run's load: reads the stages out of its log, tells how far it is and how long it still takes, says what
its silence is, and remembers it when it has come up.

What it tells are `Progress` events and warnings. It never changes a phase and never ends anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from supervisor.core import events as ev
from supervisor.core.eta import WEIGHTS, Estimate, Estimator
from supervisor.core.events import Phase
from supervisor.core.history import RunRecord
from supervisor.core.lines import sanitise
from supervisor.core.progress import BlockReader, Read
from supervisor.core.stillness import Look, State, Stillness, Watch, compilers
from supervisor.supervise.begin import Run
from supervisor.supervise.desk import Desk
from supervisor.supervise.history import HistoryFile
from supervisor.supervise.plan import Plan

LOADS = {Phase.LAUNCHING, Phase.LOADING, Phase.WARMING}
UP = {Phase.HEALTHY, Phase.SERVING}
LOOK_EVERY_S = 1.0
CATCH_UP_S = 3.0
"""After a connection came up, the log's lines are older than their arrival by nobody knows how much."""
TELL_AGAIN_S = 2.0
TELL_SIGNS_S = 15.0
"""How often it is told anew that a silent load works: rarer than any sensible `--stall`."""
ETA_STEP, ETA_STEP_S = 0.1, 2.0
"""An estimate that is further than this from what the last one has become by the clock is told anew."""
FRACTION_STEP = 0.01
BEFORE_THE_LOG = "start"
"""The stage before the log has told one."""
WARN_AGAIN = 2.0
"""A silence is warned of once more when it has lasted so many times longer."""


class LoadWatch:
    """One run's load, over one connection after the other.

    Args:
        node: its name, for the record of earlier launches.
        folder: where those lie; None neither reads nor keeps any.
    """

    def __init__(self, plan: Plan, run: Run, desk: Desk, *, node: str, folder: Path | None) -> None:
        self._run = run
        self._desk = desk
        self._reader = BlockReader(plan.engine)
        self._history = HistoryFile(folder, node, plan.key)
        history = self._history.read()
        self._complain()
        weights_bytes = run.weights_bytes or history.weights_bytes(run.fingerprint)
        self._weights_bytes = weights_bytes
        self._estimator = Estimator(
            plan.engine.load, history.pasts(run.fingerprint), began_at=run.began_at, weights_bytes=weights_bytes
        )
        self._connections = 0
        self._timed_from = desk.clock.now()
        self._voice_at = desk.clock.now()
        self._log_to = 0
        self._stage: ev.StageSeen | None = None
        self._told: ev.Progress | None = None
        self._watch = Watch()
        self._tree: tuple[ev.Process, ...] = ()
        self._cpu_s: float | None = None
        self._read_bytes: int | None = None
        self._warned_s = 0.0

    def connected(self) -> None:
        """A connection is up: what the log tells first may be older than it seems."""
        self._connections += 1
        if self._connections > 1 or not self._run.launched:
            self._timed_from = self._desk.clock.now() + CATCH_UP_S

    def phase_changed(self, change: ev.PhaseChanged) -> None:
        """It may have come up: then it is remembered, if all of its load was seen over one connection."""
        self._voice_at = change.at
        if change.from_ not in LOADS or change.to not in UP or not self._run.launched or self._connections != 1:
            return
        past = self._estimator.record(change.at)
        if past.marks:
            self._history.add(
                RunRecord(
                    run_id=self._run.run_id,
                    at=self._run.began_at,
                    fingerprint=self._run.fingerprint,
                    weights_bytes=self._weights_bytes,
                    past=past,
                )
            )
            self._complain()

    def _complain(self) -> None:
        if self._history.problem:
            self._desk.warn(self._history.problem)
            self._history.problem = ""

    # ------------------------------------------------------------------------------- the log

    def take(self, block: ev.LogBlock) -> Iterator[bool]:
        """One block of the log. Yields for each line that moved something whether it says that the server is ready."""
        self._log_to = block.offset + len(block.data)
        loads = self._desk.phase in LOADS or self._desk.phase in (Phase.IDLE, Phase.PREFLIGHT, Phase.QUEUED)
        for _line_no, _offset, text, read in self._reader.read(block) if loads else ():
            if read.stage:
                self._on_stage(block.at, text, read)
                yield False
            elif read.ready:
                self._desk.note(ev.ReadyLineSeen(at=block.at, line=text[:200]))
                yield True

    def _on_stage(self, now: float, text: str, read: Read) -> None:
        timed = now >= self._timed_from
        self._estimator.stage(now, read.stage, read.fraction, timed=timed)
        said = self._estimator.estimate(now, calm=timed)
        before = self._stage
        if before is None or (before.stage, before.done, before.fraction) != (read.stage, read.done, read.fraction):
            self._voice_at = now
        self._stage = ev.StageSeen(
            at=now,
            stage=read.stage,
            done=read.done,
            total=read.total,
            fraction=read.fraction if read.fraction is not None else said.fraction,
            line=text,
            eta_s=_rounded(said.eta_s),
            overall=_rounded(said.overall, 3),
            rests_on=said.rests_on,
        )
        self._desk.note(self._stage)
        self._told = self._desk.hub.view.progress

    # ------------------------------------------------------------------------------- the clock

    def tree(self, tree: tuple[ev.Process, ...]) -> None:
        """Its processes, as they are now."""
        self._tree = tree

    def worked(self, notice: dict[str, Any]) -> None:
        """What its processes have worked so far, all together."""
        self._cpu_s, self._read_bytes = float(notice["cpu_s"]), int(notice["read_bytes"])

    async def watch(self) -> None:
        """Look each second while it loads. Never returns; whoever runs it ends it."""
        while True:
            await self._desk.clock.sleep(LOOK_EVERY_S)
            if self._desk.phase in LOADS:
                self.look(self._desk.clock.now())

    def look(self, now: float) -> None:
        """One look: what memory says, what is left, what a silence is."""
        gpu = self._desk.hub.view.gpu
        held_bytes = gpu.ours_bytes if gpu is not None else None
        rss_bytes = sum(item.rss_bytes for item in self._tree) if self._tree else None
        if amount := held_bytes or max(rss_bytes or 0, self._read_bytes or 0):
            self._estimator.memory(now, amount)
        ours = {item.pid for item in self._tree}
        percents = [
            item.gpu_percent
            for item in (gpu.gpus if gpu is not None else ())
            if item.gpu_percent is not None and any(use.pid in ours for use in item.uses or ())
        ]
        still = self._watch.look(
            Look(
                at=now,
                voice=(self._log_to, self._stage and (self._stage.stage, self._stage.done, self._stage.fraction)),
                held_bytes=held_bytes,
                rss_bytes=rss_bytes,
                read_bytes=self._read_bytes,
                cpu_s=self._cpu_s,
                compilers=compilers(item.title for item in self._tree),
                gpu_percent=max(percents, default=None),
            )
        )
        self._tell(now, self._estimator.estimate(now), still)
        self._warn(still)

    def _tell(self, now: float, said: Estimate, still: Stillness) -> None:
        stage, last = self._stage, self._told
        if stage is None and said.eta_s is None and still.state is not State.WORKING:
            return
        seen = stage or ev.StageSeen(at=now, stage=BEFORE_THE_LOG)
        fraction = seen.fraction
        if said.fraction is not None and seen.stage == WEIGHTS:
            fraction = said.fraction
        event = ev.Progress(
            at=now,
            stage=seen.stage,
            done=seen.done,
            total=seen.total,
            fraction=_rounded(fraction, 4),
            eta_s=_rounded(said.eta_s),
            overall=_rounded(said.overall, 3),
            rests_on=said.rests_on,
            still_s=round(max(0.0, now - self._voice_at), 1),
            signs=sanitise(still.text) if still.state is State.WORKING else "",
        )
        if last is None or self._is_new(event, last):
            self._told = event
            self._desk.tell(event)

    def _is_new(self, event: ev.Progress, last: ev.Progress) -> bool:
        old_s = event.at - last.at
        if event.stage != last.stage:
            return True
        if old_s < TELL_AGAIN_S:
            return False
        if bool(event.signs) != bool(last.signs) or (event.signs and old_s >= TELL_SIGNS_S):
            return True
        if abs((event.fraction or 0.0) - (last.fraction or 0.0)) >= FRACTION_STEP:
            return True
        if event.eta_s is None or last.eta_s is None:
            return event.eta_s is not last.eta_s
        shown_s = max(0.0, last.eta_s - old_s)
        return abs(event.eta_s - shown_s) > max(ETA_STEP_S, ETA_STEP * shown_s)

    def _warn(self, still: Stillness) -> None:
        if still.state is State.MOVING:
            self._warned_s = 0.0
        elif still.suspicious and still.silent_s >= WARN_AGAIN * self._warned_s:
            self._warned_s = still.silent_s
            self._desk.warn(still.text, silence=still.state.value, silent_s=round(still.silent_s, 1))


def _rounded(value: float | None, digits: int = 1) -> float | None:
    return None if value is None else round(value, digits)
