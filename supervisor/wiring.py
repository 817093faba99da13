"""From a profile to a session's plan: engine, defaults, keys. Pure but for the operator's environment (variables that
the profile names: keys, a webhook, those in the command of [notify])."""

from __future__ import annotations

import os

from supervisor import launch_words, notify_table
from supervisor.core import url as urls
from supervisor.core import words as w
from supervisor.core.command import Secret
from supervisor.core.engine import Engine
from supervisor.engines import loader
from supervisor.errors import ProfileError
from supervisor.profile import Profile
from supervisor.supervise.notify import NotifyPlan
from supervisor.supervise.plan import DEFAULT_PROMPT, Plan, VerifyPlan, WireWord

DEFAULT_VERIFY_TIMEOUT_S = 120.0


def plan_of(profile: Profile, typed: str) -> Plan:
    """What a profile wants. `typed` is how the user named it. Raises `ProfileError`."""
    engine = _engine(profile)
    ready = profile.ready
    verify = _verify(profile, engine)
    return Plan(
        key=profile.name,
        name=typed,
        engine=engine,
        words=tuple(w.to_wire(word) for word in profile.words),
        env=dict(profile.launch.env),
        cwd=_path_word(profile.launch.cwd) or [["home"]],
        log=_path_word(profile.launch.log),
        log_from=_path_word(profile.launch.log_from),
        login_env=profile.launch.login_env,
        detaches=profile.launch.detaches,
        url=urls.parse(ready.url) if ready.url is not None else None,
        owner_any=ready.owner == "any",
        model=ready.model,
        verify=verify,
        api_key=_api_key(profile),
        grace_s=profile.stop.grace_s or engine.grace_s,
        python=profile.node.python,
        state_dir=profile.node.state_dir,
        secrets=profile.secrets,
    )


def _engine(profile: Profile) -> Engine:
    if profile.engine is not None:
        return loader.load(profile.engine)
    return loader.detect(profile.argv) or loader.load(loader.GENERIC)


def _verify(profile: Profile, engine: Engine) -> VerifyPlan | None:
    verify = profile.verify
    if not verify.enabled or engine.completion is None:
        return None
    return VerifyPlan(
        prompt=verify.prompt or DEFAULT_PROMPT,
        expect=verify.expect,
        timeout_s=verify.timeout_s or DEFAULT_VERIFY_TIMEOUT_S,
    )


def _api_key(profile: Profile) -> Secret | None:
    name = profile.verify.api_key_env
    if name is None:
        return None
    value = os.environ.get(name)
    if not value:
        raise ProfileError(profile.file, "verify.api_key_env", f"{name} is not set in this environment")
    return Secret(value)


def notify_plan(profile: Profile) -> NotifyPlan:
    """Whom the profile wants told. Raises `ProfileError` for a variable that is not set here."""
    notify = profile.notify
    argv = tuple(_filled(word, profile) for word in profile.notify_words)
    webhook = notify.webhook
    if notify.webhook_env is not None:
        webhook = os.environ.get(notify.webhook_env)
        if not webhook:
            raise ProfileError(
                profile.file, "notify.webhook_env", f"{notify.webhook_env} is not set in this environment"
            )
        if problem := notify_table.webhook_problem(webhook):
            raise ProfileError(profile.file, "notify.webhook_env", f"{notify.webhook_env} {problem}")
    secrets = launch_words.secrets([w.literal(word) for word in argv], {})
    return NotifyPlan(
        argv=argv,
        webhook=Secret(webhook) if webhook is not None else None,
        bell=notify.bell,
        terminal=notify.terminal,
        title=notify.title,
        on=frozenset(notify.on),
        secrets=tuple(map(Secret, [*secrets, *([webhook] if webhook else [])])),
    )


def _filled(word: w.Word, profile: Profile) -> str:
    """A word with this machine's own values: the command runs here, not on the node."""
    out = []
    for part in word.parts:
        match part:
            case w.Literal(text):
                out.append(text)
            case w.Variable(name):
                if name not in os.environ:
                    raise ProfileError(profile.file, "notify.command", f"{name} is not set in this environment")
                out.append(os.environ[name])
            case w.Home():
                out.append(os.path.expanduser("~"))
    return "".join(out)


def _path_word(text: str | None) -> WireWord | None:
    """A path of the profile as one word: `~` and variables are the node's."""
    return None if text is None else w.to_wire(w.path_word(text))
