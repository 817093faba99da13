"""From a connection to a run: expand, look at what runs, decide (core/takeover.py), check, launch or take over."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from supervisor.adapters.node import NodeClient
from supervisor.core import events as ev
from supervisor.core import takeover
from supervisor.errors import NodeRequestError, RefusedError, UnreachableError
from supervisor.supervise.before import Before
from supervisor.supervise.connection import Connection
from supervisor.supervise.desk import Desk
from supervisor.supervise.follow import Begins, Position
from supervisor.supervise.plan import Plan, Settled, settle
from supervisor.supervise.stop import Stopped, stop_left_overs, stop_live

TAKEOVER_LOG_BYTES = 1024 * 1024
"""How much of a long log is read on a takeover; all of it stays on the node."""
LOCK_TRIES = 20
LOCK_PAUSE_S = 0.25


class Run(Struct, frozen=True, kw_only=True):
    """The run that is attended."""

    run_id: str
    settled: Settled
    position: Position
    begins: Begins
    """The log's place before which nothing is looked at, and the one before which nothing belongs to this run."""
    root: ev.Process | None
    began_at: float
    """When it was launched; of a run that is taken over, as its record on the node says."""
    launched: bool = False
    """By us, just now: all of its load is seen."""
    fingerprint: str = ""
    weights_bytes: int | None = None
    """Of the model on the node's disk; None where they are not known, as of a run that is taken over."""


def new_run_id(now: float) -> str:
    """UTC time and four hex digits."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y%m%d-%H%M%S") + "-" + secrets.token_hex(2)


async def settled_on_node(plan: Plan, client: NodeClient) -> Settled:
    """The plan with the node's own values in it. Raises `RefusedError` for variables that are unset there."""
    texts: dict[str, Any] = {"argv": list(plan.words), "cwd": [plan.cwd]}
    if plan.log is not None:
        texts["log"] = [plan.log]
    if plan.log_from is not None:
        texts["log_from"] = [plan.log_from]
    try:
        told = await client.request("expand", texts=texts, login_env=plan.login_env, timeout_s=60.0)
    except NodeRequestError as error:
        raise RefusedError(f"launch: {error}") from error
    return settle(plan, told["argv"], told["cwd"][0], told.get("log", [None])[0], told.get("log_from", [None])[0])


