"""The file in which the launches of one profile on one node are remembered, on the operator's side.

Small, 0600, replaced as a whole. A damaged one is put aside under another name and told, never lost in silence; a
folder that cannot be written costs the estimate of the next launch and nothing else.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from pathlib import Path

from supervisor.core.history import MOST_BYTES, History, RunRecord, decode, encode


def folder() -> Path | None:
    """Where they lie: below ${XDG_STATE_HOME:-~/.local/state}. None where this user has no home."""
    for base in (os.environ.get("XDG_STATE_HOME") or "", os.path.expanduser("~/.local/state")):
        if os.path.isabs(base):
            return Path(base) / "inference-supervisor" / "history"
    return None


class HistoryFile:
    """One profile's on one node.

    Args:
        folder: None remembers nothing.
        node: as the user calls it.
    """

    def __init__(self, folder: Path | None, node: str, key: str) -> None:
        self.path = None if folder is None else folder / _name(node) / f"{_name(key)}.json"
        self.problem = ""
        """Why something could not be read or kept, in words; empty where all is well."""

    def read(self) -> History:
        """What is remembered; nothing where there is no file, or where it is damaged."""
        if self.path is None:
            return History()
        try:
            with open(self.path, "rb") as file:
                data = file.read(MOST_BYTES + 1)
            if len(data) > MOST_BYTES:
                raise ValueError(f"it has more than {MOST_BYTES >> 20} MiB")
            return decode(data)
        except FileNotFoundError:
            return History()
        except OSError as error:
            self.problem = f"the earlier launches cannot be read: {self.path}: {error.strerror}"
        except ValueError as error:
            self._put_aside(str(error))
        return History()

    def add(self, record: RunRecord) -> None:
        """Remember one more launch."""
        if self.path is None:
            return
        history = self.read().with_run(record)
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=self.path.parent, prefix=".new-")  # 0600
            try:
                with open(descriptor, "wb") as file:
                    file.write(encode(history))
                os.replace(name, self.path)
            except OSError:
                os.unlink(name)
                raise
        except OSError as error:
            self.problem = f"this launch cannot be remembered: {self.path}: {error.strerror}"

    def _put_aside(self, why: str) -> None:
        assert self.path is not None
        aside = self.path.with_suffix(".damaged")
        number = 1
        while aside.exists():
            number += 1
            aside = self.path.with_suffix(f".damaged{number}")
        try:
            os.rename(self.path, aside)
        except OSError as error:
            self.problem = f"the earlier launches cannot be read ({why}), nor put aside: {self.path}: {error.strerror}"
        else:
            self.problem = f"the record of earlier launches was damaged ({why}) and lies in {aside} now"


def _name(text: str) -> str:
    """A file's name that tells whose it is, and is no other's."""
    plain = re.sub(r"[^A-Za-z0-9._@-]+", "_", text).strip(".")[:60] or "_"
    return plain if plain == text else f"{plain}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
