"""What facts add to a log: who was killed by whom, who died first, what was no failure at all."""

from __future__ import annotations

import pytest

from supervisor.core.diagnosis.blocks import BlockDiagnoser
from supervisor.core.diagnosis.candidates import Candidate
from supervisor.core.diagnosis.conclude import Diagnosis
from supervisor.core.diagnosis.diagnoser import Diagnoser
from supervisor.core.diagnosis.facts import DeadProcess, EndFacts, OomKill
from supervisor.core.diagnosis.guesses import by_form
from supervisor.core.events import Exit, LogBlock
from supervisor.engines import loader

OWN_KILL = ("[2026-11-30 10:00:00] Received sigquit from a child process. It usually means the child failed.", "Killed")


def concluded(*lines: str, engine: str = "sglang", **facts: object) -> Diagnosis:
    diagnoser = Diagnoser(loader.load(engine), loader.common())
    for number, text in enumerate(lines, 1):
        diagnoser.feed(text, number)
    return diagnoser.conclude(EndFacts(**facts), 5.0)  # type: ignore[arg-type]


def test_killed_after_sglangs_own_words_is_no_oom_killer() -> None:
    done = concluded(
        "RuntimeError: CUDA error: out of memory", *OWN_KILL, exit=Exit(signal="SIGKILL"), oom_looked_at=True
    )
    assert done.finding is not None
    assert done.finding.category == "memory"
    assert any("no OOM killer had to do with it" in text for text in done.finding.ruled_out)
    assert any("neither its log nor the cgroup" in text for text in done.finding.ruled_out)


def test_the_kernels_record_speaks_where_the_log_is_silent() -> None:
    record = OomKill(text="Memory cgroup out of memory: Killed process 4711 (python3)", pid=4711, ours=True)
    done = concluded(*OWN_KILL, exit=Exit(signal="SIGKILL"), oom_kills=(record,), oom_looked_at=True)
    assert done.finding is not None
    assert (done.finding.category, done.finding.confidence) == ("killed", "sure")
    assert "4711" in done.finding.cause


def test_a_kill_of_somebody_else_is_not_ours() -> None:
    record = OomKill(text="Out of memory: Killed process 99 (chrome)", pid=99, ours=False)
    done = concluded("ValueError: x", exit=Exit(code=1), oom_kills=(record,), oom_looked_at=True)
    assert done.finding is not None
    assert done.finding.category != "killed"


def test_the_first_dead_child_is_named_where_the_log_names_nobody() -> None:
    dead = DeadProcess(at=3.0, pid=77, title="VLLM::EngineCore", how=Exit(signal="SIGSEGV"))
    done = concluded(
        "(APIServer pid=1) ERROR 11-30 03:16:00 [async_llm.py:906] vllm.v1.engine.exceptions.EngineDeadError: x",
        engine="vllm", exit=Exit(code=0), dead=(dead,),
    )  # fmt: skip
    assert done.finding is not None
    assert done.finding.category == "native_crash"
    assert "VLLM::EngineCore" in done.finding.cause


def test_a_named_culprit_stands_above_the_signal_of_its_process() -> None:
    dead = DeadProcess(at=3.0, pid=77, title="sglang::scheduler_TP1", how=Exit(signal="SIGABRT"))
    done = concluded("CUDA error: uncorrectable ECC error encountered", dead=(dead,), exit=Exit(code=1))
    assert done.finding is not None
    assert done.finding.category == "hardware"


def test_exit_code_0_without_being_asked_is_a_failure_that_says_so() -> None:
    done = concluded("INFO:     Application startup complete.", engine="vllm", exit=Exit(code=0), served=True)
    assert done.finding is not None
    assert done.finding.category == "unknown"
    assert "exit code 0" in done.finding.cause
    assert "core process" in done.finding.advice


def test_a_wanted_stop_is_no_failure() -> None:
    assert concluded("anything", exit=Exit(signal="SIGTERM"), asked_to_stop=True).finding is None
    by_log = concluded("SIGTERM received. signum=None frame=None. Draining requests and shutting down...", *OWN_KILL)
    assert by_log.finding is None
    assert "asked to stop" in by_log.reason


