"""The panel: cause, line, what it is not, advice, keys; warnings before anything has failed."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from supervisor.core import events as ev
from supervisor.tui import format_finding
from supervisor.tui.format_finding import Report
from supervisor.tui.hints import Hints
from supervisor.tui.pieces import clock_time, text_of
from tests.tui.fakes import BEGAN
from tests.tui.models import Told, lines_of, widest

SHM = ev.Finding(
    at=0,
    category="communication",
    detail="shm",
    cause="Rank 5's NCCL could not map shared memory: /dev/shm is 64 MiB.",
    line="NCCL WARN Error while creating shared memory segment /dev/shm/nccl-aAsdf (size 9637888)",
    line_no=2113,
    confidence="sure",
    advice="--shm-size 16g for the container, or NCCL_SHM_DISABLE=1.",
    ruled_out=('the memory of the GPUs: "set --mem-fraction-static" is boilerplate after it',),
)


def failed(finding: ev.Finding = SHM) -> Told:
    return Told().failed().tell(finding)


def panel(told: Told, width: int, error: str = "") -> Report:
    report = format_finding.panel(told.model, told.now, width, error)
    assert report is not None and widest(report.pieces) <= width
    return report


def lines(told: Told, width: int, error: str = "") -> list[str]:
    return lines_of(panel(told, width, error).pieces)


def test_a_finding_at_the_usual_width() -> None:
    report = panel(failed(), 112)
    assert (report.title, report.tone, report.line_no) == ("failed after 6:51 · communication", "bad", 2113)
    assert lines(failed(), 112) == [
        "Rank 5's NCCL could not map shared memory: /dev/shm is 64 MiB." + "sure".rjust(50),
        "  line 2,113  NCCL WARN Error while creating shared memory segment /dev/shm/nccl-aAsdf (size 9637888)",
        'Not: the memory of the GPUs: "set --mem-fraction-static" is boilerplate after it',
        "Try: --shm-size 16g for the container, or NCCL_SHM_DISABLE=1."
        + "enter: go to the line   y: copy as a report".rjust(51),
    ]


def test_what_was_ruled_out_says_not_once_and_advice_of_several_lines_fits() -> None:
    out = ("not the kernel's OOM killer: its log tells of none",)
    shown = lines(failed(replace(SHM, ruled_out=out, advice="first this\nthen that")), 112)
    assert "Not: the kernel's OOM killer: its log tells of none" in shown
    assert any(line.startswith("Try: first this then that") for line in shown)


def test_a_line_that_stands_in_the_cause_is_not_shown_again() -> None:
    said = replace(SHM, cause=f"the server ended: exit code 1; the last line that looks like an error: {SHM.line}")
    text = "\n".join(lines(failed(said), 112))
    assert text.count("NCCL WARN Error") == 1
    assert "enter: go to line 2,113" in text
    copied = format_finding.report(failed(said).model)
    assert copied is not None
    assert lines_of(copied.pieces)[1] == "  line 2,113 of the log"


def test_warnings_that_were_read_are_put_away_until_a_new_one_comes() -> None:
    told = Told().loading().tell(ev.Warning_(at=BEGAN + 1, text="PATH differs"), ev.Warning_(at=BEGAN + 2, text="old"))
    assert panel(told, 80).foot == "x: put the warnings away"
    assert told.model.put_away()
    assert format_finding.panel(told.model, told.now, 80) is None
    assert not told.model.put_away()
    told.tell(ev.Warning_(at=BEGAN - 60, text="news, by a clock that was set back"))
    told.tell(ev.Warning_(at=told.now, text="news"))
    assert [line.split(" ", 1)[1] for line in lines(told, 80)] == ["news"]
    copied = format_finding.report(told.model)
    assert copied is not None and "PATH differs" in text_of(copied.pieces), "a report has all of them"
    told.after(1).failed()
    assert told.model.put_away()
    assert panel(told, 80).tone == "bad", "a finding is nothing that is put away"


def test_keys_are_called_as_the_user_calls_them() -> None:
    told = failed()
    told.model.hints = Hints({"console.finding": "^g", "console.copy": "c", "console.restart": "R"})
    assert "^g: go to the line   c: copy as a report" in text_of(panel(told, 112).pieces)
    assert "R: try again" in text_of(panel(told, 112, "the login was refused").pieces)


def test_a_finding_at_80_columns_wraps_and_loses_nothing() -> None:
    assert lines(failed(), 76) == [
        "Rank 5's NCCL could not map shared memory: /dev/shm is 64 MiB.          sure",
        "  line 2,113  NCCL WARN Error while creating shared memory segment",
        "              /dev/shm/nccl-aAsdf (size 9637888)",
        'Not: the memory of the GPUs: "set --mem-fraction-static" is boilerplate',
        "  after it",
        "Try: --shm-size 16g for the container, or NCCL_SHM_DISABLE=1.",
        "                                 enter: go to the line   y: copy as a report",
    ]


@pytest.mark.parametrize(
    ("told", "shown"), [("sure", "sure"), ("high", "very likely"), ("likely", "likely"), ("low", "a guess")]
)
def test_confidence_in_words(told: str, shown: str) -> None:
    finding = ev.Finding(at=0, category="unknown", detail="", cause="Something.", confidence=told)
    rows = lines(failed(finding), 80)
    assert rows == ["Something." + shown.rjust(70), "y: copy as a report".rjust(80)]


def test_a_line_of_megabytes_is_cut_after_three_rows() -> None:
    finding = ev.Finding(at=0, category="unknown", detail="", cause="Something.", line="x y " * 5000, line_no=7)
    rows = lines(failed(finding), 80)
    assert len(rows) == 5 and rows[3].endswith("…") and rows[1].startswith("  line 7  x y x y")


def test_secrets_are_masked_before_a_cut() -> None:
    told = Told(mask=lambda text: text.replace("sk-hunter2", "***")).failed()
    told.tell(
        ev.Finding(
            at=0, category="x", detail="", cause="key sk-hunter2 " * 9, line="sk-hunter2 " * 99, advice="sk-hunter2"
        )
    )
    for width in range(30, 120):
        assert "sk-" not in " ".join(lines(told, width))


def test_a_failure_without_a_finding_shows_its_evidence() -> None:
    assert lines(Told().failed(), 80) == ["the server ended: exit code 1"]
    assert panel(Told().failed(), 80).title == "failed after 6:51"


def test_supervision_that_has_ended_comes_first() -> None:
    told = failed()
    told.model.error = "gpu1 refused every key"
    assert lines(told, 80)[:3] == [
        "gpu1 refused every key",
        "The server was left as it is. r: try again.",
        "Rank 5's NCCL could not map shared memory: /dev/shm is 64 MiB.              sure",
    ]
    assert panel(told, 80).title == "supervision has ended"
    assert lines(Told(), 80, "no route")[0] == "no route"


def test_warnings_of_this_run_the_latest_and_how_many_before() -> None:
    told = Told()
    told.desk.warn("of yesterday")
    told.after(1).loading()
    assert format_finding.panel(told.model, told.now, 80) is None
    for number in range(5):
        told.after(1).desk.warn(f"warning {number}")
    told.tell()
    when = [clock_time(told.now - back) for back in (2, 1, 0)]
    assert lines(told, 80) == [*(f"{at} warning {n}" for at, n in zip(when, (2, 3, 4), strict=True)), "2 earlier"]
    assert panel(told, 80).tone == "warn" and panel(told, 80).title == "warnings"


def test_the_copy_is_whole_and_has_no_keys() -> None:
    report = format_finding.report(failed().model)
    assert report is not None
    assert text_of(report.pieces).split("\n") == [
        "Rank 5's NCCL could not map shared memory: /dev/shm is 64 MiB.  (sure)",
        f"  line 2,113  {SHM.line}",
        f"Not: {SHM.ruled_out[0]}",
        f"Try: {SHM.advice}",
    ]
