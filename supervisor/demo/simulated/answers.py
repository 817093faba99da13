"""What a model would say, and the shapes in which the engines' APIs say it. No input or output here.

`request` reads a body of one of the APIs; `whole`, `piece` and `last` write its answers.
"""

from __future__ import annotations

import re
import time
from typing import Any, Dict

from .options import Options, served_model

Json = Dict[str, Any]

_PARIS = [" Paris", ".", " It", " is", " the", " largest", " city", " of", " France", ",", " on", " the", " Seine", "."]
_OTHER = " This is a simulated engine for tests and demonstrations : it has no model and no GPU , so it says the same ."


class BadRequest(Exception):
    """The body asks for what no engine would do; the text says why."""


class Request:
    """A generation that is asked for, whatever the API."""

    def __init__(self, api: str, prompt: str, limit: int, stream: bool, model: str | None) -> None:
        self.api = api  # "completion", "chat", "generate" (SGLang) or "native" (llama.cpp)
        self.prompt = prompt
        self.stream = stream
        self.model = model
        self.prompt_tokens = len(re.findall(r"\w+|[^\w\s]", prompt)) + 1
        says = _PARIS if re.search(r"capital\b.*\bfrance", prompt, re.IGNORECASE | re.DOTALL) else _OTHER.split(" ")
        tokens = says if says is _PARIS else [" " + word for word in says if word]
        self.tokens = tokens[:limit]
        self.cut = len(tokens) > limit
        self.id = f"{'chatcmpl' if api == 'chat' else 'cmpl'}-simulated-{time.time_ns():x}"
        self.created = int(time.time())

    @property
    def finish(self) -> str:
        return "length" if self.cut else "stop"


def _content(messages: Any) -> str:
    if not isinstance(messages, list) or not messages or not isinstance(messages[-1], dict):
        raise BadRequest("messages must be a list of messages")
    content = messages[-1].get("content", "")
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content)


def _prompt(prompt: Any) -> str:
    if isinstance(prompt, list) and prompt and all(isinstance(part, str) for part in prompt):
        return str(prompt[0])
    if isinstance(prompt, list) and prompt:
        return " ".join("token" for _ in prompt)
    if not isinstance(prompt, str):
        raise BadRequest("prompt must be a string or a list")
    return prompt


def _limit(value: Any, default: int) -> int:
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value == 0 or value < -1:
        raise BadRequest(f"max_tokens must be at least 1, got {value}.")
    return default if value == -1 else value  # llama.cpp: -1 is no limit


def request(api: str, body: Json) -> Request:
    """Raises `BadRequest`."""
    stream = bool(body.get("stream", False))
    model = body.get("model")
    name = model if isinstance(model, str) else None
    if api == "chat":
        limit = _limit(body.get("max_completion_tokens", body.get("max_tokens")), 64)
        return Request(api, _content(body.get("messages")), limit, stream, name)
    if api == "generate":
        sampling = body.get("sampling_params") or {}
        limit = _limit(sampling.get("max_new_tokens") if isinstance(sampling, dict) else None, 128)
        return Request(api, _prompt(body.get("text", body.get("input_ids"))), limit, stream, None)
    if api == "native":
        return Request(api, _prompt(body.get("prompt")), _limit(body.get("n_predict"), 64), stream, None)
    return Request(api, _prompt(body.get("prompt")), _limit(body.get("max_tokens"), 16), stream, name)


def usage(asked: Request, tokens: int) -> Json:
    return {
        "prompt_tokens": asked.prompt_tokens,
        "completion_tokens": tokens,
        "total_tokens": asked.prompt_tokens + tokens,
    }


def _openai(asked: Request, options: Options, choice: Json, chunk: bool) -> Json:
    kind = {"chat": "chat.completion", "completion": "text_completion"}[asked.api]
    if chunk and asked.api == "chat":
        kind = "chat.completion.chunk"
    return {
        "id": asked.id,
        "object": kind,
        "created": asked.created,
        "model": served_model(options),
        "choices": [{"index": 0, "logprobs": None, **choice}],
    }