def test_a_stop_that_others_asked_for_says_so() -> None:
    done = concluded(
        "SIGTERM received. signum=None frame=None. Draining requests and shutting down...", exit=Exit(code=0)
    )
    assert done.finding is not None
    assert (done.finding.category, done.finding.line_no) == ("killed", 1)
    assert "somebody else asked" in done.finding.cause


def test_what_is_not_known_shows_the_nearest_lines() -> None:
    done = concluded("something failed here", "the frobnicator could not be found")
    assert done.finding is None
    assert [item.line_no for item in done.candidates] == [1, 2]


def test_echoes_of_other_ranks_are_counted_and_not_chosen() -> None:
    done = concluded(
        *(f"[2026-11-30 10:00:0{rank} TP{rank}] torch.OutOfMemoryError: CUDA out of memory. Tried" for rank in range(4))
    )
    assert done.finding is not None
    assert done.finding.line_no == 1
    assert "4 processes say the same" in done.finding.cause


def test_an_error_that_the_server_survived_is_not_its_end() -> None:
    lines = ["ValueError: a bad template, ignored", "The server is fired up and ready to roll!"]
    assert concluded(*lines).finding is None
    again = concluded(
        *lines, "[2026-11-30 10:00:00 TP1] RuntimeError: CUDA error: an illegal memory access was encountered"
    )
    assert again.finding is not None
    assert again.finding.line_no == 3


def test_a_certain_line_proves_it_at_once_and_its_cause_is_the_one_before() -> None:
    diagnoser = Diagnoser(loader.load("trtllm"), loader.common())
    diagnoser.feed("[TRT-LLM] [RANK 7] [E] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.", 1)
    assert diagnoser.certain(0.0) is None
    diagnoser.feed("[RANK 7] Executor loop crashed on this rank; hard-killing all 8 ranks", 2)
    certain = diagnoser.certain(0.0)
    assert certain is not None
    assert (certain.finding.category, certain.finding.line_no) == ("memory", 1)
    assert certain.line_no == 2 and certain.line.startswith("[RANK 7] Executor loop crashed")


def test_what_comes_after_a_wish_to_stop_is_no_failure_and_what_came_before_is() -> None:
    stop = "SIGTERM received. signum=None frame=None. Draining requests and shutting down..."
    after = "[2026-11-30 10:00:00 TP1] torch.OutOfMemoryError: CUDA out of memory."
    assert concluded("The server is fired up and ready to roll!", stop, after, *OWN_KILL).finding is None
    before = concluded(after, stop, *OWN_KILL).finding
    assert before is not None
    assert (before.category, before.line_no) == ("memory", 1)


def test_a_server_that_comes_up_again_in_the_same_log_leaves_its_past_behind() -> None:
    stop = "SIGTERM received. signum=None frame=None. Draining requests and shutting down..."
    ready = "The server is fired up and ready to roll!"
    crash = "[2026-11-30 10:00:00 TP1] Scheduler hit an exception: RuntimeError: CUDA error: an illegal memory access"
    finding = concluded(ready, stop, ready, crash, *OWN_KILL).finding
    assert finding is not None
    assert finding.line_no == 4


SCHEDULER = (
    "[2026-11-30 10:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):",
    '  File "/s/sglang/srt/managers/scheduler.py", line 9, in run_batch',
    "    return self.worker.forward(batch)",
    "RuntimeError: The size of tensor a (96) must match the size of tensor b (90) at non-singleton dimension 1",
    "",
)
CRASHED = "[2026-11-30 10:00:01] Subprocess scheduler_0 (pid=212) crashed with exit code -9. Triggering SIGQUIT"


def test_how_a_process_ended_is_no_cause_after_an_exception_that_nobody_caught() -> None:
    finding = concluded(*SCHEDULER, CRASHED).finding
    assert finding is not None
    assert (finding.line_no, finding.category) == (4, "engine_bug")
    finding = concluded(CRASHED, "[2026-11-30 10:00:02 TP1] x", *SCHEDULER).finding
    assert finding is not None
    assert (finding.line_no, finding.category) == (1, "killed"), "what came after it is its echo"


