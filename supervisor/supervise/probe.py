"""Looks at a health endpoint, one look at a time, and says what it came to.

One request in flight, never two: a probe that gives up early leaves a generation behind in the engine. The judgement
is `core/judge.py`'s; here is the order of the steps: listeners, request, listeners, model.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from supervisor.adapters.http import Http, NoReply
from supervisor.core import judge
from supervisor.core.engine import Engine
from supervisor.core.events import Answer, Owner, Verdict
from supervisor.core.judge import Listener, Reply
from supervisor.core.url import Url

if TYPE_CHECKING:  # a wait for a plain URL has no node, and need not load how one is asked
    from supervisor.adapters.node import NodeClient

MODELS_TIMEOUT_S = 10.0
MODELS_MAX_BYTES = 1024 * 1024

Listeners = Callable[[int], Awaitable[Sequence[Listener]]]
"""port → who listens there on the node."""


class Prober:
    """Looks at one URL by one engine's rule.

    Args:
        listeners: tells who listens on the port; None where no node program runs (the owner is not looked at).
        owner_any: the profile says `owner = "any"`: whoever answers is taken.
        expected_models: names that the served model may have by the command; empty where none is known.
        ask_models: learn the served model's id, though nothing says which it must be.
        api_key: sent as a bearer token to the list of models, never shown.
    """

    def __init__(
        self,
        http: Http,
        url: Url,
        engine: Engine,
        *,
        listeners: Listeners | None = None,
        owner_any: bool = False,
        expected_models: Sequence[str] = (),
        api_key: str | None = None,
        ask_models: bool = False,
    ) -> None:
        self._http = http
        self._url = url
        self._engine = engine
        self._listeners = None if owner_any else listeners
        self._expected = tuple(expected_models)
        self._ask_models = ask_models
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}

    @property
    def url(self) -> Url:
        """What is looked at."""
        return self._url

    async def look(self) -> Answer:
        """One look: every address in turn until one gives an answer that means something.

        Raises `LinkError` and `DialForbiddenError`: neither says anything about the server.
        """
        best: Answer | None = None
        for address in self._url.addresses:
            answer = await self._look_at(address)
            if answer.verdict in (Verdict.READY, Verdict.NOT_YET):
                return answer
            if best is None or _says_more(answer, best):
                best = answer
        assert best is not None
        return best

    async def _look_at(self, address: str) -> Answer:
        rule = self._engine.health
        before = await self._listeners(self._url.port) if self._listeners is not None else ()
        reply = await self._http.look(
            self._url,
            address,
            timeout_s=rule.timeout_s,
            needs_body=lambda status: judge.needs_body(rule, status),
        )
        if isinstance(reply, NoReply):
            return Answer(verdict=reply.verdict, why=reply.why, ms=reply.ms, address=reply.address, cause=reply.cause)
        answer = judge.judge_reply(rule, reply)
        if answer.verdict is not Verdict.READY:
            return await self._whose_not_ready(answer, before)
        served = await self._served_models(address)
        answer = judge.apply_model(answer, self._expected, served)
        if answer.verdict is not Verdict.READY or self._listeners is None:
            return answer
        owner, why = judge.judge_owner(before, await self._listeners(self._url.port))
        proved = bool(self._expected) and served is not None and answer.model is not None
        return judge.apply_owner(answer, owner, why, model_proved=proved)

    async def _whose_not_ready(self, answer: Answer, before: Sequence[Listener]) -> Answer:
        """A 503 from a port that is not ours must not look like our server warming up."""
        if self._listeners is None:
            return answer
        owner, why = judge.judge_owner(before, await self._listeners(self._url.port))
        if owner is Owner.OTHER:
            return judge.apply_owner(answer, owner, why, model_proved=False)
        return msgspec.structs.replace(answer, owner=owner)

    async def _served_models(self, address: str) -> tuple[str, ...] | None:
        """The ids that the server lists, None where it has no list or does not give it."""
        path = self._engine.models_path
        if path is None or not (self._expected or self._listeners or self._ask_models):
            return None
        reply = await self._http.look(
            self._url.with_path(path),
            address,
            timeout_s=MODELS_TIMEOUT_S,
            needs_body=lambda _status: True,
            headers=self._headers,
            max_bytes=MODELS_MAX_BYTES,
        )
        return models_of(reply)


def models_of(reply: Reply | NoReply) -> tuple[str, ...] | None:
    """The model ids in an OpenAI-style list, None where the reply is none."""
    if isinstance(reply, NoReply) or reply.status != 200:
        return None
    try:
        document = json.loads(reply.body)
        return tuple(str(item["id"]) for item in document["data"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _says_more(new: Answer, old: Answer) -> bool:
    """Of two addresses of one name, the answer worth telling: any HTTP beats silence, silence beats a refusal."""
    order = [Verdict.REFUSED, Verdict.BROKEN, Verdict.SILENT, Verdict.REJECTED]
    return order.index(new.verdict) > order.index(old.verdict)


async def listeners_on(client: NodeClient, port: int, *, key: str, run_id: str) -> list[Listener]:
    """Who listens on a port of the node, seen from a run's side. What a newer node program tells beyond it is left."""
    reply = await client.request("listeners", port=port, run={"key": key, "run_id": run_id})
    names = Listener.__struct_fields__
    known = [{name: item[name] for name in names if item.get(name) is not None} for item in reply["listeners"]]
    return [msgspec.convert(item, Listener, strict=False) for item in known]
