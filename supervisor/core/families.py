"""The families of failures: what a finding's `category` can be, and what each says in plain words."""

from __future__ import annotations

FAMILIES = {
    "memory": "GPU or host memory ran out or is held by someone else",
    "kv_cache": "what is left for the KV cache is too little for the asked context",
    "port": "the address is taken",
    "model_files": "weights are missing, damaged, the wrong ones, or do not fit the architecture",
    "config": "flags or settings contradict each other, the model or the machine",
    "model_support": "this engine or its libraries do not know this model",
    "dependency": "a Python module or shared library is missing or of the wrong build",
    "driver": "the NVIDIA driver or CUDA version does not fit",
    "gpu_arch": "there is no kernel for this GPU or shape",
    "toolchain": "just-in-time compilation failed or took too long",
    "communication": "the ranks could not talk: NCCL, gloo, MPI, peer access, rendezvous, /dev/shm",
    "limits": "a limit of the system was reached (ulimit, pids, open files)",
    "hang": "nothing moved; a watchdog or a timeout found it",
    "native_crash": "native code crashed",
    "killed": "somebody sent SIGKILL: the kernel's OOM killer, a user",
    "hardware": "the GPU or the machine itself",
    "access": "authentication, gated models, proxies, networks in between",
    "engine_bug": "a defect of the engine",
    "wrong_output": "it answers, and what it answers is garbage",
    "health": "the health endpoint says something else than what is the case",
    "unknown": "the log does not tell",
}
