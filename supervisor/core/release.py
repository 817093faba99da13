"""The proof that a stopped run has given its GPU memory back (CONTRACT section 6), or who still holds what. Pure.

`Proof.feed()` takes one snapshot after the other, from the moment in which the run's processes are gone, and says
whether every GPU of the claim was found released in two of them in a row. It never waits and never gives up by itself:
whoever feeds it has the clock, and asks for the last word with `give_up()`.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from supervisor.core.claim import Claim, Eyes, Held, Identity, late, strict
from supervisor.core.gpu import Coverage, DriverState, Gpu, GpuState, HolderProcess, Snapshot, Use, gib

RELEASE_WAIT_S = 100.0
"""Engines' own constants are 60 to 100 s; four seconds are usual."""
SAMPLES = 2
LOST_LOOKS = 5
"""A GPU that is off the bus in so many looks in a row does not come back by waiting."""
FELL_SHARE = 0.9
GPUS_SHOWN = 3
NO_GPU = "no gpu"


class State(StrEnum):
    """Where a proof stands."""

    PENDING = "pending"
    PROVED = "proved"
    UNPROVED = "unproved"
    NO_GPU = "no gpu"


class Verdict(Struct, frozen=True, kw_only=True):
    """What the looks so far come to."""

    state: State
    text: str
    """One line for people: the proof, or who still holds what, why, and what to do."""
    why: str = ""
    """The short form of it, for `unproved (why)` and `proved (why)`."""

    @property
    def release(self) -> str:
        """The form that evidence, summaries and scripts carry: proved (…), unproved (…), no gpu."""
        return NO_GPU if self.state is State.NO_GPU else f"{self.state} ({self.why or self.text})"

    @property
    def settled(self) -> bool:
        """Nothing that could still be seen would change it."""
        return self.state is not State.PENDING


class _Space(Struct):
    """One GPU of the claim, and what the looks at it came to."""

    held: Held
    good: int = 0
    lost: int = 0
    why: str = "not looked at yet"
    used_bytes: int | None = None
    newcomers: tuple[str, ...] = ()
    rule: str = ""


class Proof:
    """The looks at one stopped run."""

    def __init__(self, claim: Claim) -> None:
        self._claim = claim
        self._ours = claim.ours
        self._spaces = {held.uuid: _Space(held=held) for held in claim.spaces}
        self._at = claim.at
        self._good_at: float | None = None
        self._clean = 0
        self._strict = bool(claim.unknown)
        self._last = Verdict(state=State.PENDING, text="the GPUs were not looked at yet")

    def saw(self, tree: Iterable[Identity]) -> None:
        """Processes of the run that were listed while it was being stopped: whoever forks then is ours too."""
        self._ours |= frozenset(tree)

    def feed(self, snapshot: Snapshot) -> Verdict:
        """Take one look."""
        readable = snapshot.driver.state is DriverState.OK
        at = snapshot.sampled_at or snapshot.at
        if self._last.settled or (readable and at <= self._at):
            return self._last  # what the driver told before is no second sample
        self._at = max(self._at, at)
        self._last = self._judge(snapshot)
        return self._last

    def give_up(self) -> Verdict:
        """The last word when the time is over."""
        if self._last.settled:
            return self._last
        return Verdict(state=State.UNPROVED, text=f"not proved to be released: {self._last.text}", why=self._last.text)

    # ------------------------------------------------------------------------------- one look

    def _judge(self, snapshot: Snapshot) -> Verdict:
        eyes = Eyes(snapshot, self._ours, self._claim.run_ids)
        state = snapshot.driver.state
        if state is DriverState.ABSENT and not self._spaces:
            return Verdict(state=State.NO_GPU, text="there is no GPU on this node")
        if state is not DriverState.OK:
            scanned = snapshot.coverage is not Coverage.NONE
            if self._claim.untouched and scanned and not eyes.touching() and not eyes.names_ours():
                return Verdict(state=State.NO_GPU, text=_UNTOUCHED)
            self._start_over()
            return _pending(_driver_words(snapshot))
        self._find_spaces(snapshot, eyes)
        for space in self._spaces.values():
            self._look(space, snapshot, eyes)
        touching = eyes.touching()
        self._clean = 0 if touching else self._clean + 1
        return self._sum_up(snapshot, touching)

    def _start_over(self) -> None:
        self._clean = 0
        self._good_at = None
        for space in self._spaces.values():
            space.good = 0

    def _find_spaces(self, snapshot: Snapshot, eyes: Eyes) -> None:
        """GPUs that our processes came to only while they were stopped; all of them, where nobody saw which."""
        for gpu in snapshot.spaces():
            if gpu.uuid in self._spaces:
                continue
            if self._strict:
                self._spaces[gpu.uuid] = _Space(held=strict(gpu, snapshot, self._claim))
            elif eyes.touches(gpu):
                self._spaces[gpu.uuid] = _Space(held=late(gpu, eyes, self._claim))

    def _look(self, space: _Space, snapshot: Snapshot, eyes: Eyes) -> None:
        gpu = snapshot.gpu(space.held.uuid)
        space.lost = space.lost + 1 if gpu is None or gpu.state is GpuState.LOST else 0
        if gpu is None or gpu.state is GpuState.LOST:
            space.why = f"{space.held.label} is lost: only a reset or a reboot of the node brings it back"
        else:
            space.why = _still(space, gpu, eyes)
        space.good = 0 if space.why else space.good + 1

    def _sum_up(self, snapshot: Snapshot, touching: list[HolderProcess]) -> Verdict:
        spaces = list(self._spaces.values())
        open_ = [space for space in spaces if space.why]
        if open_ or touching:
            self._good_at = None
            text = "; ".join(dict.fromkeys([space.why for space in open_] or [_opened(touching)]))
            if open_ and all(space.lost >= LOST_LOOKS for space in open_) and not touching:
                return Verdict(state=State.UNPROVED, text=f"not proved to be released: {text}", why=text)
            return _pending(text)
        if self._good_at is None:
            self._good_at = snapshot.at
        if min([self._clean, *(space.good for space in spaces)]) < SAMPLES:
            return _pending("released in one look; a second one is needed")
        if not spaces:
            return Verdict(state=State.NO_GPU, text=_UNTOUCHED)
        watched = any(space.held.used_bytes is not None for space in spaces)
        took_s = self._good_at - self._claim.at if self._claim.at and watched else None
        return _proved(spaces, took_s, self._claim)


