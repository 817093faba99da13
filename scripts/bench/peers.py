"""Gets what the benches are set beside, into a folder that may be thrown away. Not a bench itself.

Nothing is installed for the user or the machine. What cannot be had is told on standard error, and left out by name.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path


def python_tools(folder: Path, *packages: str) -> Path:
    """The commands of an environment in `folder` that has these packages of PyPI, as far as they can be had."""
    tools = folder / "bin"
    if not tools.exists():
        _told_when_it_fails(sys.executable, "-m", "venv", str(folder))
        for package in packages:
            _told_when_it_fails(str(tools / "python"), "-m", "pip", "install", "--quiet", package)
    return tools


def npm_tool(folder: Path, name: str) -> Path | None:
    """The command of npm's package `name`, None where it cannot be had."""
    path, npm = folder / "node_modules" / ".bin" / name, shutil.which("npm")
    if not path.exists() and npm is not None:
        _told_when_it_fails(npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), name)
    return path if path.exists() else None


def python_version(tools: Path, package: str) -> str | None:
    """Of a package in the environment of these commands, None where it is missing."""
    code = f"from importlib.metadata import version; print(version({package!r}))"
    try:
        done = subprocess.run([str(tools / "python"), "-c", code], check=False, capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() or None


def _told_when_it_fails(*words: str) -> None:
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError as error:
        print(f"{words[0]}: {error}", file=sys.stderr)
        return
    if done.returncode:
        print(f"{' '.join(words)}: {done.stderr.strip()[-300:]}", file=sys.stderr)
