"""One real generation through the engine's OpenAI-style interface, and whether it passed. Not streamed.

A key that is asked for and not given is no failure of the server: that is told as what it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from msgspec import Struct

from supervisor.adapters.base import Clock
from supervisor.adapters.http import Http, NoReply
from supervisor.core import events as ev
from supervisor.core.command import Secret
from supervisor.core.engine import Completion
from supervisor.core.events import Phase
from supervisor.core.judge import Reply
from supervisor.core.lines import sanitise
from supervisor.core.url import Url
from supervisor.core.wait import VERIFICATION
from supervisor.supervise.desk import Desk
from supervisor.supervise.plan import VerifyPlan

PAUSE_S = 1.0
MAX_BYTES = 1024 * 1024


class Verdict(Struct, frozen=True, kw_only=True):
    """What verification came to. `passed` None: a key is needed, so nothing can be said of the server."""

    passed: bool | None
    text: str
    silent: bool = False
    """No answer came: that is a hang, and not an answer that is wrong."""


class Verifier:
    """Asks for one completion of at most 8 tokens at temperature 0."""

    def __init__(
        self, http: Http, completion: Completion, plan: VerifyPlan, *, clock: Clock, api_key: Secret | None
    ) -> None:
        self._http = http
        self._completion = completion
        self._plan = plan
        self._clock = clock
        self._headers = {"Authorization": f"Bearer {api_key.reveal()}"} if api_key is not None else {}

    async def run(self, url: Url, address: str, model: str | None, still_wanted: Callable[[], bool]) -> Verdict:
        """Up to three tries inside the plan's time. `still_wanted` false ends the tries early."""
        end = self._clock.now() + self._plan.timeout_s
        verdict = Verdict(passed=False, text="no try was made")
        for attempt in range(self._plan.tries):
            left_s = end - self._clock.now()
            if left_s <= 0 or not still_wanted():
                break
            verdict = await self._try(url, address, model, left_s)
            if verdict.passed is not False:
                return verdict
            if attempt + 1 < self._plan.tries:
                await self._clock.sleep(min(PAUSE_S, max(0.0, end - self._clock.now())))
        return verdict

    async def _try(self, url: Url, address: str, model: str | None, left_s: float) -> Verdict:
        body: dict[str, object] = {
            "prompt": self._plan.prompt,
            "max_tokens": min(self._plan.max_tokens, self._completion.max_tokens),
            "temperature": 0,
        }
        if model is not None:
            body["model"] = model
        path = self._completion.path
        reply = await self._http.look(
            url.with_path(path),
            address,
            timeout_s=left_s,
            needs_body=lambda _status: True,
            headers=self._headers,
            method="POST",
            json=body,
            max_bytes=MAX_BYTES,
        )
        if isinstance(reply, NoReply):
            return Verdict(passed=False, text=f"POST {path}: {reply.why}", silent=True)
        return self._judge(path, reply)

    def _judge(self, path: str, reply: Reply) -> Verdict:
        if reply.status in (401, 403):
            text = f"POST {path} answers {reply.status}: it needs a key: give `verify.api_key_env`"
            return Verdict(passed=None, text=text)
        if reply.status != 200:
            said = reply.body[:200].decode("utf-8", "replace")
            return Verdict(passed=False, text=f"POST {path} answers {reply.status}: {said!r}")
        generated = _completion_text(reply.body)
        if generated is None:
            said = reply.body[:200].decode("utf-8", "replace")
            return Verdict(passed=False, text=f"POST {path} answers 200 with no completion in it: {said!r}")
        if not generated.strip():
            return Verdict(passed=False, text=f"POST {path} answers 200 with an empty completion")
        expect = self._plan.expect
        if expect is not None and expect not in generated:
            return Verdict(passed=False, text=f"the completion lacks {expect!r}: {generated[:120]!r}")
        return Verdict(passed=True, text=f"generated {generated.strip()[:60]!r} in {reply.ms:.0f} ms")


def _completion_text(body: bytes) -> str | None:
    try:
        choice = json.loads(body)["choices"][0]
        text = choice["text"] if "text" in choice else choice["message"]["content"]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        return None
    return text if isinstance(text, str) else None


async def verify_and_tell(desk: Desk, verifier: Verifier, url: Url, answer: ev.Answer) -> bool:
    """Verify where an accepted answer came from, and tell what it came to.

    False: the server left `healthy` meanwhile, so this said nothing of it, and another try is due later.
    """

    def wanted() -> bool:
        return desk.phase in (Phase.HEALTHY, Phase.SERVING, Phase.DEGRADED)

    address = answer.address.rpartition(":")[0].strip("[]")
    verdict = await verifier.run(url, address, answer.model, wanted)
    now = desk.clock.now()
    if verdict.passed:
        if desk.phase is Phase.SERVING:
            desk.warn(f"verified again: {verdict.text}")  # no phase changes, and who asked must see it
        desk.note(ev.Verified(at=now, text=verdict.text))
    elif verdict.passed is None:
        desk.warn(verdict.text)
        desk.note(ev.Verified(at=now, text=f"not verified: {verdict.text}", checked=False))
    elif wanted():
        desk.note(ev.VerifyFailed(at=now, text=verdict.text))
        advice = "The process lives and was left running. verify = false takes the health answer alone."
        desk.tell(
            ev.Finding(
                at=now,
                category="hang" if verdict.silent else "wrong_output",
                detail=VERIFICATION,
                cause=sanitise(verdict.text),
                confidence="sure",
                advice=advice,
            )
        )
    else:
        return False
    return True