_UNTOUCHED = "it had no GPU open, so there is nothing to be released"


def _pending(why: str) -> Verdict:
    return Verdict(state=State.PENDING, text=why)


# ------------------------------------------------------------------------------------------- one GPU


def _still(space: _Space, gpu: Gpu, eyes: Eyes) -> str:
    """Why this GPU is not released in this look; empty when it is. Notes what is seen for the line of proof."""
    held = space.held
    uses = eyes.uses(gpu)
    if opened := eyes.on_device(gpu):
        return _opened(opened)
    if uses is None:
        return f"the processes of {held.label} cannot be listed ({gpu.why or _error(gpu, 'uses')})"
    if mine := [use for use in uses if eyes.is_ours(use.pid)]:
        return _named(held, [(use.pid, use.used_bytes) for use in mine], gpu, eyes)
    if suspects := [use for use in uses if use.pid in held.suspects]:
        pids = ", ".join(f"{use.pid} ({gib(use.used_bytes)})" for use in suspects)
        return (
            f"{held.label} is still held by pid {pids} of another pid namespace, which may be this run's: "
            "look from the host or the container that they live in"
        )
    space.used_bytes = gpu.memory.used_bytes
    known = {pid for pid, _ in held.others}
    space.newcomers = tuple(_name(use.pid, use.used_bytes, eyes) for use in uses if use.pid not in known)
    if held.unified:
        space.rule = "unified memory: gone from the lists and from the device files"
        return ""
    if gpu.memory.used_bytes is None:
        return f"the memory of {held.label} cannot be read ({gpu.why or _error(gpu, 'memory')})"
    return _not_fallen(space, gpu, uses, eyes)


def _not_fallen(space: _Space, gpu: Gpu, uses: tuple[Use, ...], eyes: Eyes) -> str:
    """The rule of CONTRACT section 6 on used memory."""
    held, used = space.held, gpu.memory.used_bytes or 0
    space.rule = ""
    nameless = [use.pid for use in uses if use.used_bytes is None]
    rest = used - sum(use.used_bytes or 0 for use in uses)
    if not nameless and rest <= held.baseline_bytes + gpu.slack_bytes:
        return ""
    estimate = held.estimate_bytes
    if (nameless or not held.complete) and estimate is not None and held.used_bytes is not None:
        fell = max(0, held.used_bytes - held.others_bytes - rest)
        words = f"fell by {gib(fell)} of the {gib(estimate)} that it held"
        if fell >= FELL_SHARE * estimate:
            space.rule = f"not every process has a figure: {held.label} {words}"
            return ""
        text = f"{held.label} still uses {gib(used)}: {words}"
        return text + (f" (others without a figure: pid {', '.join(map(str, nameless))})" if nameless else "")
    if nameless:
        pids = ", ".join(map(str, nameless))
        return f"{held.label} uses {gib(used)}, what pid {pids} has of it cannot be told, nor what the run held"
    text = f"{held.label} still uses {gib(rest)} that no process accounts for"
    text += f" ({gib(held.baseline_bytes)} {'before the launch' if held.recorded else 'when it was idle'})"
    if heirs := eyes.heirs(gpu):
        return f"{text}; it is open in {_heirs(heirs)}"
    return f"{text}: the driver is still tearing it down, or only a reset of the GPU frees it"


