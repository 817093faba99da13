"""What can be said where no rule knows the line: by the form of an exception, and by the facts of an end. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from supervisor.core import events as ev
from supervisor.core.diagnosis import family_words
from supervisor.core.diagnosis.candidates import Candidate
from supervisor.core.diagnosis.facts import EndFacts
from supervisor.core.engine import Root

CRASH_SIGNALS = frozenset({"SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE"})
NOTE_HALF_BUILT = (
    "An object without an attribute that its own class sets was often built half-way: look for the first exception in "
    "`__init__` further up, which was swallowed, and mend that one."
)

_FAMILY_BY_NAME = (
    (re.compile(r"OutOfMemoryError|MemoryError"), "memory"),
    (re.compile(r"Timeout|Expired"), "hang"),
    (re.compile(r"^(?:ConnectionError|ConnectionRefusedError|ConnectionResetError|BrokenPipeError|DistBackendError|"
                r"DistNetworkError|DistStoreError|EOFError)"), "communication"),
    (re.compile(r"^(?:HTTPError|GatedRepoError|RepositoryNotFoundError|LocalTokenNotFoundError|PermissionError|"
                r"ProxyError|SSLError)"), "access"),
    (re.compile(r"^(?:SafetensorError|UnpicklingError|FileNotFoundError|NotADirectoryError|IsADirectoryError|"
                r"EntryNotFoundError|HFValidationError|JSONDecodeError)"), "model_files"),
    (re.compile(r"^(?:ValidationError|ArgumentError|ConfigError|NotImplementedError)"), "config"),
    (re.compile(r"Compil|PTXAS|Ninja|Inductor|CalledProcessError"), "toolchain"),
    (re.compile(r"ActorDiedError|WorkerCrashedError|RayActorError"), "native_crash"),
)  # fmt: skip
_FAMILY_BY_FRAMES = (
    (re.compile(r":(?:weight_loader|load_weights|_load_weights|default_weight_loader|load_model_weights|"
                r"load_weights_and_postprocess|safetensors_weights_iterator)$"), "model_files"),
    (re.compile(r":(?:create_engine_config|create_model_config|__post_init__|_verify_\w+|verify_\w+|check_server_args|"
                r"from_cli_args|prepare_server_args|get_config|validate_\w+)$"), "config"),
    (re.compile(r":(?:init_process_group|init_distributed_environment|all_reduce|broadcast|all_gather\w*|barrier|"
                r"connectFullMesh|ncclCommInitRank)$"), "communication"),
    (re.compile(r":_wait_and_warmup$"), "access"),
    (re.compile(r":(?:_build_extension|_jit_compile|_run_ninja_build|build_and_load|run_ninja)$"), "toolchain"),
)  # fmt: skip

_FAMILY_BY_NAME_ALONE = (
    (re.compile(r"^(?:ModuleNotFoundError|ImportError|PackageNotFoundError|VersionConflict|DistributionNotFound)$"),
     "dependency"),
    (re.compile(r"^(?:TypeError|AttributeError|NameError|UnboundLocalError|IndexError|ZeroDivisionError|"
                r"RecursionError|UnicodeDecodeError)$"), "engine_bug"),
)  # fmt: skip
"""Of no matter what the words in it sound like: code does not fit other code."""
_OF_OTHERS = re.compile(r"module '[\w.]+' has no attribute")
_AT_LAUNCH = {"ValueError": "config", "OSError": "model_files"}
"""Before the server came up: a value is refused there mostly because somebody gave it."""


class ByFacts(Struct, frozen=True):
    """A finding that rests on facts, and how it stands against the ranks of the log's lines."""

    finding: ev.Finding
    rank: int


def family_of(rule: Root, body: str) -> str:
    """The family of a line that this rule fits."""
    by_words = family_words.family(body, family_words.STRONG, family_words.WEAK) if rule.by_words else None
    return by_words or rule.category


