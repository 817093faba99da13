"""The text of NVIDIA's own nvidia-ml-py, as it travels to the node. Reads it from the installed distribution, once.

Not by importing `pynvml`: two distributions ship a module of that name, and one of them is a shim over the other.
"""

from __future__ import annotations

import base64
import zlib
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution

DISTRIBUTION = "nvidia-ml-py"
NEEDED = ("def nvmlInitWithFlags(", "def _nvmlGetFunctionPointer(")
"""What the shim and the old forks have not."""


@cache
def source() -> str | None:
    """Base64 of the compressed text; None where it is not installed, or where what lies there is something else."""
    try:
        path = distribution(DISTRIBUTION).locate_file("pynvml.py")
        with open(str(path), "rb") as file:
            text = file.read()
    except (PackageNotFoundError, OSError):
        return None
    if not all(word.encode() in text for word in NEEDED):
        return None
    return base64.b64encode(zlib.compress(text, 9)).decode("ascii")
