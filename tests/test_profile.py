"""Profiles: the good ones exactly, and every kind of wrong one by the key that its message names."""

from __future__ import annotations

import datetime
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor import profile as p
from supervisor.core import words as w
from supervisor.errors import ProfileError, UsageError
from supervisor.profile import Node, Ready, Stop, Variant, VariantLaunch, Verify, load
from supervisor.tables import Source, parse

PROFILES = Path(__file__).parent / "profiles"
EXAMPLES = 5000 if os.environ.get("SUPERVISOR_TEST_FULL") else 300

COMMAND = (
    "~/ml-env/bin/python3 -m sglang.launch_server --model-path /shared/kimi-k2.5-int4 --tp 8 --trust-remote-code "
    "--speculative-algorithm EAGLE3 --speculative-num-steps 2 --speculative-eagle-topk 1 --mem-fraction-static 0.88"
)


# ---------------------------------------------------------------------------------------------------- what is right


def test_the_example_of_the_contract_loads_exactly() -> None:
    loaded = load(PROFILES / "contract.toml", engines=["sglang"])
    assert (loaded.name, loaded.engine, loaded.variant) == ("kimi-k25-eagle3", "sglang", None)
    assert loaded.file == str(PROFILES / "contract.toml")
    assert loaded.node == Node(host="root@gpu1", python="~/ml-env/bin/python3")
    assert loaded.argv == COMMAND.split()
    assert loaded.words[0].parts == (w.Home(), w.Literal("/ml-env/bin/python3"))
    assert loaded.launch.env == {"SGLANG_ENABLE_SPEC_V2": "True"}
    assert loaded.launch.log == "/data/logs/eagle3_topk1_v2.log"
    assert (loaded.launch.cwd, loaded.launch.log_from) == (None, None)
    assert not (loaded.launch.login_env or loaded.launch.shell or loaded.launch.detaches)
    assert loaded.ready == Ready(url="http://localhost:30000/health", owner="tree", timeout_s=1800.0)
    assert loaded.verify == Verify(prompt="The capital of France is", expect="Paris", timeout_s=120.0)
    assert loaded.stop == Stop()
    drop = ("--speculative-algorithm", "--speculative-num-steps", "--speculative-eagle-topk")
    assert loaded.variants == {"baseline": Variant(launch=VariantLaunch(drop=drop))}
    assert (loaded.warnings, loaded.secrets, loaded.dropped) == ((), (), ())


def test_the_variant_of_the_contract_drops_flags_with_their_values() -> None:
    loaded = load(PROFILES / "contract.toml", variant="baseline")
    spec = "--speculative-algorithm EAGLE3 --speculative-num-steps 2 --speculative-eagle-topk 1"
    assert loaded.argv == COMMAND.replace(f" {spec}", "").split()
    assert loaded.dropped == tuple(spec.split())
    assert loaded.variant == "baseline"


def test_a_container_belongs_to_somebody_else_and_its_words_stay() -> None:
    loaded = load(PROFILES / "container.toml")
    assert loaded.name == "container"
    assert loaded.node == Node(
        host="ssh://ops@gpu2:2222", host_key=f"SHA256:{'A' * 43}", state_dir="/var/lib/runs", keepalive_s=5.0
    )
    assert loaded.argv[:3] == ["docker", "run", "-d"]
    assert all(word.is_literal for word in loaded.words)
    assert loaded.ready == Ready(owner="any")
    assert loaded.verify == Verify(enabled=False)
    assert loaded.stop == Stop(grace_s=90.0)
    assert loaded.launch.detaches


def test_variants_change_only_what_they_name() -> None:
    quick = load(PROFILES / "container.toml", variant="quick")
    base = load(PROFILES / "container.toml")
    assert quick.argv == [*base.argv, "--max", "${N}", '--chat {"a": 1}']
    assert quick.launch.env == {"DOCKER_HOST": "unix:///run/docker.sock", "HF_TOKEN": "other-token", "A": "b"}
    assert quick.ready == Ready(owner="tree", timeout_s=90.0)
    assert quick.verify == Verify()
    assert (quick.node, quick.stop, quick.name) == (base.node, base.stop, base.name)
    plain = load(PROFILES / "container.toml", variant="plain")
    assert plain.argv == ["run", "--port", "1"]
    assert plain.ready.owner == "tree"  # it is judged by the command that is launched
    checked = load(PROFILES / "container.toml", variant="checked")
    assert checked.verify == Verify(prompt="Two\nlines")


