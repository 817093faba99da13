"""What an engine is, as data: endpoints, ready rule, log lines, flags. Structs only; `engines/*.toml` fill them.

No engine's name stands here or in any other code. A rule is given with sample lines, which a test runs.
"""

from __future__ import annotations

from msgspec import Struct, field


class Flags(Struct, frozen=True, forbid_unknown_fields=True):
    """Which words of the launch command tell what. Names of options with their dashes, in the order of trust."""

    port: tuple[str, ...] = ("--port",)
    host: tuple[str, ...] = ("--host",)
    model: tuple[str, ...] = ()
    served_model_name: tuple[str, ...] = ()
    tp: tuple[str, ...] = ()
    api_key: tuple[str, ...] = ("--api-key",)
    positional_after: tuple[str, ...] = ()
    """The first word that is no option after one of these words is the model (`serve MODEL`)."""


class BodyRule(Struct, frozen=True, forbid_unknown_fields=True):
    """Where a 200 is not enough: a string field of the JSON body, and what its values mean."""

    field: str
    ready: tuple[str, ...] = ()
    not_yet: tuple[str, ...] = ()


class Health(Struct, frozen=True, forbid_unknown_fields=True):
    """The health endpoint and how its answers are read."""

    path: str = "/health"
    ready: tuple[int, ...] = (200,)
    not_yet: tuple[int, ...] = (503,)
    body: BodyRule | None = None
    timeout_s: float = 30.0
    """Above the engine's own limit: a probe that gives up early piles up inside the engine."""
    serving_interval_s: float = 5.0
    """Pace once it serves; a look may cost the engine a generated token."""


class Completion(Struct, frozen=True, forbid_unknown_fields=True):
    """The generation that proves `serving`: OpenAI's completions interface unless the engine says otherwise."""

    path: str = "/v1/completions"
    max_tokens: int = 8


class Sample(Struct, frozen=True, forbid_unknown_fields=True):
    """A real line and what the pattern must find in it."""

    line: str
    done: int | None = None
    total: int | None = None
    percent: float | None = None


class Stage(Struct, frozen=True, forbid_unknown_fields=True):
    """A stage of the load. The pattern's named groups `done`, `total`, `percent` give its progress."""

    name: str
    pattern: str
    samples: tuple[Sample, ...]
    """At least one: a rule without a sample is not tested."""


class Line(Struct, frozen=True, forbid_unknown_fields=True):
    """A line with one meaning: ready, fatal, error or noise."""

    pattern: str
    samples: tuple[str, ...]
    why: str = ""


class Engine(Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that is known of one engine."""

    name: str
    title: str
    default_port: int | None = None
    default_host: str = "127.0.0.1"
    detect: tuple[str, ...] = ()
    """Regular expressions over the joined command."""
    flags: Flags = Flags()
    health: Health = Health()
    models_path: str | None = None
    completion: Completion | None = None
    grace_s: float = 30.0
    """From the first signal of a stop to KILL."""
    titles: tuple[str, ...] = ()
    """Regular expressions over the titles of its processes (command line or what they call themselves), so that a
    left-over is known for what it is; see `core/holders.py`."""
    stages: tuple[Stage, ...] = ()
    ready_lines: tuple[Line, ...] = ()
    fatal_lines: tuple[Line, ...] = ()
    """Lines that prove that the launch will never serve, though its process may live on."""
    error_lines: tuple[Line, ...] = ()
    noise_lines: tuple[Line, ...] = ()
    notes: tuple[str, ...] = field(default_factory=tuple)
