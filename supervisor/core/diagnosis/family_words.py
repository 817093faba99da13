"""Families by the words of a message, for lines that no rule knows. Pure.

The vocabulary is the field's own: what engines, CUDA, NCCL, linkers, compilers and hubs say of a kind of trouble,
whichever version they are. The rules (engines/*.toml) know more, and come first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

READ_CHARS = 600
"""A message says at its beginning what it is about, and a hostile one must not cost much."""

STRONG = {
    "port": (
        r"[Aa]ddress already in use", "EADDRINUSE", r"\[Errno 9[89]\]", r"[Ff]ailed to (?:bind|listen)",
        r"\bbind(?:ing)? (?:on|to) (?:port|address)", r"[Pp]ort \d+ is (?:already |not )(?:in use|used|available|free)",
    ),
    "hardware": (
        "uncorrectable ECC", "fallen off the bus", "DeviceLost", "GPU is lost", "NVLink (?:fatal )?error", r"\bXid\b",
        "hardware error",
    ),
    "kv_cache": (
        "cache blocks", "[Kk][Vv][ _-]?[Cc]ache.*(?:large|small|enough|exceed|fit|max)",
        "(?:max seq len|max_model_len|context).*[Kk][Vv][ _-]?[Cc]ache", "mem-fraction-static",
    ),
    "memory": (
        r"[Oo]ut ?[Oo]f ?(?:\w+ )?[Mm]emory", r"OUT_OF_\w*MEMORY", r"[Nn]ot enough (?:\w+ )?memory", "bad_alloc",
        r"[Ii]nsufficient (?:\w+ )?[Mm]emory", "(?:[Uu]nable|[Ff]ailed|[Cc]annot) (?:to )?allocate",
        "[Ff]ree memory .*less than", "memory capacity is", "[Mm]emory allocation .*fail",
        "CUBLAS_STATUS_(?:ALLOC_FAILED|NOT_INIT)",
    ),
    "limits": (
        "can't start new thread", "Resource temporarily unavailable", "[Tt]oo many open files", "pthread_create",
        r"\bulimit\b", "RLIMIT_", "[Nn]o space left on device", "[Dd]isk quota",
    ),
    "driver": (
        "(?:NVIDIA|CUDA|display|AMD) driver", "driver version", "cudaGetDeviceCount", "active drivers",
        "no CUDA-capable device", "unsupported toolchain", "forward compatibility", "Found no NVIDIA",
        "[Nn]o (?:CUDA )?GPUs? (?:are|is|was|were) (?:available|found|detected)",
    ),
    "gpu_arch": (
        "no kernel image", "kernel image is invalid", "invalid device function", "[Cc]ompute[ _][Cc]apabilit",
        "[Mm]inimum capability", r"\bsm_?\d\d\d?[af]?\b.*(?:not|only|requir|support)", "CUDA architectures",
        r"(?:not|only|requir|support).*\bsm_?\d\d\d?[af]?\b", "no kernel found",
        "not supported (?:in|on|by|for) this (?:architecture|GPU|device|platform)",
        r"(?:only supports?|requires?|not supported (?:on|by)).*(?:Ampere|Hopper|Blackwell|Ada|Turing|Volta|GPUs?\b)",
    ),
    "dependency": (
        "No module named", "cannot import name", "shared object file", "shared librar", "undefined symbol",
        "GLIBCX{0,2}_", "is not installed", "static TLS", "pip3? install", "[Pp]lease (?:re|up)?(?:install|grade)",
        "minimum required version", r"module '[\w.]+' has no attribute", "dynamic (?:shared )?library",
        "[Dd]istribution was not found", r"operator [\w:]+ does not exist", "incompatible version",
    ),
    "access": (
        "gated repo", r"\b40[13]\b.*(?:[Cc]lient|[Uu]nauth|[Ff]orbid)", r"Response \[[45]\d\d\]",
        r"GET failed \(\d", "[Uu]nauthorized",
        r"HTTPS?Connection(?:Pool)?\(", "[Rr]esolve (?:host|name)", "[Nn]ame resolution", "certificate", r"\bSSL",
        r"\b[Pp]roxy\b", r"https?://\S+.*(?:fail|4\d\d|5\d\d)", "[Rr]epository [Nn]ot [Ff]ound", "[Pp]ermission denied",
        "(?:[Cc]ould not|couldn't|[Uu]nable to|[Ff]ailed to) (?:connect to|download|reach).*(?:http|hugging|hub)",
        "[Cc]onnection error, and we cannot find",
    ),
    "toolchain": (
        r"\b(?:nvcc|NVCC|ninja|Ninja|ptxas)\b", "NVRTC|nvrtc", ": fatal error: ", "CUDA_HOME", "cannot execute",
        r"[Cc]ompil(?:ation|er|e|ing)\b.*(?:[Ff]ail|[Ee]rror)", r"(?:[Ff]ail|[Ee]rror)\w*.*\b[Cc]ompil",
        "(?:[Ee]rror building|[Bb]uild) extension", r"\.(?:cuh?|cpp|hpp|h)[:(]\d+.*: error", "no C compiler",
    ),
    "communication": (
        "peer access", "placement group", r"\bMPI\w*\b", r"\bORTE\b", "[Mm]ooncake", "NIXL", r"\bUCX\b", "RDMA",
        "ibverbs", "[Rr]endezvous", "gloo", r"\bn[Cc][Cc][Ll]", r"\b[NR]CCL\b", "Broken pipe", "/dev/shm",
        "[Cc]onnection (?:reset|closed|refused)", "all_?(?:reduce|gather)", "TCPStore", "c10d", "[Pp]rocess ?[Gg]roup",
        "NVSHMEM|nvshmem",
    ),
    "hang": (
        "[Ww]atchdog", r"[Tt]imed? ?[Oo]ut\b", "[Tt]imeout", "[Nn]o heartbeat", "did not (?:become ready|respond)",
        "deadlock",
    ),
    "native_crash": (
        "illegal (?:memory access|instruction)", "[Ss]egmentation fault", "[Ss]eg[Ff]ault", "[Bb]us error",
        "SIG(?:SEGV|BUS|ABRT|ILL|FPE)", "device-side assert", "core dumped", "access fault", "misaligned address",
        r"\b(?:CUDA|HIP|cuBLAS|cuDNN|driver) (?:\w+ )?error", r"\bcuda[A-Z]\w+Error", "unspecified launch",
        "GGML_ASSERT", "stack smashing", "double free", "heap corruption",
    ),
    "model_files": (
        "missing tensor", "tensor '[^']*' (?:not found|data|has)", "number of tensors", "corrupt", "size mismatch for",
        "(?:[Uu]nexpected|[Mm]issing) key", "no file named", "state_dict", "[Ff]ile not found", "No such file",
        r"(?:checkpoint|safetensors|weights?|shards?|gguf)\b.*(?:missing|not found|match|invalid|incomplete|no such)",
        "[Cc]annot find .*(?:weight|model|config)", "(?:magic|header).*(?:invalid|bad|too large)",
        "no module or parameter", "failed to open (?:GGUF|model)", "invalid (?:magic|header)",
    ),
    "model_support": (
        "[Uu]n(?:known|supported|recognized) (?:model|architecture|pre-tokenizer|projector)",
        r"[Mm]odel (?:type|architecture|class)\w*\b.*(?:not|un)", r"[Aa]rchitectures?\b.*\bnot\b",
        "does not recognize this", "supported models are", r"has no (?:\w+ )?implementation",
        "not (?:yet )?supported (?:model|for this model)", "trust_remote_code",
    ),
}  # fmt: skip
"""The more telling families first: these words count before the name of an exception."""
WEAK = {
    "config": (
        "divisible", r"\bmust (?:be|have|not|match)", "should (?:be|not)", r"\bargument", "unrecognized",
        "[Ii]nvalid (?:value|choice|combination)", "[Ii]ncompatible", "not compatible", "conflict", "exclusive",
        "cannot be (?:used|set|combined|enabled)", r"(?:not|only|un)\s?support", "requires? ",
        "(?:is|are) required", "(?:has|have) to be", "(?:is|are) (?:set|empty)", "world size",
        "[Pp]lease (?:set|use|specify|provide|try|disable|enable|pass)", r"--[a-z][\w-]+", "less than", "at least",
        "(?:great|larg|small)er than", r"exceeds?\b", "[Uu]nknown (?:quant|dtype|value)", "[Ff]ailed to infer device",
    ),
}  # fmt: skip
"""What is said of settings: it counts where neither the exception nor its frames tell more."""


@cache
def _compiled(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns))


def family(said: str, *tables: Mapping[str, tuple[str, ...]]) -> str | None:
    """The first family of these tables (`STRONG`, `WEAK`) of which the message has a word."""
    said = said[:READ_CHARS]
    families = (item for table in tables for item in table.items())
    return next((name for name, patterns in families if _compiled(patterns).search(said)), None)