def by_form(item: Candidate) -> tuple[str, str, str, str]:
    """Family, detail, cause and advice of a line that no rule knows."""
    body = item.body.strip()
    said = body if len(body) <= 200 else body[:197] + "…"
    if not item.name:
        named = family_words.family(body, family_words.STRONG, family_words.WEAK) or "unknown"
        return named, "error line", f"the log says: {said}", "Read the lines around it."
    where = f" in {item.frames[0].rpartition(':')[2] or item.frames[0]}" if item.frames else ""
    return _of_exception(item, body), item.name, f"{said}{where}", _advice(item)


def _of_exception(item: Candidate, body: str) -> str:
    name = (item.name,)
    family = (
        (None if _OF_OTHERS.search(body) else _first(_FAMILY_BY_NAME_ALONE, name))
        or family_words.family(body, family_words.STRONG)
        or _first(_FAMILY_BY_NAME, name)
        or _first(_FAMILY_BY_FRAMES, item.frames)
    )
    if family is None and not item.while_serving:
        family = family_words.family(body, family_words.WEAK) or _AT_LAUNCH.get(item.name)
    return family or "engine_bug"


def _first(table: Sequence[tuple[re.Pattern[str], str]], texts: Sequence[str]) -> str | None:
    return next((family for pattern, family in table if any(pattern.search(text) for text in texts)), None)


def _advice(item: Candidate) -> str:
    if item.name == "AttributeError" and "object has no attribute" in item.body:
        return NOTE_HALF_BUILT
    if item.frames:
        return f"Read the traceback above it; it ends in {item.frames[0]}."
    return "Read the lines above it: the exception stands without its traceback."


def by_facts(facts: EndFacts, deaths: Sequence[str], at: float) -> ByFacts | None:
    """What the facts name by themselves."""
    for kill in facts.oom_kills:
        if kill.ours:
            return ByFacts(
                ev.Finding(
                    at=at,
                    category="killed",
                    detail="oom_killer",
                    cause=f"the kernel's OOM killer ended a process of it: host memory ran out ({kill.text[:300]})",
                    confidence="sure",
                    advice="Give the container or node more memory, load with fewer threads or shards at once, or use "
                    "a smaller model; swap only helps for a short peak.",
                ),
                85,
            )
    crashed = next((item for item in facts.dead if item.how is not None and item.how.signal in CRASH_SIGNALS), None)
    if crashed is not None and crashed.how is not None:
        return ByFacts(_crash(f"{crashed.title} (pid {crashed.pid})", str(crashed.how.signal), at), 58)
    killed = next((item for item in facts.dead if item.how is not None and item.how.signal == "SIGKILL"), None)
    if killed is not None:
        return ByFacts(_killed(f"{killed.title} (pid {killed.pid})", facts, at), 45)
    if facts.exit is not None and not facts.asked_to_stop:
        if facts.exit.signal in CRASH_SIGNALS:
            return ByFacts(_crash("the server", str(facts.exit.signal), at), 56)
        if facts.exit.signal == "SIGKILL":
            return ByFacts(_killed("the server", facts, at), 30 if deaths else 38)
    return None


def _crash(who: str, signal: str, at: float) -> ev.Finding:
    return ev.Finding(
        at=at,
        category="native_crash",
        detail=signal,
        cause=f"{who} was ended by {signal}: native code crashed",
        confidence="likely",
        advice="The lines before the end name the library or the check; `coredumpctl` or `PYTHONFAULTHANDLER=1` shows "
        "the stack.",
    )


def _killed(who: str, facts: EndFacts, at: float) -> ev.Finding:
    looked = "" if facts.oom_looked_at else " (nobody could look whether the OOM killer did)"
    return ev.Finding(
        at=at,
        category="killed",
        detail="SIGKILL",
        cause=f"{who} was ended by SIGKILL{looked}",
        confidence="low" if not facts.oom_looked_at else "likely",
        advice="SIGKILL is sent by the kernel when memory runs out (dmesg, cgroup oom_kill), by a user or a scheduler, "
        "or by the engine's own parent process after a child failed: read the lines before it.",
    )


def advice_of_silent(facts: EndFacts) -> str:
    """What to do about an end that nobody explains."""
    if facts.exit is not None and facts.exit.code == 0:
        return "Exit code 0 without being asked to stop: some engines end so when their core process has died."
    return "Look at `dmesg -T` for oom-kill, Xid and segfault lines, and start once more with more verbose logging."
