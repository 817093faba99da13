"""The link to a node over ssh: connect and log in, run a program, dial a port as the node sees it.

The only module that imports asyncssh; every exception of it ends here as one of `supervisor.errors`. Host keys are
always strict. Nothing is ever asked, and nothing is ever written to the user's files. It does not reconnect: one
object is one connection, and `retriable` of the error tells whether another one is worth a try.

What asyncssh would do by itself, and what is done here instead, each for a reason: ProxyJump (asyncssh's own jumps
take `UserKnownHostsFile none` as "trust anybody", and their errors name no host), ProxyCommand (`ssh_proxy.py`),
known_hosts (`ssh_known_hosts.py`), key files (one that is missing makes asyncssh give up; ssh goes on).
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import asyncssh

from supervisor.adapters import ssh_config, ssh_known_hosts, ssh_login, ssh_texts
from supervisor.adapters.base import ByteProcess, ByteStream
from supervisor.adapters.ssh_channel import ChannelProcess, ChannelStream
from supervisor.adapters.ssh_config import Target
from supervisor.adapters.ssh_hop import Hop, KeyPair
from supervisor.adapters.ssh_known_hosts import KnownKey, Presented
from supervisor.adapters.ssh_plan import Plan, host_key_algorithms, make_plan
from supervisor.adapters.ssh_proxy import ProxyProcess
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

# Without a handler of its own, Python prints a library's warnings on stderr, in the middle of the console.
logging.getLogger("asyncssh").addHandler(logging.NullHandler())

_PROCESS_WINDOW_BYTES = 2 * 1024 * 1024
_DIAL_WINDOW_BYTES = 256 * 1024
_MAX_PACKET_BYTES = 32 * 1024
_MAX_JUMPS = 8
_MAX_HOST_KEY_TYPES = 4
_CLOSE_WAIT_S = 2.0
_PROXY_LAST_WORDS_S = 0.5


class _Hop(Hop, asyncssh.SSHClient):
    """A hop with what only asyncssh can do."""

    def __init__(self, plan: Plan, on_lost: Callable[[Plan, Exception | None], None]) -> None:
        super().__init__(plan)
        self.conn: asyncssh.SSHClientConnection | None = None
        self._on_lost = on_lost
        self._agent: asyncssh.SSHAgentClient | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_lost(self.plan, exc)

    def public_keys(self, keys: Sequence[KnownKey]) -> list[asyncssh.SSHKey]:
        loaded = []
        for key in keys:
            try:
                loaded.append(asyncssh.import_public_key(key.openssh_text))
            except asyncssh.KeyImportError:
                pass  # a type that asyncssh does not know cannot be shown to it either
        return loaded

    async def file_keys(self, path: Path) -> Sequence[KeyPair]:
        load, certificates = asyncssh.load_keypairs, self.plan.certificates
        return await asyncio.to_thread(load, str(path), None, certificates, ignore_encrypted=True)

    async def agent_keys(self) -> list[tuple[str, KeyPair]]:
        path = self.plan.agent_path
        if not path:
            self.login.agent = "no ssh agent is known here (SSH_AUTH_SOCK, IdentityAgent)"
            return []
        self._agent = asyncssh.SSHAgentClient(path)
        try:
            keys = list(await self._agent.get_keys())
            if self.plan.certificates and keys:
                keys = list(asyncssh.load_keypairs(keys, None, self.plan.certificates))
        except (ValueError, OSError) as error:
            self.login.agent = f"the ssh agent at {path} does not answer: {error}"
            return []
        self.login.agent = f"the ssh agent at {path} holds {len(keys)} {'key' if len(keys) == 1 else 'keys'}"
        if self.plan.identities_only:
            self.login.agent += ", of which IdentitiesOnly allows those of IdentityFile"
        return [(f"agent key {ssh_texts.plain(pair.get_comment() or '')!r}", pair) for pair in keys]

    async def forget_agent(self) -> None:
        """The login is over: the agent's socket is not kept open."""
        if self._agent is not None:
            self._agent.close()
            try:
                await self._agent.wait_closed()
            except OSError:
                pass
            self._agent = None


