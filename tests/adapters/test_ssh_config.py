"""The pure reading of ssh configuration, known_hosts and key files."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

from supervisor.adapters import ssh_config, ssh_known_hosts, ssh_login, ssh_texts
from supervisor.adapters.ssh_config import Target, parse_jump, parse_target
from supervisor.adapters.ssh_login import KeyState
from supervisor.errors import LinkConfigError, UsageError
from tests.adapters.ssh_server import fingerprint_of, make_key


@pytest.mark.parametrize(
    ("text", "user", "host", "port"),
    [
        ("gpu1", None, "gpu1", None),
        ("root@gpu1", "root", "gpu1", None),
        ("a@b@gpu1", "a@b", "gpu1", None),
        ("ssh://gpu1", None, "gpu1", None),
        ("ssh://root@gpu1:2222/", "root", "gpu1", 2222),
        ("ssh://root@[fe80::1%eth0]:22", "root", "fe80::1%eth0", 22),
        ("ssh://[::1]", None, "::1", None),
        ("::1", None, "::1", None),
        ("root@[::1]", "root", "::1", None),
    ],
)
def test_targets(text: str, user: str | None, host: str, port: int | None) -> None:
    assert parse_target(text) == Target(text, host, user, port)


@pytest.mark.parametrize(
    "text",
    [
        *("", "@gpu1", "root@", "ssh://", "ssh://gpu1:", "ssh://gpu1:0", "ssh://gpu1:70000", "ssh://gpu1:x"),
        *("ssh://::1", "-oProxyCommand=x", "root@-x", "gpu1 gpu2", "gpu1;id", "ssh://gpu1/path", "$(id)"),
    ],
)
def test_malformed_targets_are_named(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_target(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["gpu1:22", "root@gpu1:22", "[::1]:22"])
def test_a_port_without_scheme_is_refused_with_the_way_to_write_it(text: str) -> None:
    with pytest.raises(UsageError, match="is given as ssh://"):
        parse_target(text)


def test_jump_hosts_may_have_ports() -> None:
    assert parse_jump("me@bastion:2200") == Target("me@bastion:2200", "bastion", "me", 2200)
    assert parse_jump("ssh://[::1]:9").port == 9


def test_the_command_to_run_once_reaches_the_same_place() -> None:
    assert parse_target("gpu1").ssh_command() == "ssh gpu1"
    assert parse_target("ssh://root@gpu1:9").ssh_command("/a b/config") == "ssh -F '/a b/config' -p 9 root@gpu1"


def test_config_files_by_default_by_variable_and_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert tmp_path / ".ssh/config" not in ssh_config.config_paths(None, {})
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/config").write_text("")
    other = tmp_path / "other"
    other.write_text("")
    assert ssh_config.config_paths(None, {})[0] == tmp_path / ".ssh/config"
    assert ssh_config.config_paths(None, {"SUPERVISOR_SSH_CONFIG": str(other)}) == [other]
    assert ssh_config.config_paths(None, {"SUPERVISOR_SSH_CONFIG": "none"}) == []
    with pytest.raises(LinkConfigError, match="missing"):
        ssh_config.config_paths(None, {"SUPERVISOR_SSH_CONFIG": "/missing"})


def _settings(tmp_path: Path, text: str, host: str = "gpu1") -> list[tuple[str, str, int]]:
    file = tmp_path / "config"
    file.write_text(text)
    return [(one.option, one.value, one.line) for one in ssh_config.read_settings([file], parse_target(host))]


def test_host_and_match_blocks(tmp_path: Path) -> None:
    text = """
Tag early
Host gpu* !gpu9
  ProxyUseFdpass=yes
  HostName inner-%h
Host gpu9
  Wrong 1
Match host inner-gpu1 user root
  ByMatch 1
Match originalhost nothing
  Wrong 2
Match !originalhost nothing
  Negated 1
Match tagged early exec "never run: touch /nonexistent/x"
  Tagged "quoted value"
