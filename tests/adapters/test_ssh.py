"""`SshLink` against a real OpenSSH sshd on loopback."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import logging
import re
import shlex
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio

from supervisor.adapters.ssh import SshLink
from supervisor.errors import (
    DialForbiddenError,
    DialRefusedError,
    DialSilentError,
    HostKeyError,
    LinkConfigError,
    LinkError,
    LoginError,
    UnreachableError,
    UsageError,
)
from tests.adapters.ssh_server import (
    Relay,
    Sshd,
    add_to_agent,
    agent,
    certify_host,
    fingerprint_of,
    free_port,
    hash_names,
    make_key,
)
from tests.real import processes
from tests.real.serving import server_of

PYTHON = shlex.quote(sys.executable)


@pytest.fixture(autouse=True)
def no_user_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither keys nor configuration nor agent of whoever runs the tests."""
    home = tmp_path / "operator"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.delenv("SUPERVISOR_SSH_CONFIG", raising=False)


@pytest_asyncio.fixture
async def sshd(tmp_path: Path) -> AsyncIterator[Sshd]:
    async with Sshd(tmp_path / "sshd") as server:
        yield server


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / f"config-{hashlib.sha1(text.encode()).hexdigest()[:8]}"
    path.write_text(text)
    return path


def link_to(tmp_path: Path, text: str, target: str = "node", **options: Any) -> SshLink:
    return SshLink(target, config_files=[written(tmp_path, text)], **options)


@asynccontextmanager
async def connected(link: SshLink) -> AsyncIterator[SshLink]:
    try:
        await link.connect()
        yield link
    finally:
        await link.close()


async def output_of(link: SshLink, command: str) -> str:
    process = await link.execute(command)
    data = bytearray()
    while part := await process.read(65536):
        data += part
    assert await process.wait() == 0, process.stderr_text()
    await process.close()
    return data.decode()


async def failure(link: SshLink, kind: type[LinkError]) -> str:
    """Connect, which must fail so; nothing must be left behind."""
    with pytest.raises(kind) as caught:
        await link.connect()
    assert caught.type is kind
    await asyncio.wait_for(link.close(), 5)
    await asyncio.wait_for(link.wait_closed(), 5)
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert not left
    return str(caught.value)


async def until(condition: Any, wait_s: float = 10) -> None:
    """For things of other processes, which nobody announces."""
    async with asyncio.timeout(wait_s):
        while not condition():  # noqa: ASYNC110 - another process cannot set an event
            await asyncio.sleep(0.02)


# Roads that lead there


@pytest.mark.asyncio
async def test_an_alias_of_the_configuration(sshd: Sshd, tmp_path: Path) -> None:
    async with connected(link_to(tmp_path, sshd.config())) as link:
        assert await output_of(link, "echo hello") == "hello\n"
        round_trip = await link.round_trip_s()
        assert round_trip is not None
        assert 0 < round_trip < 1
    assert await link.wait_closed() == "closed here"


@pytest.mark.asyncio
async def test_a_url_with_user_and_port_and_the_default_key(sshd: Sshd, tmp_path: Path) -> None:
    ssh = tmp_path / "operator/.ssh"
    ssh.mkdir(mode=0o700)
    sshd.client_key.rename(ssh / "id_ed25519")
    link = SshLink(f"ssh://{sshd.user}@127.0.0.1:{sshd.port}", config_files=[], known_hosts=sshd.known_hosts)
    async with connected(link):
        assert await output_of(link, "echo hello") == "hello\n"
    assert sorted(path.name for path in ssh.iterdir()) == ["id_ed25519"]  # nothing was written there


@pytest.mark.asyncio
async def test_the_users_own_files_by_default(sshd: Sshd, tmp_path: Path) -> None:
    ssh = tmp_path / "operator/.ssh"
    ssh.mkdir(mode=0o700)
    (ssh / "config").write_text(f"Host node\nHostName 127.0.0.1\nPort {sshd.port}\nIdentityFile {sshd.client_key}\n")
    (ssh / "known_hosts2").write_text(sshd.known_hosts.read_text())
    async with connected(SshLink("node")) as link:
        assert await output_of(link, "echo hello") == "hello\n"


