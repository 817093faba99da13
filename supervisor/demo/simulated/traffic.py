"""The load of a simulated engine while it serves: clients come and go, so that its metrics and its GPUs move.

No request is made: the figures are those that so many clients would make. Whoever really asks is counted beside them.
"""

from __future__ import annotations

import math
import random
import threading
import time

from .options import Options
from .state import ANSWER_TOKENS, PROMPT_TOKENS, State
from .voice import Voice

_TICK_S = 0.5
_SPEAK_EVERY_S = 2.0
_PERIOD_S = 36.0
_TOKENS_S = 34.0
"""Of one request alone; many share the GPUs."""


class Traffic:
    """So many clients, from the first 200 on."""

    def __init__(self, options: Options, state: State, voice: Voice) -> None:
        self._options = options
        self._state = state
        self._voice = voice
        self._dice = random.Random(options.seed)
        self._began = 0.0
        self._owed = 0.0
        self._spoke_at = 0.0

    def start(self) -> None:
        """Goes on until the process ends."""
        if self._options.traffic > 0:
            threading.Thread(target=self._run, name="traffic", daemon=True).start()

    def _run(self) -> None:
        while not self._state.over.wait(_TICK_S):
            if self._state.phase == "up":
                self._tick()
            elif self._began:
                self._state.load(0, 0, 0.0)
                self._voice.busy(0)
                self._began = 0.0

    def _tick(self) -> None:
        now = time.monotonic()
        if not self._began:
            self._began = self._spoke_at = now
        wave = math.sin((now - self._began) / _PERIOD_S * math.tau - 0.9)
        grown = min(1.0, (now - self._began) / 3.0)
        clients = self._options.traffic * grown * (0.55 + 0.4 * wave) + self._dice.gauss(0, 1.2)
        slots = max(1, self._options.traffic * 3 // 4)
        running = max(0, min(slots, round(clients)))
        queued = max(0, round(clients) - running)
        tokens_s = _TOKENS_S * running**0.82 * self._dice.uniform(0.96, 1.04)
        self._owed += tokens_s * _TICK_S
        tokens, self._owed = int(self._owed), self._owed % 1.0
        done = tokens / ANSWER_TOKENS
        self._state.load(running, queued, tokens_s)
        self._state.count_load(int(done * PROMPT_TOKENS), tokens, done)
        self._voice.busy(min(97, 28 + 3 * running) if running else 0)
        if now - self._spoke_at >= _SPEAK_EVERY_S:
            self._spoke_at = now
            self._voice.batch(running, queued, tokens_s, self._state.used_tokens)
