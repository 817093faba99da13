"""What a value of a profile may be. Each function returns what is wrong as a sentence, None when nothing is.

No type is checked here (tables.py does) and nothing is looked up: whether a host or a folder exists is seen later.
"""

from __future__ import annotations

import re

from supervisor.core import url as urls
from supervisor.core import words as w

_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}", re.ASCII)
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_HOST_KEY = re.compile(r"SHA256:[A-Za-z0-9+/]{43}=?", re.ASCII)
_HOST_AND_PORT = re.compile(r"[^:/]+:\d+", re.ASCII)
_SSH_URL = re.compile(r"ssh://(?:[^@/]+@)?(?:\[[^\[\]]+\]|[^:@/\[\]]+)(?::(\d+))?/?", re.ASCII | re.IGNORECASE)
_HOST_FORBIDDEN = re.compile(r"[\s'\"`$;|&<>()\\\x00-\x1f\x7f]")
_USER_IN_URL = re.compile(r"//[^/\s]*@")
_RUN_MARKER = "INFERENCE_SUPERVISOR_RUN"
_MAX_PORT = 65535


def key(text: str) -> str | None:
    """A run's key or a variant's name: it becomes a folder and a socket's name on the node."""
    if _KEY.fullmatch(text):
        return None
    return "takes 1 to 64 letters, digits, '.', '_' and '-', and begins with none of '.' and '-'"


def plain(text: str) -> str | None:
    """Any text that stands on one line."""
    if not text.strip():
        return "is empty: leave the key out instead"
    return _control(text)


def some(text: str) -> str | None:
    """Any text at all, on as many lines as it likes."""
    return None if text.strip() else "is empty: leave the key out instead"


def host(text: str) -> str | None:
    """An alias of the ssh configuration, user@host, ssh://user@host:port, or local."""
    if not text.strip():
        return 'is empty: write an alias of ~/.ssh/config, "user@host", "ssh://user@host:port", or "local"'
    if _HOST_FORBIDDEN.search(text):
        return "is not a host: it has blanks or characters that no host name has"
    if text.lower().startswith("ssh://"):
        match = _SSH_URL.fullmatch(text)
        if not match:
            return "is not a host: write ssh://user@host:port"
        if match.group(1) and not 0 < int(match.group(1)[:6]) <= _MAX_PORT:
            return f"has no possible port (1 to {_MAX_PORT})"
        return None
    if text.startswith(("-", "@")) or text.endswith("@") or "@-" in text or "/" in text:
        return "is not a host: write an alias, user@host or ssh://user@host:port"
    if _HOST_AND_PORT.fullmatch(text):
        return f"takes a port as ssh://{text}, or by Port in ~/.ssh/config"
    return None


def host_key(text: str) -> str | None:
    """The fingerprint of the only host key to accept."""
    return None if _HOST_KEY.fullmatch(text) else 'is not a fingerprint: it looks like "SHA256:" and 43 characters'


def url(text: str) -> str | None:
    """A health URL as seen from the node."""
    try:
        urls.parse(text)
    except urls.UrlError as error:
        return _USER_IN_URL.sub("//***@", str(error))
    return None


def env_name(name: str) -> str | None:
    """The name of an environment variable."""
    if name == _RUN_MARKER:
        return "is set by the supervisor, which finds its processes by it"
    if _ENV_NAME.fullmatch(name):
        return None
    return "is no name of an environment variable: letters, digits and _, and no digit first"


def env_value(text: str) -> str | None:
    """The value of an environment variable: anything but a NUL."""
    return "has a NUL character, which no environment can hold" if "\0" in text else None


def path(text: str) -> str | None:
    """A path on the node in which ~/ and $VAR are expanded."""
    problem = plain(text)
    if problem:
        return problem
    try:
        w.path_word(text)
    except w.WordsError as error:
        return str(error)
    return None if text.startswith(("/", "~", "$")) else "begins with /, ~/ or $VAR: a relative path has no base here"


def file_path(text: str) -> str | None:
    """A path of a file."""
    return path(text) or ("is a folder: name the file" if text.endswith("/") or text == "~" else None)


def fixed_path(text: str) -> str | None:
    """A path that is needed before an environment is known: ~/ is expanded, $VAR is not."""
    return path(text) or ("takes no variables: write the path out" if "$" in text else None)


def python(text: str) -> str | None:
    """The interpreter on the node: a path, or a name to be found in PATH."""
    if "/" not in text and re.fullmatch(r"[A-Za-z0-9._-]+", text) and not text.startswith("-"):
        return None
    return fixed_path(text)


def _control(text: str) -> str | None:
    if any(ord(character) < 32 or ord(character) == 127 for character in text):
        return "has a line break or another control character"
    return None