@pytest.mark.asyncio
async def test_a_configuration_named_by_the_environment(
    sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUPERVISOR_SSH_CONFIG", str(written(tmp_path, sshd.config())))
    async with connected(SshLink("node")) as link:
        assert await output_of(link, "echo hello") == "hello\n"


@pytest.mark.asyncio
async def test_include_and_match(sshd: Sshd, tmp_path: Path) -> None:
    inner = written(tmp_path, f"Match host 127.0.0.1\n  IdentityFile {sshd.client_key}\n  User {sshd.user}\n")
    text = f"""
Host node
  HostName 127.0.0.1
  Port {sshd.port}
  UserKnownHostsFile {sshd.known_hosts}
Include {inner}
Match final originalhost node
  IdentitiesOnly yes
"""
    async with connected(link_to(tmp_path, text)) as link:
        assert await output_of(link, "echo hello") == "hello\n"


@pytest.mark.asyncio
async def test_proxy_jump_through_a_second_sshd(sshd: Sshd, tmp_path: Path) -> None:
    async with Sshd(tmp_path / "jump") as jump:
        text = sshd.config(extra="  ProxyJump bastion") + jump.config(alias="bastion")
        async with connected(link_to(tmp_path, text)) as link:
            assert await output_of(link, "echo hello") == "hello\n"
            assert len(jump.sessions()) > 0
        await until(lambda: not jump.sessions() and not sshd.sessions())


@pytest.mark.asyncio
async def test_a_lost_jump_host_is_named(sshd: Sshd, tmp_path: Path) -> None:
    async with Sshd(tmp_path / "jump") as jump:
        text = sshd.config(extra="  ProxyJump bastion") + jump.config(alias="bastion")
        async with connected(link_to(tmp_path, text)) as link:
            for process in jump.sessions():
                process.kill()
            why = await asyncio.wait_for(link.wait_closed(), 10)
            assert "jump host bastion (on the way to node)" in why


@pytest.mark.asyncio
async def test_an_unknown_key_of_the_jump_host_names_it(sshd: Sshd, tmp_path: Path) -> None:
    async with Sshd(tmp_path / "jump") as jump:
        jump.known_hosts.write_text("")
        text = sshd.config(extra="  ProxyJump bastion\n") + jump.config(
            alias="bastion", extra="StrictHostKeyChecking no"
        )
        said = await failure(link_to(tmp_path, text), HostKeyError)
        assert "jump host bastion (on the way to node)" in said
        assert fingerprint_of(Path(f"{jump.host_keys[0]}.pub")) in said
        assert "[node]" not in said  # host_key of the profile is the node's, not this one's


@pytest.mark.asyncio
async def test_no_trust_at_the_jump_host_by_userknownhostsfile_none(sshd: Sshd, tmp_path: Path) -> None:
    async with Sshd(tmp_path / "jump") as jump:
        bastion = jump.config(alias="bastion").replace(
            f"UserKnownHostsFile {jump.known_hosts}", "UserKnownHostsFile none"
        )
        text = sshd.config(extra="  ProxyJump bastion\n") + bastion
        assert "the host key is not known" in await failure(link_to(tmp_path, text), HostKeyError)


@pytest.mark.asyncio
async def test_a_refused_login_at_the_jump_host_names_it(sshd: Sshd, tmp_path: Path) -> None:
    async with Sshd(tmp_path / "jump") as jump:
        jump.authorized_keys.write_text("")
        text = sshd.config(extra="  ProxyJump bastion\n") + jump.config(alias="bastion")
        said = await failure(link_to(tmp_path, text), LoginError)
        assert said.startswith("jump host bastion (on the way to node): ")


@pytest.mark.asyncio
async def test_a_jump_host_that_cannot_reach_the_node_or_may_not(sshd: Sshd, tmp_path: Path) -> None:
    async with Sshd(tmp_path / "jump") as jump:
        closed = sshd.config(extra="  ProxyJump bastion\n").replace(str(sshd.port), str(free_port()))
        said = await failure(link_to(tmp_path, closed + jump.config(alias="bastion")), UnreachableError)
        assert f"{jump.user}@127.0.0.1:{jump.port} cannot reach 127.0.0.1" in said
    async with Sshd(tmp_path / "closed", extra="AllowTcpForwarding no") as jump:
        text = sshd.config(extra="  ProxyJump bastion\n") + jump.config(alias="bastion")
        assert "does not allow forwarding" in await failure(link_to(tmp_path, text), LinkConfigError)


@pytest.mark.asyncio
async def test_a_ring_of_jump_hosts_ends(sshd: Sshd, tmp_path: Path) -> None:
    assert "in a ring" in await failure(link_to(tmp_path, "Host *\n  ProxyJump bastion\n"), LinkConfigError)


RELAY_SCRIPT = """
import os, select, socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
sys.stderr.write("a word on stderr, which is not the server\\n"); sys.stderr.flush()
while True:
    for ready in select.select([0, s], [], [])[0]:
        data = os.read(0, 65536) if ready == 0 else s.recv(65536)
        if not data: sys.exit(0)
        s.sendall(data) if ready == 0 else os.write(1, data)
"""


@pytest.mark.asyncio
async def test_a_proxy_command_with_shell_words(sshd: Sshd, tmp_path: Path) -> None:
    script = tmp_path / "relay.py"
    script.write_text(RELAY_SCRIPT)
    text = sshd.config(extra=f"  ProxyCommand {PYTHON} {script} %h %p || false")
    before = set(psutil.Process().children(recursive=True))
    async with connected(link_to(tmp_path, text)) as link:
        assert await output_of(link, "echo hello") == "hello\n"
        assert len(await output_of(link, "head -c 3000000 /dev/zero")) == 3_000_000
    assert not {
        one for one in psutil.Process().children(recursive=True) if one not in before and "relay.py" in str(one)
    }


@pytest.mark.asyncio
async def test_the_first_of_jump_and_command_counts(sshd: Sshd, tmp_path: Path) -> None:
    script = tmp_path / "relay.py"
    script.write_text(RELAY_SCRIPT)
    text = sshd.config(extra=f"  ProxyCommand {PYTHON} {script} %h %p\n  ProxyJump nowhere.invalid")
    async with connected(link_to(tmp_path, text)) as link:
        assert await output_of(link, "echo hello") == "hello\n"


@pytest.mark.asyncio
async def test_a_failing_proxy_command_is_quoted(sshd: Sshd, tmp_path: Path) -> None:
    failing = sshd.config(extra="  ProxyCommand sh -c 'echo no route to gateway >&2; exit 3'")
    said = await failure(link_to(tmp_path, failing), UnreachableError)
    assert "ended with 3: no route to gateway" in said
    missing = sshd.config(extra="  ProxyCommand /no/such/program %h")
    assert "cannot be run" in await failure(link_to(tmp_path, missing), LinkConfigError)


# Host keys


@pytest.mark.asyncio
async def test_an_unknown_host_key(sshd: Sshd, tmp_path: Path) -> None:
    sshd.known_hosts.write_text("")
    config = written(tmp_path, sshd.config(extra="  StrictHostKeyChecking no"))
    said = await failure(SshLink("node", config_files=[config]), HostKeyError)
    fingerprint = fingerprint_of(Path(f"{sshd.host_keys[0]}.pub"))
    assert f"host 127.0.0.1, port {sshd.port}, key ssh-ed25519 {fingerprint}" in said
    assert f"`ssh -F {config} node`" in said
    assert f'host_key = "{fingerprint}" under [node]' in said
    assert sshd.known_hosts.read_text() == ""


@pytest.mark.asyncio
async def test_a_known_address_does_not_make_a_name_known(sshd: Sshd, tmp_path: Path) -> None:
    text = sshd.config().replace("HostName 127.0.0.1", "HostName localhost\n  AddressFamily inet")
    assert "the host key is not known" in await failure(link_to(tmp_path, text), HostKeyError)


@pytest.mark.asyncio
async def test_a_changed_host_key(sshd: Sshd, tmp_path: Path) -> None:
    other = make_key(tmp_path / "other")
    sshd.known_hosts.write_text(f"# first\n[127.0.0.1]:{sshd.port} {sshd.public(other)}")
    said = await failure(link_to(tmp_path, sshd.config()), HostKeyError)
    assert "THE HOST KEY HAS CHANGED" in said
    assert f"{sshd.known_hosts}:2 has ssh-ed25519 {fingerprint_of(Path(f'{other}.pub'))}" in said
    assert fingerprint_of(Path(f"{sshd.host_keys[0]}.pub")) in said
    assert f"ssh-keygen -f {sshd.known_hosts} -R '[127.0.0.1]:{sshd.port}'" in said


@pytest.mark.asyncio
async def test_a_host_of_which_only_another_key_type_is_known(sshd: Sshd, tmp_path: Path) -> None:
    sshd.know(make_key(tmp_path / "rsa", key_type="rsa"))
    said = await failure(link_to(tmp_path, sshd.config()), HostKeyError)
    assert "a key of a type that is not known of it" in said
    assert f"{sshd.known_hosts}:1 has ssh-rsa" in said


@pytest.mark.asyncio
async def test_the_known_type_is_asked_for_first_and_names_may_be_hashed(tmp_path: Path) -> None:
    async with Sshd(tmp_path / "two", host_key_types=("ed25519", "rsa")) as server:
        server.know(server.host_keys[1])
        hash_names(server.known_hosts)
        assert "127.0.0.1" not in server.known_hosts.read_text()
        async with connected(link_to(tmp_path, server.config())) as link:
            assert await output_of(link, "echo hello") == "hello\n"


@pytest.mark.asyncio
async def test_a_revoked_host_key(sshd: Sshd, tmp_path: Path) -> None:
    with sshd.known_hosts.open("a") as file:
        file.write(f"@revoked * {sshd.public(sshd.host_keys[0])}")
    said = await failure(link_to(tmp_path, sshd.config()), HostKeyError)
    assert f"marked as revoked in {sshd.known_hosts}:2" in said


@pytest.mark.asyncio
async def test_a_certificate_of_the_host(tmp_path: Path) -> None:
    folder = tmp_path / "certified"
    server = Sshd(folder, extra=f"HostCertificate {folder}/host_ed25519-cert.pub")
    authority = make_key(tmp_path / "authority")
    certify_host(server.host_keys[0], authority, "127.0.0.1")
    async with server:
        server.known_hosts.write_text(f"@cert-authority [127.0.0.1]:* {server.public(authority)}")
        async with connected(link_to(tmp_path, server.config())) as link:
            assert await output_of(link, "echo hello") == "hello\n"
        server.know(server.host_keys[0])  # no authority known: the plain key counts
        async with connected(link_to(tmp_path, server.config())) as link:
            assert await output_of(link, "echo hello") == "hello\n"


@pytest.mark.asyncio
async def test_a_pinned_key_counts_alone(tmp_path: Path) -> None:
    async with Sshd(tmp_path / "two", host_key_types=("ed25519", "rsa")) as server:
        server.know(make_key(tmp_path / "other"))
        for key in server.host_keys:  # the second one is not the one that the server shows first
            pin = fingerprint_of(Path(f"{key}.pub"))
            async with connected(link_to(tmp_path, server.config(), host_key=pin)) as link:
                assert await output_of(link, "echo hello") == "hello\n"
        server.know(*server.host_keys)
        wrong = fingerprint_of(tmp_path / "other.pub")
        said = await failure(link_to(tmp_path, server.config(), host_key=wrong), HostKeyError)
        assert f"host_key = {wrong}" in said
        for key in server.host_keys:
            assert fingerprint_of(Path(f"{key}.pub")) in said


def test_a_pin_that_is_no_fingerprint() -> None:
    with pytest.raises(UsageError, match="MD5:00"):
        SshLink("node", host_key="MD5:00")


# Logins


@pytest.mark.asyncio
async def test_a_refused_key(sshd: Sshd, tmp_path: Path) -> None:
    wrong, locked = make_key(tmp_path / "wrong"), make_key(tmp_path / "locked", passphrase="secret")
    text = sshd.config(
        key=wrong,
        extra=f"  IdentityFile {locked}\n  IdentityFile {tmp_path}/gone\n  BindInterface lo\n  LogLevel DEBUG",
    )
    link = link_to(tmp_path, text)
    said = await failure(link, LoginError)
    assert f"{sshd.user}@127.0.0.1:{sshd.port}: the login was refused" in said
    assert f"keys tried: file {wrong} (ssh-ed25519 {fingerprint_of(Path(f'{wrong}.pub'))})" in said
    encrypted = f"{locked} ({fingerprint_of(Path(f'{locked}.pub'))}) is encrypted and not in the agent"
    assert encrypted in said
    assert f"ssh-add {locked}" in said
    assert f"{tmp_path}/gone is missing" in said
    assert "no ssh agent" in said
    assert re.search(r"not read here, of your ssh configuration: BindInterface \(.*config-\w+:10\)", said)
    assert "LogLevel" not in said
    assert await link.wait_closed() == said


@pytest.mark.asyncio
async def test_nothing_is_prompted_for(tmp_path: Path) -> None:
    extra = "PasswordAuthentication yes\nKbdInteractiveAuthentication yes\nBanner /etc/hostname"
    banner = tmp_path / "banner"
    banner.write_text("Members only\n")
    async with Sshd(tmp_path / "sshd", extra=extra.replace("/etc/hostname", str(banner))) as server:
        server.authorized_keys.write_text("")
        said = await failure(link_to(tmp_path, server.config()), LoginError)
    assert "still offers" in said
    assert "password" in said
    assert "the node says: Members only" in said


@pytest.mark.asyncio
async def test_a_second_factor_is_told(tmp_path: Path) -> None:
    extra = "AuthenticationMethods publickey,password\nPasswordAuthentication yes\nPermitRootLogin yes"
    async with Sshd(tmp_path / "sshd", extra=extra) as server:
        said = await failure(link_to(tmp_path, server.config()), LoginError)
    assert "a key was accepted, but the node wants a second step" in said


@pytest.mark.asyncio
async def test_the_agent(sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locked = make_key(tmp_path / "locked", passphrase="secret")
    sshd.authorized_keys.write_text(sshd.public(locked))
    async with agent(tmp_path) as sock:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(sock))
        add_to_agent(sock, make_key(tmp_path / "unrelated", comment="unrelated"))
        said = await failure(link_to(tmp_path, sshd.config(key=locked)), LoginError)
        assert "agent key 'unrelated'" in said
        assert "is encrypted and not in the agent" in said
        add_to_agent(sock, locked, "secret")
        for extra in ("", "  IdentitiesOnly yes"):
            async with connected(link_to(tmp_path, sshd.config(key=locked, extra=extra))) as link:
                assert await output_of(link, "echo hello") == "hello\n"
        only = await failure(
            link_to(tmp_path, sshd.config(key=tmp_path / "gone", extra="  IdentitiesOnly yes")), LoginError
        )
        assert "keys tried: none" in only
        monkeypatch.delenv("SSH_AUTH_SOCK")
        text = sshd.config(key=locked, extra=f"  IdentityAgent {sock}")
        async with connected(link_to(tmp_path, text)) as link:
            assert await output_of(link, "echo hello") == "hello\n"
        monkeypatch.setenv("SSH_AUTH_SOCK", str(sock))
        text = sshd.config(key=locked, extra="  IdentityAgent none")
        assert "no ssh agent" in await failure(link_to(tmp_path, text), LoginError)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "nobody.sock"))
    assert "does not answer" in await failure(link_to(tmp_path, sshd.config(key=locked)), LoginError)


