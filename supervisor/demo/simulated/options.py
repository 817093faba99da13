"""The command line of the simulated engine: flags that look real, `--sim-*` flags, and the faults by name.

It decides nothing about behaviour; life.py, web.py and workers.py read the options. Durations are seconds.
"""

from __future__ import annotations

import argparse
import os
import signal

ENGINES = ("sglang", "vllm", "llamacpp")

# port, load_s, warm_s, health_delay_s. A whole start takes about six seconds.
_DEFAULTS = {"sglang": (30000, 3.0, 2.0, 1.0), "vllm": (8000, 5.0, 0.0, 0.0), "llamacpp": (8080, 4.0, 1.0, 0.0)}

# name → (what may follow after a colon, its default, what happens)
FAULTS = {
    "die-at-weights": ("", None, "a damaged weight file (SGLang), no GPU memory (vLLM), a truncated GGUF (llama.cpp)"),
    "die-at-graphs": ("", None, "SGLang: AttributeError of EAGLEWorkerV2; vLLM: no kernel image; llama.cpp: no memory"),
    "die-at-warmup": (
        "",
        None,
        "SGLang: illegal memory access; vLLM: ninja is missing; llama.cpp: GGML_ASSERT, SIGABRT",
    ),
    "linger": ("", None, "after a die-* fault its children are dead, and it waits for ever instead of ending"),
    "exit-code": ("N", None, "ends with N: amid the weights and in silence, or how a die-* fault ends"),
    "signal": ("NAME", None, "the same by a signal, such as signal:SIGSEGV"),
    "exit-0-on-death": ("S", 1.0, "S after ready its core dies: 503 for a moment, then exit status 0"),
    "hang-at-weights": ("", None, "silent for ever amid the weights"),
    "hang-health": ("", None, "health requests are accepted and never answered"),
    "hang-completion": ("", None, "completions are accepted and never answered; health stays as it is"),
    "hang-core-after": (
        "S",
        2.0,
        "serves, then no token ever comes again from S after ready on; health stays as it is",
    ),
    "503-for-ever": ("", None, "HTTP comes up and health stays 503"),
    "ignore-term": ("", None, "SIGTERM is ignored, by the workers too"),
    "sigkill-on-term": ("", None, "drains on SIGTERM, then ends by its own SIGKILL, as some SGLang versions do"),
    "orphan-workers": ("S", 1.0, "S after ready it dies by SIGKILL; its workers live on, in sessions of their own"),
    "setsid-workers": ("", None, "workers in sessions of their own, ended as usual"),
    "unauthorized": ("", None, "completions answer 401"),
    "health-401": ("", None, "health answers 401"),
    "wrong-model": ("", None, "the model list names another model"),
    "garbage-completion": ("", None, "completions answer 200 with an empty text"),
    "gibberish-completion": ("", None, "completions answer 200 with exclamation marks"),
    "completion-500": ("", None, "completions answer 500"),
    "health-once": ("", None, "health is 200 once and 503 ever after"),
    "sick-after": ("S", 2.0, "serves, then health is 503 from S after ready on"),
    "die-after": ("S", 2.0, "serves, then dies with a traceback S after ready (SGLang -9, vLLM 1, llama.cpp SIGABRT)"),
    "port-taken-late": ("", None, "its port is taken when it comes to bind it"),
    "gpu-lost": ("", None, "amid the weights a GPU falls off the bus (seen with --sim-gpus), and the rank on it fails"),
}


class Options(argparse.Namespace):
    """What the command line said. The attributes are filled by argparse and by `parse`."""

    engine: str
    model_path: str
    served_model_name: str
    host: str
    port: int
    tp: int
    api_key: str
    metrics: bool
    speed: float
    load_s: float
    warm_s: float
    health_delay_s: float
    health_timeout_s: float
    completion_delay_s: float
    log_rate: float
    log_lines: int
    workers: int
    model: str
    cause: str
    shards: int
    orphan_life_s: int
    flip_file: str
    gpus: str
    card_gb: float
    weights_gb: float
    kv_gb: float
    traffic: int
    while_file: str
    seed: int
    faults: dict[str, str | float | None]

    def has(self, fault: str) -> bool:
        return fault in self.faults

    def after_s(self, fault: str) -> float:
        """The seconds that a fault such as sick-after:S was given."""
        value = self.faults[fault]
        assert isinstance(value, float)
        return value