def test_a_text_for_a_shell_is_one_argument() -> None:
    loaded = load(PROFILES / "shell.toml")
    text = 'source env.sh && exec server --api-key "in the text" > out.log 2>&1'
    assert loaded.argv == ["/bin/bash", "-lc", text]
    assert loaded.ready.owner == "tree"
    assert [secret.reveal() for secret in loaded.secrets] == ["in the text"]
    assert load(PROFILES / "shell.toml", variant="other").ready.owner == "any"


@pytest.mark.parametrize(
    ("command", "owner"),
    [
        ("docker run x", "any"),
        ("/usr/bin/podman run x", "any"),
        ("nerdctl run x", "any"),
        ("srun -N2 x", "any"),
        ("ssh h x", "any"),
        ("dockerd", "tree"),
        ("python docker", "tree"),
    ],
)
def test_the_owner_follows_from_the_program(command: str, owner: str) -> None:
    assert build({"launch": {"command": command}}).ready.owner == owner
    assert build({"launch": {"command": command}, "ready": {"owner": "tree"}}).ready.owner == "tree"


# --------------------------------------------------------------------------------------------------------- secrets


@pytest.mark.parametrize("variant", [None, "quick"])
def test_no_repr_shows_a_secret(variant: str | None) -> None:
    loaded = load(PROFILES / "container.toml", variant=variant)
    revealed = [secret.reveal() for secret in loaded.secrets]
    assert revealed == ["hf_sesame", "opensesame"] + (["other-token"] if variant else [])
    shown = [loaded, loaded.launch, loaded.variants, loaded.secrets, loaded.launch.__rich_repr__()]
    text = " ".join(map(repr, shown)) + repr(loaded.variants["quick"].launch.__rich_repr__())
    assert not any(secret in text for secret in [*revealed, "other-token"])
    assert "***" in repr(loaded.launch) and "docker" in repr(loaded.launch)
    assert dict(loaded.launch.__rich_repr__())["detaches"] is True


def test_what_only_the_node_knows_is_no_secret_of_ours() -> None:
    for command in ("run --api-key $KEY", "run --api-key=$KEY", 'run --api-key "${KEY}"', "run --api-key=pre$KEY"):
        assert build({"launch": {"command": command}}).secrets == ()
    assert build({"launch": {"command": "bash -c 'run --api-key $KEY'"}}).secrets == ()


def test_a_warning_and_an_error_never_show_a_secret() -> None:
    noted = build({"launch": {"command": "run --api-key=~/“open”sesame"}})
    assert noted.warnings and not any("sesame" in note for note in noted.warnings)
    wrong: list[dict[str, Any]] = [
        {"launch": {"command": "run", "env": {"API_KEY": 12345678}}},
        {"launch": {"command": "API_KEY=12345678 run"}},
        {"launch": {"command": "--api-key=12345678 run"}},
        {"launch": {"command": ["run"], "env": {"API_KEY": "12345678\0"}}},
        {"launch": {"command": "run"}, "ready": {"url": "http://me:12345678@h:99999/"}},
        {"launch": {"command": "run"}, "ready": {"url": "http://me:12345678@h/"}},
    ]
    for table in wrong:
        with pytest.raises(ProfileError) as caught:
            build(table)
        assert "12345678" not in str(caught.value)


@pytest.mark.parametrize(
    ("table", "note"),
    [
        ({"launch": {"command": "run --x=~/m"}}, "--x=~/m: the ~ stays as it is"),
        ({"launch": {"command": ["run", "~/m"]}}, "~/m: stays as it is"),
        ({"launch": {"command": ["run", "a$HOME"]}}, "a$HOME: stays as it is"),
        ({"launch": {"command": "run", "env": {"PATH": "/x:$PATH"}}}, "launch.env.PATH: ~ and $ stay"),
    ],
)
def test_what_may_not_be_meant_is_a_warning(table: dict[str, Any], note: str) -> None:
    assert build(table).warnings[0].startswith(note)


# ---------------------------------------------------------------------------------------------------- what is wrong

GOOD = {"node": {"host": "gpu1"}, "launch": {"command": "run --port 1"}}


def build(table: dict[str, Any], **more: Any) -> p.Profile:
    """A profile from a table that may leave the usual parts out."""
    return p.build({**GOOD, **table}, Source("x.toml"), stem=more.pop("stem", "x"), **more)


NODE = '[node]\nhost = "gpu1"\n'
LAUNCH = '[launch]\ncommand = "run --port 1 --tp 8"\n'
BOTH = NODE + LAUNCH

