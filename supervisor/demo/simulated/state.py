"""What the main thread and the request handlers share: the phase, the counters, who is being served."""

from __future__ import annotations

import threading
import time

MOST_TOKENS = 894321
"""What the KV cache has room for."""
PROMPT_TOKENS, ANSWER_TOKENS = 8000, 220
"""Of one request of the traffic."""

# loading → warming → up → (sick | draining); "sick" is an engine that lives and answers 503.
PHASES = ("loading", "warming", "up", "sick", "draining")


class State:
    def __init__(self) -> None:
        self.phase = "loading"
        self.began = time.time()
        self.over = threading.Event()  # the process is about to end: hanging handlers let go
        self.hangs = False  # no token comes any more, and everything else goes on
        self._lock = threading.Lock()
        self.busy = 0  # requests with a body, until their last byte is sent
        self.running = 0
        self.requests = 0
        self.aborted = 0
        self.prompt_tokens = 0
        self.tokens = 0
        self.seconds = 0.0
        self.first_token_s = 0.0
        self.load_running = 0  # the traffic's, see traffic.py
        self.load_queued = 0
        self.load_tokens_s = 0.0
        self._load_requests = 0.0
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

    @property
    def used_tokens(self) -> int:
        """In the KV cache."""
        return self.running * 64 + self.load_running * (PROMPT_TOKENS + ANSWER_TOKENS // 2)

    def load(self, running: int, queued: int, tokens_s: float) -> None:
        """How much the traffic asks for now."""
        with self._lock:
            self.load_running, self.load_queued, self.load_tokens_s = running, queued, tokens_s

    def count_load(self, prompt_tokens: int, tokens: int, requests: float) -> None:
        """What it was given since the last time."""
        with self._lock:
            self.prompt_tokens += prompt_tokens
            self.tokens += tokens
            self._load_requests += requests
            whole = int(self._load_requests)
            self._load_requests -= whole
            self.requests += whole
            self.seconds += whole * 7.5
            self.first_token_s += whole * 0.4

    def abort(self) -> None:
        """The client hung up, or the engine failed it."""
        with self._lock:
            self.running -= 1
            self.aborted += 1