class Beginning:
    """One attempt to have a run.

    Args:
        launch: False with --no-launch.
        replace: stop a live run first (restart), whatever its settings.
        force: launch though GPU memory is surely too short, or its release is not proved.
        clean: stop our own left-overs first.
    """

    def __init__(
        self,
        plan: Plan,
        connection: Connection,
        desk: Desk,
        *,
        by: str,
        launch: bool = True,
        replace: bool = False,
        force: bool = False,
        clean: bool = False,
    ) -> None:
        self._plan = plan
        self._client = connection.client
        self._desk = desk
        self._by = by
        self._launch = launch
        self._replace = replace
        self._force = force
        self._before = Before(plan, connection.client, desk, force=force, clean=clean)
        self._ssh_path = ""

    async def run(self) -> Run:
        """Launch or take over. Raises `RefusedError`, `UnreachableError`, `UsageError`."""
        settled = await settled_on_node(self._plan, self._client)
        print_ = await self._client.request("fingerprint", argv=settled.argv, cwd=settled.cwd, env=self._plan.env)
        wanted = takeover.Wanted(
            fingerprint=print_["fingerprint"],
            argv=tuple(await self._redacted(settled)),
            cwd=settled.cwd,
            env=print_["env"],
            launch=self._launch,
        )
        for _ in range(LOCK_TRIES):
            state = await self._client.request("state", key=self._plan.key)
            if self._replace:
                self._replace = False
                if await self._stop(state["live"]):
                    continue
            action = takeover.decide(_known(state["live"]), _known(state["last"]), wanted, self._plan.name)
            for text in action.warnings:
                self._desk.warn(text)
            if action.do == "refuse":
                raise RefusedError(*action.reasons, *(() if state["live"] else await self._on_the_port(settled)))
            if action.do == "take_over":
                assert action.run is not None
                found = state["live"] or state["last"]
                return await self._take_over(found, settled)
            run = await self._new(settled, print_)
            if run is not None:
                return run
            # Another supervisor won the lock: look again, there is a run to take over in a moment.
            await self._desk.clock.sleep(LOCK_PAUSE_S)
        raise RefusedError(
            "another supervisor holds the lock of this profile on the node, and no run of it is to be seen"
        )

    async def _on_the_port(self, settled: Settled) -> list[str]:
        """Who listens where our server would: with --no-launch somebody may have meant that one."""
        reply = await self._client.request("listeners", port=settled.port, run=None)
        out = []
        for item in reply["listeners"]:
            who = (
                f"pid {item['pid']} {item['title'][:80]}".strip() if item["pid"] else f"a process of uid {item['uid']}"
            )
            out.append(
                f"port {settled.port} is held by {who} on {item['address']}, which is no run of this profile: "
                "to wait for it as it is: `supervisor --headless --url …` "
                "(`supervisor attach` will take it over once it is built)"
            )
        return out

    async def _redacted(self, settled: Settled) -> list[str]:
        from supervisor.node.redact import redact_argv

        return redact_argv(settled.argv)

    # ------------------------------------------------------------------------------- take over

    async def _take_over(self, found: dict[str, Any], settled: Settled) -> Run:
        record = found["run"]
        started = datetime.fromtimestamp(record["started_at"]).astimezone().strftime("%Y-%m-%d %H:%M:%S")
        why = f"taken over; started {started} by {record['by'] or 'somebody'}"
        self._desk.note(ev.RunBegan(at=self._desk.clock.now(), run_id=record["run_id"], why=why))
        follow = record.get("log_from") or record.get("log") or {}
        path, began = follow.get("path") or "", int(follow.get("offset") or 0)
        size = found.get("log_size") or 0
        offset = began if record.get("log_from") else max(began, size - TAKEOVER_LOG_BYTES)
        return await self._handle(record, settled, path, offset, began)

    async def _handle(self, record: dict[str, Any], settled: Settled, path: str, offset: int, began: int) -> Run:
        lines = await self._lines_before(path, offset)
        lines_before_run = lines if began == offset else await self._lines_before(path, began)
        log = record.get("log") or {}
        same_file = path == log.get("path")
        return Run(
            run_id=record["run_id"],
            settled=settled,
            position=Position(
                path=path,
                offset=offset,
                dev=log.get("dev") if same_file else None,
                ino=log.get("ino") if same_file else None,
            ),
            begins=Begins(offset=offset, line_no=lines + 1, run_offset=began, run_line=lines_before_run + 1),
            root=_root(record),
            began_at=min(float(record["started_at"]), self._desk.clock.now()),
            fingerprint=record.get("fingerprint") or "",
        )

    async def _lines_before(self, path: str, offset: int) -> int:
        if not (offset and path):
            return 0
        return int((await self._client.request("log_lines", path=path, until=offset, timeout_s=120.0))["lines"])

    # ------------------------------------------------------------------------------- launch

    async def _new(self, settled: Settled, print_: dict[str, Any]) -> Run | None:
        run_id = new_run_id(self._desk.clock.now())
        self._desk.note(ev.RunBegan(at=self._desk.clock.now(), run_id=run_id, why="a new run; the node is looked at"))
        found = await self._before.look(settled)
        if found.refusals:
            raise self._refused(*found.refusals)
        self._ssh_path = found.path
        extra: dict[str, Any] = {"engine": self._plan.engine.name, "port": settled.port, "url": str(settled.url)}
        if found.gpu_baseline:
            extra["gpu_baseline"] = found.gpu_baseline
        path, offset = settled.log_from, 0
        if path is not None:
            offset = int((await self._client.request("log_stat", path=path)).get("size") or 0)
            extra["log_from"] = {"path": path, "offset": offset}
        try:
            reply = await self._client.request(
                "launch",
                timeout_s=60.0,
                run_id=run_id,
                key=self._plan.key,
                argv=settled.argv,
                env=self._plan.env,
                login_env=self._plan.login_env,
                cwd=settled.cwd,
                log=settled.log,
                detaches=self._plan.detaches,
                fingerprint=print_["fingerprint"],
                env_hashes=print_["env"],
                by=self._by,
                extra=extra,
            )
        except NodeRequestError as error:
            raise self._refused(f"launch: {error}") from error
        if not reply["won"]:
            return None
        record = reply["run"]
        text = f"keeper {record['keeper']['pid']} started pid {record['root']['pid']}"
        launched_at = self._desk.clock.now()
        self._desk.note(ev.Launched(at=launched_at, text=text))
        if path is None:
            path, offset = record["log"]["path"], int(record["log"]["offset"])
        run = await self._handle(record, settled, path, offset, offset)
        return replace(run, began_at=launched_at, launched=True, weights_bytes=found.weights_bytes)

    async def compare_login_path(self) -> None:
        """Warn where the PATH of the user's terminal has what the launch had not.

        Runs beside the launch: a login shell can take seconds, and no launch should wait for a warning.
        """
        if self._plan.login_env or not self._ssh_path:
            return
        words = {"path": [[["var", "PATH"]]]}
        try:
            reply = await self._client.request("expand", texts=words, login_env=True)
        except (NodeRequestError, UnreachableError):
            return
        if missing := _only_in(str(reply["path"][0]), self._ssh_path):
            text = f"the login shell's PATH has what SSH's has not: {':'.join(missing)} (login_env = true takes it)"
            self._desk.warn(text)

    def _refused(self, *reasons: str) -> RefusedError:
        self._desk.note(ev.Refused(at=self._desk.clock.now(), reasons=reasons))
        return RefusedError(*reasons)

    async def _stop(self, live: dict[str, Any] | None) -> bool:
        """Stop the live run, or what an ended one left. False where there was neither."""
        by, tell, clock = self._by, self._desk.warn, self._desk.clock
        stopped: Stopped | None
        if live is not None:
            tell(f"stopping run {live['run']['run_id']} first")
            stopped = await stop_live(self._client, live, self._plan, clock=clock, by=by, tell=tell)
        else:
            stopped = await stop_left_overs(self._client, self._plan, clock=clock, by=by, tell=tell)
        if stopped is None:
            return False
        if not (stopped.may_launch or (stopped.gone and self._force)):
            advice = (f"who holds it: `supervisor gpus {self._plan.name}`; --force launches as it is",)
            raise RefusedError(
                f"not launched, since the run before is not proved to be gone: {stopped.text}",
                *(advice if stopped.gone else ()),
            )
        tell(stopped.text)
        return True


def _root(record: dict[str, Any]) -> ev.Process | None:
    root = record.get("root")
    return ev.Process(pid=root["pid"], start_ticks=root["start_ticks"]) if root else None


def _known(found: dict[str, Any] | None) -> takeover.KnownRun | None:
    if found is None:
        return None
    record, ended, stop = found["run"], found["exit"], found["stop"]
    return takeover.KnownRun(
        run_id=record["run_id"],
        fingerprint=record["fingerprint"],
        by=record.get("by") or "",
        started_at=record["started_at"],
        argv=tuple(record["argv"]),
        cwd=record["cwd"],
        env=record.get("env") or {},
        keeper_alive=found["keeper_alive"],
        root_alive=found["root_alive"],
        exit=ev.Exit(code=ended.get("code"), signal=ended.get("signal")) if ended else None,
        stopped_by=(stop or {}).get("by"),
    )


def _only_in(first: str, second: str) -> list[str]:
    there = set(second.split(":"))
    return list(dict.fromkeys(part for part in first.split(":") if part and part not in there))