# (name, text, key that must be named, line or None, what the message must hold)
WRONG: list[tuple[str, str, str, int | None, list[str]]] = [
    ("unknown key at the top", 'nmae = "x"\n' + BOTH, "nmae", 1, ["did you mean name?"]),
    ("unknown table", BOTH + "[redy]\n", "redy", 5, ["did you mean ready?"]),
    ("unknown key in a table", BOTH + 'comand = "x"\n', "launch.comand", 5, ["did you mean command?"]),
    ("dash for underscore", BOTH + "login-env = true\n", "launch.login-env", 5, ["did you mean login_env?"]),
    ("capitals", BOTH + 'LOG = "/l"\n', "launch.LOG", 5, ["did you mean log?"]),
    (
        "nothing near",
        NODE + "zzz = 1\n" + LAUNCH,
        "node.zzz",
        3,
        ["known: host, python, host_key, state_dir, keepalive"],
    ),
    ("command at the top", 'command = "x"\n' + NODE, "command", 1, ["it belongs under [launch]"]),
    ("host under launch", NODE + LAUNCH + 'host = "x"\n', "launch.host", 5, ["it belongs under [node]"]),
    ("name under node", NODE + 'name = "x"\n' + LAUNCH, "node.name", 3, ["it belongs at the top of the file"]),
    ("drop without a variant", BOTH + 'drop = ["--tp"]\n', "launch.drop", 5, ["under [variants.NAME.launch]"]),
    ("url under launch", BOTH + 'url = "http://h/"\n', "launch.url", 5, ["it belongs under [ready]"]),
    (
        "command right under a variant",
        BOTH + '[variants.b]\ncommand = "x"\n',
        "variants.b.command",
        6,
        ["it belongs under [variants.b.launch]"],
    ),
    (
        "log in a variant",
        BOTH + '[variants.b.launch]\nlog = "/x"\n',
        "variants.b.launch.log",
        6,
        ["it belongs under [launch]"],
    ),
    (
        "unknown key in a variant",
        BOTH + '[variants.b.launch]\ndorp = ["--tp"]\n',
        "variants.b.launch.dorp",
        6,
        ["did you mean drop?"],
    ),
    ("no launch", NODE, "launch", None, ["the table is missing"]),
    ("no node", LAUNCH, "node", None, ["the table is missing"]),
    ("empty file", "", "node", None, ["the table is missing"]),
    ("no command", NODE + "[launch]\n", "launch.command", 3, ["is missing"]),
    ("no host", "[node]\n" + LAUNCH, "node.host", 1, ["is missing"]),
    (
        "host of a wrong type",
        "[node]\nhost = 1\n" + LAUNCH,
        "node.host",
        2,
        ["expected a text in quotes, found a number"],
    ),
    ("empty host", '[node]\nhost = ""\n' + LAUNCH, "node.host", 2, ["is empty", '"local"']),
    ("host with blanks", '[node]\nhost = "gpu 1"\n' + LAUNCH, "node.host", 2, ["is not a host"]),
    ("host with a port", '[node]\nhost = "me@gpu1:22"\n' + LAUNCH, "node.host", 2, ["ssh://me@gpu1:22"]),
    ("host that is an option", '[node]\nhost = "-oX=y"\n' + LAUNCH, "node.host", 2, ["is not a host"]),
    ("user that is followed by an option", '[node]\nhost = "me@-oX"\n' + LAUNCH, "node.host", 2, ["is not a host"]),
    ("host with port 0", '[node]\nhost = "ssh://h:0"\n' + LAUNCH, "node.host", 2, ["1 to 65535"]),
    ("host with a bad port", '[node]\nhost = "ssh://h:70000"\n' + LAUNCH, "node.host", 2, ["1 to 65535"]),
    ("host that is a web page", '[node]\nhost = "http://h"\n' + LAUNCH, "node.host", 2, ["is not a host"]),
    ("host key", NODE + 'host_key = "ab:cd"\n' + LAUNCH, "node.host_key", 3, ["SHA256:"]),
    ("relative python", NODE + 'python = "env/bin/python"\n' + LAUNCH, "node.python", 3, ["begins with /"]),
    ("python by variable", NODE + 'python = "$X/python"\n' + LAUNCH, "node.python", 3, ["takes no variables"]),
    ("relative state_dir", NODE + 'state_dir = "x"\n' + LAUNCH, "node.state_dir", 3, ["begins with /"]),
    ("keepalive", NODE + 'keepalive = "often"\n' + LAUNCH, "node.keepalive", 3, ["not a duration", "30m"]),
    (
        "launch twice",
        "[[launch]]\ncommand = 'x'\n" + NODE,
        "launch",
        1,
        ["found an array", "[launch] once, not [[launch]]"],
    ),
    ("node as a text", 'node = "gpu1"\n' + LAUNCH, "node", 1, ["expected a table, found a text"]),
    (
        "name of a wrong type",
        "name = 7\n" + BOTH,
        "name",
        1,
        ["expected a text in quotes, found a number: put it in quotes"],
    ),
    ("name with a slash", 'name = "a/b"\n' + BOTH, "name", 1, ["letters, digits"]),
    ("name that leaves the folder", 'name = ".."\n' + BOTH, "name", 1, ["begins with none"]),
    ("empty name", 'name = ""\n' + BOTH, "name", 1, ["1 to 64"]),
    ("long name", f'name = "{"a" * 65}"\n' + BOTH, "name", 1, ["1 to 64"]),
    ("engine", 'engine = "sglan"\n' + BOTH, "engine", 1, ["did you mean sglang?"]),
    ("engine unlike any", 'engine = "zzz"\n' + BOTH, "engine", 1, ["known: sglang, vllm"]),
    (
        "command of a wrong type",
        NODE + "[launch]\ncommand = 7\n",
        "launch.command",
        4,
        ["a text in quotes or an array"],
    ),
    (
        "command with a number in it",
        NODE + '[launch]\ncommand = ["run", "--tp", 8]\n',
        "launch.command",
        4,
        ["an array whose item 3 is a number"],
    ),
    ("empty command", NODE + '[launch]\ncommand = ""\n', "launch.command", 4, ["is empty"]),
    ("command of blanks", NODE + '[launch]\ncommand = """\n  # no\n"""\n', "launch.command", 4, ["is empty"]),
    ("empty array", NODE + "[launch]\ncommand = []\n", "launch.command", 4, ["is empty"]),
    ("array of nothing", NODE + '[launch]\ncommand = [""]\n', "launch.command", 4, ["is empty"]),
    ("empty text for a shell", NODE + "[launch]\nshell = true\ncommand = ' '\n", "launch.command", 5, ["is empty"]),
    ("only options", NODE + '[launch]\ncommand = "--tp 8"\n', "launch.command", 4, ["begins with an option"]),
    ("open quote", NODE + '[launch]\ncommand = "run \'x"\n', "launch.command", 4, ["never closed"]),
    ("redirection", NODE + '[launch]\ncommand = "run > log"\n', "launch.command", 4, ["`>`", "`log` under [launch]"]),
    (
        "a pipe on the third line",
        NODE + '[launch]\ncommand = """\nrun --a\n  --b | tee\n"""\n',
        "launch.command",
        6,
        ["`|` (line 2 of the text, character 7)", "shell = true"],
    ),
    ("variable in front", NODE + '[launch]\ncommand = "A=1 run"\n', "launch.command", 4, ["env = { A = … }"]),
    ("NUL", NODE + '[launch]\ncommand = ["run", "a\\u0000"]\n', "launch.command", 4, ["NUL"]),
    ("array for a shell", NODE + '[launch]\nshell = true\ncommand = ["run"]\n', "launch.command", 5, ["shell = true"]),
    ("shell as a text", BOTH + 'shell = "true"\n', "launch.shell", 5, ["expected true or false, found a text"]),
    ("number in env", BOTH + "env = { OMP = 8 }\n", "launch.env.OMP", 5, ["found a number: put it in quotes"]),
    ("true in env", BOTH + "[launch.env]\nSPEC = true\n", "launch.env.SPEC", 6, ["found true: put it in quotes"]),
    ("env as an array", BOTH + 'env = ["A=1"]\n', "launch.env", 5, ["expected a table, found an array"]),
    (
        "env name with a dash",
        BOTH + "env = { A-B = '1' }\n",
        "launch.env.A-B",
        5,
        ["no name of an environment variable"],
    ),
    ("env name with =", BOTH + "env = { 'A=B' = '1' }\n", 'launch.env."A=B"', 5, ["no name"]),
    ("env name with a newline", BOTH + 'env = { "A\\nB" = "1" }\n', 'launch.env."A\\nB"', 5, ["no name"]),
    ("empty env name", BOTH + "env = { '' = '1' }\n", 'launch.env.""', 5, ["no name"]),
    ("NUL in env", BOTH + 'env = { A = "\\u0000" }\n', "launch.env.A", 5, ["NUL"]),
    (
        "our own mark",
        BOTH + "env.INFERENCE_SUPERVISOR_RUN = 'x'\n",
        "launch.env.INFERENCE_SUPERVISOR_RUN",
        5,
        ["set by"],
    ),
    ("empty log", BOTH + 'log = ""\n', "launch.log", 5, ["is empty"]),
    ("relative log", BOTH + 'log = "x.log"\n', "launch.log", 5, ["begins with /"]),
    ("log that is a folder", BOTH + 'log = "/logs/"\n', "launch.log", 5, ["is a folder"]),
    ("log with a newline", BOTH + 'log = "/a\\nb"\n', "launch.log", 5, ["line break"]),
    ("log with a command in it", BOTH + 'log = "/l/$(date)"\n', "launch.log", 5, ["`$(`"]),
    ("one log twice", BOTH + 'log = "/l"\nlog_from = "/l"\n', "launch.log_from", 6, ["same file as log"]),
    ("cwd of another user", BOTH + 'cwd = "~bob"\n', "launch.cwd", 5, ["another user"]),
    ("url without a scheme", BOTH + '[ready]\nurl = "h:1/health"\n', "ready.url", 6, ["http://"]),
    ("url of another kind", BOTH + '[ready]\nurl = "ftp://h/"\n', "ready.url", 6, ["http and https"]),
    ("url without a host", BOTH + '[ready]\nurl = "http:///health"\n', "ready.url", 6, ["no host"]),
    ("port 0", BOTH + '[ready]\nurl = "http://h:0/"\n', "ready.url", 6, ["port 0"]),
    ("port that is none", BOTH + '[ready]\nurl = "http://h:70000/"\n', "ready.url", 6, ["ort"]),
    ("password in the url", BOTH + '[ready]\nurl = "http://a:b@h/"\n', "ready.url", 6, ["must not carry"]),
    ("owner", BOTH + '[ready]\nowner = "me"\n', "ready.owner", 6, ['expected "tree" or "any", found a text']),
    ("owner as true", BOTH + "[ready]\nowner = true\n", "ready.owner", 6, ['"tree" or "any"']),
    ("empty model", BOTH + '[ready]\nmodel = ""\n', "ready.model", 6, ["is empty"]),
    ("timeout in words", BOTH + '[ready]\ntimeout = "soon"\n', "ready.timeout", 6, ["not a duration"]),
    ("timeout 0", BOTH + "[ready]\ntimeout = 0\n", "ready.timeout", 6, ["more than nothing"]),
    ("negative timeout", BOTH + "[ready]\ntimeout = -5\n", "ready.timeout", 6, ["more than nothing"]),
    ("timeout inf", BOTH + "[ready]\ntimeout = inf\n", "ready.timeout", 6, ["at most a year"]),
    ("timeout nan", BOTH + "[ready]\ntimeout = nan\n", "ready.timeout", 6, ["at most a year"]),
    ("timeout of years", BOTH + '[ready]\ntimeout = "9999d"\n', "ready.timeout", 6, ["a year"]),
    ("timeout as true", BOTH + "[ready]\ntimeout = true\n", "ready.timeout", 6, ["expected a duration", "found true"]),
    ("timeout as a date", BOTH + "[ready]\ntimeout = 10:00:00\n", "ready.timeout", 6, ["found a date or time"]),
    ("verify as a text", 'verify = "no"\n' + BOTH, "verify", 1, ["expected a table, found a text"]),
    ("empty prompt", BOTH + '[verify]\nprompt = " "\n', "verify.prompt", 6, ["is empty"]),
    ("empty expectation", BOTH + '[verify]\nexpect = ""\n', "verify.expect", 6, ["is empty"]),
    ("key variable", BOTH + '[verify]\napi_key_env = "MY KEY"\n', "verify.api_key_env", 6, ["no name"]),
    ("grace", BOTH + '[stop]\ngrace = "-1s"\n', "stop.grace", 6, ["not a duration"]),
    ("variants as an array", BOTH + "[[variants]]\n", "variants", 5, ["expected a table, found an array"]),
    ("name of a variant", BOTH + '[variants."a b".launch]\n', 'variants."a b"', 5, ["letters, digits"]),
    (
        "drop of what is not there",
        BOTH + '[variants.b.launch]\ndrop = ["--prt"]\n',
        "variants.b.launch.drop",
        6,
        ["the command has no --prt", "did you mean --port?"],
    ),
    ("drop of a value", BOTH + '[variants.b.launch]\ndrop = ["8"]\n', "variants.b.launch.drop", 6, ["flags alone"]),
    (
        "drop with a value",
        BOTH + '[variants.b.launch]\ndrop = ["--tp 8"]\n',
        "variants.b.launch.drop",
        6,
        ["flags alone"],
    ),
    ("drop with =", BOTH + '[variants.b.launch]\ndrop = ["--tp=8"]\n', "variants.b.launch.drop", 6, ["flags alone"]),
    (
        "drop as a text",
        BOTH + '[variants.b.launch]\ndrop = "--tp"\n',
        "variants.b.launch.drop",
        6,
        ["an array of texts"],
    ),
    ("add with a pipe", BOTH + '[variants.b.launch]\nadd = "| tee"\n', "variants.b.launch.add", 6, ["`|`"]),
    (
        "a variant that empties",
        BOTH + '[variants.b.launch]\ncommand = ""\n',
        "variants.b.launch.command",
        6,
        ["is empty"],
    ),
    ("url of a variant", BOTH + '[variants.b.ready]\nurl = "x"\n', "variants.b.ready.url", 6, ["http://"]),
    ("env of a variant", BOTH + "[variants.b.launch]\nenv = { A = 1 }\n", "variants.b.launch.env.A", 6, ["in quotes"]),
    (
        "drop from a shell's text",
        BOTH + 'shell = true\n[variants.b.launch]\ndrop = ["--tp"]\n',
        "variants.b.launch.drop",
        7,
        ["shell = true"],
    ),
    (
        "add to a shell's text",
        BOTH + 'shell = true\n[variants.b.launch]\nadd = "--x"\n',
        "variants.b.launch.add",
        7,
        ["shell = true"],
    ),
    ("key given twice", BOTH + 'command = "y"\n', "", 5, ["second time"]),
    ("table given twice", BOTH + NODE, "", 5, ["second time"]),
    ("no TOML", BOTH + "log = /x\n", "", 5, ["is no TOML"]),
    ("text that never ends", NODE + '[launch]\ncommand = """\nrun\n', "", 5, ["is no TOML"]),
    ("deep nesting", "a = " + "[" * 20000, "", None, ["nested too deeply"]),
    ("endless number", "a = " + "1" * 5000, "", None, ["is no TOML"]),
]


