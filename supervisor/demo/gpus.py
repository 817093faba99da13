"""The simulated GPUs of the demonstration's own node: their folder, and the module that its session sends there.

The folder is private to one demonstration, and named in the text of the module that is sent; nothing switches the
module on but `Session(nvml_source=…)`, which the demonstration alone passes.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from pathlib import Path

from supervisor.demo import simulated_nvml

COUNT = simulated_nvml.COUNT
CARD_GIB = (simulated_nvml.TOTAL_BYTES - simulated_nvml.RESERVED_BYTES - simulated_nvml.IDLE_BYTES) / (1 << 30)
"""What an idle one has to give."""
_PLACE = 'FOLDER = ""\n'
_FALL = f"FALL_S = {simulated_nvml.FALL_S!r}\n"


class SimulatedGpus:
    """The folder: device files, what processes say that they hold, what has ended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.devices = folder / "dev"
        for path in (folder, self.devices, folder / "held", folder / "died"):
            path.mkdir(mode=0o700)
        for name in (*(f"nvidia{index}" for index in range(COUNT)), "nvidiactl", "nvidia-uvm", "kmsg"):
            (self.devices / name).touch(mode=0o600)

    @property
    def environment(self) -> Mapping[str, str]:
        """Of every command on the node: where it looks for device files."""
        return {"INFERENCE_SUPERVISOR_DEV": str(self.devices)}

    def nvml_source(self, *, fall_s: float = simulated_nvml.FALL_S) -> str:
        """The module's text for this folder, packed as nvidia-ml-py's is packed for its way.

        `fall_s`: how long the memory of what has ended takes to be free.
        """
        text = Path(simulated_nvml.__file__).read_text(encoding="utf-8")
        for line, own in ((_PLACE, f"FOLDER = {str(self.folder)!r}\n"), (_FALL, f"FALL_S = {fall_s!r}\n")):
            assert text.count(line) == 1, line
            text = text.replace(line, own)
        return base64.b64encode(zlib.compress(text.encode(), 9)).decode("ascii")
