"""A real vLLM on the CPU, where scripts/setup-vllm-cpu was run. Heavy: half a minute and 3 GB a start; opt-in only."""

from __future__ import annotations

from pathlib import Path

_CHECKOUT = Path(__file__).resolve().parents[2]
_VENV = _CHECKOUT / ".venv-vllm"
MODEL = _VENV / "tiny-model"

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
}
"""To be added to the server's: nothing is fetched, nobody is told, and 1 GB of cache is enough."""


def missing() -> str | None:
    """Why there is none, None when there is."""
    if not (_VENV / "bin" / "vllm").exists() or not MODEL.is_dir():
        return "no .venv-vllm (run scripts/setup-vllm-cpu)"
    return None


def command(port: int, *more: str) -> list[str]:
    """The words that serve the tiny model, named `tiny`, on loopback."""
    return [
        *(str(_VENV / "bin" / "vllm"), "serve", str(MODEL), "--served-model-name", "tiny"),
        *("--host", "127.0.0.1", "--port", str(port), "--dtype", "bfloat16", "--max-model-len", "256"),
        *("--enforce-eager", "--max-num-seqs", "4", *more),
    ]