@pytest.mark.parametrize(
    ("text", "key", "line", "parts"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG]
)
def test_a_wrong_profile_names_file_key_line_and_the_way_out(
    tmp_path: Path, text: str, key: str, line: int | None, parts: list[str]
) -> None:
    file = tmp_path / "x.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ProfileError) as caught:
        load(file, engines=["vllm", "sglang"])
    error = caught.value
    assert (error.file, error.key, error.line) == (str(file), key, line), str(error)
    assert error.exit_code == 2
    for part in parts:
        assert part in str(error)
    assert str(error).startswith(f"{file}:{line}: " if line else f"{file}: ")
    assert "\n" not in str(error)


def test_each_wrong_profile_is_right_without_its_fault() -> None:
    """The cases above would prove nothing if their common parts were wrong."""
    table, source = parse(BOTH.encode(), "x.toml")
    assert p.build(table, source, stem="x", engines=["sglang"]).argv == ["run", "--port", "1", "--tp", "8"]


@pytest.mark.parametrize(
    ("data", "line", "part"),
    [
        (b'name = "x"\n# caf\xe9\n', 2, "is no UTF-8 text"),
        ("name = 'x'".encode("utf-16"), 1, "is UTF-16 text"),
        (b"#" * ((1 << 20) + 1), None, "larger than 1 MiB"),
        (b"\0", 1, "is no TOML"),
    ],
)
def test_a_file_that_is_no_text_is_refused(tmp_path: Path, data: bytes, line: int | None, part: str) -> None:
    file = tmp_path / "x.toml"
    file.write_bytes(data)
    with pytest.raises(ProfileError, match=part) as caught:
        load(file)
    assert (caught.value.key, caught.value.line) == ("", line)


