"""The simulated engine against what the real ones were seen to do. Real processes, real sockets, short times.

It must share nothing with the product, so nothing of the product is imported here either.
"""

from __future__ import annotations

import ast
import contextlib
import http.client
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

DEMO = Path(__file__).resolve().parent.parent / "supervisor" / "demo"
ENGINE = DEMO / "simulated_engine.py"
QUICK = ("--sim-load", "0.05", "--sim-warm", "0.05", "--sim-health-delay", "0", "--sim-shards", "20")
PATIENCE_S = 20.0
FRANCE = {"prompt": "The capital of France is", "max_tokens": 8, "temperature": 0}


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def wait_for(true: Callable[[], bool], what: str) -> None:
    """For what has no event to wait on, such as another process's end as seen in /proc."""
    until = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < until, f"waited in vain for {what}"
        time.sleep(0.01)


class Answer:
    def __init__(self, status: int, body: bytes, headers: dict[str, str], took_s: float) -> None:
        self.status, self.body, self.headers, self.took_s = status, body, headers, took_s

    def json(self) -> Any:
        return json.loads(self.body)


class Running:
    """A simulated engine that runs, and the log that it has written so far."""

    def __init__(self, engine: str, *flags: str, python: tuple[str, ...] = (sys.executable, "-I")) -> None:
        self.port = free_port()
        command = [*python, str(ENGINE), engine, *flags, "--port", str(self.port)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert self.process.stdout is not None
        self.pipe = self.process.stdout
        self.log = b""

    @property
    def pid(self) -> int:
        return self.process.pid

    def read(self, timeout_s: float) -> bool:
        """Takes what the pipe has; False when nothing came in time or it ended."""
        if not select.select([self.pipe], [], [], timeout_s)[0]:
            return False
        piece = os.read(self.pipe.fileno(), 1 << 20)
        self.log += piece
        return bool(piece)

    def until(self, pattern: str) -> None:
        """Until the log says it."""
        while not re.search(pattern.encode(), self.log):
            assert self.read(PATIENCE_S), f"no {pattern!r} in:\n{self.text}"

    @property
    def text(self) -> str:
        return self.log.decode(errors="replace")

    def end(self) -> int:
        """Its exit status, once it ended by itself; the log is read to its end."""
        while self.read(PATIENCE_S):
            pass
        return self.process.wait(PATIENCE_S)

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.end()

    def request(
        self, path: str, body: Any = None, key: str = "", timeout_s: float = PATIENCE_S, method: str = ""
    ) -> Answer:
        began = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        try:
            data = None if body is None else json.dumps(body)
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            connection.request(method or ("GET" if body is None else "POST"), path, data, headers)
            response = connection.getresponse()
            content = response.read()
            took_s = time.monotonic() - began
            return Answer(response.status, content, {k.lower(): v for k, v in response.getheaders()}, took_s)
        finally:
            connection.close()

    def health(self) -> Answer | None:
        """None: refused."""
        try:
            return self.request("/health")
        except ConnectionRefusedError:
            return None

    def listens(self) -> bool:
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", self.port)) == 0

    def come_up(self) -> list[Answer | None]:
        """All answers of health up to the first 200."""
        answers: list[Answer | None] = []
        until = time.monotonic() + PATIENCE_S
        while not answers or answers[-1] is None or answers[-1].status != 200:
            assert time.monotonic() < until and self.process.poll() is None, self.text
            answers.append(self.health())
            time.sleep(0.005)
        return answers

    def tree(self) -> dict[int, str]:
        """The living processes below it, with the title that cmdline shows."""
        found: dict[int, str] = {}
        todo = [self.pid]
        while todo:
            pid = todo.pop()
            with contextlib.suppress(OSError):
                children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
                todo += [int(child) for child in children]
                found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()
        del found[self.pid]
        return found

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE_S)
        self.pipe.close()


@contextlib.contextmanager
def running(engine: str, *flags: str, **more: Any) -> Iterator[Running]:
    server = Running(engine, *flags, **more)
    try:
        yield server
    finally:
        server.close()


