"""The load of a serving engine: four figures with their histories, or one line; and why where it is not known."""

from __future__ import annotations

from supervisor.core import events as ev
from supervisor.tui import format_metrics
from supervisor.tui.pieces import Pieces
from tests.tui.models import Told, lines_of, widest


def served(**last: float | int | None) -> Told:
    """Five minutes of it: the load grows, and requests wait only at the end."""
    told = Told().serving()
    for step in range(150):
        told.after(2).tell(
            ev.Metrics(
                at=told.now,
                running=step // 10,
                queued=max(0, step - 146),
                generated_tokens_s=10.0 * step,
                cache_share=step / 300,
            )
        )
    if last:
        told.tell(ev.Metrics(at=told.now, **last))  # type: ignore[arg-type]
    return told


def drawn(told: Told, width: int, height: int = 4, later: float = 0.0) -> Pieces:
    pieces = format_metrics.lines(told.model, told.now + later, width, height)
    assert widest(pieces) <= width and len(lines_of(pieces)) <= height
    return pieces


def lines(told: Told, width: int, height: int = 4, later: float = 0.0) -> list[str]:
    return lines_of(drawn(told, width, height, later))


def test_four_figures_with_five_minutes_of_each() -> None:
    rows = lines(served(), 50)
    assert [" ".join(row[:19].split()) for row in rows] == ["tok/s 1,490", "running 14", "queued 3", "KV cache 50 %"]
    for row in rows[:2]:
        assert len(row) == 50 and list(row[19:]) == sorted(row[19:]) and row[19] == "▁" and row[-1] == "█"
    assert rows[2][19:] == "▁" * 29 + "▂▇" and rows[3][19:] == "▕█████████▉          ▏"
    assert {role for text, role in drawn(served(), 50) if text.strip() == "3"} == {"warn"}  # somebody waits


def test_one_line_where_there_are_fewer_rows() -> None:
    assert lines(served(), 60, 1) == ["tok/s 1,490 · running 14 · queued 3 · KV cache 50 %"]
    assert lines(served(), 40, 1) == ["tok/s 1,490 · running 14 · queued 3"]
    assert lines(served(), 10, 3) == ["tok/s 1,4…"]


def test_a_figure_that_is_not_told_is_a_dash() -> None:
    told = served(running=2, generated_tokens_s=3.25)
    assert [line[:17].split() for line in lines(told, 50)] == [
        ["tok/s", "3.2"], ["running", "2"], ["queued", "–"], ["KV", "cache", "–"],
    ]  # fmt: skip
    prompt = served(running=2, prompt_tokens_s=1234.0)
    assert lines(prompt, 50)[3].startswith("prompt/s    1,234  ")


def test_in_two_rows_they_stand_in_pairs() -> None:
    first, second = lines(served(), 110, 2)
    assert first.startswith("tok/s ") and "   queued " in first
    assert second.startswith("running ") and "   KV cache " in second
    assert first.index("queued") == second.index("KV cache")
    assert lines(served(), 110, 2, later=12)[1].endswith("12 s ago")
    assert len(lines(served(), 60, 2)) == 1, "too narrow for two figures side by side"


def test_why_nothing_is_known() -> None:
    told = Told().serving()
    assert lines(told, 60) == ["the engine's metrics have not been read yet"]
    told.tell(ev.Metrics(at=told.now, why="launched without --enable-metrics"))
    assert lines(told, 60) == ["not known: launched without --enable-metrics"]
    told.tell(ev.Metrics(at=told.now))
    assert lines(told, 60) == ["not known: the engine tells nothing of its load"]


def test_old_figures_say_so() -> None:
    assert "ago" not in " ".join(lines(served(), 60, later=9))
    assert lines(served(), 80, 5, later=12)[4] == "12 s ago" and "12 s ago" in lines(served(), 60, 1, later=12)[0]


def test_a_little_load_is_drawn_as_little() -> None:
    told = Told().serving()
    for _ in range(150):
        told.after(2).tell(ev.Metrics(at=told.now, running=1, queued=0, generated_tokens_s=0.0))
    rows = lines(told, 50)
    assert set(rows[0][19:]) == {"▁"} and set(rows[1][19:]) == {"▃"}  # one request of at least four
