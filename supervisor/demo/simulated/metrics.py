"""Prometheus text with the names that the real engines use; the counters are those of `State` and do move."""

from __future__ import annotations

from .options import Options, served_model
from .state import MOST_TOKENS, State


def _family(name: str, kind: str, value: float, labels: str) -> str:
    return f"# HELP {name} (simulated)\n# TYPE {name} {kind}\n{name}{labels} {value}\n"


def _histogram(name: str, count: int, total: float, labels: str) -> str:
    inner = labels[1:-1]
    mean = total / count if count else 0.0
    lines = [f"# HELP {name} (simulated)", f"# TYPE {name} histogram"]
    for bound in (0.1, 0.5, 1.0, 5.0, 30.0):
        lines.append(f'{name}_bucket{{le="{bound}",{inner}}} {float(count if mean <= bound else 0)}')
    lines.append(f'{name}_bucket{{le="+Inf",{inner}}} {float(count)}')
    lines.append(f"{name}_count{labels} {float(count)}")
    lines.append(f"{name}_sum{labels} {total}")
    return "\n".join(lines) + "\n"


def _tokens_s(state: State) -> float:
    if state.load_tokens_s:
        return state.load_tokens_s
    return state.tokens / state.seconds if state.running and state.seconds else 0.0


def _cache_share(state: State) -> float:
    return min(1.0, state.used_tokens / MOST_TOKENS)


def _sglang(state: State, labels: str) -> str:
    running = state.running + state.load_running
    gauges = {
        "num_running_reqs": running,
        "num_queue_reqs": state.load_queued,
        "gen_throughput": _tokens_s(state),
        "token_usage": _cache_share(state),
        "num_used_tokens": state.used_tokens,
        "max_total_num_tokens": MOST_TOKENS,
        "cache_hit_rate": 0.0,
    }
    counters = {
        "prompt_tokens_total": state.prompt_tokens,
        "generation_tokens_total": state.tokens,
        "num_requests_total": state.requests,
        "num_aborted_requests_total": state.aborted,
    }
    return _write("sglang:", state, labels, gauges, counters)


def _vllm(state: State, labels: str) -> str:
    running = state.running + state.load_running
    gauges = {
        "num_requests_running": running,
        "num_requests_waiting": state.load_queued,
        "kv_cache_usage_perc": _cache_share(state),
        "engine_sleep_state": 0,
    }
    counters = {
        "prompt_tokens_total": state.prompt_tokens,
        "generation_tokens_total": state.tokens,
        "request_success_total": state.requests,
        "num_preemptions_total": 0,
        "prefix_cache_queries_total": state.prompt_tokens,
        "prefix_cache_hits_total": 0,
    }
    return _write("vllm:", state, labels, gauges, counters)


def _write(prefix: str, state: State, labels: str, gauges: dict[str, float], counters: dict[str, int]) -> str:
    parts = [_family(prefix + name, "gauge", float(value), labels) for name, value in gauges.items()]
    parts += [_family(prefix + name, "counter", float(value), labels) for name, value in counters.items()]
    parts.append(_histogram(prefix + "time_to_first_token_seconds", state.requests, state.first_token_s, labels))
    parts.append(_histogram(prefix + "e2e_request_latency_seconds", state.requests, state.seconds, labels))
    return "".join(parts)


def _llamacpp(state: State) -> str:
    rate = state.load_tokens_s or (state.tokens / state.seconds if state.seconds else 0.0)
    return "".join(
        [
            _family("llamacpp:prompt_tokens_total", "counter", state.prompt_tokens, ""),
            _family("llamacpp:tokens_predicted_total", "counter", state.tokens, ""),
            _family("llamacpp:prompt_tokens_seconds", "gauge", rate, ""),
            _family("llamacpp:predicted_tokens_seconds", "gauge", rate, ""),
            _family("llamacpp:requests_processing", "gauge", state.running + state.load_running, ""),
            _family("llamacpp:requests_deferred", "gauge", state.load_queued, ""),
        ]
    )


def text(options: Options, state: State) -> str:
    model = served_model(options).replace("\\", "\\\\").replace('"', '\\"')
    if options.engine == "sglang":
        return _sglang(state, f'{{engine_type="unified",model_name="{model}",tp_rank="0"}}')
    if options.engine == "vllm":
        return _vllm(state, f'{{engine="0",model_name="{model}"}}')
    return _llamacpp(state)