def alive(pid: int) -> bool:
    """Whether a process lives; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def all_gone(pids: Any) -> Callable[[], bool]:
    return lambda: not any(alive(pid) for pid in pids)


def in_order(text: str, *parts: str) -> None:
    at = 0
    for part in parts:
        found = text.find(part, at)
        assert found >= 0, f"{part!r} is missing, or too early, in:\n{text}"
        at = found


# --- the phases of each engine


def test_sglang_is_refused_then_503_then_200_each_without_a_body() -> None:
    flags = ("--tp", "2", "--sim-load", "0.4", "--sim-warm", "0.8", "--sim-shards", "20", "--trust-remote-code")
    with running("sglang", *flags, "--mem-fraction-static", "0.88", "--model-path", "/models/kimi") as server:
        server.until("Uvicorn running")
        assert server.request("/v1/models").json()["data"][0]["id"] == "/models/kimi"
        assert server.request("/model_info").status == 200
        assert server.request("/ready").status == 503
        answers = server.come_up()
        kinds = [answer.status for answer in answers if answer is not None]
        assert sorted(set(kinds)) == [200, 503] and kinds == sorted(kinds, reverse=True)
        assert all(answer.body == b"" for answer in answers if answer is not None)
        last = answers[-1]
        assert last is not None and last.took_s >= 1.0
        assert last.headers["server"] == "simulated-sglang"
        assert server.request("/ready").took_s < 0.9
        assert server.stop() == 0
        assert server.log.startswith(b"*** SIMULATED ENGINE (sglang): no model, no GPU")
        in_order(
            server.text,
            "server_args=ServerArgs(model_path='/models/kimi'",
            "TP1] Init torch distributed begin.",
            "Load weight begin.",
            "\rLoading safetensors checkpoint shards:  45% Completed | 9/20 [",
            "Load weight end.",
            "KV Cache is allocated.",
            "\rCapturing batches (bs=72 avail_mem=9.44 GB):  48%|████▊     | 11/23 [",
            "max_total_num_tokens=",
            "Application startup complete.",
            '"GET /health HTTP/1.1" 503 Service Unavailable',
            "The server is fired up and ready to roll!",
            '"GET /health HTTP/1.1" 200 OK',
            "SIGTERM received.",
        )


def test_before_its_load_ends_sglang_is_refused() -> None:
    with running("sglang", *QUICK, "--sim-load", "5") as server:
        server.until("Load weight begin")
        assert server.health() is None
        assert server.stop() == 0


def test_vllm_is_refused_and_then_200_and_tells_when_that_was(tmp_path: Path) -> None:
    flip = tmp_path / "flip"
    before = time.monotonic(), time.time()
    with running("vllm", "org/model", *QUICK[:2], "--sim-shards", "20", "--sim-flip-file", str(flip)) as server:
        answers = server.come_up()
        assert answers[0] is None and {answer.status for answer in answers if answer} == {200}
        assert answers[-1] is not None and answers[-1].body == b""
        wait_for(flip.exists, "the flip file")
        monotonic, wall = (float(word) for word in flip.read_text().split())
        assert before[0] + 0.05 <= monotonic <= time.monotonic()
        assert before[1] + 0.05 <= wall <= time.time()
        assert server.request("/version").status == 200
        assert server.stop() == 0
        in_order(
            server.text,
            "non-default args:",
            "Starting to load model org/model...",
            "\rLoading safetensors checkpoint shards:  45% Completed | 9/20 [",
            "Loading weights took",
            "torch.compile took",
            "GPU KV cache size:",
            "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  47%|████▋     | 24/51 [",
            "Graph capturing finished",
            "init engine (profile, create kv cache, warmup model) took",
            "Application startup complete.",
            "[shutdown] API server: shutdown triggered",
            "Application shutdown complete.",
        )
        assert "ERROR" not in server.text


def test_llamacpp_listens_at_once_and_answers_503_with_json_until_it_is_loaded() -> None:
    with running("llamacpp", "-m", "tiny.gguf", "--sim-load", "0.8", "--sim-warm", "0.2") as server:
        server.until("loading model 'tiny.gguf'")
        for path in ("/health", "/v1/models", "/nowhere"):
            answer = server.request(path)
            assert answer.status == 503
            assert answer.json() == {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}
        answers = server.come_up()
        assert None not in answers
        assert answers[-1] is not None and answers[-1].json() == {"status": "ok"}
        assert server.request("/v1/models").json()["data"][0]["owned_by"] == "simulated"
        assert server.request("/props").json()["model_path"] == "tiny.gguf"
        assert server.request("/nowhere").status == 404
        assert server.stop(signal.SIGINT) == 0
        in_order(
            server.text,
            "load_tensors:",
            "." * 100,
            "model loaded",
            "listening on http://",
            "cleaning up before exit...",
        )
        assert "/health" not in server.text  # its health requests are not logged


# --- what it serves


@pytest.mark.parametrize("engine", ["sglang", "vllm", "llamacpp"])
def test_completions_say_paris_are_counted_and_keep_to_max_tokens(engine: str) -> None:
    with running(engine, *QUICK, "--enable-metrics", "--served-model-name", "me") as server:
        server.come_up()
        assert server.request("/v1/models").json()["data"][0]["id"] == "me"
        answer = server.request("/v1/completions", {**FRANCE, "model": "me"}).json()
        assert " Paris" in answer["choices"][0]["text"]
        assert answer["usage"]["completion_tokens"] == 8
        assert answer["choices"][0]["finish_reason"] == "length"
        short = server.request("/v1/completions", {**FRANCE, "max_tokens": 1}).json()
        assert short["choices"][0]["text"] == " Paris" and short["usage"]["completion_tokens"] == 1
        chat = {"messages": [{"role": "user", "content": "What is the capital of France?"}], "max_tokens": 3}
        message = server.request("/v1/chat/completions", chat).json()["choices"][0]["message"]
        assert message["role"] == "assistant" and message["content"].startswith("Paris")
        metrics = server.request("/metrics").body.decode()
        name = {
            "sglang": "sglang:generation_tokens_total",
            "vllm": "vllm:generation_tokens_total",
            "llamacpp": "llamacpp:tokens_predicted_total",
        }[engine]
        assert re.search(rf"^{name}(\{{.*\}})? 12(\.0)?$", metrics, re.MULTILINE), metrics
        assert server.request("/v1/completions", {"prompt": 3}).status == 400
        assert server.request("/v1/completions", {**FRANCE, "max_tokens": 0}).status == 400


def test_streams_end_with_done_and_take_the_completion_delay() -> None:
    with running("vllm", *QUICK, "--sim-warm", "0", "--sim-completion-delay", "0.2") as server:
        server.come_up()
        answer = server.request("/v1/completions", {**FRANCE, "max_tokens": 4, "stream": True})
        assert answer.headers["content-type"].startswith("text/event-stream") and answer.took_s >= 0.2
        events = [line[6:] for line in answer.body.decode().splitlines() if line.startswith("data: ")]
        assert events[-1] == "[DONE]"
        texts = [json.loads(event)["choices"][0]["text"] for event in events[:-1]]
        assert "".join(texts) == " Paris. It is" and len(texts) == 5


def test_the_engines_own_generate_endpoints() -> None:
    with running("sglang", *QUICK) as server:
        server.come_up()
        asked = {"text": FRANCE["prompt"], "sampling_params": {"max_new_tokens": 2}}
        answer = server.request("/generate", asked).json()
        assert answer["text"] == " Paris." and answer["meta_info"]["finish_reason"]["type"] == "length"
        assert server.request("/metrics").status == 404  # without --enable-metrics
    with running("llamacpp", *QUICK) as server:
        server.come_up()
        answer = server.request("/completion", {"prompt": FRANCE["prompt"], "n_predict": 2}).json()
        assert answer["content"] == " Paris." and answer["stop"] is True
        assert server.request("/metrics").status == 501


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_an_api_key_guards_models_and_completions_but_not_health(engine: str) -> None:
    with running(engine, *QUICK, "--api-key", "secret") as server:
        server.come_up()
        assert server.request("/v1/models").status == 401
        assert server.request("/v1/completions", FRANCE).status == 401
        assert server.request("/v1/models", key="secret").status == 200
        assert server.request("/v1/completions", FRANCE, key="secret").status == 200
        assert server.stop() == 0
        assert "secret" not in server.text


def test_sglang_lets_what_runs_finish_before_it_stops() -> None:
    with running("sglang", *QUICK, "--sim-completion-delay", "0.5") as server:
        server.come_up()
        answers: list[Answer] = []
        body = {**FRANCE, "prompt": "one two three four five six seven eight nine"}
        asking = threading.Thread(target=lambda: answers.append(server.request("/v1/completions", body)))
        asking.start()
        server.until("new-token: 10,")  # its own warm-up had 6
        server.process.send_signal(signal.SIGTERM)
        server.until("SIGTERM received")
        assert server.request("/health").status == 503
        asking.join(PATIENCE_S)
        assert answers[0].status == 200
        assert server.end() == 0


# --- its processes


def test_sglangs_children_carry_its_titles_and_end_with_it() -> None:
    with running("sglang", *QUICK, "--tp", "2") as server:
        server.until("ready to roll")
        tree = server.tree()
        titles = ["sglang::detokenizer", "sglang::scheduler_TP0", "sglang::scheduler_TP1"]
        assert sorted(tree.values()) == titles
        comms = sorted(Path(f"/proc/{pid}/comm").read_text().strip() for pid in tree)
        assert comms == sorted(title[:15] for title in titles)
        assert server.stop() == 0
        assert all_gone(tree)()


def test_vllms_workers_are_children_of_its_core() -> None:
    with running("vllm", *QUICK, "--tensor-parallel-size=2") as server:
        server.until("startup complete")
        tree = server.tree()
        assert sorted(tree.values()) == ["VLLM::EngineCore", "VLLM::Worker_TP0", "VLLM::Worker_TP1"]
        core = next(pid for pid, title in tree.items() if title == "VLLM::EngineCore")
        children = Path(f"/proc/{core}/task/{core}/children").read_text().split()
        assert sorted(tree[int(pid)] for pid in children) == ["VLLM::Worker_TP0", "VLLM::Worker_TP1"]
        assert f"(EngineCore pid={core})" in server.text
        assert server.stop() == 0
        assert all_gone(tree)()


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_children_die_with_a_parent_that_is_killed(engine: str) -> None:
    with running(engine, *QUICK, "--tp", "2") as server:
        server.until("Load weight begin|Starting to load")
        tree = server.tree()
        assert len(tree) == 3
        server.process.kill()
        wait_for(all_gone(tree), "the children's end")


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_orphaned_workers_live_on_in_sessions_of_their_own(engine: str) -> None:
    with running(engine, *QUICK, "--tp", "2", "--sim-fault", "orphan-workers:0.5") as server:
        server.until("ready to roll|startup complete")
        orphans = server.tree()
        try:
            assert server.process.wait(PATIENCE_S) == -signal.SIGKILL
            assert len(orphans) == 3 and all(alive(pid) for pid in orphans)
            assert all(os.getsid(pid) == pid for pid in orphans)
            assert "sglang::scheduler_TP1" in orphans.values() or "VLLM::Worker_TP1" in orphans.values()
        finally:
            for pid in orphans:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGTERM)
        wait_for(all_gone(orphans), "the orphans' end")


def test_setsid_workers_end_as_usual() -> None:
    with running("sglang", *QUICK, "--sim-fault", "setsid-workers") as server:
        server.until("Load weight begin")
        tree = server.tree()
        assert sorted(tree.values()) == ["sglang::detokenizer", "sglang::scheduler"]
        assert all(os.getsid(pid) == pid for pid in tree)
        assert server.stop() == 0
        assert all_gone(tree)()


def test_ignore_term_needs_a_kill() -> None:
    with running("sglang", *QUICK, "--sim-fault", "ignore-term") as server:
        server.come_up()
        for pid in (server.pid, *server.tree()):
            os.kill(pid, signal.SIGTERM)
        health = server.health()
        assert health is not None and health.status == 200
        assert len(server.tree()) == 2
        assert server.stop(signal.SIGKILL) == -signal.SIGKILL


def test_a_killed_scheduler_takes_sglang_with_it() -> None:
    with running("sglang", *QUICK, "--sim-speed", "20") as server:
        server.until("ready to roll")
        scheduler = next(pid for pid, title in server.tree().items() if "scheduler" in title)
        os.kill(scheduler, signal.SIGKILL)
        assert server.end() == -signal.SIGKILL
        assert f"Subprocess scheduler_0 (pid={scheduler}) crashed with exit code -9." in server.text


@pytest.mark.parametrize("victim", ["EngineCore", "Worker"])
def test_a_killed_core_or_worker_makes_vllm_503_and_then_exit_0(victim: str) -> None:
    with running("vllm", *QUICK, "--sim-warm", "0", "--sim-speed", "5") as server:
        server.come_up()
        os.kill(next(pid for pid, title in server.tree().items() if victim in title), signal.SIGKILL)
        server.until("engine core exited unexpectedly")
        wait_for(lambda: server.request("/health").status == 503, "503")
        assert server.end() == 0
        assert "EngineDeadError" in server.text


def test_a_frozen_core_is_felt_by_generations_and_by_sglangs_health_alone() -> None:
    with running("vllm", *QUICK, "--sim-warm", "0") as server:
        server.come_up()
        os.kill(next(pid for pid, title in server.tree().items() if "Core" in title), signal.SIGSTOP)
        with pytest.raises(TimeoutError):
            server.request("/v1/completions", FRANCE, timeout_s=0.3)
        assert server.request("/health").status == 200
    with running("sglang", *QUICK, "--sim-health-timeout", "0.3") as server:
        server.come_up()
        os.kill(next(pid for pid, title in server.tree().items() if "scheduler" in title), signal.SIGSTOP)
        answer = server.request("/health")
        assert (answer.status, answer.body) == (503, b"") and answer.took_s >= 0.3
        server.until("Health check failed. Server couldn't get a response from detokenizer")


# --- faults


@pytest.mark.parametrize(
    ("engine", "fault", "status", "root"),
    [
        ("sglang", "die-at-weights", -9, "Scheduler hit an exception: Traceback.*SafetensorError"),
        ("sglang", "die-at-graphs", -9, "AttributeError: 'EAGLEWorkerV2' object has no attribute"),
        ("sglang", "die-at-warmup", -9, "startup complete.*illegal memory access.*Received sigquit from a child"),
        ("sglang", "die-after:0.1", -9, "ready to roll.*illegal memory access"),
        ("vllm", "die-at-weights", 1, "OutOfMemoryError.*EngineCore failed to start.*Engine core initialization"),
        ("vllm", "die-at-graphs", 1, "no kernel image is available"),
        ("vllm", "die-at-warmup", 1, "No such file or directory: 'ninja'"),
        ("vllm", "die-after:0.1", 1, "startup complete.*EngineCore encountered a fatal error.*EngineDeadError"),
        ("llamacpp", "die-at-weights", 1, "not within the file bounds.*exiting due to model loading error"),
        ("llamacpp", "die-at-graphs", 1, "cudaMalloc failed: out of memory"),
        ("llamacpp", "die-at-warmup", -6, "GGML_ASSERT"),
        ("llamacpp", "die-after:0.1", -6, "listening on.*GGML_ASSERT"),
        ("sglang", "exit-code:7", 7, "Load weight begin"),
        ("vllm", "signal:SEGV", -11, "Starting to load"),
        ("sglang", "die-at-graphs,exit-code:3", 3, "AttributeError"),
        ("vllm", "exit-0-on-death:0.1", 0, "startup complete.*EngineDeadError"),
        ("llamacpp", "exit-0-on-death:0.1", 0, "listening on"),
        ("sglang", "port-taken-late", 1, r"Memory pool end.*\[Errno 98\] error while attempting to bind"),
        ("vllm", "port-taken-late", 1, r"OSError: \[Errno 98\] Address already in use"),
        ("llamacpp", "port-taken-late", 1, "couldn't bind HTTP server socket"),
    ],
)
def test_it_dies_as_asked(engine: str, fault: str, status: int, root: str) -> None:
    with running(engine, *QUICK, "--tp", "2", "--sim-speed", "4", "--sim-fault", fault) as server:
        server.until("SIMULATED")
        assert server.end() == status
        assert re.search(root, server.text, re.DOTALL), server.text
        assert ("hit an exception" in server.text) == (engine == "sglang" and "die-" in fault) or engine == "vllm"


def test_a_cause_of_ones_own_is_the_root_line_of_every_rank() -> None:
    cause = "ValueError: something of mine"
    flags = ("--sim-cause", cause, "--sim-fault", "die-at-weights")
    with running("sglang", *QUICK, "--tp", "3", *flags) as server:
        assert server.end() == -9
        assert server.text.count(f"\n{cause}\n") == 3


@pytest.mark.parametrize(
    ("fault", "path", "status", "text"),
    [
        ("unauthorized", "/v1/completions", 401, None),
        ("completion-500", "/v1/completions", 500, None),
        ("garbage-completion", "/v1/completions", 200, ""),
        ("gibberish-completion", "/v1/completions", 200, "!!!!!!!!"),
        ("health-401", "/health", 401, None),
        ("503-for-ever", "/health", 503, None),
        ("wrong-model", "/v1/models", 200, None),
    ],
)
def test_it_answers_wrongly_as_asked(fault: str, path: str, status: int, text: str | None) -> None:
    with running("vllm", "m", *QUICK, "--sim-warm", "0", "--sim-fault", fault) as server:
        wait_for(lambda: server.health() is not None, "an answer")
        answer = server.request(path, FRANCE if "completions" in path else None)
        assert answer.status == status
        if text is not None:
            assert answer.json()["choices"][0]["text"] == text
        if fault == "wrong-model":
            assert answer.json()["data"][0]["id"] != "m"
            assert server.request("/v1/completions", {**FRANCE, "model": "m"}).status == 404


def test_503_for_ever_survives_its_warm_up() -> None:
    with running("sglang", *QUICK, "--sim-warm", "0.01", "--sim-fault", "503-for-ever") as server:
        server.until("Prefill batch")
        assert server.request("/health").status == 503
        assert server.stop() == 0
        assert "ready to roll" not in server.text


def test_health_once_and_sick_after() -> None:
    with running("llamacpp", *QUICK, "--sim-fault", "health-once") as server:
        server.come_up()
        assert [server.request("/health").status for _ in range(2)] == [503, 503]
        assert server.request("/v1/completions", FRANCE).status == 200
    with running("vllm", *QUICK, "--sim-warm", "0", "--sim-fault", "sick-after:0.5") as server:
        server.come_up()
        wait_for(lambda: server.request("/health").status == 503, "503")
        assert server.process.poll() is None


def test_hanging_faults_hang_and_still_obey_a_signal() -> None:
    with running("sglang", *QUICK, "--sim-fault", "hang-at-weights", "--sim-log-rate", "10000") as server:
        server.until("35% Completed")
        while server.read(0.3):  # silence is a third of a second without a byte
            pass
        assert b"Load weight end" not in server.log and server.health() is None
        assert server.stop() == 0
    with running("vllm", *QUICK, "--sim-warm", "0", "--sim-fault", "hang-health,hang-completion") as server:
        wait_for(server.listens, "a listening socket")  # which vLLM has only after its last words
        for path, body in (("/health", None), ("/v1/completions", FRANCE)):
            with pytest.raises(TimeoutError):
                server.request(path, body, timeout_s=0.2)
        assert server.request("/v1/models").status == 200
        assert server.stop() == 0


def test_a_taken_port_is_told_as_the_engine_does() -> None:
    with socket.socket() as taken, running("vllm", *QUICK) as server:
        server.close()
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        command = [sys.executable, "-I", str(ENGINE), "vllm", "--port", str(taken.getsockname()[1])]
        result = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False)
        assert result.returncode == 1
        assert b"OSError: [Errno 98] Address already in use" in result.stdout
        assert b"Starting to load model" not in result.stdout


def test_an_unknown_fault_is_exit_2_with_the_list_of_faults() -> None:
    command = [sys.executable, "-I", str(ENGINE), "vllm", "--sim-fault", "die-at-brunch"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert result.returncode == 2
    assert "die-at-brunch" in result.stderr and "die-at-graphs" in result.stderr
    assert result.stdout == ""


def test_clients_that_hang_up_leave_no_trace() -> None:
    with running("sglang", *QUICK, "--sim-health-delay", "0.3") as server:
        server.until("ready to roll")
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", server.port)) as sock:
                sock.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        health = server.health()
        assert health is not None and health.status == 200
        assert server.stop() == 0
        assert "Traceback" not in server.text


def test_a_flood_keeps_its_rate_and_is_utf_8() -> None:
    rate = 2_000_000
    with running("sglang", "--sim-load", "30", "--sim-log-rate", str(rate), "--sim-log-lines", "100") as server:
        server.until(r"\[flood\] seq: 3,")
        began, size = time.monotonic(), len(server.log)
        while time.monotonic() < began + 0.5:
            server.read(0.1)
        seen = (len(server.log) - size) / (time.monotonic() - began)
        assert rate * 0.6 < seen < rate * 1.5
        whole = server.log[: server.log.rindex(b"\n")]
        assert len(set(whole.decode()) & set("é法🙂Ф€→")) >= 5
        sequence = [int(number) for number in re.findall(rb"\[flood\] seq: (\d+),", whole)]
        assert sequence == list(range(len(sequence)))


# --- it stands alone


def test_it_imports_the_standard_library_alone_and_is_python_3_8() -> None:
    for path in (ENGINE, *sorted((DEMO / "simulated").glob("*.py"))):
        tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level <= 1, f"{path.name} imports from outside its folder"
                names = [node.module or ""] if node.level == 0 else []
            else:
                continue
            assert {name.split(".")[0] for name in names} <= sys.stdlib_module_names, path.name


def _old_python() -> str | None:
    """A Python 3.8 that runs; pyenv puts a `python3.8` on PATH that may not."""
    found = [str(path) for path in sorted((Path.home() / ".pyenv" / "versions").glob("3.8.*/bin/python3"))]
    found += [path for path in [shutil.which("python3.8")] if path]
    for python in found:
        told = subprocess.run(
            [python, "-I", "-S", "-c", "import sys; print(sys.version_info[:2])"], capture_output=True, check=False
        )
        if told.stdout.strip() == b"(3, 8)":
            return python
    return None


@pytest.mark.parametrize("engine", ["sglang", "vllm", "llamacpp"])
def test_it_runs_on_python_3_8_without_site_packages(engine: str) -> None:
    python = _old_python()
    if python is None:
        pytest.skip("no Python 3.8 here")
    with running(engine, *QUICK, "--metrics", python=(python, "-I", "-S")) as server:
        server.come_up()
        assert " Paris" in server.request("/v1/completions", FRANCE).json()["choices"][0]["text"]
        assert server.request("/metrics").status == 200
        assert server.stop() == 0
        assert "Traceback" not in server.text
