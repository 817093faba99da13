"""nvidia-ml-py's source as it travels to the node, where nothing is installed."""

from __future__ import annotations

import base64
import zlib
from functools import cache
from importlib import metadata
from pathlib import Path

_DISTRIBUTION = "nvidia-ml-py"
_FILE = "pynvml.py"
# The old `pynvml` packages put another module at the same path: its look-alikes have neither of these.
_MARKS = ("def nvmlInitWithFlags(", "def _nvmlGetFunctionPointer(")


@cache
def source() -> str | None:
    """base64 of zlib of nvidia-ml-py's module; None where it is not installed, or another package took its place."""
    try:
        path = Path(str(metadata.distribution(_DISTRIBUTION).locate_file(_FILE)))
        text = path.read_text(encoding="utf-8")
    except (metadata.PackageNotFoundError, OSError):
        return None
    if not all(mark in text for mark in _MARKS):
        return None
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode("ascii")
