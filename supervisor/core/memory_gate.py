"""Before a launch: will it surely run out of GPU memory, and who is in its way? Pure.

Refused is only what is certain, since a false refusal is as bad as a false timeout; all else is a warning with its
figures. A figure that is missing refuses nothing. Memory that nobody living is named for may be free in a moment
(the driver tears down after the last process has gone), so it never makes a refusal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from supervisor.core import command
from supervisor.core.engine import Engine
from supervisor.core.gpu import GIB, DriverState, Gpu, GpuState, Snapshot, gib
from supervisor.core.holder_words import alike, held_of, who
from supervisor.core.holders import Holder, HolderClass
from supervisor.core.lines import sanitise
from supervisor.core.visible import Choice, choose, given, words_of

SMALL_BYTES = 512 << 20
"""What a GPU may hold without a word: a driver's own share, a desktop, a bare context."""
SMALL_SHM_BYTES = GIB
RULE_MARGIN = 0.01
"""How far our own figures and the engine's may lie apart, as a share of the GPU's memory."""
UNIFIED_MARGIN = 0.05
WEIGHTS_SURE = 0.9
"""This share of the weights on the disk goes into the GPUs at least: draft layers may stay out."""
NOBODY_SHARE = 0.8
"""Less than this is free, and nobody is named: worth a word."""
MOST_LINES = 16


class Weights(Struct, frozen=True, kw_only=True):
    """The weights of the model as measured on the node."""

    bytes: int | None = None
    least_bytes: int | None = None
    """What of them the GPUs get at least: numbers of 32 bits may be loaded as 16."""
    files: int = 0
    how: str = ""
    why: str = ""
    """Why there is no figure."""


class Folder(Struct, frozen=True, kw_only=True):
    """A folder that servers compile into."""

    path: str
    source: str
    """The variable that names it, empty for the usual one."""
    noexec: bool | None = None


class Asked(Struct, frozen=True, kw_only=True):
    """What of the launch, and of the node beside its GPUs, the rules need."""

    argv: tuple[str, ...]
    engine: Engine
    name: str
    """What can be typed for the node in the commands that we advise."""
    env: dict[str, str] = {}
    """Of the launch's environment: what tells which GPUs it sees."""
    weights: Weights = Weights()
    shm_total_bytes: int | None = None
    shm_free_bytes: int | None = None
    folders: tuple[Folder, ...] = ()


class Checked(Struct, frozen=True, kw_only=True):
    """Whole sentences, and whom `--clean` would stop."""

    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    advice: str = ""
    """With refusals: the commands that clear them."""
    clean: tuple[Holder, ...] = ()


def asked_of(facts: Mapping[str, Any], argv: Sequence[str], engine: Engine, name: str) -> Asked:
    """From the facts of the node's preflight; an older node that does not tell one leaves it unknown."""
    shm = facts.get("shm") or {}
    return Asked(
        argv=tuple(argv),
        engine=engine,
        name=name,
        env=dict(facts.get("gpu_env") or {}),
        weights=msgspec.convert(facts.get("weights") or {}, Weights),
        shm_total_bytes=shm.get("total_bytes"),
        shm_free_bytes=shm.get("free_bytes"),
        folders=tuple(msgspec.convert(item, Folder) for item in facts.get("folders") or ()),
    )


def check(snapshot: Snapshot, holders: Sequence[Holder], asked: Asked) -> Checked:
    """Look at the GPUs that this launch will use."""
    state = snapshot.driver.state
    if state is DriverState.ABSENT:
        return Checked()
    choice = choose(snapshot, asked.argv, asked.engine, asked.env)
    if choice.none:
        told = choice.visible == 0 and state is DriverState.OK and bool(asked.engine.memory.uses)
        return Checked(warnings=(f"{choice.why}: the server will see none",) if told else ())
    gate = _Gate(snapshot, holders, asked, choice)
    if state is not DriverState.OK:
        gate.driver()
    else:
        gate.left_overs()
        gate.lost()
        gate.fraction()
        gate.weights()
        gate.others()
        gate.health()
    gate.node()
    return Checked(
        refusals=_at_most(gate.refusals),
        warnings=_at_most(list(dict.fromkeys(gate.warnings))),
        advice=gate.way_out() if gate.refusals else "",
        clean=gate.clean,
    )


