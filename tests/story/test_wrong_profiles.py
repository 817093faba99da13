"""Wrong profiles by the real command: exit 2, the key is named, nothing is launched and no node is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor import cli

MARK = "launched"
GOOD = """
[node]
host = "local"
[launch]
command = ["touch", "{mark}"]
"""

WRONG: dict[str, tuple[str, str]] = {
    "no such key": (GOOD.replace("host =", "hots ="), "node.hots"),
    "unknown table": (GOOD + "[nodes]\n", "nodes"),
    "wrong type": (GOOD.replace('"local"', "7"), "node.host"),
    "host empty": (GOOD.replace('"local"', '""'), "node.host"),
    "host with blanks": (GOOD.replace('"local"', '"gpu 1"'), "node.host"),
    "no launch": ('[node]\nhost = "local"\n', "launch"),
    "no node": ('[launch]\ncommand = "true"\n', "node"),
    "empty command": ('[node]\nhost = "local"\n[launch]\ncommand = ""\n', "launch.command"),
    "open quote": ('[node]\nhost = "local"\n[launch]\ncommand = "echo \'a"\n', "launch.command"),
    "pipe": ('[node]\nhost = "local"\n[launch]\ncommand = "a | b"\n', "launch.command"),
    "redirection": ('[node]\nhost = "local"\n[launch]\ncommand = "a > b"\n', "launch.command"),
    "substitution": ('[node]\nhost = "local"\n[launch]\ncommand = "a $(b)"\n', "launch.command"),
    "syntax": (GOOD + "x =\n", "profile.toml:"),
    "unknown engine": ('engine = "sgland"\n' + GOOD, "engine"),
    "bad name": ('name = "a/b"\n' + GOOD, "name"),
    "url without scheme": (GOOD + '[ready]\nurl = "localhost:1"\n', "ready.url"),
    "url with a password": (GOOD + '[ready]\nurl = "http://u:p@localhost:1/"\n', "ready.url"),
    "timeout of nothing": (GOOD + '[ready]\ntimeout = "0s"\n', "ready.timeout"),
    "timeout in words": (GOOD + '[ready]\ntimeout = "soon"\n', "ready.timeout"),
    "owner": (GOOD + '[ready]\nowner = "me"\n', "ready.owner"),
    "env of a number": (GOOD + "env = { A = 1 }\n", "launch.env.A"),
    "env name": (GOOD + 'env = { "A B" = "1" }\n', "launch.env"),
    "relative log": (GOOD + 'log = "x.log"\n', "launch.log"),
    "drop of nothing": (GOOD + '[variants.v.launch]\ndrop = ["--nope"]\n', "variants.v.launch.drop"),
    "api key variable unset": (
        'engine = "vllm"\n' + GOOD + '[verify]\napi_key_env = "NOT_SET_ANYWHERE"\n',
        "verify.api_key_env",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_exit_2_names_the_key_and_launches_nothing(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, key = WRONG[case]
    path = tmp_path / "profile.toml"
    mark = tmp_path / MARK
    path.write_text(text.replace("{mark}", str(mark)))
    code = cli.main(["--headless", str(path)])
    said = capsys.readouterr()
    assert code == 2, said
    assert key in said.err, said.err
    assert str(path.name) in said.err
    assert said.out == ""
    assert not mark.exists()


def test_the_good_one_would_have_launched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """So that the table above cannot pass for the wrong reason."""
    path, mark = tmp_path / "profile.toml", tmp_path / MARK
    text = GOOD.replace("{mark}", str(mark)).replace("[launch]", f'state_dir = "{tmp_path}/state"\n[launch]')
    path.write_text(text + '[ready]\nurl = "http://localhost:9/"\n')
    assert cli.main(["--headless", str(path), "--timeout", "20s"]) == 1  # `touch` ends: that is no server
    assert mark.exists()
    assert "exit code 0" in capsys.readouterr().out


def test_a_name_that_is_no_profile(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--headless", "statsu"]) == 2
    assert "status" in capsys.readouterr().err