def test_a_log_that_breaks_off_at_an_error_names_it_with_little_confidence() -> None:
    """Nobody told how it ended, and no process of it is told to have died."""
    began = ["[2026-11-30 10:00:00] Load weight begin. avail mem=78.0 GB", "loads"]
    lone = "FrobnicationError: the gizmo has no handle"
    alone = concluded(*began, lone).finding
    assert alone is not None
    assert (alone.line_no, alone.confidence) == (3, "low")
    assert concluded(*began, lone, "The server is fired up and ready to roll!").finding is None
    last = concluded(*began, "ERROR: the gizmo was not found", engine="llamacpp").finding
    assert last is not None and last.line_no == 3
    goes_on = concluded(*began, "ERROR: the gizmo was not found", *["and so on"] * 12, engine="llamacpp")
    assert goes_on.finding is None and goes_on.candidates


def test_last_words_are_counted_in_lines_of_the_log_and_not_in_those_that_were_read() -> None:
    data = b"ERROR: the gizmo was not found\n" + b"".join(b"it goes on: %d\n" % number for number in range(40))
    reader = BlockDiagnoser(loader.load("llamacpp"), loader.common())
    reader.feed(LogBlock(at=0.0, data=data[:400], offset=0, line_no=1, lines=data.count(b"\n", 0, 400)))
    reader.feed(
        LogBlock(
            at=0.0, data=data[400:], offset=400, line_no=1 + data.count(b"\n", 0, 400), lines=data.count(b"\n", 400)
        )
    )
    assert reader.conclude(EndFacts(), 0.0).finding is None


@pytest.mark.parametrize(
    ("said", "family"),
    [
        ("[TensorRT-LLM][ERROR] CUDA runtime error in ::cudaMallocAsync(ptr): out of memory", "memory"),
        ("[TensorRT-LLM][ERROR] Assertion failed: the gizmo has no handle", "engine_bug"),
        ("[TensorRT-LLM][ERROR] Assertion failed: NVSHMEM could not be initialised", "communication"),
    ],
)
def test_a_rule_for_any_error_of_an_engine_leaves_the_family_to_its_words(said: str, family: str) -> None:
    finding = concluded(said, engine="trtllm").finding
    assert finding is not None and finding.category == family


@pytest.mark.parametrize(
    ("said", "family"),
    [
        ("OSError: [Errno 99] the gizmo cannot be bound there", "port"),
        ("GizmoError: HBM reports an uncorrectable ECC fault", "hardware"),
        ("GizmoError: cannot allocate 4 GiB for the gizmo", "memory"),
        ("GizmoError: can't start new thread for the gizmo", "limits"),
        ("GizmoError: the AMD driver is older than the gizmo", "driver"),
        ("GizmoError: gizmos only run on sm_90a, and nothing else is supported", "gpu_arch"),
        ("GizmoError: please install the package `gizmo`", "dependency"),
        ("GizmoError: HTTPSConnection(host='gizmo', port=443) broke", "access"),
        ("GizmoError: the build of gizmo.cu by nvcc broke", "toolchain"),
        ("GizmoError: UCX could not open the gizmo", "communication"),
        ("GizmoError: the gizmo took longer than its timeout", "hang"),
        ("GizmoError: shard 3 of the checkpoint is incomplete", "model_files"),
        ("GizmoError: unsupported architecture GizmoForCausalLM", "model_support"),
        ("GizmoError: heads must be divisible by gizmos", "config"),
        ("GizmoError: an odd number of handles", "engine_bug"),
        ("TypeError: gizmo() got an unexpected keyword argument 'pp_proxy'", "engine_bug"),
        ("ImportError: the gizmo timed out", "dependency"),
    ],
)
def test_an_exception_that_no_rule_knows_has_the_family_of_its_words(said: str, family: str) -> None:
    candidate = Candidate(line_no=1, order=1, text=said, body=said, rank=44, name=said.partition(":")[0])
    assert by_form(candidate)[0] == family
