"""What SGLang says, stage by stage, in the words of its versions 0.4 to 0.5."""

from __future__ import annotations

import os
import time

from . import output
from .state import MOST_TOKENS
from .voice import Script, Voice, frames, say_all

_SRT = "/opt/sglang/lib/python3.12/site-packages/sglang/srt"
_GRAPH_SIZES = [160, 152, 144, 136, 128, 120, 112, 104, 96, 88, 80, 72, 64, 56, 48, 40, 32, 24, 16, 8, 4, 2, 1]
_CUDA_NOISE = [
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be "
    "incorrect.",
    "For debugging consider passing CUDA_LAUNCH_BLOCKING=1",
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
]
_CONTEXT_GB, _POOL_GB, _GRAPHS_GB = 0.53, 0.51, 1.74
_SIGQUIT = "Received sigquit from a child process. It usually means the child failed."


class SglangVoice(Voice):
    def say(self, text: str, rank: int | None = None) -> None:
        output.line(self._stamp(rank) + text)

    def _stamp(self, rank: int | None) -> str:
        who = f" TP{rank}" if rank is not None and self.options.workers > 1 else ""
        return time.strftime("[%Y-%m-%d %H:%M:%S") + who + "] "

    def _all_ranks(self, text: str) -> None:
        """A line of each rank; {avail} is what its GPU has left."""
        ranks = range(self.options.workers)
        say_all([self._stamp(rank) + text.replace("{avail}", f"{self.avail_gb(rank):.2f}") for rank in ranks])

    def loading(self) -> Script:
        o = self.options
        yield 0.0, ""
        self.say(
            f"server_args=ServerArgs(model_path={o.model_path!r}, tokenizer_path={o.model_path!r}, "
            f"tokenizer_mode='auto', load_format='auto', host={o.host!r}, port={o.port}, tp_size={o.tp}, "
            f"served_model_name={(o.served_model_name or o.model_path)!r}, enable_metrics={o.metrics})"
        )
        yield 0.01, ""
        self.say("Using default HuggingFace chat template with detected content format: string")
        yield 0.03, ""
        self._all_ranks("Init torch distributed begin.")
        yield 0.05, ""
        self.say("sglang is using nccl==2.27.5", 0)
        yield 0.07, ""
        self.hold(_CONTEXT_GB, 1)
        self._all_ranks("Init torch distributed ends. mem usage=0.53 GB")
        yield 0.08, ""
        self._all_ranks("Load weight begin. avail mem={avail} GB")
        yield from self._weights(0.10, 0.60)
        yield from self._after_weights()

    def _weights(self, begin: float, end: float) -> Script:
        began, total = time.monotonic(), self.options.shards
        weights_gb = self.options.weights_gb
        for done in range(total + 1):
            yield begin + (end - begin) * done / total, "weights" if done == total * 9 // 20 else ""
            self.hold(_CONTEXT_GB + weights_gb * done / total, 4 + done * 7 % 5)
            output.write("\r" + output.shards_bar(done, total, time.monotonic() - began))
        output.write("\n")
        yield end + 0.02, ""
        elapsed = f"{time.monotonic() - began:.2f}"
        self._all_ranks(
            f"Load weight end. elapsed={elapsed} s, type=DeepseekV3ForCausalLM, dtype=torch.bfloat16, "
            f"avail mem={{avail}} GB, mem usage={weights_gb:.2f} GB."
        )

    def _after_weights(self) -> Script:
        yield 0.65, ""
        o = self.options
        self.hold(_CONTEXT_GB + o.weights_gb + o.kv_gb + _POOL_GB, 12)
        self._all_ranks(f"KV Cache is allocated. #tokens: {MOST_TOKENS}, KV size: {o.kv_gb:.2f} GB")
        self._all_ranks("Memory pool end. avail mem={avail} GB")
        yield 0.67, ""
        pool_gb = self.held_gb
        avail_gb = self.avail_gb(0) - 0.53
        self.say(f"Capture cuda graph begin. This can take up to several minutes. avail mem={avail_gb:.2f} GB", 0)
        self.say(f"Capture cuda graph bs {sorted(_GRAPH_SIZES)}", 0)
        began, total = time.monotonic(), len(_GRAPH_SIZES)
        for done in range(total + 1):
            yield 0.70 + 0.22 * done / total, "graphs" if done == 11 else ""
            size = _GRAPH_SIZES[min(done, total - 1)]
            self.hold(pool_gb + 0.53 + _GRAPHS_GB * done / total, 45 + done * 13 % 45)
            title = f"Capturing batches (bs={size} avail_mem={avail_gb - 0.13 - 0.07 * done:.2f} GB)"
            output.write("\r" + output.graphs_bar(title, done, total, time.monotonic() - began))
        output.write("\n")
        yield 0.93, ""
        took = time.monotonic() - began
        self.busy(0)
        avail = f"{self.avail_gb(0):.2f}"
        used = f"{_GRAPHS_GB:.2f}"
        self.say(f"Capture cuda graph end. Time elapsed: {took:.2f} s. mem usage={used} GB. avail mem={avail} GB.", 0)
        yield 0.96, ""
        self.say(
            f"max_total_num_tokens={MOST_TOKENS}, chunked_prefill_size=8192, max_prefill_tokens=16384, "
            f"max_running_requests=2048, context_len=131072, available_gpu_mem={avail} GB",
            0,
        )
        yield 1.0, ""

    def http_up(self) -> None:
        self.say(f"INFO:     Started server process [{os.getpid()}]")
        self.say("INFO:     Waiting for application startup.")
        self.say("INFO:     Application startup complete.")
        self.say(f"INFO:     Uvicorn running on http://{self.options.host}:{self.options.port} (Press CTRL+C to quit)")

    def warming(self) -> Script:
        yield 0.3, ""
        self.access(f"{self.options.host}:{40000 + os.getpid() % 20000}", "GET", "/model_info", 200, "OK")
        yield 0.35, ""
        self.generation(6, 0)
        self.busy(38)
        yield 0.6, "warmup"
        yield 1.0, ""

    def ready(self) -> None:
        self.busy(0)
        self.access(f"{self.options.host}:{40002 + os.getpid() % 20000}", "POST", "/generate", 200, "OK")
        self.say("The server is fired up and ready to roll!")

    def port_taken(self) -> None:
        o = self.options
        self.say(
            f"ERROR:    [Errno 98] error while attempting to bind on address ('{o.host}', {o.port}): "
            "address already in use"
        )

    def death(self, stage: str) -> None:
        scheduler = f"{_SRT}/managers/scheduler.py"
        runner = f"{_SRT}/model_executor/model_runner.py"
        start = [f"{scheduler}:2874:run_scheduler_process", f"{scheduler}:311:__init__"]
        loop = [
            f"{scheduler}:2900:run_scheduler_process",
            f"{scheduler}:1041:event_loop_overlap",
            f"{scheduler}:2163:run_batch",
            f"{runner}:2241:forward",
            f"{_SRT}/models/deepseek_v2.py:2817:forward",
        ]
        weights = [f"{runner}:823:load_model", f"{_SRT}/model_loader/weight_utils.py:684:safetensors_weights_iterator"]
        draft = [
            f"{scheduler}:489:init_model_worker",
            f"{_SRT}/speculative/eagle_worker_v2.py:592:__init__",
            f"{_SRT}/speculative/eagle_worker_v2.py:641:init_cuda_graphs",
        ]
        places, usual, after = {
            "weights": (
                [*start, *weights],
                "safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, file not "
                "fully covered",
                [],
            ),
            "graphs": (
                [*start, *draft],
                "AttributeError: 'EAGLEWorkerV2' object has no attribute 'spec_disable_batch_threshold'",
                [],
            ),
        }.get(
            stage, (loop, "torch.AcceleratorError: CUDA error: an illegal memory access was encountered", _CUDA_NOISE)
        )
        output.write("\n")  # a bar may stand there
        for rank in range(self.options.workers):
            head = self._stamp(rank) + "Scheduler hit an exception: Traceback (most recent call last):"
            say_all([head, *frames(*places), self.cause(usual), *after, ""])
            self.say(_SIGQUIT)

    def child_died(self, title: str, pid: int, code: int, serving: bool) -> None:
        rank = next((at for at, child in enumerate(self.crew.ranks) if child.pid == pid), 0)
        if not serving:
            self.say(
                f"Rank {rank} scheduler died during initialization (exit code: {code}). If exit code is -9 (SIGKILL), "
                "a common cause is the OS OOM killer. Run `dmesg -T | grep -i oom` to check."
            )
            return
        name = f"scheduler_{rank}" if "scheduler" in title else "detokenizer"
        self.say(f"Subprocess {name} (pid={pid}) crashed with exit code {code}. Triggering SIGQUIT for cleanup...")
        self.say("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
        self.say("Sleeping 5 seconds before crash diagnostics to let GPU activity settle.")

    def child_death_settled(self) -> None:
        pid = os.getpid()
        self.say("No live scheduler processes found; skipping py-spy and CUDA coredump.")
        self.say(f"kill_process_tree called: parent_pid={pid}, include_parent=True, pid={pid}")

    def stopping(self, number: int) -> None:
        self.say(f"SIGTERM received. signum={int(number)} frame=None. Draining requests and shutting down...")

    def stopped(self) -> None:
        self.say("Gracefully exiting... Remaining number of requests 0.")

    def access(self, client: str, method: str, path: str, status: int, reason: str) -> None:
        self.say(f'INFO:     {client} - "{method} {path} HTTP/1.1" {status} {reason}')

    def generation(self, prompt_tokens: int, running: int) -> None:
        self.say(
            f"Prefill batch, #new-seq: 1, #new-token: {prompt_tokens}, #cached-token: 0, token usage: 0.00, "
            f"#running-req: {running}, #queue-req: 0, ",
            0,
        )

    def generated(self, prompt_tokens: int, tokens: int, seconds: float) -> None:
        if tokens >= 40:  # the real one speaks every 40 steps
            self.say(
                f"Decode batch, #running-req: 1, #token: {prompt_tokens + tokens}, token usage: 0.00, "
                f"cuda graph: True, gen throughput (token/s): {tokens / max(seconds, 1e-3):.2f}, #queue-req: 0, ",
                0,
            )

    def batch(self, running: int, queued: int, tokens_s: float, used_tokens: int) -> None:
        usage = used_tokens / MOST_TOKENS
        self.say(
            f"Decode batch, #running-req: {running}, #token: {used_tokens}, token usage: {usage:.2f}, "
            f"cuda graph: True, gen throughput (token/s): {tokens_s:.2f}, #queue-req: {queued}, ",
            0,
        )

    def health_gave_up(self) -> None:
        self.say(
            "Health check failed. Server couldn't get a response from detokenizer for last "
            f"{self.options.health_timeout_s:.0f} seconds."
        )