@pytest.mark.asyncio
async def test_too_many_keys_is_a_refused_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Sshd(tmp_path / "sshd", extra="MaxAuthTries 2") as server, agent(tmp_path) as sock:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(sock))
        for number in range(4):
            add_to_agent(sock, make_key(tmp_path / f"key{number}", comment=f"key{number}"))
        said = await failure(link_to(tmp_path, server.config(key=tmp_path / "gone")), LoginError)
    assert "Too many authentication failures" in said
    assert "key0" in said


@pytest.mark.asyncio
async def test_a_broken_configuration_is_named(tmp_path: Path) -> None:
    config = written(tmp_path, "Host node\n  Port many\n")
    said = await failure(SshLink("node", config_files=[config]), LinkConfigError)
    assert f"{config} line 2" in said
    assert "cannot be read" in await failure(SshLink("node", config_files=[tmp_path / "gone"]), LinkConfigError)


# Networks


@pytest.mark.asyncio
async def test_a_closed_port(tmp_path: Path) -> None:
    port = free_port()
    said = await failure(SshLink(f"ssh://127.0.0.1:{port}", config_files=[]), UnreachableError)
    assert f"127.0.0.1 port {port} refuses the connection" in said


@pytest.mark.asyncio
async def test_a_name_that_does_not_resolve() -> None:
    said = await failure(SshLink("no-such-node.invalid", config_files=[]), UnreachableError)
    assert "no-such-node.invalid" in said


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", LinkConfigError, "does not speak SSH there: it said 'HTTP/1.1 400"),
        (b"\x15\x03\x03\x00\x02\x02F", LinkConfigError, "does not speak SSH"),
        (b"Exceeded MaxStartups\r\n", UnreachableError, "turns connections away for now"),
        (b"", UnreachableError, "the other side closed the connection, before the login"),
        (b"SSH-2.0-x\r\n", UnreachableError, "the other side closed the connection"),
        (b"SSH-2.0-x\r\n" + b"\x00\x00\x00\x00garbage", LinkConfigError, "no connection can be agreed on"),
    ],
)
async def test_servers_that_are_no_sshd(said: bytes, kind: type[LinkError], words: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(said)
        await writer.drain()
        writer.write_eof()
        await reader.read()
        writer.close()

    async with server_of(answer) as port:
        assert words in await failure(SshLink(f"ssh://127.0.0.1:{port}", config_files=[]), kind)


@pytest.mark.asyncio
async def test_a_silent_server() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with server_of(answer) as port:
        link = SshLink(f"ssh://127.0.0.1:{port}", config_files=[], connect_timeout_s=0.3)
        said = await failure(link, UnreachableError)
    assert f"127.0.0.1 port {port} took the connection, but no SSH server answered within 0.3 s" in said


@pytest.mark.asyncio
async def test_the_users_connect_timeout_counts(tmp_path: Path) -> None:
    with unanswering_port() as port:
        text = f"Host node\n HostName 127.0.0.1\n Port {port}\n ConnectTimeout 1\n"
        said = await failure(link_to(tmp_path, text, connect_timeout_s=60), UnreachableError)
    assert said.endswith(f"no connection to 127.0.0.1 port {port} within 1 s")


class unanswering_port:
    """A port whose queue is full: a connection to it neither comes about nor fails."""

    def __enter__(self) -> int:
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(0)
        port = int(self._listener.getsockname()[1])
        self._fillers = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
            self._fillers.append(filler)
        return port

    def __exit__(self, *_: object) -> None:
        for sock in (*self._fillers, self._listener):
            sock.close()


# A connection that breaks


@pytest.mark.asyncio
async def test_a_frozen_node_is_noticed_in_time(sshd: Sshd, tmp_path: Path) -> None:
    async with connected(link_to(tmp_path, sshd.config(), keepalive_s=0.3, keepalive_count=2)) as link:
        process = await link.execute("cat")
        reading = asyncio.create_task(process.read(1))
        frozen = sshd.sessions()
        for one in frozen:
            one.send_signal(signal.SIGSTOP)
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        dialling = asyncio.create_task(link.dial("127.0.0.1", 9, timeout_s=60))
        assert await asyncio.wait_for(link.wait_closed(), 10) == "no answer to 2 keepalives in 0.9 s"
        assert 0.5 < loop.time() - began_at < 3
        with pytest.raises(UnreachableError, match="no answer to 2 keepalives"):
            await dialling
        with pytest.raises(ConnectionError, match="keepalive"):
            await reading
        assert await process.wait() is None
        with pytest.raises(ConnectionError):
            await process.write(b"x")
        with pytest.raises(UnreachableError, match="no answer to 2 keepalives"):
            await link.execute("true")
        with pytest.raises(UnreachableError):
            await link.round_trip_s()


@pytest.mark.asyncio
async def test_a_reset_and_a_killed_session(sshd: Sshd, tmp_path: Path) -> None:
    async with Relay(sshd.port) as relay:
        text = sshd.config(extra=f"  HostKeyAlias [127.0.0.1]:{sshd.port}").replace(
            f"Port {sshd.port}", f"Port {relay.port}"
        )
        async with connected(link_to(tmp_path, text)) as link:
            relay.reset()
            assert await asyncio.wait_for(link.wait_closed(), 10) == "connection reset by peer"
    async with connected(link_to(tmp_path, sshd.config())) as link:
        for process in sshd.sessions():
            process.kill()
        assert await asyncio.wait_for(link.wait_closed(), 10) == "the other side closed the connection"


@pytest.mark.asyncio
async def test_close_ends_whatever_waits(sshd: Sshd, tmp_path: Path) -> None:
    with unanswering_port() as port:
        link = link_to(tmp_path, sshd.config())
        await link.connect()
        process = await link.execute("cat")
        waiting = [
            asyncio.create_task(process.read(1)),
            asyncio.create_task(link.dial("127.0.0.1", port, timeout_s=60)),
            asyncio.create_task(link.execute("sleep 60")),
        ]
        await asyncio.sleep(0)
        await asyncio.wait_for(link.close(), 5)
        results = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 5)
    assert all(isinstance(one, (ConnectionError, UnreachableError, bytes)) for one in results), results
    await link.close()
    assert await link.wait_closed() == "closed here"
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