def _parser() -> argparse.ArgumentParser:
    epilog = "faults (--sim-fault, repeatable or with commas):\n" + "\n".join(
        f"  {name + (':' + value if value else ''):22} {text}" for name, (value, _, text) in FAULTS.items()
    )
    parser = argparse.ArgumentParser(
        prog="simulated_engine.py",
        usage="%(prog)s {sglang,vllm,llamacpp} [serve] [MODEL] [flags of the engine] [--sim-* flags]",
        description="Behaves as a real inference server does, without a model. Unknown flags are ignored.",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--model-path", "--model", "-m", dest="model_path", default="")
    add("--served-model-name", "--alias", "-a", default="")
    add("--host", default="127.0.0.1")
    add("--port", type=int)
    add("--tp", "--tp-size", "--tensor-parallel-size", "-tp", type=int, default=1)
    add("--api-key", default="")
    add("--metrics", "--enable-metrics", dest="metrics", action="store_true")
    sim = parser.add_argument_group("simulation (seconds)").add_argument
    sim("--sim-speed", dest="speed", type=float, default=1.0, help="start-up and shutdown pauses are divided by it")
    sim("--sim-load", dest="load_s", type=float, help="while the weights load (llama.cpp answers 503 meanwhile)")
    sim("--sim-warm", dest="warm_s", type=float, help="the 503 phase after it")
    sim("--sim-health-delay", dest="health_delay_s", type=float, help="a healthy /health takes this long (real time)")
    sim("--sim-health-timeout", dest="health_timeout_s", type=float, default=20.0, help="SGLang's health gives up")
    sim("--sim-completion-delay", dest="completion_delay_s", type=float, default=0.0, help="(real time)")
    sim("--sim-log-rate", dest="log_rate", type=float, default=0.0, help="bytes of log a second, from the start")
    sim("--sim-log-lines", dest="log_lines", type=int, default=0, help="lines of log at once, at the start")
    sim("--sim-workers", dest="workers", type=int, help="worker processes (default: --tp)")
    sim("--sim-model", dest="model", default="", help="the name that the model list reports")
    sim("--sim-cause", dest="cause", default="", help="the root line of a death, instead of the usual one")
    sim("--sim-shards", dest="shards", type=int, default=64, help="weight files")
    sim("--sim-orphan-life", dest="orphan_life_s", type=int, default=600, help="orphans end by themselves after it")
    sim("--sim-flip-file", dest="flip_file", default="", help="gets 'MONOTONIC WALL' of the first possible 200")
    sim("--sim-gpus", dest="gpus", default="", metavar="FOLDER", help="hold memory of simulated GPUs, see gpus.py")
    sim("--sim-card", dest="card_gb", type=float, default=139.16, help="GiB of an idle GPU, for the figures in the log")
    sim("--sim-weights", dest="weights_gb", type=float, default=68.72, help="GiB of weights a rank")
    sim("--sim-kv", dest="kv_gb", type=float, default=58.53, help="GiB of KV cache a rank")
    sim("--sim-traffic", dest="traffic", type=int, default=0, help="clients that ask while it serves, see traffic.py")
    sim("--sim-while", dest="while_file", default="", metavar="FILE", help="ends when nobody holds a lock on it")
    sim("--sim-seed", dest="seed", type=int, default=0)
    sim("--sim-fault", dest="fault", action="append", default=[], metavar="NAME[:VALUE]")
    return parser


def _fault(parser: argparse.ArgumentParser, text: str) -> tuple[str, str | float | None]:
    name, _, given = text.partition(":")
    if name not in FAULTS:
        parser.error(f"unknown fault {name!r}; the faults are: {', '.join(FAULTS)}")
    kind, default, _ = FAULTS[name]
    if not given and default is not None:
        return name, default
    if bool(given) != bool(kind):
        parser.error(f"the fault {name} {'needs :' + kind if kind else 'takes no value'}")
    try:
        if kind == "S":
            return name, float(given)
        if kind == "N":
            return name, str(int(given) & 0xFF)
        if kind == "NAME":
            short = given.upper()
            return name, signal.Signals[short if short.startswith("SIG") else "SIG" + short].name
    except (ValueError, KeyError):
        parser.error(f"{text}: not a {kind}")
    return name, None


def parse(argv: list[str]) -> Options:
    """Options of a command line; ends the program with status 2 when it is wrong."""
    parser = _parser()
    if argv and argv[0] in ("-h", "--help"):
        parser.print_help()
        raise SystemExit(0)
    if not argv or argv[0] not in ENGINES:
        parser.error(f"the first word is the engine: {', '.join(ENGINES)}")
    # Taken off by hand: argparse would take the value of an unknown flag (--dtype auto) for a positional model.
    rest = argv[1:]
    if rest[:1] == ["serve"]:
        rest = rest[1:]
    model = rest[0] if rest and not rest[0].startswith("-") else ""
    options, _ = parser.parse_known_args(rest[1:] if model else rest, Options())
    options.engine = argv[0]
    options.model_path = model or options.model_path or "simulated/model"
    port, load_s, warm_s, delay_s = _DEFAULTS[options.engine]
    options.port = port if options.port is None else options.port
    options.load_s = load_s if options.load_s is None else options.load_s
    options.warm_s = warm_s if options.warm_s is None else options.warm_s
    options.health_delay_s = delay_s if options.health_delay_s is None else options.health_delay_s
    options.workers = options.tp if options.workers is None else options.workers
    if options.speed <= 0 or options.workers < 1 or options.shards < 1:
        parser.error("--sim-speed, --sim-workers and --sim-shards are above 0")
    options.faults = dict(_fault(parser, text) for group in options.fault for text in group.split(","))
    return options


def served_model(options: Options) -> str:
    """The name that the model list reports."""
    if options.model:
        return options.model
    if options.has("wrong-model"):
        return "somebody-elses/model"
    if options.served_model_name:
        return options.served_model_name
    return os.path.basename(options.model_path) if options.engine == "llamacpp" else options.model_path