def _named(held: Held, mine: list[tuple[int, int | None]], gpu: Gpu, eyes: Eyes) -> str:
    pid, amount = mine[0]
    more = f" and {len(mine) - 1} more" if len(mine) > 1 else ""
    process = eyes.process(pid)
    where = f"{gib(amount)} of {held.label}"
    if process is not None:
        return f"{where} held by {alive_words(process)}{more}"
    text = f"{where} still named as dead pid {pid}'s{more}"
    heirs = eyes.heirs(gpu)
    return f"{text}; heir: {_heirs(heirs)}" if heirs else f"{text}: the driver is tearing it down"


def _heirs(heirs: list[HolderProcess]) -> str:
    shown = ", ".join(f"pid {item.pid} {_title(item)}" for item in heirs[:3])
    return shown + (f" and {len(heirs) - 3} more" if len(heirs) > 3 else "") + " (stop that one)"


def _opened(processes: list[HolderProcess]) -> str:
    more = f" and {len(processes) - 1} more" if len(processes) > 1 else ""
    return f"{alive_words(processes[0])}{more} still has a GPU's device file open"


def alive_words(process: HolderProcess) -> str:
    """A process that should have gone, and why it may not have: "pid 4711 VLLM::Worker_TP0 (state D …)"."""
    text = f"pid {process.pid} {_title(process)}"
    if process.state == "D":
        return f"{text} (state D: it waits in the kernel for the driver, no signal reaches it; reset or reboot)"
    if process.state == "Z":
        return f"{text} (a zombie{' whose threads live' if process.threads > 0 else ''}; its parent is {process.ppid})"
    return text


def _title(process: HolderProcess) -> str:
    return (process.title or process.comm)[:60] or "?"


def _name(pid: int, amount: int | None, eyes: Eyes) -> str:
    process = eyes.process(pid)
    title = "not visible from here" if process is None else _title(process)
    return f"pid {pid} {title} {gib(amount)}"


def _error(gpu: Gpu, field: str) -> str:
    return gpu.errors.get(field) or next(iter(gpu.errors.values()), "unreadable")


def _driver_words(snapshot: Snapshot) -> str:
    driver = snapshot.driver
    return driver.why or f"the driver is {driver.state}"


# ------------------------------------------------------------------------------------------- the line of proof


def _proved(spaces: list[_Space], took_s: float | None, claim: Claim) -> Verdict:
    freed = [_freed(space) for space in spaces]
    total = sum(filter(None, freed))
    count = spaces[0].held.label if len(spaces) == 1 else f"{len(spaces)} GPUs"
    time = f" in {took_s:.1f} s" if took_s is not None else ""
    if claim.unknown:
        summary = f"nothing without an owner is left on {count}; what was held was not seen: {claim.unknown}"
    elif total:
        summary = f"{gib(total)} freed on {count}{time}"
    else:
        summary = f"gone from {count}{time}"
    shown = [_change(space) for space in spaces[:GPUS_SHOWN]]
    text = f"released: {count}, {gib(total)} freed{time}" if total else f"released: {summary}"
    text += f" ({', '.join(shown)}{' …' if len(spaces) > GPUS_SHOWN else ''})"
    if rules := dict.fromkeys(space.rule for space in spaces if space.rule):
        text += "; " + "; ".join(rules)
    if others := [f"{who} on {space.held.label}" for space in spaces for who in space.newcomers]:
        text += "; not ours, new since then: " + ", ".join(others[:3])
        text += f" and {len(others) - 3} more" if len(others) > 3 else ""
    return Verdict(state=State.PROVED, text=text, why=summary)


def _freed(space: _Space) -> int | None:
    held = space.held
    return held.ours_bytes if held.ours_bytes is not None else held.estimate_bytes


def _change(space: _Space) -> str:
    held = space.held
    if held.used_bytes is None or space.used_bytes is None:
        return f"{held.label} {gib(space.used_bytes)}"
    return f"{held.label} {gib(held.used_bytes)} → {gib(space.used_bytes)}"


def unseen(why: str) -> Verdict:
    """The verdict where nothing could be looked at."""
    return Verdict(state=State.UNPROVED, text=f"not proved to be released: {why}", why=why)