class SshLink:
    """A `Link` over ssh. `target`: an alias, `user@host` or `ssh://user@host:port`; raises `UsageError` else.

    `host_key` ("SHA256:…") is the only host key to accept, whatever known_hosts says. ConnectTimeout of the ssh
    configuration goes before `connect_timeout_s`; it counts for each hop. Our keepalive is not slackened by it.
    """

    def __init__(
        self,
        target: str,
        *,
        host_key: str | None = None,
        connect_timeout_s: float = 20.0,
        keepalive_s: float = 3.0,
        keepalive_count: int = 3,
        config_files: Sequence[Path] | None = None,
        known_hosts: Path | None = None,
    ) -> None:
        self._target = ssh_config.parse_target(target)
        if host_key is not None and not re.fullmatch(r"SHA256:[A-Za-z0-9+/]{43}=?", host_key):
            raise UsageError(f'host_key {host_key!r} is not a fingerprint: it looks like "SHA256:…", 43 characters')
        self._pin = host_key.rstrip("=") if host_key else None
        self._connect_timeout_s = connect_timeout_s
        self._keepalive_s = keepalive_s
        self._keepalive_count = keepalive_count
        self._config_files = config_files
        self._known_hosts = known_hosts
        self._hops: list[_Hop] = []
        self._up = False
        self._why = ""
        self._closed = asyncio.Event()
        self._connecting: asyncio.Task[None] | None = None
        self._tearing_down: asyncio.Task[None] | None = None
        self._openings: set[asyncio.Task[Any]] = set()

    def __repr__(self) -> str:
        state = "closed" if self._closed.is_set() else "up" if self._up else "not connected"
        return f"<SshLink {self.name} {state}>"

    @property
    def name(self) -> str:
        """What the user calls the node."""
        return self._target.text

    # Connecting

    async def connect(self) -> None:
        """Connect and log in. Raises a `LinkError`; only `retriable` ones are worth another attempt."""
        if self._connecting is not None or self._closed.is_set():
            raise UnreachableError(f"{self.name}: this connection was used already")
        task = self._connecting = asyncio.ensure_future(self._connect_chain())
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            await self.close()
            raise
        if task.cancelled() or (task.exception() is None and self._closed.is_set()):
            raise UnreachableError(f"{self.name}: {self._why or 'closed while connecting'}")
        if (error := task.exception()) is not None:
            self._finish(str(error))
            await self.close()
            raise error
        self._up = True
        if (conn := self._hops[-1].conn) is None or conn.is_closed():
            self._hop_lost(self._hops[-1].plan, None)
            raise self._gone()

    async def _connect_chain(self) -> None:
        plan = await asyncio.to_thread(self._plan, self._target, True)
        await self._connect_hop(plan, None, _MAX_JUMPS)

    async def _connect_hop(self, plan: Plan, via: _Hop | None, jumps_left: int) -> _Hop:
        """Connect one hop, its own jump hosts first. `via`: the hop before it in the same ProxyJump list."""
        for jump in plan.jumps if via is None else ():
            if not jumps_left:
                raise LinkConfigError(f"{self.name}: ProxyJump goes through more than {_MAX_JUMPS} hosts, or in a ring")
            jump_plan = await asyncio.to_thread(self._plan, jump, False)
            via = await self._connect_hop(jump_plan, via, jumps_left - 1)
            jumps_left -= 1
        seen: list[Presented] = []
        while True:
            hop = _Hop(plan, self._hop_lost)
            self._hops.append(hop)
            try:
                async with asyncio.timeout(plan.timeout_s):
                    await self._open_hop(hop, via, [one.key_type for one in seen])
                return hop
            except (asyncssh.Error, OSError, ValueError) as error:
                if hop.presented is not None and plan.pin and hop.presented.fingerprint != plan.pin:
                    # The pin may be that of another key of the same host: each type is looked at once.
                    seen.append(hop.presented)
                    if isinstance(error, asyncssh.HostKeyNotVerifiable) and len(seen) < _MAX_HOST_KEY_TYPES:
                        await self._drop(hop)
                        continue
                raise await self._explain(hop, via, error, seen) from error
            finally:
                await hop.forget_agent()

    async def _drop(self, hop: _Hop) -> None:
        self._hops.remove(hop)
        if hop.proxy is not None:
            await hop.proxy.close()

    async def _open_hop(self, hop: _Hop, via: _Hop | None, unwanted_types: Sequence[str]) -> None:
        plan, sock = hop.plan, None
        if via is None and plan.proxy_command is not None:
            hop.proxy = ProxyProcess(plan.proxy_command)
            sock = await hop.proxy.start()
        try:
            await asyncssh.connect(
                **plan.options,
                client_factory=lambda: hop,
                known_hosts=hop.trusted,
                server_host_key_algs=host_key_algorithms(plan, unwanted_types),
                tunnel=via.conn if via is not None else None,
                proxy_command=None,
                sock=sock,
                connect_timeout=None,
                login_timeout=0,
                keepalive_interval=self._keepalive_s,
                keepalive_count_max=self._keepalive_count,
                agent_forwarding=False,
                password=None,
                password_auth=True,  # asyncssh then asks `_Hop`, which says no and takes note of the offer
                kbdint_auth=True,
            )
        finally:
            if sock is not None and hop.conn is None:
                sock.close()

    def _plan(self, target: Target, last: bool) -> Plan:
        """Read the configuration for one hop. Blocking, so in a thread: files, and `Match exec`."""
        who = self.name if last else f"jump host {target.text} (on the way to {self.name})"
        try:
            files = ssh_config.config_paths(self._config_files, os.environ)
            base = {
                "config": [str(file) for file in files],
                "host": target.host,
                "port": target.port if target.port is not None else (),
                "username": target.user if target.user is not None else (),
                "client_keys": None,  # ours are handed over one by one, by `_Hop`
                "x509_trusted_certs": None,
                "x509_trusted_cert_paths": [],
            }
            options = asyncssh.SSHClientConnectionOptions(**base)
            if options.config.has_match_final():
                base["final"] = True
                options = asyncssh.SSHClientConnectionOptions(**base)
            plan = make_plan(
                target,
                options,
                files,
                who=who,
                pin=self._pin if last else None,
                is_node=last,
                known_hosts=self._known_hosts,
                connect_timeout_s=self._connect_timeout_s,
                supported=_supported_options(),
            )
            plan.options = base
            return plan
        except LinkConfigError as error:
            raise LinkConfigError(f"{who}: {error}") from error
        except (asyncssh.Error, OSError, ValueError, UsageError) as error:
            raise LinkConfigError(f"{who}: the ssh configuration cannot be used: {error}") from error

    # What went wrong

    async def _explain(self, hop: _Hop, via: _Hop | None, error: Exception, seen: Sequence[Presented]) -> LinkError:
        plan = hop.plan
        proxy_text, proxy_code = await hop.proxy_text(_PROXY_LAST_WORDS_S)
        kind, text = self._cause(hop, via, error, seen)
        if proxy_code in (126, 127) and kind is UnreachableError:
            kind, text = LinkConfigError, "the ProxyCommand cannot be run"
        return kind(f"{plan.who}: {text}{proxy_text}{ssh_login.unread_text(plan.unread)}")

    def _cause(
        self, hop: _Hop, via: _Hop | None, error: Exception, seen: Sequence[Presented]
    ) -> tuple[type[LinkError], str]:
        plan = hop.plan
        if isinstance(error, asyncssh.HostKeyNotVerifiable):
            only_file = (
                self._config_files[0] if self._config_files is not None and len(self._config_files) == 1 else None
            )
            return HostKeyError, hop.host_key_text(ssh_texts.plain(error.reason), seen, only_file)
        if isinstance(error, asyncssh.PermissionDenied):
            return LoginError, f"{plan.where}: {ssh_login.refused_text(hop.login)}"
        if seen and plan.pin:  # the host has no further key type to look at
            return HostKeyError, ssh_known_hosts.pin_text(seen, plan.pin)
        if isinstance(error, asyncssh.ChannelOpenError) and via is not None:
            reason = ssh_texts.plain(error.reason)
            if error.code == asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED:
                return LinkConfigError, f"{via.plan.where} does not allow forwarding to {plan.host}: {reason}"
            return UnreachableError, f"{via.plan.where} cannot reach {plan.host} port {plan.port}: {reason}"
        if hop.first_bytes and not ssh_texts.is_ssh_greeting(hop.first_bytes):
            text, busy = ssh_texts.foreign_text(hop.first_bytes)
            return UnreachableError if busy else LinkConfigError, f"{plan.host} port {plan.port}: {text}"
        if isinstance(error, TimeoutError) and not error.errno:
            return UnreachableError, hop.timeout_text()
        if isinstance(error, OSError):
            return UnreachableError, ssh_texts.network_text(error, plan.host, plan.port)
        if isinstance(error, asyncssh.ConnectionLost):
            done = "during the login" if hop.logging_in else "before the login"
            return UnreachableError, f"{plan.where}: {ssh_texts.lost_text(error, 0, 0)}, {done}"
        if isinstance(error, asyncssh.DisconnectError) and hop.logging_in:
            why = ssh_texts.plain(error.reason)
            return LoginError, f"{plan.where}: {ssh_login.refused_text(hop.login, why=why)}"
        return LinkConfigError, f"{plan.where}: no connection can be agreed on: {ssh_texts.plain(str(error), 600)}"

    # The connection that stands

    def _hop_lost(self, plan: Plan, exc: Exception | None) -> None:
        if not self._up or self._closed.is_set():
            return
        why = ssh_texts.lost_text(exc, self._keepalive_s, self._keepalive_count)
        self._finish(why if plan.is_node else f"{plan.who}: {why}")
        self._tearing_down = asyncio.ensure_future(self._tear_down())

    def _finish(self, why: str) -> None:
        if not self._closed.is_set():
            self._why = why
            self._closed.set()

    def _connection(self) -> asyncssh.SSHClientConnection:
        conn = self._hops[-1].conn if self._up and self._hops and not self._closed.is_set() else None
        if conn is None:
            raise self._gone()
        return conn

    def _gone(self) -> UnreachableError:
        return UnreachableError(f"{self.name}: {self._why or 'not connected'}")

    async def execute(self, command: str, *, window_bytes: int | None = None) -> ByteProcess:
        """Run a constant command string through the login shell. `window_bytes` bounds what is in flight."""
        window_bytes = window_bytes or _PROCESS_WINDOW_BYTES
        process = ChannelProcess(window_bytes)
        opening = self._connection().create_session(
            lambda: process,  # type: ignore[arg-type, return-value]  # asyncssh calls it by name, see ssh_channel
            command,
            encoding=None,
            request_pty=False,
            x11_forwarding=False,
            window=window_bytes,
            max_pktsize=min(window_bytes, _MAX_PACKET_BYTES),
        )
        try:
            await self._open(opening, None)
        except (asyncssh.Error, OSError) as error:
            if self._is_gone(error):
                raise self._gone() from error
            if getattr(error, "code", None) == asyncssh.OPEN_REQUEST_SESSION_FAILED:
                raise LinkError(f"{self.name}: this login may not run programs there") from error
            reason = ssh_texts.plain(str(error))
            raise LinkError(
                f"{self.name}: sshd opens no further session on this connection ({reason}): see MaxSessions there"
            ) from error
        return process

    async def dial(self, host: str, port: int, *, timeout_s: float) -> ByteStream:
        """Connect to `host:port` as the node sees it, with no port opened here."""
        stream = ChannelStream(_DIAL_WINDOW_BYTES)
        opening = self._connection().create_connection(
            lambda: stream,  # type: ignore[arg-type, return-value]  # asyncssh calls it by name, see ssh_channel
            host,
            port,
            encoding=None,
            window=_DIAL_WINDOW_BYTES,
            max_pktsize=_MAX_PACKET_BYTES,
        )
        try:
            await self._open(opening, timeout_s)
        except TimeoutError as error:
            raise DialSilentError(
                f"no connection from {self.name} to {host} port {port} within {timeout_s:g} s"
            ) from error
        except (asyncssh.Error, OSError) as error:
            if self._is_gone(error):
                raise self._gone() from error
            reason = ssh_texts.plain(str(error))
            if getattr(error, "code", None) == asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED:
                raise DialForbiddenError(f"sshd on {self.name} does not allow forwarding ({reason})") from error
            raise DialRefusedError(f"on {self.name} nothing answers on {host} port {port} ({reason})") from error
        return stream

    async def _open(self, opening: Coroutine[Any, Any, Any], timeout_s: float | None) -> None:
        """Wait for a channel. One that comes too late is closed: asyncssh would keep it open, unread, for ever."""
        task = asyncio.ensure_future(opening)
        self._openings.add(task)
        task.add_done_callback(self._openings.discard)
        try:
            done, _ = await asyncio.wait({task}, timeout=timeout_s)
        except asyncio.CancelledError:
            task.add_done_callback(_abandon)
            raise
        if not done:
            task.add_done_callback(_abandon)
            raise TimeoutError
        task.result()

    def _is_gone(self, error: Exception) -> bool:
        conn = self._hops[-1].conn if self._hops else None
        lost = isinstance(error, asyncssh.ChannelOpenError) and error.reason == "SSH connection closed"
        return lost or self._closed.is_set() or conn is None or conn.is_closed()

    async def wait_closed(self) -> str:
        """Return why, once the connection is gone."""
        await self._closed.wait()
        return self._why

    async def round_trip_s(self) -> float | None:
        """One keepalive there and back: the only request that leaves no line in the node's log."""
        conn = self._connection()
        request = getattr(conn, "_make_global_request", None)  # asyncssh has no public way to ask
        if request is None:
            return None
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        await request(b"keepalive@openssh.com")
        return None if self._closed.is_set() else loop.time() - began_at

    async def close(self) -> None:
        """Close at once; never raises. What runs on the node and is detached is not touched."""
        self._finish("closed here")
        if self._connecting is not None and not self._connecting.done():
            self._connecting.cancel()
            await asyncio.wait({self._connecting}, timeout=_CLOSE_WAIT_S)
        if self._tearing_down is None:
            self._tearing_down = asyncio.ensure_future(self._tear_down())
        await asyncio.wait({self._tearing_down})

    async def _tear_down(self) -> None:
        for hop in reversed(self._hops):
            if hop.conn is not None:
                hop.conn.abort()
        try:
            async with asyncio.timeout(_CLOSE_WAIT_S):
                for hop in reversed(self._hops):
                    if hop.conn is not None:
                        await hop.conn.wait_closed()
                if self._openings:
                    await asyncio.wait(set(self._openings))
        except (TimeoutError, OSError, asyncssh.Error):
            pass
        for hop in self._hops:
            if hop.proxy is not None:
                await hop.proxy.close()


def _abandon(opening: asyncio.Task[Any]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        channel, _ = opening.result()
        channel.abort()


def _supported_options() -> set[str]:
    """What asyncssh reads, by its own list, less what is not used here; empty where there is no such list."""
    handlers = getattr(asyncssh.config.SSHClientConfig, "_handlers", None)
    return {*handlers} - {"pkcs11provider"} if isinstance(handlers, dict) else set()
