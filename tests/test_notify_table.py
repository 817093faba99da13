"""The `[notify]` table of a profile: what may stand there, what is refused by its key, and what is never shown."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor import profile as p
from supervisor.core.notices import NoticeKind
from supervisor.errors import ProfileError
from supervisor.tables import Source, parse
from supervisor.wiring import notify_plan

GOOD = '[node]\nhost = "gpu1"\n[launch]\ncommand = "run --port 1"\n'


def build(text: str) -> p.Profile:
    table, source = parse((GOOD + "[notify]\n" + text).encode(), "x.toml")
    return p.build(table, source, stem="x")


def test_without_a_table_the_terminal_is_told_and_nobody_else() -> None:
    table, source = parse(GOOD.encode(), "x.toml")
    plan = notify_plan(p.build(table, source, stem="x"))
    assert (plan.argv, plan.webhook) == ((), None)
    assert plan.bell and plan.terminal and plan.title
    assert all(plan.wants(kind) for kind in NoticeKind)


def test_the_whole_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("CHANNEL", "ops and more")
    loaded = build(
        'command = "~/bin/tell --to $CHANNEL \'a b\'"\nwebhook = "https://hooks.example/T0/secret"\n'
        'bell = false\nterminal = false\ntitle = false\non = ["failed", "degraded"]\n'
    )
    plan = notify_plan(loaded)
    assert plan.argv == ("/home/me/bin/tell", "--to", "ops and more", "a b")
    assert plan.webhook is not None and plan.webhook.reveal() == "https://hooks.example/T0/secret"
    assert not (plan.bell or plan.terminal or plan.title)
    assert [kind.value for kind in NoticeKind if plan.wants(kind)] == ["failed", "degraded", "recovered"]


def test_words_of_an_array_are_taken_as_they_are() -> None:
    assert notify_plan(build('command = ["sh", "-c", "cat > $HOME/x; true"]\n')).argv[2] == "cat > $HOME/x; true"


def test_a_variant_is_told_of_in_the_same_way() -> None:
    table, source = parse((GOOD + '[notify]\ncommand = "tell"\n[variants.b]\n').encode(), "x.toml")
    assert p.build(table, source, stem="x", variant="b").notify_words[0].text == "tell"


def test_a_webhook_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_URL", "https://hooks.example/T0/secret")
    plan = notify_plan(build('webhook_env = "HOOK_URL"\n'))
    assert plan.webhook is not None and plan.webhook.reveal().endswith("/T0/secret")
    assert [secret.reveal() for secret in plan.secrets] == ["https://hooks.example/T0/secret"]
    monkeypatch.setenv("HOOK_URL", "secret")
    with pytest.raises(ProfileError, match=r"notify\.webhook_env: HOOK_URL is no URL") as caught:
        notify_plan(build('webhook_env = "HOOK_URL"\n'))
    assert "not shown" in str(caught.value)
    monkeypatch.delenv("HOOK_URL")
    with pytest.raises(ProfileError, match=r"notify\.webhook_env: HOOK_URL is not set"):
        notify_plan(build('webhook_env = "HOOK_URL"\n'))


def test_a_variable_of_the_command_that_is_not_set_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    with pytest.raises(ProfileError, match=r"notify\.command: NOT_SET is not set"):
        notify_plan(build('command = "tell $NOT_SET"\n'))


WRONG: list[tuple[str, str, str]] = [
    ('comand = "x"\n', "notify.comand", "did you mean command?"),
    ('url = "http://h/"\n', "notify.url", "it belongs under [ready]"),
    ("bell = 1\n", "notify.bell", "expected true or false"),
    ("command = 3\n", "notify.command", "a text in quotes or an array"),
    ('command = ""\n', "notify.command", "is empty"),
    ("command = []\n", "notify.command", "is empty"),
    ('command = ["", "x"]\n', "notify.command", "is empty"),
    ('command = "--to me"\n', "notify.command", "begins with an option"),
    ('command = "tell | mail"\n', "notify.command", '["sh", "-c", "…"]'),
    ('command = "tell > x"\n', "notify.command", "which `>` needs"),
    ('command = "A=1 tell"\n', "notify.command", "without a shell"),
    ('command = "tell \'x"\n', "notify.command", "never closed"),
    ('command = ["a\\u0000"]\n', "notify.command", "NUL"),
    ('webhook = "hooks.example/secret"\n', "notify.webhook", "is no URL"),
    ('webhook = "https://me:secret@h/"\n', "notify.webhook", "is no URL"),
    ('webhook = "https://h/"\nwebhook_env = "X"\n', "notify.webhook_env", "give one of them"),
    ('webhook_env = "A-B"\n', "notify.webhook_env", "no name of an environment variable"),
    ('on = "served"\n', "notify.on", "an array of texts"),
    ('on = ["serve"]\n', "notify.on", "did you mean served?"),
    ('on = ["recovered", "zzz"]\n', "notify.on", "served, failed, degraded, stopped"),
]


@pytest.mark.parametrize(("text", "key", "problem"), WRONG)
def test_what_is_wrong_is_refused_by_its_key(text: str, key: str, problem: str) -> None:
    with pytest.raises(ProfileError) as caught:
        build(text)
    assert caught.value.key == key and problem in str(caught.value)
    assert caught.value.line is not None and "secret" not in str(caught.value).replace("since it is a secret", "")


def test_keys_of_the_table_that_stand_elsewhere_are_sent_there() -> None:
    with pytest.raises(ProfileError, match="it belongs under \\[notify\\]"):
        p.build({"node": {"host": "h"}, "launch": {"command": "x", "webhook": "y"}}, Source("x.toml"), stem="x")


def test_no_repr_shows_what_is_secret() -> None:
    loaded = build('command = "tell --token=opensesame"\nwebhook = "https://hooks.example/sesame"\n')
    plan = notify_plan(loaded)
    shown: list[Any] = [loaded, loaded.notify, loaded.notify.__rich_repr__(), plan, plan.__rich_repr__()]
    assert "sesame" not in " ".join(map(repr, shown))
    assert "opensesame" in [secret.reveal() for secret in plan.secrets]
    assert dict(loaded.notify.__rich_repr__())["bell"] is True
