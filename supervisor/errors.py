"""Every error class of the program, and nothing else.

    SupervisorError                 has the exit code that a command ends with
    ├── UsageError            2     the command line is wrong
    │   ├── ProfileError      2     a profile is wrong: names file, key, what to write instead
    │   └── EngineError       2     a user's file about an engine is wrong: names file, line, key, what to do
    ├── RefusedError          4     refused before anything was launched
    ├── LinkError             3     the node cannot be reached, or not any more
    │   ├── UnreachableError        name, port, network, timeout: worth another try
    │   ├── HostKeyError            unknown, changed or revoked host key: never retried
    │   ├── LoginError              the node refused every key we have: never retried
    │   ├── LinkConfigError         the ssh configuration cannot be used: never retried
    │   └── NodeProgramError        no usable Python there, or it does not speak our protocol
    ├── NodeRequestError      1     the node program refused one request, with a code
    └── DialError             1     one connection to a port on the node
        ├── DialRefusedError        nothing listens there
        ├── DialForbiddenError      sshd does not allow forwarding: says nothing about the port
        └── DialSilentError         no answer in time

"Not ready yet" is a value (`core.events.Answer`), never an error.
"""

from __future__ import annotations


class SupervisorError(Exception):
    """Base of all: a sentence for the user in `str()`, and the exit code of CONTRACT section 1."""

    exit_code = 1


class UsageError(SupervisorError):
    """The command line is wrong."""

    exit_code = 2


class ProfileError(UsageError):
    """A profile cannot be used. `key` is the dotted path of the key, "" for the file as a whole."""

    def __init__(self, file: str, key: str, problem: str, *, line: int | None = None) -> None:
        where = file + (f":{line}" if line is not None else "")
        super().__init__(f"{where}: {key}: {problem}" if key else f"{where}: {problem}")
        self.file = file
        self.key = key
        self.problem = problem
        self.line = line


class EngineError(UsageError):
    """A user's file about an engine cannot be used. The text has the file, the line and the key."""


class RefusedError(SupervisorError):
    """Refused before anything was launched. `reasons` are whole sentences, the first one is the main one."""

    exit_code = 4

    def __init__(self, *reasons: str) -> None:
        super().__init__("\n".join(reasons))
        self.reasons = reasons


class LinkError(SupervisorError):
    """The node cannot be reached. Only a `retriable` one is worth another attempt."""

    exit_code = 3
    retriable = False


class UnreachableError(LinkError):
    """The network's fault: name, port, route, timeout, a connection that broke."""

    retriable = True


class HostKeyError(LinkError):
    """The node's host key is unknown, changed or revoked. The text has the fingerprint and the ways out."""


class LoginError(LinkError):
    """The node refused the login. The text says which keys were tried."""


class LinkConfigError(LinkError):
    """The ssh configuration asks for something that cannot be done here."""


class NodeProgramError(LinkError):
    """The connection stands, but our program does not run on the node (no Python >= 3.8, wrong protocol)."""


class NodeRequestError(SupervisorError):
    """The node program refused one request. `code` is a stable word, `detail` its figures."""

    def __init__(self, op: str, code: str, text: str, detail: dict[str, object] | None = None) -> None:
        super().__init__(text)
        self.op = op
        self.code = code
        self.detail = detail or {}


class DialError(SupervisorError):
    """A connection to a port on the node could not be made."""


class DialRefusedError(DialError):
    """Nothing listens there (or the address does not exist there)."""


class DialForbiddenError(DialError):
    """sshd forbids forwarding (AllowTcpForwarding, PermitOpen): the relay of the node program is the way."""


class DialSilentError(DialError):
    """The connection did not come about in time."""
