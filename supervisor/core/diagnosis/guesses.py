"""What can be said where no rule knows the line: by the form of an exception, and by the facts of an end. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from supervisor.core import events as ev
from supervisor.core.diagnosis.candidates import Candidate
from supervisor.core.diagnosis.facts import EndFacts

CRASH_SIGNALS = frozenset({"SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE"})
NOTE_HALF_BUILT = (
    "An object without an attribute that its own class sets was often built half-way: look for the first exception in "
    "`__init__` further up, which was swallowed, and mend that one."
)

_FAMILY_BY_NAME = (
    (re.compile(r"^(?:ModuleNotFoundError|ImportError|PackageNotFoundError|VersionConflict|DistributionNotFound)"),
     "dependency"),
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

_FAMILY_BY_WORDS = tuple(
    (re.compile(pattern), family)
    for pattern, family in (
        (r"[Oo]ut of memory|OUT_OF_\w*MEMORY|[Nn]ot enough (?:\w+ )?memory", "memory"),
        (r"[Kk][Vv][ _]?[Cc]ache.*(?:large|small|enough|exceed|larger|fit)", "kv_cache"),
        (r"\b(?:CUDA|HIP|cuBLAS|cuDNN|driver) (?:\w+ )?error|\bcuda[A-Z]\w+Error", "native_crash"),
        (r"\b(?:NCCL|RCCL|[Gg]loo|RDMA|rendezvous|all_?reduce)\b.*(?:fail|error|timed? ?out)", "communication"),
        (r"[Tt]imed? ?out\b|[Tt]imeout (?:after|while|exceeded)", "hang"),
        (r"[Cc]ould not resolve|[Ff]ailed to (?:connect|download)|https?://\S+.*(?:fail|4\d\d|5\d\d)", "access"),
        (r"\b(?:[Mm]odel type|[Aa]rchitecture)s? .*(?:not|un)", "model_support"),
        (r"(?:checkpoint|safetensors|weights? file|state_dict).*(?:missing|not found|mismatch|corrupt)", "model_files"),
    )
)
"""By what the message of an exception says, where its class and its frames say nothing."""
_AT_LAUNCH = {"ValueError": "config", "OSError": "model_files"}
"""Before the server came up: a value is refused there mostly because somebody gave it."""


class ByFacts(Struct, frozen=True):
    """A finding that rests on facts, and how it stands against the ranks of the log's lines."""

    finding: ev.Finding
    rank: int


def by_form(item: Candidate) -> tuple[str, str, str, str]:
    """Family, detail, cause and advice of a line that no rule knows."""
    body = item.body.strip()
    said = body if len(body) <= 200 else body[:197] + "…"
    words = next((family for pattern, family in _FAMILY_BY_WORDS if pattern.search(body)), None)
    if not item.name:
        return words or "unknown", "error line", f"the log says: {said}", "Read the lines around it."
    where = f" in {item.frames[0].rpartition(':')[2] or item.frames[0]}" if item.frames else ""
    for pattern, family in _FAMILY_BY_NAME:
        if pattern.search(item.name):
            return family, item.name, f"{said}{where}", _advice(item)
    for pattern, family in _FAMILY_BY_FRAMES:
        if any(pattern.search(frame) for frame in item.frames):
            return family, item.name, f"{said}{where}", _advice(item)
    family = words or ("engine_bug" if item.while_serving else _AT_LAUNCH.get(item.name, "engine_bug"))
    return family, item.name, f"{said}{where}", _advice(item)


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
