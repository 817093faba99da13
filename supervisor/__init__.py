"""inference-supervisor: launch an inference server on a node, wait for it, and tell the truth about it."""

from __future__ import annotations


def __getattr__(name: str) -> str:
    # Late: reading the installed metadata costs more than all that `--headless --url` imports of ours.
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("inference-supervisor")
        except PackageNotFoundError:
            return "0+unknown"
    raise AttributeError(name)
