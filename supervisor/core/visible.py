"""Which of a node's GPUs a launch will use, and how much of that is certain. Pure.

CUDA counts GPUs in another order than NVML unless it is told otherwise, and stops at the first word of
CUDA_VISIBLE_DEVICES that means nothing to it; a shell or a container around the server may change all of it. So the
answer is a set of GPUs and how many of them are used at least: what stands in the way of that many is certain to hurt.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from supervisor.core import command
from supervisor.core.engine import Engine
from supervisor.core.gpu import Gpu, GpuState, Snapshot

VISIBLE = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"
WRAPPERS = frozenset({"env", "exec", "ionice", "nice", "nohup", "numactl", "setsid", "stdbuf", "taskset", "time"})
"""Programs that start the rest of their words and leave its environment alone (but for what `env` is told)."""

_INDEX = re.compile(r"\d{1,4}", re.ASCII)
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.ASCII | re.DOTALL)
_PYTHON = re.compile(r"python[\d.]*", re.ASCII)


class Choice(Struct, frozen=True, kw_only=True):
    """What a launch takes of the GPUs."""

    gpus: tuple[Gpu, ...] = ()
    """Those that it may use. Where all is certain these are the ones that it uses."""
    least: int = 0
    """So many of them it uses at least."""
    asked: int | None = None
    """How many the command asks for on this node; None where that cannot be read."""
    visible: int | None = None
    """How many GPUs the server can see; None where that is not known."""
    factors: tuple[tuple[str, int], ...] = ()
    """What `asked` is the product of, for people: (flag, number)."""
    direct: bool = False
    """The command itself is the engine: nothing between it and us that could change its flags or environment."""
    none: bool = False
    """It uses no GPU, or sees none."""
    why: str = ""
    """Why it is not certain which, in words; or why none."""

    def meets(self, bad: Mapping[str, object]) -> bool:
        """Whether it surely uses one of these GPUs (keys: UUIDs)."""
        standing = [gpu for gpu in self.gpus if gpu.uuid not in bad]
        return len(standing) < min(self.least, len(self.gpus))


def given(words: Sequence[str], entries: Sequence[str]) -> str | None:
    """The first entry of an engine's list (`--flag`, `--flag=value`, `--flag*`) that the command has."""
    for entry in entries:
        name, equals, wanted = entry.partition("=")
        if equals:
            if command.value(words, (name,)) == wanted:
                return f"{name} {wanted}"
        elif command.has_flag(words, name):
            return name.rstrip("*")
    return None


def words_of(argv: Sequence[str], engine: Engine) -> list[str]:
    """The command's words, a shell's text taken apart, flags that were cut short written out."""
    rules, flags = engine.memory, engine.flags
    lists = [
        *(rules.pp, rules.dp, rules.more, rules.dp_inside, rules.nodes, rules.shift, rules.cpu, rules.fraction),
        *(rules.rule_unsure, rules.unsure_flags, flags.tp, flags.model, flags.port, flags.host),
        *(flags.served_model_name, flags.api_key),
    ]
    known = [name.partition("=")[0] for names in lists for name in names]
    return command.unabbreviated(command.flatten(argv), known)


def choose(snapshot: Snapshot, argv: Sequence[str], engine: Engine, env: Mapping[str, str]) -> Choice:
    """Read the command and the environment of the launch (`env`: VISIBLE, ORDER and the engine's `unsure_env`)."""
    rules = engine.memory
    words = words_of(argv, engine)
    if given(words, rules.cpu):
        return Choice(none=True, why="it runs on the CPU")
    told = dict(env)
    direct = _direct(argv, engine, told)
    seen, exact, limit, why = _visible(snapshot, told.get(VISIBLE), told.get(ORDER))
    asked, factors = _asked(words, engine)
    if direct and exact and not seen and snapshot.gpus:
        return Choice(none=True, asked=asked, visible=0, direct=True, factors=factors, why=why)
    if not direct:
        seen, exact, limit = tuple(snapshot.spaces()), False, 1
        why = "the command starts the server through something else, which may choose other GPUs"
    least = asked or 1
    unsure_env = next((name for name in rules.unsure_env if name in told), None)
    if unsure_env or not rules.uses or command.program(argv) in command.FOREIGN_TREE_PROGRAMS:
        least, exact = 0, False
        why = f"{unsure_env} is set" if unsure_env else "which GPUs it uses is not known"
    if nodes := given(words, rules.nodes):
        least, exact, asked, why = min(1, least), False, None, f"{nodes}: who places the ranks is not known"
    if shift := given(words, rules.shift):
        exact, why = False, f"{shift} may choose others than the first"
    elif rules.uses == "all" and exact:
        least = len(seen)
    if exact and rules.uses == "first":
        taken: tuple[Gpu, ...] = seen[:least]
    else:
        taken = seen
    if limit is not None:
        least = min(least, limit)
    return Choice(
        gpus=taken,
        least=min(least, len(taken)),
        asked=asked,
        visible=(len(seen) if limit is None else limit) if direct else None,
        factors=factors,
        direct=direct,
        why="" if exact else why,
    )