@pytest.mark.asyncio
async def test_close_while_connecting_and_a_cancelled_connect() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with server_of(answer) as port:
        for cancel in (False, True):
            link = SshLink(f"ssh://127.0.0.1:{port}", config_files=[])
            connecting = asyncio.create_task(link.connect())
            await until(lambda link=link: link._hops and link._hops[0].conn is not None)
            if cancel:
                connecting.cancel()
            await asyncio.wait_for(link.close(), 5)
            with pytest.raises(asyncio.CancelledError if cancel else UnreachableError):
                await asyncio.wait_for(connecting, 5)


@pytest.mark.asyncio
async def test_close_before_connect_and_one_object_one_connection() -> None:
    link = SshLink("node", config_files=[])
    await link.close()
    with pytest.raises(UnreachableError):
        await link.connect()
    with pytest.raises(UnreachableError):
        await link.execute("true")


# Programs


@pytest.mark.asyncio
async def test_streams_of_a_program(sshd: Sshd, tmp_path: Path) -> None:
    async with connected(link_to(tmp_path, sshd.config())) as link:
        process = await link.execute("cat; echo wrong >&2; exit 7")
        payload = bytes(range(256)) * 4096
        reading = asyncio.create_task(read_exactly(process, len(payload)))
        await process.write(payload)
        assert await reading == payload
        await process.close()
        with pytest.raises(ConnectionError):
            await process.write(b"late")
        process = await link.execute("echo wrong >&2; exit 7")
        assert await process.read(1) == b""
        assert await process.wait() == 7
        assert process.stderr_text() == "wrong\n"
        killed = await link.execute("kill -9 $$")
        assert await killed.wait() is None
        noisy = await link.execute("head -c 300000 /dev/zero | tr '\\0' x >&2; echo done")
        assert await noisy.read(100) == b"done\n"
        assert noisy.stderr_text() == "x" * 65536


