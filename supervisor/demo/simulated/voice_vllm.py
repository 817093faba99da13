"""What vLLM says, stage by stage, in the words of its versions 0.2x to 0.3x."""

from __future__ import annotations

import os
import time

from . import output
from .state import ANSWER_TOKENS, MOST_TOKENS, PROMPT_TOKENS
from .voice import Script, Voice, frames, say_all

_VLLM = "/opt/vllm/lib/python3.12/site-packages/vllm"
_EXECUTOR = f"{_VLLM}/v1/executor/multiproc_executor.py"
_CORE = f"{_VLLM}/v1/engine/core.py"
_CONTEXT_GB = 0.53


class VllmVoice(Voice):
    _seen_prompt_tokens = 0
    _seen_tokens = 0
    _load = (0, 0, 0.0, 0)

    def _prefix(self, who: str) -> str:
        if who == "api":
            return f"(APIServer pid={os.getpid()}) "
        if who == "core":
            pid = self.crew.direct[0].pid if self.crew.direct else 0
            return f"(EngineCore pid={pid}) "
        return self._worker(int(who))

    def _worker(self, rank: int) -> str:
        name = f"Worker_TP{rank}" if self.options.workers > 1 else "Worker"
        return f"({name} pid={self.crew.ranks[rank].pid}) "

    def say(self, who: str, where: str, text: str, level: str = "INFO") -> None:
        output.line(f"{self._prefix(who)}{level} {time.strftime('%m-%d %H:%M:%S')} [{where}] {text}")

    def _all_workers(self, where: str, text: str) -> None:
        stamp = time.strftime("%m-%d %H:%M:%S")
        say_all([f"{self._worker(rank)}INFO {stamp} [{where}] {text}" for rank in range(self.options.workers)])

    def loading(self) -> Script:
        o = self.options
        yield 0.0, ""
        self.say("api", "api_utils.py:347", f"vLLM API server version 0.32.0 (simulated)  model   {o.model_path}")
        self.say(
            "api",
            "api_utils.py:286",
            f"non-default args: {{'model_tag': {o.model_path!r}, 'host': {o.host!r}, 'port': {o.port}, "
            f"'tensor_parallel_size': {o.tp}}}",
        )
        yield 0.02, ""
        self.say("api", "model.py:733", "Resolved architecture: DeepseekV3ForCausalLM")
        self.say("api", "model.py:2152", "Using max model len 131072")
        yield 0.05, ""
        self.say(
            "core",
            "core.py:133",
            f"Initializing a V1 LLM engine (v0.32.0) with config: model={o.model_path!r}, "
            f"tensor_parallel_size={o.tp}, pipeline_parallel_size=1, enforce_eager=False",
        )
        yield 0.08, ""
        self._all_workers("pynccl.py:111", "vLLM is using nccl==2.27.5")
        yield 0.10, ""
        self.hold(_CONTEXT_GB, 1)
        self._all_workers("gpu_model_runner.py:5209", f"Starting to load model {o.model_path}...")
        yield from self._weights(0.12, 0.55)
        yield from self._compile_and_cache()
        yield from self._graphs()

    def _weights(self, begin: float, end: float) -> Script:
        began, total = time.monotonic(), self.options.shards
        for done in range(total + 1):
            yield begin + (end - begin) * done / total, "weights" if done == total * 9 // 20 else ""
            self.hold(_CONTEXT_GB + self.options.weights_gb * done / total, 4 + done * 7 % 5)
            # vLLM's bar ends in \n at each step, and tqdm begins each with \r.
            output.write("\r" + output.shards_bar(done, total, time.monotonic() - began) + "\n")
        output.write("\n")
        yield end + 0.01, ""
        took = time.monotonic() - began
        self._all_workers("default_loader.py:430", f"Loading weights took {took:.2f} seconds")
        self._all_workers(
            "gpu_model_runner.py:5306",
            f"Model loading took {self.options.weights_gb - 0.38:.2f} GiB memory and {took + 0.4:.6f} seconds",
        )

    def _compile_and_cache(self) -> Script:
        yield 0.58, ""
        cache = "/home/user/.cache/vllm/torch_compile_cache/12e2758f86/rank_0_0/backbone"
        self.say("0", "backends.py:1089", f"Using cache directory: {cache} for vLLM's torch.compile")
        self.say("0", "backends.py:1148", "Dynamo bytecode transform time: 5.36 s")
        yield 0.64, ""
        self.say("0", "backends.py:393", "Compiling a graph for compile range (1, 8192) takes 21.16 s")
        self.say("0", "monitor.py:53", "torch.compile took 29.71 s in total")
        yield 0.68, ""
        kv_gb = self.options.kv_gb
        self.hold(_CONTEXT_GB + self.options.weights_gb + kv_gb, 12)
        self._all_workers("gpu_worker.py:538", f"Available KV cache memory: {kv_gb - 2.74:.2f} GiB")
        self.say("core", "kv_cache_utils.py:2146", "GPU KV cache size: 852,496 tokens")
        self.say("core", "kv_cache_utils.py:2147", "Maximum concurrency for 131,072 tokens per request: 6.50x")

    def _graphs(self) -> Script:
        began = time.monotonic()
        for title, total, begin in (("mixed prefill-decode, PIECEWISE", 51, 0.70), ("decode, FULL", 35, 0.82)):
            bar_began = time.monotonic()
            for done in range(total + 1):
                mark = "graphs" if total == 51 and done == 24 else ""
                yield begin + 0.12 * done / total, mark
                self.busy(45 + done * 13 % 45)
                output.write(
                    "\r"
                    + output.graphs_bar(f"Capturing CUDA graphs ({title})", done, total, time.monotonic() - bar_began)
                )
            output.write("\n")
        took = time.monotonic() - began
        self.hold(self.held_gb + 1.24)
        self._all_workers("gpu_model_runner.py:5386", f"Graph capturing finished in {took:.0f} secs, took 1.24 GiB")
        yield 0.97, "warmup"
        self.say(
            "core",
            "core.py:402",
            f"init engine (profile, create kv cache, warmup model) took {self.elapsed_s():.2f} s",
        )
        yield 1.0, ""

    def http_up(self) -> None:
        self.say("api", "entry.py:136", "Supported tasks: ['generate']")
        self.say("api", "entry.py:140", f"Starting vLLM server on http://{self.options.host}:{self.options.port}")
        self.say("api", "launcher.py:186", "Available routes are:")
        self.say("api", "launcher.py:195", "Route: /health, Methods: GET")
        self.say("api", "launcher.py:195", "Route: /v1/completions, Methods: POST")
        say_all(
            [
                f"INFO:     Started server process [{os.getpid()}]",
                "INFO:     Waiting for application startup.",
                "INFO:     Application startup complete.",
            ]
        )

    def port_taken(self) -> None:
        launcher = f"{_VLLM}/entrypoints/launchers/launcher.py"
        entry = f"{_VLLM}/entrypoints/launchers/api_server/entry.py"
        places = (f"{entry}:176:run_server", f"{launcher}:398:setup_server", f"{launcher}:348:create_server_socket")
        say_all(
            [
                "Traceback (most recent call last):",
                *frames(*places),
                "    sock.bind(addr)",
                "OSError: [Errno 98] Address already in use",
            ]
        )

    def death(self, stage: str) -> None:
        loader = f"{_VLLM}/model_executor/model_loader/base_loader.py"
        runner = f"{_VLLM}/v1/worker/gpu_model_runner.py"
        file, usual = {
            "weights": (
                f"{loader}:49:load_model",
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 448.00 MiB. GPU 0 has a total capacity "
                "of 139.81 GiB of which 312.25 MiB is free. Process 4711 has 70.13 GiB memory in use. Including "
                "non-PyTorch memory, this process has 69.31 GiB memory in use.",
            ),
            "graphs": (
                f"{runner}:5360:capture_model",
                "torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device",
            ),
            "warmup": (
                f"{_VLLM}/model_executor/warmup/kernel_warmup.py:118:kernel_warmup",
                "FileNotFoundError: [Errno 2] No such file or directory: 'ninja'",
            ),
        }.get(
            stage,
            (
                f"{runner}:3410:execute_model",
                "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
            ),
        )
        output.write("\n")
        worker = [f"{_EXECUTOR}:711:worker_main", f"{_VLLM}/v1/worker/gpu_worker.py:310:load_model", file]
        header = "WorkerProc hit an exception." if stage == "serving" else "WorkerProc failed to start."
        for rank in range(self.options.workers):
            self._error(str(rank), "multiproc_executor.py:822", header, worker, self.cause(usual))
        if stage == "serving":
            self._fatal()
        else:
            self._failed_start()

    def _error(self, who: str, where: str, header: str, places: list[str], root: str) -> None:
        stamp = time.strftime("%m-%d %H:%M:%S")
        lines = [header, "Traceback (most recent call last):", *frames(*places), root]
        say_all(lines, f"{self._prefix(who)}ERROR {stamp} [{where}] ")

    def _failed_start(self) -> None:
        secondary = (
            "Exception: WorkerProc initialization failed due to an exception in a background process. See stack trace "
            "for root cause."
        )
        places = [f"{_CORE}:1160:run_engine_core", f"{_CORE}:122:__init__", f"{_EXECUTOR}:660:wait_for_ready"]
        self._error("core", "core.py:1170", "EngineCore failed to start.", places, secondary)
        say_all(
            ["Process EngineCore:", "Traceback (most recent call last):", *frames(*places), secondary],
            self._prefix("core"),
        )
        say_all(
            [
                "Traceback (most recent call last):",
                *frames(
                    f"{_VLLM}/entrypoints/launchers/api_server/entry.py:177:run_server",
                    f"{_VLLM}/v1/engine/utils.py:1018:wait_for_engine_startup",
                ),
                "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): "
                "{'EngineCore': 1}",
            ],
            self._prefix("api"),
        )
        say_all(
            [
                "/usr/lib/python3.12/multiprocessing/resource_tracker.py:254: UserWarning: resource_tracker: There "
                "appear to be 1 leaked shared_memory objects to clean up at shutdown",
                "  warnings.warn('resource_tracker: There appear to be %d '",
            ]
        )

    def _fatal(self) -> None:
        root = "RuntimeError: Worker failed with error, please check the stack trace above for the root cause"
        places = [f"{_CORE}:1180:run_engine_core", f"{_EXECUTOR}:372:collective_rpc"]
        self._error("core", "core.py:1187", "EngineCore encountered a fatal error.", places, root)
        self._engine_dead()

    def _engine_dead(self) -> None:
        self._error(
            "api",
            "async_llm.py:906",
            "AsyncLLM output_handler failed.",
            [f"{_VLLM}/v1/engine/async_llm.py:849:output_handler"],
            "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for "
            "the root cause.",
        )

    def child_died(self, title: str, pid: int, code: int, serving: bool) -> None:
        if not serving:
            self.say("api", "utils.py:1010", f"Engine core process {title} died (exit code: {code}).", "ERROR")
            output.line(
                f"{self._prefix('api')}RuntimeError: Engine core initialization failed. See root cause above. Failed "
                f"core proc(s): {{'EngineCore': {code}}}"
            )
            return
        self.say(
            "api",
            "core_client.py:817",
            "[shutdown] MPClient: engine core exited unexpectedly; starting cleanup",
            "WARNING",
        )
        self.say("api", "core_client.py:770", "[shutdown] MPClient: start timeout=default")
        self.say("api", "core_client.py:777", "[shutdown] MPClient: complete")
        self._engine_dead()

    def child_death_settled(self) -> None:
        self._bye()

    def stopping(self, number: int) -> None:
        self.say("api", "launcher.py:254", "[shutdown] API server: shutdown triggered")
        self.say("api", "launcher.py:270", "[shutdown] API server: stopping engine client mode=abort timeout=0s")
        self.say("api", "utils.py:628", "[shutdown] Process manager: send sigterm to process EngineCore")

    def stopped(self) -> None:
        self.say("api", "launcher.py:304", "[shutdown] API server: shutting down FastAPI HTTP server")
        self._bye()

    def _bye(self) -> None:
        say_all(
            [
                "INFO:     Shutting down",
                "INFO:     Waiting for application shutdown.",
                "INFO:     Application shutdown complete.",
            ]
        )

    def access(self, client: str, method: str, path: str, status: int, reason: str) -> None:
        output.line(f'INFO:     {client} - "{method} {path} HTTP/1.1" {status} {reason}')

    def generated(self, prompt_tokens: int, tokens: int, seconds: float) -> None:
        self._seen_prompt_tokens += prompt_tokens
        self._seen_tokens += tokens

    def batch(self, running: int, queued: int, tokens_s: float, used_tokens: int) -> None:
        self._load = (running, queued, tokens_s, used_tokens)

    def tick(self) -> None:
        running, queued, tokens_s, used_tokens = self._load
        load_prompt_s, usage = tokens_s * PROMPT_TOKENS / ANSWER_TOKENS, 100.0 * used_tokens / MOST_TOKENS
        if self._seen_tokens or self._seen_prompt_tokens or running:
            self.say(
                "api",
                "loggers.py:273",
                f"Engine 000: Avg prompt throughput: {self._seen_prompt_tokens / 10 + load_prompt_s:.1f} tokens/s, Avg "
                f"generation throughput: {self._seen_tokens / 10 + tokens_s:.1f} tokens/s, Running: {running} reqs, "
                f"Waiting: {queued} reqs, GPU KV cache usage: {usage:.1f}%, Prefix cache hit rate: 0.0%",
            )
        self._seen_prompt_tokens = self._seen_tokens = 0