"""
    options = [option for option, _, _ in _settings(tmp_path, text, "root@gpu1")]
    assert options == ["Tag", "ProxyUseFdpass", "HostName", "ByMatch", "Negated", "Tagged"]
    assert "Wrong" in [option for option, _, _ in _settings(tmp_path, text, "gpu9")]


def test_includes_are_followed_and_rings_end(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/a.conf").write_text("BindInterface eth0\n")
    (tmp_path / "sub/b.conf").write_text(f"Include {tmp_path}/config\n")
    found = _settings(tmp_path, f"Host gpu1\nInclude {tmp_path}/sub/*.conf\nUser x\n")
    assert ("BindInterface", "eth0", 1) in found
    assert ("User", "x", 3) in found


def test_only_options_that_matter_and_are_not_read_are_named(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text("User a\nLogLevel DEBUG\nBindInterface eth0\nBindInterface eth1\nControlMaster no\nControlPath x\n")
    settings = ssh_config.read_settings([file], parse_target("h"))
    unread = ssh_config.unread_options(settings, {"user"})
    assert [str(one) for one in unread] == [f"BindInterface ({file}:3)", f"ControlPath ({file}:6)"]


# known_hosts


def test_known_hosts_plain_hashed_ports_patterns_markers_and_broken_lines(tmp_path: Path) -> None:
    key = make_key(tmp_path / "k")
    public = Path(f"{key}.pub").read_text().strip()
    file = tmp_path / "known_hosts"
    file.write_text(
        f"# comment\nbroken\ngpu1 ssh-ed25519 not*base64\n|1|bad|hash {public}\n"
        f"GPU1,other {public}\n[gpu1]:2222 {public}\n@cert-authority *.lab,!bad.lab {public}\n@revoked gpu3 {public}\n"
    )
    subprocess.run(["ssh-keygen", "-q", "-f", str(file), "-F", "gpu1"], check=True, capture_output=True)  # ssh reads it
    assert [one.line for one in ssh_known_hosts.look_up([file], "gpu1", 22).exact] == [5]
    at_port = ssh_known_hosts.look_up([file, tmp_path / "missing"], "gpu1", 2222)
    assert [one.line for one in at_port.exact] == [6]
    assert [one.line for one in at_port.fallback] == [5]
    assert [one.line for one in at_port.marked("")] == [6]
    assert [one.line for one in ssh_known_hosts.look_up([file], "gpu1", 9).marked("")] == [5]
    assert [one.line for one in ssh_known_hosts.look_up([file], "a.lab", 22).marked("cert-authority")] == [7]
    assert not ssh_known_hosts.look_up([file], "bad.lab", 22).exact
    assert [one.line for one in ssh_known_hosts.look_up([file], "gpu3", 77).marked("revoked")] == [8]
    assert ssh_known_hosts.look_up([file], "gpu1", 22).exact[0].fingerprint == fingerprint_of(Path(f"{key}.pub"))


def test_hashed_names_as_ssh_keygen_writes_them(tmp_path: Path) -> None:
    key = make_key(tmp_path / "k")
    file = tmp_path / "known_hosts"
    file.write_text("".join(f"{name} {Path(f'{key}.pub').read_text()}" for name in ("gpu1", "[gpu1]:2222", "gpu2")))
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(file)], check=True, capture_output=True)
    assert "gpu" not in file.read_text()
    assert [one.line for one in ssh_known_hosts.look_up([file], "gpu1", 22).exact] == [1]
    assert [one.line for one in ssh_known_hosts.look_up([file], "gpu1", 2222).exact] == [2]


# Key files


def test_key_files_are_told_apart_without_a_passphrase(tmp_path: Path) -> None:
    plain, locked, gone = make_key(tmp_path / "plain"), make_key(tmp_path / "locked", passphrase="pw"), tmp_path / "no"
    junk = tmp_path / "junk"
    junk.write_text("hello")
    bare = make_key(tmp_path / "bare", passphrase="pw")
    Path(f"{bare}.pub").unlink()
    half = make_key(tmp_path / "half")
    half.unlink()
    keys = ssh_login.find_key_files([str(path) for path in (plain, locked, gone, junk, bare, half)], {})
    assert [key.state for key in keys] == [
        KeyState.PLAIN,
        KeyState.ENCRYPTED,
        KeyState.MISSING,
        KeyState.MALFORMED,
        KeyState.ENCRYPTED,
        KeyState.PUBLIC,
    ]
    shown = [key.blob and ssh_known_hosts.fingerprint(key.blob) for key in keys]
    assert shown[1] == fingerprint_of(Path(f"{locked}.pub"))
    assert shown[4] == fingerprint_of(bare)  # the OpenSSH format has the public key in the clear
    assert shown[5] == fingerprint_of(Path(f"{half}.pub"))


@pytest.mark.parametrize("key_format", ["PEM", "PKCS8"])
def test_encrypted_keys_in_other_formats(tmp_path: Path, key_format: str) -> None:
    path = tmp_path / "rsa"
    command = ["ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-m", key_format, "-N", "secret", "-f", str(path)]
    subprocess.run(command, check=True)
    assert ssh_login.look_at(path, configured=True).state is KeyState.ENCRYPTED


def test_default_keys_are_sshs_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    make_key(tmp_path / ".ssh/id_ed25519")
    make_key(tmp_path / ".ssh/other")
    assert [key.path.name for key in ssh_login.find_key_files(None, {})] == ["id_ed25519"]


# Words


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (socket.gaierror(-2, "Name or service not known"), "the name gpu1 does not resolve"),
        (ConnectionRefusedError(111, "refused"), "nothing listens there"),
        (OSError(113, "No route to host"), "there is no way to gpu1 port 22"),
        (TimeoutError(110, "Connection timed out"), "no answer from gpu1 port 22"),
        (OSError("Multiple exceptions: a, b"), "no connection to gpu1 port 22: Multiple exceptions: a, b"),
    ],
)
def test_network_errors_in_plain_words(error: OSError, words: str) -> None:
    assert words in ssh_texts.network_text(error, "gpu1", 22)


def test_a_busy_sshd_is_worth_another_try_and_a_web_server_is_not() -> None:
    assert ssh_texts.foreign_text(b"Exceeded MaxStartups\r\n")[1]
    assert ssh_texts.foreign_text(b"Not allowed at this time\r\n")[1]
    text, again = ssh_texts.foreign_text(b"HTTP/1.1 400 Bad Request\r\n\x1b[31mServer: x\r\n")
    assert not again
    assert "does not speak SSH" in text
    assert "\x1b" not in text
    assert ssh_texts.is_ssh_greeting(b"a banner line\r\nSSH-2.0-x\r\n")