def test_a_byte_order_mark_and_windows_line_ends_are_no_fault(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    text = NODE + '[launch]\ncommand = """\nrun --a \\\n --b\n--c"""\n'
    file.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert load(file).argv == ["run", "--a", "--b", "--c"]


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    (tmp_path / "kimi.toml").write_text(BOTH)
    (tmp_path / "loop.toml").symlink_to(tmp_path / "loop.toml")
    for name, part in [
        (".", "is a folder"),
        ("kimmi.toml", "no such file; did you mean kimi.toml?"),
        ("no/x.toml", "there is no such file"),
        ("loop.toml", "cannot be read"),
        ("kimi.toml/x.toml", "cannot be read"),
        ("a\0.toml", "cannot be read"),
        ("a" * 300 + ".toml", "cannot be read"),
    ]:
        with pytest.raises(ProfileError) as caught:
            load(tmp_path / name)
        assert part in str(caught.value)


def test_a_file_without_permission_says_so(tmp_path: Path) -> None:
    (tmp_path / "x.toml").touch(mode=0)
    me = os.geteuid()
    if me == 0:
        os.seteuid(65534)  # root reads everything
    try:
        with pytest.raises(ProfileError, match="Permission denied"):
            load(tmp_path / "x.toml")
    finally:
        os.seteuid(me)


def test_the_stem_must_be_a_key_only_where_it_is_the_name(tmp_path: Path) -> None:
    file = tmp_path / "my profile.toml"
    file.write_text(BOTH)
    with pytest.raises(ProfileError, match="the file's name is no key") as caught:
        load(file)
    assert caught.value.key == "name"
    file.write_text('name = "mine"\n' + BOTH)
    assert load(file).name == "mine"


def test_a_variant_that_is_not_there_names_the_nearest() -> None:
    with pytest.raises(ProfileError, match=r"variants: there is no variant 'basline'; did you mean baseline\?"):
        load(PROFILES / "contract.toml", variant="basline")
    with pytest.raises(ProfileError, match=r"no variant 'zzz' \(known: baseline\)"):
        load(PROFILES / "contract.toml", variant="zzz")
    with pytest.raises(ProfileError, match="the profile has none"):
        build({}, variant="zzz")


def test_a_drop_never_takes_the_program_and_finds_every_one() -> None:
    table = {"variants": {"v": {"launch": {"drop": ["--a", "--b"], "add": ["--c", "$X"]}}}}
    command = {"launch": {"command": "run --a 1 --a=2 m --b -1 --d '{\"--a\": 1}'"}}
    loaded = build({**command, **table}, variant="v")
    assert loaded.argv == ["run", "m", "--d", '{"--a": 1}', "--c", "$X"]
    assert loaded.dropped == ("--a", "1", "--a=2", "--b", "-1")
    assert loaded.words[-1] == w.literal("$X")  # words of an array are taken as they are


def test_words_to_add_are_arguments_not_a_command() -> None:
    table = {"variants": {"v": {"launch": {"add": "A=b cd ~/x"}}}}
    assert build(table, variant="v").argv == ["run", "--port", "1", "A=b", "cd", "~/x"]


# ------------------------------------------------------------------------------------------------------- any table

_NAMES = (
    "name engine node launch ready verify stop variants host python host_key state_dir keepalive command env cwd "
    "login_env shell detaches log log_from url owner timeout model prompt expect api_key_env enabled grace drop add a "
    "b"
)
_KEYS = st.sampled_from(_NAMES.split())
_LEAVES = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["run --port 1", "a | b", "30m", "tree", "http://h:1/x", "/x", "~/x", "--port", "local"]),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.datetimes(),
    st.just(datetime.date(2026, 1, 1)),
    st.lists(st.one_of(st.text(max_size=4), st.sampled_from(["run", "--port", "1"]), st.integers()), max_size=4),
)
_TABLES = st.recursive(_LEAVES, lambda inner: st.dictionaries(_KEYS | st.text(max_size=4), inner, max_size=4))
_LIKELY = st.fixed_dictionaries(
    {"node": st.fixed_dictionaries({"host": st.sampled_from(["h", "local"]) | st.text(max_size=4)})},
    optional={
        "launch": st.fixed_dictionaries(
            {"command": st.text(max_size=12) | st.lists(st.text(max_size=4), max_size=3) | st.just("run --a 1")},
            optional={
                "env": st.dictionaries(st.text(max_size=3) | st.just("A"), st.text(max_size=4), max_size=2),
                "shell": st.booleans(),
                "log": st.text(max_size=4),
                "cwd": _LEAVES,
            },
        ),
        "ready": st.dictionaries(st.sampled_from(["url", "owner", "timeout", "model"]), _LEAVES, max_size=2),
        "verify": st.booleans() | _TABLES,
        "variants": st.dictionaries(
            st.just("v") | st.text(max_size=3),
            st.fixed_dictionaries(
                {},
                optional={
                    "launch": st.fixed_dictionaries(
                        {},
                        optional={"drop": st.lists(st.just("--a") | st.text(max_size=3)), "add": st.text(max_size=6)},
                    ),
                    "verify": st.booleans(),
                },
            ),
            max_size=2,
        ),
    },
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.dictionaries(_KEYS, _TABLES, max_size=6) | _LIKELY, st.sampled_from([None, "v"]))
def test_any_table_is_a_profile_or_a_profile_error(table: dict[str, Any], variant: str | None) -> None:
    try:
        loaded = p.build(table, Source("x.toml"), stem="x", variant=variant)
    except ProfileError as error:
        assert str(error).startswith("x.toml: ")
    else:
        assert loaded.argv and loaded.ready.owner in ("tree", "any")


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.binary(max_size=60) | st.text(max_size=80).map(lambda text: (text + "\n" + BOTH).encode("utf-8", "replace")))
def test_any_bytes_are_a_profile_or_a_profile_error(data: bytes) -> None:
    try:
        table, source = parse(data, "x.toml")
        p.build(table, source, stem="x")
    except ProfileError as error:
        assert error.line is None or 1 <= error.line <= data.count(b"\n") + 1


