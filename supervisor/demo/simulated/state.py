"""What the main thread and the request handlers share: the phase, the counters, who is being served."""

from __future__ import annotations

import threading
import time

# loading → warming → up → (sick | draining); "sick" is an engine that lives and answers 503.
PHASES = ("loading", "warming", "up", "sick", "draining")


class State:
    def __init__(self) -> None:
        self.phase = "loading"
        self.began = time.time()
        self.over = threading.Event()  # the process is about to end: hanging handlers let go
        self._lock = threading.Lock()
        self.busy = 0  # requests with a body, until their last byte is sent
        self.running = 0
        self.requests = 0
        self.aborted = 0
        self.prompt_tokens = 0
        self.tokens = 0
        self.seconds = 0.0
        self.first_token_s = 0.0
        self._health_answers = 0

    def first_health(self) -> bool:
        """Whether this is the first 200 of health (the fault health-once)."""
        with self._lock:
            self._health_answers += 1
            return self._health_answers == 1

    def enter(self) -> None:
        with self._lock:
            self.busy += 1

    def leave(self) -> None:
        with self._lock:
            self.busy -= 1

    def begin(self) -> None:
        with self._lock:
            self.running += 1

    def finish(self, prompt_tokens: int, tokens: int, seconds: float, first_token_s: float) -> None:
        with self._lock:
            self.running -= 1
            self.requests += 1
            self.prompt_tokens += prompt_tokens
            self.tokens += tokens
            self.seconds += seconds
            self.first_token_s += first_token_s

    def abort(self) -> None:
        """The client hung up, or the engine failed it."""
        with self._lock:
            self.running -= 1
            self.aborted += 1
