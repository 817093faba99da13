"""Where the user's own files are. Nothing is read here.

It stands beside the layers, since profiles, layouts and engines are all looked for there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def config_dir(environ: Mapping[str, str] | None = None) -> Path:
    """Our folder below ${XDG_CONFIG_HOME:-~/.config}; a relative XDG_CONFIG_HOME is ignored, as XDG asks."""
    environ = os.environ if environ is None else environ
    base = environ.get("XDG_CONFIG_HOME", "")
    home = environ.get("HOME") or os.path.expanduser("~")
    return (Path(base) if base.startswith("/") else Path(home) / ".config") / "inference-supervisor"
