"""What the end of a server and its last lines tell, and no more than that."""

from __future__ import annotations

import pytest

from supervisor.core import events as ev
from supervisor.core.diagnose import LOOKED_AT_LINES, finding_of_end, says_its_line
from supervisor.engines import loader

VLLM = loader.load("vllm")
ENDED = ev.Exit(code=1)


def log(*lines: str) -> list[ev.Log]:
    return [ev.Log(at=1, text=text, line_no=number, offset=0) for number, text in enumerate(lines, 1)]


def find(*lines: str, how: ev.Exit = ENDED) -> ev.Finding:
    return finding_of_end(how, log(*lines), VLLM, 5.0)


def test_the_engines_own_error_lines_come_before_the_usual_words() -> None:
    finding = find("ValueError: max_model_len is too large", "we failed to shut down in time")
    assert (finding.line_no, finding.line) == (1, "ValueError: max_model_len is too large")
    assert "exit code 1" in finding.cause
    assert finding.at == 5.0


def test_the_pointer_to_the_cause_is_not_the_cause() -> None:
    """vLLM's last line is an error by its form, and says only "see above"; it was shown as the cause."""
    finding = find(
        "(EngineCore pid=1) ERROR torch.OutOfMemoryError: CUDA out of memory.",
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
    )
    assert finding.line_no == 1
    assert "See root cause above" not in finding.cause


def test_a_log_without_an_error_says_so_and_shows_its_last_line() -> None:
    finding = find("loading", "still loading", "  ")
    assert (finding.line, finding.line_no) == ("still loading", 2)
    assert "no line of its log looks like an error" in finding.cause


def test_an_empty_log_is_told() -> None:
    finding = find()
    assert (finding.line, finding.line_no) == ("", None)
    assert "its log is empty" in finding.cause


def test_only_the_last_lines_count_and_three_are_shown() -> None:
    old = "ValueError: from long ago"
    assert old not in find(old, *["quiet"] * LOOKED_AT_LINES).cause
    finding = find(*[f"ValueError: {number}" for number in range(9)])
    assert [str(number) in finding.cause.split("errors: ")[1] for number in (5, 6, 7, 8)] == [False, True, True, True]


def test_what_every_rank_says_is_told_once() -> None:
    """The panel showed the same line three times in the cause, and once more below it."""
    finding = find(*["ValueError: the model is too large"] * 8)
    assert finding.cause.count("the model is too large") == 1
    assert finding.line_no == 8
    assert says_its_line(finding)
    finding = find("ValueError: a", "ValueError: b", "ValueError: a")
    assert finding.cause.endswith("errors: ValueError: b | ValueError: a")


def test_a_line_that_the_cause_does_not_have_is_shown_beside_it() -> None:
    assert not says_its_line(find("loading"))
    assert not says_its_line(find())


def test_long_lines_are_cut() -> None:
    finding = find("ValueError: " + "x" * 9000)
    assert len(finding.line) == 1000
    assert len(finding.cause) < 500


@pytest.mark.parametrize(
    ("how", "category", "detail"),
    [
        (ev.Exit(signal="SIGKILL"), "killed", "SIGKILL"),
        (ev.Exit(signal="SIGSEGV"), "native_crash", "SIGSEGV"),
        (ev.Exit(signal="SIGABRT"), "native_crash", "SIGABRT"),
        (ev.Exit(code=0), "unknown", "exit 0"),
        (ev.Exit(code=1), "unknown", "exit"),
        (ev.Exit(), "unknown", "exit"),
    ],
)
def test_the_family_by_the_end(how: ev.Exit, category: str, detail: str) -> None:
    finding = find("ValueError: x", how=how)
    assert (finding.category, finding.detail, finding.confidence) == (category, detail, "low")
    assert finding.advice
    assert how.words() in finding.cause