def _at_most(texts: list[str]) -> tuple[str, ...]:
    """Not more than are read; and titles are bytes of somebody else's processes: none of them drives a terminal."""
    texts = [sanitise(text) for text in texts]
    if len(texts) <= MOST_LINES:
        return tuple(texts)
    return (*texts[: MOST_LINES - 1], f"and {len(texts) - MOST_LINES + 1} more of the kind")


class _Gate:
    """The rules, one after the other, over the same look."""

    def __init__(self, snapshot: Snapshot, holders: Sequence[Holder], asked: Asked, choice: Choice) -> None:
        self.snapshot = snapshot
        self.holders = holders
        self.asked = asked
        self.choice = choice
        self.rules = asked.engine.memory
        self.words = words_of(asked.argv, asked.engine)
        self.refusals: list[str] = []
        self.warnings: list[str] = []
        uuids = {gpu.uuid for gpu in choice.gpus}
        ours = [holder for holder in holders if holder.class_ is HolderClass.OURS_ORPHAN]
        self.ours = ours
        self.clean = tuple(h for h in ours if h.preselected and (not uuids or uuids & set(h.held)))

    def tell(self, bad: Mapping[str, list[str]]) -> bool:
        """Refuse where the launch surely meets one of these GPUs, else warn; whether it was refused."""
        texts = [text for gpu in self.choice.gpus for text in bad.get(gpu.uuid, ())]
        if self.choice.meets(bad):
            self.refusals += texts
            return True
        why = f" ({self.choice.why})" if self.choice.why else ""
        self.warnings += [f"{text}; whether this launch will use that GPU is not certain{why}" for text in texts]
        return False

    # ------------------------------------------------------------------------------- what refuses

    def left_overs(self) -> None:
        """Processes of ended runs of ours that hold a GPU."""
        bad: dict[str, list[str]] = {}
        for gpu in self.choice.gpus:
            for group in alike(holder for holder in self.ours if gpu.uuid in holder.held):
                text = f"{self.label(gpu)}: {self._held(gpu, group)}"
                if any(_holds(gpu, holder, self.snapshot) for holder in group):
                    bad.setdefault(gpu.uuid, []).append(text)
                else:
                    self.warnings.append(text)
        self.tell(bad)

    def lost(self) -> None:
        """GPUs that are off the bus."""
        bad = {
            gpu.uuid: [f"{self.label(gpu)} is lost{': ' + gpu.why if gpu.why else ''}"]
            for gpu in self.choice.gpus
            if gpu.state is GpuState.LOST
        }
        self.tell(bad)

    def fraction(self) -> None:
        """The share of the memory that the engine wants; some engines end at once where it is not free."""
        text = command.value(self.words, self.rules.fraction)
        default = self.rules.fraction_default
        if text is None and any(command.has_flag(self.words, flag) for flag in self.rules.fraction):
            return  # given, and not to be read
        try:
            share = float(text) if text is not None else default
        except ValueError:
            return  # the engine will say so itself
        if share is None or not 0 < share <= 1:
            return
        source = f"{self.rules.fraction[0]} {text}" if text is not None else f"the engine's default {share:g}"
        hard = self.rules.rule == "free-below-fraction" and self.choice.direct
        hard = hard and given(self.words, self.rules.rule_unsure) is None
        hard = hard and not any(name in self.asked.env for name in self.rules.rule_unsure_env)
        sure: dict[str, list[str]] = {}
        for gpu in self.choice.gpus:
            total, free = _total(gpu), gpu.memory.free_bytes
            if total is None or free is None or free >= share * total:
                continue
            wants = f"{source} wants {gib(int(share * total))}"
            said = f"{self.label(gpu)}: {gib(free)} of {gib(total)} are free, {wants}"
            named = self._living(gpu)
            unified = gpu.memory.kind == "unified"
            margin = total * (UNIFIED_MARGIN if unified else RULE_MARGIN)
            # What nobody living is named for may be free by then; what living ones hold is not.
            at_best = max(free, total - (named or 0))
            if hard and named is not None and at_best + margin < share * total:
                names = ", ".join(self._names(gpu)) or "other processes"
                title = self.asked.engine.title
                sure[gpu.uuid] = [f"{said}, and {title} ends at its start with less; held by {names}"]
            else:
                self.warnings.append(said)
        self.tell(sure)

    def weights(self) -> None:
        """Weights that do not fit even if all that nobody living holds were free."""
        weights = self.asked.weights
        if not self.rules.shards or not weights.least_bytes or not weights.bytes or not self.choice.direct:
            return
        found = dict(self.choice.factors)
        tp, pp = found.get("tp", 1), found.get("pp", 1)
        if self.choice.asked is None:
            return
        part, least = weights.bytes / (tp * pp), WEIGHTS_SURE * weights.least_bytes / (tp * pp)
        unsure = given(self.words, self.rules.unsure_flags)
        bad: dict[str, list[str]] = {}
        for gpu in self.choice.gpus:
            total, free, named = _total(gpu), gpu.memory.free_bytes, self._living(gpu)
            if total is None or free is None or free >= part:
                continue
            over = f"{tp * pp} GPUs" if tp * pp > 1 else "one GPU"
            said = f"{self.label(gpu)}: {gib(free)} are free, and the weights are {gib(weights.bytes)} "
            said += f"({weights.how}) for {over}: {gib(int(part))} each"
            if unsure is None and named is not None and max(free, total - named) < least:
                bad[gpu.uuid] = [said]
            else:
                self.warnings.append(said + (f" ({unsure} may make them fewer)" if unsure else ""))
        if pp > 1 and len(bad) < len(self.choice.gpus):
            # The stages need not be equal: only where none has room for the mean is it certain.
            self.warnings += [text for texts in bad.values() for text in texts]
            return
        self.tell(bad)

    # ------------------------------------------------------------------------------- what warns

    def others(self) -> None:
        """Whoever else holds these GPUs, and fewer GPUs than the command asks for."""
        silent = {HolderClass.OURS_ORPHAN, HolderClass.PROTECTED, HolderClass.UTILISATION_LATCH}
        for gpu in self.choice.gpus:
            free, total = gpu.memory.free_bytes, _total(gpu)
            if free is not None and total is not None and free < NOBODY_SHARE * total and not gpu.uses:
                self.warnings.append(
                    f"{self.label(gpu)}: only {gib(free)} of {gib(total)} are free, and no process is named"
                )
            here = [holder for holder in self.holders if holder.class_ not in silent and gpu.uuid in holder.held]
            for group in alike(here):
                held = held_of(group, gpu.uuid)
                if held is not None and held < SMALL_BYTES:
                    continue
                if held is None and not any(_named_by_driver(gpu, holder) for holder in group):
                    continue  # a device file that is open says nothing of memory
                room = f"{gib(gpu.memory.free_bytes)} of {gib(_total(gpu))} are free"
                self.warnings.append(f"{self.label(gpu)}: {self._held(gpu, group)}; {room}")
        asked, seen = self.choice.asked, self.choice.visible
        if asked is not None and seen is not None and asked > seen:
            product = " × ".join(f"{name} {number}" for name, number in self.choice.factors)
            self.warnings.append(f"the command asks for {asked} GPUs ({product}), and it will see {seen}")

    def health(self) -> None:
        """GPUs that told of errors, or whose memory cannot be read."""
        for gpu in self.choice.gpus:
            name = self.label(gpu)
            if gpu.state is GpuState.UNREADABLE:
                self.warnings.append(f"{name} cannot be read{': ' + gpu.why if gpu.why else ''}")
            if gpu.xid is not None and gpu.xid.bad:
                text = f" ({gpu.xid.text})" if gpu.xid.text else ""
                self.warnings.append(f"{name}: the driver told of XID {gpu.xid.code}{text}: a reset may be needed")
            if gpu.ecc_uncorrected:
                self.warnings.append(f"{name}: {gpu.ecc_uncorrected} uncorrected memory errors (ECC)")

    def driver(self) -> None:
        """The driver does not answer: nothing is known of memory."""
        driver = self.snapshot.driver
        words = "does not answer" if driver.state is DriverState.STUCK else "cannot be used"
        self.warnings.append(f"the NVIDIA driver {words}, so GPU memory was not looked at: {driver.why}".rstrip(": "))
        for group in alike(self.ours):
            has = "have" if len(group) > 1 else "has"
            self.warnings.append(f"{who(group, self.snapshot.at)} {has} files of GPUs open")

    def node(self) -> None:
        """Shared memory and folders of the node."""
        asked, several = self.asked, (self.choice.asked or self.choice.least) > 1
        total, free = asked.shm_total_bytes, asked.shm_free_bytes
        if several and total is not None and free is not None and min(total, free) < SMALL_SHM_BYTES:
            self.warnings.append(
                f"/dev/shm has {gib(free)} of {gib(total)} free: several GPUs share data through it "
                "(in a container: --shm-size or --ipc=host)"
            )
        for folder in asked.folders:
            if folder.noexec and self.rules.uses:
                named = f" ({folder.source})" if folder.source else ""
                self.warnings.append(
                    f"{folder.path}{named} is mounted noexec: kernels that are compiled there cannot be loaded"
                )

    def way_out(self) -> str:
        """The commands that clear what was refused."""
        if self.clean:
            return (
                f"to clear it: `supervisor zombies {self.asked.name} --kill`, or launch with --clean, which stops "
                "our own left-overs first; --force launches as it is"
            )
        return "--force launches as it is"

    # ------------------------------------------------------------------------------- words and sums

    def _living(self, gpu: Gpu) -> int | None:
        """Bytes that living processes hold by the driver's own figures; None where one is missing."""
        if gpu.uses is None:
            return None
        held = 0
        for use in gpu.uses:
            process = self.snapshot.process(use.pid)
            if process is None or process.kill_pending or process.state in ("", "Z", "X"):
                continue  # gone or going: its memory may be free in a moment
            if self.snapshot.container and not process.devices:
                continue  # the number may be one of the host's, and this process another one
            if use.used_bytes is None:
                return None
            held += use.used_bytes
        return held

    def _names(self, gpu: Gpu) -> list[str]:
        here = [holder for holder in self.holders if holder.pid is not None and gpu.uuid in holder.held]
        return [who(group, self.snapshot.at) for group in alike(here) if (held_of(group, gpu.uuid) or 0) >= SMALL_BYTES]

    def label(self, gpu: Gpu) -> str:
        return self.snapshot.label(gpu.uuid)

    def _held(self, gpu: Gpu, group: Sequence[Holder]) -> str:
        """Of one, or of many alike."""
        holder, held = group[0], held_of(group, gpu.uuid)
        if holder.pid is None:
            words = {HolderClass.GHOST_MEMORY: "memory that no process accounts for"}
            what = words.get(holder.class_, str(holder.class_))
            return f"{gib(held)} of {what}" if held is not None else what
        name = who(group, self.snapshot.at)
        if held is not None:
            return f"{gib(held)} held by {name}"
        if any(_named_by_driver(gpu, each) for each in group):
            return f"held by {name} (the driver gives no figure)"
        return f"{name} {'have' if len(group) > 1 else 'has'} its device file open"


def _named_by_driver(gpu: Gpu, holder: Holder) -> bool:
    return holder.pid is not None and any(use.pid == holder.pid for use in gpu.uses or ())


def _holds(gpu: Gpu, holder: Holder, snapshot: Snapshot) -> bool:
    """Whether this holder surely keeps memory of the GPU: by a figure, by name, or as the heir of what is gone."""
    held = holder.held.get(gpu.uuid)
    if held is not None:
        return held >= SMALL_BYTES  # a bare context is in nobody's way
    if _named_by_driver(gpu, holder):
        return True
    living = sum(use.used_bytes or 0 for use in gpu.uses or () if snapshot.process(use.pid) is not None)
    used = gpu.memory.used_bytes
    return gpu.uses is not None and used is not None and used - living >= SMALL_BYTES


def _total(gpu: Gpu) -> int | None:
    """What CUDA calls the total: without what the driver reserves. None where that is not known."""
    memory = gpu.memory
    if memory.total_bytes is None:
        return None
    if memory.kind == "unified":
        return memory.total_bytes
    return None if memory.reserved_bytes is None else memory.total_bytes - memory.reserved_bytes
