"""What an HTTP answer, a port's owner and a list of models mean. Pure functions, by the engine's rule.

Readiness is judged by status (and body where the engine says so), never by "is there a body": SGLang's healthy
answer is empty, and the loop that looked for a body is why this program exists.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from msgspec import Struct, structs

from supervisor.core.engine import Health
from supervisor.core.events import Answer, Owner, Verdict
from supervisor.core.lines import sanitise

SHOWN_VALUES = 5


class Reply(Struct, frozen=True, kw_only=True):
    """What came back from one request, before anything is judged."""

    status: int
    ms: float
    address: str = ""
    location: str = ""
    content_length: int | None = None
    body: bytes = b""
    body_complete: bool = False
    server: str = ""


class Listener(Struct, frozen=True, kw_only=True):
    """One listening socket on the port, as the node sees it."""

    address: str
    inode: int = 0
    uid: int | None = None
    pid: int | None = None
    title: str = ""
    owner: Owner = Owner.UNKNOWN
    why: str = ""


def needs_body(rule: Health, status: int) -> bool:
    """Whether this status can only be judged with the body at hand."""
    return rule.body is not None and status in rule.ready


def judge_reply(rule: Health, reply: Reply) -> Answer:
    """The verdict on one answer by status (and body), before owner and model are looked at."""
    verdict, why, cause = _by_status(rule, reply)
    length = reply.content_length
    if length is None and reply.body_complete:
        length = len(reply.body)
    return Answer(
        verdict=verdict,
        why=why,
        status=reply.status,
        bytes=length,
        ms=reply.ms,
        address=reply.address,
        cause=cause,
    )


def _by_status(rule: Health, reply: Reply) -> tuple[Verdict, str, str]:
    status = reply.status
    if status in rule.ready:
        return _by_body(rule, reply) if rule.body is not None else (Verdict.READY, "", "")
    if status in rule.not_yet:
        return Verdict.NOT_YET, "by the engine's rule: not ready yet", f"status {status}"
    cause = f"status {status}"
    if status in (401, 403):
        return Verdict.REJECTED, "the server is up, and asks for a key on this path", cause
    if 300 <= status < 400:
        where = f" to {_shown(reply.location)}" if reply.location else ""
        return (
            Verdict.REJECTED,
            f"a redirect{where}, which is not followed: give that URL if it is meant",
            cause,
        )
    if status == 404:
        return Verdict.REJECTED, "no such path there: another path, or another server", cause
    if status == 405:
        return Verdict.REJECTED, "the path does not take GET", cause
    if status >= 500:
        return Verdict.REJECTED, "a server error that is not the engine's way to say 'not yet'", cause
    return (
        Verdict.REJECTED,
        f"not a status that this engine's rule knows as ready ({_list(rule.ready)})",
        cause,
    )


def _by_body(rule: Health, reply: Reply) -> tuple[Verdict, str, str]:
    body = rule.body
    assert body is not None
    try:
        document = json.loads(reply.body)
        value = document.get(body.field) if isinstance(document, dict) else None
    except (ValueError, RecursionError):
        value = None
    if value in body.ready:
        return Verdict.READY, f'its body says {body.field} "{value}"', ""
    said = _shown(value, 40)
    cause = f"{reply.status} with {body.field} {said!r}"
    if value in body.not_yet:
        return Verdict.NOT_YET, f'its body says {body.field} "{value}"', cause
    shown = "nothing readable" if value is None else f'"{said}"'
    return Verdict.REJECTED, f"its body must say {body.field} {_list(body.ready)}, and says {shown}", cause


# ------------------------------------------------------------------------------------------- who answers


def judge_owner(before: Sequence[Listener], after: Sequence[Listener]) -> tuple[Owner, str]:
    """Whose answer it was: the listeners as seen just before the request and just after the answer.

    Every listener on the port counts. A listener that changed hands meanwhile proves nothing: unknown, look again.
    """
    if {item.inode for item in before} != {item.inode for item in after}:
        return Owner.UNKNOWN, "the listening socket changed hands during the look"
    if not after:
        return Owner.UNKNOWN, "no listening socket is visible on the node"
    others = [item for item in after if item.owner is Owner.OTHER]
    if others:
        return Owner.OTHER, "; ".join(_whose(item) for item in others)
    unknown = [item for item in after if item.owner is not Owner.OURS]
    if unknown:
        return Owner.UNKNOWN, "owner not visible: " + "; ".join(_whose(item) for item in unknown)
    return Owner.OURS, "; ".join(_whose(item) for item in after)


def _whose(item: Listener) -> str:
    if item.pid is not None:
        who = f"pid {item.pid} {_shown(item.title, 60)}".strip()
    elif item.uid is not None:
        who = f"a process of uid {item.uid}"
    else:
        who = "a process that cannot be seen"
    ours = ", ours" if item.owner is Owner.OURS else ""
    return f"{item.address} is held by {who}{ours}" + (f" ({item.why})" if item.why and not ours else "")


def apply_owner(answer: Answer, owner: Owner, why: str, *, model_proved: bool) -> Answer:
    """A ready answer with its owner: `other` never counts, `unknown` only with the served model proved."""
    if owner is Owner.OTHER:
        text = f"that answer is not from our server: {why}"
        return _changed(answer, Verdict.REJECTED, text, owner, "another process owns the port")
    if owner is Owner.UNKNOWN and not model_proved:
        text = f"{why}, and the served model was not proved, so this may be another server"
        return _changed(answer, Verdict.REJECTED, text, owner, "owner not visible")
    text = "; ".join(part for part in (answer.why, why) if part)
    return _changed(answer, Verdict.READY, text, owner, "")


def model_matches(expected: Sequence[str], served: Sequence[str]) -> str | None:
    """The served id that is the expected model, None when none is.

    `expected` are the names that the command gives (served name, model path). A path matches an id that is the same
    path, or has the same last component, since engines differ in which of the two they report.
    """
    wanted = {name for text in expected for name in _names(text)}
    return next((model for model in served if any(name in wanted for name in _names(model))), None)


def _names(text: str) -> tuple[str, ...]:
    text = text.rstrip("/")
    last = text.rpartition("/")[2]
    return (text, last, last.removesuffix(".gguf")) if last else (text,)


def apply_model(answer: Answer, expected: Sequence[str], served: Sequence[str] | None) -> Answer:
    """A ready answer with the served model. `served` None: the list could not be had, which rejects nothing."""
    if served is None or not expected:
        return _with_model(answer, served[0] if served else None)
    found = model_matches(expected, served)
    if found is not None:
        return _with_model(answer, found)
    text = (
        f"the server lists the model {_list(served) or 'none'}, and the command asks for {expected[0]}: "
        "another server, or a name that `ready.model` of the profile must give"
    )
    return _changed(answer, Verdict.REJECTED, text, answer.owner, "wrong model")


def _changed(answer: Answer, verdict: Verdict, why: str, owner: Owner, cause: str) -> Answer:
    return structs.replace(answer, verdict=verdict, why=why, owner=owner, cause=cause)


def _with_model(answer: Answer, model: str | None) -> Answer:
    name = "" if model is None else f"model {_shown(model)}"
    why = "; ".join(part for part in (answer.why, name) if part)
    return structs.replace(answer, why=why, model=model)


def _list(values: Sequence[object]) -> str:
    shown = ", ".join(_shown(value) for value in values[:SHOWN_VALUES])
    more = len(values) - SHOWN_VALUES
    return f"{shown} and {more} more" if more > 0 else shown


def _shown(value: object, chars: int = 200) -> str:
    """What a server or a process says of itself, in one line that cannot drive a terminal."""
    return sanitise(str(value)[:chars].replace("\n", " "))
