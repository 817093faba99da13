"""What llama-server says, stage by stage. One process, no titles; it listens before it loads, and loads in 503."""

from __future__ import annotations

import itertools

from . import output
from .options import Options
from .voice import Script, Voice
from .workers import Crew

_DOTS = 100
_WEIGHTS_GB = 39979.48 / 1024


class LlamacppVoice(Voice):
    def __init__(self, options: Options, crew: Crew) -> None:
        super().__init__(options, crew)
        self._tasks = itertools.count()

    def say(self, level: str, who: str, text: str) -> None:
        us = int(self.elapsed_s() * 1e6)
        stamp = f"{us // 60_000_000}.{us // 1_000_000 % 60:02d}.{us // 1000 % 1000:03d}.{us % 1000:03d}"
        output.line(f"{stamp} {level} {who}: {text}")

    def loading(self) -> Script:
        o = self.options
        yield 0.0, ""
        self.say("I", "cmn  common_param", "common_params_print_info: verbosity = 3 (adjust with the `-lv N` CLI arg)")
        self.say("I", "srv    load_model", f"loading model '{o.model_path}'")
        yield 0.05, ""
        self.say("I", "llama_model_loader", "loaded meta data with 35 key-value pairs and 724 tensors (GGUF V3)")
        yield 0.10, ""
        self.say("I", "load_tensors", "loading model tensors, this can take a while... (mmap = true)")
        self.say("I", "load_tensors", "offloaded 81/81 layers to GPU")
        self.say("I", "load_tensors", "       CUDA0 model buffer size = 39979.48 MiB")
        for dot in range(_DOTS):
            yield 0.15 + 0.60 * dot / _DOTS, "weights" if dot == 45 else ""
            self.hold(0.45 + _WEIGHTS_GB * (dot + 1) / _DOTS, 3)
            output.write(".")
        output.write("\n")
        yield 0.80, ""
        self.say("I", "llama_context", "n_ctx         = 8192")
        yield 0.85, "graphs"
        self.hold(0.45 + _WEIGHTS_GB + 2.5)
        self.say("I", "llama_kv_cache", "      CUDA0 KV buffer size =  2560.00 MiB")
        yield 1.0, ""

    def warming(self) -> Script:
        yield 0.0, ""
        self.say(
            "I",
            "cmn  common_init_",
            "warming up the model with an empty run - please wait ... (--no-warmup to disable)",
        )
        yield 0.5, "warmup"
        yield 1.0, ""
        self.say("I", "srv    load_model", "initializing, n_slots = 4, n_ctx_slot = 8192, kv_unified = 'true'")
        self.say("I", "srv  llama_server", "model loaded")

    def ready(self) -> None:
        self.say("I", "srv  llama_server", f"listening on http://{self.options.host}:{self.options.port}")
        self.say("I", "srv  update_slots", "all slots are idle")

    def port_taken(self) -> None:
        o = self.options
        self.say("E", "srv         start", f"couldn't bind HTTP server socket, hostname: {o.host}, port: {o.port}")
        self.say("I", "srv    operator()", "operator(): cleaning up before exit...")
        self.say("E", "srv  llama_server", "exiting due to HTTP server error")

    def death(self, stage: str) -> None:
        model = self.options.model_path
        output.write("\n")
        if stage == "weights":
            root = "tensor 'blk.36.ffn_up.weight' data is not within the file bounds, model is corrupted or incomplete"
            self.say("E", "llama_model_load", "error loading model: " + self.cause(root))
            self.say("E", "llama_model_load_from_file_impl", "failed to load model")
            self.say("E", "cmn  common_init_", f"failed to load model '{model}'")
        elif stage == "graphs":
            root = "allocating 2560.00 MiB on device 0: cudaMalloc failed: out of memory"
            self.say("E", "ggml_backend_cuda_buffer_type_alloc_buffer", self.cause(root))
            self.say("E", "alloc_tensor_range", "failed to allocate CUDA0 buffer of size 2684354560")
            self.say(
                "E",
                "llama_init_from_model",
                "failed to initialize the context: failed to allocate buffer for kv cache",
            )
        else:
            output.line(
                self.cause("/build/ggml/src/ggml-cuda/ggml-cuda.cu:98: GGML_ASSERT(ggml_is_contiguous(src0)) failed")
            )
            return
        self.say("E", "srv    load_model", f"failed to load model, '{model}'")
        self.say("I", "srv    operator()", "operator(): cleaning up before exit...")
        self.say("E", "srv  llama_server", "exiting due to model loading error")

    def stopping(self, number: int) -> None:
        self.say("I", "srv    operator()", "operator(): cleaning up before exit...")

    def generated(self, prompt_tokens: int, tokens: int, seconds: float) -> None:
        task = next(self._tasks)
        total_ms = seconds * 1000
        each_ms = total_ms / max(tokens, 1)
        self.say("I", "slot launch_slot_", f"id  0 | task {task} | processing task, is_child = 0")
        self.say(
            "I",
            "slot print_timing",
            f"id  0 | task {task} |        eval time = {total_ms:10.2f} ms / {tokens:5d} tokens ({each_ms:8.2f} ms per "
            f"token, {1000 / max(each_ms, 1e-3):8.2f} tokens per second)",
        )
        self.say(
            "I",
            "slot      release",
            f"id  0 | task {task} | stop processing: n_tokens = {prompt_tokens + tokens}, truncated = 0",
        )
