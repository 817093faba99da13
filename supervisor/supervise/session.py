"""One profile under supervision: connect, have a run, attend it, across lost connections and restarts.

The order of things only: what is decided is in `core`, what is done in the modules beside this one.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from supervisor.adapters.base import Clock, Link
from supervisor.core import events as ev
from supervisor.core.events import LinkState
from supervisor.core.gpu_events import gpu_event, holders_event
from supervisor.core.holder import Holder
from supervisor.engines import loader
from supervisor.errors import NodeRequestError, RefusedError, SupervisorError, UnreachableError
from supervisor.supervise import left_overs
from supervisor.supervise.clear import Cleared, clear
from supervisor.supervise.connection import Connection, first_of
from supervisor.supervise.desk import Desk
from supervisor.supervise.follow import Position
from supervisor.supervise.left_overs import GRACE_S, LeftOvers
from supervisor.supervise.plan import Plan
from supervisor.supervise.stop import Stopped, stop_run
from supervisor.supervise.witness import Witness

if TYPE_CHECKING:
    from supervisor.supervise.attend import Attendance


class Session:
    """Supervises one profile.

    Args:
        make_link: makes a new, unconnected link to the profile's node.
        by: who asks, for the records on the node.
        launch: False with --no-launch.
        replace: stop a live run first (the restart command).
        stays: a refusal leaves the session standing, for a console whose user may mend it and restart.
        force: launch though GPU memory is surely too short, or its release is not proved.
        clean: stop our own left-overs before a launch.
        nvml_source: see `Connection`.
        history: the folder in which launches are remembered; None remembers none.
    """

    def __init__(
        self,
        plan: Plan,
        make_link: Callable[[], Link],
        *,
        clock: Clock,
        by: str,
        launch: bool = True,
        replace: bool = False,
        stays: bool = False,
        force: bool = False,
        clean: bool = False,
        nvml_source: str | None = None,
        history: Path | None = None,
    ) -> None:
        self.plan = plan
        verify = plan.verify is not None and plan.engine.completion is not None
        self.desk = Desk(clock=clock, verify=verify, on_phase=self._on_phase)
        self._by = by
        self._launch = launch
        self._replace = replace
        self._stays = stays
        self._force = force
        self._clean = clean
        self._history = history
        self._again = asyncio.Event()
        self._attendance: Attendance | None = None
        self._log: Position | None = None
        self._beside: asyncio.Task[None] | None = None
        self._connection = Connection(
            make_link,
            clock=clock,
            on_link=self._on_link,
            python=plan.python,
            command_python=plan.command_python,
            state_dir=plan.state_dir,
            nvml_source=nvml_source,
        )

    @property
    def attendance(self) -> Attendance | None:
        """The run that is attended, None before there is one."""
        return self._attendance

    async def run(self) -> None:
        """Until cancelled. Raises what ends a wait: `RefusedError`, `UsageError`, a `LinkError` past mending."""
        try:
            while True:
                await self._connection.open()
                try:
                    await self._on_connection()
                except UnreachableError as error:
                    self._connection.lost(str(error))
                    await self._connection.close()
        finally:
            if self._beside is not None:
                self._beside.cancel()
                await asyncio.gather(self._beside, return_exceptions=True)
            await self._connection.close()

    async def _on_connection(self) -> None:
        while True:
            if self._attendance is None:
                try:
                    await self._begin()
                except RefusedError as error:
                    if not self._stays:
                        raise
                    self.desk.warn(str(error))
                    await first_of(
                        asyncio.create_task(self._connection.wait_lost()), asyncio.create_task(self._wait_again())
                    )
                    continue
            assert self._attendance is not None
            await first_of(asyncio.create_task(self._attendance.attend()), asyncio.create_task(self._wait_again()))
            self._attendance = None

    async def _begin(self) -> None:
        # Only now: both want HTTP, and a console is painted before anything is connected.
        from supervisor.supervise.attend import Attendance
        from supervisor.supervise.begin import Beginning

        beginning = Beginning(
            self.plan,
            self._connection,
            self.desk,
            by=self._by,
            launch=self._launch,
            replace=self._replace,
            force=self._force,
            clean=self._clean,
        )
        run = await beginning.run()
        self._replace = False
        self._attendance = Attendance(
            self.plan, run, self._connection, self.desk, after=self._log, history=self._history
        )
        self._log = run.position
        self._beside = asyncio.create_task(beginning.compare_login_path())

    async def _wait_again(self) -> None:
        await self._again.wait()
        self._again.clear()

    # ------------------------------------------------------------------------------- what a user asks for

    async def stop(self, by: str | None = None, *, witness: Witness | None = None) -> Stopped | None:
        """Stop the attended run, None where there is none. The machine follows by its facts.

        Args:
            witness: sees it live; without one its steps are warnings.
        """
        attendance = self._attendance
        if attendance is None:
            return None
        attendance.our_stop(True)
        try:
            stopped = await stop_run(
                self._connection.client,
                clock=self.desk.clock,
                key=self.plan.key,
                run_id=attendance.run.run_id,
                root=attendance.run.root,
                by=by or self._by,
                grace_s=self.plan.grace_s,
                tell=witness.told if witness is not None else lambda text: self.desk.warn(text),
                before=attendance.holding.claim,
                witness=witness,
            )
            now = self.desk.clock.now()
            if stopped.gone:
                self.desk.note(ev.TreeGone(at=now, release=stopped.release))
            else:
                self.desk.note(ev.StopIncomplete(at=now, text=stopped.text, left=stopped.left))
        finally:
            attendance.our_stop(False)
        if not (stopped.released or stopped.idle):
            self.desk.warn(stopped.text)
        return stopped

    async def restart(self, *, witness: Witness | None = None) -> Stopped | None:
        """Stop what runs, then launch; where something is left, or still holds memory, nothing is launched."""
        stopped = await self.stop(witness=witness)
        if stopped is None or stopped.may_launch or (stopped.gone and self._force):
            self._launch = True
            self._again.set()
            told = "launched anew"
        else:
            told = "the restart launches nothing: the run before is not proved to be gone from the GPUs"
            self.desk.warn(told)
        if witness is not None:
            witness.told(told)
        return stopped

    async def left_overs(self) -> LeftOvers:
        """Who holds memory on the node and what of it is left over, by a fresh look. Raises a `SupervisorError`."""
        desk, name = self.desk, self._connection.link.name
        found = await left_overs.look(
            self._connection.client, clock=desk.clock, known=loader.known_holders(), name=name
        )
        if self._attendance is None:  # else the node tells both each second, and what the run holds of it
            desk.tell(gpu_event(found.snapshot, name, desk.clock.now()))
            desk.tell(holders_event(found.snapshot, found.holders, name, desk.clock.now()))
        return found

    async def clear(
        self, targets: Sequence[Holder], spared: Sequence[Holder], *, witness: Witness | None = None
    ) -> Cleared:
        """End these left-overs and prove that their memory came back. Raises a `SupervisorError`.

        Args:
            spared: all holders of the look that the targets are from.
        """
        return await clear(
            self._connection.client,
            clock=self.desk.clock,
            targets=targets,
            grace_s=GRACE_S,
            tell=witness.told if witness is not None else self.desk.warn,
            spared=spared,
            witness=witness,
        )

    # ------------------------------------------------------------------------------- the log's older bytes

    async def read_log(self, offset: int, length: int) -> bytes:
        """Bytes of the log as they stand in its file on the node, at most 1 MiB; empty where they are not to be had.

        Raises `UnreachableError` between connections: they may be had later.
        """
        log = self._log
        if log is None or not log.path:
            return b""
        try:
            reply = await self._connection.client.request(
                "log_read", path=log.path, offset=offset, length=length, dev=log.dev, ino=log.ino
            )
        except NodeRequestError:
            return b""  # gone, or another file stands there now
        return base64.b64decode(reply["data"])

    async def count_log_lines(self, offset: int) -> int:
        """How many lines of the log end before this offset. Raises as `read_log` does, and where the file is gone."""
        log = self._log
        if log is None or not log.path:
            raise UnreachableError("there is no log")
        reply = await self._connection.client.request("log_lines", path=log.path, until=offset, timeout_s=120.0)
        return int(reply["lines"])

    async def ping(self) -> float | None:
        """Milliseconds until the node program has answered over the link; None where it cannot be asked now."""
        began = time.perf_counter()
        try:
            await self._connection.client.request("ping")
        except SupervisorError:
            return None  # whoever attends the run tells what is wrong with the link
        return (time.perf_counter() - began) * 1000

    # ------------------------------------------------------------------------------- wiring

    def _on_phase(self, change: ev.PhaseChanged) -> None:
        if self._attendance is not None:
            self._attendance.phase_changed(change)

    def _on_link(self, state: LinkState, why: str) -> None:
        self.desk.note(ev.LinkChanged(at=self.desk.clock.now(), state=state, why=why))
