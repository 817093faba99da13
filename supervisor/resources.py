"""Finds what is no Python: layouts/, the simulated engine. In a wheel and in a checkout alike.

An editable install has no layouts/ inside the package: there the folder stands beside it.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def layouts() -> Path:
    """The folder of the *.tcss files. Raises `FileNotFoundError` when the installation is not whole."""
    for folder in (_PACKAGE / "layouts", _PACKAGE.parent / "layouts"):
        if (folder / "base.tcss").is_file():
            return folder
    raise FileNotFoundError(f"no layouts/ in {_PACKAGE} or beside it: the installation is not whole")


def simulated_engine() -> Path:
    """The simulated engine, a program to be run by path."""
    path = _PACKAGE / "demo" / "simulated_engine.py"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: the installation is not whole")
    return path


def simulated_kinds() -> tuple[str, ...]:
    """The engines that can be simulated, by the names of their files in engines/."""
    return tuple(
        sorted(path.stem.removeprefix("voice_") for path in (_PACKAGE / "demo" / "simulated").glob("voice_*.py"))
    )
