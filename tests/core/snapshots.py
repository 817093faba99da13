"""Recorded situations (`tests/corpora/holders/*.toml`) into real `Snapshot`s, their defaults filled.

The README of that folder tells the format. A key that is not known is refused: a typing error must not become a
default.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec
from msgspec import Struct, field

from supervisor.core import gpu as g

FOLDER = Path(__file__).resolve().parents[1] / "corpora" / "holders"
AT = 1_780_000_000.0
HOLD_S = 7200.0
USERS = {0: "root", 116: "nvidia-persistenced", 997: "ollama", 1000: "ana", 1001: "ben"}
Figure = float | str
"""GiB, or "?" for what cannot be read."""


class _Strict(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class GpuText(_Strict, frozen=True, kw_only=True):
    """One GPU or MIG instance as the file tells it."""

    name: str = "NVIDIA H200"
    uuid: str = ""
    index: int | None = None
    minor: int | None = None
    parent: str | None = None
    state: str = "ok"
    why: str = ""
    kind: str = "device"
    total: Figure = 139.8
    used: Figure = 0.0
    free: Figure | None = None
    uses: dict[str, Figure] | str = {}
    types: dict[str, str] = {}
    percent: int | None = 0
    power: float | None = 80.0
    limit: float | None = 700.0
    mig: bool | None = None


class ProcessText(_Strict, frozen=True, kw_only=True):
    """One process as the file tells it."""

    pid: int
    ppid: int = 1
    title: str = ""
    comm: str | None = None
    uid: int | None = None
    age: float = HOLD_S
    ticks: int | None = None
    pgid: int | None = None
    sid: int | None = None
    state: str = "S"
    tty: bool = False
    threads: int | None = None
    """Living ones: by default 1, of a zombie 0."""
    run: str | None = None
    dev: list[int | str] | str | None = None
    ns: bool | str | None = None
    kill_pending: bool = False
    d_looks: int = 0
    ports: tuple[int, ...] = ()
    leader: bool | None = None


class RunText(_Strict, frozen=True, kw_only=True):
    """One run of the records."""

    id: str
    key: str = ""
    live: bool
    ended: float | None = None


class PastText(_Strict, frozen=True, kw_only=True):
    """One line of the ring."""

    pid: int
    title: str
    uid: int = 1000
    run: str | None = None
    ticks: int | None = None
    held: dict[str, Figure] = {}
    ago: float


class Expected(_Strict, frozen=True, kw_only=True):
    """What has to be said of one holder."""

    class_: str = field(name="class")
    pid: int | None = None
    gpu: int | None = None
    zombie: bool = False
    pre: bool = False
    kill: str | None = None
    says: tuple[str, ...] = ()


class Situation(_Strict, frozen=True, kw_only=True):
    """One file."""

    reports: tuple[int | str, ...]
    story: str
    expect: tuple[Expected, ...]
    uid: int = 1000
    container: bool = False
    coverage: str | None = None
    own_chain: tuple[int, ...] = ()
    driver: g.Driver = g.Driver(state=g.DriverState.OK)
    gpus: tuple[GpuText, ...] = ()
    ps: tuple[ProcessText, ...] = ()
    runs: tuple[RunText, ...] = ()
    past: tuple[PastText, ...] = ()
    looks: int = 5

    def snapshot(self) -> g.Snapshot:
        """The look that the file stands for."""
        gpus = tuple(_gpu(number, text) for number, text in enumerate(self.gpus))
        snapshot = g.Snapshot(
            at=AT,
            driver=self.driver,
            gpus=gpus,
            processes=tuple(self._process(text, gpus) for text in self.ps),
            coverage=g.Coverage(self.coverage or ("all" if self.uid == 0 else "own")),
            uid=self.uid,
            container=self.container,
            own_chain=self.own_chain,
            runs=tuple(
                g.RunFacts(
                    run_id=run.id, key=run.key, live=run.live, ended_at=None if run.ended is None else AT - run.ended
                )
                for run in self.runs
            ),
            past=tuple(_past(text, gpus) for text in self.past),
            looks={gpu.uuid: self.looks for gpu in gpus},
        )
        return msgspec.convert(msgspec.to_builtins(snapshot), g.Snapshot)  # through its JSON types, as the node's is

    def _process(self, text: ProcessText, gpus: tuple[g.Gpu, ...]) -> g.HolderProcess:
        uid = self.uid if text.uid is None else text.uid
        readable = uid == self.uid or self.uid == 0
        return g.HolderProcess(
            pid=text.pid,
            start_ticks=text.pid * 100 if text.ticks is None else text.ticks,
            started_at=AT - text.age,
            ppid=text.ppid,
            pgid=text.pid if text.pgid is None else text.pgid,
            sid=text.pid if text.sid is None else text.sid,
            uid=uid,
            user=USERS.get(uid, str(uid)),
            state=text.state,
            comm=_comm(text),
            title=text.title,
            tty=text.tty,
            threads=(0 if text.state == "Z" else 1) if text.threads is None else text.threads,
            run_id=text.run,
            devices=_devices(text, gpus, readable),
            same_namespace=_flag(text.ns, default=True if readable else None),
            kill_pending=text.kill_pending,
            uninterruptible_looks=text.d_looks,
            ports=text.ports,
            leader_alive=text.leader,
        )


def _flag(given: bool | str | None, default: bool | None) -> bool | None:
    return default if given is None else None if given == "?" else bool(given)


def _comm(text: ProcessText) -> str:
    if text.comm is not None:
        assert len(text.comm) <= 15, f"the kernel cuts a comm to 15 characters: {text.comm}"
        return text.comm
    first = text.title.split()[0] if text.title else ""
    return first.rpartition("/")[2][:15]


def _bytes(figure: Figure | None) -> int | None:
    return None if figure is None or isinstance(figure, str) else round(figure * g.GIB)


def _gpu(number: int, text: GpuText) -> g.Gpu:
    total, used, reserved = _bytes(text.total), _bytes(text.used), round(0.6 * g.GIB)
    free = _bytes(text.free)
    if free is None and total is not None and used is not None:
        free = max(0, total - used - reserved)
    uses = None
    if not isinstance(text.uses, str):
        uses = tuple(
            g.Use(pid=int(pid), used_bytes=_bytes(figure), types=text.types.get(pid, "C"))
            for pid, figure in text.uses.items()
        )
    return g.Gpu(
        uuid=text.uuid or f"GPU-{number}",
        index=number if text.index is None else text.index,
        name=text.name,
        minor=None if text.parent else number if text.minor is None else text.minor,
        parent=text.parent,
        state=g.GpuState(text.state),
        why=text.why,
        memory=g.Memory(kind=text.kind, total_bytes=total, reserved_bytes=reserved, used_bytes=used, free_bytes=free),
        uses=uses,
        gpu_percent=text.percent,
        power_w=text.power,
        power_limit_w=text.limit,
        mig=text.mig,
    )


def _devices(text: ProcessText, gpus: tuple[g.Gpu, ...], readable: bool) -> tuple[str, ...] | None:
    given = text.dev
    if given == "?" or (given is None and not readable):
        return None
    if given is None:
        named = [gpu for gpu in gpus if any(use.pid == text.pid for use in gpu.uses or ())]
        given = [gpu.minor for gpu in named if gpu.minor is not None]
        if named and not given:
            given = ["nvidia0", "nvidia-caps/nvidia-cap1"]  # a MIG instance
    assert not isinstance(given, str)
    names = [f"nvidia{item}" if isinstance(item, int) else item for item in given]
    if any(isinstance(item, int) for item in given):
        names += ["nvidiactl", "nvidia-uvm"]
    return tuple(f"/dev/{name}" for name in names)


def _past(text: PastText, gpus: tuple[g.Gpu, ...]) -> g.Past:
    return g.Past(
        pid=text.pid,
        start_ticks=text.pid * 100 if text.ticks is None else text.ticks,
        title=text.title,
        uid=text.uid,
        run_id=text.run,
        held={gpus[int(number)].uuid: _bytes(figure) for number, figure in text.held.items()},
        last_at=AT - text.ago,
    )


def names() -> list[str]:
    """The situations there are."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load(name: str) -> Situation:
    """One of them."""
    return msgspec.convert(tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8")), Situation)
