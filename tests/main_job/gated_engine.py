"""The simulated engine with gates: it stays in a phase until the test lets it on.

    python gated_engine.py sglang --port 30000 --gate FOLDER …

It loads until FOLDER/loading exists, and answers 503 until FOLDER/warming does: a test that cuts a link ten times in a
phase must not race the clock. Its flood of log (`--sim-log-rate`) is nearly all letters of three and four bytes, so
that a cut falls inside of one.
"""

from __future__ import annotations

import os
import sys
import time

from supervisor.demo.simulated import life, output
from supervisor.demo.simulated.options import parse
from supervisor.demo.simulated.voice import Script

_LETTERS = "🙂法🚀国€🧪的🦙" * 60
_LOOK_EVERY_S = 0.02


class _Gated(life.Life):
    def __init__(self, words: list[str], folder: str) -> None:
        super().__init__(parse(words))
        self._folder = folder

    def _play(self, script: Script, seconds: float) -> None:
        super()._play(script, seconds)
        while not os.path.exists(os.path.join(self._folder, self.state.phase)):
            self._pause(time.monotonic() + _LOOK_EVERY_S)


def _main() -> None:
    words = sys.argv[1:]
    at = words.index("--gate")
    folder = words[at + 1]
    line = f"request {{c}}: prompt '{_LETTERS}' ({{b}} tokens), slot {{a}}"
    output._FLOOD = (line, line, line, line, line, line)
    _Gated(words[:at] + words[at + 2 :], folder).run()


if __name__ == "__main__":
    _main()
