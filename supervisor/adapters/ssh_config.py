"""What the user's ssh configuration says about one host: for choices and for error texts.

asyncssh reads the same files for the connection itself; this reading only tells which options stand
there, in which file and line, so that an error can name what was not honoured. It never executes
anything (`Match exec` counts as matching), never writes, and never imports asyncssh.
"""

from __future__ import annotations

import getpass
import os
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from supervisor.errors import LinkConfigError, UsageError

CONFIG_VARIABLE = "SUPERVISOR_SSH_CONFIG"
"""Environment variable that names another configuration file, as `ssh -F` does ("none" for none)."""

SYSTEM_CONFIG = Path("/etc/ssh/ssh_config")
_MAX_INCLUDE_DEPTH = 16

# Options that change what is shown, stored or forwarded, never whether a connection comes about.
# Whatever is neither here nor read by asyncssh is named in errors.
_HARMLESS = frozenset(
    """addkeystoagent batchmode canonicalizepermittedcnames checkhostip clearallforwardings connectionattempts
    dynamicforward enableescapecommandline escapechar exitonforwardfailure fingerprinthash forkafterauthentication
    forwardx11 forwardx11timeout forwardx11trusted gatewayports hashknownhosts host ignoreunknown include ipqos
    localcommand localforward loglevel logverbose match nohostauthenticationforlocalhost numberofpasswordprompts
    obscurekeystroketiming permitlocalcommand permitremoteopen protocol remoteforward sessiontype stdinnull
    streamlocalbindmask streamlocalbindunlink stricthostkeychecking syslogfacility tunnel tunneldevice
    updatehostkeys useKeychain verifyhostkeydns visualhostkey warnweakcrypto xauthlocation""".lower().split()
)


@dataclass(frozen=True)
class Target:
    """Where to connect, as the user wrote it; what is left out comes from the ssh configuration."""

    text: str
    host: str
    user: str | None = None
    port: int | None = None

    def ssh_command(self, config_file: str | None = None) -> str:
        """The command line that reaches the same place, for "run this once"."""
        words = ["ssh"]
        if config_file is not None:
            words += ["-F", config_file]
        if self.port is not None:
            words += ["-p", str(self.port)]
        words.append(f"{self.user}@{self.host}" if self.user is not None else self.host)
        return shlex.join(words)


@dataclass(frozen=True)
class Setting:
    """One line of the configuration that applies to the host; `option` as it is written there."""

    option: str
    value: str
    file: Path
    line: int

    def __str__(self) -> str:
        return f"{self.option} ({self.file}:{self.line})"


def parse_target(text: str) -> Target:
    """An alias, `user@host` or `ssh://[user@]host[:port]`. Raises `UsageError` that names the text."""
    if text.lower().startswith("ssh://"):
        return _parse_authority(text, text[6:].rstrip("/"))
    user, at, host = text.rpartition("@")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif re.fullmatch(r"(\[.*\]|[^:]+):\d+", host):
        raise UsageError(
            f"{text!r} is not a host: a port is given as ssh://{text}, or by Port in the ssh configuration"
        )
    return _checked(text, host, user if at else None, None)


def parse_jump(text: str) -> Target:
    """One host of ProxyJump: `[user@]host[:port]` or an ssh:// address."""
    return _parse_authority(text, text[6:].rstrip("/") if text.lower().startswith("ssh://") else text)


def _parse_authority(text: str, authority: str) -> Target:
    user, at, place = authority.rpartition("@")
    bracketed = re.fullmatch(r"\[([^\[\]]+)\](?::(.*))?", place)
    host, port_text = bracketed.groups() if bracketed else (place, None)
    if not bracketed and place.count(":") == 1:
        host, port_text = place.split(":")
    port = None
    if port_text is not None:
        if not re.fullmatch(r"[0-9]{1,5}", port_text) or not 0 < int(port_text) < 65536:
            raise UsageError(f"{text!r}: {port_text!r} is not a port (1 to 65535)")
        port = int(port_text)
    elif not bracketed and ":" in host:
        raise UsageError(f"{text!r}: an IPv6 address is written in brackets, as in ssh://[fe80::1]:22")
    return _checked(text, host, user if at else None, port)


def _checked(text: str, host: str, user: str | None, port: int | None) -> Target:
    if not host or user == "":
        raise UsageError(f"{text!r} is not a host: write an alias, user@host or ssh://user@host:port")
    # A leading dash would be an option where the host is handed on to a ProxyCommand.
    if host.startswith("-") or (user or "").startswith("-") or re.search(r"[\s/\\'\"`$;|&<>()\x00-\x1f\x7f]", host):
        raise UsageError(f"{text!r} is not a host: {host!r} has characters that no host name has")
    return Target(text, host, user, port)