async def read_exactly(stream: Any, size: int) -> bytes:
    data = bytearray()
    while len(data) < size and (part := await stream.read(65536)):
        data += part
    return bytes(data)


@pytest.mark.asyncio
async def test_closing_ends_the_input_of_a_program(sshd: Sshd, tmp_path: Path) -> None:
    got = tmp_path / "got"
    async with connected(link_to(tmp_path, sshd.config())) as link:
        process = await link.execute(f"cat > {got}.part; mv {got}.part {got}")
        await process.write(b"last words")
        await process.close()
        await until(got.exists)
    assert got.read_bytes() == b"last words"


@pytest.mark.asyncio
async def test_twenty_megabytes_come_through_whole(sshd: Sshd, tmp_path: Path) -> None:
    script = tmp_path / "data.py"
    script.write_text(
        "import hashlib, os, sys\nd = os.urandom(20_000_000)\nsys.stdout.buffer.write(d)\n"
        "sys.stderr.write(hashlib.sha256(d).hexdigest())\n"
    )
    async with connected(link_to(tmp_path, sshd.config())) as link:
        for window_bytes in (None, 32 * 1024):
            process = await link.execute(f"{PYTHON} {script}", window_bytes=window_bytes)
            digest, size = hashlib.sha256(), 0
            while data := await process.read(1 << 20):
                digest.update(data)
                size += len(data)
                process.allow(32 * 1024 << size % 7)  # whatever it is changed to on the way
            assert await process.wait() == 0
            assert (size, process.stderr_text()) == (20_000_000, digest.hexdigest())


