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
    generates: bool = False
    """A ready answer proves that the engine generates: it makes a token for each. Where it does not, an engine that
    hangs answers 200 for ever, and has to be asked for a generation now and then."""


class Completion(Struct, frozen=True, forbid_unknown_fields=True):
    """The generation that proves `serving`: OpenAI's completions interface unless the engine says otherwise."""

    path: str = "/v1/completions"
    max_tokens: int = 8


class MemoryRules(Struct, frozen=True, forbid_unknown_fields=True):
    """What a launch will do with GPUs, as far as its command tells. Only what an engine's own source says stands here.

    Where several words are listed, `--flag` means the flag, `--flag=value` the flag with that value, `--flag*` every
    flag that begins so.
    """

    uses: str = ""
    """`first`: the first tp × pp × dp of the visible GPUs; `all`: every visible one; empty: not known."""
    pp: tuple[str, ...] = ()
    dp: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    """A further factor of how many GPUs it takes."""
    dp_inside: tuple[str, ...] = ()
    """With one of these the data-parallel ranks take no GPUs of their own."""
    nodes: tuple[str, ...] = ()
    """Several nodes, or somebody else places the ranks: how many GPUs of this node it takes is not known."""
    shift: tuple[str, ...] = ()
    """Others than the first of the visible GPUs are taken."""
    cpu: tuple[str, ...] = ()
    """No GPU is taken at all."""
    unsure_env: tuple[str, ...] = ()
    """Variables with which the command alone does not tell where it runs."""
    fraction: tuple[str, ...] = ()
    """The flag that gives the share of a GPU's memory that it wants for itself."""
    fraction_default: float | None = None
    """Without the flag; the least that any version has, where versions differ."""
    rule: str = ""
    """`free-below-fraction`: it ends at its start where free < fraction × total. Empty: it has no such rule."""
    rule_unsure: tuple[str, ...] = ()
    """With one of these the rule may not hold."""
    rule_unsure_env: tuple[str, ...] = ()
    """Variables with which another version's rules may hold."""
    shards: bool = False
    """The weights are spread over tp × pp GPUs, in equal parts over tp."""
    unsure_flags: tuple[str, ...] = ()
    """With one of these the weights in the GPUs may be fewer than those on the disk."""


class MetricsSample(Struct, frozen=True, forbid_unknown_fields=True):
    """A real answer (cut down) and what is read of it; `generated` and `prompt` are the sums, before any rate."""

    text: str
    running: int | None = None
    queued: int | None = None
    generated: float | None = None
    prompt: float | None = None
    cache: float | None = None


class MetricsRules(Struct, frozen=True, forbid_unknown_fields=True):
    """Where an engine tells of its load, in the text format of Prometheus, and by which names.

    Each list holds expressions of `core/prometheus.py`, the best first: the first one that the engine tells counts.
    """

    path: str = "/metrics"
    flag: str = ""
    """Without it there are no metrics; empty where they are always there."""
    running: tuple[str, ...] = ()
    queued: tuple[str, ...] = ()
    generated: tuple[str, ...] = ()
    """Tokens that were generated; a gauge of the engine's own is in tokens a second."""
    prompt: tuple[str, ...] = ()
    cache: tuple[str, ...] = ()
    """The share of the KV cache in use, 0 to 1."""
    copies: tuple[str, ...] = ()
    """Labels of which every value tells the same (ranks that compute one request together). Over all other labels it
    is added up."""
    parts: tuple[str, ...] = ()
    """Labels with which a series is a part of the one without."""
    samples: tuple[MetricsSample, ...] = ()

    def __post_init__(self) -> None:
        from supervisor.core import prometheus  # late: a wait for a plain URL reads no metrics

        for text in (*self.running, *self.queued, *self.generated, *self.prompt, *self.cache):
            prometheus.expression(text)
        if not self.path.startswith("/"):
            raise ValueError(f"a path begins with /: {self.path!r}")


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
    literals: tuple[str, ...] = ()
    """Every line that the pattern fits has one of these in it, in this very case. Printable ASCII. Most of a log has
    none of them, and is passed over without being looked at line by line."""


class LoadStage(Struct, frozen=True, forbid_unknown_fields=True):
    """A stage's place in the whole load, for an estimate of what is left where no earlier run tells it."""

    stage: str
    """The name of a stage."""
    typical_s: float
    """What it takes in the middle of recorded starts, those that skip it included."""