def _asked(words: Sequence[str], engine: Engine) -> tuple[int | None, tuple[tuple[str, int], ...]]:
    rules = engine.memory
    if rules.uses != "first":
        return None, ()
    groups = [("tp", engine.flags.tp), ("pp", rules.pp), ("more", rules.more)]
    if not given(words, rules.dp_inside):
        groups.append(("dp", rules.dp))
    product, factors = 1, []
    for name, flags in groups:
        text = command.value(words, flags)
        if text is None:
            if any(command.has_flag(words, flag) for flag in flags):
                return None, ()  # a value that we cannot read: a variable of a shell
            continue
        if not re.fullmatch(r"\d{1,5}", text, re.ASCII) or not int(text):
            return None, ()
        product *= int(text)
        factors.append((name, int(text)))
    return product, tuple(factors)


def _direct(argv: Sequence[str], engine: Engine, env: dict[str, str]) -> bool:
    """Whether the first word is the engine, past wrappers that change nothing; `env NAME=value` goes into `env`."""
    if list(argv) != command.flatten(argv):
        return False  # a shell
    rest = list(argv)
    while rest and command.program(rest) in WRAPPERS:
        is_env = command.program(rest) == "env"
        rest = rest[1:]
        while rest and not _is_program(rest, engine):
            pair = _ASSIGNED.fullmatch(rest[0])
            if is_env and pair is not None:
                env[pair.group(1)] = pair.group(2)
            elif is_env and rest[0].startswith("-"):
                return False  # -i, -u NAME: the environment is another one
            rest = rest[1:]
    return bool(rest) and _is_program(rest, engine)


def _is_program(rest: Sequence[str], engine: Engine) -> bool:
    program = command.program(rest)
    if program in WRAPPERS:
        return True
    if _PYTHON.fullmatch(program):
        # `python -m engine` and `python .../bin/engine`, not a script that may start it in another way
        script = next((word for word in rest[1:] if not word.startswith("-")), "")
        return not script.endswith(".py") and command.detect(rest, {"it": engine.detect}) is not None
    joined = " ".join([program, *rest[1:]])
    return any((found := re.search(pattern, joined)) and found.start() == 0 for pattern in engine.detect)


def _visible(snapshot: Snapshot, value: str | None, order: str | None) -> tuple[tuple[Gpu, ...], bool, int | None, str]:
    """(GPUs, whether they are exactly those and in CUDA's order, at most so many of them, why not exact)."""
    spaces = tuple(snapshot.spaces())
    whole = tuple(gpu for gpu in snapshot.gpus if gpu.parent is None)
    why = _order_unsure(snapshot, whole, order)
    if value is None:
        return spaces, not why, None, why
    entries = [entry.strip() for entry in value.split(",")]
    found: list[Gpu] = []
    indices = 0
    for entry in entries:
        if _INDEX.fullmatch(entry):
            if int(entry) >= len(whole):
                break
            found.append(whole[int(entry)])
            indices += 1
            continue
        named = _named(snapshot, entry)
        if len(named) != 1:
            break
        found.append(named[0])
    if len({gpu.uuid for gpu in found}) < len(found):
        return spaces, False, 1, f"{VISIBLE}={value} names a GPU twice"
    if indices and indices < len(found):
        return spaces, False, 1, f"{VISIBLE}={value} mixes indices and UUIDs"
    if indices and why:
        return spaces, False, indices, why
    if any(gpu.mig for gpu in found):
        return spaces, False, len(found), f"{VISIBLE}={value} names a GPU that is divided (MIG)"
    return tuple(found), True, None, f"{VISIBLE}={value} shows no GPU of this node" if not found else ""


def _named(snapshot: Snapshot, entry: str) -> list[Gpu]:
    """The GPUs of a UUID or of its beginning; CUDA takes one that is unambiguous."""
    if not entry.startswith(("GPU-", "MIG-")) or len(entry) < len("GPU-") + 1:
        return []
    return [gpu for gpu in snapshot.gpus if gpu.uuid.startswith(entry)]


def _order_unsure(snapshot: Snapshot, whole: Sequence[Gpu], order: str | None) -> str:
    """Why CUDA's order is not surely NVML's; empty where it is."""
    if any(gpu.mig or gpu.parent for gpu in snapshot.gpus):
        return "a GPU is divided (MIG)"
    if snapshot.driver.count_before is not None or any(gpu.state is GpuState.LOST for gpu in whole):
        return "a GPU is lost, which may change the order of the others"
    if [gpu.index for gpu in whole] != list(range(len(whole))):
        return "not every GPU of the node is seen"
    if order != "PCI_BUS_ID" and (len({gpu.name for gpu in whole}) > 1 or not all(gpu.name for gpu in whole)):
        return f"the GPUs differ, and without {ORDER}=PCI_BUS_ID the server counts them in an order of its own"
    return ""