def config_paths(files: Sequence[Path] | None, environment: Mapping[str, str]) -> list[Path]:
    """The configuration files to read, in order. A file that was named and is not there is an error."""
    named = environment.get(CONFIG_VARIABLE, "") if files is None else ""
    if named.lower() == "none":
        return []
    if named:
        files = [Path(named).expanduser()]
    if files is not None:
        for file in files:
            if not os.access(file, os.R_OK):
                raise LinkConfigError(f"the ssh configuration {file} cannot be read (is it there?)")
        return list(files)
    return [file for file in (Path("~/.ssh/config").expanduser(), SYSTEM_CONFIG) if os.access(file, os.R_OK)]


def read_settings(files: Sequence[Path], target: Target) -> list[Setting]:
    """Every line that applies to `target`, in the order of the files; best effort, never raises."""
    reading = _Reading(target)
    for file in files:
        reading.read(file, 0)
    return reading.settings


def unread_options(settings: Sequence[Setting], supported: Collection[str]) -> list[Setting]:
    """Those that asyncssh does not read (`supported`: its lower-case names) and that may matter."""
    known = set(supported) | _HARMLESS
    seen: set[str] = set()
    unread = []
    for setting in settings:
        name = setting.option.lower()
        off = name.startswith("control") and setting.value.lower() in ("no", "none", "false")
        if name not in known and name not in seen and not off:
            seen.add(name)
            unread.append(setting)
    return unread


def first_of(settings: Sequence[Setting], *options: str) -> Setting | None:
    """The first line with one of `options`: in ssh the first value wins."""
    wanted = {option.lower() for option in options}
    return next((setting for setting in settings if setting.option.lower() in wanted), None)


def expand_path(text: str, tokens: Mapping[str, str]) -> Path:
    """`~`, `${VARIABLE}` and the percent tokens that are known; unknown ones stay as they are."""
    text = re.sub(r"\$\{(\w+)\}", lambda match: os.environ.get(match[1], match[0]), text)
    text = re.sub(r"%(.)", lambda match: "%" if match[1] == "%" else tokens.get(match[1], match[0]), text)
    return Path(text).expanduser()


class _Reading:
    def __init__(self, target: Target) -> None:
        self.settings: list[Setting] = []
        self._target = target

    def read(self, file: Path, depth: int) -> None:
        try:
            text = file.read_text(errors="replace")
        except OSError:
            return
        applies = True
        for number, line in enumerate(text.splitlines(), 1):
            option, value = _split(line)
            name = option.lower()
            if not option:
                continue
            if name == "host":
                applies = _host_matches(value, self._target.host)
            elif name == "match":
                applies = self._match(value)
            elif applies and name == "include":
                for path in _included(value) if depth < _MAX_INCLUDE_DEPTH else ():
                    self.read(path, depth + 1)
            elif applies:
                self.settings.append(Setting(option, value, file, number))

    def _match(self, conditions: str) -> bool:
        words = _words(conditions)
        result = True
        while words:
            word = words.pop(0).lower()
            negated, name = word.startswith("!"), word.lstrip("!")
            if name in ("all", "final", "canonical"):
                holds = name != "canonical"
            elif "=" in name:
                name, _, pattern = name.partition("=")
                holds = self._condition(name, pattern)
            else:
                holds = self._condition(name, words.pop(0) if words else "")
            result = result and holds != negated
        return result

    def _condition(self, name: str, pattern: str) -> bool:
        if name == "originalhost":
            return _patterns_match(pattern.split(","), self._target.host)
        if name == "host":
            hostname = first_of(self.settings, "HostName")
            host = hostname.value.replace("%h", self._target.host) if hostname else self._target.host
            return _patterns_match(pattern.split(","), host)
        if name == "user":
            user = first_of(self.settings, "User")
            return _patterns_match(pattern.split(","), self._target.user or (user.value if user else local_user()))
        if name == "localuser":
            return _patterns_match(pattern.split(","), local_user())
        if name == "tagged":
            tag = first_of(self.settings, "Tag")
            return _patterns_match(pattern.split(","), tag.value if tag else "")
        return True  # exec, localnetwork and what newer versions add: naming one line too many does no harm


def local_user() -> str:
    """The name of the user who runs this, "" where the system does not know it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def _split(line: str) -> tuple[str, str]:
    line = line.strip()
    if not line or line.startswith("#"):
        return "", ""
    match = re.match(r"([^\s=]+)\s*=?\s*(.*)", line)
    return (match[1], match[2].strip().strip('"')) if match else ("", "")


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _host_matches(value: str, host: str) -> bool:
    return _patterns_match(_words(value), host)


def _patterns_match(patterns: Sequence[str], host: str) -> bool:
    matched = False
    for pattern in patterns:
        if fnmatchcase(host.lower(), pattern.removeprefix("!").lower().replace("[", "[[]")):
            if pattern.startswith("!"):
                return False
            matched = True
    return matched


def _included(value: str) -> Iterator[Path]:
    for word in _words(value):
        pattern = Path(word).expanduser()
        base = Path(pattern.anchor) if pattern.anchor else Path("~/.ssh").expanduser()
        relative = str(pattern.relative_to(pattern.anchor)) if pattern.anchor else str(pattern)
        yield from sorted(path for path in base.glob(relative) if path.is_file())