class Line(Struct, frozen=True, forbid_unknown_fields=True):
    """A line with one meaning: ready, serving, noise or header."""

    pattern: str
    samples: tuple[str, ...]
    why: str = ""
    literals: tuple[str, ...] = ()
    """As a stage's. Needed by every rule that the lines of a flowing log are asked for."""
    death: bool = False
    """Of noise and headers: this line says that a process of the server dies or has died."""
    request: bool = False
    """Of headers: the traceback that follows concerns one request, or nobody, and the server lives on."""
    chain: bool = False
    """Of noise: it joins two tracebacks of one exception."""
    certain: bool = False
    """As a root's: a server whose log has this line will never serve."""
    recorded: str = ""
    """As a root's."""
    stop: bool = False
    """Of noise: somebody asked it to stop. What comes after is no failure."""


class Root(Struct, frozen=True, forbid_unknown_fields=True):
    """A line that names why a launch or a server died.

    `cause` and `advice` are sentences for people; `{name}` in them is what the pattern's named group found.
    """

    pattern: str
    literals: tuple[str, ...]
    """As a stage's: every line that the pattern fits has one of these in it."""
    category: str
    """A family, see `core/families.py`."""
    detail: str
    """The finer name, free."""
    cause: str
    advice: str
    samples: tuple[str, ...]
    not_samples: tuple[str, ...] = ()
    """Lines that look like it and are none."""
    where: str = ""
    """A pattern over the frames of the traceback that this line ends, the innermost first, `file.py:function` each on
    a line. The rule fits only where one of the frames does; a line without a traceback has no frames."""
    death: bool = False
    """As a line's: it says that a process of the server has died."""
    outcome: bool = False
    """It tells how a process ended and not why: an exception before it, which nobody caught, comes first."""
    by_words: bool = False
    """It fits whatever an engine calls an error: where the message has words of a family, that is its category."""
    deadly: bool = False
    """Where the server has served before, an error may be that of one request: this one never is."""
    rank: int = 50
    """How near to the cause such a line stands, 0 to 100: a root that names the culprit stands above one that tells
    where it showed (`unhandled system error`), whichever came first."""
    certain: bool = False
    """Once this stands in the log the server will never serve, whatever its processes do: a wait ends at once."""
    recorded: str = ""
    """Which recorded log backs `certain`. An accepted answer after such a line is a failed test."""


class Common(Struct, frozen=True, forbid_unknown_fields=True):
    """What the logs of all engines have in common: torch, CUDA, NCCL, Python, the system."""

    noise_lines: tuple[Line, ...] = ()
    headers: tuple[Line, ...] = ()
    roots: tuple[Root, ...] = ()


class LogSign(Struct, frozen=True, forbid_unknown_fields=True):
    """Words by which a log is known for this engine's. Each word counts once, however often it stands there."""

    literals: tuple[str, ...]
    weight: int = 1
    """What the engine alone prints weighs more than what others quote of it (a path in a traceback, a package)."""


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
    memory: MemoryRules = MemoryRules()
    metrics: MetricsRules | None = None
    """None: nothing is known of its metrics, so nothing is asked."""
    grace_s: float = 30.0
    """From the first signal of a stop to KILL."""
    titles: tuple[str, ...] = ()
    """Regular expressions over the titles of its processes (command line or what they call themselves), so that a
    left-over is known for what it is; see `core/holders.py`."""
    load: tuple[LoadStage, ...] = ()
    """The stages in their usual order."""
    stages: tuple[Stage, ...] = ()
    ready_lines: tuple[Line, ...] = ()
    serving_lines: tuple[Line, ...] = ()
    """Lines that only a server which takes requests writes. Nobody looks for them while a log flows."""
    noise_lines: tuple[Line, ...] = ()
    """Lines that look like errors and never are the cause; `why` tells what they are, for what was ruled out."""
    headers: tuple[Line, ...] = ()
    """Lines after which the cause follows, as a traceback or as text of the same process."""
    roots: tuple[Root, ...] = ()
    """The causes that are known by their line. What all engines have in common is in `known/roots.toml`."""
    log_signs: tuple[LogSign, ...] = ()
    notes: tuple[str, ...] = field(default_factory=tuple)
