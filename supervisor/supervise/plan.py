"""What one profile wants, in the terms of a session: made from a profile before the node is asked, settled after.

Words may hold variables of the node, so port, model and URL are only known once the node has expanded them.
"""

from __future__ import annotations

from msgspec import Struct

from supervisor.core import url as urls
from supervisor.core.command import Learnt, Secret, learn
from supervisor.core.engine import Engine
from supervisor.core.preflight import Launching
from supervisor.core.url import Url
from supervisor.errors import UsageError

DEFAULT_PROMPT = "The capital of France is"

WireWord = list[list[str]]
"""A word as the node expands it: [["lit", text] | ["var", NAME] | ["home"], …]."""


class VerifyPlan(Struct, frozen=True, kw_only=True):
    """The generation that proves `serving`."""

    prompt: str = DEFAULT_PROMPT
    expect: str | None = None
    timeout_s: float = 120.0
    tries: int = 3
    max_tokens: int = 8


class Plan(Struct, frozen=True, kw_only=True):
    """One launch, as the profile gives it."""

    key: str
    name: str
    """What the user calls it on the command line, for advice that can be typed."""
    engine: Engine
    words: tuple[WireWord, ...]
    env: dict[str, str]
    cwd: WireWord
    log: WireWord | None = None
    log_from: WireWord | None = None
    login_env: bool = False
    detaches: bool = False
    url: Url | None = None
    """The health URL of the profile; None: from the command and the engine."""
    owner_any: bool = False
    model: str | None = None
    verify: VerifyPlan | None = None
    api_key: Secret | None = None
    grace_s: float = 30.0
    python: str | None = None
    state_dir: str | None = None
    secrets: tuple[Secret, ...] = ()

    @property
    def command_python(self) -> str | None:
        """The command's own interpreter, where its first word is one: it is a Python that the node surely has."""
        word = self.words[0]
        if any(part[0] == "var" for part in word):
            return None
        text = "".join("~" if part[0] == "home" else part[1] for part in word)
        return text if text.rpartition("/")[2].startswith("python") else None


class Settled(Struct, frozen=True, kw_only=True):
    """The same after the node has expanded the words."""

    argv: tuple[str, ...]
    cwd: str
    log: str | None
    log_from: str | None
    url: Url
    bind_host: str
    port: int
    expected_models: tuple[str, ...]
    learnt: Learnt

    def launching(self, engine: Engine) -> Launching:
        """What preflight's rules need of it."""
        return Launching(argv=self.argv, model_options=engine.flags.model, port=self.port, bind_host=self.bind_host)


def settle(plan: Plan, argv: list[str], cwd: str, log: str | None, log_from: str | None) -> Settled:
    """Read the expanded command. Raises `UsageError` where no port can be known."""
    engine = plan.engine
    try:
        learnt = learn(argv, engine.flags)
    except ValueError as error:
        raise UsageError(f"launch.command: {error}") from error
    bind_host = learnt.host or engine.default_host
    url = plan.url or _url_of(learnt, engine)
    models = (plan.model,) if plan.model else tuple(filter(None, (learnt.served_model_name,)))
    if not models and learnt.model is not None:
        models = (learnt.model,)
    return Settled(
        argv=tuple(argv),
        cwd=cwd,
        log=log,
        log_from=log_from,
        url=url,
        bind_host=bind_host,
        port=learnt.port or url.port,
        expected_models=models,
        learnt=learnt,
    )


def _url_of(learnt: Learnt, engine: Engine) -> Url:
    port = learnt.node_port(engine.default_port)
    if port is None:
        raise UsageError(
            "the port is not known: the command has no --port and the engine has no default; "
            'give it: [ready] url = "http://localhost:PORT/health"'
        )
    host = learnt.host or "localhost"
    if learnt.published or host in urls.WILDCARDS:
        host = "localhost"  # a wildcard, or a host inside a container: from the node it is the loopback
    return Url("http", host, port, engine.health.path)