@pytest.mark.asyncio
async def test_a_slow_reader_slows_the_program(sshd: Sshd, tmp_path: Path) -> None:
    count, script = tmp_path / "count", tmp_path / "flood.py"
    script.write_text(
        "import os, sys\nfd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)\nwritten = 0\n"
        "while written < 50_000_000:\n"
        "    written += os.write(1, bytes(4096))\n    os.pwrite(fd, b'%12d' % written, 0)\n"
    )

    def written_bytes() -> int:
        return int(count.read_text() or 0) if count.exists() else 0

    async with connected(link_to(tmp_path, sshd.config())) as link:
        process = await link.execute(f"{PYTHON} {script} {count}", window_bytes=64 * 1024)
        assert await process.read(1) == b"\0"
        last = -1
        while written_bytes() != last:  # it has stopped once a third of a second brings no more
            last = written_bytes()
            await asyncio.sleep(0.3)
        assert last < 1_500_000  # our window, twice, and the buffers of sshd and its pipe
        process.allow(8 << 20)  # used from the next byte that is read on
        assert await process.read(1) == b"\0"
        while written_bytes() < last + (6 << 20):  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.01)
        assert 2 + len(await read_exactly(process, 50_000_000)) >= 50_000_000
        assert await process.wait() == 0


async def output_once_free(link: SshLink, command: str) -> str:
    """sshd frees a session a moment after its program has ended; until then it says MaxSessions."""
    async with asyncio.timeout(10):
        while True:
            try:
                return await output_of(link, command)
            except LinkError as error:
                assert "MaxSessions" in str(error)
                await asyncio.sleep(0.02)


