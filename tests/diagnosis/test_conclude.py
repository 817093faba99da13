"""What facts add to a log: who was killed by whom, who died first, what was no failure at all."""

from __future__ import annotations

from supervisor.core.diagnosis.conclude import Diagnosis
from supervisor.core.diagnosis.diagnoser import Diagnoser
from supervisor.core.diagnosis.facts import DeadProcess, EndFacts, OomKill
from supervisor.core.events import Exit
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