def _meta(asked: Request, tokens: int, seconds: float, done: bool) -> Json:
    reason = {"type": "length", "length": tokens} if asked.cut else {"type": "stop", "matched": 2}
    return {
        "id": asked.id,
        "finish_reason": reason if done else None,
        "prompt_tokens": asked.prompt_tokens,
        "completion_tokens": tokens,
        "cached_tokens": 0,
        "e2e_latency": seconds,
    }


def _native_end(asked: Request, options: Options, text: str, tokens: int, seconds: float) -> Json:
    return {
        "index": 0,
        "content": text,
        "tokens": [],
        "id_slot": 0,
        "stop": True,
        "model": served_model(options),
        "tokens_predicted": tokens,
        "tokens_evaluated": asked.prompt_tokens,
        "prompt": asked.prompt,
        "truncated": False,
        "stop_type": "limit" if asked.cut else "eos",
        "stopping_word": "",
        "timings": {"prompt_n": asked.prompt_tokens, "predicted_n": tokens, "predicted_ms": seconds * 1000},
    }


def whole(asked: Request, options: Options, says: list[str], seconds: float) -> Json:
    """The answer of a request that does not stream."""
    text = "".join(says)
    if asked.api == "generate":
        meta = _meta(asked, len(says), seconds, True)
        return {"text": text, "output_ids": list(range(len(says))), "meta_info": meta}
    if asked.api == "native":
        return _native_end(asked, options, text, len(says), seconds)
    if asked.api == "chat":
        message = {"role": "assistant", "content": text.lstrip(), "tool_calls": None}
        answer = _openai(asked, options, {"message": message, "finish_reason": asked.finish}, False)
    else:
        answer = _openai(asked, options, {"text": text, "finish_reason": asked.finish}, False)
    answer["usage"] = usage(asked, len(says))
    return answer


def piece(asked: Request, options: Options, says: list[str], at: int) -> Json:
    """The event of the token `says[at]`."""
    token = says[at]
    if asked.api == "generate":  # SGLang's stream repeats the text from its start
        return {"text": "".join(says[: at + 1]), "meta_info": _meta(asked, at + 1, 0.0, False)}
    if asked.api == "native":
        return {"index": 0, "content": token, "tokens": [], "stop": False}
    if asked.api == "chat":
        delta = {"role": "assistant", "content": token.lstrip()} if at == 0 else {"content": token}
        return _openai(asked, options, {"delta": delta, "finish_reason": None}, True)
    return _openai(asked, options, {"text": token, "finish_reason": None}, True)


def last(asked: Request, options: Options, says: list[str], seconds: float) -> list[str | Json]:
    """The events after the tokens; `[DONE]` where the API has it."""
    if asked.api == "generate":
        done = {"text": "".join(says), "meta_info": _meta(asked, len(says), seconds, True)}
        return [done, "[DONE]"]
    if asked.api == "native":
        return [_native_end(asked, options, "", len(says), seconds)]
    choice: Json = {"delta": {}} if asked.api == "chat" else {"text": ""}
    answer = _openai(asked, options, {**choice, "finish_reason": asked.finish}, True)
    answer["usage"] = usage(asked, len(says))
    return [answer, "[DONE]"]


def models(options: Options, created: int) -> Json:
    """The model list. `owned_by` says what this is."""
    model: Json = {
        "id": served_model(options),
        "object": "model",
        "created": created,
        "owned_by": "simulated",
    }
    if options.engine == "llamacpp":
        model["meta"] = {"n_ctx": 8192, "n_params": 70553706496, "size": 42520395776}
    else:
        model.update({"root": options.model_path, "parent": None, "max_model_len": 131072})
    answer: Json = {"object": "list", "data": [model]}
    if options.engine == "llamacpp":
        answer["models"] = [{"name": model["id"], "model": model["id"], "type": "model"}]
    return answer


def error(engine: str, status: int, text: str, kind: str) -> Json:
    """An error in the shape that the engine gives it."""
    if engine == "sglang":
        return {"object": "error", "message": text, "type": kind, "param": None, "code": status}
    if engine == "vllm":
        return {"error": {"message": text, "type": kind, "param": None, "code": status}}
    return {"error": {"code": status, "message": text, "type": kind}}