@pytest.mark.asyncio
async def test_more_sessions_than_sshd_allows(tmp_path: Path) -> None:
    server = Sshd(tmp_path / "sshd", extra="MaxSessions 2")
    async with server, connected(link_to(tmp_path, server.config())) as link:
        running = [await link.execute("cat") for _ in range(2)]
        with pytest.raises(LinkError, match="MaxSessions"):
            await link.execute("true")
        await running[0].close()
        await running[0].wait()
        assert await output_once_free(link, "echo still up") == "still up\n"


# Ports of the node


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


@pytest.mark.asyncio
async def test_thirty_dials_at_once(sshd: Sshd, tmp_path: Path) -> None:
    async def talk(link: SshLink, port: int, number: int) -> None:
        stream = await link.dial("127.0.0.1", port, timeout_s=10)
        assert not stream.readable()
        payload = b"%d" % number * 100_000
        writing = asyncio.create_task(stream.write(payload))
        assert await read_exactly(stream, len(payload)) == payload
        await writing
        await stream.close()
        with pytest.raises(ConnectionError):
            await stream.write(b"x")
        assert await stream.read(1) == b""

    async with server_of(echo) as port, connected(link_to(tmp_path, sshd.config())) as link:
        await asyncio.gather(*(talk(link, port, number) for number in range(30)))