# ------------------------------------------------------------------------------------------------------------ find


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    cwd, config = tmp_path / "cwd", tmp_path / "config"
    (cwd / "profiles").mkdir(parents=True)
    (config / "profiles").mkdir(parents=True)
    for file in (cwd / "both.toml", cwd / "status.toml", config / "profiles/both.toml", config / "profiles/kimi.toml"):
        file.touch()
    (cwd / "folder.toml").mkdir()
    return cwd, config


COMMANDS = ["status", "stop", "demo"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("both", "cwd/both.toml"),
        ("kimi", "config/profiles/kimi.toml"),
        ("both.toml", "cwd/both.toml"),
        ("./x", "cwd/x"),
        ("sub/x.toml", "cwd/sub/x.toml"),
        ("absent.toml", "cwd/absent.toml"),
        ("/abs/x", "/abs/x"),
    ],
)
def test_a_profile_is_found_by_path_or_by_name(places: tuple[Path, Path], text: str, found: str) -> None:
    cwd, config = places
    assert p.find(text, cwd=cwd, config_dir=config, commands=COMMANDS) == cwd.parent / found


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("statsu", ["the nearest command is status", "the nearest profile is status"]),
        ("kimmi", ["the nearest profile is kimi", "looked for"]),
        ("demmo", ["the nearest command is demo"]),
        ("folder", ["no command and no profile is called 'folder'"]),
        ("zzzzzz", ["no command and no profile is called 'zzzzzz'"]),
        ("", ["PROFILE is empty"]),
        ("a" * 300, ["no command and no profile"]),
        ("a\0b", ["no command and no profile"]),
    ],
)
def test_a_name_that_is_none_tells_the_nearest_ones(places: tuple[Path, Path], text: str, parts: list[str]) -> None:
    cwd, config = places
    with pytest.raises(UsageError) as caught:
        p.find(text, cwd=cwd, config_dir=config, commands=COMMANDS)
    assert caught.value.exit_code == 2
    for part in parts:
        assert part in str(caught.value)
    if text == "zzzzzz":
        assert "nearest" not in str(caught.value)


def test_a_path_from_the_home_folder(monkeypatch: pytest.MonkeyPatch, places: tuple[Path, Path]) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert p.find("~/x.toml", cwd=places[0], config_dir=places[1]) == Path("/home/me/x.toml")


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"HOME": "/h"}, "/h/.config/inference-supervisor"),
        ({"HOME": "/h", "XDG_CONFIG_HOME": "/c"}, "/c/inference-supervisor"),
        ({"HOME": "/h", "XDG_CONFIG_HOME": "c"}, "/h/.config/inference-supervisor"),
        ({"HOME": "/h", "XDG_CONFIG_HOME": ""}, "/h/.config/inference-supervisor"),
    ],
)
def test_the_configuration_folder(environ: dict[str, str], folder: str) -> None:
    assert p.config_dir(environ) == Path(folder)


def test_no_engine_is_named_in_the_code() -> None:
    root = Path(p.__file__).parent
    files = ["profile.py", "profile_checks.py", "launch_words.py", "tables.py", "core/words.py", "core/command.py"]
    for file in files:
        text = (root / file).read_text(encoding="utf-8")
        assert not re.search(r"sglang|vllm|llama|tensorrt|trtllm|lmdeploy", text, re.IGNORECASE), file