@pytest.mark.asyncio
async def test_an_ended_connection_is_readable(sshd: Sshd, tmp_path: Path) -> None:
    async def farewell(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"bye")
        writer.close()

    async with server_of(farewell) as port, connected(link_to(tmp_path, sshd.config())) as link:
        stream = await link.dial("127.0.0.1", port, timeout_s=10)
        await stream.write(b"go\n")
        await until(stream.readable)
        assert await read_exactly(stream, 100) == b"bye"
        assert stream.readable()
        await stream.close()


@pytest.mark.asyncio
async def test_a_refused_port_and_a_silent_one(sshd: Sshd, tmp_path: Path) -> None:
    async with connected(link_to(tmp_path, sshd.config())) as link:
        port = free_port()
        with pytest.raises(DialRefusedError, match=f"127.0.0.1 port {port}"):
            await link.dial("127.0.0.1", port, timeout_s=10)
        with unanswering_port() as silent, pytest.raises(DialSilentError, match=r"within 0\.2 s"):
            await link.dial("127.0.0.1", silent, timeout_s=0.2)
        assert await output_of(link, "echo still up") == "still up\n"


@pytest.mark.asyncio
async def test_a_connection_that_comes_too_late_is_closed(sshd: Sshd, tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def note_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        ended.set()

    async with server_of(note_the_end) as port, connected(link_to(tmp_path, sshd.config())) as link:
        # `name` takes one that ends meanwhile: sshd's helpers come and go.
        sessions = [one for one in sshd.sessions() if "sshd" in processes.name(one)]
        for one in sessions:
            processes.send(one, signal.SIGSTOP)
        with pytest.raises(DialSilentError):
            await link.dial("127.0.0.1", port, timeout_s=0.05)
        for one in sessions:
            processes.send(one, signal.SIGCONT)
        await asyncio.wait_for(ended.wait(), 10)


@pytest.mark.asyncio
async def test_forwarding_that_is_forbidden_says_nothing_of_the_port(tmp_path: Path) -> None:
    server = Sshd(tmp_path / "sshd", extra="AllowTcpForwarding no")
    async with server, server_of(echo) as port, connected(link_to(tmp_path, server.config())) as link:
        with pytest.raises(DialForbiddenError, match="does not allow forwarding"):
            await link.dial("127.0.0.1", port, timeout_s=10)


@pytest.mark.asyncio
async def test_nothing_on_stderr(sshd: Sshd, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async with connected(link_to(tmp_path, sshd.config())) as link:
        logging.getLogger("asyncssh").warning("a warning of the library")
        for one in sshd.sessions():
            one.kill()
        await link.wait_closed()
    del link
    gc.collect()
    assert capfd.readouterr() == ("", "")
